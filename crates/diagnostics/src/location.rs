//! The location of a diagnostic, as far as its reporter knows it.

use std::ops::Range;
use std::sync::Arc;

/// The location of a diagnostic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiagnosticLocation {
    /// A position in a file.
    Source(SourcePosition),
    /// A value in a document. The holder of the document's text resolves it.
    Pointer {
        /// The document.
        document: SourceDocument,
        /// The value, as a JSON Pointer: `/parts/catalogs/join/on`.
        pointer: String,
    },
    /// A range of bytes in the text that was read.
    Span(Range<usize>),
}

/// A position in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourcePosition {
    /// The file, as given by the operator.
    pub file: String,
    /// The line, from 1; 0 if it is unknown.
    pub line: usize,
    /// The column, from 1; 0 if it is unknown.
    pub column: usize,
    /// The field: `routes[0].query.limits.cpu`; empty for the document as a whole.
    pub field: String,
}

/// The document that a JSON Pointer refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceDocument {
    /// The document, or section of the config, that was checked; the caller of the check knows which.
    Checked,
    /// The entry of this service in the config.
    Service(Arc<str>),
    /// The file of links of a GraphQL route.
    Links,
    /// The description of this service: an OpenAPI document or a GraphQL schema. The pointer may be a name
    /// that the description uses.
    Description(Arc<str>),
}

impl SourceDocument {
    /// Returns a location in the document.
    #[must_use]
    pub fn at(self, pointer: impl Into<String>) -> DiagnosticLocation {
        DiagnosticLocation::Pointer { document: self, pointer: pointer.into() }
    }
}

impl DiagnosticLocation {
    /// Returns a position in a file. Numbers count from 1, and 0 is unknown.
    #[must_use]
    pub fn in_file(file: impl Into<String>, line: usize, column: usize) -> Self {
        Self::Source(SourcePosition { file: file.into(), line, column, field: String::new() })
    }

    /// Returns the JSON Pointer; empty for other locations.
    #[must_use]
    pub fn pointer(&self) -> &str {
        if let Self::Pointer { pointer, .. } = self { pointer } else { "" }
    }

    /// Returns the range of bytes; empty for other locations.
    #[must_use]
    pub fn span(&self) -> Range<usize> {
        if let Self::Span(span) = self { span.clone() } else { 0..0 }
    }

    /// Returns the file; empty if it is unknown.
    #[must_use]
    pub fn file(&self) -> &str {
        if let Self::Source(position) = self { &position.file } else { "" }
    }

    /// Returns the field in a file; empty if it is unknown or the file as a whole.
    #[must_use]
    pub fn field(&self) -> &str {
        if let Self::Source(position) = self { &position.field } else { "" }
    }

    /// Returns line and column, from 1; zeros if they are unknown.
    #[must_use]
    pub fn line_and_column(&self) -> (usize, usize) {
        if let Self::Source(position) = self { (position.line, position.column) } else { (0, 0) }
    }
}

impl From<SourcePosition> for DiagnosticLocation {
    fn from(position: SourcePosition) -> Self {
        Self::Source(position)
    }
}

impl From<Range<usize>> for DiagnosticLocation {
    fn from(span: Range<usize>) -> Self {
        Self::Span(span)
    }
}

/// A JSON Pointer into the checked document.
impl From<String> for DiagnosticLocation {
    fn from(pointer: String) -> Self {
        SourceDocument::Checked.at(pointer)
    }
}

/// A JSON Pointer into the checked document.
impl From<&str> for DiagnosticLocation {
    fn from(pointer: &str) -> Self {
        SourceDocument::Checked.at(pointer)
    }
}

/// A JSON Pointer into the checked document.
impl From<&String> for DiagnosticLocation {
    fn from(pointer: &String) -> Self {
        SourceDocument::Checked.at(pointer)
    }
}
