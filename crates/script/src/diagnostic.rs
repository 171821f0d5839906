//! Compiler diagnostics: the mistake, its place in the text, and how to correct it.
//!
//! A run reports every diagnostic that it finds, in source order. Every error has a label, which describes
//! the code at that place, and a help text, which describes the correction. Codes are stable and documented
//! in docs/errors.md. Where a code enforces a rule of the language, it has the rule's number.

use std::ops::Range;

pub use code::DiagnosticCode;

mod code;
mod render;

/// The severity of a diagnostic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiagnosticSeverity {
    /// The text does not compile.
    Error,
    /// The text compiles, but may not behave as its author intends.
    Warning,
    /// Additional information.
    Note,
}

/// A source range with a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiagnosticLabel {
    /// The range, in bytes of the S text.
    pub span: Range<usize>,
    /// A description of the code at this range.
    pub text: String,
}

/// A message of the compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct ScriptDiagnostic {
    /// The severity.
    pub severity: DiagnosticSeverity,
    /// The machine-readable code, which also implies the number of the rule.
    pub code: DiagnosticCode,
    /// The mistake, as one sentence without a full stop.
    pub message: String,
    /// The main place.
    pub primary: DiagnosticLabel,
    /// Related places.
    pub secondary_labels: Vec<DiagnosticLabel>,
    /// The correction.
    pub help: String,
}

impl ScriptDiagnostic {
    /// Creates an error. The label describes the code at `span`, the help describes the correction.
    pub fn error(
        code: DiagnosticCode,
        span: Range<usize>,
        message: impl Into<String>,
        label: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        let primary = DiagnosticLabel { span, text: label.into() };
        let (message, help) = (message.into(), help.into());
        Self {
            severity: DiagnosticSeverity::Error,
            code,
            message,
            primary,
            secondary_labels: Vec::new(),
            help,
        }
    }

    /// Lowers the severity to a warning.
    pub fn as_warning(self) -> Self {
        Self { severity: DiagnosticSeverity::Warning, ..self }
    }

    /// Lowers the severity to a note.
    pub fn as_note(self) -> Self {
        Self { severity: DiagnosticSeverity::Note, ..self }
    }

    /// Adds a related place.
    pub fn with_label(mut self, span: Range<usize>, text: impl Into<String>) -> Self {
        self.secondary_labels.push(DiagnosticLabel { span, text: text.into() });
        self
    }
}

/// Sorts diagnostics by source order and removes duplicates.
pub(crate) fn sort_diagnostics(found: &mut Vec<ScriptDiagnostic>) {
    found.sort_by(|a, b| {
        let key = |it: &ScriptDiagnostic| (it.primary.span.start, it.primary.span.end, it.severity);
        key(a).cmp(&key(b))
    });
    found.dedup();
}
