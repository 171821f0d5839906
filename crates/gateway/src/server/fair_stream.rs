//! The transport of an HTTP/2 connection. It replays the bytes that were read to detect the version, cuts off
//! clients that read nothing of their responses, and makes clients that send much yield to others: bytes that
//! do not fit in a turn wait here. An HTTP/1.1 connection does this itself.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use super::WRITE_STALL_TIMEOUT;
use super::http2::{FrameCounts, FrameScanner};
use crate::limits::stall_timer::StallTimer;

/// A connection with a write timeout and fair reads.
pub(super) struct FairStream<S> {
    stream: S,
    /// The bytes that were read from the stream and not passed on.
    pending_input: Bytes,
    frames: FrameScanner,
    write_stall: StallTimer,
    traffic: Arc<FrameCounts>,
}

impl<S> FairStream<S> {
    pub(super) fn new(stream: S, begun: Vec<u8>, traffic: Arc<FrameCounts>) -> Self {
        Self {
            stream,
            pending_input: begun.into(),
            frames: FrameScanner::default(),
            write_stall: StallTimer::default(),
            traffic,
        }
    }

    /// Returns the result of a write, or a timeout if the client has read nothing for too long.
    fn check_write_stall<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.write_stall.end_stall();
        } else if self.write_stall.is_over(WRITE_STALL_TIMEOUT, context) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FairStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, pending_input: begun, frames, traffic, .. } = &mut *self;
        let Some(room) = traffic.remaining_turn() else {
            context.waker().wake_by_ref();
            return Poll::Pending;
        };
        if begun.is_empty() {
            let before = buffer.filled().len();
            ready!(Pin::new(&mut stream.take(room)).poll_read(context, buffer))?;
            let read = &buffer.filled()[before..];
            let scanned = frames.scan(read, room);
            *begun = Bytes::copy_from_slice(&read[scanned.bytes..]);
            buffer.set_filled(before + scanned.bytes);
            traffic.note_read(scanned);
        } else {
            let scanned = frames.scan(&begun[..begun.len().min(buffer.remaining())], room);
            buffer.put_slice(&begun.split_to(scanned.bytes));
            traffic.note_read(scanned);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FairStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.check_write_stall(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.check_write_stall(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.check_write_stall(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
