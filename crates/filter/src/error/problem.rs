//! Failures of filters, as problems that the gateway answers with.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode, header};
use services::{FaultParty, ToProblem};

/// The reason for which a filter ended a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterFailure {
    /// The instance of a filter with `on_trap: closed` trapped, in a callback of this request or of another
    /// one.
    #[error("the filter `{0}` failed")]
    Trapped(Arc<str>),
    /// Requests of this client trapped filters so often that its CPU quota for restarts is used up.
    #[error("requests of this client made filters fail too often")]
    RestartQuota {
        /// The time until the client may try again.
        retry_after: Duration,
    },
    /// The filter's instances are busy, and the queue is full or the wait exceeded the deadline.
    #[error("the filter `{0}` is busy with other requests")]
    Busy(Arc<str>),
    /// The host refused the filter a call or a response of its own, and the filter let the request pass
    /// anyway.
    #[error(
        "the filter `{0}` could not make a call or give a response, and the request may not pass without that"
    )]
    Refused(Arc<str>),
    /// The filter held the request back until the deadline.
    #[error("the filter `{0}` held the request back until its time was up")]
    Paused(Arc<str>),
    /// The filter closed the stream.
    #[error("the filter `{0}` ended the exchange without a response")]
    Closed(Arc<str>),
    /// The filter held back more of the request than the limit.
    #[error("the filter `{filter}` holds the request's body back, which is larger than {limit} bytes")]
    RequestTooLarge {
        /// The filter's name.
        filter: Arc<str>,
        /// The limit in bytes.
        limit: u64,
    },
    /// The filter held back more of the response than the limit.
    #[error("the filter `{filter}` holds the response's body back, which is larger than {limit} bytes")]
    ResponseTooLarge {
        /// The filter's name.
        filter: Arc<str>,
        /// The limit in bytes.
        limit: u64,
    },
    /// A body broke off before the filters had seen it.
    #[error("the body of the {0} broke off before the filters had seen it")]
    Broken(&'static str),
    /// The filters changed the head of a message into one that is not valid.
    #[error("the filters produced a message that can't be sent: {0}")]
    Head(String),
}

impl ToProblem for FilterFailure {
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

    fn fault(&self) -> FaultParty {
        match self {
            Self::Trapped(_) | Self::Busy(_) | Self::Refused(_) | Self::Paused(_) | Self::Closed(_) => {
                FaultParty::Unavailable
            }
            Self::RestartQuota { .. } | Self::RequestTooLarge { .. } | Self::Broken("request") => {
                FaultParty::Client
            }
            Self::ResponseTooLarge { .. } | Self::Broken(_) => FaultParty::Upstream,
            Self::Head(_) => FaultParty::Gateway,
        }
    }

    fn hint(&self) -> String {
        match self {
            Self::RestartQuota { retry_after } => {
                return format!("Try again after {} s.", whole_seconds(*retry_after));
            }
            Self::Busy(_) => "Try again a little later.",
            Self::Trapped(_) | Self::Refused(_) | Self::Paused(_) => {
                "Try again later; the gateway's log has the details."
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

/// Rounds up to whole seconds, at least 1.
fn whole_seconds(wait: Duration) -> u64 {
    (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1)
}
