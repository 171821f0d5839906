//! Authorisation and rate limit errors.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode, header};
use services::{FaultParty, ToProblem};

use crate::limits::rate_limits::RateLimitExceeded;

/// The reason a caller was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AuthorizationRefusal {
    #[error("{0} may not use this route")]
    Route(String),
    #[error("{0} has no rights on this gateway")]
    NoRights(String),
    #[error("{}", text(.0))]
    Rate(RateLimitExceeded),
}

fn text(over: &RateLimitExceeded) -> String {
    match over {
        RateLimitExceeded::Requests(_) => "this caller has used up its rate of requests for now".to_owned(),
        RateLimitExceeded::Cpu(_) => {
            "this caller's programs have used up their rate of CPU time for now".to_owned()
        }
        RateLimitExceeded::InFlight(most) => {
            format!("this caller has the maximum number of requests in flight: {most}")
        }
    }
}

impl RateLimitExceeded {
    /// The time to wait before a retry, in whole seconds.
    fn retry_after(self) -> u64 {
        match self {
            Self::Requests(wait) | Self::Cpu(wait) => round_up_seconds(wait),
            Self::InFlight(_) => 1,
        }
    }
}

/// Rounds up to whole seconds, at least one.
fn round_up_seconds(wait: Duration) -> u64 {
    (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1)
}

impl ToProblem for AuthorizationRefusal {
    fn code(&self) -> &'static str {
        match self {
            Self::Route(_) => "route-forbidden",
            Self::NoRights(_) => "caller-forbidden",
            Self::Rate(RateLimitExceeded::Requests(_)) => "rate-requests",
            Self::Rate(RateLimitExceeded::Cpu(_)) => "rate-cpu",
            Self::Rate(RateLimitExceeded::InFlight(_)) => "rate-at-once",
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Rate(_) => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::FORBIDDEN,
        }
    }

    fn fault(&self) -> FaultParty {
        FaultParty::Client
    }

    fn hint(&self) -> String {
        match self {
            Self::Rate(over) => format!("try again after {} s", over.retry_after()),
            _ => "the operator lists under `rights` what each caller may use".to_owned(),
        }
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Self::Rate(over) = self {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(over.retry_after()));
        }
        headers
    }
}
