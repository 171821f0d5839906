//! Lingering close of a connection whose request was not read to its end.
//!
//! Closing a socket with unread bytes makes the system send a reset, and a reset makes the client's system
//! discard the response that it has not read yet, so that the client would never see a 413. So the write half
//! is closed first, and the bytes that the client still sends are read and discarded for a while.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use services::coop::CooperativeStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use crate::http_semantics::client::ConnectionContext;

/// The time that a client has to read the response and to stop sending.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
/// The number of bytes discarded at a time, and the pause after each read. A client that floods the gateway
/// with refused bodies is limited to 13 MB/s and does not slow down others.
const DISCARD_CHUNK: usize = 64 << 10;
const DISCARD_PAUSE: Duration = Duration::from_millis(5);

/// A connection with a lingering close, whose bytes count towards the budget of its task.
pub(super) struct LingeringConnection {
    stream: CooperativeStream<TcpStream>,
    connection: Arc<ConnectionContext>,
    deadline: Option<Pin<Box<Sleep>>>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl LingeringConnection {
    pub(super) fn new(stream: TcpStream, connection: Arc<ConnectionContext>, is_tls: bool) -> Self {
        let stream =
            if is_tls { CooperativeStream::for_tls_session(stream) } else { CooperativeStream::new(stream) };
        Self { stream, connection, deadline: None, pause: None }
    }

    /// Reads and discards bytes until the client is done or the time is up.
    fn poll_discard(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let until = self.deadline.get_or_insert_with(|| Box::pin(sleep(LINGER_TIMEOUT)));
        if until.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        let mut bytes = [const { MaybeUninit::uninit() }; DISCARD_CHUNK];
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(context));
            }
            let mut buffer = ReadBuf::uninit(&mut bytes);
            match ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => self.pause = Some(Box::pin(sleep(DISCARD_PAUSE))),
                _ => return Poll::Ready(()),
            }
        }
    }
}

impl AsyncRead for LingeringConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for LingeringConnection {
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
        slices: &[io::IoSlice<'_>],
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
        if self.deadline.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
        }
        if self.connection.has_unread_request() {
            ready!(self.poll_discard(context));
        }
        Poll::Ready(Ok(()))
    }
}
