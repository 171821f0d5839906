//! The server side of an HTTP/2 connection (RFC 9113). h2 implements frames and flow control; this module
//! limits the resources that clients use.
//!
//! One task accepts requests and transfers frames, each request has a task of its own (`http2/stream.rs`),
//! and the tasks of a connection take turns (`http2/request_turns.rs`). A poll reads no more frames than a
//! turn has room for (`http2/frames.rs`). A connection ends after an idle timeout, when it stalls, when its
//! table of fields keeps much memory (`http2/field_blocks.rs`), when many of its frames are unread
//! (`http2/unread_frames.rs`), or when its frames amount to a flood (`http2/traffic.rs`).
//!
//! Two kinds of malformed messages are accepted, since h2 drops the invalid parts before it returns them: a
//! fragment in `:path`, which HTTP/1.1 refuses, and pseudo-header fields in trailers (RFC 9113, 8.1). Neither
//! is forwarded.

mod body;
mod field_blocks;
mod frames;
mod request_turns;
mod stream;
mod traffic;
mod unread_frames;

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

use super::fair_stream::FairStream;
use super::phase_change::PhaseChange;
use super::{BoxError, GREETING_TIMEOUT, IDLE_TIMEOUT};
use crate::http_semantics::client::ClientInfo;
use crate::http_semantics::request_validation::{MAX_HEAD, has_padded_value};
use crate::limits::stall_timer::CoarseStallTimer;
use crate::pipeline::context::LoggedBody;
pub(super) use frames::FrameScanner;
use request_turns::RequestTurns;
pub(super) use traffic::FrameCounts;

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
const MAX_RESET_STREAMS: usize = 32;
const RESET_STREAM_DURATION: Duration = Duration::from_secs(1);
/// The interval between checks for progress.
const CHECK_INTERVAL: Duration = Duration::from_secs(15);
/// The timeout for the response to a ping, which is sent after [`IDLE_TIMEOUT`] without input.
const PONG_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection and its state.
struct Http2Connection<S> {
    connection: Connection<FairStream<S>, Bytes>,
    client: ClientInfo,
    traffic: Arc<FrameCounts>,
    turns: RequestTurns,
    pings: Option<PingPong>,
    /// Ready once the gateway takes no more requests.
    drain_change: PhaseChange,
    check_timer: CoarseStallTimer,
    /// The counts at the last check.
    last_counts: traffic::FrameCountSnapshot,
    /// The time without requests in flight, and the time without input.
    idle_time: Duration,
    silent_time: Duration,
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
    let Ok(connection) = timeout(GREETING_TIMEOUT, perform_handshake(stream, &traffic)).await else {
        return Ok(());
    };
    let mut connection = connection?;
    let pings = connection.ping_pong();
    let mut conversation = Http2Connection {
        connection,
        client,
        last_counts: traffic.snapshot(),
        traffic,
        turns: RequestTurns::default(),
        pings,
        drain_change: ending,
        check_timer: CoarseStallTimer::default(),
        idle_time: Duration::ZERO,
        silent_time: Duration::ZERO,
        is_ending: false,
        is_broken: false,
    };
    poll_fn(|context| conversation.poll(context, &answer)).await
}

/// Exchanges prefaces with the client.
async fn perform_handshake<S>(
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
        .max_concurrent_reset_streams(MAX_RESET_STREAMS)
        .reset_stream_duration(RESET_STREAM_DURATION);
    builder
}

/// The decision about a connection.
enum ConnectionDecision {
    /// Accept no more requests.
    StopAccepting,
    /// Close the connection with an error code for the client.
    CloseWithError(Reason),
    /// Close the connection without a message, which the client would not receive.
    Disconnect,
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
                    Some((request, respond)) => self.spawn_request(request, respond, answer),
                    None => return Poll::Ready(Ok(())),
                }
            }
            // The frames of a verdict are written in the next iteration.
            match ready!(self.poll_decision(context)) {
                ConnectionDecision::StopAccepting => self.connection.graceful_shutdown(),
                ConnectionDecision::CloseWithError(reason) => self.connection.abrupt_shutdown(reason),
                ConnectionDecision::Disconnect => return Poll::Ready(Err(CutOff.into())),
            }
        }
    }

    /// Spawns a task that answers a request.
    fn spawn_request<F>(
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
        let body = body::request_body(&head.headers, body, &self.traffic);
        let is_head = head.method == Method::HEAD;
        // Boxed, since otherwise a task that is sending the response would reserve space for it.
        let answering = Box::pin(answer(Request::from_parts(head, body), client));
        let serving = stream::serve(answering, respond, is_head, under_way);
        tokio::spawn(watch_polls(PollSite::Http2, self.turns.take_turns(serving)));
    }

    /// Waits for a decision about the connection.
    fn poll_decision(&mut self, context: &mut Context<'_>) -> Poll<ConnectionDecision> {
        self.traffic.count_unread();
        if !self.is_broken && self.traffic.is_flood() {
            self.is_broken = true;
            return Poll::Ready(ConnectionDecision::CloseWithError(Reason::ENHANCE_YOUR_CALM));
        }
        if !self.is_ending && (self.traffic.exceeds_memory() || self.drain_change.poll(context).is_ready()) {
            self.is_ending = true;
            return Poll::Ready(ConnectionDecision::StopAccepting);
        }
        while self.check_timer.is_over(CHECK_INTERVAL, context) {
            self.check_timer.restart();
            if let Some(verdict) = self.check_progress(context) {
                return Poll::Ready(verdict);
            }
        }
        Poll::Pending
    }

    /// Compares the counts with those of the last check.
    fn check_progress(&mut self, context: &mut Context<'_>) -> Option<ConnectionDecision> {
        let before = std::mem::replace(&mut self.last_counts, self.traffic.snapshot());
        let is_idle =
            self.last_counts.in_flight == 0 && self.last_counts.started_requests == before.started_requests;
        self.idle_time = if is_idle { self.idle_time + CHECK_INTERVAL } else { Duration::ZERO };
        if self.is_ending && is_idle {
            // A cooperating client would have closed the connection by now.
            return Some(ConnectionDecision::Disconnect);
        }
        if self.idle_time >= IDLE_TIMEOUT || (!self.is_ending && self.client.has_stale_certificate()) {
            self.is_ending = true;
            return Some(ConnectionDecision::StopAccepting);
        }
        self.silent_time = if self.last_counts.read_cost == before.read_cost {
            self.silent_time + CHECK_INTERVAL
        } else {
            Duration::ZERO
        };
        if self.silent_time == IDLE_TIMEOUT {
            self.send_ping(context);
        }
        (self.silent_time >= IDLE_TIMEOUT + PONG_TIMEOUT).then_some(ConnectionDecision::Disconnect)
    }

    /// Pings the client to check the connection.
    fn send_ping(&mut self, context: &mut Context<'_>) {
        let Some(pings) = &mut self.pings else { return };
        // Polling the response to an earlier ping makes room for another.
        let _ = pings.poll_pong(context);
        let _ = pings.send_ping(Ping::opaque());
    }
}

#[cfg(test)]
mod tests;
