//! What is wrong with what an operator wrote, and where; and what of a service's document has no place in a schema.

use std::fmt;
use std::sync::Arc;

/// A mistake that keeps a schema from being made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Where it stands.
    pub at: At,
    /// What is wrong.
    pub message: String,
    /// What to do about it; empty where there is nothing to say.
    pub hint: String,
    /// The stable code.
    pub code: &'static str,
}

/// Where a mistake stands. Pointers are JSON Pointers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// In the config, below the route's `graphql`: `/services/0`.
    Route(String),
    /// In the config, below this service.
    Service(Arc<str>, String),
    /// In the file of links: `/links/Buyer.catalogs/on`.
    Links(String),
    /// In another file: a schema, a document.
    Text {
        /// The file, as the config names it.
        file: Box<str>,
        /// Its line, from 1 on; 0 where nobody knows.
        line: usize,
        /// Its column, from 1 on; 0 where nobody knows.
        column: usize,
    },
}

/// What kind of mistake it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A service that there is not, or that says nothing of itself.
    Service,
    /// A schema in GraphQL that can't be read or makes no sense by itself.
    Schema,
    /// A link that names what there is not, or that can't be followed.
    Link,
    /// A change to a type or a field that there is not, or to a name that is taken.
    Type,
    /// A supergraph that can't be read, or not be planned for.
    Supergraph,
    /// A stored document that the schema does not answer.
    Document,
}

impl Kind {
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
pub(crate) struct Mistakes(Vec<Mistake>);

impl Mistakes {
    pub(crate) fn add(&mut self, kind: Kind, at: At, message: impl Into<String>, hint: impl Into<String>) {
        self.push(Mistake { at, message: message.into(), hint: hint.into(), code: kind.code() });
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

impl fmt::Display for Mistake {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            At::Route(place) | At::Links(place) => write!(out, "{place}: ")?,
            At::Service(service, place) => write!(out, "{service}{place}: ")?,
            At::Text { file, line, column } => write!(out, "{file}:{line}:{column}: ")?,
        }
        write!(out, "{}", self.message)?;
        if self.hint.is_empty() { Ok(()) } else { write!(out, " ({})", self.hint) }
    }
}

/// Something that could not be mapped, or not as it is: the schema is there without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The service whose document has it.
    pub service: Arc<str>,
    /// Where, as a JSON Pointer or as the document's own name for it.
    pub place: String,
    /// What it is, and what became of it.
    pub message: String,
    /// What to do about it; empty where there is nothing to say.
    pub hint: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}: {}", self.service, self.place, self.message)?;
        if self.hint.is_empty() { Ok(()) } else { write!(out, " ({})", self.hint) }
    }
}
