//! Cooperative scheduling for tasks that process data which is available at once, and waiting with a deadline
//! (`coop/deadline.rs`).

mod deadline;

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop::{consume_budget, poll_proceed};
use tokio::task::yield_now;

pub use deadline::timeout_at;

/// The bytes that a task processes before it yields: receiving and copying them takes a small part of a
/// millisecond.
pub const TURN_BYTES: usize = 16 * 1024;
/// The longest write to a [`CooperativeStream`]. Shorter ones take more time in total, as each wakes the
/// peer.
const WRITE_BYTES: usize = 64 * 1024;
/// The bytes read from or written to a [`CooperativeStream`] for one unit of tokio's budget, which has 128
/// units.
const UNIT_BYTES: usize = 2 * 1024;
/// The units of tokio's budget.
const BUDGET_UNITS: usize = 128;
/// The bytes read below TLS before a pause. A TLS session reads on until it has plaintext, and each message
/// without any, such as a `KeyUpdate` of 27 bytes, takes 3 microseconds.
const CIPHERTEXT_BYTES: usize = 16 * 1024;

/// A counter of the bytes processed since the last yield. Tokio's budget counts pieces, which may be of one
/// byte or one mebibyte each.
#[derive(Debug, Default)]
pub struct ByteTurn {
    bytes: usize,
}

impl ByteTurn {
    /// Counts a piece, and yields after [`TURN_BYTES`] bytes, or after as many pieces as tokio's budget
    /// allows.
    pub async fn consume_bytes(&mut self, bytes: usize) {
        self.bytes += bytes;
        if self.bytes < TURN_BYTES {
            consume_budget().await;
        } else {
            self.bytes = 0;
            yield_now().await;
        }
    }
}

/// A socket whose bytes count towards tokio's cooperative budget. A read or a write takes one unit whatever
/// its length, and a fast peer takes megabytes at once, each of which costs a millisecond with encryption. So
/// every [`UNIT_BYTES`] bytes take another unit, and a write is at most [`WRITE_BYTES`] bytes long.
#[derive(Debug)]
pub struct CooperativeStream<S> {
    stream: S,
    /// The bytes read since a read was last pending, and their number that causes a pause.
    bytes_read: usize,
    pause_after: usize,
}

impl<S> CooperativeStream<S> {
    /// Wraps a socket.
    #[must_use]
    pub fn new(stream: S) -> Self {
        Self { stream, bytes_read: 0, pause_after: usize::MAX }
    }

    /// Wraps the socket of a TLS session. Reads pause after [`CIPHERTEXT_BYTES`] bytes that are available at
    /// once, which leaves the budget to writes.
    #[must_use]
    pub fn for_tls_session(stream: S) -> Self {
        Self { stream, bytes_read: 0, pause_after: CIPHERTEXT_BYTES }
    }

    /// The socket.
    #[must_use]
    pub fn get_ref(&self) -> &S {
        &self.stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CooperativeStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.bytes_read >= self.pause_after {
            self.bytes_read = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let Poll::Ready(result) = Pin::new(&mut self.stream).poll_read(context, buffer) else {
            self.bytes_read = 0;
            return Poll::Pending;
        };
        result?;
        let bytes = buffer.filled().len() - before;
        self.bytes_read = self.bytes_read.saturating_add(bytes);
        consume_units(context, bytes);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CooperativeStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let part = bytes.get(..WRITE_BYTES).unwrap_or(bytes);
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, part))?;
        consume_units(context, written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let (mut count, mut length) = (0, 0);
        for slice in slices {
            if length + slice.len() > WRITE_BYTES {
                break;
            }
            (count, length) = (count + 1, length + slice.len());
        }
        if let Some(long) = slices.get(count).filter(|_| length == 0) {
            return self.poll_write(context, long);
        }
        let fitting = slices.get(..count).unwrap_or(slices);
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(context, fitting))?;
        consume_units(context, written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Ends the poll of the current task, so that others run before it continues. The task has no budget left
/// for other reads in this poll.
pub fn end_poll(context: &mut Context<'_>) {
    consume_units(context, BUDGET_UNITS * UNIT_BYTES);
    context.waker().wake_by_ref();
}

/// Consumes the units of the budget for these bytes, as far as there are any.
fn consume_units(context: &mut Context<'_>, bytes: usize) {
    for _ in 0..bytes / UNIT_BYTES {
        match poll_proceed(context) {
            Poll::Ready(unit) => unit.made_progress(),
            Poll::Pending => return,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::future::poll_fn;
    use std::pin::pin;

    use bytes::Buf;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// The bytes that a task reads or writes in one poll.
    const BUDGET_BYTES: usize = BUDGET_UNITS * UNIT_BYTES;

    /// Returns the number of polls that a future takes.
    pub(crate) async fn count_polls(future: impl Future) -> usize {
        let (mut future, mut polls) = (pin!(future), 0);
        poll_fn(|context| {
            polls += 1;
            future.as_mut().poll(context)
        })
        .await;
        polls
    }

    async fn count_turn_polls(pieces: usize, bytes: usize) -> usize {
        count_polls(async {
            let mut turn = ByteTurn::default();
            for _ in 0..pieces {
                turn.consume_bytes(bytes).await;
            }
        })
        .await
    }

    #[tokio::test]
    async fn yields_after_a_number_of_bytes_or_pieces() {
        assert_eq!(count_turn_polls(4, TURN_BYTES).await, 5);
        assert_eq!(count_turn_polls(8, TURN_BYTES / 2).await, 5);
        assert_eq!(count_turn_polls(1, TURN_BYTES - 1).await, 1);
        assert!(count_turn_polls(10_000, 1).await > 10);
    }

    #[tokio::test]
    async fn reads_and_writes_a_bounded_number_of_bytes_in_a_poll() {
        let bytes = vec![b'x'; 16 * BUDGET_BYTES];
        let mut writer = CooperativeStream::new(tokio::io::sink());
        assert!(count_polls(writer.write_all(&bytes)).await >= 12);
        let mut message = Buf::chain(&b"head"[..], &bytes[..]);
        assert!(count_polls(writer.write_all_buf(&mut message)).await >= 12);
        let mut reader = CooperativeStream::new(tokio::io::repeat(b'x'));
        let mut room = vec![0; 16 * BUDGET_BYTES];
        let reading = async {
            for part in room.chunks_mut(BUDGET_BYTES / 4) {
                reader.read_exact(part).await.unwrap();
            }
        };
        assert!(count_polls(reading).await >= 12);
    }

    #[tokio::test]
    async fn reads_a_bounded_number_of_bytes_below_tls_in_a_poll() {
        let mut reader = CooperativeStream::for_tls_session(tokio::io::repeat(b'x'));
        let mut room = vec![0; 8 * CIPHERTEXT_BYTES];
        let reading = async {
            for part in room.chunks_mut(CIPHERTEXT_BYTES / 4) {
                reader.read_exact(part).await.unwrap();
            }
        };
        assert_eq!(count_polls(reading).await, 8);
    }

    #[tokio::test]
    async fn writes_slices_of_any_length_in_order() {
        let long = vec![b'x'; 3 * WRITE_BYTES + 1];
        let parts =
            [&b""[..], &b"head"[..], &b""[..], &long[..], &b""[..], &b"end"[..], &long[..], &long[..]];
        let mut slices = parts.map(IoSlice::new);
        let mut left = &mut slices[..];
        let mut writer = CooperativeStream::new(Vec::new());
        while !left.is_empty() {
            let writing = poll_fn(|context| Pin::new(&mut writer).poll_write_vectored(context, left));
            let written = writing.await.unwrap();
            assert!((1..=WRITE_BYTES).contains(&written), "{written} bytes");
            IoSlice::advance_slices(&mut left, written);
        }
        assert!(*writer.get_ref() == parts.concat());
    }
}
