//! Bytes of answers that their clients have yet to take: counted by connection, by address and in all (see
//! [`crate::server::limiter`]).
//!
//! A body is asked for its next piece once the one before is gone, so that a piece counts from when it is given out until
//! the next one is asked for. A small piece is nobody's burden, and most answers are one.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Response;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use services::Body;
use services::body::Error;

use crate::client::Client;
use crate::server::limiter::UnsentPermit;

/// What is not counted.
const SMALL: u64 = 16 << 10;

/// A body whose pieces are counted.
struct Counted {
    body: Body,
    client: Client,
    permit: Option<UnsentPermit>,
}

/// The answer with its body counted. One that is small is left as it is.
pub(crate) fn keep(response: Response<Body>, client: &Client) -> Response<Body> {
    if response.body().size_hint().upper().is_some_and(|size| size <= SMALL) {
        return response;
    }
    response.map(|body| Counted { body, client: client.clone(), permit: None }.boxed_unsync())
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        self.permit = None;
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context)?);
        let size = frame.as_ref().and_then(|frame| frame.data_ref()).map_or(0, |data| data.len() as u64);
        if size > SMALL {
            self.permit = self.client.keep(size)?;
        }
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
