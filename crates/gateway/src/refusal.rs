//! The gateway's own errors: what is refused before a way of answering sees it.

use http::{HeaderMap, HeaderValue, StatusCode, header};
use services::{Fault, Problem};

/// Why a request was refused.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("no route of this gateway has the path {path}")]
    RouteNotFound { path: String },
    #[error("pages of {origin} may not use this route")]
    OriginForbidden { origin: String },
    #[error("the method {method} is not served by this gateway")]
    MethodNotAllowed { method: http::Method },
    #[error("the request's body is larger than {limit} bytes")]
    BodyTooLarge { limit: u64 },
    #[error("the request passed {hops} gateways already and seems to go in a circle")]
    LoopDetected { hops: u8 },
}

impl Problem for Refusal {
    fn code(&self) -> &'static str {
        match self {
            Self::RouteNotFound { .. } => "route-not-found",
            Self::OriginForbidden { .. } => "origin-forbidden",
            Self::MethodNotAllowed { .. } => "method-not-allowed",
            Self::BodyTooLarge { .. } => "body-too-large",
            Self::LoopDetected { .. } => "loop-detected",
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::RouteNotFound { .. } => StatusCode::NOT_FOUND,
            Self::OriginForbidden { .. } => StatusCode::FORBIDDEN,
            Self::MethodNotAllowed { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::BodyTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::LoopDetected { .. } => StatusCode::LOOP_DETECTED,
        }
    }

    fn fault(&self) -> Fault {
        Fault::Client
    }

    fn hint(&self) -> String {
        match self {
            Self::OriginForbidden { .. } => "the operator allows origins under `cors.origins`",
            Self::RouteNotFound { .. } => "check the path; the operator's routes stand in orfa.yaml",
            Self::LoopDetected { .. } => "a service's url leads back to a gateway",
            _ => "",
        }
        .to_owned()
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if matches!(self, Self::MethodNotAllowed { .. }) {
            let allow = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, QUERY");
            headers.insert(header::ALLOW, allow);
        }
        headers
    }
}
