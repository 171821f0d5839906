//! The server side of an HTTP/1.1 connection (RFC 9112), which serves one request after the other.
//!
//! The implementation is our own, as is that of the client side (`services/src/transport/http1.rs`), and both
//! share their parts (`services/src/http1.rs`): a lenient library would need a second parser to check its
//! input, and both together cost more than a strict one.
//!
//! `http1/head.rs` parses the head of a request, `wire.rs` contains the connection and the request body,
//! `answer.rs` writes the response.

mod answer;
mod head;
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

use super::awaited::PhaseChange;
use super::stall::{CoarseStallTimer, StallTimer};
use super::{IDLE, LEAST_RATE, UNREAD};
use crate::client::ClientInfo;
use crate::refusal::RequestRefusal;
use crate::respond;
pub(super) use answer::{has_body, may_have_content};
use head::{RequestFraming, RequestHead};
use wire::{ReadAheadLimits, ResponseWriter, SharedConnection};

/// The timeout of a request's head after its first byte. A head usually arrives in one or two pieces; a
/// client that sends it byte by byte intends to occupy the connection.
const HEAD: Duration = Duration::from_secs(10);
/// The number of bytes read ahead while a request is being answered, and of its body while nothing reads
/// that, to detect that the client has disconnected.
const AHEAD: ReadAheadLimits = ReadAheadLimits { of_body: 8 << 10, of_rest: 64 << 10 };

/// A connection and its state across requests.
struct Http1Connection<S> {
    wire: SharedConnection<S>,
    client: ClientInfo,
    /// Ready once the gateway takes no more requests.
    ending: PhaseChange,
    patience: CoarseStallTimer,
    unread: StallTimer,
}

/// The next step on a connection after a response.
enum NextAction {
    Request,
    End,
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
    let mut conversation = Http1Connection { wire, client, ending, patience, unread };
    let mut turn = ByteTurn::default();
    loop {
        let (request, asked, length) = match conversation.next().await? {
            None => break,
            Some(Ok(RequestHead { request, asked, length })) => (request, asked, length),
            Some(Err(refusal)) => {
                conversation.refuse(&refusal).await?;
                break;
            }
        };
        let client = conversation.client.begin_request(asked.is_doubtful);
        let body = conversation.wire.body(asked.framing, asked.expects_continue, &client);
        let request = Request::from_parts(request, body);
        // Boxed, since otherwise an idle connection would reserve space for it.
        let answering = Box::pin(answer(request, client));
        let Some(response) = conversation.wait(answering).await? else { return Ok(()) };
        if is_prompt() {
            after_others().await;
        } else {
            // Several requests may have arrived together, with long heads.
            turn.consume_bytes(length).await;
        }
        match conversation.answer(response, &asked).await? {
            NextAction::Request => {}
            NextAction::End => break,
            NextAction::Tunnel(tunnel) => {
                let Some(client) = conversation.wire.take() else { break };
                tunnel.connect_client(client).await;
                return Ok(());
            }
        }
    }
    // A client that no longer reads would block the end of TLS as well.
    timeout(HEAD, conversation.wire.shutdown()).await.unwrap_or(Ok(()))
}

/// Yields once, so that tasks that are ready already run first. Requests that arrived together are then
/// answered one right after the other, and a client that waits for all of them wakes on the first response
/// and not on each: waking the client is a considerable part of the cost of a small response. HTTP/2 does not
/// need this, since its responses share a connection.
async fn after_others() {
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
        ending: PhaseChange::never(),
        patience,
        unread,
    };
    conversation.refuse(refusal).await?;
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
    async fn next(&mut self) -> io::Result<Option<Result<RequestHead, RequestRefusal>>> {
        self.wire.rest();
        self.patience.begin();
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Result<RequestHead, RequestRefusal>>>> {
        if let Poll::Ready(found) = self.wire.poll_head(context) {
            return Poll::Ready(found);
        }
        let is_over = if self.wire.is_between() {
            self.patience.is_over(IDLE, context) || self.ending.poll(context).is_ready()
        } else {
            self.patience.is_over_in(HEAD, context)
        };
        if is_over { Poll::Ready(Ok(None)) } else { Poll::Pending }
    }

    /// Waits for a response. Returns `None` if the client disconnects first.
    async fn wait<F>(&mut self, mut answering: Pin<Box<F>>) -> io::Result<Option<F::Output>>
    where
        F: Future,
    {
        poll_fn(|context| match answering.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(Ok(Some(answer))),
            Poll::Pending => self.poll_gone(context).map_ok(|()| None),
        })
        .await
    }

    /// Ready once the client has closed the connection.
    fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.wire.is_ahead_by_less_than(AHEAD, context) {
            if !ready!(self.wire.poll_more(context))? {
                return Poll::Ready(Ok(()));
            }
        }
        Poll::Pending
    }

    async fn answer<B>(&mut self, response: Response<B>, asked: &RequestFraming) -> io::Result<NextAction>
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
        let framing = answer::framing(&head, &body, asked);
        // Without `Connection: close`, a client may send its next request on a connection that is closing
        // (RFC 9112, 9.6).
        let stays = asked.stays
            && framing != BodyFraming::UntilClose
            && (!asked.has_body() || self.wire.may_stay())
            && !list_contains(&head.headers, &header::CONNECTION, b"close");
        let interim = if asked.expects_continue { self.wire.end_of_interim() } else { &[] };
        let text = answer::head(&head, framing, asked, stays, interim);
        let has_trailers = asked.takes_trailers && head.headers.contains_key(header::TRAILER);
        let trailers = if has_trailers { announced_trailers(&head.headers) } else { Box::default() };
        let sending = if has_body(head.status, asked.is_head) && framing != BodyFraming::Length(0) {
            SendingMessage::new(text, body, framing, trailers)
        } else {
            drop(body);
            SendingMessage::head_only(text)
        };
        self.send(sending).await?;
        Ok(match tunnel {
            Some(tunnel) => NextAction::Tunnel(tunnel),
            None if stays && (!asked.has_body() || self.wire.is_read()) => NextAction::Request,
            None => {
                // With ambiguous framing it is unknown whether there are unread bytes.
                if asked.is_doubtful || !self.wire.is_read() {
                    self.client.note_unread();
                }
                NextAction::End
            }
        })
    }

    async fn refuse(&mut self, refusal: &RequestRefusal) -> io::Result<()> {
        self.client.note_unread();
        let asked = RequestFraming::unknown();
        let (head, body) = respond::problem(refusal).into_parts();
        let framing = answer::framing(&head, &body, &asked);
        let text = answer::head(&head, framing, &asked, false, &[]);
        self.send(SendingMessage::new(text, body, framing, Box::default())).await
    }

    /// Writes the response, unless the client disconnects, reads nothing for too long, or reads too slowly
    /// overall.
    async fn send<B>(&mut self, mut sending: SendingMessage<B>) -> io::Result<()>
    where
        B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin,
    {
        // The time limit applies to each response.
        self.unread = StallTimer::default();
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
                self.unread.end();
            }
            let sent = sending.sent_bytes();
            if sending.is_blocked() && self.unread.is_over_for(sent, LEAST_RATE, UNREAD, context) {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            self.poll_gone(context).map(|gone| gone.and(Err(io::ErrorKind::UnexpectedEof.into())))
        })
        .await
    }
}

#[cfg(test)]
pub(crate) mod tests;
