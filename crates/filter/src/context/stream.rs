//! A stream context: one exchange in one filter, with the signals of its module so far.
//!
//! Host functions write here, from any callback. The exchange and its bodies read the state, and are woken
//! when it changes. Locks are held briefly, and never while the module runs.

use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

use bytes::{Bytes, BytesMut};
use futures_util::task::AtomicWaker;
use http::{HeaderMap, StatusCode};
use offload::QuotaKey;

use super::plugin::PluginSpec;
use crate::abi::{MessageSide, ModuleFeatures};
use crate::config::{HostDialect, OnRefusal, OnTrap};
use crate::error::FilterFailure;
use crate::exchange::FilterExchange;
use crate::sync::lock;
use crate::telemetry::increment;

/// A stream context.
pub(crate) struct StreamContext {
    pub(crate) id: u32,
    /// The root context of the same filter in the same instance.
    pub(crate) root: u32,
    pub(crate) spec: Arc<PluginSpec>,
    pub(crate) exchange: Arc<FilterExchange>,
    pub(crate) features: ModuleFeatures,
    pub(crate) state: Mutex<StreamState>,
    /// The wakers of the exchange, the request's body and the response's body.
    wakers: [AtomicWaker; 3],
}

/// The futures that wait for changes of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StreamWaiter {
    Exchange = 0,
    Request = 1,
    Response = 2,
}

/// The signals of the module.
#[derive(Default)]
pub(crate) struct StreamState {
    /// The module's own response, not sent yet.
    pub(crate) local_response: Option<LocalResponse>,
    /// Whether the module has given a response. Only the first one counts.
    pub(crate) has_responded: bool,
    /// Whether the instance with this context is gone.
    pub(crate) is_dead: bool,
    /// Whether the instance trapped in a callback of this stream, rather than of another one.
    pub(crate) has_trapped: bool,
    /// Whether the module closed the stream.
    pub(crate) is_closed: bool,
    /// Whether the exchange has ended. Its module sees no more of it.
    pub(crate) is_ended: bool,
    /// The failure with which the host ends the exchange because of this filter.
    pub(crate) failure: Option<FilterFailure>,
    /// The number of calls that the stream waits for, without gRPC streams; and the number of all its calls.
    pub(crate) awaited_calls: u32,
    pub(crate) call_count: u32,
    /// The number of times that the module resumed the request. Calls made before are no longer awaited.
    pub(crate) resume_count: u32,
    /// Whether the host has refused the module a call or a local response in a callback about the request.
    pub(crate) is_refused: bool,
    /// Whether the module's last callback was about the response, or about a call made in such a callback.
    pub(crate) in_response: bool,
    /// The number of bytes of headers that the module has written.
    pub(crate) written_bytes: usize,
    pub(crate) halves: [HalfStream; 2],
}

/// The state of one of the two messages.
#[derive(Default)]
pub(crate) struct HalfStream {
    /// The part of the body that the module may see: the last piece and everything held back before it.
    pub(crate) data: Bytes,
    /// The number of bytes at the end of `data` that no body callback has shown yet.
    pub(crate) unseen_bytes: usize,
    /// Whether the module has read the body while it holds the head back.
    pub(crate) wants_body: bool,
    /// Whether the body's callbacks have begun. Before that the body can't be read.
    pub(crate) is_open: bool,
    /// Whether the module has resumed the message since its last callback for the message began.
    pub(crate) is_resumed: bool,
    /// Whether the module has resumed the message since the headers callback began, regardless of body
    /// callbacks.
    pub(crate) is_head_resumed: bool,
    /// Whether the module has changed the body.
    pub(crate) is_changed: bool,
    /// Whether the body is held back.
    pub(crate) is_held: bool,
    pub(crate) trailers: Option<HeaderMap>,
}

/// A local response of the module.
#[derive(Clone, Debug)]
pub(crate) struct LocalResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) details: String,
}

/// The effect of one filter on its exchange.
pub(crate) enum FilterVerdict {
    /// The exchange continues.
    Continue,
    /// The filter answers the request.
    Respond(LocalResponse),
    /// The exchange ends with a problem.
    Fail(FilterFailure),
    /// The filter is bypassed: one of its own callbacks trapped, and it has `on_trap: open`.
    Bypass,
}

impl StreamContext {
    pub(crate) fn new(
        (id, root): (u32, u32),
        spec: &Arc<PluginSpec>,
        exchange: &Arc<FilterExchange>,
        has: ModuleFeatures,
    ) -> Arc<Self> {
        let (spec, exchange) = (Arc::clone(spec), Arc::clone(exchange));
        let wakers = [AtomicWaker::new(), AtomicWaker::new(), AtomicWaker::new()];
        Arc::new(Self { id, root, spec, exchange, features: has, state: Mutex::default(), wakers })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, StreamState> {
        lock(&self.state)
    }

    /// The client whose request this is.
    pub(crate) fn payer(&self) -> QuotaKey {
        self.exchange.call.quota_key()
    }

    pub(crate) fn is_lenient(&self) -> bool {
        self.spec.dialect == HostDialect::Lenient
    }

    /// Registers a waker.
    pub(crate) fn register(&self, waiter: StreamWaiter, waker: &Waker) {
        if let Some(place) = self.wakers.get(waiter as usize) {
            place.register(waker);
        }
    }

    /// Wakes all waiting futures.
    pub(crate) fn wake(&self) {
        self.wakers.iter().for_each(AtomicWaker::wake);
    }

    /// Ends the exchange with a problem, unless it has one already.
    pub(crate) fn fail(&self, failed: FilterFailure) {
        self.state().failure.get_or_insert(failed);
        self.wake();
    }

    /// Returns the current effect on the exchange. A local response is returned once.
    pub(crate) fn verdict(&self) -> FilterVerdict {
        let mut state = self.state();
        if let Some(local) = state.local_response.take() {
            increment(&self.spec.stats.local_responses);
            return FilterVerdict::Respond(local);
        }
        if let Some(failed) = &state.failure {
            return FilterVerdict::Fail(failed.clone());
        }
        if state.is_dead {
            let has_trapped = state.has_trapped;
            drop(state);
            return match (has_trapped, self.spec.on_trap) {
                (true, OnTrap::Open) => FilterVerdict::Bypass,
                (false, _) if self.is_finished() => FilterVerdict::Continue,
                _ => FilterVerdict::Fail(FilterFailure::Trapped(Arc::clone(&self.spec.name))),
            };
        }
        if state.is_closed {
            return FilterVerdict::Fail(FilterFailure::Closed(Arc::clone(&self.spec.name)));
        }
        FilterVerdict::Continue
    }

    /// Whether the module has released everything that it is shown of the exchange.
    fn is_finished(&self) -> bool {
        let sees_more = self.features.response_headers
            || self.features.reads_body(MessageSide::Request)
            || self.features.reads_body(MessageSide::Response);
        !sees_more && self.exchange.messages().has_request_left()
    }

    /// Whether the filter is bypassed: one of its own callbacks trapped, and it has `on_trap: open`.
    pub(crate) fn is_bypassed(&self) -> bool {
        let state = self.state();
        state.is_dead && state.has_trapped && self.spec.on_trap == OnTrap::Open
    }

    /// Whether there is a verdict other than to continue, or no more of this message passes.
    pub(crate) fn is_over(&self, side: MessageSide) -> bool {
        let state = self.state();
        state.has_verdict() || state.is_cut_off(side)
    }

    /// Ends the exchange if a callback about a message has no result and there is no other reason to end it:
    /// the callback's task panicked. The message would pass unseen.
    pub(crate) fn note_lost_callback(&self, side: MessageSide) {
        if !self.is_over(side) {
            self.fail(FilterFailure::Trapped(Arc::clone(&self.spec.name)));
        }
    }

    /// Whether anything blocks a head that the module has just released.
    pub(crate) fn is_head_blocked(&self) -> bool {
        let state = self.state();
        state.has_verdict() || state.awaited_calls > 0
    }

    /// Whether the module has resumed the message since the last call.
    pub(crate) fn take_resumed(&self, side: MessageSide) -> bool {
        std::mem::take(&mut self.state().half(side).is_resumed)
    }

    /// Whether the module has resumed the head since the last call.
    pub(crate) fn take_head_resumed(&self, side: MessageSide) -> bool {
        std::mem::take(&mut self.state().half(side).is_head_resumed)
    }

    /// Starts a callback about a message, which resets earlier signals. Must only be called inside the
    /// instance, since queued callbacks may still release earlier parts.
    pub(crate) fn begin_callback(&self, side: MessageSide, is_head: bool) {
        let mut state = self.state();
        state.in_response = side == MessageSide::Response;
        let half = state.half(side);
        half.is_resumed = false;
        half.is_head_resumed &= !is_head;
    }

    /// Resumes a message, even if the module's calls are still in flight.
    pub(crate) fn resume(&self, side: MessageSide) {
        let mut state = self.state();
        let half = state.half(side);
        (half.is_resumed, half.is_head_resumed) = (true, true);
        if side == MessageSide::Request {
            self.check_refusal(&mut state);
            state.awaited_calls = 0;
            state.resume_count = state.resume_count.wrapping_add(1);
        }
        drop(state);
        self.wake();
    }

    /// Lets the request go on once the module has released it, or ends the exchange if the host refused the
    /// module a call or a local response. Returns whether the request goes on.
    pub(crate) fn release_request(&self) -> bool {
        let goes_on = self.check_refusal(&mut self.state());
        if !goes_on {
            self.wake();
        }
        goes_on
    }

    /// Ends the exchange if the module lets a request pass although the host refused its call or its local
    /// response. Only a local response settles a refusal: a call made later may have another purpose.
    fn check_refusal(&self, state: &mut StreamState) -> bool {
        let is_refused =
            state.is_refused && !state.has_responded && self.spec.on_refusal == OnRefusal::Closed;
        if is_refused {
            state.failure.get_or_insert_with(|| FilterFailure::Refused(Arc::clone(&self.spec.name)));
        }
        !is_refused
    }

    /// Ends the wait for a call that was made at this `resume_count`, unless the stream was resumed since.
    pub(crate) fn end_call(&self, resume_count: Option<u32>) {
        let mut state = self.state();
        if resume_count == Some(state.resume_count) {
            state.awaited_calls = state.awaited_calls.saturating_sub(1);
        }
    }

    /// Counts header bytes that the module writes. Returns `false` if the limit is exceeded.
    pub(crate) fn count_written_bytes(&self, bytes: usize) -> bool {
        let mut state = self.state();
        state.written_bytes = state.written_bytes.saturating_add(bytes);
        state.written_bytes <= crate::exchange::message::MAX_EXCHANGE_BYTES
    }
}

impl StreamState {
    /// Whether there is a verdict other than to continue.
    fn has_verdict(&self) -> bool {
        self.local_response.is_some() || self.failure.is_some() || self.is_dead || self.is_closed
    }

    /// Whether no more of a message passes: the exchange has ended, or the module has answered the request.
    pub(crate) fn is_cut_off(&self, side: MessageSide) -> bool {
        self.is_ended || (side == MessageSide::Request && self.has_responded)
    }

    pub(crate) fn half(&mut self, side: MessageSide) -> &mut HalfStream {
        let [request, response] = &mut self.halves;
        match side {
            MessageSide::Request => request,
            MessageSide::Response => response,
        }
    }
}

impl HalfStream {
    /// The number of bytes that a body callback has shown.
    pub(crate) fn seen_bytes(&self) -> usize {
        self.data.len().saturating_sub(self.unseen_bytes)
    }

    /// Appends a piece. It is not copied if nothing is held back.
    pub(crate) fn push(&mut self, piece: Bytes) {
        self.unseen_bytes += piece.len();
        if self.data.is_empty() {
            self.data = piece;
            return;
        }
        let held = std::mem::take(&mut self.data);
        let mut held = held.try_into_mut().unwrap_or_else(|shared| {
            let mut own = BytesMut::with_capacity((shared.len() + piece.len()).next_power_of_two());
            own.extend_from_slice(&shared);
            own
        });
        held.extend_from_slice(&piece);
        self.data = held.freeze();
    }
}
