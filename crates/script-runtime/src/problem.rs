//! The errors of S services, each with its code, status and fault.
//!
//! The operator is responsible for the script: an error in it results in status 500, and its text, with the
//! position in the S file, goes to the log. Clients get only a number by which the operator can find it
//! there. Errors of the resources that the script calls are attributed to those resources.

use std::time::Duration;

use http::header::{ALLOW, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, StatusCode};
use services::{FaultParty, GatewayOverloaded, RequestBodyError, ToProblem, UnfinishedResponse};

use crate::state;
use crate::workers::WorkerLoss;

/// An error of an S service.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ScriptError {
    #[error("the service has no resource at this path")]
    NotFound,
    #[error("the resource has no handler for {method}")]
    Method { method: String, allow: String },
    #[error(transparent)]
    Body(#[from] RequestBodyError),
    #[error("the body is not valid JSON, although its Content-Type declares JSON: {0}")]
    BodyJson(String),
    #[error("the body is not text in UTF-8, although its Content-Type declares no other charset")]
    BodyText,
    /// `at` is the position in the S file.
    #[error("{at}: {message}")]
    HandlerThrew { at: String, message: String },
    #[error("{at}: {message}")]
    State { at: String, message: String },
    #[error("{at}: the answer can't be sent: {message}")]
    Answer { at: String, message: String },
    #[error("{at}: the handler computed for longer than {} without a pause, which ended its worker", services::DurationConfig(*.limit))]
    CpuLimit { at: String, limit: Duration },
    #[error("{at}: the handler made more than {limit} resource calls")]
    Calls { at: String, limit: u32 },
    #[error("the service did not answer within {}", services::DurationConfig(*.limit))]
    RunTimeout { limit: Duration },
    #[error("the service's answer did not begin within {}, the deadline of its route", services::DurationConfig(*.limit))]
    RouteDeadline { limit: Duration },
    #[error("a resource that the service needs did not answer as it should")]
    Resource,
    #[error("a resource that the service needs did not answer in time")]
    ResourceTime,
    #[error("{0}")]
    Loop(String),
    #[error("the worker that ran the request was lost")]
    WorkerLost,
    #[error("the worker that ran the request was lost: it ran out of memory, at its limit of {limit} MiB")]
    HeapFull { limit: u64 },
    #[error("the service is not ready yet")]
    NotReady,
    #[error("the script can't be loaded: {0}")]
    LoadFailed(String),
    #[error("the limit of {limit} concurrent calls between resources is reached")]
    InternalCalls { limit: u32 },
    #[error("{0}")]
    StateAccess(state::StateError),
    #[error("{at}: the worker broke the rules of its protocol: {message}")]
    Protocol { at: String, message: String },
    /// The pool did not read the request, which has had no effect yet.
    #[error(transparent)]
    Overloaded(#[from] GatewayOverloaded),
    /// The pool did not do long work of a run.
    #[error(transparent)]
    Unfinished(#[from] UnfinishedResponse),
}

impl From<&WorkerLoss> for ScriptError {
    fn from(loss: &WorkerLoss) -> Self {
        loss.heap_limit.map_or(Self::WorkerLost, |limit| Self::HeapFull { limit })
    }
}

impl From<state::StateError> for ScriptError {
    fn from(error: state::StateError) -> Self {
        Self::StateAccess(error)
    }
}

impl ScriptError {
    /// Returns the status and the fault, which always correspond.
    fn status_and_fault(&self) -> (StatusCode, FaultParty) {
        match self {
            Self::NotFound => (StatusCode::NOT_FOUND, FaultParty::Client),
            Self::Method { .. } => (StatusCode::METHOD_NOT_ALLOWED, FaultParty::Client),
            Self::BodyJson(_) | Self::BodyText => (StatusCode::BAD_REQUEST, FaultParty::Client),
            Self::Body(error) => (error.status(), error.fault()),
            Self::HandlerThrew { .. }
            | Self::State { .. }
            | Self::Answer { .. }
            | Self::CpuLimit { .. }
            | Self::Calls { .. }
            | Self::LoadFailed(_)
            | Self::Protocol { .. } => (StatusCode::INTERNAL_SERVER_ERROR, FaultParty::Gateway),
            Self::RunTimeout { .. } | Self::RouteDeadline { .. } | Self::ResourceTime => {
                (StatusCode::GATEWAY_TIMEOUT, FaultParty::Upstream)
            }
            Self::Resource => (StatusCode::BAD_GATEWAY, FaultParty::Upstream),
            Self::Loop(_) => (StatusCode::LOOP_DETECTED, FaultParty::Upstream),
            Self::WorkerLost | Self::HeapFull { .. } | Self::NotReady | Self::InternalCalls { .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, FaultParty::Unavailable)
            }
            Self::StateAccess(error) => state_status_and_fault(error),
            Self::Overloaded(error) => (error.status(), error.fault()),
            Self::Unfinished(error) => (error.status(), error.fault()),
        }
    }
}

/// Maps an error of the state to its HTTP status and fault.
fn state_status_and_fault(error: &state::StateError) -> (StatusCode, FaultParty) {
    let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let party = match status {
        StatusCode::SERVICE_UNAVAILABLE => FaultParty::Unavailable,
        StatusCode::LOOP_DETECTED => FaultParty::Upstream,
        status if status.is_client_error() => FaultParty::Client,
        _ => FaultParty::Gateway,
    };
    (status, party)
}

impl ToProblem for ScriptError {
    fn code(&self) -> &'static str {
        match self {
            Self::NotFound => "resource-not-found",
            Self::Method { .. } => "resource-method",
            Self::Body(error) => error.code(),
            Self::BodyJson(_) => "body-not-json",
            Self::BodyText => "body-not-text",
            Self::HandlerThrew { .. } => "script-threw",
            Self::State { .. } => "script-state",
            Self::Answer { .. } => "script-answer",
            Self::CpuLimit { .. } => "script-time",
            Self::Calls { .. } => "script-calls",
            Self::RunTimeout { .. } => "script-wall",
            Self::RouteDeadline { .. } => "script-deadline",
            Self::Resource => "script-resource",
            Self::ResourceTime => "script-resource-timeout",
            Self::Loop(_) => "script-loop",
            Self::WorkerLost | Self::HeapFull { .. } => "worker-lost",
            Self::NotReady => "script-not-ready",
            Self::LoadFailed(_) => "script-broken",
            Self::InternalCalls { .. } => "script-internal-calls",
            Self::StateAccess(error) => error.code(),
            Self::Protocol { .. } => "script-protocol",
            Self::Overloaded(error) => error.code(),
            Self::Unfinished(error) => error.code(),
        }
    }

    fn status(&self) -> StatusCode {
        self.status_and_fault().0
    }

    fn fault(&self) -> FaultParty {
        self.status_and_fault().1
    }

    fn hint(&self) -> String {
        match self {
            Self::BodyJson(_) => "Send a body that matches the Content-Type, or change the Content-Type.",
            Self::BodyText => "Send the text in UTF-8, or declare its charset in the Content-Type.",
            Self::WorkerLost => "Part of the request may have had its effect; look before repeating it.",
            Self::HeapFull { .. } => {
                "Have the handler hold fewer things at once, or raise `scripts.memory`. Part of the request may have \
                 had its effect; look before repeating it."
            }
            Self::NotReady | Self::InternalCalls { .. } => "Try again later.",
            Self::StateAccess(error) => return error.hint().to_string(),
            Self::Body(error) => return error.hint(),
            Self::Overloaded(error) => return error.hint(),
            Self::Unfinished(error) => return error.hint(),
            _ => "",
        }
        .to_owned()
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        match self {
            Self::Method { allow, .. } => {
                headers.extend(HeaderValue::from_str(allow).ok().map(|allow| (ALLOW, allow)));
            }
            Self::NotReady => drop(headers.insert(RETRY_AFTER, HeaderValue::from_static("1"))),
            Self::Overloaded(error) => headers = error.headers(),
            _ => {}
        }
        headers
    }
}
