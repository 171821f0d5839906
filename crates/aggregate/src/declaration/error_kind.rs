//! The kinds of errors in declarations that the JSON schema can't express.

use diagnostics::DiagnosticKind;

/// The kind of an error in a declaration, which determines the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeclarationErrorKind {
    Input,
    Call,
    Placeholder,
    Cycle,
    Each,
    Join,
    Fields,
    Unsafe,
    Answer,
}

impl DiagnosticKind for DeclarationErrorKind {
    fn code(self) -> &'static str {
        match self {
            Self::Input => "declared-input",
            Self::Call => "declared-call",
            Self::Placeholder => "declared-placeholder",
            Self::Cycle => "declared-cycle",
            Self::Each => "declared-each",
            Self::Join => "declared-join",
            Self::Fields => "declared-fields",
            Self::Unsafe => "declared-unsafe",
            Self::Answer => "declared-answer",
        }
    }
}
