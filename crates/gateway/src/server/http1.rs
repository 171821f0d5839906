//! The server side of an HTTP/1.1 connection (RFC 9112), which serves one request after the other.
//!
//! The implementation is our own, as is that of the client side (`services/src/transport/http1.rs`), and both
//! share their parts (`services/src/protocol/http1.rs`): a lenient library would need a second parser to
//! check its input, and both together cost more than a strict one.
//!
//! `http1/head.rs` parses the head of a request, `wire.rs` contains the connection and the request body,
//! `response_head.rs` writes the response.

mod head;
mod response_head;
mod wire;

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use services::body::BodyError;
use services::coop::ByteTurn;
use services::headers::list_contains;
use services::http1::{BodyFraming, SendingMessage, announced_trailers};
use services::{ServiceTunnel, StreamedServiceBody};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::phase_change::PhaseChange;
use super::{IDLE_TIMEOUT, MIN_READ_RATE, WRITE_STALL_TIMEOUT};
use crate::http_semantics::client::ClientInfo;
use crate::http_semantics::problem_details;
use crate::http_semantics::request_refusal::RequestRefusal;
use crate::limits::stall_timer::{CoarseStallTimer, StallTimer};
use head::{RequestFraming, RequestHead};
pub(super) use response_head::{has_body, may_have_content};
use wire::{ReadAheadLimits, ResponseWriter, SharedConnection};

/// The timeout of a request's head after its first byte. A head usually arrives in one or two pieces; a
/// client that sends it byte by byte intends to occupy the connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The number of bytes read ahead while a request is being answered, and of its body while nothing reads
/// that, to detect that the client has disconnected.
const READ_AHEAD: ReadAheadLimits = ReadAheadLimits { body_limit: 8 << 10, pipelined_limit: 64 << 10 };

/// A connection and its state across requests.
struct Http1Connection<S> {
    wire: SharedConnection<S>,
    client: ClientInfo,
    /// Ready once the gateway takes no more requests.
    drain_change: PhaseChange,
    idle_timer: CoarseStallTimer,
    write_stall: StallTimer,
}

/// The next step on a connection after a response.
enum NextAction {
    Request,
    Close,
    Tunnel(ServiceTunnel),
}

/// Serves a connection to its end, starting with the bytes that were read from it already (`begun`). While
/// `is_prompt` holds, responses to requests that arrived together are sent together.
pub(super) async fn serve<S, F, B>(
    stream: S,
    begun: &[u8],
    client: ClientInfo,
    ending: PhaseChange,
    mut answer: impl FnMut(Request<StreamedServiceBody>, ClientInfo) -> F,
    is_prompt: impl Fn() -> bool,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = Response<B>>,
    B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin,
{
    let wire = SharedConnection::new(stream, begun);
    let (patience, unread) = (CoarseStallTimer::default(), StallTimer::default());
    let mut conversation =
        Http1Connection { wire, client, drain_change: ending, idle_timer: patience, write_stall: unread };
    let mut turn = ByteTurn::default();
    loop {
        let (request, framing, length) = match conversation.next_request().await? {
            None => break,
            Some(Ok(RequestHead { request, request_framing: asked, length })) => (request, asked, length),
            Some(Err(refusal)) => {
                conversation.write_refusal(&refusal).await?;
                break;
            }
        };
        let client = conversation.client.begin_request(framing.is_ambiguous);
        let body = conversation.wire.request_body(framing.framing, framing.expects_continue, &client);
        let request = Request::from_parts(request, body);
        // Boxed, since otherwise an idle connection would reserve space for it.
        let answering = Box::pin(answer(request, client));
        let Some(response) = conversation.wait_for_response(answering).await? else { return Ok(()) };
        if is_prompt() {
            yield_to_ready_tasks().await;
        } else {
            // Several requests may have arrived together, with long heads.
            turn.consume_bytes(length).await;
        }
        match conversation.write_response(response, &framing).await? {
            NextAction::Request => {}
            NextAction::Close => break,
            NextAction::Tunnel(tunnel) => {
                let Some(client) = conversation.wire.take_stream() else { break };
                tunnel.connect_client(client).await;
                return Ok(());
            }
        }
    }
    // A client that no longer reads would block the end of TLS as well.
    timeout(HEAD_TIMEOUT, conversation.wire.shutdown()).await.unwrap_or(Ok(()))
}

/// Yields once, so that tasks that are ready already run first. Requests that arrived together are then
/// answered one right after the other, and a client that waits for all of them wakes on the first response
/// and not on each: waking the client is a considerable part of the cost of a small response. HTTP/2 does not
/// need this, since its responses share a connection.
async fn yield_to_ready_tasks() {
    let mut was_here = false;
    poll_fn(|context| {
        if std::mem::replace(&mut was_here, true) {
            return Poll::Ready(());
        }
        // A task that wakes itself goes to the end of its thread's run queue.
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Answers a connection with an error, whatever it sends.
pub(super) async fn refuse<S>(stream: S, client: ClientInfo, refusal: &RequestRefusal) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (patience, unread) = (CoarseStallTimer::default(), StallTimer::default());
    let mut conversation = Http1Connection {
        wire: SharedConnection::new(stream, &[]),
        client,
        drain_change: PhaseChange::never(),
        idle_timer: patience,
        write_stall: unread,
    };
    conversation.write_refusal(refusal).await?;
    conversation.wire.shutdown().await
}

/// Closes the connection for remaining users of a request body, which see it as broken off.
impl<S> Drop for Http1Connection<S> {
    fn drop(&mut self) {
        self.wire.close();
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Http1Connection<S> {
    /// Returns the head of the next request, or an error if it is invalid. `None` if the client sends no more
    /// requests.
    async fn next_request(&mut self) -> io::Result<Option<Result<RequestHead, RequestRefusal>>> {
        self.wire.shrink_input();
        self.idle_timer.restart();
        poll_fn(|context| self.poll_next_request(context)).await
    }

    fn poll_next_request(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Result<RequestHead, RequestRefusal>>>> {
        if let Poll::Ready(found) = self.wire.poll_head(context) {
            return Poll::Ready(found);
        }
        let is_over = if self.wire.is_between_requests() {
            self.idle_timer.is_over(IDLE_TIMEOUT, context) || self.drain_change.poll(context).is_ready()
        } else {
            self.idle_timer.is_over_since_call(HEAD_TIMEOUT, context)
        };
        if is_over { Poll::Ready(Ok(None)) } else { Poll::Pending }
    }

    /// Waits for a response. Returns `None` if the client disconnects first.
    async fn wait_for_response<F>(&mut self, mut answering: Pin<Box<F>>) -> io::Result<Option<F::Output>>
    where
        F: Future,
    {
        poll_fn(|context| match answering.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(Ok(Some(answer))),
            Poll::Pending => self.poll_disconnect(context).map_ok(|()| None),
        })
        .await
    }

    /// Ready once the client has closed the connection.
    fn poll_disconnect(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.wire.may_read_ahead(READ_AHEAD, context) {
            if !ready!(self.wire.poll_more(context))? {
                return Poll::Ready(Ok(()));
            }
        }
        Poll::Pending
    }

    async fn write_response<B>(
        &mut self,
        response: Response<B>,
        request_framing: &RequestFraming,
    ) -> io::Result<NextAction>
    where
        B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin,
    {
        let (mut head, body) = response.into_parts();
        let tunnel = head.extensions.remove::<ServiceTunnel>();
        let tunnel = tunnel.filter(|_| head.status == StatusCode::SWITCHING_PROTOCOLS);
        // A client would take the next response for the final one of this request.
        if head.status.is_informational() && tunnel.is_none() {
            head.status = StatusCode::BAD_GATEWAY;
        }
        let framing = response_head::response_framing(&head, &body, request_framing);
        // Without `Connection: close`, a client may send its next request on a connection that is closing
        // (RFC 9112, 9.6).
        let stays = request_framing.keep_alive
            && framing != BodyFraming::UntilClose
            && (!request_framing.has_body() || self.wire.can_keep_alive())
            && !list_contains(&head.headers, &header::CONNECTION, b"close");
        let interim = if request_framing.expects_continue { self.wire.take_interim() } else { &[] };
        let text = response_head::encode_head(&head, framing, request_framing, stays, interim);
        let has_trailers = request_framing.accepts_trailers && head.headers.contains_key(header::TRAILER);
        let trailers = if has_trailers { announced_trailers(&head.headers) } else { Box::default() };
        let sending = if has_body(head.status, request_framing.is_head) && framing != BodyFraming::Length(0) {
            SendingMessage::new(text, body, framing, trailers)
        } else {
            drop(body);
            SendingMessage::head_only(text)
        };
        self.send_response(sending).await?;
        Ok(match tunnel {
            Some(tunnel) => NextAction::Tunnel(tunnel),
            None if stays && (!request_framing.has_body() || self.wire.discard_to_end()) => {
                NextAction::Request
            }
            None => {
                // With ambiguous framing it is unknown whether there are unread bytes.
                if request_framing.is_ambiguous || !self.wire.discard_to_end() {
                    self.client.note_unread();
                }
                NextAction::Close
            }
        })
    }

    async fn write_refusal(&mut self, refusal: &RequestRefusal) -> io::Result<()> {
        self.client.note_unread();
        let request_framing = RequestFraming::unparsed();
        let (head, body) = problem_details::problem_response(refusal).response.into_parts();
        let framing = response_head::response_framing(&head, &body, &request_framing);
        let text = response_head::encode_head(&head, framing, &request_framing, false, &[]);
        self.send_response(SendingMessage::new(text, body, framing, Box::default())).await
    }

    /// Writes the response, unless the client disconnects, reads nothing for too long, or reads too slowly
    /// overall.
    async fn send_response<B>(&mut self, mut sending: SendingMessage<B>) -> io::Result<()>
    where
        B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin,
    {
        // The time limit applies to each response.
        self.write_stall = StallTimer::default();
        poll_fn(|context| {
            let has_written = sending
                .write_available(&mut ResponseWriter(&self.wire), context)
                .map_err(io::Error::other)?;
            if sending.is_done() {
                return Poll::Ready(Ok(()));
            }
            if let Some(error) = sending.take_failure() {
                return Poll::Ready(Err(error));
            }
            if has_written || !sending.is_blocked() {
                self.write_stall.end_stall();
            }
            let sent = sending.sent_bytes();
            if sending.is_blocked()
                && self.write_stall.is_over_at_rate(sent, MIN_READ_RATE, WRITE_STALL_TIMEOUT, context)
            {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            self.poll_disconnect(context).map(|gone| gone.and(Err(io::ErrorKind::UnexpectedEof.into())))
        })
        .await
    }
}

#[cfg(test)]
pub(crate) mod tests;
