//! The socket of a connection, and how it closes.
//!
//! The side that closes a TCP connection first keeps its port for a minute (`TIME_WAIT`, RFC 9293, 3.3.2). A gateway closes
//! first when an exchange is given up, which a client brings about by leaving: five hundred of those a second would use up the
//! 28,000 ports that Linux has towards an address, and cut that service off from all others. So a connection whose exchange is
//! given up is reset, which frees its port at once. What the system has not sent yet is lost with it: the client has no answer
//! that says otherwise. A connection whose answer came to its end, one that was idle, and a tunnel close as usual.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::transport::connect::{Stream, tcp};

/// A socket that is reset when it is dropped, unless it may close. A new one may not.
pub(crate) struct Socket {
    stream: Stream,
    may_close: bool,
}

impl Socket {
    pub(super) fn new(stream: Stream) -> Self {
        Self { stream, may_close: false }
    }

    /// Whether it closes when it is dropped, or is reset.
    pub(super) fn may_close(&mut self, may_close: bool) {
        self.may_close = may_close;
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if !self.may_close {
            // Where that fails it closes as usual.
            let _ = tcp(&self.stream).set_zero_linger();
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
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
