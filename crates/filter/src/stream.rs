//! A stream context: one exchange as one filter has it, with what its module has said of it so far.
//!
//! Host functions write here, from whichever callback; the exchange and its bodies read it, and are woken when
//! there is something new. Locks are held for moments, and never while the module runs.

use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::Waker;

use bytes::{Bytes, BytesMut};
use futures_util::task::AtomicWaker;
use http::{HeaderMap, StatusCode};

use crate::abi::Side;
use crate::callbacks::EndStream;
use crate::config::{Dialect, OnRefusal, OnTrap};
use crate::entry::{CallbackFuture, EntryError, ModuleCallback, Target};
use crate::filters::lock;
use crate::messages::Exchange;
use crate::module::Has;
use crate::plugin::Spec;
use crate::problem::Failed;
use crate::slot::Slot;
use crate::stats::count;

/// A stream context.
pub(crate) struct Stream {
    pub(crate) id: u32,
    /// The root context of the same filter in the same instance.
    pub(crate) root: u32,
    pub(crate) spec: Arc<Spec>,
    pub(crate) exchange: Arc<Exchange>,
    pub(crate) has: Has,
    pub(crate) slot: Weak<Slot>,
    /// Which of the slot's instances knows it.
    pub(crate) generation: u64,
    pub(crate) state: Mutex<State>,
    /// Of the exchange, the request's body, the response's body.
    wakers: [AtomicWaker; 3],
}

/// A stream of an exchange. The stream ends when it is dropped.
pub(crate) struct StreamGuard(pub(crate) Arc<Stream>);

impl std::ops::Deref for StreamGuard {
    type Target = Arc<Stream>;

    fn deref(&self) -> &Arc<Stream> {
        &self.0
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        // What is gone already has no end to be told of.
        let Some(slot) = self.0.slot.upgrade() else { return };
        let Self(stream) = self;
        match slot.try_take() {
            Some(mut state) if !stream.has.end => state.forget(stream.generation, stream.id),
            Some(state) => {
                let end = EndStream(Arc::clone(stream));
                drop(CallbackFuture::begin(state, Target::Generation(stream.generation), end));
            }
            None => drop(stream.enter(EndStream(Arc::clone(stream)))),
        }
    }
}

/// Who waits for news of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waiter {
    Exchange = 0,
    Request = 1,
    Response = 2,
}

/// What its module has said.
#[derive(Default)]
pub(crate) struct State {
    /// Its own answer, to be sent.
    pub(crate) local: Option<Local>,
    /// It has answered: the first answer counts.
    pub(crate) answered: bool,
    /// The instance that knew it is gone.
    pub(crate) dead: bool,
    /// The instance is gone by a trap in one of its own callbacks, and not in that of another request.
    pub(crate) trapped: bool,
    /// It ended the exchange.
    pub(crate) closed: bool,
    /// The host ends the exchange, on its account.
    pub(crate) failed: Option<Failed>,
    /// Calls that it waits for, gRPC streams not among them; and all that it has made.
    pub(crate) waiting: u32,
    pub(crate) calls: u32,
    /// How often it said that the request may go on: calls that it made before are waited for no more.
    pub(crate) era: u32,
    /// In the callback under way it was refused a call or a response of its own, and has made none since.
    pub(crate) refused: bool,
    /// Bytes of headers that it has written.
    pub(crate) written: usize,
    pub(crate) halves: [Half; 2],
}

/// One of the two messages.
#[derive(Default)]
pub(crate) struct Half {
    /// What the module may see of the body: the last piece, with all that is held back before it.
    pub(crate) data: Bytes,
    /// How many bytes at the end of `data` no callback about the body has shown yet.
    pub(crate) unseen: usize,
    /// It asked to see the body while it holds the head back.
    pub(crate) asks: bool,
    /// Whether the body's callbacks have begun: before, there is no body to see.
    pub(crate) open: bool,
    /// The module said that it may go on: since its last callback about the message began, which has a say as well.
    pub(crate) resumed: bool,
    /// The module said so of the head, which waits for it whatever callbacks about the body come in between.
    pub(crate) head_resumed: bool,
    /// The module has changed the body.
    pub(crate) changed: bool,
    /// The body is held back.
    pub(crate) held: bool,
    pub(crate) trailers: Option<HeaderMap>,
}

/// An answer of the module's own.
#[derive(Clone, Debug)]
pub(crate) struct Local {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) details: String,
}

/// What becomes of an exchange, as far as one filter has a say in it.
pub(crate) enum Verdict {
    /// Nothing is in the way.
    Go,
    /// The filter answers itself.
    Answer(Local),
    /// It ends with a problem.
    Fail(Failed),
    /// One of its callbacks trapped, and its filter is one to go on without.
    Skip,
}

impl Stream {
    pub(crate) fn new(
        (id, root): (u32, u32),
        spec: &Arc<Spec>,
        exchange: &Arc<Exchange>,
        has: Has,
        (slot, generation): (Weak<Slot>, u64),
    ) -> Arc<Self> {
        let (spec, exchange) = (Arc::clone(spec), Arc::clone(exchange));
        let wakers = [AtomicWaker::new(), AtomicWaker::new(), AtomicWaker::new()];
        Arc::new(Self { id, root, spec, exchange, has, slot, generation, state: Mutex::default(), wakers })
    }

    /// Makes a callback in the instance that has it.
    pub(crate) fn enter<C: ModuleCallback>(&self, callback: C) -> CallbackFuture<C::Output> {
        match self.slot.upgrade() {
            Some(slot) => slot.enter(Target::Generation(self.generation), callback),
            None => CallbackFuture::failed(EntryError::Gone),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(crate) fn is_lenient(&self) -> bool {
        self.spec.dialect == Dialect::Lenient
    }

    /// Whom to tell of news.
    pub(crate) fn register(&self, waiter: Waiter, waker: &Waker) {
        if let Some(place) = self.wakers.get(waiter as usize) {
            place.register(waker);
        }
    }

    /// There is something new.
    pub(crate) fn wake(&self) {
        self.wakers.iter().for_each(AtomicWaker::wake);
    }

    /// Its instance is gone.
    pub(crate) fn die(&self) {
        self.state().dead = true;
        self.wake();
    }

    /// Ends the exchange with a problem, unless it has one already.
    pub(crate) fn fail(&self, failed: Failed) {
        self.state().failed.get_or_insert(failed);
        self.wake();
    }

    /// What the module, or its end, asks for. Its own answer is given away once.
    pub(crate) fn verdict(&self) -> Verdict {
        let mut state = self.state();
        if let Some(local) = state.local.take() {
            count(&self.spec.stats.local_responses);
            return Verdict::Answer(local);
        }
        if let Some(failed) = &state.failed {
            return Verdict::Fail(failed.clone());
        }
        if state.dead {
            let has_trapped = state.trapped;
            drop(state);
            return match (has_trapped, self.spec.on_trap) {
                (true, OnTrap::Open) => Verdict::Skip,
                (false, _) if self.is_finished() => Verdict::Go,
                _ => Verdict::Fail(Failed::Trapped(Arc::clone(&self.spec.name))),
            };
        }
        if state.closed {
            return Verdict::Fail(Failed::Closed(Arc::clone(&self.spec.name)));
        }
        Verdict::Go
    }

    /// Whether its module has let all go that it is shown of the exchange.
    fn is_finished(&self) -> bool {
        let sees_more =
            self.has.response_headers || self.has.body(Side::Request) || self.has.body(Side::Response);
        !sees_more && self.exchange.messages().has_request_left()
    }

    /// Whether the exchange goes on without it: one of its own callbacks trapped, and its filter is `on_trap: open`.
    pub(crate) fn is_skipped(&self) -> bool {
        let state = self.state();
        state.dead && state.trapped && self.spec.on_trap == OnTrap::Open
    }

    /// Whether there is a verdict other than to go on.
    pub(crate) fn is_over(&self) -> bool {
        let state = self.state();
        state.local.is_some() || state.failed.is_some() || state.dead || state.closed
    }

    /// Whether there is anything in the way of a head that the module has just let go.
    pub(crate) fn has_news(&self) -> bool {
        let state = self.state();
        let is_over = state.local.is_some() || state.failed.is_some() || state.dead || state.closed;
        is_over || state.waiting > 0
    }

    /// Whether the module said that it may go on, since it was last asked.
    pub(crate) fn take_resumed(&self, side: Side) -> bool {
        std::mem::take(&mut self.state().half(side).resumed)
    }

    /// Whether the module said that the head may go on, since it was last asked.
    pub(crate) fn take_head_resumed(&self, side: Side) -> bool {
        std::mem::take(&mut self.state().half(side).head_resumed)
    }

    /// A callback about a message begins: what the module said before is not about it. Only whoever is in the
    /// instance says so, since callbacks that wait for it may still let go what came before.
    pub(crate) fn begin_callback(&self, side: Side, is_head: bool) {
        let mut state = self.state();
        let half = state.half(side);
        half.resumed = false;
        half.head_resumed &= !is_head;
    }

    /// The module said that a message may go on, whatever calls of its are still under way.
    pub(crate) fn resume(&self, side: Side) {
        let mut state = self.state();
        let half = state.half(side);
        (half.resumed, half.head_resumed) = (true, true);
        if side == Side::Request {
            self.check_refusal(&mut state);
            state.waiting = 0;
            state.era = state.era.wrapping_add(1);
        }
        drop(state);
        self.wake();
    }

    /// The module lets the request go on by what it returns.
    pub(crate) fn let_go(&self) {
        self.check_refusal(&mut self.state());
    }

    /// Ends the exchange where the module lets a request pass although it was refused what it asked for: whether it may
    /// pass, or to answer it.
    fn check_refusal(&self, state: &mut State) {
        if state.refused && !state.answered && self.spec.on_refusal == OnRefusal::Closed {
            state.failed.get_or_insert_with(|| Failed::Refused(Arc::clone(&self.spec.name)));
        }
    }

    /// A call that was made in this era is over: one less to wait for, if it is waited for at all.
    pub(crate) fn end_call(&self, era: Option<u32>) {
        let mut state = self.state();
        if era == Some(state.era) {
            state.waiting = state.waiting.saturating_sub(1);
        }
    }

    /// Counts headers that the module writes; `false` if they are too many.
    pub(crate) fn may_write(&self, bytes: usize) -> bool {
        let mut state = self.state();
        state.written = state.written.saturating_add(bytes);
        state.written <= crate::message::MAX_BYTES
    }
}

impl State {
    pub(crate) fn half(&mut self, side: Side) -> &mut Half {
        let [request, response] = &mut self.halves;
        match side {
            Side::Request => request,
            Side::Response => response,
        }
    }
}

impl Half {
    /// How many bytes a callback about the body has shown.
    pub(crate) fn seen(&self) -> usize {
        self.data.len().saturating_sub(self.unseen)
    }

    /// One more piece. Nothing is copied where nothing is held back.
    pub(crate) fn push(&mut self, piece: Bytes) {
        self.unseen += piece.len();
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
