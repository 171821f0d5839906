//! A body on its way through one filter: each piece is shown to the module, and goes on when it lets it.
//!
//! While the module says PAUSE, pieces are collected and shown again with each new one; over `limits.buffer`
//! the exchange fails. Nothing is copied of a body that is not held back.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use services::body::Error;
use services::{Body, Problem};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::abi::{Action, Side};
use crate::callbacks::{BodyCallback, TrailersCallback};
use crate::entry::CallbackFuture;
use crate::problem::Failed;
use crate::stats::count;
use crate::stream::{Stream, Waiter};

/// How long an answer's body may be held back, where the request's own time is over already.
const PATIENCE: Duration = Duration::from_secs(30);

/// A body on its way through a filter.
pub(crate) struct Filtered {
    stream: Arc<Stream>,
    side: Side,
    inner: Body,
    paused: bool,
    /// All of the inner body is here.
    ended: bool,
    /// The filter is left out from here on.
    skipped: bool,
    /// Nobody before it counts the body's bytes.
    counts: bool,
    timer: Option<Pin<Box<Sleep>>>,
    /// The callback under way.
    calling: Option<CallbackFuture<Action>>,
}

/// The exchange has ended, and this body with it. The exchange says why.
#[derive(Debug, thiserror::Error)]
#[error("a filter ended the exchange")]
struct Ended;

impl Filtered {
    pub(crate) fn new(stream: &Arc<Stream>, side: Side, inner: Body, counts: bool) -> Self {
        let (stream, paused, ended, skipped) = (Arc::clone(stream), false, false, false);
        Self { stream, side, inner, paused, ended, skipped, counts, timer: None, calling: None }
    }

    /// The module said by other means that it may go on.
    pub(crate) fn resume(&mut self) {
        self.set_paused(false);
    }

    /// Shows the module what has come while it holds the head back. Ready when there is something to look at:
    /// `true` if it was the body that made it let go. What a module waits for that does not look at bodies is
    /// something else, so no more is taken then than may be held back.
    pub(crate) fn gather(&mut self, context: &mut Context<'_>) -> Poll<Result<bool, Error>> {
        if !self.is_calling() && (self.ended || (!self.asks() && self.is_full())) {
            return Poll::Pending;
        }
        ready!(self.pull(context))?;
        if self.asks() {
            self.check_length();
        }
        Poll::Ready(Ok(!self.stream.is_over() && !self.paused && self.asks()))
    }

    /// Whether the module has yet to return from a callback about this body.
    pub(crate) fn is_calling(&self) -> bool {
        self.calling.is_some()
    }

    fn asks(&self) -> bool {
        self.stream.state().half(self.side).asks
    }

    /// Whether as much is held back as may be.
    fn is_full(&self) -> bool {
        self.stream.state().half(self.side).data.len() as u64 >= self.stream.spec.limits.buffer.0
    }

    /// Takes one piece of the inner body and tells the module, or goes on with telling it.
    fn pull(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if !self.is_calling() {
            ready!(self.take(context))?;
        }
        if let Some(calling) = &mut self.calling {
            let Poll::Ready(action) = Pin::new(calling).poll(context) else {
                // Until the module has returned nobody knows what it makes of the body.
                self.stream.state().half(self.side).held = true;
                return Poll::Pending;
            };
            self.calling = None;
            match action {
                Ok(action) => self.follow(action),
                // What is gone has nothing to say.
                Err(_) => self.stream.state().half(self.side).held = self.paused,
            }
        }
        Poll::Ready(Ok(()))
    }

    fn take(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context)?);
        let Some(frame) = frame else {
            self.ended = true;
            self.tell_piece(true);
            return Poll::Ready(Ok(()));
        };
        match frame.into_data() {
            Ok(piece) => {
                self.ended = self.inner.is_end_stream();
                if !piece.is_empty() || self.ended {
                    if self.counts {
                        self.stream.exchange.count(self.side, piece.len());
                    }
                    self.stream.state().half(self.side).push(piece);
                    self.tell_piece(self.ended);
                }
            }
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    self.ended = true;
                    self.stream.state().half(self.side).trailers = Some(trailers);
                    self.tell_trailers();
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    fn tell_piece(&mut self, is_end: bool) {
        if self.skipped {
            return;
        }
        let size = {
            let mut state = self.stream.state();
            let half = state.half(self.side);
            half.open = true;
            u32::try_from(half.data.len()).unwrap_or(u32::MAX)
        };
        let (stream, side) = (Arc::clone(&self.stream), self.side);
        self.calling = Some(self.stream.enter(BodyCallback { stream, side, size, is_end }));
    }

    fn tell_trailers(&mut self) {
        if self.skipped {
            return;
        }
        let count = {
            let mut state = self.stream.state();
            let half = state.half(self.side);
            half.trailers.as_ref().map_or(0, |trailers| u32::try_from(trailers.len()).unwrap_or(u32::MAX))
        };
        let (stream, side) = (Arc::clone(&self.stream), self.side);
        self.calling = Some(self.stream.enter(TrailersCallback { stream, side, count }));
    }

    fn follow(&mut self, action: Action) {
        let resumed = self.stream.take_resumed(self.side);
        self.set_paused(action == Action::Pause && !resumed);
        if self.paused {
            self.check_length();
        }
    }

    fn set_paused(&mut self, paused: bool) {
        self.paused = paused;
        self.timer = None;
        self.stream.state().half(self.side).held = paused;
    }

    /// Fails the exchange if too much is held back.
    fn check_length(&self) {
        let limit = self.stream.spec.limits.buffer.0;
        let length = self.stream.state().half(self.side).data.len() as u64;
        if length > limit {
            let filter = Arc::clone(&self.stream.spec.name);
            self.stream.fail(match self.side {
                Side::Request => Failed::RequestTooLarge { filter, limit },
                Side::Response => Failed::ResponseTooLarge { filter, limit },
            });
        }
    }

    /// What happens while the body is held back: more of it comes, up to its end; or the time is up.
    fn poll_held(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if !self.ended && self.pull(context)?.is_ready() {
            return Poll::Ready(Ok(()));
        }
        self.poll_time(context).map(Ok)
    }

    /// Fails the exchange once the time is up.
    fn poll_time(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let deadline = self.stream.exchange.deadline();
        let side = self.side;
        let timer = self.timer.get_or_insert_with(|| {
            let later = Instant::now() + PATIENCE;
            let until = if side == Side::Request { deadline } else { deadline.max(later) };
            Box::pin(sleep_until(until))
        });
        ready!(timer.as_mut().poll(context));
        self.stream.fail(Failed::Paused(Arc::clone(&self.stream.spec.name)));
        Poll::Ready(())
    }

    /// Whether calls are under way that the request has to wait for.
    fn waits(&self) -> bool {
        self.side == Side::Request && self.stream.is_lenient() && self.stream.state().waiting > 0
    }

    /// Leaves the filter out, or ends the body, if something is over.
    fn check_over(&mut self) -> Result<(), Error> {
        if self.skipped || !self.stream.is_over() {
            return Ok(());
        }
        let (is_dead, is_ended, failed) = {
            let state = self.stream.state();
            let is_ended = state.local.is_some() || state.failed.is_some() || state.closed;
            (state.dead, is_ended, state.failed.clone())
        };
        if !is_dead || is_ended || !self.stream.is_skipped() {
            // Before that, it is the exchange that counts.
            if self.stream.exchange.messages().has_left {
                count(&self.stream.spec.stats.failed);
                failed.iter().for_each(|failed| self.tell(failed));
            }
            return Err(Ended.into());
        }
        count(&self.stream.spec.stats.bypassed);
        self.skipped = true;
        self.set_paused(false);
        Ok(())
    }

    /// Tells the log what the client can't be told any more.
    fn tell(&self, failed: &Failed) {
        let filter = &*self.stream.spec.name;
        tracing::warn!(target: "filter", filter, code = failed.code(), "an answer is cut short: {failed}");
    }

    fn waiter(&self) -> Waiter {
        match self.side {
            Side::Request => Waiter::Request,
            Side::Response => Waiter::Response,
        }
    }
}

impl http_body::Body for Filtered {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        this.stream.register(this.waiter(), context.waker());
        loop {
            this.check_over()?;
            if this.is_calling() {
                ready!(this.pull(context))?;
                continue;
            }
            if this.paused && !this.skipped {
                if this.stream.take_resumed(this.side) {
                    this.set_paused(false);
                } else {
                    ready!(this.poll_held(context))?;
                }
                continue;
            }
            if !this.skipped && this.waits() {
                ready!(this.poll_time(context));
                continue;
            }
            let mut state = this.stream.state();
            let half = state.half(this.side);
            if !half.data.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut half.data)))));
            }
            if this.ended {
                let trailers = half.trailers.take().filter(|trailers| !trailers.is_empty());
                return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
            }
            drop(state);
            ready!(this.pull(context))?;
        }
    }

    fn is_end_stream(&self) -> bool {
        let mut state = self.stream.state();
        let half = state.half(self.side);
        self.ended && !self.paused && !self.is_calling() && half.data.is_empty() && half.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// The last wrapper of a message: its first piece, which was waited for before the head was sent, and the rest.
pub(crate) struct Held {
    pub(crate) first: Option<Frame<Bytes>>,
    pub(crate) rest: Body,
    /// How long it is, where that is known.
    pub(crate) length: Option<u64>,
}

impl Held {
    /// With its length, if the first piece is all there is.
    pub(crate) fn new(first: Option<Frame<Bytes>>, rest: Body, announced: Option<u64>) -> Self {
        let piece = first.as_ref().map(|frame| frame.data_ref().map_or(0, Bytes::len) as u64);
        let length = if rest.is_end_stream() { Some(piece.unwrap_or(0)) } else { announced };
        Self { first, rest, length }
    }
}

impl http_body::Body for Held {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = match self.first.take() {
            Some(first) => first,
            None => match ready!(Pin::new(&mut self.rest).poll_frame(context)?) {
                Some(frame) => frame,
                None => return Poll::Ready(None),
            },
        };
        if let (Some(length), Some(data)) = (&mut self.length, frame.data_ref()) {
            *length = length.saturating_sub(data.len() as u64);
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
