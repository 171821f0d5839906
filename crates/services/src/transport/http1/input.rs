//! What was read from a connection and is not used yet.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio_util::io::poll_read_buf;

use super::super::connect::Stream;

/// How much is asked for at first, and at most: twice as much each time that all of it came.
const STEP: usize = 8 << 10;
const MAX_STEP: usize = 64 << 10;
/// What is copied, so that the room can be used again, and not given away with the room.
const SMALL: usize = 4 << 10;

/// Bytes in the order in which they came.
pub(super) struct Input {
    bytes: BytesMut,
    step: usize,
}

impl Default for Input {
    fn default() -> Self {
        Self { bytes: BytesMut::new(), step: STEP }
    }
}

impl Input {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Reads more; `false` at the end.
    pub(super) fn poll_more(
        &mut self,
        stream: &mut Stream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        self.bytes.reserve(self.step);
        let read = ready!(poll_read_buf(Pin::new(stream), context, &mut self.bytes))?;
        if read >= self.step {
            self.step = (self.step * 2).min(MAX_STEP);
        }
        Poll::Ready(Ok(read > 0))
    }

    /// Bytes that have come.
    #[cfg(test)]
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The first bytes, at most so many.
    pub(super) fn take(&mut self, most: usize) -> Bytes {
        let length = most.min(self.bytes.len());
        if length > SMALL {
            return self.bytes.split_to(length).freeze();
        }
        let bytes = Bytes::copy_from_slice(&self.bytes[..length]);
        self.skip(length);
        bytes
    }

    /// The first bytes, if so many are there.
    pub(super) fn take_exactly(&mut self, length: u64) -> Option<Bytes> {
        let length = usize::try_from(length).ok().filter(|length| *length <= self.bytes.len())?;
        Some(self.take(length))
    }

    pub(super) fn take_all(&mut self) -> Bytes {
        self.take(self.bytes.len())
    }

    pub(super) fn skip(&mut self, length: usize) {
        self.bytes.advance(length);
    }

    /// Gives up room that only a large answer needed.
    pub(super) fn shrink(&mut self) {
        self.step = STEP;
        if self.bytes.capacity() > STEP {
            self.bytes = BytesMut::new();
        }
    }
}
