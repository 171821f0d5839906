//! The gateway's own errors: the reasons a request is refused before a handler sees it.

use http::{HeaderMap, HeaderValue, StatusCode, header};
use services::{FaultParty, ToProblem};

use super::request_validation::{MAX_HEAD, MAX_PATH};

/// The reason a request was refused.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum RequestRefusal {
    #[error("no route of this gateway has the path {path}")]
    RouteNotFound { path: String },
    #[error("pages of {origin} may not use this route")]
    OriginForbidden { origin: String },
    #[error("the method {method} is not served here")]
    MethodNotAllowed { method: http::Method, allowed: &'static str },
    #[error("the request's body is larger than {limit} bytes")]
    BodyTooLarge { limit: u64 },
    #[error("the request's length is given in two ways, or its lines end in two ways")]
    AmbiguousFraming,
    #[error("the request can't be parsed: {reason}")]
    Malformed { reason: String },
    #[error("the request's head is larger than {} KiB, or has more than 100 headers", MAX_HEAD >> 10)]
    HeadTooLarge,
    #[error("the request has no host, several, or an invalid one")]
    HostInvalid,
    #[error("this address does not serve the request's host")]
    HostMisdirected,
    #[error("the request is for an https URL, and came in clear text")]
    SchemeMisdirected,
    #[error(
        "the request's target is not an http or https URL, contains a user, or is too long once it is encoded"
    )]
    TargetInvalid,
    #[error("the request's path is longer than {} KiB", MAX_PATH >> 10)]
    PathTooLong,
    #[error("the gateway supports no expectation but `100-continue`")]
    ExpectationFailed,
    #[error("the request's body came too slowly")]
    BodyTooSlow,
    #[error("the request's body broke off before its end")]
    BodyIncomplete,
    #[error("the request's body can't be read: {0}")]
    BodyMalformed(services::http1::FramingError),
    #[error(transparent)]
    Path(#[from] services::path::PathError),
    #[error("the path belongs to one route as it is written, and to another or none once it is decoded")]
    PathAmbiguous,
    #[error("this port speaks TLS, and the request came in clear text")]
    TlsRequired,
    #[error("the request passed {hops} gateways already and seems to go in a circle")]
    LoopDetected { hops: u8 },
}

impl ToProblem for RequestRefusal {
    fn code(&self) -> &'static str {
        match self {
            Self::RouteNotFound { .. } => "route-not-found",
            Self::OriginForbidden { .. } => "origin-forbidden",
            Self::MethodNotAllowed { .. } => "method-not-allowed",
            Self::BodyTooLarge { .. } => "body-too-large",
            Self::AmbiguousFraming => "framing-doubtful",
            Self::Malformed { .. } => "request-malformed",
            Self::HeadTooLarge => "head-too-large",
            Self::HostInvalid => "host-invalid",
            Self::HostMisdirected => "host-misdirected",
            Self::SchemeMisdirected => "scheme-misdirected",
            Self::TargetInvalid => "target-invalid",
            Self::PathTooLong => "path-too-long",
            Self::ExpectationFailed => "expectation-failed",
            Self::BodyTooSlow => "body-too-slow",
            Self::BodyIncomplete => "body-broken",
            Self::BodyMalformed(_) => "body-malformed",
            Self::Path(error) => error.code(),
            Self::PathAmbiguous => "path-ambiguous",
            Self::TlsRequired => "tls-required",
            Self::LoopDetected { .. } => "loop-detected",
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::RouteNotFound { .. } => StatusCode::NOT_FOUND,
            Self::OriginForbidden { .. } => StatusCode::FORBIDDEN,
            Self::MethodNotAllowed { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::BodyTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Malformed { .. }
            | Self::AmbiguousFraming
            | Self::BodyIncomplete
            | Self::BodyMalformed(_)
            | Self::HostInvalid
            | Self::TargetInvalid
            | Self::Path(_)
            | Self::PathAmbiguous
            | Self::TlsRequired => StatusCode::BAD_REQUEST,
            Self::HostMisdirected | Self::SchemeMisdirected => StatusCode::MISDIRECTED_REQUEST,
            Self::PathTooLong => StatusCode::URI_TOO_LONG,
            Self::ExpectationFailed => StatusCode::EXPECTATION_FAILED,
            Self::BodyTooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::LoopDetected { .. } => StatusCode::LOOP_DETECTED,
        }
    }

    fn fault(&self) -> FaultParty {
        FaultParty::Client
    }

    fn hint(&self) -> String {
        match self {
            Self::OriginForbidden { .. } => "the operator allows origins under `cors.origins`",
            Self::RouteNotFound { .. } => "check the path; the operator's routes are in orfa.yaml",
            Self::Path(_) | Self::PathAmbiguous => {
                "write the path plainly: no dot segments, and nothing encoded that need not be"
            }
            Self::AmbiguousFraming => {
                "send one Content-Length, or `Transfer-Encoding: chunked`, and end lines with CR LF"
            }
            Self::BodyIncomplete => "send all of it; the service may have received the first part",
            Self::BodyMalformed(_) => "send each chunk with its size, and headers only as trailers",
            Self::BodyTooSlow => {
                "send it without long pauses; the operator sets `limits.min_request_body_rate`"
            }
            Self::HostMisdirected => "the operator lists the hosts of each address under `listen.hosts`",
            Self::SchemeMisdirected => {
                "connect over TLS; the operator lists the proxies that do so for clients under `trusted_proxies`"
            }
            Self::TlsRequired => "write https:// instead of http://",
            Self::LoopDetected { .. } => "a service's url leads back to a gateway",
            _ => "",
        }
        .to_owned()
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Self::MethodNotAllowed { allowed, .. } = self {
            headers.insert(header::ALLOW, HeaderValue::from_static(allowed));
        }
        headers
    }
}
