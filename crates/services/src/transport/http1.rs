//! A connection that speaks HTTP/1.1, and one request on it.
//!
//! No task of its own drives it: while a request waits for its answer, the request does; while the
//! answer's body arrives, whoever reads it. That saves two wake-ups through channels for each request. The
//! connection is kept as soon as the answer is there to its end, which for a small one is at once. A body
//! that is dropped before closes the connection, and so does whatever comes after an answer.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_util::FutureExt;
use http::header::{CONNECTION, HOST, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE};
use http::uri::{PathAndQuery, Uri};
use http::{Method, Request, Response};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{Connection as Driver, SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::task::unconstrained;

use super::stream::{Stream, Written};
use super::{Endpoint, Origin, TransportError, Unsent};
use crate::body::{Body, Error};

/// A connection between two requests, or on its first. Dropped, it is closed.
pub(crate) struct Connection(Box<Parts>);

struct Parts {
    sender: SendRequest<Body>,
    /// `None` once it has ended, well or not.
    driver: Option<Driver<TokioIo<Stream>, Body>>,
    written: Written,
}

/// The body of an answer that was not there at once, with the connection that it arrives on.
struct Arriving {
    body: Incoming,
    connection: Option<Connection>,
    home: Endpoint,
}

impl Connection {
    pub(crate) async fn new(stream: Stream) -> hyper::Result<Self> {
        let written = stream.written();
        let (sender, driver) = handshake(TokioIo::new(stream)).await?;
        Ok(Self(Box::new(Parts { sender, driver: Some(driver), written })))
    }

    /// Sends a request and waits for the head of its answer. The connection goes home by itself.
    pub(crate) async fn send(
        mut self,
        request: Request<Body>,
        home: Endpoint,
    ) -> Result<Response<Body>, Unsent> {
        let request = in_origin_form(request, &home.origin);
        if request.headers().contains_key(UPGRADE) {
            return self.send_switching(request, &home.origin).boxed().await;
        }
        let before = self.0.written.bytes();
        let answer = self.exchange(request).await;
        match answer {
            Ok(response) => Ok(self.hand_over(response, home)),
            Err(error) => Err(unsent(error, self.0.written.bytes() > before, &home.origin)),
        }
    }

    /// Drives the connection until the answer's head is there.
    async fn exchange(
        &mut self,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Body>>> {
        let Parts { sender, driver, .. } = &mut *self.0;
        // The answer comes through a channel whose other end is the driver, which is polled just before:
        // nobody has to be woken for it, and the scheduler's budget must not hide it.
        let mut answer = pin!(unconstrained(sender.try_send_request(request)));
        poll_fn(|context| {
            drive(driver, context);
            answer.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        })
        .await
    }

    /// Gives the answer out, and the connection back or along with it.
    fn hand_over(mut self, response: Response<Incoming>, home: Endpoint) -> Response<Body> {
        if self.0.driver.is_none() {
            return response.map(boxed);
        }
        if self.is_idle() {
            home.origin.pool.keep(home.address, self);
            return response.map(boxed);
        }
        response.map(|body| Arriving { body, connection: Some(self), home }.boxed_unsync())
    }

    /// Whether the last exchange is over on both sides and the peer has said nothing since. From here on
    /// nobody is woken when it does: the next request sees it, or the pool's sweep.
    pub(crate) fn is_idle(&mut self) -> bool {
        self.0.sender.is_ready() && {
            drive(&mut self.0.driver, &mut Context::from_waker(Waker::noop()));
            self.0.driver.is_some()
        }
    }

    /// Sends a request that may turn the connection into something else (RFC 9110, 7.8). That outlives
    /// the request, so a task drives it; the connection is not kept, whatever the answer.
    async fn send_switching(
        mut self,
        request: Request<Body>,
        origin: &Origin,
    ) -> Result<Response<Body>, Unsent> {
        let before = self.0.written.bytes();
        if let Some(driver) = self.0.driver.take() {
            tokio::spawn(driver.with_upgrades());
        }
        let answer = self.0.sender.try_send_request(request).await;
        answer
            .map(|response| response.map(boxed))
            .map_err(|error| unsent(error, self.0.written.bytes() > before, origin))
    }
}

/// Lets a connection go on. One that has ended is dropped, which closes it and gives back what it was
/// not able to begin.
fn drive(driver: &mut Option<Driver<TokioIo<Stream>, Body>>, context: &mut Context<'_>) {
    if driver.as_mut().is_some_and(|driver| driver.poll_unpin(context).is_ready()) {
        *driver = None;
    }
}

fn boxed(body: Incoming) -> Body {
    body.map_err(Error::from).boxed_unsync()
}

/// What a failure means for the request. The connection says by itself that it had not begun with it; and
/// what was begun, but of which the system took no byte, was not sent either.
fn unsent(mut error: TrySendError<Request<Body>>, sent: bool, origin: &Origin) -> Unsent {
    match error.take_message() {
        Some(request) => {
            Unsent::Whole(Box::new(in_absolute_form(request, origin)), error.into_error().into())
        }
        None if sent => Unsent::Lost(TransportError::Broken(error.into_error().into())),
        None => Unsent::Lost(TransportError::Unreachable(error.into_error().into())),
    }
}

/// The request as HTTP/1.1 writes it: path and query only, and the target in `Host` (RFC 9112, 3.2.1).
fn in_origin_form(mut request: Request<Body>, origin: &Origin) -> Request<Body> {
    let path = std::mem::take(request.uri_mut()).into_parts().path_and_query;
    *request.uri_mut() = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    request.headers_mut().insert(HOST, origin.host.clone());
    // What is for this connection only is named (RFC 9110, 7.6.1).
    let (switches, trailers) = (request.headers().contains_key(UPGRADE), request.headers().contains_key(TE));
    if switches || trailers {
        let options = match (switches, trailers) {
            (true, true) => "upgrade, te",
            (true, false) => "upgrade",
            _ => "te",
        };
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static(options));
    }
    // The library takes a GET of unknown length for one without a body.
    if matches!(*request.method(), Method::GET | Method::HEAD)
        && !request.body().is_end_stream()
        && request.body().size_hint().exact().is_none()
    {
        request.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    request
}

/// Undoes [`in_origin_form`], for another connection.
fn in_absolute_form(mut request: Request<Body>, origin: &Origin) -> Request<Body> {
    for name in [HOST, CONNECTION, TRANSFER_ENCODING] {
        request.headers_mut().remove(name);
    }
    let path = std::mem::take(request.uri_mut()).into_parts().path_and_query;
    if let Ok(uri) = origin.absolute(path.unwrap_or_else(|| PathAndQuery::from_static("/"))) {
        *request.uri_mut() = uri;
    }
    request
}

impl Arriving {
    /// Lets the connection go on, and sends it home once the answer is there to its end.
    fn drive(&mut self, context: &mut Context<'_>) {
        let Some(connection) = &mut self.connection else { return };
        drive(&mut connection.0.driver, context);
        if connection.0.driver.is_none() {
            self.connection = None;
        } else if connection.is_idle() {
            let home = &self.home;
            self.connection.take().into_iter().for_each(|idle| home.origin.pool.keep(home.address, idle));
        }
    }
}

impl http_body::Body for Arriving {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        // Only the driver fills the body, and it runs in here.
        let mut unseen = Context::from_waker(Waker::noop());
        let mut frame = Pin::new(&mut self.body).poll_frame(&mut unseen);
        if frame.is_pending() {
            self.drive(context);
            frame = Pin::new(&mut self.body).poll_frame(&mut unseen);
        }
        if frame.is_ready() {
            // Whoever reads may know the length and not ask again: the end is looked for with the last part.
            self.drive(context);
        }
        frame.map_err(Error::from)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
