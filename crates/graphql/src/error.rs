//! Errors for clients: the entries of `errors`.

use std::sync::Arc;

use serde_json::{Map, Value, json};

/// An entry of `errors` in a response.
#[derive(Clone, Debug, PartialEq)]
pub struct GraphqlError {
    /// The message for people.
    pub message: String,
    /// The message without names that exist in the schema only, for callers that may not see the schema.
    /// Absent if the message contains none.
    pub plain_message: Option<Box<str>>,
    /// The stable code (`extensions.code`), documented in docs/errors.md.
    pub code: &'static str,
    /// The positions in the document: line and column, counted from 1.
    pub locations: Vec<(u32, u32)>,
    /// The path of the response field that the error is about; empty if the error is not about a field.
    pub path: Vec<ResponsePathStep>,
    /// The entries of `extensions` besides the code.
    pub extensions: Map<String, Value>,
}

/// A step of a field's path in the response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResponsePathStep {
    /// The response key of a field.
    Key(Arc<str>),
    /// The index of a list item.
    Index(usize),
}

/// The kind of error in a request or a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GraphqlErrorKind {
    Syntax,
    Invalid,
    Operation,
    Limit,
    Variables,
    Plan,
    ResponseSize,
    Value,
    Null,
}

impl GraphqlErrorKind {
    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::Syntax => "graphql-syntax",
            Self::Invalid => "graphql-invalid",
            Self::Operation => "graphql-operation",
            Self::Limit => "graphql-limit",
            Self::Variables => "graphql-variables",
            Self::Plan => "graphql-plan",
            Self::ResponseSize => "graphql-output",
            Self::Value => "graphql-value",
            Self::Null => "graphql-null",
        }
    }
}

impl GraphqlError {
    /// Creates an error about the request.
    pub(crate) fn new(code: GraphqlErrorKind, message: impl Into<String>) -> Self {
        let code = code.code();
        Self {
            message: message.into(),
            plain_message: None,
            code,
            locations: Vec::new(),
            path: Vec::new(),
            extensions: Map::new(),
        }
    }

    /// Adds a message for callers that may not see the schema.
    pub(crate) fn with_plain_message(self, plain: impl Into<Box<str>>) -> Self {
        Self { plain_message: Some(plain.into()), ..self }
    }

    /// Replaces the message by the one for callers that may not see the schema.
    pub(crate) fn without_schema(mut self) -> Self {
        if let Some(plain) = self.plain_message.take() {
            self.message = plain.into_string();
        }
        self
    }

    /// Adds a position in the document.
    pub(crate) fn with_location(mut self, location: (u32, u32)) -> Self {
        self.locations.push(location);
        self
    }

    /// Returns the error as it appears in the response.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut entry = Map::new();
        entry.insert("message".to_owned(), self.message.clone().into());
        if !self.locations.is_empty() {
            let place = |(line, column): &(u32, u32)| json!({ "line": line, "column": column });
            entry.insert("locations".to_owned(), self.locations.iter().map(place).collect());
        }
        if !self.path.is_empty() {
            entry.insert("path".to_owned(), self.path.iter().map(ResponsePathStep::to_json).collect());
        }
        // The service's own code takes precedence, since its clients rely on it.
        let mut extensions = Map::from_iter([("code".to_owned(), self.code.into())]);
        extensions.extend(self.extensions.clone());
        entry.insert("extensions".to_owned(), extensions.into());
        entry.into()
    }
}

impl ResponsePathStep {
    fn to_json(&self) -> Value {
        match self {
            Self::Key(key) => (**key).into(),
            Self::Index(index) => (*index).into(),
        }
    }
}
