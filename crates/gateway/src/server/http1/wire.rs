//! The connection itself, and the request body that arrives on it.
//!
//! The handler reads the body, possibly on another task, while the connection's task writes the response and
//! waits for the next request. They share the connection and hold the lock for one read or write at a time,
//! and never while polling another body, which might poll this one in turn.

use std::future::poll_fn;
use std::io;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use services::body::{BodyError, empty};
use services::http1::{BodyDecoder, BodyFraming, BodyPart, ReceiveBuffer};
use services::{RewoundStream, StreamedServiceBody};
use tokio::io::{AsyncRead, AsyncWrite};

use super::head::{self, RequestHead};
use crate::http_semantics::client::ClientInfo;
use crate::http_semantics::request_refusal::RequestRefusal;

/// The interim response for a client that waits for it before it sends the body (RFC 9110, 15.2.1).
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// The maximum number of chunks of an unread body that are discarded, so that the connection can stay open.
const MAX_DISCARDED: usize = 1000;

/// The connection, shared between its task and a request's body.
pub(super) struct SharedConnection<S>(Arc<Mutex<Http1Wire<S>>>);

struct Http1Wire<S> {
    /// `None` once the connection is closed for reads and writes.
    stream: Option<S>,
    input: ReceiveBuffer,
    /// The number of empty lines before the next request.
    empty_lines: usize,
    /// The decoder of the current request's body.
    decoder: BodyDecoder,
    /// The number of the current request. Bodies of earlier requests may still exist, and must not read.
    request_number: u64,
    /// Whether the current request's body may still be read.
    has_reader: bool,
    /// The rest of the interim response to write before the body is read, and whether written bytes are not
    /// flushed yet.
    interim: &'static [u8],
    needs_flush: bool,
    /// The task that waits until the body is read or dropped, to detect a disconnect from then on.
    watcher: Option<Waker>,
    /// The task that waits for more of the body. The connection's task may read it first.
    reader: Option<Waker>,
}

/// The limits for reading ahead, in bytes.
#[derive(Clone, Copy)]
pub(super) struct ReadAheadLimits {
    pub(super) body_limit: usize,
    pub(super) pipelined_limit: usize,
}

/// The body of a request.
struct Http1RequestBody<S> {
    shared: SharedConnection<S>,
    /// The number of the request.
    request_number: u64,
    client: ClientInfo,
}

/// The connection, as the writer of a response.
pub(super) struct ResponseWriter<'a, S>(pub(super) &'a SharedConnection<S>);

#[derive(Debug, thiserror::Error)]
#[error("the connection ended")]
struct ConnectionClosed;

impl<S> SharedConnection<S> {
    pub(super) fn new(stream: S, begun: &[u8]) -> Self {
        let mut input = ReceiveBuffer::with_request_limits();
        input.append_bytes(begun);
        Self(Arc::new(Mutex::new(Http1Wire {
            stream: Some(stream),
            input,
            empty_lines: 0,
            decoder: BodyDecoder::Done,
            request_number: 0,
            has_reader: false,
            interim: &[],
            needs_flush: false,
            watcher: None,
            reader: None,
        })))
    }

    /// Ignores poisoning, since no code panics halfway through a change under the lock.
    fn lock(&self) -> MutexGuard<'_, Http1Wire<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no byte of the next request has arrived.
    pub(super) fn is_between_requests(&self) -> bool {
        self.lock().input.is_empty()
    }

    /// Shrinks the input buffer while the connection is idle.
    pub(super) fn shrink_input(&self) {
        let input = &mut self.lock().input;
        input.use_short_reads(false);
        input.shrink();
    }

    /// Whether the connection can serve another request: the request's body has arrived to its end, or may
    /// still be read to it.
    pub(super) fn can_keep_alive(&self) -> bool {
        let is_read_later = {
            let wire = self.lock();
            wire.has_reader && !matches!(wire.decoder, BodyDecoder::Failed(_))
        };
        is_read_later || self.discard_to_end()
    }

    /// Whether the request's body has arrived to its end. Discards the unread part of it.
    pub(super) fn discard_to_end(&self) -> bool {
        let Http1Wire { decoder, input, request_number: turn, .. } = &mut *self.lock();
        if *decoder != BodyDecoder::Done {
            // A body that still exists sees a broken-off body, and not its end.
            *turn += 1;
        }
        for _ in 0..MAX_DISCARDED {
            match decoder.next(input) {
                Ok(BodyPart::End) => return true,
                Ok(BodyPart::NeedsInput) | Err(_) => return false,
                Ok(BodyPart::Data(_) | BodyPart::Trailers(_)) => {}
            }
        }
        *decoder == BodyDecoder::Done
    }

    /// Whether the number of unread bytes is below the limit, for the body or for the bytes after it. Before
    /// the end of the body, the task is woken once it is read or dropped: until then, only its reader may be
    /// woken by the socket.
    pub(super) fn may_read_ahead(&self, limits: ReadAheadLimits, context: &Context<'_>) -> bool {
        let mut wire = self.lock();
        let is_body = wire.decoder != BodyDecoder::Done;
        if is_body {
            wire.watcher.get_or_insert_with(|| context.waker().clone()).clone_from(context.waker());
        }
        wire.input.bytes().len() < if is_body { limits.body_limit } else { limits.pipelined_limit }
    }

    /// Returns the unwritten rest of `100 Continue`. If none of it was written, it is no longer needed.
    pub(super) fn take_interim(&self) -> &'static [u8] {
        let mut wire = self.lock();
        // The response is flushed anyway.
        wire.needs_flush = false;
        let interim = mem::take(&mut wire.interim);
        if interim.len() == CONTINUE.len() { &[] } else { interim }
    }
}

impl<S> SharedConnection<S> {
    /// Closes the connection for all its users.
    pub(super) fn close(&self) {
        self.lock().stream = None;
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> SharedConnection<S> {
    /// Reads until the next request's head is complete. Returns it, or an error if it is invalid; `None` if
    /// the client sends no more requests.
    pub(super) fn poll_head(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Result<RequestHead, RequestRefusal>>>> {
        let mut guard = self.lock();
        let wire = &mut *guard;
        loop {
            if let Some(request_head) = head::read_head(&mut wire.input, &mut wire.empty_lines) {
                // The body of the earlier request ends here, if it still exists.
                wire.request_number += 1;
                wire.empty_lines = 0;
                return Poll::Ready(Ok(Some(request_head)));
            }
            let more = ready!(wire.poll_more(context))?;
            wire.reader.take().into_iter().for_each(Waker::wake);
            if !more {
                return Poll::Ready(Ok(None));
            }
        }
    }

    /// Reads more bytes. Returns `false` at the end.
    pub(super) fn poll_more(&self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut wire = self.lock();
        let more = ready!(wire.poll_more(context));
        wire.reader.take().into_iter().for_each(Waker::wake);
        Poll::Ready(more)
    }

    /// Closes the write side. Discards unread input, since this may wait for a client that is still sending.
    pub(super) async fn shutdown(&self) -> io::Result<()> {
        self.lock().input = ReceiveBuffer::default();
        poll_fn(|context| match &mut self.lock().stream {
            Some(stream) => Pin::new(stream).poll_shutdown(context),
            None => Poll::Ready(Ok(())),
        })
        .await
    }

    /// Takes the connection, which is no longer HTTP, together with the bytes that were read from it already.
    pub(super) fn take_stream(&self) -> Option<RewoundStream<S>> {
        let mut wire = self.lock();
        // The emptied input would hold its buffer for as long as the tunnel.
        let begun = mem::take(&mut wire.input).take_all();
        Some(RewoundStream::new(wire.stream.take()?, begun))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> SharedConnection<S> {
    /// The body of the request whose head was read last.
    pub(super) fn request_body(
        &self,
        framing: BodyFraming,
        expects_continue: bool,
        client: &ClientInfo,
    ) -> StreamedServiceBody {
        if framing == BodyFraming::Length(0) {
            return empty();
        }
        let mut wire = self.lock();
        wire.decoder = BodyDecoder::new(framing);
        wire.has_reader = true;
        wire.interim = if expects_continue && wire.input.is_empty() { CONTINUE } else { &[] };
        let (shared, turn) = (Self(Arc::clone(&self.0)), wire.request_number);
        Http1RequestBody { shared, request_number: turn, client: client.clone() }.boxed_unsync()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Http1Wire<S> {
    fn poll_more(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        match &mut self.stream {
            Some(stream) => self.input.poll_more(stream, context),
            None => Poll::Ready(Ok(false)),
        }
    }

    /// Writes the interim response and flushes only that: flushing a response would wait for the client to
    /// read it.
    fn poll_interim(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.needs_flush && self.interim.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let Some(stream) = &mut self.stream else { return Poll::Ready(Ok(())) };
        while !self.interim.is_empty() {
            let written = ready!(Pin::new(&mut *stream).poll_write(context, self.interim))?;
            self.interim = &self.interim[written..];
            self.needs_flush = true;
        }
        ready!(Pin::new(stream).poll_flush(context))?;
        self.needs_flush = false;
        Poll::Ready(Ok(()))
    }

    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Frame<Bytes>>, BodyError>> {
        ready!(self.poll_interim(context))?;
        let Some(stream) = &mut self.stream else { return Poll::Ready(Err(ConnectionClosed.into())) };
        self.decoder.poll_frame(&mut self.input, stream, context)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> http_body::Body for Http1RequestBody<S> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut wire = self.shared.lock();
        if wire.request_number != self.request_number {
            return Poll::Ready(Some(Err(ConnectionClosed.into())));
        }
        wire.input.use_short_reads(self.client.has_many_body_bytes());
        let Poll::Ready(next) = wire.poll_frame(context) else {
            wire.reader.get_or_insert_with(|| context.waker().clone()).clone_from(context.waker());
            return Poll::Pending;
        };
        if wire.decoder == BodyDecoder::Done {
            wire.watcher.take().into_iter().for_each(Waker::wake);
        }
        Poll::Ready(next.transpose())
    }

    fn is_end_stream(&self) -> bool {
        let wire = self.shared.lock();
        wire.request_number == self.request_number && wire.decoder == BodyDecoder::Done
    }

    fn size_hint(&self) -> SizeHint {
        let wire = self.shared.lock();
        if wire.request_number == self.request_number {
            wire.decoder.size_hint()
        } else {
            SizeHint::default()
        }
    }
}

impl<S> Drop for Http1RequestBody<S> {
    fn drop(&mut self) {
        let mut wire = self.shared.lock();
        if wire.request_number == self.request_number {
            wire.has_reader = false;
            wire.watcher.take().into_iter().for_each(Waker::wake);
        }
    }
}

impl<S: AsyncWrite + Unpin> ResponseWriter<'_, S> {
    fn poll_stream<T>(
        &mut self,
        ask: impl FnOnce(Pin<&mut S>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match &mut self.0.lock().stream {
            Some(stream) => ask(Pin::new(stream)),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ResponseWriter<'_, S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_stream(|stream| stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_stream(|stream| stream.poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_stream(|stream| stream.poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_stream(|stream| stream.poll_shutdown(context))
    }
}
