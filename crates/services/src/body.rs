//! The body of every message in the house, requests and responses alike: boxed, so that the types of
//! the parts stay readable, and `Send` only, since one task polls it.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, Empty, Full, combinators::UnsyncBoxBody};

/// Why a body broke off.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// A streamed body.
pub type Body = UnsyncBoxBody<Bytes, Error>;

/// A body that is there already.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// No body.
#[must_use]
pub fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// A body of pieces that are there when they are asked for, `length` bytes in all.
pub fn pieces(length: usize, pieces: impl Iterator<Item = Bytes> + Send + Unpin + 'static) -> Body {
    Pieces { pieces, rest: length as u64 }.boxed_unsync()
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
