//! The sending of a request (RFC 9112): the client's side of [`SendingMessage`].

use std::io::{self, Write};
use std::task::Context;

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE};
use http::{Method, Request, request};
use http_body::Body as _;

use super::super::{TransportError, UnsentRequest};
use super::ResettingSocket;
use crate::body::{BodyError, StreamedServiceBody, empty};
use crate::protocol::http1::{BodyFraming, SendingMessage, announced_trailers, write_field};

/// A request with its progress.
pub(super) struct OutgoingRequest {
    head: request::Parts,
    sending: SendingMessage<StreamedServiceBody>,
}

impl OutgoingRequest {
    /// Creates a request with this `Host` header.
    pub(super) fn new(request: Request<StreamedServiceBody>, host: &HeaderValue) -> Self {
        let (parts, body) = request.into_parts();
        let framing = match body.size_hint().exact() {
            _ if body.is_end_stream() => BodyFraming::Length(0),
            Some(length) => BodyFraming::Length(length),
            None => BodyFraming::Chunked,
        };
        // Bodies with a known length have no trailers.
        let trailers =
            if framing == BodyFraming::Chunked { announced_trailers(&parts.headers) } else { Box::default() };
        let sending = SendingMessage::new(format_head(&parts, host, framing), body, framing, trailers);
        Self { head: parts, sending }
    }

    pub(super) fn method(&self) -> &Method {
        &self.head.method
    }

    pub(super) fn is_done(&self) -> bool {
        self.sending.is_done()
    }

    /// Writes the available data. A connection that accepts no more data is not an error here: see
    /// [`Self::response_failure`].
    ///
    /// # Errors
    /// The error of the body.
    pub(super) fn write_available(
        &mut self,
        stream: &mut ResettingSocket,
        context: &mut Context<'_>,
    ) -> Result<(), BodyError> {
        self.sending.write_available(stream, context).map(drop)
    }

    /// Returns the cause of a missing response: a write error if there was one, since it is more specific.
    pub(super) fn response_failure(&mut self, error: io::Error) -> BodyError {
        self.sending.take_failure().unwrap_or(error).into()
    }

    /// Returns the remainder of the request after a failure.
    pub(super) fn into_unsent(self, error: BodyError) -> UnsentRequest {
        match self.sending.progress() {
            (_, true) => UnsentRequest::NotRetryable(TransportError::Broken(error)),
            (true, false) => UnsentRequest::NotRetryable(TransportError::Unreachable(error)),
            (false, false) => {
                let body = self.sending.into_body().unwrap_or_else(empty);
                let request = Request::from_parts(self.head, body);
                UnsentRequest::Retryable(Box::new(request), error)
            }
        }
    }
}

/// Formats the request line and the headers, including those of the connection (RFC 9112, sections 3.2.1 and
/// 6.3).
fn format_head(request: &request::Parts, host: &HeaderValue, framing: BodyFraming) -> Vec<u8> {
    let (method, headers) = (&request.method, &request.headers);
    let path = request.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut text = Vec::with_capacity(512);
    for part in [method.as_str(), " ", path, " HTTP/1.1\r\n"] {
        text.extend_from_slice(part.as_bytes());
    }
    write_field(&mut text, &HOST, host);
    let (mut upgrades, mut takes_trailers) = (false, false);
    for (name, value) in headers {
        (upgrades, takes_trailers) = (upgrades || name == UPGRADE, takes_trailers || name == TE);
        let is_framing = name == CONTENT_LENGTH || name == TRANSFER_ENCODING;
        let is_ours = is_framing || name == HOST || name == CONNECTION;
        if !is_ours {
            write_field(&mut text, name, value);
        }
    }
    // Headers of this connection only must be listed in `Connection` (RFC 9110, section 7.6.1).
    match (upgrades, takes_trailers) {
        (true, true) => text.extend_from_slice(b"connection: upgrade, te\r\n"),
        (true, false) => text.extend_from_slice(b"connection: upgrade\r\n"),
        (false, true) => text.extend_from_slice(b"connection: te\r\n"),
        (false, false) => {}
    }
    match framing {
        BodyFraming::Chunked | BodyFraming::UntilClose => {
            text.extend_from_slice(b"transfer-encoding: chunked\r\n")
        }
        // Methods without a defined body need no explicit length of 0 (RFC 9110, section 8.6).
        BodyFraming::Length(0) if !matches!(*method, Method::POST | Method::PUT | Method::PATCH) => {}
        BodyFraming::Length(length) => drop(write!(text, "content-length: {length}\r\n")),
    }
    text.extend_from_slice(b"\r\n");
    text
}
