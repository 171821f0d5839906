//! The body of a request over HTTP/2. A body that the client resets is always an error and never a shorter
//! body, whatever the reason code.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use services::StreamedServiceBody;
use services::body::{BodyError, empty};
use services::http1::{FramingError, MAX_TRAILERS, content_length};
use tokio::task::coop::poll_proceed;

use super::traffic::FrameCounts;
use crate::http_semantics::request_validation::has_padded_value;

/// A body that arrives after the head.
struct Http2RequestBody {
    stream: RecvStream,
    /// The number of bytes to come if the head contains the length, which h2 enforces.
    bytes_left: Option<u64>,
    has_data: bool,
    stream_id: u32,
    traffic: Arc<FrameCounts>,
}

/// Returns the body of a request with this head.
pub(super) fn request_body(
    head: &HeaderMap,
    stream: RecvStream,
    traffic: &Arc<FrameCounts>,
) -> StreamedServiceBody {
    if stream.is_end_stream() {
        return empty();
    }
    let left = content_length(head).ok().flatten();
    let stream_id = stream.stream_id().into();
    traffic.unread_frames().begin_body(stream_id);
    Http2RequestBody { stream, bytes_left: left, has_data: true, stream_id, traffic: Arc::clone(traffic) }
        .boxed_unsync()
}

impl http_body::Body for Http2RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        // As in HTTP/1.1 (`services/src/protocol/http1/decoder.rs`): a whole window of one-byte frames may be
        // available at once, so the cooperative budget limits the number of frames.
        let budget = ready!(poll_proceed(context));
        if self.has_data {
            if let Some(data) = ready!(self.stream.poll_data(context)).transpose()? {
                self.bytes_left = self.bytes_left.map(|left| left.saturating_sub(data.len() as u64));
                self.traffic.note_useful(data.len());
                if !data.is_empty() {
                    self.traffic.unread_frames().note_frame_read(self.stream_id);
                }
                // The reader has the data now, so the client may send as much again.
                self.stream.flow_control().release_capacity(data.len())?;
                budget.made_progress();
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            self.has_data = false;
        }
        let trailers = ready!(self.stream.poll_trailers(context))?;
        budget.made_progress();
        let is_wrong = |trailers: &HeaderMap| trailers.len() > MAX_TRAILERS || has_padded_value(trailers);
        if trailers.as_ref().is_some_and(is_wrong) {
            return Poll::Ready(Some(Err(FramingError::Trailers.into())));
        }
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.bytes_left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Drop for Http2RequestBody {
    fn drop(&mut self) {
        self.traffic.unread_frames().end_body(self.stream_id);
    }
}
