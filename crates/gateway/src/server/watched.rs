//! A connection as HTTP reads and writes it, watched: what was read to find out its version comes first,
//! who is too slow is cut off, and requests of HTTP/1.1 that could be read in two ways are noted.
//!
//! After an upgrade the bytes belong to whoever passes them on, and no longer to the connection's task.
//! That task waits for them all the same, so that they hold up a drain, and cuts them off when its time is
//! up: this, which goes with the bytes, tells it that they have ended, and is told to end them.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::framing::Framing;
use super::stall::Stall;
use crate::client::Link;

/// How long the head of a request may take once it has begun. One that is on its way comes in one piece or
/// two; who sends it byte by byte wants to hold the connection.
const HEAD: Duration = Duration::from_secs(10);
/// How long a client may take nothing of its answer: longer than a phone is in a tunnel.
const UNREAD: Duration = Duration::from_secs(60);

/// What is written in one piece: the system takes longer over two than copying them takes.
const SMALL: usize = 2 << 10;

/// A watched connection.
pub(super) struct Watched<S> {
    stream: S,
    begun: Vec<u8>,
    link: Arc<Link>,
    /// HTTP/2 has frames and needs none.
    framing: Option<Framing>,
    head: Stall,
    unread: Stall,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, begun: Vec<u8>, is_http2: bool, link: Arc<Link>) -> Self {
        let framing = (!is_http2).then(Framing::default);
        Self { stream, begun, link, framing, head: Stall::default(), unread: Stall::default() }
    }

    /// These bytes go on to be read.
    fn follow(&mut self, bytes: &[u8]) {
        let Some(framing) = self.framing.as_mut().filter(|_| !self.link.is_upgraded()) else { return };
        framing.follow(bytes);
        if let Some(request) = framing.doubtful() {
            self.link.doubt(request);
        }
        if !framing.is_in_head() {
            self.head.end();
        }
    }

    /// Why nothing more is waited for.
    fn impatience(&mut self, context: &mut Context<'_>) -> Option<io::ErrorKind> {
        if self.link.is_upgraded() {
            return self.link.is_cut(context).then_some(io::ErrorKind::ConnectionAborted);
        }
        let is_in_head = self.framing.as_ref().is_some_and(Framing::is_in_head);
        (is_in_head && self.head.is_over(HEAD, context)).then_some(io::ErrorKind::TimedOut)
    }

    /// A write, unless the client has read nothing for too long.
    fn written<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.unread.end();
        } else if self.unread.is_over(UNREAD, context) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        written
    }
}

/// Slices of no more than [`SMALL`] bytes, as one.
fn joined(slices: &[io::IoSlice<'_>]) -> [u8; SMALL] {
    let (mut joined, mut length) = ([0; SMALL], 0);
    for slice in slices {
        joined[length..length + slice.len()].copy_from_slice(slice);
        length += slice.len();
    }
    joined
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        if self.begun.is_empty() {
            let read = Pin::new(&mut self.stream).poll_read(context, buffer);
            if read.is_pending()
                && let Some(reason) = self.impatience(context)
            {
                return Poll::Ready(Err(reason.into()));
            }
            ready!(read)?;
        } else {
            let length = self.begun.len().min(buffer.remaining());
            buffer.put_slice(&self.begun[..length]);
            self.begun = self.begun.split_off(length);
        }
        self.follow(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length: usize = slices.iter().map(|slice| slice.len()).sum();
        let written = match slices {
            [_, _, ..] if length <= SMALL => {
                Pin::new(&mut self.stream).poll_write(context, &joined(slices)[..length])
            }
            _ => Pin::new(&mut self.stream).poll_write_vectored(context, slices),
        };
        self.written(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.written(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl<S> Drop for Watched<S> {
    fn drop(&mut self) {
        self.link.note_end();
    }
}
