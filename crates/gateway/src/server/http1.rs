//! A connection of HTTP/1.1 (RFC 9112), as the server of it: one request after the other.
//!
//! It is our own as the client towards services is (`services/src/transport/http1.rs`), of the same parts
//! (`services/src/http1.rs`): a library that forgives what it reads has to be watched by a second reader, and
//! the two of them cost more than one that is strict.
//!
//! `http1/head.rs` reads a request's head, `wire.rs` has the connection and the body that comes on it,
//! `answer.rs` writes.

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
use services::body::Error;
use services::headers::lists;
use services::http1::{Framing, Sending, announced};
use services::{Body, Tunnel};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::awaited::Awaited;
use super::stall::{Patience, Stall};
use super::{IDLE, LEAST_RATE, UNREAD};
use crate::client::Client;
use crate::refusal::Refusal;
use crate::respond;
pub(super) use answer::{has_body, may_have_content};
use head::{Asked, Head};
use wire::{Ahead, Shared, Writer};

/// How long the head of a request may take once it has begun. One that is on its way comes in one piece or
/// two; who sends it byte by byte wants to hold the connection.
const HEAD: Duration = Duration::from_secs(10);
/// How much is read ahead of a request that is being answered, and of its body while nobody takes that, to see
/// whether the client is still there.
const AHEAD: Ahead = Ahead { of_body: 8 << 10, of_rest: 64 << 10 };

/// A connection, request after request.
struct Conversation<S> {
    wire: Shared<S>,
    client: Client,
    /// That the gateway takes no more requests.
    ending: Awaited,
    patience: Patience,
    unread: Stall,
}

/// What becomes of a connection after an answer.
enum Next {
    Request,
    End,
    Tunnel(Tunnel),
}

/// Serves a connection to its end. What was read of it before comes first. While `is_prompt`, answers to what came
/// together leave together.
pub(super) async fn serve<S, F, B>(
    stream: S,
    begun: &[u8],
    client: Client,
    ending: Awaited,
    mut answer: impl FnMut(Request<Body>, Client) -> F,
    is_prompt: impl Fn() -> bool,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = Response<B>>,
    B: http_body::Body<Data = Bytes, Error = Error> + Unpin,
{
    let wire = Shared::new(stream, begun);
    let (patience, unread) = (Patience::default(), Stall::default());
    let mut conversation = Conversation { wire, client, ending, patience, unread };
    loop {
        let (request, asked) = match conversation.next().await? {
            None => break,
            Some(Ok(Head { request, asked })) => (request, asked),
            Some(Err(refusal)) => {
                conversation.refuse(&refusal).await?;
                break;
            }
        };
        let body = conversation.wire.body(asked.framing, asked.expects_continue);
        let client = conversation.client.begin_request(asked.is_doubtful);
        let request = Request::from_parts(request, body);
        // Boxed, since an idle connection keeps the room for it otherwise.
        let answering = Box::pin(answer(request, client));
        let Some(response) = conversation.wait(answering).await? else { return Ok(()) };
        if is_prompt() {
            after_others().await;
        }
        match conversation.answer(response, &asked).await? {
            Next::Request => {}
            Next::End => break,
            Next::Tunnel(tunnel) => {
                let Some(client) = conversation.wire.take() else { break };
                tunnel.join(client).await;
                return Ok(());
            }
        }
    }
    // A client that reads nothing any more does not take the end of TLS either.
    timeout(HEAD, conversation.wire.shutdown()).await.unwrap_or(Ok(()))
}

/// Lets those go first who are ready already. Whose requests came together are then answered one right after the other, and a
/// client that waits for all of them is woken by the first answer and not by each: of what a small answer costs the
/// gateway, waking its client is a good part. HTTP/2 does that by itself, since its answers share a connection.
async fn after_others() {
    let mut was_here = false;
    poll_fn(|context| {
        if std::mem::replace(&mut was_here, true) {
            return Poll::Ready(());
        }
        // Whoever wakes itself stands at the end of its thread's queue.
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Refuses whatever comes on a connection.
pub(super) async fn refuse<S>(stream: S, client: Client, refusal: &Refusal) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (patience, unread) = (Patience::default(), Stall::default());
    let mut conversation =
        Conversation { wire: Shared::new(stream, &[]), client, ending: Awaited::never(), patience, unread };
    conversation.refuse(refusal).await?;
    conversation.wire.shutdown().await
}

/// Whoever still has a body of it finds it broken off.
impl<S> Drop for Conversation<S> {
    fn drop(&mut self) {
        self.wire.close();
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Conversation<S> {
    /// The head of the next request, or why what came is none; `None` where no other comes.
    async fn next(&mut self) -> io::Result<Option<Result<Head, Refusal>>> {
        self.wire.rest();
        self.patience.begin();
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Result<Head, Refusal>>>> {
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

    /// Waits for an answer; `None` if the client is gone before.
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

    async fn answer<B>(&mut self, response: Response<B>, asked: &Asked) -> io::Result<Next>
    where
        B: http_body::Body<Data = Bytes, Error = Error> + Unpin,
    {
        let (mut head, body) = response.into_parts();
        let tunnel = head.extensions.remove::<Tunnel>();
        let tunnel = tunnel.filter(|_| head.status == StatusCode::SWITCHING_PROTOCOLS);
        // What is no last word would make the next answer this request's.
        if head.status.is_informational() && tunnel.is_none() {
            head.status = StatusCode::BAD_GATEWAY;
        }
        let framing = answer::framing(&head, &body, asked);
        // A client that is not told sends its next request into a connection that ends (RFC 9112, 9.6).
        let stays = asked.stays
            && framing != Framing::UntilClose
            && (!asked.has_body() || self.wire.may_stay())
            && !lists(&head.headers, &header::CONNECTION, b"close");
        let interim = if asked.expects_continue { self.wire.end_of_interim() } else { &[] };
        let text = answer::head(&head, framing, asked, stays, interim);
        let has_trailers = asked.takes_trailers && head.headers.contains_key(header::TRAILER);
        let trailers = if has_trailers { announced(&head.headers) } else { Box::default() };
        let sending = if has_body(head.status, asked.is_head) && framing != Framing::Length(0) {
            Sending::new(text, body, framing, trailers)
        } else {
            drop(body);
            Sending::head_only(text)
        };
        self.send(sending).await?;
        Ok(match tunnel {
            Some(tunnel) => Next::Tunnel(tunnel),
            None if stays && (!asked.has_body() || self.wire.is_read()) => Next::Request,
            None => {
                // Of what is doubtful, nobody knows what else was sent.
                if asked.is_doubtful || !self.wire.is_read() {
                    self.client.note_unread();
                }
                Next::End
            }
        })
    }

    async fn refuse(&mut self, refusal: &Refusal) -> io::Result<()> {
        self.client.note_unread();
        let asked = Asked::unknown();
        let (head, body) = respond::problem(refusal).into_parts();
        let framing = answer::framing(&head, &body, &asked);
        let text = answer::head(&head, framing, &asked, false, &[]);
        self.send(Sending::new(text, body, framing, Box::default())).await
    }

    /// Writes all of it, unless the client leaves, or reads nothing for too long, or too little over all.
    async fn send<B>(&mut self, mut sending: Sending<B>) -> io::Result<()>
    where
        B: http_body::Body<Data = Bytes, Error = Error> + Unpin,
    {
        // How long the client may take counts for each answer.
        self.unread = Stall::default();
        poll_fn(|context| {
            let has_written = sending.go_on(&mut Writer(&self.wire), context).map_err(io::Error::other)?;
            if sending.is_done() {
                return Poll::Ready(Ok(()));
            }
            if let Some(error) = sending.failure() {
                return Poll::Ready(Err(error));
            }
            if has_written || !sending.is_blocked() {
                self.unread.end();
            }
            let sent = sending.sent();
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
