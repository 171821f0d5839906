//! A connection that speaks HTTP/1.1 (RFC 9112), and one request on it.
//!
//! No task of its own drives it: while a request waits for its answer, the request does; while the
//! answer's body arrives, whoever reads it. Nobody has to be woken through a channel: an exchange takes 8,400
//! instructions, and took 14,700 with hyper's client, which is made to be driven by a task. The connection is kept
//! as soon as the answer is there to its end, which for a small one is at once. A body that is dropped
//! before closes the connection, and so does whatever comes after an answer.
//!
//! `http1/request.rs` writes a request, `response.rs` reads the head of its answer, `body.rs` the rest; what the
//! gateway's own server does alike stands in [`crate::http1`].

mod body;
mod request;
mod response;
mod socket;
#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, Waker, ready};

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::task::unconstrained;

use super::connect::Stream;
use super::{Endpoint, Unsent};
use crate::body::{Body, Error, full};
use crate::http1::{Decoder, Framing, Input};
use crate::upgrade::Switched;
use body::Arriving;
use request::Outgoing;
use response::Head;
pub(crate) use socket::Socket;

/// A connection between two requests, or on its first. Dropped, it is closed, and in the middle of an exchange reset.
pub(crate) struct Connection(Box<Parts>);

struct Parts {
    stream: Socket,
    input: Input,
}

/// Why a connection can't take a request.
#[derive(Debug, thiserror::Error)]
#[error("the connection was closed, or something came that nobody had asked for")]
struct Gone;

impl Connection {
    pub(crate) fn new(stream: Stream) -> Self {
        Self(Box::new(Parts { stream: Socket::new(stream), input: Input::default() }))
    }

    /// Sends a request and waits for the head of its answer. The connection goes home by itself.
    pub(crate) async fn send(
        mut self,
        request: Request<Body>,
        home: Endpoint,
    ) -> Result<Response<Body>, Unsent> {
        if !self.is_idle() {
            return Err(Unsent::Whole(Box::new(request), Gone.into()));
        }
        self.0.stream.may_close(false);
        let host = home.origin.host(request.uri());
        let mut outgoing = Outgoing::new(request, &host);
        match poll_fn(|context| self.poll_answer(&mut outgoing, context)).await {
            Ok(head) => Ok(self.hand_over(head, outgoing, home)),
            Err(error) => Err(outgoing.unsent(error)),
        }
    }

    /// Lets the request go on until the answer's head is there.
    fn poll_answer(
        &mut self,
        outgoing: &mut Outgoing,
        context: &mut Context<'_>,
    ) -> Poll<Result<Head, Error>> {
        let Parts { stream, input } = &mut *self.0;
        outgoing.go_on(stream, context)?;
        loop {
            match response::read(input, outgoing.method())? {
                // What comes before the answer (RFC 9110, 15.2).
                Some(head) if head.is_interim() => {}
                Some(head) => {
                    if let Framing::Length(length) = head.framing {
                        input.fill(length, stream, context);
                    }
                    return Poll::Ready(Ok(head));
                }
                None => match ready!(input.poll_more(stream, context)) {
                    Ok(true) => {}
                    // Why it could not be written says more than that there is no answer.
                    Ok(false) => {
                        return Poll::Ready(Err(outgoing.failure(io::ErrorKind::UnexpectedEof.into())));
                    }
                    Err(error) => return Poll::Ready(Err(outgoing.failure(error))),
                },
            }
        }
    }

    /// Gives the answer out, and the connection back or along with it.
    fn hand_over(mut self, head: Head, outgoing: Outgoing, home: Endpoint) -> Response<Body> {
        let Head { mut response, framing, is_last } = head;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let Parts { mut stream, mut input } = *self.0;
            stream.may_close(true);
            response.extensions_mut().insert(Switched::new(stream, input.take_all()));
            return response.map(|()| crate::body::empty());
        }
        let may_stay = !is_last && framing != Framing::UntilClose;
        if let Framing::Length(length) = framing
            && let Some(bytes) = self.0.input.take_exactly(length)
        {
            match (outgoing.is_done(), may_stay) {
                (true, true) => self.keep(home),
                (true, false) => self.rest(),
                (false, _) => {}
            }
            return response.map(|()| full(bytes));
        }
        let body = Arriving::new(Decoder::new(framing), self, outgoing, may_stay.then_some(home));
        response.map(|()| body.boxed_unsync())
    }

    /// Sends it home, unless something came that nobody has asked for.
    fn keep(mut self, home: Endpoint) {
        if self.0.input.is_empty() {
            self.0.input.shrink();
            home.origin.pool.keep(home.address, self);
        }
    }

    /// No exchange is under way: dropped, it is closed.
    pub(crate) fn rest(&mut self) {
        self.0.stream.may_close(true);
    }

    /// Whether the peer has said nothing since the last answer. From here on nobody is woken when it
    /// does: the next request sees it, or the pool's sweep.
    pub(crate) fn is_idle(&mut self) -> bool {
        let Parts { stream, input } = &mut *self.0;
        let is_empty = input.is_empty();
        // A task that has done much already is told to wait, whatever the peer has said.
        let more = pin!(unconstrained(poll_fn(|context| input.poll_more(stream, context))));
        is_empty && more.poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }
}
