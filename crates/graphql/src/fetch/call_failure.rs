//! All causes of a failed call, with the messages and codes for clients.
//!
//! An error contains the name of the service, its status, and the expectation that was not met. It contains
//! nothing from the response's body except the errors of a GraphQL service, which are intended for clients.

use std::sync::Arc;

use http::StatusCode;
use serde_json::Value;
use services::{CallError, ToProblem};

use super::outcome::SourceError;

/// The reason why a call returned no result or only a part of it.
#[derive(Clone, Debug)]
pub(crate) enum CallFailureReason {
    /// The response has an error status.
    Status(StatusCode),
    /// There is no response.
    Call(Arc<CallError>),
    /// The body is not JSON. The flag is set if it looks like HTML.
    NotJson(json::JsonError, bool),
    /// The response has no body.
    NoBody,
    /// The text is not UTF-8.
    NotText,
    /// The response has no value at this path.
    MissingPath(String),
    /// The value is of this kind and not a list.
    NotList(&'static str),
    /// The JSON is not a GraphQL response.
    NotGraphql,
    /// The GraphQL response lacks a requested value.
    MissingValue,
    /// The GraphQL service reported these errors.
    ReportedErrors(Vec<Value>, StatusCode),
    /// The parameter has no value.
    NoValue(Box<str>),
    /// The parameter has a value of this kind, which cannot be encoded there.
    WrongKind(Box<str>, &'static str),
    /// The parameter's value is not a valid path segment.
    InvalidSegment(Box<str>),
    /// The parameter's value is not valid in a header.
    InvalidHeader(Box<str>),
    /// The parameter's value has surrounding white space and is sent in a header.
    PaddedHeader(Box<str>),
    /// The parameter's value is a list with an empty text, and the request is unsafe.
    EmptyItem(Box<str>),
    /// The number of calls exceeds the limit: both numbers.
    TooManyCalls(usize, usize),
    /// Several items have the same key. Its value is omitted, because the schema may hide it.
    DuplicateKey,
    /// The objects' keys, by field, and the items' keys, by member, have no kind in common.
    KindMismatch { key: (Box<str>, String), item: (Box<str>, String) },
}

impl CallFailureReason {
    fn code(&self) -> &'static str {
        match self {
            Self::Call(error) => error.code(),
            Self::Status(_) => "upstream-status",
            Self::NotJson(..) | Self::NoBody | Self::NotText => "upstream-not-json",
            Self::MissingPath(_) | Self::NotList(_) | Self::MissingValue => "upstream-shape",
            Self::NotGraphql => "upstream-not-graphql",
            Self::ReportedErrors(..) => "upstream-errors",
            Self::NoValue(_) => "argument-missing",
            Self::WrongKind(..)
            | Self::InvalidSegment(_)
            | Self::InvalidHeader(_)
            | Self::PaddedHeader(_)
            | Self::EmptyItem(_) => "argument-unfit",
            Self::TooManyCalls(..) => "link-calls",
            Self::DuplicateKey => "link-duplicate",
            Self::KindMismatch { .. } => "link-kinds",
        }
    }

    /// The status of the service's response, if there was one.
    fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Status(status) => Some(*status),
            Self::ReportedErrors(_, status) => Some(*status).filter(|status| !status.is_success()),
            _ => None,
        }
    }

    fn message(&self, service: &str) -> String {
        match self {
            Self::Status(status) => format!("the service `{service}` answered {status}"),
            Self::Call(error) => error.to_string(),
            Self::NotJson(_, true) => format!("the service `{service}` answered with HTML instead of JSON"),
            Self::NotJson(json::JsonError::IndexTooLarge(_), _) => {
                format!("the response of the service `{service}` has too many nested arrays and objects")
            }
            Self::NotJson(error, false) => {
                format!("the response of the service `{service}` is not JSON: {error}")
            }
            Self::NoBody => format!("the service `{service}` answered with an empty body instead of JSON"),
            Self::NotText => format!("the response of the service `{service}` is not UTF-8 text"),
            Self::MissingPath(path) => {
                format!("the service `{service}` answered without a value at `{path}`")
            }
            Self::NotList(kind) => format!("the response of the service `{service}` is {kind}, not a list"),
            Self::NotGraphql => format!(
                "the response of the service `{service}` is not a GraphQL response, which is an object with `data` or `errors`"
            ),
            Self::MissingValue => format!("the response of the service `{service}` lacks a requested value"),
            Self::ReportedErrors(errors, _) => {
                match errors.first().and_then(|error| error.get("message")?.as_str()) {
                    Some(message) => format!("the service `{service}` returned an error: {message}"),
                    None => format!("the service `{service}` returned errors"),
                }
            }
            Self::NoValue(name) => format!("`{name}` has no value, and the service `{service}` needs one"),
            Self::WrongKind(name, kind) => {
                format!("`{name}` is {kind}, which cannot be encoded in a request to the service `{service}`")
            }
            Self::InvalidSegment(name) => format!(
                "`{name}` must be a segment of a path: not empty, no `.` or `..`, no slash, backslash or control character"
            ),
            Self::InvalidHeader(name) => format!("`{name}` has characters that are not allowed in a header"),
            Self::PaddedHeader(name) => {
                format!("`{name}` begins or ends with white space, which is not part of a header's value")
            }
            Self::EmptyItem(name) => format!(
                "`{name}` is a list with an empty text in it, which the service `{service}` may read as an empty list"
            ),
            Self::TooManyCalls(calls, most) => {
                format!("{calls} calls to the service `{service}` are needed, but {most} are allowed")
            }
            Self::DuplicateKey => {
                format!("the service `{service}` has several items with the same key instead of one")
            }
            Self::KindMismatch { key: (key, left), item: (item, right) } => format!(
                "no keys can be equal: `{key}` has {left}, `{item}` of the service `{service}` {right}. The operator can \
                 write `text: true` in the link"
            ),
        }
    }

    /// Converts to the error of a service's call.
    pub(crate) fn into_source_error(self, service: &Arc<str>) -> SourceError {
        let (message, code, status) = (self.message(service), self.code(), self.status());
        let values = if let Self::ReportedErrors(told, _) = self { told } else { Vec::new() };
        SourceError {
            message,
            code,
            service: Arc::clone(service),
            status: status.map(|status| status.as_u16()),
            reported_errors: values,
        }
    }
}
