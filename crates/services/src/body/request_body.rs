//! The reader of clients' request bodies, for all handlers.

use std::pin::pin;
use std::time::Instant;

use bytes::Bytes;
use http::StatusCode;
use http_body::Body as _;

use super::{ReadBodyError, StreamedServiceBody, read_limited};
use crate::coop::timeout_at;
use crate::problem::{FaultParty, ToProblem};

/// The error of a request whose body could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestBodyError {
    /// The body exceeds this number of bytes.
    #[error("the body is larger than {0} bytes")]
    TooLarge(u64),
    /// The body ended early.
    #[error("the body broke off")]
    Broken,
    /// The body did not arrive within the deadline of its handler.
    #[error("the request's body did not arrive within the route's `limits.timeout`")]
    DeadlineExceeded,
}

/// Reads the body of a request to its end, at most `limit` bytes, and until the deadline.
///
/// # Errors
/// The body is larger, ends early, or does not arrive in time.
pub async fn read_request_body(
    body: StreamedServiceBody,
    limit: u64,
    deadline: Instant,
) -> Result<Bytes, RequestBodyError> {
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let read = timeout_at(deadline, pin!(read_limited(body, limit))).await;
    read.ok_or(RequestBodyError::DeadlineExceeded)?.map_err(|error| match error {
        ReadBodyError::TooLarge(limit) => RequestBodyError::TooLarge(limit),
        ReadBodyError::Broken(_) => RequestBodyError::Broken,
    })
}

impl ToProblem for RequestBodyError {
    fn code(&self) -> &'static str {
        match self {
            Self::TooLarge(_) => "body-too-large",
            Self::Broken => "body-broken",
            Self::DeadlineExceeded => "limit-deadline",
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Broken => StatusCode::BAD_REQUEST,
            Self::DeadlineExceeded => StatusCode::UNPROCESSABLE_ENTITY,
        }
    }

    fn fault(&self) -> FaultParty {
        match self {
            Self::TooLarge(_) | Self::Broken => FaultParty::Client,
            Self::DeadlineExceeded => FaultParty::Program,
        }
    }

    fn hint(&self) -> String {
        match self {
            Self::TooLarge(_) | Self::Broken => "",
            Self::DeadlineExceeded => {
                "send the body faster, or have the operator raise the route's `limits.timeout`"
            }
        }
        .to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use http_body_util::{BodyExt, StreamBody};

    use super::*;
    use crate::body::{BodyError, empty, full};

    #[tokio::test(start_paused = true)]
    async fn reads_a_body_within_its_limit_and_its_deadline() {
        let deadline = tokio::time::Instant::now().into_std() + Duration::from_secs(5);
        assert_eq!(read_request_body(empty(), 0, deadline).await, Ok(Bytes::new()));
        assert_eq!(read_request_body(full("four"), 4, deadline).await, Ok("four".into()));
        assert_eq!(read_request_body(full("four"), 3, deadline).await, Err(RequestBodyError::TooLarge(3)));
        let broken = async { Err::<http_body::Frame<Bytes>, BodyError>("it ended".into()) };
        let broken = StreamBody::new(futures_util::stream::once(broken)).boxed_unsync();
        assert_eq!(read_request_body(broken, 4, deadline).await, Err(RequestBodyError::Broken));
        let stuck = async { pending::<Result<http_body::Frame<Bytes>, BodyError>>().await };
        let stuck = StreamBody::new(futures_util::stream::once(stuck)).boxed_unsync();
        assert_eq!(read_request_body(stuck, 4, deadline).await, Err(RequestBodyError::DeadlineExceeded));
    }
}
