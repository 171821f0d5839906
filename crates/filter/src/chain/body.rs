//! A body on its way through one filter: each piece is shown to the module and passed on when the module
//! allows it.
//!
//! Pieces that are ready together are shown together. While the module holds a body back, the body is shown
//! again with the added data once it has grown by an eighth, when it ends, or after a delay that doubles, so
//! that the bytes shown stay linear in the body's length. A body that exceeds `limits.buffer` fails the
//! exchange. Large pieces of a body that is not held back are not copied.
//!
//! A handler's response may be a single frame of megabytes. The module copies each piece, so a long frame
//! is shown in parts, each in a poll of its own.
//!
//! Trailers end a body. Without them the module sees the end in the last piece. With them Envoy calls
//! `on_request_trailers` instead, and a module without that callback never sees the end, which would release
//! a body that it holds back. So the end is shown in an empty piece first, unless the filter is strict and
//! its module exports the callback. Trailers follow when the module has released the body.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as _, Frame, SizeHint};
use services::body::BodyError;
use services::coop::TURN_BYTES;
use services::{StreamedServiceBody, ToProblem};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use crate::abi::{FilterAction, MessageSide};
use crate::context::StreamWaiter;
use crate::error::FilterFailure;
use crate::telemetry::increment;
use crate::vm::{BodyCallback, CallbackFuture, StreamHandle, TrailersCallback};

/// The time for which a response body may be held back when the request's own deadline has already passed.
const RESPONSE_HOLD_TIMEOUT: Duration = Duration::from_secs(30);
/// The minimum growth at which a held body is shown immediately, and the amount of small pieces to gather.
const MIN_GROWTH: usize = 16 << 10;
/// A held body is shown immediately when it has grown by one part in this many.
const GROWTH_DIVISOR: usize = 8;
/// The initial delay after which smaller growth is shown. It doubles until the body has grown enough.
const FIRST_DELAY: Duration = Duration::from_millis(1);

/// A body on its way through a filter.
pub(crate) struct FilteredBody {
    stream: StreamHandle,
    side: MessageSide,
    inner: StreamedServiceBody,
    /// The bytes of a long frame that have not been taken yet.
    remaining_frame: Bytes,
    /// Whether the body has yielded since it took the last part of a long frame.
    has_yielded: bool,
    is_paused: bool,
    /// Whether the inner body has been read to its end.
    is_ended: bool,
    /// The module has been called for the end of the body.
    is_end_shown: bool,
    /// Trailers that have arrived and have not been shown yet.
    trailers: Option<HeaderMap>,
    /// The failure of the inner body, deferred until the pieces before it have been passed on.
    error: Option<BodyError>,
    /// Whether the filter is bypassed from here on.
    is_bypassed: bool,
    /// Whether this filter counts the body's bytes, since no filter before it does.
    counts_bytes: bool,
    timer: Option<Pin<Box<Sleep>>>,
    /// Runs while a held body has grown only a little.
    growth_timer: Option<Pin<Box<Sleep>>>,
    growth_delay: Duration,
    /// The callback in flight.
    pending_callback: Option<CallbackFuture<FilterAction>>,
}

/// The error of a body whose exchange has ended. The exchange reports the reason.
#[derive(Debug, thiserror::Error)]
#[error("the exchange has ended")]
struct ExchangeEndedError;

impl FilteredBody {
    pub(crate) fn new(
        stream: &StreamHandle,
        side: MessageSide,
        inner: StreamedServiceBody,
        counts_bytes: bool,
    ) -> Self {
        Self {
            stream: stream.clone(),
            side,
            inner,
            remaining_frame: Bytes::new(),
            has_yielded: false,
            is_paused: false,
            is_ended: false,
            is_end_shown: false,
            trailers: None,
            error: None,
            is_bypassed: false,
            counts_bytes,
            timer: None,
            growth_timer: None,
            growth_delay: FIRST_DELAY,
            pending_callback: None,
        }
    }

    /// Resumes the body after the module has called `proxy_continue_stream`.
    pub(crate) fn resume(&mut self) {
        self.set_paused(false);
    }

    /// Shows the module the received data while it holds the head back. Ready when the state has to be
    /// checked again, with `true` if a body callback released the head. A module that does not read bodies is
    /// waiting for something else, so no more than the buffer limit is taken in that case.
    pub(crate) fn poll_held_head(&mut self, context: &mut Context<'_>) -> Poll<Result<bool, BodyError>> {
        if !self.is_calling() && (self.is_finished() || (!self.wants_body() && self.is_full())) {
            return Poll::Pending;
        }
        ready!(self.poll_callback(context))?;
        if self.wants_body() {
            self.check_length();
        }
        Poll::Ready(Ok(!self.stream.is_over(self.side) && !self.is_paused && self.wants_body()))
    }

    /// Whether the module has yet to return from a callback about this body.
    pub(crate) fn is_calling(&self) -> bool {
        self.pending_callback.is_some()
    }

    fn wants_body(&self) -> bool {
        self.stream.state().half(self.side).wants_body
    }

    /// Whether the buffer limit has been reached.
    fn is_full(&self) -> bool {
        self.stream.state().half(self.side).data.len() as u64 >= self.stream.spec.limits.buffer.0
    }

    /// Takes received pieces and calls the module, or continues the callback in flight.
    fn poll_callback(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        if !self.is_calling() {
            ready!(self.poll_start_callback(context))?;
        }
        if let Some(calling) = &mut self.pending_callback {
            let Poll::Ready(action) = Pin::new(calling).poll(context) else {
                // The module may still change the body until it has returned.
                self.stream.state().half(self.side).is_held = true;
                return Poll::Pending;
            };
            self.pending_callback = None;
            match action {
                Ok(action) => self.apply_action(action),
                // The instance is gone, so there is no action to apply.
                Err(_) => {
                    self.stream.note_lost_callback(self.side);
                    self.stream.state().half(self.side).is_held = self.is_paused;
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Takes received pieces and starts the callback that is due for them.
    fn poll_start_callback(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        let has_come = self.collect_frames(context)?;
        if self.is_bypassed {
            self.stream.state().half(self.side).unseen_bytes = 0;
            return if has_come { Poll::Ready(Ok(())) } else { Poll::Pending };
        }
        if !self.is_callback_due(context) {
            return Poll::Pending;
        }
        self.call_next();
        Poll::Ready(Ok(()))
    }

    /// Takes the pieces of the inner body that are ready, up to the amount that is shown at once. Returns
    /// `true` if there were any.
    fn collect_frames(&mut self, context: &mut Context<'_>) -> Result<bool, BodyError> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let mut has_come = false;
        while !self.is_ended && !self.has_enough_data() {
            match self.poll_inner(context) {
                Poll::Pending => break,
                Poll::Ready(Some(Ok(frame))) => self.add_frame(frame),
                Poll::Ready(Some(Err(error))) => {
                    let (seen, unseen) = self.seen_lengths();
                    if seen > 0 || unseen == 0 {
                        return Err(error);
                    }
                    self.error = Some(error);
                    return Ok(true);
                }
                Poll::Ready(None) => self.is_ended = true,
            }
            has_come = true;
        }
        Ok(has_come)
    }

    /// Returns the next frame of the inner body, or the next part of a long one after a yield.
    fn poll_inner(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.remaining_frame.is_empty() {
            return Pin::new(&mut self.inner).poll_frame(context);
        }
        if !std::mem::replace(&mut self.has_yielded, true) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.remaining_frame)))))
    }

    fn add_frame(&mut self, frame: Frame<Bytes>) {
        match frame.into_data() {
            Ok(mut piece) => {
                if piece.len() > TURN_BYTES {
                    self.remaining_frame = piece.split_off(TURN_BYTES);
                    self.has_yielded = false;
                }
                self.is_ended = self.remaining_frame.is_empty() && self.inner.is_end_stream();
                if !piece.is_empty() {
                    if self.counts_bytes {
                        self.stream.exchange.count_bytes(self.side, piece.len());
                    }
                    self.stream.state().half(self.side).push(piece);
                }
            }
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    self.is_ended = true;
                    // A trailer section without fields, e.g. after the client's were stripped, ends a body
                    // like no trailers.
                    self.trailers = Some(trailers).filter(|trailers| !trailers.is_empty());
                }
            }
        }
    }

    /// The number of bytes that the module has seen, and of those that it has not.
    fn seen_lengths(&self) -> (usize, usize) {
        let mut state = self.stream.state();
        let half = state.half(self.side);
        (half.seen_bytes(), half.unseen_bytes)
    }

    /// Whether enough data has arrived to be shown immediately.
    fn has_enough_data(&self) -> bool {
        let (seen, unseen) = self.seen_lengths();
        let is_full = || (seen + unseen) as u64 >= self.stream.spec.limits.buffer.0;
        unseen > 0 && (unseen >= MIN_GROWTH.max(seen / GROWTH_DIVISOR) || is_full())
    }

    /// Whether the module is to be called now.
    fn is_callback_due(&mut self, context: &mut Context<'_>) -> bool {
        if self.is_ended {
            return !self.is_finished();
        }
        let (seen, unseen) = self.seen_lengths();
        if unseen == 0 {
            return false;
        }
        if seen == 0 || self.has_enough_data() {
            self.growth_delay = FIRST_DELAY;
            return true;
        }
        // A client may wait for a response to the data sent so far, so the module has to see that as well.
        let delay = self.growth_delay;
        let timer = self.growth_timer.get_or_insert_with(|| Box::pin(sleep(delay)));
        if timer.as_mut().poll(context).is_pending() {
            return false;
        }
        self.growth_delay = delay.saturating_mul(2);
        true
    }

    /// Whether no callback is left, or none before the module releases the body.
    fn is_finished(&self) -> bool {
        self.is_ended && self.is_end_shown && (self.is_paused || self.trailers.is_none())
    }

    /// Starts the next callback: for a piece, for the end of the body, or for the trailers.
    fn call_next(&mut self) {
        self.growth_timer = None;
        let has_callback = self.trailers.is_some() && self.stream.features.reads_trailers(self.side);
        if !self.is_ended || (has_callback && self.seen_lengths().1 > 0) {
            return self.call_body(false);
        }
        let is_body_over = self.is_end_shown || (has_callback && !self.stream.is_lenient());
        self.is_end_shown = true;
        if is_body_over { self.call_trailers() } else { self.call_body(true) }
    }

    fn call_body(&mut self, is_end: bool) {
        let size = {
            let mut state = self.stream.state();
            let half = state.half(self.side);
            (half.is_open, half.unseen_bytes) = (true, 0);
            u32::try_from(half.data.len()).unwrap_or(u32::MAX)
        };
        let (stream, side) = (Arc::clone(&self.stream), self.side);
        self.pending_callback = Some(self.stream.enter(BodyCallback { stream, side, size, is_end }));
    }

    /// Stores the trailers and shows them to a module that has a callback for them.
    fn call_trailers(&mut self) {
        let Some(trailers) = self.trailers.take() else { return };
        let count = u32::try_from(trailers.len()).unwrap_or(u32::MAX);
        self.stream.state().half(self.side).trailers = Some(trailers);
        if self.stream.features.reads_trailers(self.side) {
            let (stream, side) = (Arc::clone(&self.stream), self.side);
            self.pending_callback = Some(self.stream.enter(TrailersCallback { stream, side, count }));
        }
    }

    fn apply_action(&mut self, action: FilterAction) {
        let resumed = self.stream.take_resumed(self.side);
        self.set_paused(action == FilterAction::Pause && !resumed);
        if self.is_paused {
            self.check_length();
        }
    }

    fn set_paused(&mut self, paused: bool) {
        self.is_paused = paused;
        self.timer = None;
        self.stream.state().half(self.side).is_held = paused;
    }

    /// Fails the exchange if too much is held back.
    fn check_length(&self) {
        let limit = self.stream.spec.limits.buffer.0;
        let length = self.stream.state().half(self.side).data.len() as u64;
        if length > limit {
            let filter = Arc::clone(&self.stream.spec.name);
            self.stream.fail(match self.side {
                MessageSide::Request => FilterFailure::RequestTooLarge { filter, limit },
                MessageSide::Response => FilterFailure::ResponseTooLarge { filter, limit },
            });
        }
    }

    /// Polls a held body: for more data, up to its end, and for the timeout.
    fn poll_held(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        if !self.is_finished() && self.poll_callback(context)?.is_ready() {
            return Poll::Ready(Ok(()));
        }
        self.poll_timeout(context).map(Ok)
    }

    /// Fails the exchange after the timeout.
    fn poll_timeout(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let deadline = self.stream.exchange.deadline();
        let side = self.side;
        let timer = self.timer.get_or_insert_with(|| {
            let later = Instant::now() + RESPONSE_HOLD_TIMEOUT;
            let until = if side == MessageSide::Request { deadline } else { deadline.max(later) };
            Box::pin(sleep_until(until))
        });
        ready!(timer.as_mut().poll(context));
        self.stream.fail(FilterFailure::Paused(Arc::clone(&self.stream.spec.name)));
        Poll::Ready(())
    }

    /// Whether calls are in flight that the request has to wait for.
    fn waits_for_calls(&self) -> bool {
        self.side == MessageSide::Request && self.stream.is_lenient() && self.stream.state().awaited_calls > 0
    }

    /// Bypasses the filter or ends the body if the filter's stream is over.
    fn check_stream_over(&mut self) -> Result<(), BodyError> {
        if self.is_bypassed || !self.stream.is_over(self.side) {
            return Ok(());
        }
        let (is_cut_off, is_ended, failed) = {
            let state = self.stream.state();
            let is_ended = state.local_response.is_some() || state.failure.is_some() || state.is_closed;
            (state.is_cut_off(self.side), is_ended, state.failure.clone())
        };
        if is_cut_off {
            return Err(ExchangeEndedError.into());
        }
        if is_ended || !self.stream.is_bypassed() {
            // Before the response head has left, the exchange reports the failure.
            if self.stream.exchange.messages().response_has_left {
                increment(&self.stream.spec.stats.failed_requests);
                failed.iter().for_each(|failed| self.log_failure(failed));
            }
            return Err(ExchangeEndedError.into());
        }
        increment(&self.stream.spec.stats.bypassed_requests);
        self.is_bypassed = true;
        self.stream.state().half(self.side).unseen_bytes = 0;
        self.set_paused(false);
        Ok(())
    }

    /// Logs a failure that can no longer be reported to the client.
    fn log_failure(&self, failed: &FilterFailure) {
        let filter = &*self.stream.spec.name;
        tracing::warn!(target: "filter", filter, code = failed.code(), "a response is cut short: {failed}");
    }

    fn waiter(&self) -> StreamWaiter {
        match self.side {
            MessageSide::Request => StreamWaiter::Request,
            MessageSide::Response => StreamWaiter::Response,
        }
    }
}

impl http_body::Body for FilteredBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        this.stream.register(this.waiter(), context.waker());
        loop {
            this.check_stream_over()?;
            if this.is_calling() {
                ready!(this.poll_callback(context))?;
                continue;
            }
            if this.is_paused && !this.is_bypassed {
                if this.stream.take_resumed(this.side) {
                    this.set_paused(false);
                } else {
                    ready!(this.poll_held(context))?;
                }
                continue;
            }
            if !this.is_bypassed && this.waits_for_calls() {
                ready!(this.poll_timeout(context));
                continue;
            }
            // Callbacks of calls may have been refused something since the body was released.
            if !this.is_bypassed && this.side == MessageSide::Request && !this.stream.release_request() {
                continue;
            }
            if !this.is_bypassed && this.is_end_shown && this.trailers.is_some() {
                this.call_next();
                continue;
            }
            let mut state = this.stream.state();
            let half = state.half(this.side);
            let seen = half.seen_bytes();
            if seen > 0 {
                return Poll::Ready(Some(Ok(Frame::data(half.data.split_to(seen)))));
            }
            if this.is_ended && (this.is_end_shown || this.is_bypassed) {
                let trailers = half.trailers.take().or_else(|| this.trailers.take());
                let trailers = trailers.filter(|trailers| !trailers.is_empty());
                return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
            }
            drop(state);
            ready!(this.poll_callback(context))?;
        }
    }

    fn is_end_stream(&self) -> bool {
        let mut state = self.stream.state();
        let half = state.half(self.side);
        let is_shown = self.is_end_shown || self.is_bypassed;
        let has_trailers = self.trailers.is_some() || half.trailers.is_some();
        self.is_ended
            && is_shown
            && !self.is_paused
            && !self.is_calling()
            && half.data.is_empty()
            && !has_trailers
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// The outermost wrapper of a message: its first piece, which was awaited before the head was sent, and the
/// rest.
pub(crate) struct HeldMessage {
    pub(crate) first_frame: Option<Frame<Bytes>>,
    pub(crate) remaining_body: StreamedServiceBody,
    /// The number of bytes left, if it is known.
    pub(crate) remaining_length: Option<u64>,
}

impl HeldMessage {
    /// Wraps a body, with its length if the first piece is the whole body.
    pub(crate) fn new(
        first_frame: Option<Frame<Bytes>>,
        remaining_body: StreamedServiceBody,
        announced: Option<u64>,
    ) -> Self {
        let piece = first_frame.as_ref().map(|frame| frame.data_ref().map_or(0, Bytes::len) as u64);
        let remaining_length =
            if remaining_body.is_end_stream() { Some(piece.unwrap_or(0)) } else { announced };
        Self { first_frame, remaining_body, remaining_length }
    }
}

impl http_body::Body for HeldMessage {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = match self.first_frame.take() {
            Some(first) => first,
            None => match ready!(Pin::new(&mut self.remaining_body).poll_frame(context)?) {
                Some(frame) => frame,
                None => return Poll::Ready(None),
            },
        };
        if let (Some(length), Some(data)) = (&mut self.remaining_length, frame.data_ref()) {
            *length = length.saturating_sub(data.len() as u64);
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.first_frame.is_none() && self.remaining_body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.remaining_length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
