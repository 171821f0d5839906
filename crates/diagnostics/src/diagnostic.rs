//! A diagnostic, and its form on one line.

use std::fmt;
use std::ops::Range;

use crate::line::LineStarts;
use crate::location::{DiagnosticLocation, SourceDocument};

/// A problem in a file that people write.
///
/// It is displayed as `file:line:column: field: message (code) (hint: …)`, without the parts that it lacks.
/// The alternate form (`{:#}`) is for lists within another message: `location: message (hint)`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Diagnostic {
    /// The severity.
    pub severity: DiagnosticSeverity,
    /// The stable code, documented in docs/errors.md.
    pub code: Option<&'static str>,
    /// The number of the language rule that the code enforces, if there is one.
    pub rule: Option<u8>,
    /// The problem, as one sentence without a full stop.
    pub message: String,
    /// The remedy.
    pub hint: Option<String>,
    /// The location.
    pub location: DiagnosticLocation,
    /// A description of the text at the location; empty if the message describes it.
    pub label: String,
    /// Related locations.
    pub labels: Vec<DiagnosticLabel>,
}

/// A related location, with a description of the text there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiagnosticLabel {
    /// The location.
    pub location: DiagnosticLocation,
    /// The description; may be empty.
    pub text: String,
}

/// The severity of a diagnostic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiagnosticSeverity {
    /// The file can't be used.
    Error,
    /// The file can be used, but may not have the effect that its author intends.
    Warning,
    /// Additional information.
    Note,
}

/// A kind of diagnostic, which determines the code.
pub trait DiagnosticKind: Copy {
    /// Returns the stable code.
    fn code(self) -> &'static str;

    /// Returns the number of the language rule that the code enforces, if there is one.
    fn rule(self) -> Option<u8> {
        None
    }
}

impl DiagnosticSeverity {
    /// Returns the name that is printed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

impl Diagnostic {
    /// Creates an error without a code. No hint if it is empty.
    pub fn new(
        location: impl Into<DiagnosticLocation>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self {
            severity: DiagnosticSeverity::Error,
            code: None,
            rule: None,
            message: message.into(),
            hint: Some(hint.into()).filter(|hint| !hint.is_empty()),
            location: location.into(),
            label: String::new(),
            labels: Vec::new(),
        }
    }

    /// Creates an error in a text. The label describes the text at `span`.
    pub fn in_text(
        kind: impl DiagnosticKind,
        span: Range<usize>,
        message: impl Into<String>,
        label: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { label: label.into(), ..Self::new(span, message, hint).with_kind(kind) }
    }

    /// Sets the code.
    pub fn with_kind(self, kind: impl DiagnosticKind) -> Self {
        Self { code: Some(kind.code()), rule: kind.rule(), ..self }
    }

    /// Lowers the severity to a warning.
    pub fn as_warning(self) -> Self {
        Self { severity: DiagnosticSeverity::Warning, ..self }
    }

    /// Lowers the severity to a note.
    pub fn as_note(self) -> Self {
        Self { severity: DiagnosticSeverity::Note, ..self }
    }

    /// Adds a related location.
    pub fn with_label(mut self, location: impl Into<DiagnosticLocation>, text: impl Into<String>) -> Self {
        self.labels.push(DiagnosticLabel { location: location.into(), text: text.into() });
        self
    }

    /// Puts the checked document below `base` in a larger one.
    pub fn below(mut self, base: &str) -> Self {
        if let DiagnosticLocation::Pointer { document: SourceDocument::Checked, pointer } = &mut self.location
        {
            pointer.insert_str(0, base);
        }
        self
    }

    /// Resolves a range of bytes to a position in `file`, whose text is `source`.
    pub fn resolve_span(self, file: impl Into<String>, source: &str) -> Self {
        let DiagnosticLocation::Span(span) = &self.location else { return self };
        let position = LineStarts::new(source).position(span.start);
        let location = DiagnosticLocation::in_file(file, position.line as usize, position.column as usize);
        Self { location, ..self }
    }

    fn write_short(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.location {
            DiagnosticLocation::Source(at) => write!(out, "{}:{}:{}: ", at.file, at.line, at.column)?,
            DiagnosticLocation::Pointer { document, pointer } => match document {
                SourceDocument::Checked | SourceDocument::Links => write!(out, "{pointer}: ")?,
                SourceDocument::Service(service) => write!(out, "{service}{pointer}: ")?,
                SourceDocument::Description(service) => write!(out, "{service} {pointer}: ")?,
            },
            DiagnosticLocation::Span(_) => {}
        }
        out.write_str(&self.message)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(out, " ({hint})"))
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if out.alternate() {
            return self.write_short(out);
        }
        match &self.location {
            DiagnosticLocation::Source(at) => {
                out.write_str(&at.file)?;
                if at.line > 0 {
                    write!(out, ":{}:{}", at.line, at.column)?;
                }
                if !at.field.is_empty() {
                    write!(out, ": {}", at.field)?;
                }
                out.write_str(": ")?;
            }
            DiagnosticLocation::Pointer { pointer, .. } if !pointer.is_empty() => write!(out, "{pointer}: ")?,
            _ => {}
        }
        out.write_str(&self.message)?;
        if let Some(code) = self.code {
            write!(out, " ({code})")?;
        }
        self.hint.as_ref().map_or(Ok(()), |hint| write!(out, " (hint: {hint})"))
    }
}

impl std::error::Error for Diagnostic {}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    struct TestKind;

    impl DiagnosticKind for TestKind {
        fn code(self) -> &'static str {
            "test-kind"
        }
    }

    #[test]
    fn prints_the_known_parts() {
        let bare = Diagnostic::new("", "it is wrong", "");
        assert_eq!((bare.to_string(), format!("{bare:#}")), ("it is wrong".into(), ": it is wrong".into()));
        let located = Diagnostic::new("/a", "it is wrong", "right it").with_kind(TestKind).below("/x");
        assert_eq!(located.to_string(), "/x/a: it is wrong (test-kind) (hint: right it)");
        assert_eq!(format!("{located:#}"), "/x/a: it is wrong (right it)");
        let unknown = Diagnostic::new(DiagnosticLocation::in_file("a.yaml", 0, 0), "it is wrong", "");
        assert_eq!(unknown.to_string(), "a.yaml: it is wrong");
        let service = SourceDocument::Description("shop".into()).at("/paths");
        assert_eq!(format!("{:#}", Diagnostic::new(service, "odd", "")), "shop /paths: odd");
    }

    #[test]
    fn resolves_spans_to_lines_and_columns() {
        let diagnostic =
            Diagnostic::in_text(TestKind, 4..5, "it is wrong", "here", "").resolve_span("a.sjs", "ab\ncd");
        assert_eq!(diagnostic.to_string(), "a.sjs:2:2: it is wrong (test-kind)");
    }

    #[test]
    fn only_the_checked_document_is_put_below_another() {
        let links = Diagnostic::new(SourceDocument::Links.at("/a"), "odd", "").below("/x");
        assert_eq!(links.location.pointer(), "/a");
    }
}
