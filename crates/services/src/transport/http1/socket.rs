//! The socket of a connection, which controls how it closes.
//!
//! The side that closes a TCP connection first keeps its port for a minute (`TIME_WAIT`, RFC 9293, section
//! 3.3.2). The gateway closes first when an exchange is cancelled, which clients cause by disconnecting. Five
//! hundred cancelled exchanges per second would use up the 28,000 ports that Linux has for one destination
//! address, and cut the service off from all other clients. A connection with a cancelled exchange is
//! therefore reset, which frees its port at once. Unsent data in the socket is lost, which contradicts no
//! response: the client has received none. Connections with a complete response, idle connections and tunnels
//! close normally.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::transport::connect::{TransportStream, tcp_stream};

/// A socket that is reset on drop, unless it is marked for a normal close. New sockets are not.
pub(crate) struct ResettingSocket {
    stream: TransportStream,
    closes_normally: bool,
}

impl ResettingSocket {
    pub(super) fn new(stream: TransportStream) -> Self {
        Self { stream, closes_normally: false }
    }

    /// Sets whether dropping closes the socket normally, instead of resetting it.
    pub(super) fn set_close_normally(&mut self, may_close: bool) {
        self.closes_normally = may_close;
    }
}

impl Drop for ResettingSocket {
    fn drop(&mut self) {
        if !self.closes_normally {
            // If this fails, the socket closes normally.
            let _ = tcp_stream(&self.stream).set_zero_linger();
        }
    }
}

impl AsyncRead for ResettingSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for ResettingSocket {
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
