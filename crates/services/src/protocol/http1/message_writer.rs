//! Sending of a message (RFC 9112): its head, followed by its body as it arrives.

use std::io::{self, Cursor, Write};
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::buf::Chain;
use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderName};
use http_body::Body;
use tokio::io::AsyncWrite;
use tokio_util::io::poll_write_buf;

use super::decoder::BodyFraming;
use super::fields::write_field;
use crate::body::BodyError;

/// The size in bytes up to which data is copied, to be written in one piece: a second write costs more than
/// copying.
const MAX_COPIED_BYTES: usize = 2 << 10;

/// A message with its progress.
#[derive(Debug)]
pub struct SendingMessage<B> {
    /// Complete until the first frame is taken, and dropped with the last frame. It is dropped before that
    /// frame is written, so that accounting attached to the body is complete before the peer has read it.
    body: Option<B>,
    framing: BodyFraming,
    /// The permitted trailers.
    trailers: Box<[HeaderName]>,
    stage: SendingStage,
    pending: PendingData,
    is_begun: bool,
    /// The number of bytes that the connection has accepted.
    sent_bytes: u64,
    /// Whether the connection did not accept, or not flush, the last data: with TLS it buffers more than the
    /// system accepts.
    is_write_pending: bool,
}

/// The data to be written now: a text, data of the body, a text.
type PendingData = Chain<Chain<QueuedText, Bytes>, QueuedText>;
type QueuedText = Cursor<Vec<u8>>;

#[derive(Debug)]
enum SendingStage {
    /// The body has more data.
    Body,
    /// The last data is to be written.
    End,
    Done,
    /// The connection accepts no more data.
    Failed(Option<io::Error>),
}

/// The error for a body whose length differs from its head.
#[derive(Debug, thiserror::Error)]
#[error("the length of the body differs from its head")]
struct BodyLengthMismatch;

impl<B: Body<Data = Bytes, Error = BodyError> + Unpin> SendingMessage<B> {
    /// Creates a message with this head, body and framing, and these permitted trailers.
    #[must_use]
    pub fn new(head: Vec<u8>, body: B, framing: BodyFraming, trailers: Box<[HeaderName]>) -> Self {
        let pending = Cursor::new(head).chain(Bytes::new()).chain(Cursor::new(Vec::new()));
        let stage = if framing == BodyFraming::Length(0) { SendingStage::End } else { SendingStage::Body };
        Self {
            body: Some(body),
            framing,
            trailers,
            stage,
            pending,
            is_begun: false,
            sent_bytes: 0,
            is_write_pending: false,
        }
    }

    /// Creates a message without a body.
    #[must_use]
    pub fn head_only(head: Vec<u8>) -> Self {
        let pending = Cursor::new(head).chain(Bytes::new()).chain(Cursor::new(Vec::new()));
        let (framing, trailers, stage) = (BodyFraming::Length(0), Box::default(), SendingStage::End);
        Self {
            body: None,
            framing,
            trailers,
            stage,
            pending,
            is_begun: false,
            sent_bytes: 0,
            is_write_pending: false,
        }
    }

    /// Whether the message is written completely.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self.stage, SendingStage::Done)
    }

    /// Whether the connection has yet to accept the pending data.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.is_write_pending
    }

    /// Whether the body has produced data, and whether the system has accepted data.
    #[must_use]
    pub fn progress(&self) -> (bool, bool) {
        (self.is_begun, self.sent_bytes > 0)
    }

    /// The number of bytes that the connection has accepted, including the head.
    #[must_use]
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// Takes the error of the connection, if writing failed.
    pub fn take_failure(&mut self) -> Option<io::Error> {
        match &mut self.stage {
            SendingStage::Failed(reason) => reason.take(),
            _ => None,
        }
    }

    /// Returns the body, if no data was taken from it.
    #[must_use]
    pub fn into_body(self) -> Option<B> {
        self.body.filter(|_| !self.is_begun)
    }

    /// Writes the available data, and returns whether anything was written. A connection that accepts no more
    /// data is not an error here: see [`Self::take_failure`].
    ///
    /// # Errors
    /// The error of the body.
    pub fn write_available<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Result<bool, BodyError> {
        let mut has_written = false;
        loop {
            if matches!(self.stage, SendingStage::Done | SendingStage::Failed(_)) {
                return Ok(has_written);
            }
            let is_waiting =
                matches!(self.stage, SendingStage::Body) && self.fill_pending(context)?.is_pending();
            let written = self.poll_write(stream, context, &mut has_written);
            self.is_write_pending = written.is_pending();
            match written {
                Poll::Ready(Ok(())) if matches!(self.stage, SendingStage::End) => {
                    self.stage = SendingStage::Done
                }
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => self.stage = SendingStage::Failed(Some(error)),
                Poll::Pending => return Ok(has_written),
            }
            if is_waiting {
                return Ok(has_written);
            }
        }
    }

    /// Takes the next part of the body, once the previous one is written.
    fn fill_pending(&mut self, context: &mut Context<'_>) -> Result<Poll<()>, BodyError> {
        if self.pending.first_ref().last_ref().has_remaining() || self.pending.last_ref().has_remaining() {
            return Ok(Poll::Ready(()));
        }
        let Some(body) = &mut self.body else { return Ok(Poll::Ready(())) };
        let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(context) else {
            return Ok(Poll::Pending);
        };
        let is_last = body.is_end_stream();
        self.is_begun = true;
        match frame.transpose()?.map(http_body::Frame::into_data) {
            Some(Ok(data)) => {
                self.put_data(data)?;
                if is_last {
                    self.put_end(None)?;
                }
            }
            Some(Err(frame)) => self.put_end(frame.into_trailers().ok())?,
            None => self.put_end(None)?,
        }
        Ok(Poll::Ready(()))
    }

    fn put_data(&mut self, data: Bytes) -> Result<(), BodyLengthMismatch> {
        let length = data.len();
        // An empty chunk would mark the end of the body.
        let is_chunk = self.framing == BodyFraming::Chunked && length > 0;
        if let BodyFraming::Length(left) = &mut self.framing {
            *left = left.checked_sub(length as u64).ok_or(BodyLengthMismatch)?;
        }
        let before = writable_text(self.pending.first_mut().first_mut());
        if is_chunk {
            let _ = write!(before, "{length:x}\r\n");
        }
        if before.len() + length <= MAX_COPIED_BYTES {
            before.extend_from_slice(&data);
        } else {
            *self.pending.first_mut().last_mut() = data;
        }
        if is_chunk {
            self.last_text().extend_from_slice(b"\r\n");
        }
        Ok(())
    }

    fn put_end(&mut self, trailers: Option<HeaderMap>) -> Result<(), BodyLengthMismatch> {
        (self.stage, self.body) = (SendingStage::End, None);
        match self.framing {
            BodyFraming::Length(0) | BodyFraming::UntilClose => Ok(()),
            BodyFraming::Length(_) => Err(BodyLengthMismatch),
            BodyFraming::Chunked => {
                let names = mem::take(&mut self.trailers);
                let last = self.last_text();
                last.extend_from_slice(b"0\r\n");
                let trailers = trailers.unwrap_or_default();
                let allowed = trailers.iter().filter(|(name, _)| names.contains(name));
                allowed.for_each(|(name, value)| write_field(last, name, value));
                last.extend_from_slice(b"\r\n");
                Ok(())
            }
        }
    }

    /// Returns the text at the end of the pending data: the one before the data if there is no data.
    fn last_text(&mut self) -> &mut Vec<u8> {
        let has_data = self.pending.first_ref().last_ref().has_remaining();
        writable_text(if has_data { self.pending.last_mut() } else { self.pending.first_mut().first_mut() })
    }

    fn poll_write<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
        has_written: &mut bool,
    ) -> Poll<io::Result<()>> {
        let mut stream = Pin::new(stream);
        while self.pending.has_remaining() {
            let first = self.pending.chunk();
            let written = if first.len() == self.pending.remaining() {
                // A single piece is written without vectored I/O, which is cheaper.
                let written = ready!(stream.as_mut().poll_write(context, first))?;
                self.pending.advance(written);
                written
            } else {
                ready!(poll_write_buf(stream.as_mut(), context, &mut self.pending))?
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent_bytes += written as u64;
            *has_written = true;
        }
        stream.poll_flush(context)
    }
}

/// Returns a text for appending. Clears it first if it was written completely.
fn writable_text(text: &mut QueuedText) -> &mut Vec<u8> {
    if !text.has_remaining() {
        text.set_position(0);
        text.get_mut().clear();
    }
    text.get_mut()
}
