//! What is told to a client: an entry of `errors`.

use std::sync::Arc;

use serde_json::{Map, Value, json};

/// An entry of `errors` in an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct GraphqlError {
    /// In plain words.
    pub message: String,
    /// The same without names that only the schema has, for callers who may not see it; nothing if it has none.
    pub plain: Option<Box<str>>,
    /// The stable code (`extensions.code`), of docs/errors.md.
    pub code: &'static str,
    /// Where in the document, as line and column from 1 on.
    pub locations: Vec<(u32, u32)>,
    /// Which field of the answer; nothing if it is none.
    pub path: Vec<Segment>,
    /// What `extensions` says beside the code.
    pub extensions: Map<String, Value>,
}

/// A step of a field's path in the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// The field that is called so in the answer.
    Key(Arc<str>),
    /// The item of a list.
    Index(usize),
}

/// What is wrong with a request, or a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    Syntax,
    Invalid,
    Operation,
    Limit,
    Variables,
    Plan,
    AnswerSize,
    Value,
    Null,
}

impl Code {
    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::Syntax => "graphql-syntax",
            Self::Invalid => "graphql-invalid",
            Self::Operation => "graphql-operation",
            Self::Limit => "graphql-limit",
            Self::Variables => "graphql-variables",
            Self::Plan => "graphql-plan",
            Self::AnswerSize => "graphql-output",
            Self::Value => "graphql-value",
            Self::Null => "graphql-null",
        }
    }
}

impl GraphqlError {
    /// An error of the request.
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        let code = code.code();
        Self {
            message: message.into(),
            plain: None,
            code,
            locations: Vec::new(),
            path: Vec::new(),
            extensions: Map::new(),
        }
    }

    /// This error with a message for callers who may not see the schema.
    pub(crate) fn or_plainly(self, plain: impl Into<Box<str>>) -> Self {
        Self { plain: Some(plain.into()), ..self }
    }

    /// This error as callers are told who may not see the schema.
    pub(crate) fn without_schema(mut self) -> Self {
        if let Some(plain) = self.plain.take() {
            self.message = plain.into_string();
        }
        self
    }

    /// The same, at a place of the document.
    pub(crate) fn at(mut self, location: (u32, u32)) -> Self {
        self.locations.push(location);
        self
    }

    /// As the answer has it.
    #[must_use]
    pub fn json(&self) -> Value {
        let mut entry = Map::new();
        entry.insert("message".to_owned(), self.message.clone().into());
        if !self.locations.is_empty() {
            let place = |(line, column): &(u32, u32)| json!({ "line": line, "column": column });
            entry.insert("locations".to_owned(), self.locations.iter().map(place).collect());
        }
        if !self.path.is_empty() {
            entry.insert("path".to_owned(), self.path.iter().map(Segment::json).collect());
        }
        // A service's own code is what its clients know.
        let mut extensions = Map::from_iter([("code".to_owned(), self.code.into())]);
        extensions.extend(self.extensions.clone());
        entry.insert("extensions".to_owned(), extensions.into());
        entry.into()
    }
}

impl Segment {
    fn json(&self) -> Value {
        match self {
            Self::Key(key) => (**key).into(),
            Self::Index(index) => (*index).into(),
        }
    }
}
