//! The host data of an instance, and the host functions that modules call.
//!
//! The functions are in `host/`, one file per topic. Each returns a [`HostResult`], with a status for the
//! module. Pointers are checked in `host/memory.rs` and nowhere else. Host functions do not enter an
//! instance: responses to calls, ticks and items in queues come back as events (`context/events.rs`).

mod buffers;
mod calls;
mod clock;
mod foreign;
mod grpc;
mod headers;
mod link;
mod memory;
mod properties;
mod refusals;
mod share;
pub(crate) mod shim;
mod system;
mod wasi;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use sandbox::{Caller, GuestResult, HeavyGate, Memory, ResourceLimiter};

use self::clock::CallbackClock;
use crate::abi::{AbiVersion, HostStatus};
use crate::context::{InstanceHandle, ModuleContext, PluginSpec, ReceivedData, RootContext, StreamContext};
use crate::shared::{SharedData, SharedQueues};
use crate::telemetry::{FilterEvent, FilterMetrics, FilterObserver};

#[cfg(test)]
pub(crate) use calls::MAX_DETACHED;
pub(crate) use calls::PendingCall;
pub(crate) use link::{GIVING, add_host_functions, halves};
use memory::ModuleAllocation;
#[cfg(test)]
pub(crate) use properties::split_path as parse_property;

/// The maximum number of entries of a module's table.
const TABLE_ELEMENTS: usize = 1 << 20;
/// The maximum number of tables and of memories: each could have the maximum size.
const MAX_TABLES: usize = 16;
const MAX_MEMORIES: usize = 1;
/// The number of streams, and of calls, that end in one poll when their instance is gone.
pub(crate) const ENDED_PER_POLL: usize = 1024;

/// The parts of a virtual machine and of its runtime that host functions use.
pub(crate) struct HostResources {
    /// The ABI version of the module.
    pub(crate) abi: AbiVersion,
    pub(crate) gate: HeavyGate,
    pub(crate) observer: Option<Arc<dyn FilterObserver>>,
    pub(crate) metrics: Arc<FilterMetrics>,
    pub(crate) queues: Arc<SharedQueues>,
    pub(crate) shared: Arc<SharedData>,
    /// The memory limit of an instance.
    pub(crate) memory: u64,
}

/// The host data of an instance.
pub(crate) struct FilterHost {
    pub(crate) resources: Arc<HostResources>,
    /// The instance itself, for events that are delivered later.
    pub(crate) instance: InstanceHandle,
    pub(crate) memory: Option<Memory>,
    /// Data to be given to the module once its allocator has returned memory for it. The allocator itself
    /// can't use such functions.
    pub(crate) pending_allocation: Option<ModuleAllocation>,
    pub(crate) contexts: HashMap<u32, ModuleContext, RandomState>,
    /// The effective context, by its id.
    pub(crate) effective_context: Option<(u32, ModuleContext)>,
    /// The context in which the callback in flight began, even if the module has changed the effective one.
    callback_context: u32,
    /// The context that made the call whose response the callback in flight delivers.
    delivery_context: Option<u32>,
    /// Whether a request's first callback has completed.
    pub(crate) has_served: bool,
    pub(crate) phase: RootPhase,
    /// The data that the callback in flight is about.
    pub(crate) received_data: ReceivedData,
    pub(crate) calls: calls::PendingCalls,
    /// The filter that an instance is created for, before there are contexts.
    pub(crate) starting_spec: Option<Arc<PluginSpec>>,
    /// Streams whose module called `proxy_done` and that are about to end.
    pub(crate) done_streams: Vec<u32>,
    /// Streams whose module has not finished with them.
    lingering_streams: VecDeque<u32>,
    pub(crate) clock: CallbackClock,
    pub(crate) memory_limit: InstanceMemoryLimit,
    /// Output to stdout and stderr since the last end of a line.
    output_lines: [Vec<u8>; 2],
    /// Scratch space for data that is given to the module.
    scratch: Vec<u8>,
    last_context: u32,
    /// Whether ids have wrapped around.
    has_wrapped: bool,
}

/// The phase of a root context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RootPhase {
    Starting,
    Configuring,
    Serving,
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
    call_description: String,
    returned_text: String,
}

/// The result of a host function. An error is reported to the module as a status.
pub(crate) type HostResult<T = ()> = Result<T, HostStatus>;

impl FilterHost {
    pub(crate) fn new(resources: &Arc<HostResources>, instance: InstanceHandle) -> Self {
        Self {
            resources: Arc::clone(resources),
            instance,
            memory: None,
            pending_allocation: None,
            scratch: Vec::new(),
            contexts: HashMap::default(),
            effective_context: None,
            callback_context: 0,
            delivery_context: None,
            has_served: false,
            phase: RootPhase::Serving,
            received_data: ReceivedData::default(),
            calls: calls::PendingCalls::default(),
            starting_spec: None,
            done_streams: Vec::new(),
            lingering_streams: VecDeque::new(),
            clock: CallbackClock::new(&resources.gate),
            memory_limit: InstanceMemoryLimit { limit: resources.memory, is_over: false },
            output_lines: [Vec::new(), Vec::new()],
            last_context: 0,
            has_wrapped: false,
        }
    }

    /// Returns an id that no live context has.
    pub(crate) fn next_context_id(&mut self) -> u32 {
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
    pub(crate) fn insert_context(&mut self, id: u32, context: ModuleContext) {
        self.effective_context = Some((id, context.clone()));
        self.contexts.insert(id, context);
    }

    /// Removes a context, with the calls that belong to it alone.
    pub(crate) fn remove_context(&mut self, id: u32) {
        if let Some(ModuleContext::Root(_)) = self.contexts.remove(&id) {
            self.resources.queues.remove_consumers(&self.instance, Some(id));
        }
        self.calls.cancel_attached(id);
        if self.effective_context.as_ref().is_some_and(|(current, _)| *current == id) {
            self.effective_context = None;
        }
        if !self.lingering_streams.is_empty() {
            self.lingering_streams.retain(|lingering| *lingering != id);
        }
    }

    /// Starts a callback in this context.
    pub(crate) fn enter_context(&mut self, id: u32) {
        self.callback_context = id;
        if self.effective_context.as_ref().is_none_or(|(current, _)| *current != id) {
            self.effective_context = self.contexts.get(&id).map(|context| (id, context.clone()));
        }
    }

    /// Starts the delivery of a call's response or event. Returns the root context that receives it, and the
    /// time limit of its callback, unless a context of the call is gone.
    pub(crate) fn begin_delivery(
        &mut self,
        pending: &PendingCall,
        received: ReceivedData,
    ) -> Option<(u32, Duration)> {
        let time = self.callback_time_limit(pending.root)?;
        if let ModuleContext::Stream(stream) = self.contexts.get(&pending.context)? {
            stream.state().in_response = pending.in_response;
        }
        self.delivery_context = Some(pending.context);
        self.received_data = received;
        Some((pending.root, time))
    }

    /// Ends the delivery of a call's response or event.
    pub(crate) fn end_delivery(&mut self) {
        self.delivery_context = None;
        self.received_data = ReceivedData::default();
    }

    /// Ends the wait of the stream that made a call. The call's last callback has to return first: until then
    /// the module may still answer the request, or be refused something.
    pub(crate) fn end_call(&self, pending: &PendingCall) {
        if let Some(ModuleContext::Stream(stream)) = self.contexts.get(&pending.context) {
            stream.end_call(pending.resume_count);
            stream.wake();
        }
    }

    /// The stream that the callback in flight is about: its own, or the one that made the call whose response
    /// it delivers.
    pub(crate) fn served_stream(&self) -> Option<&Arc<StreamContext>> {
        match self.contexts.get(&self.delivery_context.unwrap_or(self.callback_context)) {
            Some(ModuleContext::Stream(stream)) => Some(stream),
            _ => None,
        }
    }

    /// The stream that a call or a local response of the module is for: the effective context, or else the
    /// stream that the callback in flight is about. In APISIX, too, a module answers the request of a call in
    /// the call's callback without a change of the effective context.
    pub(crate) fn answerable_stream(&self) -> Option<&Arc<StreamContext>> {
        self.effective_stream().or_else(|| self.served_stream())
    }

    /// The filter whose callback is in flight.
    pub(crate) fn spec(&self) -> Option<&Arc<PluginSpec>> {
        self.effective_context.as_ref().map(|(_, context)| context.spec()).or(self.starting_spec.as_ref())
    }

    pub(crate) fn is_lenient(&self) -> bool {
        self.spec().is_none_or(|spec| spec.dialect == crate::config::HostDialect::Lenient)
    }

    /// The effective context, if it is a stream.
    pub(crate) fn effective_stream(&self) -> Option<&Arc<StreamContext>> {
        match &self.effective_context {
            Some((_, ModuleContext::Stream(stream))) => Some(stream),
            _ => None,
        }
    }

    /// The root context of the effective context.
    pub(crate) fn effective_root(&self) -> Option<Arc<RootContext>> {
        let root = match &self.effective_context {
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
    pub(crate) fn callback_time_limit(&self, id: u32) -> Option<Duration> {
        self.contexts.get(&id).map(|context| context.spec().limits.cpu.0)
    }

    /// Adds a stream whose module has not finished with it. Returns the oldest one if there are too many.
    pub(crate) fn add_lingering(&mut self, id: u32, most: usize) -> Option<u32> {
        self.lingering_streams.push_back(id);
        if self.lingering_streams.len() > most { self.lingering_streams.pop_front() } else { None }
    }

    /// The streams of a root context whose module has not finished with them.
    pub(crate) fn root_lingering_streams(&self, root: u32) -> Vec<u32> {
        let is_of_it = |id: &u32| match self.contexts.get(id) {
            Some(ModuleContext::Stream(stream)) => stream.root == root,
            _ => false,
        };
        self.lingering_streams.iter().copied().filter(is_of_it).collect()
    }

    /// The streams of a root context.
    pub(crate) fn root_streams(&self, root: u32) -> Vec<Arc<StreamContext>> {
        let stream = |context: &ModuleContext| match context {
            ModuleContext::Stream(stream) if stream.root == root => Some(Arc::clone(stream)),
            _ => None,
        };
        self.contexts.values().filter_map(stream).collect()
    }

    /// Marks the effective context as done, if `proxy_on_done` was called for it.
    pub(crate) fn mark_done(&mut self) -> Result<(), HostStatus> {
        let id = self.effective_context.as_ref().map(|(id, _)| *id).ok_or(HostStatus::NotFound)?;
        if !self.lingering_streams.contains(&id) {
            return Err(HostStatus::NotFound);
        }
        self.lingering_streams.retain(|lingering| *lingering != id);
        self.done_streams.push(id);
        Ok(())
    }

    /// Starts the timer of a root context.
    pub(crate) fn start_timer(&mut self, id: u32) {
        let Some(ModuleContext::Root(root)) = self.contexts.get(&id) else { return };
        root.start_timer(&self.instance);
    }

    /// Marks every stream of the instance as dead, and the one that trapped, and ends timers. Returns the
    /// streams, whose waiting futures have to be woken ([`Self::end_batch`]).
    pub(crate) fn mark_dead(&mut self) -> Vec<Arc<StreamContext>> {
        self.served_stream().iter().for_each(|stream| stream.state().has_trapped = true);
        self.resources.queues.remove_consumers(&self.instance, None);
        self.effective_context = None;
        let streams = self.contexts.drain().filter_map(|(_, context)| match context {
            ModuleContext::Stream(stream) => Some(stream),
            ModuleContext::Root(_) => None,
        });
        let streams: Vec<_> = streams.collect();
        streams.iter().for_each(|stream| stream.state().is_dead = true);
        streams
    }

    /// Wakes some of the dead streams and ends some of the calls. Returns whether any are left: there may be
    /// tens of thousands.
    pub(crate) fn end_batch(&mut self, dead: &mut Vec<Arc<StreamContext>>) -> bool {
        let part = dead.split_off(dead.len().saturating_sub(ENDED_PER_POLL));
        part.iter().for_each(|stream| stream.wake());
        let has_calls = self.calls.cancel_batch(ENDED_PER_POLL);
        has_calls || !dead.is_empty()
    }

    pub(crate) fn has_observer(&self) -> bool {
        self.resources.observer.is_some()
    }

    pub(crate) fn notify_observer(&self, event: &FilterEvent<'_>) {
        self.resources.observer.iter().for_each(|observer| observer.on_event(event));
    }

    pub(crate) fn notify_callback(&self, name: &'static str, arguments: &[u32]) {
        let filter = self.spec().map_or("", |spec| &spec.name);
        self.notify_observer(&FilterEvent::Callback { filter, name, arguments });
    }
}

impl<'a> GuestModule<'a> {
    fn new(caller: Caller<'a, FilterHost>) -> Self {
        Self { caller, call_description: String::new(), returned_text: String::new() }
    }

    pub(crate) fn host(&self) -> &FilterHost {
        self.caller.data()
    }

    pub(crate) fn host_mut(&mut self) -> &mut FilterHost {
        self.caller.data_mut()
    }

    /// Records a description of the call for the observer.
    pub(crate) fn describe_call(&mut self, words: impl FnOnce() -> String) {
        if self.host().has_observer() {
            self.call_description = words();
        }
    }

    /// Records a description that the module wrote itself.
    pub(crate) fn describe_call_text(&mut self, span: memory::MemorySpan) {
        if self.host().has_observer() {
            self.call_description = self.memory_text(span).unwrap_or_default();
        }
    }

    /// Returns the status to the module.
    fn finish(self, name: &'static str, done: HostResult) -> u32 {
        let status = done.err().unwrap_or(HostStatus::Ok);
        if status != HostStatus::Ok {
            self.host().note_host_error(name, status);
        }
        if self.host().has_observer() {
            let (about, gave) = (&*self.call_description, &*self.returned_text);
            let event = FilterEvent::HostCall {
                name,
                description: about,
                returned_data: gave,
                status: status.name(),
            };
            self.host().notify_observer(&event);
        }
        status as u32
    }

    /// Returns to the shim the number of bytes to give, or a status.
    fn begin(mut self, name: &'static str, done: HostResult) -> u64 {
        let observed =
            self.host().has_observer().then(|| (self.call_description.clone(), self.returned_text.clone()));
        if let Some(gift) = self.host_mut().pending_allocation.as_mut().filter(|gift| !gift.is_begun()) {
            if done.is_ok() {
                return shim::encode_outcome(gift.begin(name, observed), 0);
            }
            self.host_mut().pending_allocation = None;
        }
        shim::encode_outcome(0, self.finish(name, done))
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
        MAX_TABLES
    }

    fn memories(&self) -> usize {
        MAX_MEMORIES
    }
}
