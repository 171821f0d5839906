//! The errors of the admin listener.

use http::{HeaderMap, HeaderValue, StatusCode, header};
use services::{FaultParty, ToProblem};

/// The reason why a request to the admin listener was refused.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(super) enum AdminError {
    #[error("the admin listener has no such path")]
    Path,
    #[error("the admin listener is read-only: it answers GET and HEAD")]
    Method,
    #[error("the admin listener does not serve the requested host")]
    Host,
    #[error("the metrics could not be written")]
    MetricsFailed,
}

impl ToProblem for AdminError {
    fn code(&self) -> &'static str {
        match self {
            Self::Path => "route-not-found",
            Self::Method => "method-not-allowed",
            Self::Host => "host-misdirected",
            Self::MetricsFailed => "gateway-failed",
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Path => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Host => StatusCode::MISDIRECTED_REQUEST,
            Self::MetricsFailed => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn fault(&self) -> FaultParty {
        match self {
            Self::MetricsFailed => FaultParty::Gateway,
            _ => FaultParty::Client,
        }
    }

    fn hint(&self) -> String {
        match self {
            Self::Path => "there are /healthz, /readyz and /metrics",
            Self::Host => "use its IP address, or list the name under `admin.hosts`",
            _ => "",
        }
        .to_owned()
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if matches!(self, Self::Method) {
            headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        headers
    }
}
