//! Errors in the operator's config and schemas with their locations, and warnings about parts of a service's
//! document that cannot be mapped to a schema.

use std::fmt;
use std::sync::Arc;

/// An error that prevents a schema from being built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaMistake {
    /// The location.
    pub location: SchemaMistakeLocation,
    /// The message.
    pub message: String,
    /// The suggested correction; empty if there is none.
    pub hint: String,
    /// The stable code.
    pub code: &'static str,
}

/// The location of a mistake. Pointers are JSON Pointers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemaMistakeLocation {
    /// In the config, below the route's `graphql`: `/services/0`.
    Route(String),
    /// In the config, below this service.
    Service(Arc<str>, String),
    /// In the file of links: `/links/Buyer.catalogs/on`.
    Links(String),
    /// In another file, such as a schema or a document.
    Text {
        /// The file, as the config names it.
        file: Box<str>,
        /// The line, counted from 1; 0 if it is unknown.
        line: usize,
        /// The column, counted from 1; 0 if it is unknown.
        column: usize,
    },
}

/// The kind of mistake, which determines the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SchemaMistakeKind {
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

impl SchemaMistakeKind {
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

/// The mistakes found so far.
#[derive(Debug, Default)]
pub(crate) struct SchemaMistakes(Vec<SchemaMistake>);

impl SchemaMistakes {
    pub(crate) fn add(
        &mut self,
        kind: SchemaMistakeKind,
        at: SchemaMistakeLocation,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.push(SchemaMistake {
            location: at,
            message: message.into(),
            hint: hint.into(),
            code: kind.code(),
        });
    }

    pub(crate) fn push(&mut self, mistake: SchemaMistake) {
        self.0.push(mistake);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn into_vec(self) -> Vec<SchemaMistake> {
        self.0
    }
}

impl fmt::Display for SchemaMistake {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.location {
            SchemaMistakeLocation::Route(place) | SchemaMistakeLocation::Links(place) => {
                write!(out, "{place}: ")?
            }
            SchemaMistakeLocation::Service(service, place) => write!(out, "{service}{place}: ")?,
            SchemaMistakeLocation::Text { file, line, column } => write!(out, "{file}:{line}:{column}: ")?,
        }
        write!(out, "{}", self.message)?;
        if self.hint.is_empty() { Ok(()) } else { write!(out, " ({})", self.hint) }
    }
}

/// A warning about a part of a service's document that could not be mapped, or only in a changed form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaWarning {
    /// The service that the document describes.
    pub service: Arc<str>,
    /// The location, as a JSON Pointer or as the document's own name for it.
    pub location: String,
    /// The problem, and its effect on the schema.
    pub message: String,
    /// The suggested correction; empty if there is none.
    pub hint: String,
}

impl fmt::Display for SchemaWarning {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}: {}", self.service, self.location, self.message)?;
        if self.hint.is_empty() { Ok(()) } else { write!(out, " ({})", self.hint) }
    }
}
