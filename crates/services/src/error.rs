//! Every way in which a call to a service can fail, with its code, its status and whose fault it is.
//!
//! Texts name the service and never its address: they are shown to clients. Addresses stand in the
//! `source` only, which goes to the log.

use std::sync::Arc;

use http::{Method, StatusCode};

use crate::body::Error;
use crate::config::Duration;
use crate::headers::{HeaderError, MAX_HOPS};
use crate::path::PathError;
use crate::problem::{Fault, Kind, Problem, Unfinished};

/// Why a call brought no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The URL or its path may not be called.
    #[error("{0}")]
    Path(#[from] PathError),
    /// A header may not be sent.
    #[error("{0}")]
    Header(#[from] HeaderError),
    /// `CONNECT` and `TRACE` are no requests to a service.
    #[error("the method {0} can't be sent to a service")]
    Method(Method),
    /// The caller's rights leave this service out.
    #[error("the caller may not use the service `{0}`")]
    ServiceForbidden(Arc<str>),
    /// The caller's rights leave this method out.
    #[error("the caller may not send {method} to the service `{service}`")]
    ServiceMethodForbidden {
        /// The service's name.
        service: Arc<str>,
        /// What was to be sent.
        method: Method,
    },
    /// The allowance of the whole request is used up: `limit-calls`, `limit-received`, `limit-deadline`.
    #[error("{}", limit_text(.0))]
    Limit(&'static str),
    /// The answer takes long to read, and the gateway has more of that to do than it can.
    #[error(transparent)]
    Unfinished(#[from] Unfinished),
    /// The request has come through too many gateways.
    #[error("the request has passed {MAX_HOPS} gateways already: `{0}` seems to lead back here")]
    Loop(Arc<str>),
    /// No connection.
    #[error("the service `{service}` can't be reached")]
    Unreachable {
        /// The service's name.
        service: Arc<str>,
        /// What happened, with the address.
        source: Error,
    },
    /// The host's name leads to an address that only the operator could open.
    #[error("the host `{service}` has a private address, which no pattern of hosts writes out")]
    PrivateAddress {
        /// Host and port.
        service: Arc<str>,
        /// What happened, with the address.
        source: Error,
    },
    /// It took longer than it may.
    #[error("the service `{service}` {} {timeout} ({})", .waited.text(), .waited.setting())]
    Timeout {
        /// The service's name.
        service: Arc<str>,
        /// How long was waited.
        timeout: Duration,
        /// For what.
        waited: Waited,
    },
    /// The client itself stopped sending the body of its request.
    #[error("the body of the request stood still for {timeout} before it was complete")]
    Stalled {
        /// How long was waited.
        timeout: Duration,
    },
    /// It broke off, or what came is not HTTP.
    #[error("the service `{service}` broke off, or what it sent is not HTTP")]
    Broken {
        /// The service's name.
        service: Arc<str>,
        /// What happened, with the address.
        source: Error,
    },
}

/// For what was waited in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// For the answer.
    Answer,
    /// For its beginning.
    FirstByte,
    /// For more of it, or for the service to take more of the request.
    More,
    /// For the answer, within the time that the route has for the whole request.
    Deadline,
}

impl Waited {
    fn text(self) -> &'static str {
        match self {
            Self::Answer | Self::Deadline => "did not answer within",
            Self::FirstByte => "did not begin its answer within",
            Self::More => "stood still for",
        }
    }

    fn setting(self) -> &'static str {
        match self {
            Self::Answer => "the service's `timeout`",
            Self::FirstByte => "its `first_byte_timeout`",
            Self::More => "its `idle_timeout`",
            Self::Deadline => "the route's `deadline`",
        }
    }
}

fn limit_text(code: &str) -> &'static str {
    match code {
        "limit-calls" => "the request has made all the upstream calls that it may make",
        "limit-received" => "the services sent more bytes than the request may receive",
        "limit-deadline" => "the request's time was up before the services had answered",
        _ => "a limit of the request is used up",
    }
}

impl CallError {
    /// How a caller that knows only few reasons should see it.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Path(error) => error.kind(),
            Self::Header(error) => error.kind(),
            Self::Method(_)
            | Self::Loop(_)
            | Self::ServiceForbidden(_)
            | Self::ServiceMethodForbidden { .. }
            | Self::PrivateAddress { .. } => Kind::Forbidden,
            Self::Limit(_) | Self::Unfinished(_) => Kind::Limit,
            Self::Unreachable { .. } => Kind::Unreachable,
            Self::Timeout { .. } => Kind::Timeout,
            Self::Stalled { .. } => Kind::Invalid,
            Self::Broken { .. } => Kind::Broken,
        }
    }
}

impl Problem for CallError {
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

    fn fault(&self) -> Fault {
        match self {
            Self::Path(_) | Self::Header(_) | Self::Method(_) | Self::Limit(_) => Fault::Program,
            Self::ServiceForbidden(_) | Self::ServiceMethodForbidden { .. } | Self::Stalled { .. } => {
                Fault::Client
            }
            Self::Unfinished(unfinished) => unfinished.fault(),
            _ => Fault::Upstream,
        }
    }

    fn hint(&self) -> String {
        match self {
            Self::Path(error) => return error.hint(),
            Self::Header(error) => return error.hint(),
            Self::Unfinished(unfinished) => return unfinished.hint(),
            Self::Method(_) => "Use a method that the service documents.",
            Self::ServiceForbidden(_) | Self::ServiceMethodForbidden { .. } => {
                "The operator writes under `rights` what each caller may use."
            }
            Self::Limit(_) => "Ask for less, or grant more with `ORFA-Limit`, up to the operator's cap.",
            Self::Loop(_) => "The operator should look where the service's `url` leads.",
            Self::PrivateAddress { .. } => {
                "The operator can write the name or the network out under `hosts`."
            }
            Self::Unreachable { .. } | Self::Timeout { .. } => "Try again later.",
            Self::Stalled { .. } => "Send the body without long pauses.",
            Self::Broken { .. } => "The call may have had its effect; ask the service before repeating it.",
        }
        .to_owned()
    }
}
