//! A message on its way out (RFC 9112): its head, then its body as it comes.

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

use super::decoder::Framing;
use super::fields::put;
use crate::body::Error;

/// What is copied, to be written in one piece: the system takes longer over two than copying takes.
const SMALL: usize = 2 << 10;

/// A message, and how far it has come.
#[derive(Debug)]
pub struct Sending<B> {
    /// Whole until the first of it is taken, and gone with the last: before that is written, so that whoever
    /// counts by the body has counted when the other side has read it.
    body: Option<B>,
    framing: Framing,
    /// The trailers that may follow the body.
    trailers: Box<[HeaderName]>,
    stage: Stage,
    pending: Pending,
    is_begun: bool,
    /// How many bytes the connection took.
    sent: u64,
    /// Whether the connection did not take, or not pass on, what it was given last: over TLS it takes more
    /// than the system does.
    is_stuck: bool,
}

/// What is to be written now: a text, data of the body, a text.
type Pending = Chain<Chain<Text, Bytes>, Text>;
type Text = Cursor<Vec<u8>>;

#[derive(Debug)]
enum Stage {
    /// The body has more.
    Body,
    /// The last of it is to be written.
    End,
    Done,
    /// The connection takes no more of it.
    Failed(Option<io::Error>),
}

/// Why a body can't be sent.
#[derive(Debug, thiserror::Error)]
#[error("the body is longer or shorter than its head says")]
struct OtherLength;

impl<B: Body<Data = Bytes, Error = Error> + Unpin> Sending<B> {
    /// A message with this head, whose body ends so. Of its trailers, these may follow.
    #[must_use]
    pub fn new(head: Vec<u8>, body: B, framing: Framing, trailers: Box<[HeaderName]>) -> Self {
        let pending = Cursor::new(head).chain(Bytes::new()).chain(Cursor::new(Vec::new()));
        let stage = if framing == Framing::Length(0) { Stage::End } else { Stage::Body };
        Self {
            body: Some(body),
            framing,
            trailers,
            stage,
            pending,
            is_begun: false,
            sent: 0,
            is_stuck: false,
        }
    }

    /// A message that is its head alone.
    #[must_use]
    pub fn head_only(head: Vec<u8>) -> Self {
        let pending = Cursor::new(head).chain(Bytes::new()).chain(Cursor::new(Vec::new()));
        let (framing, trailers, stage) = (Framing::Length(0), Box::default(), Stage::End);
        Self { body: None, framing, trailers, stage, pending, is_begun: false, sent: 0, is_stuck: false }
    }

    /// Whether all of it is written.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Done)
    }

    /// Whether the connection has yet to take what is there.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.is_stuck
    }

    /// Whether the body gave something, and whether the system took something.
    #[must_use]
    pub fn progress(&self) -> (bool, bool) {
        (self.is_begun, self.sent > 0)
    }

    /// How many bytes the connection took so far, the head among them.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Why the connection takes no more, said once.
    pub fn failure(&mut self) -> Option<io::Error> {
        match &mut self.stage {
            Stage::Failed(reason) => reason.take(),
            _ => None,
        }
    }

    /// The body, if it is still whole.
    #[must_use]
    pub fn into_body(self) -> Option<B> {
        self.body.filter(|_| !self.is_begun)
    }

    /// Writes what there is, and whether something was written. That the connection takes no more is no error
    /// here: see [`Self::failure`].
    ///
    /// # Errors
    /// The body's own.
    pub fn go_on<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Result<bool, Error> {
        let mut has_written = false;
        loop {
            if matches!(self.stage, Stage::Done | Stage::Failed(_)) {
                return Ok(has_written);
            }
            let is_waiting = matches!(self.stage, Stage::Body) && self.fill(context)?.is_pending();
            let written = self.poll_write(stream, context, &mut has_written);
            self.is_stuck = written.is_pending();
            match written {
                Poll::Ready(Ok(())) if matches!(self.stage, Stage::End) => self.stage = Stage::Done,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => self.stage = Stage::Failed(Some(error)),
                Poll::Pending => return Ok(has_written),
            }
            if is_waiting {
                return Ok(has_written);
            }
        }
    }

    /// Takes the next part of the body, once the one before is written.
    fn fill(&mut self, context: &mut Context<'_>) -> Result<Poll<()>, Error> {
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
                self.put(data)?;
                if is_last {
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
        // An empty chunk would be the last one.
        let is_chunk = self.framing == Framing::Chunked && length > 0;
        if let Framing::Length(left) = &mut self.framing {
            *left = left.checked_sub(length as u64).ok_or(OtherLength)?;
        }
        let before = unwritten(self.pending.first_mut().first_mut());
        if is_chunk {
            let _ = write!(before, "{length:x}\r\n");
        }
        if before.len() + length <= SMALL {
            before.extend_from_slice(&data);
        } else {
            *self.pending.first_mut().last_mut() = data;
        }
        if is_chunk {
            self.last().extend_from_slice(b"\r\n");
        }
        Ok(())
    }

    fn end(&mut self, trailers: Option<HeaderMap>) -> Result<(), OtherLength> {
        (self.stage, self.body) = (Stage::End, None);
        match self.framing {
            Framing::Length(0) | Framing::UntilClose => Ok(()),
            Framing::Length(_) => Err(OtherLength),
            Framing::Chunked => {
                let names = mem::take(&mut self.trailers);
                let last = self.last();
                last.extend_from_slice(b"0\r\n");
                let trailers = trailers.unwrap_or_default();
                let allowed = trailers.iter().filter(|(name, _)| names.contains(name));
                allowed.for_each(|(name, value)| put(last, name, value));
                last.extend_from_slice(b"\r\n");
                Ok(())
            }
        }
    }

    /// The text at the end of what is to be written: before the data if there is none.
    fn last(&mut self) -> &mut Vec<u8> {
        let has_data = self.pending.first_ref().last_ref().has_remaining();
        unwritten(if has_data { self.pending.last_mut() } else { self.pending.first_mut().first_mut() })
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
            self.sent += written as u64;
            *has_written = true;
        }
        stream.poll_flush(context)
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
