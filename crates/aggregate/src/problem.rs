//! Errors of a request to an aggregate, with their codes, statuses and faults.
//!
//! An upstream error is reported with the service's name, its status and the violated expectation, but
//! without its body.

use std::sync::Arc;

use http::header::{ALLOW, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use json::JsonError;
use serde_json::{Map, Value, json};
use services::{CallError, DurationConfig, FaultParty, RequestBodyError, ToProblem};

use crate::memory::MemoryExhausted;

/// An error of a request.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum AggregateError {
    #[error("the aggregate accepts {allow}, not {method}")]
    Method { method: Method, allow: &'static str },
    #[error("the input `{input}` is missing from the {place}")]
    InputMissing { input: Box<str>, place: &'static str },
    #[error("the input `{input}` must {must}")]
    InputInvalid { input: Box<str>, must: String },
    #[error(transparent)]
    Body(#[from] RequestBodyError),
    #[error("the body is not JSON: {0}")]
    BodyJson(JsonError),
    #[error("the body has nothing at `{0}`, which the aggregate needs")]
    BodyValueMissing(String),
    #[error("`{place}` must {must}")]
    BodyInvalid { place: String, must: String },
    #[error("{0}")]
    Part(Box<PartFailure>),
    #[error("the parts `{one}` and `{other}` both have `{name}`")]
    MergeConflict { one: Arc<str>, other: Arc<str>, name: String },
    #[error("the part `{part}` is {kind} and can't be merged: only objects can")]
    MergeKind { part: Arc<str>, kind: &'static str },
    #[error("the answer would have more than {0} bytes")]
    AnswerSize(u64),
    #[error("the answer takes more memory than a request may use")]
    Memory,
}

/// The failure of a part.
#[derive(Clone, Debug)]
pub(crate) struct PartFailure {
    pub(crate) part: Arc<str>,
    pub(crate) service: Arc<str>,
    pub(crate) reason: PartFailureReason,
    /// For an `each`: the indexes of the affected items.
    pub(crate) items: Vec<usize>,
}

/// The reason for the failure of a part.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum PartFailureReason {
    #[error("the service answered {0}")]
    Status(StatusCode),
    #[error("{0}")]
    Call(Arc<CallError>),
    #[error("it took longer than {0}")]
    Time(DurationConfig),
    #[error("the service's answer is not JSON: {0}")]
    NotJson(JsonError),
    #[error("the service's answer has no body")]
    NoBody,
    #[error("the service's answer has nothing at `{0}`")]
    PathMissing(String),
    #[error("`{{{0}}}` has no value")]
    NoValue(String),
    #[error("`{{{0}}}` is {1}, which is not allowed there")]
    WrongKind(String, &'static str),
    #[error(
        "`{{{0}}}` is not a valid path segment: it is empty, `.` or `..`, as a whole or before a `;`, or has a slash, a backslash or a control character"
    )]
    InvalidSegment(String),
    #[error("`{0}` is {1}, not an array")]
    EachNotArray(String, &'static str),
    #[error("it would take more than the {0} calls that are allowed")]
    FanOut(u32),
    #[error("the responses of the services take more memory than a request may use")]
    Memory,
    #[error("it should be an array to be joined, and is {0}")]
    JoinNotArray(&'static str),
    #[error("it should be put into objects, and `{0}` is or has {1}")]
    JoinNotObject(Arc<str>, &'static str),
    // Keys are omitted, because `fields` may withhold them.
    #[error("two rows have the same key")]
    JoinDuplicate,
    #[error("no row has the key of an item")]
    JoinMissing,
    #[error("no key can be equal in `{on}`: the items have {left}, the rows {right}")]
    JoinKinds { on: String, left: String, right: String },
    #[error("several calls were made for a long list, and one of the responses is not an array")]
    BatchNotArray,
}

impl From<MemoryExhausted> for PartFailureReason {
    fn from(_: MemoryExhausted) -> Self {
        Self::Memory
    }
}

impl PartFailureReason {
    fn code(&self) -> &'static str {
        match self {
            Self::Status(status) if status.is_client_error() => "part-refused",
            Self::Status(_) => "part-status",
            Self::Call(error) => match (error.code(), &**error) {
                (_, CallError::Path(_)) => "value-path",
                ("limit-deadline", _) => "part-timeout",
                ("limit-calls", _) => "part-calls",
                ("limit-received", _) => "part-received",
                (code, _) => code,
            },
            Self::Time(_) => "part-timeout",
            Self::NotJson(_) | Self::NoBody => "part-not-json",
            Self::PathMissing(_) => "part-value",
            Self::NoValue(_) => "value-missing",
            Self::WrongKind(..) => "value-kind",
            Self::InvalidSegment(_) => "value-path",
            Self::EachNotArray(..) => "each-not-array",
            Self::FanOut(_) => "each-too-many",
            Self::Memory => "part-memory",
            Self::JoinNotArray(_) | Self::BatchNotArray => "join-not-array",
            Self::JoinNotObject(..) => "join-not-object",
            Self::JoinDuplicate => "join-duplicate",
            Self::JoinMissing => "join-missing",
            Self::JoinKinds { .. } => "join-kinds",
        }
    }

    /// Whether the failure may concern a single item of an `each`.
    pub(crate) fn is_item_specific(&self) -> bool {
        !matches!(self, Self::FanOut(_) | Self::Memory)
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Status(status) if status.is_client_error() => *status,
            Self::Call(error) => match (self.code(), error.status()) {
                ("part-timeout", _) => StatusCode::GATEWAY_TIMEOUT,
                (_, StatusCode::UNPROCESSABLE_ENTITY) => StatusCode::BAD_GATEWAY,
                (_, status) => status,
            },
            Self::Time(_) => StatusCode::GATEWAY_TIMEOUT,
            _ => StatusCode::BAD_GATEWAY,
        }
    }

    fn fault(&self) -> FaultParty {
        match self {
            Self::Status(status) if status.is_client_error() => FaultParty::Client,
            Self::Call(error) if error.status() != StatusCode::UNPROCESSABLE_ENTITY => error.fault(),
            _ => FaultParty::Upstream,
        }
    }

    fn hint(&self) -> &'static str {
        match self {
            Self::Status(status) if *status == StatusCode::UNAUTHORIZED => {
                "The service requires credentials; the operator sets with `forward` which of the client's it receives."
            }
            Self::Call(error) if self.code() == "part-calls" || error.code() == "limit-received" => {
                "Ask for less, or have the operator raise the aggregate's `limits`."
            }
            Self::Memory => "Ask for less, or have the operator raise `limits.memory`.",
            Self::FanOut(_) => "Ask for fewer items, or have the operator raise `limits.fan_out`.",
            Self::JoinDuplicate => "The operator can write `one: first`, or join a list.",
            Self::JoinKinds { .. } => "The operator can write `text: true` in the join.",
            Self::PathMissing(_) | Self::NoValue(_) | Self::WrongKind(..) | Self::EachNotArray(..) => {
                "The operator should compare the declaration with the service's responses."
            }
            _ => "",
        }
    }

    /// Returns the status of the upstream response, if there was one.
    fn upstream_status(&self) -> Option<u16> {
        match self {
            Self::Status(status) => Some(status.as_u16()),
            _ => None,
        }
    }
}

impl PartFailure {
    /// Returns the failure as an entry of `errors`.
    pub(crate) fn error_entry(&self) -> Value {
        let mut value = json!({
            "part": *self.part,
            "service": *self.service,
            "status": self.reported_status(),
            "code": self.reason.code(),
            "detail": self.reason.to_string(),
        });
        if let (Some(entry), false) = (value.as_object_mut(), self.items.is_empty()) {
            entry.insert("items".to_owned(), self.items.iter().take(MAX_LISTED_ITEMS).copied().collect());
            entry.insert("count".to_owned(), self.items.len().into());
        }
        value
    }

    /// Returns the failure as an item of the response header.
    pub(crate) fn header_item(&self) -> String {
        format!("{};status={};code=\"{}\"", self.part, self.reported_status(), self.reason.code())
    }

    fn reported_status(&self) -> u16 {
        self.reason.upstream_status().unwrap_or_else(|| self.reason.status().as_u16())
    }
}

/// The maximum number of item indexes in an entry of `errors`.
const MAX_LISTED_ITEMS: usize = 100;

impl std::fmt::Display for PartFailure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "the part `{}` of service `{}` failed: {}", self.part, self.service, self.reason)
    }
}

impl From<MemoryExhausted> for AggregateError {
    fn from(_: MemoryExhausted) -> Self {
        Self::Memory
    }
}

impl From<PartFailure> for AggregateError {
    fn from(failure: PartFailure) -> Self {
        Self::Part(Box::new(failure))
    }
}

impl ToProblem for AggregateError {
    fn code(&self) -> &'static str {
        match self {
            Self::Method { .. } => "method-not-allowed",
            Self::InputMissing { .. } => "input-missing",
            Self::InputInvalid { .. } => "input-invalid",
            Self::Body(error) => error.code(),
            Self::BodyJson(_) => "body-not-json",
            Self::BodyValueMissing(_) => "body-lacks",
            Self::BodyInvalid { .. } => "body-invalid",
            Self::Part(failure) => failure.reason.code(),
            Self::MergeConflict { .. } => "merge-conflict",
            Self::MergeKind { .. } => "merge-not-object",
            Self::AnswerSize(_) => "aggregate-answer-too-large",
            Self::Memory => "aggregate-memory",
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Method { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::Body(error) => error.status(),
            Self::Part(failure) => failure.reason.status(),
            Self::MergeConflict { .. } | Self::MergeKind { .. } => StatusCode::BAD_GATEWAY,
            Self::AnswerSize(_) | Self::Memory => StatusCode::BAD_GATEWAY,
            _ => StatusCode::BAD_REQUEST,
        }
    }

    fn fault(&self) -> FaultParty {
        match self {
            Self::Body(error) => error.fault(),
            Self::Part(failure) => failure.reason.fault(),
            Self::MergeConflict { .. } | Self::MergeKind { .. } => FaultParty::Upstream,
            Self::AnswerSize(_) | Self::Memory => FaultParty::Upstream,
            _ => FaultParty::Client,
        }
    }

    fn hint(&self) -> String {
        match self {
            Self::Body(error) => return error.hint(),
            Self::Part(failure) => failure.reason.hint(),
            Self::BodyJson(_) => "Send JSON, in UTF-8.",
            Self::MergeConflict { .. } => {
                "The operator can choose the one to keep: `conflict: first` or `last`."
            }
            Self::AnswerSize(_) => "Ask for less, or have the operator raise `limits.response_body`.",
            Self::Memory => "Ask for less, or have the operator raise `limits.memory`.",
            _ => "",
        }
        .to_owned()
    }

    fn members(&self) -> Map<String, Value> {
        let mut members = Map::new();
        match self {
            Self::Part(failure) => {
                members.insert("part".to_owned(), (*failure.part).into());
                members.insert("service".to_owned(), (*failure.service).into());
                members.extend(
                    failure
                        .reason
                        .upstream_status()
                        .map(|status| ("upstream_status".to_owned(), status.into())),
                );
            }
            Self::InputMissing { input, .. } | Self::InputInvalid { input, .. } => {
                members.insert("parameter".to_owned(), (**input).into());
            }
            _ => {}
        }
        members
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Self::Method { allow, .. } = self {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        headers
    }
}
