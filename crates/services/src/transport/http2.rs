//! A connection that speaks HTTP/2: many requests at once, driven by a task of its own.

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
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::task::coop::poll_proceed;

use super::connect::Stream;
use super::{MAX_HEAD, TransportError, Unsent};
use crate::body::{Body, Error};
use crate::http1::content_length;

/// How often a connection with requests under way is asked whether it still lives, and how long it may
/// take to say so.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of bodies that a service may send before they are read: of one answer, and of all answers on a connection.
pub(super) const STREAM_WINDOW: u32 = 2 << 20;
const CONNECTION_WINDOW: u32 = 5 << 20;
/// The largest frame that a service may send: the least that HTTP/2 allows to ask for.
const MAX_FRAME: u32 = 16 << 10;
/// Bytes of the table by which a service shortens heads.
const HEADER_TABLE: u32 = 4 << 10;
/// Bytes of a request's body that wait for the service's window.
const SEND_BUFFER: usize = 1 << 20;
/// How many requests that were given up a connection remembers, so that frames on their way are passed over.
const MAX_RESET_STREAMS: usize = 50;
/// After so many answers that break the protocol the connection ends.
const MAX_ERROR_RESETS: usize = 1024;

/// A connection, shared by all requests that fit on it. It ends when the last one that holds it does.
pub(crate) struct Connection {
    sender: SendRequest<Body>,
    load: Arc<Load>,
}

/// How many requests are under way on a connection, and how many the peer allows.
#[derive(Debug)]
struct Load {
    streams: AtomicUsize,
    allowed: AtomicUsize,
}

/// A place on a connection, for one request.
pub(crate) struct Place {
    sender: SendRequest<Body>,
    taken: Taken,
}

/// Counts a request until its answer has been read or dropped.
struct Taken(Arc<Load>);

impl Connection {
    pub(crate) async fn new(stream: Stream) -> hyper::Result<Self> {
        let (sender, mut driver) = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
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
        let load = Arc::new(Load { streams: AtomicUsize::new(0), allowed });
        let told = Arc::clone(&load);
        tokio::spawn(poll_fn(move |context| {
            let ended = driver.poll_unpin(context);
            told.allowed.store(driver.current_max_send_streams(), Relaxed);
            ended.map(drop)
        }));
        Ok(Self { sender, load })
    }

    /// Whether it takes no more requests: it broke, or the peer said that it is going away.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.streams() == 0
    }

    /// How many requests are under way on it.
    pub(crate) fn streams(&self) -> usize {
        self.load.streams.load(Relaxed)
    }

    /// Whether the peer would take another request at once.
    pub(crate) fn has_room(&self) -> bool {
        self.streams() < self.load.allowed.load(Relaxed)
    }

    pub(crate) fn place(&self) -> Place {
        self.load.streams.fetch_add(1, Relaxed);
        Place { sender: self.sender.clone(), taken: Taken(Arc::clone(&self.load)) }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Relaxed);
    }
}

impl Place {
    /// Sends a request and waits for the head of its answer.
    pub(crate) async fn send(mut self, request: Request<Body>) -> Result<Response<Body>, Unsent> {
        let is_asked = request.body().is_end_stream();
        match self.sender.try_send_request(request).await {
            Ok(response) => {
                let left = content_length(response.headers()).ok().flatten();
                let body = |body| Placed { body, left, is_asked, _taken: self.taken }.boxed_unsync();
                Ok(response.map(body))
            }
            Err(mut error) => Err(match error.take_message() {
                Some(request) => Unsent::Whole(Box::new(request), error.into_error().into()),
                None => Unsent::Lost(lost(error.into_error())),
            }),
        }
    }
}

/// What became of a request that was sent and not answered. A peer says of which it has done nothing (RFC
/// 9113, 8.7): it refuses the stream, or goes away and names the last one that it has looked at. The library
/// tells the streams after that one, and no other, that the peer goes away.
fn lost(error: hyper::Error) -> TransportError {
    let said = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
    let is_refused = said.is_some_and(|said| {
        let is_refused = said.is_reset() && said.reason() == Some(h2::Reason::REFUSED_STREAM);
        said.is_remote() && (is_refused || said.is_go_away())
    });
    if is_refused { TransportError::Refused(error.into()) } else { TransportError::Broken(error.into()) }
}

/// The body of an answer, which keeps the place on its connection.
struct Placed {
    body: Incoming,
    /// How much is to come, where the head says so.
    left: Option<u64>,
    /// Whether the peer had all of the request. If not, it may end the exchange with a reset behind a whole answer (RFC
    /// 9113, 8.1), which can't be told from half an answer unless that says how long it is.
    is_asked: bool,
    _taken: Taken,
}

/// Why an answer is none.
#[derive(Debug, thiserror::Error)]
#[error("the service took its answer back before the end")]
struct TakenBack;

impl http_body::Body for Placed {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        // As in HTTP/1.1 (`http1/decoder.rs`): frames may be there by the thousand.
        let budget = ready!(poll_proceed(context));
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context)?);
        budget.made_progress();
        let length = frame.as_ref().and_then(|frame| frame.data_ref()).map_or(0, |data| data.len() as u64);
        self.left = self.left.map(|left| left.saturating_sub(length));
        // The library takes a reset with the reasons NO_ERROR and CANCEL for an end.
        let is_short = frame.is_none() && !self.body.is_end_stream();
        if is_short && self.left.map_or(self.is_asked, |left| left > 0) {
            return Poll::Ready(Some(Err(TakenBack.into())));
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
