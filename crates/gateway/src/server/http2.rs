//! A connection of HTTP/2 (RFC 9113), as the server of it: frames and flow control are h2's, what a client may do with them
//! is decided here.
//!
//! A task accepts requests and moves frames, each request has a task of its own (`http2/stream.rs`), and those of a connection
//! take turns (`http2/turns.rs`). A connection ends when
//! nothing was under way on it for a while, when it stands still, and when its frames are a flood (`http2/traffic.rs`).
//!
//! Two malformed messages are read as if they were not, since h2 drops what is wrong before it hands them over: the fragment
//! of a `:path`, which HTTP/1.1 refuses, and pseudo-header fields in trailers (RFC 9113, 8.1). Nothing of either goes on.

mod body;
mod stream;
mod traffic;
mod turns;

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Ping, PingPong, Reason, RecvStream};
use http::{Method, Request, Response};
use offload::polls::{PollSite, watched};
use services::Body;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::awaited::Awaited;
use super::patient::Patient;
use super::stall::Patience;
use super::{BoxError, GREETING, IDLE, MAX_HEAD};
use crate::access::Logged;
use crate::client::Client;
use crate::conform::has_padded_value;
pub(super) use traffic::Traffic;
use turns::Turns;

/// How many requests one connection may have under way: what RFC 9113 (6.5.2) calls the least that doesn't limit
/// parallelism needlessly.
const MAX_STREAMS: u32 = 100;
/// How much of an answer h2 may hold for a stream: it is given what the client's window has room for, and no more.
pub(super) const MAX_SEND_BUFFER: usize = 32 << 10;
/// How much of requests' bodies a client may send before somebody reads it: on one stream, and on all of a connection.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 512 << 10;
/// Streams that were reset before they were looked at, and streams that a client has us reset by its mistakes, before the
/// connection ends: CVE-2023-44487, CVE-2025-8671.
const MAX_PENDING_RESETS: usize = 20;
const MAX_ERROR_RESETS: usize = 128;
/// Streams that we reset and whose frames are still passed over, and for how long.
const MAX_PASSED_OVER: usize = 32;
const PASSED_OVER: Duration = Duration::from_secs(1);
/// How often it is looked what has happened.
const LOOK: Duration = Duration::from_secs(15);
/// How long a client that was silent for [`IDLE`] may take to answer a ping.
const PONG: Duration = Duration::from_secs(30);

/// A connection, and what is known of it.
struct Conversation<S> {
    connection: Connection<Patient<S>, Bytes>,
    client: Client,
    traffic: Arc<Traffic>,
    turns: Turns,
    pings: Option<PingPong>,
    /// That the gateway takes no more requests.
    ending: Awaited,
    patience: Patience,
    /// What had happened by the last look.
    seen: traffic::Seen,
    /// For how long nothing was under way, and for how long nothing came.
    idle: Duration,
    silent: Duration,
    is_ending: bool,
    is_broken: bool,
}

/// Serves a connection to its end. What was read of it before comes first.
pub(super) async fn serve<S, F>(
    stream: S,
    begun: Vec<u8>,
    client: Client,
    ending: Awaited,
    answer: impl Fn(Request<Body>, Client) -> F,
) -> Result<(), BoxError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = Response<Logged>> + Send + 'static,
{
    let traffic = Arc::new(Traffic::default());
    let stream = Patient::new(stream, begun, Arc::clone(&traffic));
    let handshake = builder().handshake(stream);
    let Ok(connection) = timeout(GREETING, handshake).await else { return Ok(()) };
    let mut connection = connection?;
    let pings = connection.ping_pong();
    let mut conversation = Conversation {
        connection,
        client,
        seen: traffic.seen(),
        traffic,
        turns: Turns::default(),
        pings,
        ending,
        patience: Patience::default(),
        idle: Duration::ZERO,
        silent: Duration::ZERO,
        is_ending: false,
        is_broken: false,
    };
    std::future::poll_fn(|context| conversation.poll(context, &answer)).await
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

/// What is to become of a connection.
enum Verdict {
    /// It takes no more requests.
    Leave,
    /// It ends, and the client hears why.
    BreakOff(Reason),
    /// It ends without a word, which nobody would hear.
    Cut,
}

/// Why a connection was cut off.
#[derive(Debug, thiserror::Error)]
#[error("the client did not let the connection end, or is gone")]
struct CutOff;

impl<S: AsyncRead + AsyncWrite + Unpin> Conversation<S> {
    fn poll<F>(
        &mut self,
        context: &mut Context<'_>,
        answer: &impl Fn(Request<Body>, Client) -> F,
    ) -> Poll<Result<(), BoxError>>
    where
        F: Future<Output = Response<Logged>> + Send + 'static,
    {
        self.traffic.begin_turn();
        loop {
            while let Poll::Ready(accepted) = self.connection.poll_accept(context) {
                match accepted.transpose()? {
                    Some((request, respond)) => self.begin(request, respond, answer),
                    None => return Poll::Ready(Ok(())),
                }
            }
            // What is begun here goes out with the next turn.
            match ready!(self.poll_verdict(context)) {
                Verdict::Leave => self.connection.graceful_shutdown(),
                Verdict::BreakOff(reason) => self.connection.abrupt_shutdown(reason),
                Verdict::Cut => return Poll::Ready(Err(CutOff.into())),
            }
        }
    }

    /// Has a task of its own answer a request.
    fn begin<F>(
        &mut self,
        request: Request<RecvStream>,
        mut respond: SendResponse<Bytes>,
        answer: &impl Fn(Request<Body>, Client) -> F,
    ) where
        F: Future<Output = Response<Logged>> + Send + 'static,
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
        // Boxed, since an answer on its way would keep the room for it otherwise.
        let answering = Box::pin(answer(Request::from_parts(head, body), client));
        let serving = stream::serve(answering, respond, is_head, under_way);
        tokio::spawn(watched(PollSite::Http2, self.turns.take(serving)));
    }

    /// What is to become of the connection, once anything is.
    fn poll_verdict(&mut self, context: &mut Context<'_>) -> Poll<Verdict> {
        if !self.is_broken && self.traffic.is_flood() {
            self.is_broken = true;
            return Poll::Ready(Verdict::BreakOff(Reason::ENHANCE_YOUR_CALM));
        }
        if !self.is_ending && self.ending.poll(context).is_ready() {
            self.is_ending = true;
            return Poll::Ready(Verdict::Leave);
        }
        while self.patience.is_over(LOOK, context) {
            self.patience.begin();
            if let Some(verdict) = self.look(context) {
                return Poll::Ready(verdict);
            }
        }
        Poll::Pending
    }

    /// Compares what has happened with the last look.
    fn look(&mut self, context: &mut Context<'_>) -> Option<Verdict> {
        let before = std::mem::replace(&mut self.seen, self.traffic.seen());
        let is_idle = self.seen.under_way == 0 && self.seen.begun == before.begun;
        self.idle = if is_idle { self.idle + LOOK } else { Duration::ZERO };
        if self.is_ending && is_idle {
            // It would have ended by now if the client wanted it to.
            return Some(Verdict::Cut);
        }
        if self.idle >= IDLE || (!self.is_ending && self.client.has_stale_certificate()) {
            self.is_ending = true;
            return Some(Verdict::Leave);
        }
        self.silent = if self.seen.read == before.read { self.silent + LOOK } else { Duration::ZERO };
        if self.silent == IDLE {
            self.ping(context);
        }
        (self.silent >= IDLE + PONG).then_some(Verdict::Cut)
    }

    /// Asks the client whether it is there.
    fn ping(&mut self, context: &mut Context<'_>) {
        let Some(pings) = &mut self.pings else { return };
        // The answer to an earlier one makes room for another.
        let _ = pings.poll_pong(context);
        let _ = pings.send_ping(Ping::opaque());
    }
}

#[cfg(test)]
mod tests;
