//! Mistakes in declarations, with their positions.

use std::fmt;

/// A mistake in a declaration that the JSON schema can't express.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The position in the file, as a JSON Pointer: `/parts/catalogs/join/on`.
    pub place: String,
    /// The mistake.
    pub message: String,
    /// A suggested correction.
    pub hint: String,
    /// The stable code.
    pub code: &'static str,
}

/// The kind of a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
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

impl Kind {
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

impl fmt::Display for Mistake {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {} ({})", self.place, self.message, self.hint)
    }
}

/// The mistakes found so far.
#[derive(Debug, Default)]
pub(crate) struct Mistakes(Vec<Mistake>);

impl Mistakes {
    pub(crate) fn add(
        &mut self,
        kind: Kind,
        place: impl Into<String>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.0.push(Mistake {
            place: place.into(),
            message: message.into(),
            hint: hint.into(),
            code: kind.code(),
        });
    }

    pub(crate) fn push(&mut self, mistake: Mistake) {
        self.0.push(mistake);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn into_vec(self) -> Vec<Mistake> {
        self.0
    }
}
