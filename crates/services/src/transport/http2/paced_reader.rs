//! A reader that paces the frames of a service, so that none of its polls takes long.

use std::io;
use std::iter;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncBufRead, AsyncRead, BufReader, ReadBuf};

use crate::protocol::http2::FrameCursor;

/// The bytes of frames that are read at once. Each byte of a head can refer to a field (RFC 7541, section
/// 6.1), which takes 60 to 150 ns.
const FRAME_BYTES: usize = 8 * 1024;
/// Types of frames for which h2 visits all streams of a connection, each of which takes up to 100 ns. They
/// have 15 bytes or more, so that the frames in [`FRAME_BYTES`] bytes would cause up to 546 visits of each
/// stream.
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

/// A reader of a service's HTTP/2 frames, which may be of a few bytes each. It yields after [`FRAME_BYTES`]
/// bytes that are available at once, and at each [`SETTINGS`] and [`GOAWAY`] frame. Unlike a budget that is
/// used up, this does not delay what the same task writes.
#[derive(Debug)]
pub(super) struct PacedReader<R> {
    reader: BufReader<R>,
    frames: FrameCursor,
    /// The bytes that may be read before the next pause.
    bytes_until_pause: usize,
}

impl<R: AsyncRead> PacedReader<R> {
    pub(super) fn new(reader: R) -> Self {
        let reader = BufReader::with_capacity(FRAME_BYTES, reader);
        Self { reader, frames: FrameCursor::default(), bytes_until_pause: FRAME_BYTES }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for PacedReader<R> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.bytes_until_pause == 0 {
            this.bytes_until_pause = FRAME_BYTES;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Poll::Ready(bytes) = Pin::new(&mut this.reader).poll_fill_buf(context) else {
            this.bytes_until_pause = FRAME_BYTES;
            return Poll::Pending;
        };
        let bytes = bytes?;
        let fitting = &bytes[..bytes.len().min(this.bytes_until_pause).min(buffer.remaining())];
        let mut rest = fitting;
        // The payload of the frame that ends a turn is read in the next one. Without a payload, h2 visits no
        // streams.
        let mut heads = iter::from_fn(|| this.frames.next_head(&mut rest));
        let is_turn_over = heads.any(|head| matches!(head.kind, SETTINGS | GOAWAY));
        let count = fitting.len() - rest.len();
        buffer.put_slice(&fitting[..count]);
        Pin::new(&mut this.reader).consume(count);
        this.bytes_until_pause = if is_turn_over { 0 } else { this.bytes_until_pause - count };
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;
    use crate::coop::tests::count_polls;

    #[tokio::test]
    async fn reads_a_bounded_number_of_bytes_of_frames_in_a_poll() {
        let mut reader = PacedReader::new(tokio::io::repeat(b'x'));
        let mut room = vec![0; 8 * FRAME_BYTES];
        let reading = async {
            for part in room.chunks_mut(FRAME_BYTES + 1) {
                reader.read_exact(part).await.unwrap();
            }
        };
        assert_eq!(count_polls(reading).await, 8);
    }

    #[tokio::test]
    async fn reads_at_most_one_frame_for_which_all_streams_are_visited_in_a_poll() {
        const PING: u8 = 6;
        // More than the reader buffers, so that its buffer ends within a head.
        const FRAMES: usize = 1_000;
        for (kind, polls) in [(SETTINGS, FRAMES + 1), (GOAWAY, FRAMES + 1), (PING, 2)] {
            // 6 bytes follow the head.
            let frames = [0, 0, 6, kind, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, kind].repeat(FRAMES);
            let (mut reader, mut read) = (PacedReader::new(&frames[..]), Vec::new());
            assert_eq!(count_polls(reader.read_to_end(&mut read)).await, polls, "{kind}");
            assert!(read == frames, "{kind}");
            // However the bytes are cut.
            let (mut reader, mut read) = (PacedReader::new(&frames[..]), vec![0; frames.len()]);
            let reading = async {
                for part in read.chunks_mut(7) {
                    reader.read_exact(part).await.unwrap();
                }
            };
            assert_eq!(count_polls(reading).await, polls, "{kind}");
            assert!(read == frames, "{kind}");
        }
    }
}
