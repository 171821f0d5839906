//! A request on its way out (RFC 9112): its head, then its body as it comes.

use std::io::{self, Cursor, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::buf::Chain;
use bytes::{Buf, Bytes};
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderValue, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, Method, Request};
use http_body::Body as _;
use tokio::io::AsyncWrite;
use tokio_util::io::poll_write_buf;

use super::super::connect::Stream;
use super::super::{TransportError, Unsent};
use crate::body::{Body, Error};

/// What no trailer may say (RFC 9110, 6.5.1).
const NOT_AFTERWARDS: [HeaderName; 6] = [AUTHORIZATION, CONTENT_LENGTH, HOST, TE, TRAILER, TRANSFER_ENCODING];

/// A request, and how far it has come.
pub(super) struct Outgoing {
    /// Whole until the first of its body is taken.
    request: Request<Body>,
    framing: Framing,
    stage: Stage,
    pending: Pending,
    /// Whether the system took a byte of it, or the body gave one.
    is_begun: bool,
    is_sent: bool,
}

/// What is to be written now: a text, data of the body, a text.
type Pending = Chain<Chain<Text, Bytes>, Text>;
type Text = Cursor<Vec<u8>>;

/// How the body is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    /// So much is left.
    Length(u64),
    Chunked,
}

enum Stage {
    /// The body has more.
    Body,
    /// The last of it is to be written.
    End,
    Done,
    /// The connection takes no more of it. The answer may come all the same.
    Failed(Option<io::Error>),
}

/// Why a body can't be sent.
#[derive(Debug, thiserror::Error)]
#[error("the body of the request is longer or shorter than it says")]
struct OtherLength;

impl Outgoing {
    /// A request for the target that is called so.
    pub(super) fn new(request: Request<Body>, host: &HeaderValue) -> Self {
        let is_empty = request.body().is_end_stream();
        let framing = match request.body().size_hint().exact() {
            _ if is_empty => Framing::Length(0),
            Some(length) => Framing::Length(length),
            None => Framing::Chunked,
        };
        let text = |text| Cursor::new(text);
        let pending = text(head(&request, host, framing)).chain(Bytes::new()).chain(text(Vec::new()));
        let stage = if is_empty { Stage::End } else { Stage::Body };
        Self { request, framing, stage, pending, is_begun: false, is_sent: false }
    }

    pub(super) fn method(&self) -> &Method {
        self.request.method()
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Done)
    }

    /// Writes what there is. That the connection takes no more is no error here: see [`Self::failure`].
    ///
    /// # Errors
    /// The body's own.
    pub(super) fn go_on(&mut self, stream: &mut Stream, context: &mut Context<'_>) -> Result<(), Error> {
        loop {
            if self.is_done() || matches!(self.stage, Stage::Failed(_)) {
                return Ok(());
            }
            let is_waiting = matches!(self.stage, Stage::Body) && self.fill(context)?.is_pending();
            match self.poll_write(stream, context) {
                Poll::Ready(Ok(())) if matches!(self.stage, Stage::End) => self.stage = Stage::Done,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => self.stage = Stage::Failed(Some(error)),
                Poll::Pending => return Ok(()),
            }
            if is_waiting {
                return Ok(());
            }
        }
    }

    /// Takes the next part of the body, once the one before is written.
    fn fill(&mut self, context: &mut Context<'_>) -> Result<Poll<()>, Error> {
        if self.pending.first_ref().last_ref().has_remaining() || self.pending.last_ref().has_remaining() {
            return Ok(Poll::Ready(()));
        }
        let Poll::Ready(frame) = Pin::new(self.request.body_mut()).poll_frame(context) else {
            return Ok(Poll::Pending);
        };
        self.is_begun = true;
        match frame.transpose()?.map(http_body::Frame::into_data) {
            Some(Ok(data)) => {
                self.put(data)?;
                if self.request.body().is_end_stream() {
                    self.end(None)?;
                }
            }
            Some(Err(frame)) => self.end(frame.into_trailers().ok())?,
            None => self.end(None)?,
        }
        Ok(Poll::Ready(()))
    }

    fn put(&mut self, data: Bytes) -> Result<(), OtherLength> {
        let length = data.len();
        match &mut self.framing {
            Framing::Length(left) => *left = left.checked_sub(length as u64).ok_or(OtherLength)?,
            // An empty chunk would be the last one.
            Framing::Chunked if length == 0 => {}
            Framing::Chunked => {
                let _ = write!(self.before(), "{length:x}\r\n");
                self.after().extend_from_slice(b"\r\n");
            }
        }
        *self.pending.first_mut().last_mut() = data;
        Ok(())
    }

    fn end(&mut self, trailers: Option<HeaderMap>) -> Result<(), OtherLength> {
        self.stage = Stage::End;
        match self.framing {
            Framing::Length(0) => Ok(()),
            Framing::Length(_) => Err(OtherLength),
            Framing::Chunked => {
                let trailers = trailers.map(|trailers| announced(trailers, self.request.headers()));
                let after = self.after();
                after.extend_from_slice(b"0\r\n");
                trailers.iter().flatten().for_each(|(name, value)| put_header(after, name, value));
                after.extend_from_slice(b"\r\n");
                Ok(())
            }
        }
    }

    /// The text before the data.
    fn before(&mut self) -> &mut Vec<u8> {
        unwritten(self.pending.first_mut().first_mut())
    }

    /// The text after it.
    fn after(&mut self) -> &mut Vec<u8> {
        unwritten(self.pending.last_mut())
    }

    fn poll_write(&mut self, stream: &mut Stream, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut stream = Pin::new(stream);
        while self.pending.has_remaining() {
            let first = self.pending.chunk();
            let written = if first.len() == self.pending.remaining() {
                // One piece has a system call of its own, which is cheaper.
                let written = ready!(stream.as_mut().poll_write(context, first))?;
                self.pending.advance(written);
                written
            } else {
                ready!(poll_write_buf(stream.as_mut(), context, &mut self.pending))?
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.is_sent = true;
        }
        stream.poll_flush(context)
    }

    /// Why there is no answer: that the request could not be written says more than what followed.
    pub(super) fn failure(&mut self, error: io::Error) -> Error {
        match &mut self.stage {
            Stage::Failed(reason) => reason.take().unwrap_or(error).into(),
            _ => error.into(),
        }
    }

    /// What is left of it after a failure.
    pub(super) fn unsent(self, error: Error) -> Unsent {
        match (self.is_sent, self.is_begun) {
            (true, _) => Unsent::Lost(TransportError::Broken(error)),
            (false, true) => Unsent::Lost(TransportError::Unreachable(error)),
            (false, false) => Unsent::Whole(Box::new(self.request), error),
        }
    }
}

/// A text that can be added to, without what was written of it.
fn unwritten(text: &mut Text) -> &mut Vec<u8> {
    if !text.has_remaining() {
        text.set_position(0);
        text.get_mut().clear();
    }
    text.get_mut()
}

/// The request line and the headers, those of this connection included (RFC 9112, 3.2.1, and 6.3).
fn head(request: &Request<Body>, host: &HeaderValue, framing: Framing) -> Vec<u8> {
    let (method, headers) = (request.method(), request.headers());
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let mut text = Vec::with_capacity(512);
    for part in [method.as_str(), " ", path, " HTTP/1.1\r\n"] {
        text.extend_from_slice(part.as_bytes());
    }
    put_header(&mut text, &HOST, host);
    for (name, value) in headers {
        if ![HOST, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING].contains(name) {
            put_header(&mut text, name, value);
        }
    }
    // What is for this connection only is named (RFC 9110, 7.6.1).
    match (headers.contains_key(UPGRADE), headers.contains_key(TE)) {
        (true, true) => text.extend_from_slice(b"connection: upgrade, te\r\n"),
        (true, false) => text.extend_from_slice(b"connection: upgrade\r\n"),
        (false, true) => text.extend_from_slice(b"connection: te\r\n"),
        (false, false) => {}
    }
    match framing {
        Framing::Chunked => text.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        // Who wants no body needs not be told that there is none (RFC 9110, 8.6).
        Framing::Length(0) if !matches!(*method, Method::POST | Method::PUT | Method::PATCH) => {}
        Framing::Length(length) => drop(write!(text, "content-length: {length}\r\n")),
    }
    text.extend_from_slice(b"\r\n");
    text
}

fn put_header(text: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
        text.extend_from_slice(part);
    }
}

/// Those trailers that the head announces: a recipient may have to decide by it whether to wait for them.
fn announced(mut trailers: HeaderMap, headers: &HeaderMap) -> HeaderMap {
    let names: Vec<HeaderName> = headers
        .get_all(TRAILER)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .collect();
    let others: Vec<HeaderName> = trailers
        .keys()
        .filter(|name| !names.contains(name) || NOT_AFTERWARDS.contains(name))
        .cloned()
        .collect();
    others.iter().for_each(|name| drop(trailers.remove(name)));
    trailers
}
