//! Errors that prevent a schema from being built, and warnings about parts of a service's document that can't
//! be mapped to a schema.

use std::sync::Arc;

use diagnostics::{Diagnostic, DiagnosticKind, SourceDocument};

/// The kind of an error that prevents a schema from being built. It determines the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SchemaErrorKind {
    /// A service that does not exist or that has no schema description.
    Service,
    /// A GraphQL schema that cannot be parsed or is invalid by itself.
    Schema,
    /// A link that refers to something that does not exist, or that cannot be resolved.
    Link,
    /// A change to a type or field that does not exist, or a new name that is taken.
    Type,
    /// A supergraph that cannot be read or planned for.
    Supergraph,
    /// A stored document that the schema cannot answer.
    Document,
}

impl DiagnosticKind for SchemaErrorKind {
    fn code(self) -> &'static str {
        match self {
            Self::Service => "graphql-service",
            Self::Schema => "graphql-schema",
            Self::Link => "graphql-link",
            Self::Type => "graphql-type",
            Self::Supergraph => "graphql-supergraph",
            Self::Document => "graphql-document",
        }
    }
}

/// A warning about a part of a service's document that could not be mapped, or only in a changed form. The
/// location is a JSON Pointer or the document's own name for the part.
pub(crate) fn document_warning(
    service: &Arc<str>,
    location: impl Into<String>,
    message: impl Into<String>,
    hint: impl Into<String>,
) -> Diagnostic {
    let location = SourceDocument::Description(Arc::clone(service)).at(location);
    Diagnostic::new(location, message, hint).as_warning()
}
