//! The connection itself, and the body that comes on it.
//!
//! Who reads the body is the handler, perhaps on another task; who writes the answer and waits for the next
//! request is the connection's own. So they share it, and hold the lock for one read or write at a time: never
//! while something else is asked for more, which may ask for the body in its turn.

use std::future::poll_fn;
use std::io::{self, Cursor};
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use services::Body;
use services::body::{Error, empty};
use services::http1::{Decoder, Framing, Input, Part};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, join, split};

use super::head::{self, Head};
use crate::refusal::Refusal;

/// What a client is told that waits for it before it sends the body (RFC 9110, 15.2.1).
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The connection, as its task and a request's body have it.
pub(super) struct Shared<S>(Arc<Mutex<Wire<S>>>);

struct Wire<S> {
    /// `None` once nobody may read or write any longer.
    stream: Option<S>,
    input: Input,
    /// Where the body ends of the request that is being answered.
    decoder: Decoder,
    /// Which request's body may be read: an earlier one's may still be in somebody's hands.
    turn: u64,
    /// Whether this request's body may still be read.
    has_reader: bool,
    /// What is to be said before the body is read, and whether some of it has yet to leave.
    interim: &'static [u8],
    owes_flush: bool,
    /// Who waits for the body's end, to see from then on whether the client is there.
    watcher: Option<Waker>,
    /// Who waits for more of the body: the connection's own task may read it first.
    reader: Option<Waker>,
}

/// How much is read ahead.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    pub(super) of_body: usize,
    pub(super) of_rest: usize,
}

/// The body of a request, and whose turn it is.
struct Incoming<S>(Shared<S>, u64);

/// The connection as an answer is written to it.
pub(super) struct Writer<'a, S>(pub(super) &'a Shared<S>);

#[derive(Debug, thiserror::Error)]
#[error("the connection ended")]
struct Gone;

impl<S> Shared<S> {
    pub(super) fn new(stream: S, begun: &[u8]) -> Self {
        let mut input = Input::default();
        input.put(begun);
        Self(Arc::new(Mutex::new(Wire {
            stream: Some(stream),
            input,
            decoder: Decoder::Done,
            turn: 0,
            has_reader: false,
            interim: &[],
            owes_flush: false,
            watcher: None,
            reader: None,
        })))
    }

    /// Nothing that holds it can panic half-way through a change.
    fn lock(&self) -> MutexGuard<'_, Wire<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing of the next request is there.
    pub(super) fn is_between(&self) -> bool {
        self.lock().input.is_empty()
    }

    /// Nothing goes on for now.
    pub(super) fn rest(&self) {
        self.lock().input.shrink();
    }

    /// Whether the request's body is there to its end, or may still be read to it: the connection can stay.
    pub(super) fn may_stay(&self) -> bool {
        let is_read_later = {
            let wire = self.lock();
            wire.has_reader && !matches!(wire.decoder, Decoder::Refused(_))
        };
        is_read_later || self.is_read()
    }

    /// Whether the request's body is there to its end. What has come of it and nobody wanted is passed over.
    pub(super) fn is_read(&self) -> bool {
        let Wire { decoder, input, turn, .. } = &mut *self.lock();
        if *decoder != Decoder::Done {
            // Whoever still has it finds it broken off, and not ended.
            *turn += 1;
        }
        while *decoder != Decoder::Done {
            match decoder.next(input) {
                Ok(Part::More) | Err(_) => return false,
                Ok(Part::Data(_) | Part::Trailers(_) | Part::End) => {}
            }
        }
        true
    }

    /// Whether not too much is there that nobody has read: of the body, or of what follows it. While there is too
    /// much of the body, whoever asks is woken once that is read.
    pub(super) fn is_ahead_by_less_than(&self, most: Ahead, context: &Context<'_>) -> bool {
        let mut wire = self.lock();
        let is_body = wire.decoder != Decoder::Done;
        let is_less = wire.input.bytes().len() < if is_body { most.of_body } else { most.of_rest };
        if is_body && !is_less {
            wire.watcher.get_or_insert_with(|| context.waker().clone()).clone_from(context.waker());
        }
        is_less
    }

    /// What is left to write of `100 Continue`; if it was not begun, it is no longer due.
    pub(super) fn end_of_interim(&self) -> &'static [u8] {
        let mut wire = self.lock();
        // The answer's own flush will do.
        wire.owes_flush = false;
        let interim = mem::take(&mut wire.interim);
        if interim.len() == CONTINUE.len() { &[] } else { interim }
    }
}

impl<S> Shared<S> {
    /// Closes the connection, whoever else has it.
    pub(super) fn close(&self) {
        self.lock().stream = None;
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Shared<S> {
    /// Reads until the next request's head is there: it, or why what came is none; `None` where no other comes.
    pub(super) fn poll_head(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Result<Head, Refusal>>>> {
        let mut wire = self.lock();
        loop {
            if let Some(found) = head::read(&mut wire.input) {
                // An earlier request's body, if somebody still has it, is over.
                wire.turn += 1;
                return Poll::Ready(Ok(Some(found)));
            }
            let more = ready!(wire.poll_more(context))?;
            wire.reader.take().into_iter().for_each(Waker::wake);
            if !more {
                return Poll::Ready(Ok(None));
            }
        }
    }

    /// Reads more; `false` at the end.
    pub(super) fn poll_more(&self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut wire = self.lock();
        let more = ready!(wire.poll_more(context));
        wire.reader.take().into_iter().for_each(Waker::wake);
        Poll::Ready(more)
    }

    /// Says that nothing more will be written. What was read and nobody took is forgotten: this may wait for a client
    /// that still sends.
    pub(super) async fn shutdown(&self) -> io::Result<()> {
        self.lock().input = Input::default();
        poll_fn(|context| match &mut self.lock().stream {
            Some(stream) => Pin::new(stream).poll_shutdown(context),
            None => Poll::Ready(Ok(())),
        })
        .await
    }

    /// The connection, which is no longer one of HTTP, with what was read of it already.
    pub(super) fn take(&self) -> Option<impl AsyncRead + AsyncWrite + Unpin + use<S>> {
        let mut wire = self.lock();
        let begun = Cursor::new(wire.input.take_all());
        let (reader, writer) = split(wire.stream.take()?);
        Some(join(begun.chain(reader), writer))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Shared<S> {
    /// The body of the request whose head came last.
    pub(super) fn body(&self, framing: Framing, expects_continue: bool) -> Body {
        if framing == Framing::Length(0) {
            return empty();
        }
        let mut wire = self.lock();
        wire.decoder = Decoder::new(framing);
        wire.has_reader = true;
        wire.interim = if expects_continue && wire.input.is_empty() { CONTINUE } else { &[] };
        Incoming(Self(Arc::clone(&self.0)), wire.turn).boxed_unsync()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    fn poll_more(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        match &mut self.stream {
            Some(stream) => self.input.poll_more(stream, context),
            None => Poll::Ready(Ok(false)),
        }
    }

    /// Says it, and flushes nothing else: that would wait for whoever reads the answer.
    fn poll_interim(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.owes_flush && self.interim.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let Some(stream) = &mut self.stream else { return Poll::Ready(Ok(())) };
        while !self.interim.is_empty() {
            let written = ready!(Pin::new(&mut *stream).poll_write(context, self.interim))?;
            self.interim = &self.interim[written..];
            self.owes_flush = true;
        }
        ready!(Pin::new(stream).poll_flush(context))?;
        self.owes_flush = false;
        Poll::Ready(Ok(()))
    }

    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Frame<Bytes>>, Error>> {
        ready!(self.poll_interim(context))?;
        let Some(stream) = &mut self.stream else { return Poll::Ready(Err(Gone.into())) };
        self.decoder.poll_frame(&mut self.input, stream, context)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> http_body::Body for Incoming<S> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let mut wire = self.0.lock();
        if wire.turn != self.1 {
            return Poll::Ready(Some(Err(Gone.into())));
        }
        let Poll::Ready(next) = wire.poll_frame(context) else {
            wire.reader.get_or_insert_with(|| context.waker().clone()).clone_from(context.waker());
            return Poll::Pending;
        };
        if wire.decoder == Decoder::Done {
            wire.watcher.take().into_iter().for_each(Waker::wake);
        }
        Poll::Ready(next.transpose())
    }

    fn is_end_stream(&self) -> bool {
        let wire = self.0.lock();
        wire.turn == self.1 && wire.decoder == Decoder::Done
    }

    fn size_hint(&self) -> SizeHint {
        let wire = self.0.lock();
        if wire.turn == self.1 { wire.decoder.size_hint() } else { SizeHint::default() }
    }
}

impl<S> Drop for Incoming<S> {
    fn drop(&mut self) {
        let mut wire = self.0.lock();
        if wire.turn == self.1 {
            wire.has_reader = false;
        }
    }
}

impl<S: AsyncWrite + Unpin> Writer<'_, S> {
    fn poll<T>(&mut self, ask: impl FnOnce(Pin<&mut S>) -> Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match &mut self.0.lock().stream {
            Some(stream) => ask(Pin::new(stream)),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Writer<'_, S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll(|stream| stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll(|stream| stream.poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(|stream| stream.poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(|stream| stream.poll_shutdown(context))
    }
}
