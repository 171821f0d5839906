//! A request on its way out (RFC 9112): the client's side of [`Sending`].

use std::io::{self, Write};
use std::task::Context;

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE};
use http::{Method, Request, request};
use http_body::Body as _;

use super::super::{TransportError, Unsent};
use super::Socket;
use crate::body::{Body, Error, empty};
use crate::http1::{Framing, Sending, announced, put};

/// A request, and how far it has come.
pub(super) struct Outgoing {
    head: request::Parts,
    sending: Sending<Body>,
}

impl Outgoing {
    /// A request for the target that is called so.
    pub(super) fn new(request: Request<Body>, host: &HeaderValue) -> Self {
        let (parts, body) = request.into_parts();
        let framing = match body.size_hint().exact() {
            _ if body.is_end_stream() => Framing::Length(0),
            Some(length) => Framing::Length(length),
            None => Framing::Chunked,
        };
        // Nothing follows a body that has a length.
        let trailers = if framing == Framing::Chunked { announced(&parts.headers) } else { Box::default() };
        let sending = Sending::new(head(&parts, host, framing), body, framing, trailers);
        Self { head: parts, sending }
    }

    pub(super) fn method(&self) -> &Method {
        &self.head.method
    }

    pub(super) fn is_done(&self) -> bool {
        self.sending.is_done()
    }

    /// Writes what there is. That the connection takes no more is no error here: see [`Self::failure`].
    ///
    /// # Errors
    /// The body's own.
    pub(super) fn go_on(&mut self, stream: &mut Socket, context: &mut Context<'_>) -> Result<(), Error> {
        self.sending.go_on(stream, context).map(drop)
    }

    /// Why there is no answer: that the request could not be written says more than what followed.
    pub(super) fn failure(&mut self, error: io::Error) -> Error {
        self.sending.failure().unwrap_or(error).into()
    }

    /// What is left of it after a failure.
    pub(super) fn unsent(self, error: Error) -> Unsent {
        match self.sending.progress() {
            (_, true) => Unsent::Lost(TransportError::Broken(error)),
            (true, false) => Unsent::Lost(TransportError::Unreachable(error)),
            (false, false) => {
                let body = self.sending.into_body().unwrap_or_else(empty);
                let request = Request::from_parts(self.head, body);
                Unsent::Whole(Box::new(request), error)
            }
        }
    }
}

/// The request line and the headers, those of this connection included (RFC 9112, 3.2.1, and 6.3).
fn head(request: &request::Parts, host: &HeaderValue, framing: Framing) -> Vec<u8> {
    let (method, headers) = (&request.method, &request.headers);
    let path = request.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut text = Vec::with_capacity(512);
    for part in [method.as_str(), " ", path, " HTTP/1.1\r\n"] {
        text.extend_from_slice(part.as_bytes());
    }
    put(&mut text, &HOST, host);
    let (mut upgrades, mut takes_trailers) = (false, false);
    for (name, value) in headers {
        (upgrades, takes_trailers) = (upgrades || name == UPGRADE, takes_trailers || name == TE);
        let is_framing = name == CONTENT_LENGTH || name == TRANSFER_ENCODING;
        let is_ours = is_framing || name == HOST || name == CONNECTION;
        if !is_ours {
            put(&mut text, name, value);
        }
    }
    // What is for this connection only is named (RFC 9110, 7.6.1).
    match (upgrades, takes_trailers) {
        (true, true) => text.extend_from_slice(b"connection: upgrade, te\r\n"),
        (true, false) => text.extend_from_slice(b"connection: upgrade\r\n"),
        (false, true) => text.extend_from_slice(b"connection: te\r\n"),
        (false, false) => {}
    }
    match framing {
        Framing::Chunked | Framing::UntilClose => text.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        // Who wants no body needs not be told that there is none (RFC 9110, 8.6).
        Framing::Length(0) if !matches!(*method, Method::POST | Method::PUT | Method::PATCH) => {}
        Framing::Length(length) => drop(write!(text, "content-length: {length}\r\n")),
    }
    text.extend_from_slice(b"\r\n");
    text
}
