//! The response body that carries the context of its request to the end.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body::{Body as _, Frame, SizeHint};
use services::StreamedServiceBody;

use super::RequestContext;
use crate::telemetry::request_record::RequestEnd;

/// A response body that counts its bytes, and logs the request when it is dropped.
pub(crate) struct LoggedBody {
    pub(super) body: StreamedServiceBody,
    pub(super) context: Box<RequestContext>,
}

impl http_body::Body for LoggedBody {
    type Data = Bytes;
    type Error = services::body::BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                self.context.bytes_sent += frame.data_ref().map_or(0, |data| data.len() as u64);
                if self.body.is_end_stream() {
                    self.context.release_limits();
                }
            }
            Some(Err(_)) => self.context.request_end = RequestEnd::Failed,
            None => self.context.request_end = RequestEnd::Completed,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for LoggedBody {
    fn drop(&mut self) {
        // The body isn't polled again after all announced bytes, or if there are none to send.
        let is_all = self.body.is_end_stream() || self.body.size_hint().exact() == Some(0);
        let is_empty = matches!(
            self.context.status,
            StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::NOT_MODIFIED
        );
        let bodiless = self.context.method == Method::HEAD || is_empty;
        if self.context.request_end == RequestEnd::Unfinished && (is_all || bodiless) {
            self.context.request_end = RequestEnd::Completed;
        }
    }
}
