//! A single run of a program, from its instance and input to its result.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::environment::{CEnvironment, JavascriptEnvironment, LinkedEnvironment};
use crate::guest::{AnswerBuilder, ConsoleTail, QueryGuest};
use crate::host::COPIED;
use crate::limits::LimitKind;
use crate::live::{WarmInstance, WarmInstanceState, has_outgrown};
use crate::problem::QueryError;
use crate::program::{CProgram, CompiledProgram, ImportExterns, ImportOrigin};
use crate::record::HostCallMode;
use crate::runtime::QueryRuntime;
use crate::token::SessionId;
use bytes::Bytes;
use offload::polls::{PollSite, watch_polls};
use offload::{FairPermit, QuotaKey};
use query_abi::{ALLOC, CONSTRUCTORS, ENTRY, MEMORY};
use sandbox::{
    CacheKey, Extern, Func, GuestResult, Instance, Linker, MeteredFuture, Module, ModuleExport, Store, Trap,
    Trapped, TypedFunc, UpdateDeadline, discard_memory,
};
use scopeguard::ScopeGuard;
use serde_json::Value;
use services::{CpuAccounting, GatewayOverloaded, RequestBudget, timeout_at};
use tokio::runtime::Handle;
use tokio::task::coop::consume_budget;

/// The result of a run.
pub(crate) struct RunResult {
    pub(crate) result: Result<(), QueryError>,
    pub(crate) answer: AnswerBuilder,
    pub(crate) console: ConsoleTail,
    pub(crate) tape: HostCallMode,
    pub(crate) cpu: Duration,
    /// The instance, if it can be reused.
    pub(crate) live: Option<WarmInstance>,
    /// Whether the run reused an instance.
    pub(crate) is_reused: bool,
}

/// The functions of an instance that start another run.
pub(crate) struct EntryPoints {
    run: TypedFunc<(u32, u32), ()>,
    alloc: InputAllocator,
}

/// The ways to allocate memory for an input.
enum InputAllocator {
    Function(TypedFunc<u32, u32>),
    /// For a plain module without an allocator: its memory grows.
    Growing,
}

#[cfg(test)]
impl EntryPoints {
    /// Returns the entry of a plain module without an allocator.
    pub(crate) fn plain(run: TypedFunc<(u32, u32), ()>) -> Self {
        Self { run, alloc: InputAllocator::Growing }
    }
}

enum RunPlacement {
    /// A warm instance.
    Seat(Box<WarmInstanceState>),
    /// A fresh instance in this shard.
    Lane(usize),
}

/// An execution slot: a warm instance, or a shard for a fresh one.
pub(crate) struct ExecutionSlot {
    store: Store<QueryGuest>,
    within: RunPlacement,
    /// The session whose instances it may use.
    session: Option<(SessionId, CacheKey)>,
}

impl ExecutionSlot {
    /// Creates a slot, with a warm instance if the session has one.
    pub(crate) fn new(
        runtime: &Arc<QueryRuntime>,
        program: &CompiledProgram,
        mut guest: QueryGuest,
        key: Option<CacheKey>,
        session: Option<SessionId>,
    ) -> Self {
        let session = session.zip(key);
        if let Some(live) = taken(runtime, session, &mut guest) {
            return Self::within(live, guest, session);
        }
        let lane = runtime.lane(program, key);
        Self {
            store: store(runtime.lanes.at(lane).engine(program), guest),
            within: RunPlacement::Lane(lane),
            session,
        }
    }

    fn within(
        WarmInstance { mut store, seat }: WarmInstance,
        guest: QueryGuest,
        session: Option<(SessionId, CacheKey)>,
    ) -> Self {
        *store.data_mut() = guest;
        store.set_epoch_deadline(1);
        Self { store, within: RunPlacement::Seat(seat), session }
    }

    /// Tries again to reuse an instance, once the run may start.
    fn again(mut self, runtime: &QueryRuntime) -> Self {
        if let RunPlacement::Seat(_) = self.within {
            return self;
        }
        match taken(runtime, self.session, self.store.data_mut()) {
            Some(live) => Self::within(live, self.store.into_data(), self.session),
            None => self,
        }
    }
}

/// Takes a warm instance of the session that this guest may reuse.
fn taken(
    runtime: &QueryRuntime,
    session: Option<(SessionId, CacheKey)>,
    guest: &mut QueryGuest,
) -> Option<WarmInstance> {
    let (session, key) = session?;
    runtime.lives.take(session, key).filter(|live| guest.follow(live.store.data()))
}

/// Runs a program until it ends or exceeds a limit. Slots, turns and warm instances count for the client,
/// also of a signed program, whose code all clients share. `keeps_instance` is whether its instance is to be
/// kept for reuse.
pub(crate) async fn run(
    runtime: &QueryRuntime,
    program: &CompiledProgram,
    client: QuotaKey,
    mut stage: ExecutionSlot,
    input: &Bytes,
    keeps_instance: bool,
) -> RunResult {
    let call = &stage.store.data().call;
    let (trace, payer, deadline) = (call.trace.clone(), call.payer.clone(), call.budget.deadline);
    let waits = trace.start_phase("queue");
    let mut permit = match &stage.within {
        RunPlacement::Seat(_) => None,
        RunPlacement::Lane(_) => match timeout_at(deadline, pin!(runtime.place(program, client))).await {
            Some(permit) => permit,
            None => return overloaded(stage.store),
        },
    };
    match timeout_at(deadline, pin!(runtime.line.acquire(client))).await {
        Some(Ok(place)) => stage.store.data_mut().takes(place),
        Some(Err(sandbox::TooLong)) | None => return overloaded(stage.store),
    }
    // While this run queued, other runs may have returned instances of its session. An instance that is taken
    // before queueing would be unavailable to them in vain.
    let ExecutionSlot { store, within, .. } = stage.again(runtime);
    if let RunPlacement::Seat(_) = within {
        permit = None;
    }
    let is_plain = matches!(program, CompiledProgram::Plain(_));
    let mut staged = scopeguard::guard((store, within, permit), |staged| abandon(staged, is_plain));
    let (store, within, _) = &mut *staged;
    drop(waits);
    let _runs = trace.start_phase("run");
    let _running = runtime.ticker.track_guest();
    let most = store.data().limits.millis(LimitKind::Cpu);
    let engine = store.engine().clone();
    let entered = enter(runtime, program, store, within, input);
    let mut charged =
        CpuChargeGuard { metered: MeteredFuture::new(entered, most, &runtime.gate, client, &engine), payer };
    let result = timeout_at(deadline, Pin::new(&mut charged.metered)).await;
    let cpu = charged.metered.cpu_used();
    drop(charged);
    let guest = store.data();
    let first = if let RunPlacement::Seat(seat) = within { seat.first() } else { guest.first };
    let keeps_instance = keeps_instance && !has_outgrown(guest.linear(), first);
    if !matches!(result, Some(Ok(Ok(_)))) || !keeps_instance {
        give_back(store, is_plain).await;
    }
    let (mut store, within, permit) = ScopeGuard::into_inner(staged);
    let entry = match result {
        Some(Ok(Ok(entry))) => entry,
        Some(Ok(Err(error))) => return ended(Err(reason(error)), store.into_data(), cpu),
        Some(Err(sandbox::OverCpu)) => return exceeded(LimitKind::Cpu, store, cpu),
        None => return exceeded(LimitKind::Deadline, store, cpu),
    };
    if !keeps_instance || store.data().answer.body.is_none() {
        return ended(Ok(()), store.into_data(), cpu);
    }
    let first = store.data().first;
    let share = client.queue_share();
    let fresh = entry
        .zip(permit)
        .map(|(entry, permit)| Box::new(WarmInstanceState::new(entry, permit, share, first)));
    let (answer, console) = store.data_mut().rest();
    let (seat, is_reused) = match within {
        RunPlacement::Seat(seat) => (Some(seat), true),
        RunPlacement::Lane(_) => (fresh, false),
    };
    let live = seat.map(|seat| WarmInstance { store, seat });
    RunResult { live, is_reused, ..finished(Ok(()), answer, console, cpu) }
}

/// Discards the memory of a finished run. The initial memory of an environment stays, since programs write
/// little of it.
async fn give_back(store: &mut Store<QueryGuest>, is_plain: bool) {
    let guest = store.data();
    let begin = if is_plain { 0 } else { guest.first };
    if let Some(memory) = guest.memory {
        discard_memory(store, memory, begin).await;
    }
}

/// Drops the instance of a cancelled run. It keeps its pool slot until its memory has been discarded.
fn abandon(mut staged: (Store<QueryGuest>, RunPlacement, Option<FairPermit>), is_plain: bool) {
    // Ends its upstream calls and releases the run permit. Calls are cancelled one by one, and a waiting one
    // must not take the place of a cancelled one.
    staged.0.data().call.budget.close();
    staged.0.data_mut().rest();
    if staged.0.data().memory.is_some()
        && let Ok(runtime) = Handle::try_current()
    {
        runtime.spawn(watch_polls(PollSite::Query, async move {
            let (mut store, within, permit) = staged;
            give_back(&mut store, is_plain).await;
            drop(store);
            drop((within, permit));
        }));
    }
}

/// A run with its payer. Charges the payer on drop, so that cancelled runs are charged as well.
struct CpuChargeGuard<'g, F: Future> {
    metered: MeteredFuture<'g, F>,
    payer: Option<Arc<dyn CpuAccounting>>,
}

impl<F: Future> Drop for CpuChargeGuard<'_, F> {
    fn drop(&mut self) {
        if let Some(payer) = &self.payer {
            payer.charge(self.metered.cpu_used());
        }
    }
}

/// Ends a run that did not start in time.
fn overloaded(store: Store<QueryGuest>) -> RunResult {
    ended(Err(GatewayOverloaded.into()), store.into_data(), Duration::ZERO)
}

fn exceeded(limit: LimitKind, store: Store<QueryGuest>, cpu: Duration) -> RunResult {
    let guest = store.into_data();
    ended(Err(guest.limits.exceeded(limit)), guest, cpu)
}

fn ended(result: Result<(), QueryError>, guest: QueryGuest, cpu: Duration) -> RunResult {
    RunResult { tape: guest.tape, ..finished(result, guest.answer, guest.console, cpu) }
}

/// Checks that a successful run has an answer.
fn finished(
    result: Result<(), QueryError>,
    answer: AnswerBuilder,
    console: ConsoleTail,
    cpu: Duration,
) -> RunResult {
    let result = match result {
        Ok(()) if answer.body.is_none() => Err(QueryError::NoAnswer),
        result => result,
    };
    RunResult { result, answer, console, tape: HostCallMode::Off, cpu, live: None, is_reused: false }
}

/// Creates the budget of upstream calls from a run's limits.
pub(crate) fn budget(limits: &crate::limits::RunLimits, started: Instant) -> RequestBudget {
    let calls = u32::try_from(limits.value(LimitKind::Calls)).unwrap_or(u32::MAX);
    let parallel = limits.size(LimitKind::Parallel);
    RequestBudget::new_at(
        started,
        limits.millis(LimitKind::Deadline),
        calls,
        limits.value(LimitKind::Received),
        parallel,
    )
}

/// Creates the store of a run. At every epoch tick the guest yields like a tokio task: it continues after the
/// thread has polled for I/O, so that a busy guest delays other tasks by one tick at most.
fn store(engine: &sandbox::Engine, guest: QueryGuest) -> Store<QueryGuest> {
    let mut store = Store::new(engine, guest);
    store.limiter(|guest| guest);
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|mut store| {
        store.data_mut().ticked();
        Ok(UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now())))
    });
    store
}

/// Runs the program. For a fresh instance, returns the functions that can run it again.
async fn enter(
    runtime: &QueryRuntime,
    program: &CompiledProgram,
    store: &mut Store<QueryGuest>,
    within: &RunPlacement,
    input: &Bytes,
) -> GuestResult<Option<EntryPoints>> {
    let entry = match within {
        RunPlacement::Seat(seat) => {
            enter_again(&seat.entry, store, input).await?;
            None
        }
        // Boxed, so that runs in a warm instance do not reserve space for it.
        RunPlacement::Lane(lane) => Some(Box::pin(enter_fresh(runtime, *lane, program, store, input)).await?),
    };
    settle_unsafe(store.data_mut()).await?;
    Ok(entry)
}

async fn enter_fresh(
    runtime: &QueryRuntime,
    at: usize,
    program: &CompiledProgram,
    store: &mut Store<QueryGuest>,
    input: &Bytes,
) -> GuestResult<EntryPoints> {
    let (lane, elsewhere) = (runtime.lanes.at(at), || gateway("the program is not compiled for its shard"));
    match program {
        CompiledProgram::C(program) => {
            enter_c(&lane.c, program.at(at).ok_or_else(elsewhere)?, store, input).await
        }
        CompiledProgram::Javascript(source) => enter_javascript(&lane.javascript, source, store, input).await,
        CompiledProgram::Plain(module) => {
            enter_plain(&lane.plain.1, module.at(at).ok_or_else(elsewhere)?, store, input).await
        }
    }
}

async fn enter_again(entry: &EntryPoints, store: &mut Store<QueryGuest>, input: &Bytes) -> GuestResult<()> {
    let input = entry.alloc.place(store, input).await?;
    entry.run.call_async(&mut *store, input).await
}

/// Waits for the unsafe calls that the program did not await. A recording models the program's return as a
/// host call.
async fn settle_unsafe(guest: &mut QueryGuest) -> GuestResult<()> {
    guest.called("return", Value::Null).map_err(Trapped::new)?;
    while guest.futures.unsafe_pending() && guest.settle_next().await.map_err(Trapped::new)?.is_some() {
        consume_budget().await;
    }
    guest.tape.gave(None).map_err(Trapped::new)
}

async fn enter_c(
    environment: &CEnvironment,
    program: &CProgram,
    store: &mut Store<QueryGuest>,
    input: &Bytes,
) -> GuestResult<EntryPoints> {
    let base = instantiate(&environment.base, store).await?;
    let imports = imports(&environment.base, base, program, store)?;
    let query = Instance::new_async(&mut *store, &program.module, &imports).await?;
    if let Some(constructors) = &program.constructors {
        let constructors = function(&query, store, constructors, CONSTRUCTORS)?.typed::<(), ()>(&*store)?;
        constructors.call_async(&mut *store, ()).await?;
    }
    let alloc = InputAllocator::of(&environment.base, &base, store)?;
    let run = function(&query, store, &program.entry, ENTRY)?.typed::<(u32, u32), ()>(&*store)?;
    let entry = EntryPoints { run, alloc };
    enter_again(&entry, store, input).await?;
    Ok(entry)
}

async fn enter_javascript(
    environment: &JavascriptEnvironment,
    source: &str,
    store: &mut Store<QueryGuest>,
    input: &Bytes,
) -> GuestResult<EntryPoints> {
    let instance = instantiate(&environment.base, store).await?;
    let access = store.data().access.clone();
    let alloc = InputAllocator::of(&environment.base, &instance, store)?;
    // Both texts in one allocation, each terminated by NUL: copying is cheaper than a second call into the
    // guest.
    let both = [source.as_bytes(), b"\0", access.names.as_bytes()].concat();
    let (place, len) = alloc.place(store, &both).await?;
    let source_len = u32::try_from(source.len()).unwrap_or(len);
    let names = source_len + 1;
    let load = function(&instance, store, &environment.load, "orfa_javascript_load")?;
    let load = load.typed::<(u32, u32, u32, u32), ()>(&*store)?;
    load.call_async(&mut *store, (place, source_len, place + names, len - names)).await?;
    let run = function(&instance, store, &environment.run, "orfa_javascript_run")?.typed(&*store)?;
    let entry = EntryPoints { run, alloc };
    enter_again(&entry, store, input).await?;
    Ok(entry)
}

async fn enter_plain(
    linker: &Linker<QueryGuest>,
    module: &Module,
    store: &mut Store<QueryGuest>,
    input: &Bytes,
) -> GuestResult<EntryPoints> {
    let instance = linker.instantiate_async(&mut *store, module).await?;
    store.data_mut().memory = instance.get_memory(&mut *store, MEMORY);
    store.data_mut().first = store.data().linear();
    for constructors in ["_initialize", CONSTRUCTORS] {
        if let Ok(constructors) = instance.get_typed_func::<(), ()>(&mut *store, constructors) {
            constructors.call_async(&mut *store, ()).await?;
        }
    }
    let alloc = match instance.get_func(&mut *store, ALLOC) {
        Some(alloc) => InputAllocator::Function(alloc.typed(&*store)?),
        None => InputAllocator::Growing,
    };
    let run = instance.get_typed_func::<(u32, u32), ()>(&mut *store, ENTRY)?;
    let entry = EntryPoints { run, alloc };
    enter_again(&entry, store, input).await?;
    Ok(entry)
}

/// Creates an instance of an environment and makes its memory available to the host functions.
async fn instantiate(
    environment: &LinkedEnvironment,
    store: &mut Store<QueryGuest>,
) -> GuestResult<Instance> {
    let instance = environment.instance.instantiate_async(&mut *store).await?;
    let memory = instance.get_module_export(&mut *store, &environment.memory);
    store.data_mut().memory = memory.and_then(Extern::into_memory);
    store.data_mut().first = store.data().linear();
    Ok(instance)
}

fn imports(
    base: &LinkedEnvironment,
    instance: Instance,
    program: &CProgram,
    store: &mut Store<QueryGuest>,
) -> GuestResult<ImportExterns> {
    let find = |import: &ImportOrigin| match import {
        ImportOrigin::Environment(export) => instance.get_module_export(&mut *store, export),
        ImportOrigin::Host(name) => base.linker.get(&mut *store, query_abi::HOST_MODULE, name).ok(),
    };
    let found: Option<ImportExterns> = program.imports.iter().map(find).collect();
    found.ok_or_else(|| gateway("an import of the program is missing"))
}

fn function(
    instance: &Instance,
    store: &mut Store<QueryGuest>,
    export: &ModuleExport,
    name: &str,
) -> GuestResult<Func> {
    let found = instance.get_module_export(&mut *store, export).and_then(Extern::into_func);
    found.ok_or_else(|| gateway(&format!("`{name}` is missing")))
}

impl InputAllocator {
    /// The environment's allocator.
    fn of(
        environment: &LinkedEnvironment,
        instance: &Instance,
        store: &mut Store<QueryGuest>,
    ) -> GuestResult<Self> {
        Ok(Self::Function(function(instance, store, &environment.alloc, ALLOC)?.typed(&*store)?))
    }

    /// Copies bytes into memory allocated by the guest.
    async fn place(&self, store: &mut Store<QueryGuest>, bytes: &[u8]) -> GuestResult<(u32, u32)> {
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if len == 0 {
            return Ok((0, 0));
        }
        let address = match self {
            Self::Function(alloc) => alloc.call_async(&mut *store, len).await?,
            Self::Growing => grow(store, bytes.len()).await?,
        };
        write(store, address, bytes).await?;
        Ok((address, len))
    }
}

/// Grows a plain module's memory by at least `bytes` and returns the address of the new part.
async fn grow(store: &mut Store<QueryGuest>, bytes: usize) -> GuestResult<u32> {
    let memory = store.data().memory.ok_or_else(|| gateway("the module has no memory"))?;
    let pages = bytes.div_ceil(64 << 10) as u64;
    let over = |guest: &QueryGuest| Trapped::new(guest.limits.exceeded(LimitKind::Memory));
    let grown = memory.grow_async(&mut *store, pages).await;
    let at = grown.map_err(|_| over(store.data()))? << 16;
    u32::try_from(at).map_err(|_| over(store.data()))
}

/// Copies bytes to an address of the guest. Yields between parts of long ones.
async fn write(store: &mut Store<QueryGuest>, address: u32, bytes: &[u8]) -> GuestResult<()> {
    let memory = store.data().memory.ok_or_else(|| gateway("the module has no memory"))?;
    let mut at = address as usize;
    for part in bytes.chunks(COPIED) {
        if at > address as usize {
            store.data_mut().ticked();
            tokio::task::yield_now().await;
        }
        let over = store.data().limits.exceeded(LimitKind::Memory);
        let place = memory.data_mut(&mut *store).get_mut(at..at + part.len()).filter(|_| address != 0);
        place.ok_or_else(|| Trapped::new(over))?.copy_from_slice(part);
        at += part.len();
    }
    Ok(())
}

fn gateway(what: &str) -> Trapped {
    Trapped::new(QueryError::Gateway(what.to_owned()))
}

/// Converts an error from the sandbox.
fn reason(error: Trapped) -> QueryError {
    if error.is::<QueryError>() {
        return error.downcast().unwrap_or_else(|error| QueryError::Gateway(format!("{error:#}")));
    }
    match error.downcast_ref::<Trap>() {
        Some(trap) => QueryError::Trapped(trap.to_string()),
        None => QueryError::Gateway(format!("{error:#}")),
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use sandbox::{GuestClass, Sandbox};

    use super::*;

    #[tokio::test]
    async fn yields_between_the_parts_of_a_long_input() {
        let sandbox = Sandbox::unpooled(GuestClass::Plain).unwrap();
        let wasm = wat::parse_str(r#"(module (memory (export "memory") 40))"#).unwrap();
        let module = sandbox.compile(&wasm).unwrap();
        let mut store = Store::new(sandbox.engine(), QueryGuest::isolated());
        let linker = Linker::new(sandbox.engine());
        let instance = linker.instantiate_async(&mut store, &module).await.unwrap();
        store.data_mut().memory = instance.get_memory(&mut store, MEMORY);
        for (bytes, expected) in [(COPIED, 1), (3 * COPIED + 1, 4)] {
            let (input, mut polls) = (vec![7; bytes], 0);
            let mut writing = pin!(write(&mut store, 65536, &input));
            let written = poll_fn(|context| {
                polls += 1;
                writing.as_mut().poll(context)
            });
            written.await.unwrap();
            assert_eq!(polls, expected);
        }
        let memory = store.data().memory.unwrap();
        let end = 65536 + 3 * COPIED + 1;
        assert_eq!(memory.data(&store)[end - 1..=end], [7, 0]);
        assert!(write(&mut store, 65536, &vec![7; 40 << 16]).await.is_err());
    }
}
