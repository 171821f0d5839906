//! The body type of all messages in the gateway, requests and responses alike. It is boxed to keep the types
//! of its users readable, and only `Send`, since a single task polls it.
//!
//! Bodies are read into one buffer here, those of clients' requests by `body/request_body.rs`, and decoded in
//! `body/decompress.rs`.

pub(crate) mod decompress;
pub(crate) mod request_body;

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, Empty, Full, combinators::UnsyncBoxBody};

use crate::coop::{ByteTurn, TURN_BYTES};

/// The capacity of a block of a [`BodyBuffer`].
const BLOCK_BYTES: usize = 256 << 10;
/// The largest buffer to reserve in advance for a body, whatever its declared length.
const MAX_RESERVED_BYTES: u64 = 1 << 20;

/// The error of an incomplete body.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// A streamed body.
pub type StreamedServiceBody = UnsyncBoxBody<Bytes, BodyError>;

/// Returns a body from a single buffer.
pub fn full(bytes: impl Into<Bytes>) -> StreamedServiceBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Returns an empty body.
#[must_use]
pub fn empty() -> StreamedServiceBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// Returns a body of pieces that are available without waiting, `length` bytes in total.
pub fn from_pieces(
    length: usize,
    pieces: impl Iterator<Item = Bytes> + Send + Unpin + 'static,
) -> StreamedServiceBody {
    BodyPieces { pieces, remaining_bytes: length as u64 }.boxed_unsync()
}

/// Reads a body of at most `limit` bytes to its end into one buffer, whatever the size of its pieces: a list
/// of one-byte pieces would take sixty times as much memory. A single piece is not copied. Yields to other
/// tasks between pieces that are available at once.
///
/// # Errors
/// [`ReadBodyError::TooLarge`] if the body exceeds the limit, and [`ReadBodyError::Broken`] if it is
/// incomplete.
pub async fn read_limited(mut body: StreamedServiceBody, limit: u64) -> Result<Bytes, ReadBodyError> {
    let mut buffer = BodyBuffer::default();
    let mut turn = ByteTurn::default();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(ReadBodyError::Broken)?.into_data() else { continue };
        turn.consume_bytes(data.len()).await;
        if (buffer.len() + data.len()) as u64 > limit {
            return Err(ReadBodyError::TooLarge(limit));
        }
        buffer.put(data);
    }
    Ok(buffer.finish().await)
}

/// An error from reading a body.
#[derive(Debug, thiserror::Error)]
pub enum ReadBodyError {
    /// The body exceeds this number of bytes.
    #[error("the body is larger than {0} bytes")]
    TooLarge(u64),
    /// The body ended early.
    #[error("the body broke off")]
    Broken(#[source] BodyError),
}

/// The pieces of a body, to be joined in one buffer. A single piece is not copied. Several are copied into
/// blocks: they may be of one byte each, and a single buffer would be copied as a whole each time it grows.
#[derive(Debug, Default)]
pub struct BodyBuffer {
    /// The first piece, as long as it is the only one.
    first_piece: Bytes,
    /// The full blocks, and pieces as long as a block.
    full_blocks: Vec<Bytes>,
    full_length: usize,
    /// The block that pieces are copied to.
    last_block: BytesMut,
}

impl BodyBuffer {
    /// Adds a piece.
    pub fn put(&mut self, piece: Bytes) {
        self.put_and_reserve(piece, || 0);
    }

    /// Adds a piece. If it is the second one, `to_come` returns the declared length of the rest of the body,
    /// for which room is reserved.
    pub(crate) fn put_and_reserve(&mut self, piece: Bytes, to_come: impl FnOnce() -> u64) {
        if self.is_empty() {
            self.first_piece = piece;
            return;
        }
        if !self.first_piece.is_empty() {
            let first = std::mem::take(&mut self.first_piece);
            self.last_block.reserve(first.len() + piece.len() + to_come().min(MAX_RESERVED_BYTES) as usize);
            self.append(first);
        }
        self.append(piece);
    }

    fn append(&mut self, piece: Bytes) {
        if piece.len() < BLOCK_BYTES {
            self.reserve_block(piece.len()).extend_from_slice(&piece);
        } else {
            self.seal_block();
            self.full_length += piece.len();
            self.full_blocks.push(piece);
        }
    }

    /// Returns the block that pieces are copied to, with room for `length` bytes. A small block grows.
    pub(crate) fn reserve_block(&mut self, length: usize) -> &mut BytesMut {
        if self.last_block.len() >= BLOCK_BYTES / 2
            && self.last_block.capacity() - self.last_block.len() < length
        {
            self.seal_block();
            self.last_block = BytesMut::with_capacity(BLOCK_BYTES);
        }
        self.last_block.reserve(length);
        &mut self.last_block
    }

    fn seal_block(&mut self) {
        let block = std::mem::take(&mut self.last_block).freeze();
        if !block.is_empty() {
            self.full_length += block.len();
            self.full_blocks.push(block);
        }
    }

    /// The number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.first_piece.len() + self.full_length + self.last_block.len()
    }

    /// Whether the buffer is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all bytes. Yields to other tasks while it joins blocks.
    pub async fn finish(mut self) -> Bytes {
        if self.full_blocks.is_empty() {
            return if self.last_block.is_empty() { self.first_piece } else { self.last_block.freeze() };
        }
        self.seal_block();
        if let [only] = self.full_blocks.as_mut_slice() {
            return std::mem::take(only);
        }
        let mut all = BytesMut::with_capacity(self.full_length);
        let mut turn = ByteTurn::default();
        // Each block is freed as soon as it is copied.
        for block in self.full_blocks {
            for part in block.chunks(TURN_BYTES) {
                all.extend_from_slice(part);
                turn.consume_bytes(part.len()).await;
            }
        }
        all.freeze()
    }
}

struct BodyPieces<I> {
    pieces: I,
    remaining_bytes: u64,
}

impl<I: Iterator<Item = Bytes> + Unpin> http_body::Body for BodyPieces<I> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        let piece = this.pieces.next();
        this.remaining_bytes -=
            piece.as_ref().map_or(0, |piece| piece.len() as u64).min(this.remaining_bytes);
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.remaining_bytes == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining_bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;

    use super::*;

    fn body_of_pieces(pieces: &[&'static str]) -> StreamedServiceBody {
        let pieces: Vec<_> = pieces.iter().map(|piece| Bytes::from_static(piece.as_bytes())).collect();
        super::from_pieces(pieces.iter().map(Bytes::len).sum(), pieces.into_iter())
    }

    #[tokio::test]
    async fn reads_a_body_up_to_its_limit_and_refuses_one_byte_more() {
        for pieces in [&["", "abc", "d"][..], &["abcd"], &["a", "b", "c", "d"]] {
            assert_eq!(read_limited(body_of_pieces(pieces), 4).await.unwrap(), "abcd");
            let refused = read_limited(body_of_pieces(pieces), 3).await;
            assert!(matches!(refused, Err(ReadBodyError::TooLarge(3))), "{pieces:?}");
        }
        assert!(read_limited(empty(), 0).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn lets_other_tasks_run_between_small_pieces() {
        const COUNT: usize = 100_000;
        let body = super::from_pieces(COUNT, std::iter::repeat_n(Bytes::from_static(b"x"), COUNT));
        let mut reading = pin!(read_limited(body, COUNT as u64));
        let mut polls = 0;
        let text = poll_fn(|context| {
            polls += 1;
            reading.as_mut().poll(context)
        });
        assert_eq!(text.await.unwrap().len(), COUNT);
        assert!(polls > COUNT / 1_000, "{polls} polls");
    }

    #[tokio::test]
    async fn joins_pieces_in_one_buffer_without_copying_a_single_piece() {
        let (mut buffer, mut many) = (BodyBuffer::default(), BodyBuffer::default());
        let piece = Bytes::from(vec![b'x'; 100]);
        buffer.put(piece.clone());
        assert_eq!(buffer.finish().await.as_ptr(), piece.as_ptr());
        (0..10_000).for_each(|_| many.put(piece.slice(..1)));
        assert!(
            many.len() == 10_000 && many.full_blocks.is_empty() && many.last_block.capacity() <= 4 * 10_000
        );
        let block = many.last_block.as_ptr();
        assert_eq!(many.finish().await.as_ptr(), block, "a single block is not copied");
    }

    #[tokio::test]
    async fn copies_a_long_body_in_short_steps() {
        const LENGTH: usize = 8 << 20;
        for piece in [1000, 60 << 10, 300 << 10] {
            let text: Vec<u8> = (0..LENGTH).map(|place| (place / 1000) as u8).collect();
            let mut buffer = BodyBuffer::default();
            for piece in text.chunks(piece) {
                buffer.put(Bytes::copy_from_slice(piece));
                assert!(
                    buffer.last_block.capacity() <= 2 * BLOCK_BYTES,
                    "a block that grows is copied at once"
                );
            }
            assert_eq!(buffer.len(), LENGTH);
            let (mut joining, mut polls) = (pin!(buffer.finish()), 0);
            let joined = poll_fn(|context| {
                polls += 1;
                joining.as_mut().poll(context)
            });
            assert!(joined.await == text, "pieces of {piece} bytes");
            assert!(polls > LENGTH / (4 * TURN_BYTES), "{polls} polls");
        }
    }

    #[tokio::test]
    async fn reserves_room_for_a_declared_length_up_to_a_limit() {
        for (declared, expected) in [(1000, 1000), (64 << 20, MAX_RESERVED_BYTES)] {
            let mut buffer = BodyBuffer::default();
            (0..3).for_each(|_| buffer.put_and_reserve(Bytes::from_static(b"x"), || declared));
            let room = buffer.last_block.capacity() as u64;
            assert!((expected..2 * expected).contains(&room), "{room} bytes for {declared}");
        }
    }
}
