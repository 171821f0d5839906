//! All errors of a call to a service, with the code, the status and the party at fault.
//!
//! Messages name the service but never its address, since they are shown to clients. Addresses appear only in
//! `source`, which is logged.

use std::sync::Arc;

use http::{Method, StatusCode};

use crate::body::BodyError;
use crate::config::DurationConfig;
use crate::headers::{HeaderError, MAX_HOPS};
use crate::path::PathError;
use crate::problem::{CallErrorKind, FaultParty, ToProblem, UnfinishedResponse};

/// An error from a call to a service.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The URL or its path may not be called.
    #[error("{0}")]
    Path(#[from] PathError),
    /// A header may not be sent.
    #[error("{0}")]
    Header(#[from] HeaderError),
    /// `CONNECT` and `TRACE` cannot be sent to a service.
    #[error("the method {0} can't be sent to a service")]
    Method(Method),
    /// The caller's rights exclude this service.
    #[error("the caller may not use the service `{0}`")]
    ServiceForbidden(Arc<str>),
    /// The caller's rights exclude this method.
    #[error("the caller may not send {method} to the service `{service}`")]
    ServiceMethodForbidden {
        /// The service's name.
        service: Arc<str>,
        /// The method of the request.
        method: Method,
    },
    /// The budget of the whole request is used up: `limit-calls`, `limit-received`, `limit-deadline`.
    #[error("{}", limit_text(.0))]
    Limit(&'static str),
    /// The response takes long to decode, and the pool is overloaded; or the gateway holds too many bytes of
    /// responses.
    #[error(transparent)]
    Unfinished(#[from] UnfinishedResponse),
    /// The request has passed too many gateways.
    #[error("the request has passed {MAX_HOPS} gateways already: `{0}` seems to lead back here")]
    Loop(Arc<str>),
    /// There was no connection.
    #[error("the service `{service}` can't be reached")]
    Unreachable {
        /// The service's name.
        service: Arc<str>,
        /// The cause, with the address.
        source: BodyError,
    },
    /// The host name resolved to an address that requires an explicit permission by the operator.
    #[error("the host `{service}` has a private address, which no pattern of `hosts` permits explicitly")]
    PrivateAddress {
        /// Host and port.
        service: Arc<str>,
        /// The cause, with the address.
        source: BodyError,
    },
    /// A timeout expired.
    #[error("the service `{service}` {} {timeout} ({})", .waited.text(), .waited.setting())]
    Timeout {
        /// The service's name.
        service: Arc<str>,
        /// The timeout.
        timeout: DurationConfig,
        /// The awaited event.
        waited: AwaitedEvent,
    },
    /// The client stopped sending the body of its request.
    #[error("the request body stalled for {timeout} before it was complete")]
    Stalled {
        /// The timeout.
        timeout: DurationConfig,
    },
    /// The response was incomplete or not HTTP.
    #[error("the service `{service}` closed the connection early, or its response is not HTTP")]
    Broken {
        /// The service's name.
        service: Arc<str>,
        /// The cause, with the address.
        source: BodyError,
    },
}

/// The error for a request whose deadline has passed.
pub(crate) const DEADLINE_EXCEEDED: CallError = CallError::Limit("limit-deadline");

/// The event that did not occur within a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AwaitedEvent {
    /// The complete response.
    CompleteResponse,
    /// The first byte of the response.
    FirstByte,
    /// Progress of the response or of the upload.
    Progress,
    /// The response, within the deadline of the whole request.
    Deadline,
}

impl AwaitedEvent {
    fn text(self) -> &'static str {
        match self {
            Self::CompleteResponse | Self::Deadline => "did not answer within",
            Self::FirstByte => "did not begin its answer within",
            Self::Progress => "made no progress for",
        }
    }

    fn setting(self) -> &'static str {
        match self {
            Self::CompleteResponse => "the service's `timeout`",
            Self::FirstByte => "its `first_byte_timeout`",
            Self::Progress => "its `idle_timeout`",
            Self::Deadline => "the route's `limits.timeout`",
        }
    }
}

fn limit_text(code: &str) -> &'static str {
    match code {
        "limit-calls" => "the request has used up its upstream calls",
        "limit-received" => "the services sent more bytes than the request may receive",
        "limit-deadline" => "the request's deadline passed before the services had responded",
        _ => "a limit of the request is used up",
    }
}

impl CallError {
    /// The category of the error, for programs.
    #[must_use]
    pub fn kind(&self) -> CallErrorKind {
        match self {
            Self::Path(error) => error.kind(),
            Self::Header(error) => error.kind(),
            Self::Method(_)
            | Self::Loop(_)
            | Self::ServiceForbidden(_)
            | Self::ServiceMethodForbidden { .. }
            | Self::PrivateAddress { .. } => CallErrorKind::Forbidden,
            Self::Limit(_) | Self::Unfinished(_) => CallErrorKind::Limit,
            Self::Unreachable { .. } => CallErrorKind::Unreachable,
            Self::Timeout { .. } => CallErrorKind::Timeout,
            Self::Stalled { .. } => CallErrorKind::Invalid,
            Self::Broken { .. } => CallErrorKind::Broken,
        }
    }
}

impl ToProblem for CallError {
    fn code(&self) -> &'static str {
        match self {
            Self::Path(error) => error.code(),
            Self::Header(error) => error.code(),
            Self::Method(_) => "method-forbidden",
            Self::ServiceForbidden(_) => "service-forbidden",
            Self::ServiceMethodForbidden { .. } => "service-method-forbidden",
            Self::Limit(code) => code,
            Self::Unfinished(unfinished) => unfinished.code(),
            Self::Loop(_) => "upstream-loop",
            Self::Unreachable { .. } => "upstream-unreachable",
            Self::PrivateAddress { .. } => "host-address-private",
            Self::Timeout { .. } => "upstream-timeout",
            Self::Stalled { .. } => "body-timeout",
            Self::Broken { .. } => "upstream-broken",
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Path(_) | Self::Header(_) | Self::Method(_) | Self::Limit(_) => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            Self::ServiceForbidden(_) | Self::ServiceMethodForbidden { .. } => StatusCode::FORBIDDEN,
            Self::Unfinished(unfinished) => unfinished.status(),
            Self::Loop(_) => StatusCode::LOOP_DETECTED,
            Self::Timeout { .. } => StatusCode::GATEWAY_TIMEOUT,
            Self::Stalled { .. } => StatusCode::REQUEST_TIMEOUT,
            Self::Unreachable { .. } | Self::PrivateAddress { .. } | Self::Broken { .. } => {
                StatusCode::BAD_GATEWAY
            }
        }
    }

    fn fault(&self) -> FaultParty {
        match self {
            Self::Path(_) | Self::Header(_) | Self::Method(_) | Self::Limit(_) => FaultParty::Program,
            Self::ServiceForbidden(_) | Self::ServiceMethodForbidden { .. } | Self::Stalled { .. } => {
                FaultParty::Client
            }
            Self::Unfinished(unfinished) => unfinished.fault(),
            _ => FaultParty::Upstream,
        }
    }

    fn hint(&self) -> String {
        match self {
            Self::Path(error) => return error.hint(),
            Self::Header(error) => return error.hint(),
            Self::Unfinished(unfinished) => return unfinished.hint(),
            Self::Method(_) => "Use a method that the service documents.",
            Self::ServiceForbidden(_) | Self::ServiceMethodForbidden { .. } => {
                "The operator sets the rights of each caller under `rights`."
            }
            Self::Limit(_) => "Request less, or grant more with `ORFA-Limit`, up to the operator's cap.",
            Self::Loop(_) => "The operator should check the destination of the service's `url`.",
            Self::PrivateAddress { .. } => {
                "The operator can list the name or the network explicitly under `hosts`."
            }
            Self::Unreachable { .. } | Self::Timeout { .. } => "Try again later.",
            Self::Stalled { .. } => "Send the body without long pauses.",
            Self::Broken { .. } => "The call may have had an effect; check this before repeating it.",
        }
        .to_owned()
    }
}
