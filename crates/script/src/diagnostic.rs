//! What the compiler has to say of a text: what is wrong, where, and what to do.
//!
//! A run tells all it found, in the order of the text. Every error has a label, which says what stands at the place,
//! and a help, which says what to do. Codes are stable and stand in docs/errors.md; where a rule of the language is
//! behind one, it has the rule's number.

use std::ops::Range;

use crate::room::LONGEST;

pub use code::Code;

mod code;
mod render;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// There is no program.
    Error,
    /// There is a program, and it may not do what its author means.
    Warning,
    /// Something worth knowing.
    Note,
}

/// A place and what is to be said of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Bytes of the S text.
    pub span: Range<usize>,
    /// What stands there.
    pub text: String,
}

/// One thing that the compiler says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// What it is, for machines; the rule's number comes with it.
    pub code: Code,
    /// What is wrong, as one sentence without a full stop.
    pub message: String,
    /// The place that is meant first.
    pub primary: Label,
    /// Further places.
    pub others: Vec<Label>,
    /// What to do.
    pub help: String,
}

impl Diagnostic {
    /// An error. The label says what stands at the place, the help what to do.
    pub fn error(
        code: Code,
        span: Range<usize>,
        message: impl Into<String>,
        label: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        let primary = Label { span, text: label.into() };
        let (message, help) = (message.into(), help.into());
        Self { severity: Severity::Error, code, message, primary, others: Vec::new(), help }
    }

    /// A text that there is no room for.
    pub(crate) fn too_large() -> Self {
        let message = format!("a file has at most {} KiB", LONGEST >> 10);
        let help = "divide it: services reach each other by HTTP, and plain functions can be imported";
        Self::error(Code::TooLarge, 0..0, message, "this one is too large to be compiled", help)
    }

    /// The same, less severe.
    pub fn as_warning(self) -> Self {
        Self { severity: Severity::Warning, ..self }
    }

    /// The same, as something worth knowing.
    pub fn as_note(self) -> Self {
        Self { severity: Severity::Note, ..self }
    }

    /// Adds a place.
    pub fn and(mut self, span: Range<usize>, text: impl Into<String>) -> Self {
        self.others.push(Label { span, text: text.into() });
        self
    }
}

/// Puts what was found into the order of the text, once each.
pub(crate) fn sort(found: &mut Vec<Diagnostic>) {
    found.sort_by(|a, b| {
        let key = |it: &Diagnostic| (it.primary.span.start, it.primary.span.end, it.severity);
        key(a).cmp(&key(b))
    });
    found.dedup();
}
