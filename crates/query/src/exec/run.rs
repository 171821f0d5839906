//! A single run of a program, from its instance and input to its result.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use crate::host::{AnswerBuilder, ConsoleTail, QueryGuest};
use crate::limits::LimitKind;
use crate::problem::QueryError;
use crate::program::SessionId;
use crate::record::HostCallMode;
use crate::runtime::{
    CompiledProgram, EntryPoints, QueryRuntime, WarmInstance, WarmInstanceState, has_outgrown, instantiate,
};
use bytes::Bytes;
use offload::polls::{PollSite, watch_polls};
use offload::{FairPermit, QuotaKey};
use sandbox::{CacheKey, GuestResult, MeteredFuture, Store, Trap, Trapped, UpdateDeadline, discard_memory};
use scopeguard::ScopeGuard;
use serde_json::Value;
use services::{CpuAccounting, GatewayOverloaded, timeout_at};
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
    pub(crate) warm_instance: Option<WarmInstance>,
    /// Whether the run reused an instance.
    pub(crate) is_reused: bool,
}

enum RunPlacement {
    /// A warm instance.
    Warm(Box<WarmInstanceState>),
    /// A fresh instance in this shard.
    Fresh(usize),
}

/// An execution slot: a warm instance, or a shard for a fresh one.
pub(crate) struct ExecutionSlot {
    store: Store<QueryGuest>,
    placement: RunPlacement,
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
        if let Some(live) = take_warm_instance(runtime, session, &mut guest) {
            return Self::with_warm_instance(live, guest, session);
        }
        let shard = runtime.pick_shard(program, key);
        Self {
            store: new_store(runtime.shards.shard(shard).engine(program), guest),
            placement: RunPlacement::Fresh(shard),
            session,
        }
    }

    fn with_warm_instance(
        WarmInstance { mut store, state: seat }: WarmInstance,
        guest: QueryGuest,
        session: Option<(SessionId, CacheKey)>,
    ) -> Self {
        *store.data_mut() = guest;
        store.set_epoch_deadline(1);
        Self { store, placement: RunPlacement::Warm(seat), session }
    }

    /// Tries again to reuse an instance, once the run may start.
    fn try_reuse(mut self, runtime: &QueryRuntime) -> Self {
        if let RunPlacement::Warm(_) = self.placement {
            return self;
        }
        match take_warm_instance(runtime, self.session, self.store.data_mut()) {
            Some(live) => Self::with_warm_instance(live, self.store.into_data(), self.session),
            None => self,
        }
    }
}

/// Takes a warm instance of the session that this guest may reuse.
fn take_warm_instance(
    runtime: &QueryRuntime,
    session: Option<(SessionId, CacheKey)>,
    guest: &mut QueryGuest,
) -> Option<WarmInstance> {
    let (session, key) = session?;
    runtime.warm_instances.take(session, key).filter(|live| guest.reuse_from(live.store.data()))
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
    let phase = trace.start_phase("queue");
    let mut permit = match &stage.placement {
        RunPlacement::Warm(_) => None,
        RunPlacement::Fresh(_) => {
            match timeout_at(deadline, pin!(runtime.acquire_instance_slot(program, client))).await {
                Some(permit) => permit,
                None => return overloaded_result(stage.store),
            }
        }
    };
    match timeout_at(deadline, pin!(runtime.run_queue.acquire(client))).await {
        Some(Ok(place)) => stage.store.data_mut().set_run_permit(place),
        Some(Err(sandbox::RunQueueFull)) | None => return overloaded_result(stage.store),
    }
    // While this run queued, other runs may have returned instances of its session. An instance that is taken
    // before queueing would be unavailable to them in vain.
    let ExecutionSlot { store, placement: within, .. } = stage.try_reuse(runtime);
    if let RunPlacement::Warm(_) = within {
        permit = None;
    }
    let is_plain = matches!(program, CompiledProgram::Plain(_));
    let mut staged =
        scopeguard::guard((store, within, permit), |staged| drop_cancelled_run(staged, is_plain));
    let (store, run_placement, _) = &mut *staged;
    drop(phase);
    let _runs = trace.start_phase("run");
    let _running = runtime.ticker.track_guest();
    let most = store.data().limits.millis(LimitKind::Cpu);
    let engine = store.engine().clone();
    let entered = enter_program(runtime, program, store, run_placement, input);
    let mut charge_guard =
        CpuChargeGuard { metered: MeteredFuture::new(entered, most, &runtime.gate, client, &engine), payer };
    let result = timeout_at(deadline, Pin::new(&mut charge_guard.metered)).await;
    let cpu = charge_guard.metered.cpu_used();
    drop(charge_guard);
    let guest = store.data();
    let first = if let RunPlacement::Warm(seat) = run_placement {
        seat.initial_memory()
    } else {
        guest.initial_memory
    };
    let keeps_instance = keeps_instance && !has_outgrown(guest.linear_memory(), first);
    if !matches!(result, Some(Ok(Ok(_)))) || !keeps_instance {
        discard_run_memory(store, is_plain).await;
    }
    let (mut store, within, permit) = ScopeGuard::into_inner(staged);
    let entry = match result {
        Some(Ok(Ok(entry))) => entry,
        Some(Ok(Err(error))) => return run_result(Err(to_query_error(error)), store.into_data(), cpu),
        Some(Err(sandbox::OverCpu)) => return limit_result(LimitKind::Cpu, store, cpu),
        None => return limit_result(LimitKind::Deadline, store, cpu),
    };
    if !keeps_instance || store.data().answer.body.is_none() {
        return run_result(Ok(()), store.into_data(), cpu);
    }
    let first = store.data().initial_memory;
    let share = client.queue_share();
    let fresh = entry
        .zip(permit)
        .map(|(entry, permit)| Box::new(WarmInstanceState::new(entry, permit, share, first)));
    let (answer, console) = store.data_mut().reset_after_run();
    let (instance_state, is_reused) = match within {
        RunPlacement::Warm(seat) => (Some(seat), true),
        RunPlacement::Fresh(_) => (fresh, false),
    };
    let live = instance_state.map(|warm_instance_state| WarmInstance { store, state: warm_instance_state });
    RunResult { warm_instance: live, is_reused, ..finished_result(Ok(()), answer, console, cpu) }
}

/// Discards the memory of a finished run. The initial memory of an environment stays, since programs write
/// little of it.
async fn discard_run_memory(store: &mut Store<QueryGuest>, is_plain: bool) {
    let guest = store.data();
    let begin = if is_plain { 0 } else { guest.initial_memory };
    if let Some(memory) = guest.memory {
        discard_memory(store, memory, begin).await;
    }
}

/// Drops the instance of a cancelled run. It keeps its pool slot until its memory has been discarded.
fn drop_cancelled_run(mut staged: (Store<QueryGuest>, RunPlacement, Option<FairPermit>), is_plain: bool) {
    // Ends its upstream calls and releases the run permit. Calls are cancelled one by one, and a waiting one
    // must not take the place of a cancelled one.
    staged.0.data().call.budget.close();
    staged.0.data_mut().reset_after_run();
    if staged.0.data().memory.is_some()
        && let Ok(runtime) = Handle::try_current()
    {
        runtime.spawn(watch_polls(PollSite::Query, async move {
            let (mut store, placement, permit) = staged;
            discard_run_memory(&mut store, is_plain).await;
            drop(store);
            drop((placement, permit));
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
fn overloaded_result(store: Store<QueryGuest>) -> RunResult {
    run_result(Err(GatewayOverloaded.into()), store.into_data(), Duration::ZERO)
}

fn limit_result(limit: LimitKind, store: Store<QueryGuest>, cpu: Duration) -> RunResult {
    let guest = store.into_data();
    run_result(Err(guest.limits.exceeded_error(limit).into()), guest, cpu)
}

fn run_result(result: Result<(), QueryError>, guest: QueryGuest, cpu: Duration) -> RunResult {
    RunResult { tape: guest.tape, ..finished_result(result, guest.answer, guest.console, cpu) }
}

/// Checks that a successful run has an answer.
fn finished_result(
    result: Result<(), QueryError>,
    answer: AnswerBuilder,
    console: ConsoleTail,
    cpu: Duration,
) -> RunResult {
    let result = match result {
        Ok(()) if answer.body.is_none() => Err(QueryError::NoAnswer),
        result => result,
    };
    RunResult { result, answer, console, tape: HostCallMode::Off, cpu, warm_instance: None, is_reused: false }
}

/// Creates the store of a run. At every epoch tick the guest yields like a tokio task: it continues after the
/// thread has polled for I/O, so that a busy guest delays other tasks by one tick at most.
fn new_store(engine: &sandbox::Engine, guest: QueryGuest) -> Store<QueryGuest> {
    let mut store = Store::new(engine, guest);
    store.limiter(|guest| guest);
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|mut store| {
        store.data_mut().on_epoch_tick();
        Ok(UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now())))
    });
    store
}

/// Runs the program. For a fresh instance, returns the functions that can run it again.
async fn enter_program(
    runtime: &QueryRuntime,
    program: &CompiledProgram,
    store: &mut Store<QueryGuest>,
    placement: &RunPlacement,
    input: &Bytes,
) -> GuestResult<Option<EntryPoints>> {
    let entry = match placement {
        RunPlacement::Warm(seat) => {
            seat.entry.call(store, input).await?;
            None
        }
        // Boxed, so that runs in a warm instance do not reserve space for it.
        RunPlacement::Fresh(shard) => {
            Some(Box::pin(enter_fresh(runtime, *shard, program, store, input)).await?)
        }
    };
    await_unsafe_calls(store.data_mut()).await?;
    Ok(entry)
}

async fn enter_fresh(
    runtime: &QueryRuntime,
    at: usize,
    program: &CompiledProgram,
    store: &mut Store<QueryGuest>,
    input: &Bytes,
) -> GuestResult<EntryPoints> {
    let entry = instantiate(&runtime.shards, at, program, store).await?;
    entry.call(store, input).await?;
    Ok(entry)
}

/// Waits for the unsafe calls that the program did not await. A recording models the program's return as a
/// host call.
async fn await_unsafe_calls(guest: &mut QueryGuest) -> GuestResult<()> {
    guest.record_host_call("return", Value::Null).map_err(Trapped::new)?;
    while guest.futures.has_unsafe_pending() && guest.wait_for_call().await.map_err(Trapped::new)?.is_some() {
        consume_budget().await;
    }
    guest.tape.record_result(None).map_err(Trapped::new)
}

/// Converts an error from the sandbox.
fn to_query_error(error: Trapped) -> QueryError {
    if error.is::<QueryError>() {
        return error.downcast().unwrap_or_else(|error| QueryError::Gateway(format!("{error:#}")));
    }
    match error.downcast_ref::<Trap>() {
        Some(trap) => QueryError::Trapped(trap.to_string()),
        None => QueryError::Gateway(format!("{error:#}")),
    }
}
