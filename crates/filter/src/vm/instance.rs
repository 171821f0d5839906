//! An instance of a module, and the callbacks from host to module.
//!
//! Each callback runs in a fiber, with its context as the effective one, under a limit on its CPU time. It
//! yields at the engine's tick, every millisecond ([`sandbox::EpochTicker`]). Most callbacks end before the
//! first tick; only the others are measured. While a callback is in flight nothing else may enter the
//! instance, which `entry.rs` ensures.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

use foldhash::fast::RandomState;
use offload::QuotaKey;
use sandbox::{
    Extern, GuestResult, Instance as Guest, Ref, Store, Trapped, TypedFunc, UpdateDeadline, WasmParams,
    WasmResults, discard_memory,
};

use super::VmCore;
use super::exports::{HeadersExport, ModuleExports, find_export, initialise};
use super::slot::{BackOff, InstanceSlot};
use super::stream::StreamHandle;
use crate::abi::{FilterAction, MessageSide};
use crate::context::{
    InstanceHandle, ModuleContext, PluginSpec, ReceivedData, RootContext, RootGrpcEvent, StreamContext,
};
use crate::error::FilterRefusalReason;
use crate::exchange::FilterExchange;
use crate::host::{FilterHost, RootPhase, shim};
use crate::telemetry::{FilterEvent, increment};

/// The maximum number of streams that wait for `proxy_done` after their exchange.
pub(crate) const MAX_LINGERING: usize = 1024;

/// An instance of a module.
pub(crate) struct FilterInstance {
    store: Store<FilterHost>,
    exports: ModuleExports,
    /// Root contexts by the number of their plugin.
    roots: HashMap<u64, u32, RandomState>,
    core: Arc<VmCore>,
    /// The slot and the generation of this instance.
    place: (Weak<InstanceSlot>, u64),
}

/// The reasons for which an instance has no root context for a filter.
pub(crate) enum NotReady {
    /// The next instance is created after a back-off.
    BackingOff(BackOff),
    /// The module trapped at its start.
    Trapped(Trapped),
    /// The module refused to start, or is not valid.
    Refused(FilterRefusalReason),
}

impl FilterInstance {
    /// Creates an instance and initialises it to the point at which it needs a filter.
    pub(crate) async fn new(
        core: &Arc<VmCore>,
        place: (Weak<InstanceSlot>, u64),
        first: &Arc<PluginSpec>,
    ) -> Result<Self, NotReady> {
        let engine = core.module.pre.module().engine();
        let handle = InstanceHandle::new(place.0.clone(), place.1);
        let mut store = Store::new(engine, FilterHost::new(&core.resources, handle));
        store.limiter(|host| &mut host.memory_limit);
        store.epoch_deadline_callback(|mut context| {
            let turn = context.data_mut().clock.tick()?;
            Ok(UpdateDeadline::YieldCustom(1, Box::pin(turn)))
        });
        store.data_mut().clock.arm(first.limits.startup_cpu.0);
        store.set_epoch_deadline(1);
        store.data_mut().starting_spec = Some(Arc::clone(first));
        let (guest, allocator) = link_module(&mut store, core).await?;
        let memory =
            guest.get_memory(&mut store, "memory").ok_or(NotReady::Refused(FilterRefusalReason::Memory))?;
        let allocate = match find_export::<u32, u32>(&mut store, &guest, "proxy_on_memory_allocate")? {
            Some(allocate) => Some(allocate),
            None => find_export::<u32, u32>(&mut store, &guest, "malloc")?,
        };
        let allocate = allocate.ok_or(NotReady::Refused(FilterRefusalReason::Allocator))?;
        let allocate = Ref::Func(Some(*allocate.func()));
        allocator.set(&mut store, 0, allocate).map_err(NotReady::Trapped)?;
        store.data_mut().memory = Some(memory);
        let exports = ModuleExports::from_instance(&mut store, &guest)?;
        initialise(&mut store, &guest).await?;
        store.data_mut().starting_spec = None;
        store.data_mut().clock.end_callback();
        Ok(Self { store, exports, roots: HashMap::default(), core: Arc::clone(core), place })
    }

    /// Makes the next callbacks yield at the next tick. Callbacks that follow each other in one poll share
    /// the tick: if it is due while none of them runs, the next one yields at its start.
    pub(crate) fn begin_turn(&mut self) {
        self.store.set_epoch_deadline(1);
    }

    pub(crate) fn has_root(&self, spec: &PluginSpec) -> bool {
        self.roots.contains_key(&spec.number)
    }

    /// Creates a filter's root context, unless it has one, starts and configures it.
    pub(crate) async fn start_filter(&mut self, spec: &Arc<PluginSpec>) -> Result<(), NotReady> {
        if self.has_root(spec) {
            return Ok(());
        }
        let id = self.store.data_mut().next_context_id();
        let root = Arc::new(RootContext::new(id, spec));
        self.store.data_mut().insert_context(id, ModuleContext::Root(root));
        let started = self.start_root(id, spec).await;
        self.store.data_mut().phase = RootPhase::Serving;
        match started {
            Ok(()) => {
                self.roots.insert(spec.number, id);
                increment(&spec.stats.starts);
                Ok(())
            }
            Err(NotReady::Refused(reason)) => {
                self.delete_context(id).await.map_err(NotReady::Trapped)?;
                Err(NotReady::Refused(reason))
            }
            Err(error) => Err(error),
        }
    }

    async fn start_root(&mut self, id: u32, spec: &Arc<PluginSpec>) -> Result<(), NotReady> {
        let time = spec.limits.startup_cpu.0;
        let create = self.exports.on_context_create.as_ref();
        run_callback(&mut self.store, id, time, "proxy_on_context_create", create, (id, 0), ())
            .await
            .map_err(NotReady::Trapped)?;
        let length = |bytes: &bytes::Bytes| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let (vm, plugin) = (length(&spec.vm_config), length(&spec.config));
        self.store.data_mut().phase = RootPhase::Starting;
        let start = self.exports.on_vm_start.as_ref();
        if run_callback(&mut self.store, id, time, "proxy_on_vm_start", start, (id, vm), 1)
            .await
            .map_err(NotReady::Trapped)?
            == 0
        {
            return Err(NotReady::Refused(FilterRefusalReason::VmStart));
        }
        self.store.data_mut().phase = RootPhase::Configuring;
        let configure = [
            ("proxy_validate_configuration", self.exports.validate_configuration.as_ref()),
            ("proxy_on_configure", self.exports.on_configure.as_ref()),
        ];
        for (name, callback) in configure {
            if run_callback(&mut self.store, id, time, name, callback, (id, plugin), 1)
                .await
                .map_err(NotReady::Trapped)?
                == 0
            {
                return Err(NotReady::Refused(FilterRefusalReason::Configure));
            }
        }
        Ok(())
    }

    /// Starts a filter's timer, if it has set one that is not running.
    pub(crate) fn start_timer(&mut self, spec: &PluginSpec) {
        if let Some(id) = self.roots.get(&spec.number) {
            self.store.data_mut().start_timer(*id);
        }
    }

    /// Opens a filter's stream context for an exchange.
    pub(crate) async fn open_stream(
        &mut self,
        spec: &Arc<PluginSpec>,
        exchange: &Arc<FilterExchange>,
    ) -> GuestResult<StreamHandle> {
        let root = self.roots.get(&spec.number).copied().unwrap_or_default();
        let host = self.store.data_mut();
        let id = host.next_context_id();
        let stream = StreamContext::new((id, root), spec, exchange, self.core.module.features);
        host.insert_context(id, ModuleContext::Stream(Arc::clone(&stream)));
        let create = self.exports.on_context_create.as_ref();
        run_callback(
            &mut self.store,
            id,
            spec.limits.cpu.0,
            "proxy_on_context_create",
            create,
            (id, root),
            (),
        )
        .await?;
        Ok(StreamHandle::new(stream, self.place.clone()))
    }

    /// Delivers the head of a message; `end` if no body follows.
    pub(crate) async fn on_headers(
        &mut self,
        stream: &StreamContext,
        side: MessageSide,
        count: u32,
        end: bool,
    ) -> GuestResult<FilterAction> {
        let (name, callback) = match side {
            MessageSide::Request => ("proxy_on_request_headers", &self.exports.on_request_headers),
            MessageSide::Response => ("proxy_on_response_headers", &self.exports.on_response_headers),
        };
        let (id, time) = (stream.id, stream.spec.limits.cpu.0);
        stream.begin_callback(side, true);
        let action = match callback {
            HeadersExport::Missing => return Ok(FilterAction::Continue),
            HeadersExport::TwoParameters(callback) => {
                let callback = Some(callback);
                run_callback(&mut self.store, id, time, name, callback, (id, count), 0).await?
            }
            HeadersExport::ThreeParameters(callback) => {
                let callback = Some(callback);
                run_callback(&mut self.store, id, time, name, callback, (id, count, u32::from(end)), 0)
                    .await?
            }
        };
        Ok(Self::end_callback(stream, side, FilterAction::from_number(action)))
    }

    /// Applies the result of a callback to its stream.
    fn end_callback(stream: &StreamContext, side: MessageSide, action: FilterAction) -> FilterAction {
        if side == MessageSide::Request && action == FilterAction::Continue {
            stream.release_request();
        }
        action
    }

    /// Whether the module still has the context of this stream. Nothing of a message passes without it, since
    /// its exchange has ended.
    fn has_stream(&self, stream: &StreamContext) -> bool {
        self.has_context(stream.id)
    }

    /// Whether the module still has this context. SDKs panic if they are called with a deleted one.
    pub(crate) fn has_context(&self, id: u32) -> bool {
        self.store.data().contexts.contains_key(&id)
    }

    /// Delivers a piece of a body, with everything that is held back; `end` if it is the last.
    pub(crate) async fn on_body(
        &mut self,
        stream: &StreamContext,
        side: MessageSide,
        size: u32,
        end: bool,
    ) -> GuestResult<FilterAction> {
        if !self.has_stream(stream) {
            return Ok(FilterAction::Continue);
        }
        let (name, callback) = match side {
            MessageSide::Request => ("proxy_on_request_body", &self.exports.on_request_body),
            MessageSide::Response => ("proxy_on_response_body", &self.exports.on_response_body),
        };
        let (id, callback) = (stream.id, callback.as_ref());
        stream.begin_callback(side, false);
        let time = stream.spec.limits.cpu.0;
        let action =
            run_callback(&mut self.store, id, time, name, callback, (id, size, u32::from(end)), 0).await?;
        Ok(Self::end_callback(stream, side, FilterAction::from_number(action)))
    }

    /// Delivers the trailers of a message.
    pub(crate) async fn on_trailers(
        &mut self,
        stream: &StreamContext,
        side: MessageSide,
        count: u32,
    ) -> GuestResult<FilterAction> {
        if !self.has_stream(stream) {
            return Ok(FilterAction::Continue);
        }
        let (name, callback) = match side {
            MessageSide::Request => ("proxy_on_request_trailers", &self.exports.on_request_trailers),
            MessageSide::Response => ("proxy_on_response_trailers", &self.exports.on_response_trailers),
        };
        let (id, callback) = (stream.id, callback.as_ref());
        stream.begin_callback(side, false);
        let time = stream.spec.limits.cpu.0;
        let action = run_callback(&mut self.store, id, time, name, callback, (id, count), 0).await?;
        Ok(Self::end_callback(stream, side, FilterAction::from_number(action)))
    }

    /// Ends a stream after its exchange: done, log, delete. A stream whose module has not finished lingers.
    pub(crate) async fn end_stream(&mut self, stream: &StreamContext) -> GuestResult<()> {
        if !self.has_stream(stream) {
            return Ok(());
        }
        let done = self.exports.on_done.as_ref();
        let id = stream.id;
        let is_done =
            run_callback(&mut self.store, id, stream.spec.limits.cpu.0, "proxy_on_done", done, id, 1).await?
                != 0;
        if is_done {
            return self.finish_stream(id).await;
        }
        let oldest = self.store.data_mut().add_lingering(id, MAX_LINGERING);
        match oldest {
            Some(oldest) => self.finish_stream(oldest).await,
            None => Ok(()),
        }
    }

    /// Completes the end of a stream that is done.
    async fn finish_stream(&mut self, id: u32) -> GuestResult<()> {
        let Some(time) = self.store.data().contexts.get(&id).map(|context| context.spec().limits.cpu.0)
        else {
            return Ok(());
        };
        let log = self.exports.on_log.as_ref();
        run_callback(&mut self.store, id, time, "proxy_on_log", log, id, ()).await?;
        self.delete_context(id).await
    }

    /// Removes a context without notifying the module.
    pub(crate) fn remove_context(&mut self, id: u32) {
        self.store.data_mut().remove_context(id);
    }

    async fn delete_context(&mut self, id: u32) -> GuestResult<()> {
        let Some(context) = self.store.data().contexts.get(&id) else { return Ok(()) };
        let time = context.spec().limits.cpu.0;
        let delete = self.exports.on_delete.as_ref();
        run_callback(&mut self.store, id, time, "proxy_on_delete", delete, id, ()).await?;
        self.store.data_mut().remove_context(id);
        Ok(())
    }

    /// Ends the root context of a filter that is removed.
    pub(crate) async fn end_root(&mut self, spec: &PluginSpec) -> GuestResult<()> {
        let Some(id) = self.roots.remove(&spec.number) else { return Ok(()) };
        // Its lingering streams end first: the removed root would not receive the events that they wait for.
        for child in self.store.data().root_lingering_streams(id) {
            self.finish_stream(child).await?;
        }
        // So do those whose end still waits in the queue: SDKs' streams refer to their root.
        for stream in self.store.data().root_streams(id) {
            self.end_stream(&stream).await?;
            self.finish_stream(stream.id).await?;
        }
        let done = self.exports.on_done.as_ref();
        run_callback(&mut self.store, id, spec.limits.cpu.0, "proxy_on_done", done, id, 1).await?;
        self.delete_context(id).await
    }

    /// Delivers the response to an HTTP call, or its failure. Does nothing if the call was cancelled.
    pub(crate) async fn on_call_response(&mut self, token: u32, received: ReceivedData) -> GuestResult<()> {
        let Some(pending) = self.store.data_mut().calls.remove(token) else { return Ok(()) };
        let sizes = received.sizes();
        let delivery = self.store.data_mut().begin_delivery(&pending, received);
        let Some((root, time)) = delivery else { return Ok(()) };
        let callback = self.exports.on_http_call_response.as_ref();
        let arguments = (root, token, sizes.0, sizes.1, sizes.2);
        run_callback(&mut self.store, root, time, "proxy_on_http_call_response", callback, arguments, ())
            .await?;
        let host = self.store.data_mut();
        host.end_delivery();
        host.end_call(&pending);
        Ok(())
    }

    /// Delivers an event of a gRPC call.
    pub(crate) async fn on_grpc_event(
        &mut self,
        token: u32,
        event: RootGrpcEvent,
        is_last: bool,
        received: ReceivedData,
    ) -> GuestResult<()> {
        let host = self.store.data_mut();
        let pending = if is_last { host.calls.remove(token) } else { host.calls.get(token) };
        let Some(pending) = pending else { return Ok(()) };
        let Some((root, time)) = host.begin_delivery(&pending, received) else { return Ok(()) };
        let exports = &self.exports;
        let (name, callback, value) = match event {
            RootGrpcEvent::InitialMetadata(count) => (
                "proxy_on_grpc_receive_initial_metadata",
                exports.on_grpc_receive_initial_metadata.as_ref(),
                count,
            ),
            RootGrpcEvent::Message(size) => ("proxy_on_grpc_receive", exports.on_grpc_receive.as_ref(), size),
            RootGrpcEvent::TrailingMetadata(count) => (
                "proxy_on_grpc_receive_trailing_metadata",
                exports.on_grpc_receive_trailing_metadata.as_ref(),
                count,
            ),
            RootGrpcEvent::Close(status) => ("proxy_on_grpc_close", exports.on_grpc_close.as_ref(), status),
        };
        run_callback(&mut self.store, root, time, name, callback, (root, token, value), ()).await?;
        let host = self.store.data_mut();
        host.end_delivery();
        if is_last {
            host.end_call(&pending);
        }
        Ok(())
    }

    /// Delivers a tick of a filter's timer.
    pub(crate) async fn on_tick(&mut self, root: u32) -> GuestResult<()> {
        let Some(time) = self.store.data().callback_time_limit(root) else { return Ok(()) };
        let tick = self.exports.on_tick.as_ref();
        run_callback(&mut self.store, root, time, "proxy_on_tick", tick, root, ()).await
    }

    /// Notifies a root context of an item in a queue.
    pub(crate) async fn on_queue_ready(&mut self, root: u32, queue: u32) -> GuestResult<()> {
        let Some(time) = self.store.data().callback_time_limit(root) else { return Ok(()) };
        let ready = self.exports.on_queue_ready.as_ref();
        run_callback(&mut self.store, root, time, "proxy_on_queue_ready", ready, (root, queue), ()).await
    }

    /// Whether work is left to do after the module has returned.
    pub(crate) fn has_done_streams(&self) -> bool {
        !self.store.data().done_streams.is_empty()
    }

    /// Does the work that is left: ends the streams that called `proxy_done`.
    pub(crate) async fn finish_done_streams(&mut self) -> GuestResult<()> {
        while let Some(id) = self.store.data_mut().done_streams.pop() {
            self.finish_stream(id).await?;
        }
        Ok(())
    }

    /// Records that a request's first callback has completed.
    pub(crate) fn mark_served(&mut self) {
        self.store.data_mut().has_served = true;
    }

    /// Whether a request's first callback has ever completed.
    pub(crate) fn has_served(&self) -> bool {
        self.store.data().has_served
    }

    /// The client that is charged: the one whose request the current or last callback was about.
    pub(crate) fn payer(&self) -> Option<QuotaKey> {
        Some(self.store.data().served_stream()?.exchange.call.quota_key())
    }

    /// The filter of the current or last callback.
    pub(crate) fn current_spec(&self) -> Option<Arc<PluginSpec>> {
        self.store.data().spec().cloned()
    }

    /// The filters that the next instance in this slot needs before there is a request: those with timers,
    /// and the one that failed.
    pub(crate) fn specs_to_restart(&self) -> Vec<Arc<PluginSpec>> {
        let host = self.store.data();
        let roots = host.contexts.values().filter_map(|context| match context {
            ModuleContext::Root(root) if root.period.load(Relaxed) > 0 => Some(Arc::clone(&root.spec)),
            _ => None,
        });
        let mut specs: Vec<_> = roots.chain(self.current_spec()).collect();
        specs.retain(|spec| spec.is_started.load(Relaxed));
        specs
    }

    /// The reason for a trap, as text.
    pub(crate) fn trap_reason(&self, trapped: &Trapped) -> String {
        let host = self.store.data();
        match host.memory_limit.is_over {
            true => {
                format!(
                    "it needs more than {} bytes of memory ({})",
                    host.resources.memory,
                    trap_text(trapped)
                )
            }
            false => trap_text(trapped),
        }
    }

    /// Marks every stream in the instance as dead, and ends calls and timers. The returned future notifies
    /// the streams that are not notified at once, and releases the instance's memory.
    pub(crate) fn mark_dead(mut self) -> impl Future<Output = ()> + Send {
        let mut dead = self.store.data_mut().mark_dead();
        self.store.data_mut().end_batch(&mut dead);
        async move {
            while self.store.data_mut().end_batch(&mut dead) {
                tokio::task::yield_now().await;
            }
            if let Some(memory) = self.store.data().memory {
                discard_memory(&mut self.store, memory, 0).await;
            }
            drop(self);
        }
    }
}

/// Runs one callback in a context.
async fn run_callback<P: CallbackArguments, R: WasmResults + CallbackResult + Copy + Sync>(
    store: &mut Store<FilterHost>,
    context: u32,
    time: Duration,
    name: &'static str,
    callback: Option<&TypedFunc<P, R>>,
    arguments: P,
    missing: R,
) -> GuestResult<R> {
    let Some(callback) = callback else { return Ok(missing) };
    store.data_mut().enter_context(context);
    store.data_mut().clock.arm(time);
    if store.data().has_observer() {
        let (list, count) = arguments.as_list();
        store.data().notify_callback(name, list.get(..count).unwrap_or_default());
    }
    let result = callback.call_async(&mut *store, arguments).await;
    store.data_mut().clock.end_callback();
    let result = result?;
    if store.data().has_observer() {
        store.data().notify_observer(&FilterEvent::Returned { name, value: result.as_number() });
    }
    Ok(result)
}

/// Instantiates the module, and returns it with the table for its allocator.
async fn link_module(
    store: &mut Store<FilterHost>,
    core: &VmCore,
) -> Result<(Guest, sandbox::Table), NotReady> {
    let (filters, module) = (&core.filters, core.module.pre.module());
    let shim = filters.shim.instantiate_async(&mut *store).await.map_err(NotReady::Trapped)?;
    let missing =
        || NotReady::Refused(FilterRefusalReason::Import("the allocation shim is incomplete".to_owned()));
    let allocator = shim.get_table(&mut *store, shim::ALLOCATOR).ok_or_else(missing)?;
    let mut imports = Vec::new();
    for import in module.imports() {
        let giving = if import.module() == "env" { shim.get_func(&mut *store, import.name()) } else { None };
        let found = match giving {
            Some(function) => Some(Extern::from(function)),
            None => filters.linker.get_by_import(&mut *store, &import),
        };
        imports.push(found.ok_or_else(missing)?);
    }
    let guest = Guest::new_async(&mut *store, module, &imports).await.map_err(NotReady::Trapped)?;
    Ok((guest, allocator))
}

/// The text of a trap, limited to its first twelve lines.
fn trap_text(trapped: &Trapped) -> String {
    let text = format!("{trapped:#}");
    text.lines().map(str::trim).filter(|line| !line.is_empty()).take(12).collect::<Vec<_>>().join("; ")
}

impl NotReady {
    pub(crate) fn into_reason(self) -> FilterRefusalReason {
        match self {
            Self::BackingOff(_) => FilterRefusalReason::Start("it trapped just now".to_owned()),
            Self::Trapped(trapped) => FilterRefusalReason::Start(trap_text(&trapped)),
            Self::Refused(reason) => reason,
        }
    }
}

/// The arguments of a callback, as a list for the observer.
pub(crate) trait CallbackArguments: WasmParams + Sync {
    fn as_list(&self) -> ([u32; 5], usize);
}

impl CallbackArguments for u32 {
    fn as_list(&self) -> ([u32; 5], usize) {
        ([*self, 0, 0, 0, 0], 1)
    }
}

impl CallbackArguments for (u32, u32) {
    fn as_list(&self) -> ([u32; 5], usize) {
        ([self.0, self.1, 0, 0, 0], 2)
    }
}

impl CallbackArguments for (u32, u32, u32) {
    fn as_list(&self) -> ([u32; 5], usize) {
        ([self.0, self.1, self.2, 0, 0], 3)
    }
}

impl CallbackArguments for (u32, u32, u32, u32, u32) {
    fn as_list(&self) -> ([u32; 5], usize) {
        ([self.0, self.1, self.2, self.3, self.4], 5)
    }
}

/// The result of a callback, as a number for the observer.
pub(crate) trait CallbackResult {
    fn as_number(&self) -> u32;
}

impl CallbackResult for () {
    fn as_number(&self) -> u32 {
        0
    }
}

impl CallbackResult for u32 {
    fn as_number(&self) -> u32 {
        *self
    }
}
