//! The input buffer of a connection.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::io::poll_read_buf;

/// The size of the first read. It grows fourfold, up to a maximum, each time a read fills the buffer.
const INITIAL_READ: usize = 8 << 10;
const MAX_READ: usize = 64 << 10;
/// The largest read from a client: as much as in a frame of HTTP/2. Many clients send long bodies at once,
/// and the requests of others wait for a read of each.
const MAX_REQUEST_READ: usize = 16 << 10;
/// The largest read from a client that sends many long bodies at once.
const SHORT_REQUEST_READ: usize = 4 << 10;
/// The buffer capacity that an idle connection may keep: there may be tens of thousands.
const MAX_IDLE_CAPACITY: usize = 2 << 10;
/// The longest body that is read into one piece.
const MAX_FILL_BYTES: u64 = 128 << 10;
/// The longest data that is copied instead of splitting the buffer, so that the buffer can be reused.
const MAX_COPIED_BYTES: usize = 4 << 10;

/// Received bytes that were not consumed yet.
#[derive(Debug)]
pub struct ReceiveBuffer {
    bytes: BytesMut,
    read_size: usize,
    max_read_size: usize,
    /// The number of bytes already searched for the end of a head.
    searched_length: usize,
}

impl Default for ReceiveBuffer {
    fn default() -> Self {
        Self { bytes: BytesMut::new(), read_size: INITIAL_READ, max_read_size: MAX_READ, searched_length: 0 }
    }
}

impl ReceiveBuffer {
    /// Creates a buffer for the bytes of a client.
    #[must_use]
    pub fn with_request_limits() -> Self {
        Self { max_read_size: MAX_REQUEST_READ, ..Self::default() }
    }

    /// Sets the largest read, [`MAX_REQUEST_READ`] or [`SHORT_REQUEST_READ`].
    pub fn use_short_reads(&mut self, is_short: bool) {
        self.max_read_size = if is_short { SHORT_REQUEST_READ } else { MAX_REQUEST_READ };
        self.read_size = self.read_size.min(self.max_read_size);
    }

    /// The buffered bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether the buffer is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Reads more bytes; returns `false` at the end of the stream.
    pub fn poll_more<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        if self.read_size == INITIAL_READ {
            return self.poll_small_read(stream, context);
        }
        self.bytes.reserve(self.read_size);
        let room = &mut (&mut self.bytes).limit(self.read_size);
        let read = ready!(poll_read_buf(Pin::new(stream), context, room))?;
        self.grow_read_size(read);
        Poll::Ready(Ok(read > 0))
    }

    /// Reads through a buffer on the stack, so that waiting connections hold no buffer of their own.
    fn poll_small_read<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        let mut room = const { [MaybeUninit::uninit(); INITIAL_READ] };
        let mut room = ReadBuf::uninit(&mut room);
        ready!(Pin::new(stream).poll_read(context, &mut room))?;
        self.bytes.extend_from_slice(room.filled());
        self.grow_read_size(room.filled().len());
        Poll::Ready(Ok(!room.filled().is_empty()))
    }

    fn grow_read_size(&mut self, read: usize) {
        if read >= self.read_size {
            self.read_size = (self.read_size * 4).min(self.max_read_size);
        }
    }

    /// Reads the rest of a body of this length, as far as it is available without waiting, so that it can be
    /// passed on in one piece. Does nothing for long bodies and for slow connections, whose bodies are better
    /// streamed.
    pub fn fill_available<S: AsyncRead + Unpin>(
        &mut self,
        length: u64,
        stream: &mut S,
        context: &mut Context<'_>,
    ) {
        let length = if length > MAX_FILL_BYTES { 0 } else { length as usize };
        while self.read_size > INITIAL_READ && self.bytes.len() < length {
            // One byte more, so that a short read shows that no more data is available.
            self.bytes.reserve(length - self.bytes.len() + 1);
            // The error recurs when the rest is read.
            let Poll::Ready(Ok(1..)) = poll_read_buf(Pin::new(stream), context, &mut self.bytes) else {
                return;
            };
        }
    }

    /// Appends bytes that were read elsewhere.
    pub fn append_bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the length of the head at the start of the buffer, including its empty line; `None` if it is
    /// incomplete. Bytes that were searched are not searched again, since a head may arrive byte by byte.
    pub fn head_length(&mut self) -> Option<usize> {
        let mut from = self.searched_length;
        while let Some(end) = memchr::memchr(b'\n', &self.bytes[from..]) {
            let next = from + end + 1;
            match self.bytes.get(next..) {
                Some([b'\n', ..]) => return Some(next + 1),
                Some([b'\r', b'\n', ..]) => return Some(next + 2),
                // The bytes after this line have not arrived.
                Some([] | [b'\r']) | None => {
                    self.searched_length = from + end;
                    return None;
                }
                Some(_) => from = next,
            }
        }
        self.searched_length = self.bytes.len();
        None
    }

    /// Takes up to `most` bytes from the start.
    pub fn take(&mut self, most: usize) -> Bytes {
        let length = most.min(self.bytes.len());
        self.searched_length = 0;
        if length > MAX_COPIED_BYTES {
            return self.bytes.split_to(length).freeze();
        }
        let bytes = Bytes::copy_from_slice(&self.bytes[..length]);
        self.skip(length);
        bytes
    }

    /// Takes exactly `length` bytes from the start, if they are available.
    pub fn take_exactly(&mut self, length: u64) -> Option<Bytes> {
        let length = usize::try_from(length).ok().filter(|length| *length <= self.bytes.len())?;
        Some(self.take(length))
    }

    /// Takes all bytes.
    pub fn take_all(&mut self) -> Bytes {
        self.take(self.bytes.len())
    }

    /// Skips bytes at the start.
    pub fn skip(&mut self, length: usize) {
        self.searched_length = 0;
        self.bytes.advance(length);
    }

    /// Releases capacity that only a large message needed.
    pub fn shrink(&mut self) {
        self.read_size = INITIAL_READ;
        if self.bytes.is_empty() && self.bytes.capacity() > MAX_IDLE_CAPACITY {
            self.bytes = BytesMut::new();
        }
    }
}
