//! A client connection over HTTP/2, with concurrent requests, driven by a task of its own.

mod paced_reader;

use std::error::Error as _;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use offload::polls::{PollSite, watch_polls};
use tokio::io::{join, split};
use tokio::task::coop::poll_proceed;

use super::connect::TransportStream;
use super::{MAX_HEAD, TransportError, UnsentRequest};
use crate::body::{BodyError, StreamedServiceBody};
use crate::protocol::http1::content_length;
use paced_reader::PacedReader;

/// The interval and the timeout of keep-alive pings on connections with requests in flight.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Flow control windows in bytes, for the body of one response and for all bodies of a connection.
pub(super) const STREAM_WINDOW: u32 = 2 << 20;
const CONNECTION_WINDOW: u32 = 5 << 20;
/// The largest frame that a service may send: the smallest limit that HTTP/2 permits.
const MAX_FRAME: u32 = 16 << 10;
/// The size in bytes of the table for header compression.
const HEADER_TABLE: u32 = 4 << 10;
/// The bytes of a request body that are buffered while the service's window is full.
const SEND_BUFFER: usize = 1 << 20;
/// The number of requests in flight on a connection from which further ones open another connection, even if
/// the service permits more. h2 visits all streams of a connection for some frames (`paced_reader.rs`), and
/// at its end.
pub(super) const MAX_STREAMS: usize = 100;
/// The number of reset streams that a connection remembers, to ignore their late frames.
const MAX_RESET_STREAMS: usize = 50;
/// The number of responses with protocol errors after which the connection ends.
const MAX_ERROR_RESETS: usize = 1024;

/// A connection that requests share. It closes when its last user is gone.
pub(crate) struct ClientHttp2Connection {
    sender: SendRequest<StreamedServiceBody>,
    load: Arc<StreamLoad>,
}

/// The number of requests in flight on a connection, and the maximum that the peer permits.
#[derive(Debug)]
struct StreamLoad {
    streams: AtomicUsize,
    max_streams: AtomicUsize,
}

/// A slot on a connection for one request.
pub(crate) struct StreamSlot {
    sender: SendRequest<StreamedServiceBody>,
    stream_guard: StreamCountGuard,
}

/// Counts a request until its response has been read or dropped.
struct StreamCountGuard(Arc<StreamLoad>);

/// Runs the tasks of a connection, with measured polls.
#[derive(Clone, Copy)]
struct MeasuredExecutor;

impl<F> Executor<F> for MeasuredExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        tokio::spawn(watch_polls(PollSite::Upstream, future));
    }
}

impl ClientHttp2Connection {
    pub(crate) async fn new(stream: TransportStream) -> hyper::Result<Self> {
        let (reader, writer) = split(stream);
        let stream = join(PacedReader::new(reader), writer);
        let (sender, mut driver) = Builder::new(MeasuredExecutor)
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .max_header_list_size(MAX_HEAD)
            .max_frame_size(MAX_FRAME)
            .header_table_size(HEADER_TABLE)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(SEND_BUFFER)
            .max_concurrent_reset_streams(MAX_RESET_STREAMS)
            .max_local_error_reset_streams(MAX_ERROR_RESETS)
            .handshake(TokioIo::new(stream))
            .await?;
        let allowed = AtomicUsize::new(driver.current_max_send_streams());
        let load = Arc::new(StreamLoad { streams: AtomicUsize::new(0), max_streams: allowed });
        let stream_load = Arc::clone(&load);
        MeasuredExecutor.execute(poll_fn(move |context| {
            let ended = driver.poll_unpin(context);
            stream_load.max_streams.store(driver.current_max_send_streams(), Relaxed);
            ended.map(drop)
        }));
        Ok(Self { sender, load })
    }

    /// Whether the connection takes no more requests: it failed, or the peer sent GOAWAY.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.streams() == 0
    }

    /// The number of requests in flight.
    pub(crate) fn streams(&self) -> usize {
        self.load.streams.load(Relaxed)
    }

    /// Whether another request may share the connection: the peer would accept it at once, and there are
    /// fewer than [`MAX_STREAMS`].
    pub(crate) fn has_free_slot(&self) -> bool {
        self.streams() < self.load.max_streams.load(Relaxed).min(MAX_STREAMS)
    }

    pub(crate) fn reserve_slot(&self) -> StreamSlot {
        self.load.streams.fetch_add(1, Relaxed);
        StreamSlot { sender: self.sender.clone(), stream_guard: StreamCountGuard(Arc::clone(&self.load)) }
    }
}

impl Drop for StreamCountGuard {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Relaxed);
    }
}

impl StreamSlot {
    /// Sends a request and waits for the head of its response.
    pub(crate) async fn send(
        mut self,
        request: Request<StreamedServiceBody>,
    ) -> Result<Response<StreamedServiceBody>, UnsentRequest> {
        let is_asked = request.body().is_end_stream();
        match self.sender.try_send_request(request).await {
            Ok(response) => {
                let left = content_length(response.headers()).ok().flatten();
                let body = |body| {
                    SlottedBody {
                        body,
                        remaining_bytes: left,
                        is_request_complete: is_asked,
                        _taken: self.stream_guard,
                    }
                    .boxed_unsync()
                };
                Ok(response.map(body))
            }
            Err(mut error) => Err(match error.take_message() {
                Some(request) => UnsentRequest::Retryable(Box::new(request), error.into_error().into()),
                None => UnsentRequest::NotRetryable(send_error(error.into_error())),
            }),
        }
    }
}

/// Returns the error of a request that was sent without getting a response. Peers report unprocessed requests
/// (RFC 9113, section 8.7): by refusing the stream, or by a GOAWAY frame with the last stream that was
/// processed. The library reports GOAWAY errors exactly to the streams after that one.
fn send_error(error: hyper::Error) -> TransportError {
    let said = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
    let is_refused = said.is_some_and(|said| {
        let is_refused = said.is_reset() && said.reason() == Some(h2::Reason::REFUSED_STREAM);
        said.is_remote() && (is_refused || said.is_go_away())
    });
    if is_refused { TransportError::Refused(error.into()) } else { TransportError::Broken(error.into()) }
}

/// The body of a response, which holds the slot on its connection.
struct SlottedBody {
    body: Incoming,
    /// The remaining length, if the head contains a length.
    remaining_bytes: Option<u64>,
    /// Whether the peer had the complete request. If not, it may end the exchange with a reset after a
    /// complete response (RFC 9113, section 8.1), which cannot be distinguished from an incomplete one
    /// without a length.
    is_request_complete: bool,
    _taken: StreamCountGuard,
}

/// The error of an incomplete response.
#[derive(Debug, thiserror::Error)]
#[error("the service reset the stream before the end of its response")]
struct StreamResetError;

impl http_body::Body for SlottedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        // Consumes the cooperative budget, as in HTTP/1.1 (`protocol/http1/decoder.rs`): thousands of frames
        // may be available at once.
        let budget = ready!(poll_proceed(context));
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context)?);
        budget.made_progress();
        let length = frame.as_ref().and_then(|frame| frame.data_ref()).map_or(0, |data| data.len() as u64);
        self.remaining_bytes = self.remaining_bytes.map(|left| left.saturating_sub(length));
        // The library reports a reset with NO_ERROR or CANCEL as the end of the body.
        let is_short = frame.is_none() && !self.body.is_end_stream();
        if is_short && self.remaining_bytes.map_or(self.is_request_complete, |left| left > 0) {
            return Poll::Ready(Some(Err(StreamResetError.into())));
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
