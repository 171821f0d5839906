//! What was read from a connection and is not used yet.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::io::poll_read_buf;

/// How much is asked for at first, and at most: four times as much each time that all of it came.
const STEP: usize = 8 << 10;
const MAX_STEP: usize = 64 << 10;
/// The room that a connection keeps while nothing goes on: there may be tens of thousands.
const KEPT: usize = 2 << 10;
/// The longest body that is waited for in one piece.
const PIECE: u64 = 128 << 10;
/// What is copied, so that the room can be used again, and not given away with the room.
const SMALL: usize = 4 << 10;

/// Bytes in the order in which they came.
#[derive(Debug)]
pub struct Input {
    bytes: BytesMut,
    step: usize,
    /// How far a head's end was looked for and not found.
    searched: usize,
}

impl Default for Input {
    fn default() -> Self {
        Self { bytes: BytesMut::new(), step: STEP, searched: 0 }
    }
}

impl Input {
    /// What is there.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether nothing is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Reads more; `false` at the end.
    pub fn poll_more<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        if self.step == STEP {
            return self.poll_little(stream, context);
        }
        self.bytes.reserve(self.step);
        let read = ready!(poll_read_buf(Pin::new(stream), context, &mut self.bytes))?;
        self.grow(read);
        Poll::Ready(Ok(read > 0))
    }

    /// The same by way of the stack, so that nobody has room of its own while it waits.
    fn poll_little<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        let mut room = const { [MaybeUninit::uninit(); STEP] };
        let mut room = ReadBuf::uninit(&mut room);
        ready!(Pin::new(stream).poll_read(context, &mut room))?;
        self.bytes.extend_from_slice(room.filled());
        self.grow(room.filled().len());
        Poll::Ready(Ok(!room.filled().is_empty()))
    }

    fn grow(&mut self, read: usize) {
        if read >= self.step {
            self.step = (self.step * 4).min(MAX_STEP);
        }
    }

    /// Reads a body of this length on to its end, as far as it has come. What is there in one piece nobody has to wait
    /// for, nor to put together. What comes slowly, or is long, is better handed on as it comes.
    pub fn fill<S: AsyncRead + Unpin>(&mut self, length: u64, stream: &mut S, context: &mut Context<'_>) {
        let length = if length > PIECE { 0 } else { length as usize };
        while self.step > STEP && self.bytes.len() < length {
            // One byte more, since less than was asked for means that there is no more to read.
            self.bytes.reserve(length - self.bytes.len() + 1);
            // An error is there again for whoever reads the rest.
            let Poll::Ready(Ok(1..)) = poll_read_buf(Pin::new(stream), context, &mut self.bytes) else {
                return;
            };
        }
    }

    /// Bytes that were read by somebody else.
    pub fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// How long the head at the beginning is, with its empty line; `None` before all of it is there. What was
    /// searched is not searched again: a head may come byte by byte.
    pub fn head_length(&mut self) -> Option<usize> {
        let mut from = self.searched;
        while let Some(end) = memchr::memchr(b'\n', &self.bytes[from..]) {
            let next = from + end + 1;
            match self.bytes.get(next..) {
                Some([b'\n', ..]) => return Some(next + 1),
                Some([b'\r', b'\n', ..]) => return Some(next + 2),
                // What follows this line has not come.
                Some([] | [b'\r']) | None => {
                    self.searched = from + end;
                    return None;
                }
                Some(_) => from = next,
            }
        }
        self.searched = self.bytes.len();
        None
    }

    /// The first bytes, at most so many.
    pub fn take(&mut self, most: usize) -> Bytes {
        let length = most.min(self.bytes.len());
        self.searched = 0;
        if length > SMALL {
            return self.bytes.split_to(length).freeze();
        }
        let bytes = Bytes::copy_from_slice(&self.bytes[..length]);
        self.skip(length);
        bytes
    }

    /// The first bytes, if so many are there.
    pub fn take_exactly(&mut self, length: u64) -> Option<Bytes> {
        let length = usize::try_from(length).ok().filter(|length| *length <= self.bytes.len())?;
        Some(self.take(length))
    }

    /// All of them.
    pub fn take_all(&mut self) -> Bytes {
        self.take(self.bytes.len())
    }

    /// Passes over the first.
    pub fn skip(&mut self, length: usize) {
        self.searched = 0;
        self.bytes.advance(length);
    }

    /// Gives up room that only a large message needed.
    pub fn shrink(&mut self) {
        self.step = STEP;
        if self.bytes.is_empty() && self.bytes.capacity() > KEPT {
            self.bytes = BytesMut::new();
        }
    }
}
