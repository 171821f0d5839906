//! The body type of all messages in the gateway, requests and responses alike. It is boxed to keep the types
//! of its users readable, and only `Send`, since a single task polls it.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, Empty, Full, combinators::UnsyncBoxBody};

use crate::turn::Turn;

/// The error of an incomplete body.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// A streamed body.
pub type Body = UnsyncBoxBody<Bytes, Error>;

/// The memory in bytes that a response occupies until its body is read. Handlers that compose responses set it
/// as a response extension: the current frame of such a body is a small part of the memory that it occupies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldBytes(pub u64);

/// Returns a body from a single buffer.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Returns an empty body.
#[must_use]
pub fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// Returns a body of pieces that are available without waiting, `length` bytes in total.
pub fn pieces(length: usize, pieces: impl Iterator<Item = Bytes> + Send + Unpin + 'static) -> Body {
    Pieces { pieces, rest: length as u64 }.boxed_unsync()
}

/// Reads a body of at most `limit` bytes to its end into one buffer, whatever the size of its pieces: a list
/// of one-byte pieces would take sixty times as much memory. A single piece is not copied. Yields to other
/// tasks between pieces that are available at once.
///
/// # Errors
/// [`ReadBodyError::TooLarge`] if the body exceeds the limit, and [`ReadBodyError::Broken`] if it is incomplete.
pub async fn read_within(mut body: Body, limit: u64) -> Result<Bytes, ReadBodyError> {
    let mut buffer = BodyBuffer::default();
    let mut turn = Turn::default();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(ReadBodyError::Broken)?.into_data() else { continue };
        turn.took(data.len()).await;
        if (buffer.len() + data.len()) as u64 > limit {
            return Err(ReadBodyError::TooLarge(limit));
        }
        buffer.put(data);
    }
    Ok(buffer.finish())
}

/// An error from reading a body.
#[derive(Debug, thiserror::Error)]
pub enum ReadBodyError {
    /// The body exceeds this number of bytes.
    #[error("the body is larger than {0} bytes")]
    TooLarge(u64),
    /// The body ended early.
    #[error("the body broke off")]
    Broken(#[source] Error),
}

/// The pieces of a body, copied into one buffer from the second piece on.
#[derive(Debug, Default)]
pub struct BodyBuffer {
    first: Bytes,
    all: BytesMut,
}

impl BodyBuffer {
    /// Adds a piece.
    pub fn put(&mut self, piece: Bytes) {
        if self.is_empty() {
            self.first = piece;
            return;
        }
        self.all.extend_from_slice(&std::mem::take(&mut self.first));
        self.all.extend_from_slice(&piece);
    }

    /// The number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.first.len() + self.all.len()
    }

    /// Whether the buffer is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all bytes.
    #[must_use]
    pub fn finish(self) -> Bytes {
        if self.all.is_empty() { self.first } else { self.all.freeze() }
    }
}

struct Pieces<I> {
    pieces: I,
    rest: u64,
}

impl<I: Iterator<Item = Bytes> + Unpin> http_body::Body for Pieces<I> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        let piece = this.pieces.next();
        this.rest -= piece.as_ref().map_or(0, |piece| piece.len() as u64).min(this.rest);
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;

    use super::*;

    fn of(pieces: &[&'static str]) -> Body {
        let pieces: Vec<_> = pieces.iter().map(|piece| Bytes::from_static(piece.as_bytes())).collect();
        super::pieces(pieces.iter().map(Bytes::len).sum(), pieces.into_iter())
    }

    #[tokio::test]
    async fn reads_a_body_up_to_its_limit_and_refuses_one_byte_more() {
        for pieces in [&["", "abc", "d"][..], &["abcd"], &["a", "b", "c", "d"]] {
            assert_eq!(read_within(of(pieces), 4).await.unwrap(), "abcd");
            let refused = read_within(of(pieces), 3).await;
            assert!(matches!(refused, Err(ReadBodyError::TooLarge(3))), "{pieces:?}");
        }
        assert!(read_within(empty(), 0).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn lets_other_tasks_run_between_small_pieces() {
        const COUNT: usize = 100_000;
        let body = super::pieces(COUNT, std::iter::repeat_n(Bytes::from_static(b"x"), COUNT));
        let mut reading = pin!(read_within(body, COUNT as u64));
        let mut polls = 0;
        let text = poll_fn(|context| {
            polls += 1;
            reading.as_mut().poll(context)
        });
        assert_eq!(text.await.unwrap().len(), COUNT);
        assert!(polls > COUNT / 1_000, "{polls} polls");
    }

    #[test]
    fn joins_pieces_in_one_buffer_without_copying_a_single_piece() {
        let (mut one, mut many) = (BodyBuffer::default(), BodyBuffer::default());
        let piece = Bytes::from(vec![b'x'; 100]);
        one.put(piece.clone());
        assert_eq!(one.finish().as_ptr(), piece.as_ptr());
        (0..10_000).for_each(|_| many.put(piece.slice(..1)));
        assert!(many.len() == 10_000 && many.all.capacity() <= 4 * 10_000);
    }
}
