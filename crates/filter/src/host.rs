//! The host data of an instance, and the host functions that modules call.
//!
//! The functions are in `host/`, one file per topic. Each returns a [`HostResult`], with a status for the
//! module. Pointers are checked in `host/memory.rs` and nowhere else.

mod buffers;
mod calls;
mod foreign;
mod grpc;
mod headers;
mod link;
mod memory;
mod properties;
mod refusals;
mod share;
mod system;
mod wasi;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bytes::Bytes;
use foldhash::fast::RandomState;
use http::{HeaderMap, StatusCode};
use offload::polls::{PollSite, watch_polls};
use sandbox::{Caller, GuestResult, Memory, ResourceLimiter};
use tokio::task::AbortHandle;

use crate::abi::HostStatus;
use crate::callbacks::TimerTick;
use crate::clock::CallbackClock;
use crate::entry::CallbackTarget;
use crate::filters::lock;
use crate::observe::FilterEvent;
use crate::plugin::PluginSpec;
use crate::shim;
use crate::slot::InstanceSlot;
use crate::stream::StreamContext;
use crate::vm::VmCore;

#[cfg(test)]
pub(crate) use calls::MAX_DETACHED;
pub(crate) use calls::PendingCall;
pub(crate) use link::{GIVING, add, halves};
use memory::ModuleAllocation;
#[cfg(test)]
pub(crate) use properties::parse as parse_property;
pub(crate) use refusals::RefusalLog;

/// The maximum number of entries of a module's table.
const TABLE_ELEMENTS: usize = 1 << 20;
/// The maximum number of tables and of memories: each could have the maximum size.
const TABLES: usize = 16;
const MEMORIES: usize = 1;
/// The number of streams, and of calls, that end in one poll when their instance is gone.
pub(crate) const ENDED_AT_ONCE: usize = 1024;

/// The host data of an instance.
pub(crate) struct FilterHost {
    pub(crate) core: Arc<VmCore>,
    pub(crate) slot: Weak<InstanceSlot>,
    pub(crate) generation: u64,
    pub(crate) memory: Option<Memory>,
    /// Data to be given to the module once its allocator has returned memory for it. The allocator itself
    /// can't use such functions.
    pub(crate) gift: Option<ModuleAllocation>,
    pub(crate) contexts: HashMap<u32, ModuleContext, RandomState>,
    /// The effective context, by its id.
    pub(crate) current: Option<(u32, ModuleContext)>,
    /// The context in which the callback in flight began, even if the module has changed the effective one.
    entered: u32,
    /// The context that made the call whose response the callback in flight delivers.
    delivering: Option<u32>,
    /// Whether a request's first callback has completed.
    pub(crate) has_served: bool,
    pub(crate) phase: RootPhase,
    /// The data that the callback in flight is about.
    pub(crate) received: ReceivedData,
    pub(crate) calls: calls::PendingCalls,
    /// The filter that an instance is created for, before there are contexts.
    pub(crate) starting: Option<Arc<PluginSpec>>,
    /// Streams whose module called `proxy_done` and that are about to end.
    pub(crate) ended: Vec<u32>,
    /// Streams whose module has not finished with them.
    lingering: VecDeque<u32>,
    pub(crate) clock: CallbackClock,
    pub(crate) room: InstanceMemoryLimit,
    /// Output to stdout and stderr since the last end of a line.
    lines: [Vec<u8>; 2],
    /// Scratch space for data that is given to the module.
    scratch: Vec<u8>,
    last_context: u32,
    /// Whether ids have wrapped around.
    has_wrapped: bool,
}

/// A context of the module.
#[derive(Clone)]
pub(crate) enum ModuleContext {
    Root(Arc<RootContext>),
    Stream(Arc<StreamContext>),
}

/// A root context: a filter in an instance.
pub(crate) struct RootContext {
    pub(crate) id: u32,
    pub(crate) spec: Arc<PluginSpec>,
    /// Milliseconds between ticks; 0 for none.
    pub(crate) period: AtomicU64,
    timer: Mutex<Option<AbortHandle>>,
}

/// The phase of a root context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RootPhase {
    Starting,
    Configuring,
    Serving,
}

/// Received data that the callback in flight reads.
#[derive(Default)]
pub(crate) struct ReceivedData {
    /// The head of a call's response, including `:status`; or initial metadata.
    pub(crate) head: Option<http::response::Parts>,
    /// Whether the head is that of a call that failed.
    has_failed: bool,
    pub(crate) metadata: HeaderMap,
    pub(crate) trailers: HeaderMap,
    pub(crate) body: Bytes,
    /// The status of a gRPC call, and its message.
    pub(crate) status: (u32, Bytes),
    /// The arguments of a foreign function.
    pub(crate) arguments: Bytes,
}

/// The memory limit of an instance.
pub(crate) struct InstanceMemoryLimit {
    limit: u64,
    /// Whether the instance has requested more than the limit.
    pub(crate) is_over: bool,
}

/// The calling module and its host data.
pub(crate) struct GuestModule<'a> {
    caller: Caller<'a, FilterHost>,
    about: String,
    gave: String,
}

/// The result of a host function. An error is reported to the module as a status.
pub(crate) type HostResult<T = ()> = Result<T, HostStatus>;

impl ModuleContext {
    pub(crate) fn spec(&self) -> &Arc<PluginSpec> {
        match self {
            Self::Root(root) => &root.spec,
            Self::Stream(stream) => &stream.spec,
        }
    }
}

impl RootContext {
    pub(crate) fn new(id: u32, spec: &Arc<PluginSpec>) -> Self {
        Self { id, spec: Arc::clone(spec), period: AtomicU64::new(0), timer: Mutex::default() }
    }
}

impl Drop for RootContext {
    fn drop(&mut self) {
        lock(&self.timer).take().iter().for_each(AbortHandle::abort);
    }
}

impl ReceivedData {
    /// The result of a call that failed. The specification has 0 headers for it, and Envoy a response of its
    /// own. Modules rely on either, so the number of headers is 0, and Envoy's status can still be read.
    pub(crate) fn failure(status: StatusCode) -> Self {
        let mut response = http::Response::new(());
        *response.status_mut() = status;
        let (head, ()) = response.into_parts();
        Self { head: Some(head), has_failed: true, ..Self::default() }
    }

    /// The number of headers, the size of the body, and the number of trailers.
    pub(crate) fn sizes(&self) -> (u32, u32, u32) {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let head = self.head.as_ref().filter(|_| !self.has_failed);
        let headers = head.map_or(0, |head| count(head.headers.len() + 1));
        (headers, count(self.body.len()), count(self.trailers.len()))
    }
}

impl FilterHost {
    pub(crate) fn new(core: &Arc<VmCore>, (slot, generation): (Weak<InstanceSlot>, u64)) -> Self {
        Self {
            core: Arc::clone(core),
            slot,
            generation,
            memory: None,
            gift: None,
            scratch: Vec::new(),
            contexts: HashMap::default(),
            current: None,
            entered: 0,
            delivering: None,
            has_served: false,
            phase: RootPhase::Serving,
            received: ReceivedData::default(),
            calls: calls::PendingCalls::default(),
            starting: None,
            ended: Vec::new(),
            lingering: VecDeque::new(),
            clock: CallbackClock::new(&core.filters.gate),
            room: InstanceMemoryLimit { limit: core.memory, is_over: false },
            lines: [Vec::new(), Vec::new()],
            last_context: 0,
            has_wrapped: false,
        }
    }

    /// Returns an id that no live context has.
    pub(crate) fn next_context(&mut self) -> u32 {
        loop {
            self.last_context = self.last_context.checked_add(1).unwrap_or_else(|| {
                self.has_wrapped = true;
                1
            });
            if !self.has_wrapped || !self.contexts.contains_key(&self.last_context) {
                return self.last_context;
            }
        }
    }

    /// Inserts a new context and makes it the effective one.
    pub(crate) fn insert(&mut self, id: u32, context: ModuleContext) {
        self.current = Some((id, context.clone()));
        self.contexts.insert(id, context);
    }

    /// Removes a context, with the calls that belong to it alone.
    pub(crate) fn forget(&mut self, id: u32) {
        if let Some(ModuleContext::Root(_)) = self.contexts.remove(&id) {
            self.core.filters.queues.leave(&self.slot, self.generation, Some(id));
        }
        self.calls.drop_of(id);
        if self.current.as_ref().is_some_and(|(current, _)| *current == id) {
            self.current = None;
        }
        if !self.lingering.is_empty() {
            self.lingering.retain(|lingering| *lingering != id);
        }
    }

    /// Starts a callback in this context.
    pub(crate) fn enter(&mut self, id: u32) {
        self.entered = id;
        if self.current.as_ref().is_none_or(|(current, _)| *current != id) {
            self.current = self.contexts.get(&id).map(|context| (id, context.clone()));
        }
    }

    /// Starts the delivery of a call's response or event. Returns the root context that receives it, and the
    /// time limit of its callback, unless a context of the call is gone.
    pub(crate) fn begin_delivery(
        &mut self,
        pending: &PendingCall,
        received: ReceivedData,
    ) -> Option<(u32, Duration)> {
        let time = self.time_of(pending.root)?;
        if let ModuleContext::Stream(stream) = self.contexts.get(&pending.context)? {
            stream.state().in_response = pending.in_response;
        }
        self.delivering = Some(pending.context);
        self.received = received;
        Some((pending.root, time))
    }

    /// Ends the delivery of a call's response or event.
    pub(crate) fn end_delivery(&mut self) {
        self.delivering = None;
        self.received = ReceivedData::default();
    }

    /// Ends the wait of the stream that made a call. The call's last callback has to return first: until then
    /// the module may still answer the request, or be refused something.
    pub(crate) fn end_call(&self, pending: &PendingCall) {
        if let Some(ModuleContext::Stream(stream)) = self.contexts.get(&pending.context) {
            stream.end_call(pending.era);
            stream.wake();
        }
    }

    /// The stream that the callback in flight is about: its own, or the one that made the call whose response
    /// it delivers.
    pub(crate) fn served_stream(&self) -> Option<&Arc<StreamContext>> {
        match self.contexts.get(&self.delivering.unwrap_or(self.entered)) {
            Some(ModuleContext::Stream(stream)) => Some(stream),
            _ => None,
        }
    }

    /// The stream that a call or a local response of the module is for: the effective context, or else the
    /// stream that the callback in flight is about. In APISIX, too, a module answers the request of a call in
    /// the call's callback without a change of the effective context.
    pub(crate) fn answerable_stream(&self) -> Option<&Arc<StreamContext>> {
        self.stream().or_else(|| self.served_stream())
    }

    /// The filter whose callback is in flight.
    pub(crate) fn spec(&self) -> Option<&Arc<PluginSpec>> {
        self.current.as_ref().map(|(_, context)| context.spec()).or(self.starting.as_ref())
    }

    pub(crate) fn is_lenient(&self) -> bool {
        self.spec().is_none_or(|spec| spec.dialect == crate::config::HostDialect::Lenient)
    }

    /// The effective context, if it is a stream.
    pub(crate) fn stream(&self) -> Option<&Arc<StreamContext>> {
        match &self.current {
            Some((_, ModuleContext::Stream(stream))) => Some(stream),
            _ => None,
        }
    }

    /// The root context of the effective context.
    pub(crate) fn root(&self) -> Option<Arc<RootContext>> {
        let root = match &self.current {
            Some((_, ModuleContext::Root(root))) => return Some(Arc::clone(root)),
            Some((_, ModuleContext::Stream(stream))) => stream.root,
            None => return None,
        };
        match self.contexts.get(&root) {
            Some(ModuleContext::Root(root)) => Some(Arc::clone(root)),
            _ => None,
        }
    }

    /// The time limit of a callback of this context.
    pub(crate) fn time_of(&self, id: u32) -> Option<Duration> {
        self.contexts.get(&id).map(|context| context.spec().limits.cpu.0)
    }

    /// Adds a stream whose module has not finished with it. Returns the oldest one if there are too many.
    pub(crate) fn linger(&mut self, id: u32, most: usize) -> Option<u32> {
        self.lingering.push_back(id);
        if self.lingering.len() > most { self.lingering.pop_front() } else { None }
    }

    /// The streams of a root context whose module has not finished with them.
    pub(crate) fn lingering_of(&self, root: u32) -> Vec<u32> {
        let is_of_it = |id: &u32| match self.contexts.get(id) {
            Some(ModuleContext::Stream(stream)) => stream.root == root,
            _ => false,
        };
        self.lingering.iter().copied().filter(is_of_it).collect()
    }

    /// The streams of a root context.
    pub(crate) fn streams_of(&self, root: u32) -> Vec<Arc<StreamContext>> {
        let stream = |context: &ModuleContext| match context {
            ModuleContext::Stream(stream) if stream.root == root => Some(Arc::clone(stream)),
            _ => None,
        };
        self.contexts.values().filter_map(stream).collect()
    }

    /// Marks the effective context as done, if `proxy_on_done` was called for it.
    pub(crate) fn done(&mut self) -> Result<(), HostStatus> {
        let id = self.current.as_ref().map(|(id, _)| *id).ok_or(HostStatus::NotFound)?;
        if !self.lingering.contains(&id) {
            return Err(HostStatus::NotFound);
        }
        self.lingering.retain(|lingering| *lingering != id);
        self.ended.push(id);
        Ok(())
    }

    /// Starts the timer of a root context.
    pub(crate) fn start_timer(&mut self, id: u32) {
        let Some(ModuleContext::Root(root)) = self.contexts.get(&id) else { return };
        let root = Arc::clone(root);
        self.set_timer(&root);
    }

    fn set_timer(&self, root: &RootContext) {
        let mut timer = lock(&root.timer);
        timer.take().iter().for_each(AbortHandle::abort);
        let period = root.period.load(Relaxed);
        let runtime = tokio::runtime::Handle::try_current();
        if let (Ok(runtime), true, true) = (runtime, period > 0, root.spec.started.load(Relaxed)) {
            let (slot, generation, id) = (self.slot.clone(), self.generation, root.id);
            let ticking = watch_polls(PollSite::Filters, ticks(slot, generation, id, period));
            *timer = Some(runtime.spawn(ticking).abort_handle());
        }
    }

    /// Marks every stream of the instance as dead, and the one that trapped, and ends timers. Returns the
    /// streams, whose waiting futures have to be woken ([`Self::end_some`]).
    pub(crate) fn bury(&mut self) -> Vec<Arc<StreamContext>> {
        self.served_stream().iter().for_each(|stream| stream.state().trapped = true);
        self.core.filters.queues.leave(&self.slot, self.generation, None);
        self.current = None;
        let streams = self.contexts.drain().filter_map(|(_, context)| match context {
            ModuleContext::Stream(stream) => Some(stream),
            ModuleContext::Root(_) => None,
        });
        let streams: Vec<_> = streams.collect();
        streams.iter().for_each(|stream| stream.state().dead = true);
        streams
    }

    /// Wakes some of the dead streams and ends some of the calls. Returns whether any are left: there may be
    /// tens of thousands.
    pub(crate) fn end_some(&mut self, dead: &mut Vec<Arc<StreamContext>>) -> bool {
        let part = dead.split_off(dead.len().saturating_sub(ENDED_AT_ONCE));
        part.iter().for_each(|stream| stream.wake());
        let has_calls = self.calls.drop_some(ENDED_AT_ONCE);
        has_calls || !dead.is_empty()
    }

    pub(crate) fn is_observed(&self) -> bool {
        self.core.filters.observer.is_some()
    }

    pub(crate) fn see(&self, event: &FilterEvent<'_>) {
        self.core.filters.observer.iter().for_each(|observer| observer.see(event));
    }

    pub(crate) fn see_callback(&self, name: &'static str, arguments: &[u32]) {
        let filter = self.spec().map_or("", |spec| &spec.name);
        self.see(&FilterEvent::Callback { filter, name, arguments });
    }
}

/// Sends the ticks of one root context. Ticks that are due while one is in flight are skipped.
async fn ticks(slot: Weak<InstanceSlot>, generation: u64, root: u32, period: u64) {
    let period = Duration::from_millis(period);
    let mut interval = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        interval.tick().await;
        let Some(slot) = slot.upgrade() else { return };
        if slot.enter(CallbackTarget::Generation(generation), TimerTick(root)).await.is_err() {
            return;
        }
    }
}

impl<'a> GuestModule<'a> {
    fn new(caller: Caller<'a, FilterHost>) -> Self {
        Self { caller, about: String::new(), gave: String::new() }
    }

    pub(crate) fn host(&self) -> &FilterHost {
        self.caller.data()
    }

    pub(crate) fn host_mut(&mut self) -> &mut FilterHost {
        self.caller.data_mut()
    }

    /// Records a description of the call for the observer.
    pub(crate) fn about(&mut self, words: impl FnOnce() -> String) {
        if self.host().is_observed() {
            self.about = words();
        }
    }

    /// Records a description that the module wrote itself.
    pub(crate) fn about_text(&mut self, span: memory::MemorySpan) {
        if self.host().is_observed() {
            self.about = self.text(span).unwrap_or_default();
        }
    }

    /// Returns the status to the module.
    fn finish(self, name: &'static str, done: HostResult) -> u32 {
        let status = done.err().unwrap_or(HostStatus::Ok);
        if status != HostStatus::Ok {
            self.host().note_refusal(name, status);
        }
        if self.host().is_observed() {
            let (about, gave) = (&*self.about, &*self.gave);
            let event = FilterEvent::HostCall { name, about, gave, status: status.name() };
            self.host().see(&event);
        }
        status as u32
    }

    /// Returns to the shim the number of bytes to give, or a status.
    fn begin(mut self, name: &'static str, done: HostResult) -> u64 {
        let observed = self.host().is_observed().then(|| (self.about.clone(), self.gave.clone()));
        if let Some(gift) = self.host_mut().gift.as_mut().filter(|gift| !gift.is_begun()) {
            if done.is_ok() {
                return shim::outcome(gift.begin(name, observed), 0);
            }
            self.host_mut().gift = None;
        }
        shim::outcome(0, self.finish(name, done))
    }
}

impl ResourceLimiter for InstanceMemoryLimit {
    fn memory_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> GuestResult<bool> {
        let fits = desired as u64 <= self.limit;
        self.is_over |= !fits;
        Ok(fits)
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> GuestResult<bool> {
        Ok(desired <= TABLE_ELEMENTS)
    }

    fn tables(&self) -> usize {
        TABLES
    }

    fn memories(&self) -> usize {
        MEMORIES
    }
}
