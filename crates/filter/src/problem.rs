//! What a filter can do to a request, as a problem that the gateway answers with.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode, header};
use services::{Fault, Problem};

/// Why a filter ended a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// Its virtual machine died, of this request or of another one, and it is `on_trap: closed`.
    #[error("the filter `{0}` failed")]
    Trapped(Arc<str>),
    /// Requests of this client trapped the filters of the gateway so often that the restarts took as much CPU time as they may.
    #[error("requests of this client made filters fail too often")]
    RestartQuota {
        /// When the client may try again.
        retry_after: Duration,
    },
    /// Its instances are busy, and as many requests wait for them as may, or for as long as they may.
    #[error("the filter `{0}` is busy with other requests")]
    Busy(Arc<str>),
    /// The host refused it a call, or a response of its own, and it let the request pass all the same.
    #[error("the filter `{0}` could not do what it wanted, and the request may not pass without that")]
    Refused(Arc<str>),
    /// It held the request back for as long as the route gives it.
    #[error("the filter `{0}` held the request back until its time was up")]
    Paused(Arc<str>),
    /// It closed the stream.
    #[error("the filter `{0}` ended the exchange without an answer")]
    Closed(Arc<str>),
    /// It held back more of the request than it may.
    #[error("the filter `{filter}` holds the request's body back, which is larger than {limit} bytes")]
    RequestTooLarge {
        /// Which filter.
        filter: Arc<str>,
        /// What it may hold.
        limit: u64,
    },
    /// It held back more of the response than it may.
    #[error("the filter `{filter}` holds the answer's body back, which is larger than {limit} bytes")]
    ResponseTooLarge {
        /// Which filter.
        filter: Arc<str>,
        /// What it may hold.
        limit: u64,
    },
    /// The body that it was to see broke off.
    #[error("the body of the {0} broke off before the filters had seen it")]
    Broken(&'static str),
    /// What it made of the request's head is no request.
    #[error("the filters made a request out of it that can't be sent: {0}")]
    Head(String),
}

impl Problem for Failed {
    fn code(&self) -> &'static str {
        match self {
            Self::Trapped(_) => "filter-failed",
            Self::RestartQuota { .. } => "rate-cpu",
            Self::Busy(_) => "filter-busy",
            Self::Refused(_) => "filter-refused",
            Self::Paused(_) => "filter-paused",
            Self::Closed(_) => "filter-closed",
            Self::RequestTooLarge { .. } => "filter-request-too-large",
            Self::ResponseTooLarge { .. } => "filter-response-too-large",
            Self::Broken("request") => "body-broken",
            Self::Broken(_) => "upstream-broken",
            Self::Head(_) => "filter-bad-head",
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Trapped(_) | Self::Busy(_) | Self::Refused(_) | Self::Paused(_) | Self::Closed(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::RestartQuota { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::RequestTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::ResponseTooLarge { .. } => StatusCode::BAD_GATEWAY,
            Self::Broken("request") => StatusCode::BAD_REQUEST,
            Self::Broken(_) => StatusCode::BAD_GATEWAY,
            Self::Head(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn fault(&self) -> Fault {
        match self {
            Self::Trapped(_) | Self::Busy(_) | Self::Refused(_) | Self::Paused(_) | Self::Closed(_) => {
                Fault::Unavailable
            }
            Self::RestartQuota { .. } | Self::RequestTooLarge { .. } | Self::Broken("request") => {
                Fault::Client
            }
            Self::ResponseTooLarge { .. } | Self::Broken(_) => Fault::Upstream,
            Self::Head(_) => Fault::Gateway,
        }
    }

    fn hint(&self) -> String {
        match self {
            Self::RestartQuota { retry_after } => {
                return format!("Try again after {} s.", whole_seconds(*retry_after));
            }
            Self::Busy(_) => "Try again a little later.",
            Self::Trapped(_) | Self::Refused(_) | Self::Paused(_) => {
                "Try again later; the gateway's log says more."
            }
            Self::RequestTooLarge { .. } | Self::ResponseTooLarge { .. } => {
                "The operator can raise the filter's `limits.buffer`."
            }
            Self::Closed(_) | Self::Broken(_) | Self::Head(_) => "",
        }
        .to_owned()
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Self::RestartQuota { retry_after } = self {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(whole_seconds(*retry_after)));
        }
        headers
    }
}

/// Rounded up, and never none.
fn whole_seconds(wait: Duration) -> u64 {
    (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1)
}
