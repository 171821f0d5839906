//! Every way in which a call can bring nothing: what a client is told, with its code.
//!
//! What a service did wrong is told by its name, its status and what was expected of it; nothing of its body is, but for
//! the errors of a GraphQL service, which are meant to be told.

use std::sync::Arc;

use http::StatusCode;
use serde_json::Value;
use services::{CallError, Problem};

use crate::fetched::SourceError;

/// Why a call brought nothing, or not all.
#[derive(Clone, Debug)]
pub(crate) enum Reason {
    /// A status that is none of success.
    Status(StatusCode),
    /// No answer.
    Call(Arc<CallError>),
    /// No JSON; whether it looks like HTML.
    NotJson(json::Error, bool),
    /// No body.
    NoBody,
    /// A text that is not UTF-8.
    NotText,
    /// The answer has no value at this place.
    NothingAt(String),
    /// This in the place of a list.
    NotList(&'static str),
    /// JSON that is no GraphQL response.
    NotGraphql,
    /// A GraphQL response without something that was asked for.
    Short,
    /// A GraphQL service told these errors.
    Told(Vec<Value>, StatusCode),
    /// This parameter has no value.
    NoValue(Box<str>),
    /// This parameter has a value of this kind, which can't stand there.
    WrongKind(Box<str>, &'static str),
    /// The value of this parameter can't be a segment of a path.
    NoSegment(Box<str>),
    /// The value of this parameter can't be in a header.
    NoHeader(Box<str>),
    /// The value of this parameter has white space around it, and stands in a header.
    PaddedHeader(Box<str>),
    /// The value of this parameter is a list with an empty text, and something is changed by it.
    EmptyItem(Box<str>),
    /// It would take so many calls, where so many are allowed.
    TooMany(usize, usize),
    /// Several items have this key.
    Duplicate(String),
    /// The objects' keys, by their field, and the items', by their member, have no kind in common.
    Kinds { key: (Box<str>, String), item: (Box<str>, String) },
}

impl Reason {
    fn code(&self) -> &'static str {
        match self {
            Self::Call(error) => error.code(),
            Self::Status(_) => "upstream-status",
            Self::NotJson(..) | Self::NoBody | Self::NotText => "upstream-not-json",
            Self::NothingAt(_) | Self::NotList(_) | Self::Short => "upstream-shape",
            Self::NotGraphql => "upstream-not-graphql",
            Self::Told(..) => "upstream-errors",
            Self::NoValue(_) => "argument-missing",
            Self::WrongKind(..)
            | Self::NoSegment(_)
            | Self::NoHeader(_)
            | Self::PaddedHeader(_)
            | Self::EmptyItem(_) => "argument-unfit",
            Self::TooMany(..) => "link-calls",
            Self::Duplicate(_) => "link-duplicate",
            Self::Kinds { .. } => "link-kinds",
        }
    }

    /// The status that the service answered, if it did.
    fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Status(status) => Some(*status),
            Self::Told(_, status) => Some(*status).filter(|status| !status.is_success()),
            _ => None,
        }
    }

    fn message(&self, service: &str) -> String {
        match self {
            Self::Status(status) => format!("the service `{service}` answered {status}"),
            Self::Call(error) => error.to_string(),
            Self::NotJson(_, true) => format!("the service `{service}` answered HTML in the place of JSON"),
            Self::NotJson(json::Error::IndexTooLarge(_), _) => {
                format!("what the service `{service}` answered nests more arrays and objects than are read")
            }
            Self::NotJson(error, false) => {
                format!("what the service `{service}` answered is not JSON: {error}")
            }
            Self::NoBody => format!("the service `{service}` answered nothing in the place of JSON"),
            Self::NotText => format!("what the service `{service}` answered is no text in UTF-8"),
            Self::NothingAt(path) => format!("what the service `{service}` answered has nothing at `{path}`"),
            Self::NotList(kind) => format!("what the service `{service}` answered is {kind} and no list"),
            Self::NotGraphql => format!(
                "what the service `{service}` answered is no GraphQL response: an object with `data` or `errors`"
            ),
            Self::Short => format!("the response of the service `{service}` lacks what was asked for"),
            Self::Told(errors, _) => match errors.first().and_then(|error| error.get("message")?.as_str()) {
                Some(message) => format!("the service `{service}` answered an error: {message}"),
                None => format!("the service `{service}` answered errors"),
            },
            Self::NoValue(name) => format!("`{name}` has no value, and the service `{service}` needs one"),
            Self::WrongKind(name, kind) => {
                format!("`{name}` is {kind}, which can't stand in a request to the service `{service}`")
            }
            Self::NoSegment(name) => format!(
                "`{name}` must be a segment of a path: not empty, no `.` or `..`, no slash, backslash or control character"
            ),
            Self::NoHeader(name) => format!("`{name}` has characters that no header may have"),
            Self::PaddedHeader(name) => {
                format!("`{name}` begins or ends with white space, which is no part of a header's value")
            }
            Self::EmptyItem(name) => format!(
                "`{name}` is a list with an empty text in it, which the service `{service}` may take for an empty list"
            ),
            Self::TooMany(calls, most) => {
                format!("it would take {calls} calls of the service `{service}`, and {most} are allowed")
            }
            Self::Duplicate(key) => {
                format!("the service `{service}` has several items with the key {key}, and one is expected")
            }
            Self::Kinds { key: (key, left), item: (item, right) } => format!(
                "no keys can be equal: `{key}` has {left}, `{item}` of the service `{service}` {right}. The operator can \
                 write `text: true` in the link"
            ),
        }
    }

    /// What is told of it.
    pub(crate) fn of(self, service: &Arc<str>) -> SourceError {
        let (message, code, status) = (self.message(service), self.code(), self.status());
        let told = if let Self::Told(told, _) = self { told } else { Vec::new() };
        SourceError {
            message,
            code,
            service: Arc::clone(service),
            status: status.map(|status| status.as_u16()),
            told,
        }
    }
}
