//! The server side of an HTTP/2 connection (RFC 9113). h2 implements frames and flow control; this module
//! limits the resources that clients use.
//!
//! One task accepts requests and transfers frames, each request has a task of its own (`http2/stream.rs`),
//! and the tasks of a connection take turns (`http2/turns.rs`). A poll reads no more frames than a turn has
//! room for (`http2/frames.rs`). A connection ends after an idle timeout, when it stalls, when its table of
//! fields keeps much memory (`http2/field_blocks.rs`), when many of its frames are unread
//! (`http2/unread.rs`), or when its frames amount to a flood (`http2/traffic.rs`).
//!
//! Two kinds of malformed messages are accepted, since h2 drops the invalid parts before it returns them: a
//! fragment in `:path`, which HTTP/1.1 refuses, and pseudo-header fields in trailers (RFC 9113, 8.1). Neither
//! is forwarded.

mod body;
mod field_blocks;
mod frames;
mod stream;
mod traffic;
mod turns;
mod unread;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Ping, PingPong, Reason, RecvStream};
use http::{Method, Request, Response};
use offload::polls::{PollSite, watch_polls};
use services::StreamedServiceBody;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::awaited::PhaseChange;
use super::patient::FairStream;
use super::stall::CoarseStallTimer;
use super::{BoxError, GREETING, IDLE, MAX_HEAD};
use crate::access::LoggedBody;
use crate::client::ClientInfo;
use crate::conform::has_padded_value;
pub(super) use frames::FrameScanner;
pub(super) use traffic::FrameCounts;
use turns::RequestTurns;

/// The maximum number of concurrent requests on a connection: the smallest number that RFC 9113 (6.5.2)
/// recommends in order not to limit parallelism unnecessarily.
const MAX_STREAMS: u32 = 100;
/// The maximum number of response bytes that h2 buffers for a stream. It is given no more than the client's
/// window has room for.
pub(super) const MAX_SEND_BUFFER: usize = 32 << 10;
/// The number of request body bytes that a client may send before they are read: on one stream, and on a
/// connection.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 512 << 10;
/// The number of streams that may be reset before they are accepted, and of streams reset because of the
/// client's errors, before the connection ends: CVE-2023-44487, CVE-2025-8671.
const MAX_PENDING_RESETS: usize = 20;
const MAX_ERROR_RESETS: usize = 128;
/// The number of streams reset by the gateway whose late frames are still ignored, and the time for which
/// they are.
const MAX_PASSED_OVER: usize = 32;
const PASSED_OVER: Duration = Duration::from_secs(1);
/// The interval between checks for progress.
const LOOK: Duration = Duration::from_secs(15);
/// The timeout for the response to a ping, which is sent after [`IDLE`] without input.
const PONG: Duration = Duration::from_secs(30);

/// A connection and its state.
struct Http2Connection<S> {
    connection: Connection<FairStream<S>, Bytes>,
    client: ClientInfo,
    traffic: Arc<FrameCounts>,
    turns: RequestTurns,
    pings: Option<PingPong>,
    /// Ready once the gateway takes no more requests.
    ending: PhaseChange,
    patience: CoarseStallTimer,
    /// The counts at the last check.
    seen: traffic::FrameCountSnapshot,
    /// The time without requests in flight, and the time without input.
    idle: Duration,
    silent: Duration,
    is_ending: bool,
    is_broken: bool,
}

/// Serves a connection to its end, starting with the bytes that were read from it already (`begun`).
pub(super) async fn serve<S, F>(
    stream: S,
    begun: Vec<u8>,
    client: ClientInfo,
    ending: PhaseChange,
    answer: impl Fn(Request<StreamedServiceBody>, ClientInfo) -> F,
) -> Result<(), BoxError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = Response<LoggedBody>> + Send + 'static,
{
    let traffic = Arc::new(FrameCounts::default());
    let stream = FairStream::new(stream, begun, Arc::clone(&traffic));
    let Ok(connection) = timeout(GREETING, greet(stream, &traffic)).await else { return Ok(()) };
    let mut connection = connection?;
    let pings = connection.ping_pong();
    let mut conversation = Http2Connection {
        connection,
        client,
        seen: traffic.seen(),
        traffic,
        turns: RequestTurns::default(),
        pings,
        ending,
        patience: CoarseStallTimer::default(),
        idle: Duration::ZERO,
        silent: Duration::ZERO,
        is_ending: false,
        is_broken: false,
    };
    poll_fn(|context| conversation.poll(context, &answer)).await
}

/// Exchanges prefaces with the client.
async fn greet<S>(
    stream: FairStream<S>,
    traffic: &FrameCounts,
) -> Result<Connection<FairStream<S>, Bytes>, h2::Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut handshake = pin!(builder().handshake(stream));
    poll_fn(|context| {
        traffic.begin_turn();
        handshake.as_mut().poll(context)
    })
    .await
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD as u32)
        .max_send_buffer_size(MAX_SEND_BUFFER)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_local_error_reset_streams(Some(MAX_ERROR_RESETS))
        .max_concurrent_reset_streams(MAX_PASSED_OVER)
        .reset_stream_duration(PASSED_OVER);
    builder
}

/// The decision about a connection.
enum ConnectionDecision {
    /// Accept no more requests.
    Leave,
    /// Close the connection with an error code for the client.
    BreakOff(Reason),
    /// Close the connection without a message, which the client would not receive.
    Cut,
}

/// The error for a connection that was cut off.
#[derive(Debug, thiserror::Error)]
#[error("the client did not close the connection, or has disconnected")]
struct CutOff;

impl<S: AsyncRead + AsyncWrite + Unpin> Http2Connection<S> {
    fn poll<F>(
        &mut self,
        context: &mut Context<'_>,
        answer: &impl Fn(Request<StreamedServiceBody>, ClientInfo) -> F,
    ) -> Poll<Result<(), BoxError>>
    where
        F: Future<Output = Response<LoggedBody>> + Send + 'static,
    {
        self.traffic.begin_turn();
        loop {
            while let Poll::Ready(accepted) = self.connection.poll_accept(context) {
                match accepted.transpose()? {
                    Some((request, respond)) => self.begin(request, respond, answer),
                    None => return Poll::Ready(Ok(())),
                }
            }
            // The frames of a verdict are written in the next iteration.
            match ready!(self.poll_verdict(context)) {
                ConnectionDecision::Leave => self.connection.graceful_shutdown(),
                ConnectionDecision::BreakOff(reason) => self.connection.abrupt_shutdown(reason),
                ConnectionDecision::Cut => return Poll::Ready(Err(CutOff.into())),
            }
        }
    }

    /// Spawns a task that answers a request.
    fn begin<F>(
        &mut self,
        request: Request<RecvStream>,
        mut respond: SendResponse<Bytes>,
        answer: &impl Fn(Request<StreamedServiceBody>, ClientInfo) -> F,
    ) where
        F: Future<Output = Response<LoggedBody>> + Send + 'static,
    {
        let client = self.client.begin_request(false);
        let under_way = self.traffic.begin_request(client.request_permit());
        let (head, body) = request.into_parts();
        if has_padded_value(&head.headers) {
            under_way.note_reset();
            respond.send_reset(Reason::PROTOCOL_ERROR);
            return;
        }
        let body = body::incoming(&head.headers, body, &self.traffic);
        let is_head = head.method == Method::HEAD;
        // Boxed, since otherwise a task that is sending the response would reserve space for it.
        let answering = Box::pin(answer(Request::from_parts(head, body), client));
        let serving = stream::serve(answering, respond, is_head, under_way);
        tokio::spawn(watch_polls(PollSite::Http2, self.turns.take(serving)));
    }

    /// Waits for a decision about the connection.
    fn poll_verdict(&mut self, context: &mut Context<'_>) -> Poll<ConnectionDecision> {
        self.traffic.count_unread();
        if !self.is_broken && self.traffic.is_flood() {
            self.is_broken = true;
            return Poll::Ready(ConnectionDecision::BreakOff(Reason::ENHANCE_YOUR_CALM));
        }
        if !self.is_ending && (self.traffic.retains_much() || self.ending.poll(context).is_ready()) {
            self.is_ending = true;
            return Poll::Ready(ConnectionDecision::Leave);
        }
        while self.patience.is_over(LOOK, context) {
            self.patience.begin();
            if let Some(verdict) = self.look(context) {
                return Poll::Ready(verdict);
            }
        }
        Poll::Pending
    }

    /// Compares the counts with those of the last check.
    fn look(&mut self, context: &mut Context<'_>) -> Option<ConnectionDecision> {
        let before = std::mem::replace(&mut self.seen, self.traffic.seen());
        let is_idle = self.seen.under_way == 0 && self.seen.begun == before.begun;
        self.idle = if is_idle { self.idle + LOOK } else { Duration::ZERO };
        if self.is_ending && is_idle {
            // A cooperating client would have closed the connection by now.
            return Some(ConnectionDecision::Cut);
        }
        if self.idle >= IDLE || (!self.is_ending && self.client.has_stale_certificate()) {
            self.is_ending = true;
            return Some(ConnectionDecision::Leave);
        }
        self.silent = if self.seen.read == before.read { self.silent + LOOK } else { Duration::ZERO };
        if self.silent == IDLE {
            self.ping(context);
        }
        (self.silent >= IDLE + PONG).then_some(ConnectionDecision::Cut)
    }

    /// Pings the client to check the connection.
    fn ping(&mut self, context: &mut Context<'_>) {
        let Some(pings) = &mut self.pings else { return };
        // Polling the response to an earlier ping makes room for another.
        let _ = pings.poll_pong(context);
        let _ = pings.send_ping(Ping::opaque());
    }
}

#[cfg(test)]
mod tests;
