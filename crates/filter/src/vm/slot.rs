//! A slot for one instance of a virtual machine: creation, entry, and replacement after a trap.
//!
//! A trap destroys all contexts of the instance. Each is notified, so that no request waits for a callback
//! that never comes. The next request finds a new instance, and the client whose request trapped is charged
//! for it (`restarts.rs`). If instances do not start, or trap in a timer or queue callback before they serve
//! a request, the next ones are created after a growing back-off of at most one second, for which requests
//! wait.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use offload::polls::{PollSite, watch_polls};
use offload::{QuotaKey, WaitQueue};
use sandbox::{CpuClock, Trapped, with_alarm};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::VmCore;
use super::callbacks::PrepareRoot;
use super::entry::{CallbackTarget, EntryError, ModuleCallback};
use super::instance::{FilterInstance, NotReady};
use super::restarts::measure_cpu;
use crate::context::PluginSpec;
use crate::sync::lock;
use crate::telemetry::{FilterEvent, increment};

/// The maximum number of requests that wait for one instance before they have a stream there.
pub(crate) const MAX_WAITING: usize = 1024;
/// The number of instances that may fail in a row without a back-off.
const FREE_FAILURES: u32 = 5;
/// The longest back-off.
const MAX_BACK_OFF: Duration = Duration::from_secs(1);
/// An instance that lived longer than this does not count as a failure in a row.
const LONG_LIFE: Duration = Duration::from_secs(5);

/// A slot for one instance.
pub(crate) struct InstanceSlot {
    core: Arc<VmCore>,
    weak_self: Weak<Self>,
    is_used: AtomicBool,
    queue: Mutex<SlotQueue>,
}

/// The state of a slot, unless it is taken, and the queue of tasks that wait for it.
struct SlotQueue {
    state: Option<SlotState>,
    waiters: WaitQueue<StateGuard>,
}

/// Exclusive access to the state of a slot. Dropping it passes the state to the next task in the queue.
pub(crate) struct StateGuard {
    slot: Arc<InstanceSlot>,
    /// Present until it is passed on.
    state: Option<SlotState>,
}

/// The state of a slot.
#[derive(Default)]
pub(crate) struct SlotState {
    instance: Option<Box<FilterInstance>>,
    /// The number of earlier instances.
    generation: u64,
    /// The number of consecutive failures that count for the back-off.
    failures: u32,
    created_at: Option<Instant>,
    back_off: Option<BackOff>,
    /// The client whose request trapped the previous instance, and which is charged for this one.
    charged_client: Option<QuotaKey>,
    /// The task that releases the memory of the previous instance.
    cleanup_task: Option<JoinHandle<()>>,
    /// Whether a callback has begun and not ended.
    is_entered: bool,
}

/// A back-off, during which no instance is created.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BackOff {
    pub(crate) retry_at: Instant,
    /// Whether the last instance failed to start. Otherwise it started, and trapped before it served a
    /// request.
    pub(crate) is_start: bool,
}

/// A failure of an instance.
struct InstanceFailure {
    /// Whether it failed to start, in general or for the filter that it was started for.
    is_start: bool,
    /// Whether it has served a request.
    has_served: bool,
    /// The client whose request trapped, if it was a request's callback.
    payer: Option<QuotaKey>,
}

/// The error of a callback that was interrupted.
#[derive(Debug, thiserror::Error)]
#[error("it was interrupted in the middle of a callback")]
struct LeftHalfway;

impl InstanceSlot {
    pub(crate) fn new(core: &Arc<VmCore>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            core: Arc::clone(core),
            weak_self: me.clone(),
            is_used: AtomicBool::new(false),
            queue: Mutex::new(SlotQueue {
                state: Some(SlotState::default()),
                waiters: WaitQueue::new(MAX_WAITING),
            }),
        })
    }

    /// Whether the slot has ever had an instance.
    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(Relaxed)
    }

    /// The number of tasks that wait for the state.
    pub(crate) fn waiting_count(&self) -> usize {
        lock(&self.queue).waiters.len()
    }

    /// Takes the state if it is free.
    pub(crate) fn try_lock_state(self: &Arc<Self>) -> Option<StateGuard> {
        let state = lock(&self.queue).state.take()?;
        Some(StateGuard { slot: Arc::clone(self), state: Some(state) })
    }

    /// Takes the state, now or in the payer's turn. Returns `None` if the task begins a request, and too many
    /// of these wait already.
    pub(crate) fn lock_or_queue(
        self: &Arc<Self>,
        payer: impl FnOnce() -> Option<QuotaKey>,
        begins_request: bool,
    ) -> Option<Result<StateGuard, oneshot::Receiver<StateGuard>>> {
        let mut line = lock(&self.queue);
        if let Some(state) = line.state.take() {
            return Some(Ok(StateGuard { slot: Arc::clone(self), state: Some(state) }));
        }
        line.waiters.push(payer(), begins_request).map(Err)
    }

    /// Makes sure that the filter has its root context in the instance, creating both if necessary.
    ///
    /// # Errors
    /// Fails if the instance can't be created, or not yet.
    pub(crate) async fn prepare_root(self: Arc<Self>, spec: Arc<PluginSpec>) -> Result<(), EntryError> {
        let state = match self.lock_or_queue(|| None, false) {
            Some(Ok(state)) => Ok(state),
            Some(Err(turn)) => turn.await.map_err(|_| EntryError::InstanceLost),
            None => Err(EntryError::QueueFull),
        };
        state?.run(CallbackTarget::WithRoot(spec), PrepareRoot).await
    }

    fn release_state(self: &Arc<Self>, mut state: SlotState) {
        loop {
            let next = {
                let mut line = lock(&self.queue);
                let Some(next) = line.waiters.pop() else {
                    line.state = Some(state);
                    return;
                };
                next
            };
            match next.send(StateGuard { slot: Arc::clone(self), state: Some(state) }) {
                Ok(()) => return,
                Err(mut refused) => match refused.state.take() {
                    Some(refused) => state = refused,
                    None => return,
                },
            }
        }
    }

    /// Creates a filter's root context, and the instance if there is none.
    async fn ensure_root(&self, state: &mut SlotState, spec: &Arc<PluginSpec>) -> Result<(), EntryError> {
        if let Some(burial) = &mut state.cleanup_task {
            // A slot never has two memories at once. A task that panicked has released its memory as well.
            let _ = burial.await;
            state.cleanup_task = None;
        }
        state.is_entered = true;
        let debtor = state.charged_client;
        let (made, cpu) = measure_cpu(self.start_root(state, spec)).await;
        if let Some(debtor) = debtor {
            self.core.filters.restart_quota.charge(debtor, cpu);
        }
        state.is_entered = false;
        made.map_err(EntryError::NotReady)
    }

    async fn start_root(&self, state: &mut SlotState, spec: &Arc<PluginSpec>) -> Result<(), NotReady> {
        let instance = match state.instance.take() {
            Some(instance) => instance,
            None => self.create_instance(state, spec).await?,
        };
        let started = state.instance.insert(instance).start_filter(spec).await;
        if let Err(NotReady::Trapped(trapped)) = &started {
            // A filter that can't start is not restarted automatically, which would never end.
            self.replace_instance(state, trapped, Some(spec.number));
        }
        started
    }

    async fn create_instance(
        &self,
        state: &mut SlotState,
        spec: &Arc<PluginSpec>,
    ) -> Result<Box<FilterInstance>, NotReady> {
        state.check_back_off()?;
        self.is_used.store(true, Relaxed);
        let created = FilterInstance::new(&self.core, (self.weak_self.clone(), state.generation), spec).await;
        match created {
            Ok(instance) => {
                state.created_at = Some(Instant::now());
                Ok(Box::new(instance))
            }
            Err(error) => {
                increment(&spec.stats.traps);
                state.record_failure(&InstanceFailure::START);
                Err(error)
            }
        }
    }

    /// Discards an instance that trapped: logs it, notifies all its contexts, and starts the creation of the
    /// next one for the remaining filters, except the filter `without`.
    fn replace_instance(&self, state: &mut SlotState, trapped: &Trapped, without: Option<u64>) {
        let clock = CpuClock::now();
        let Some((dead, payer)) = state.take_failed_instance(without.is_some()) else { return };
        let (spec, reason) = (dead.current_spec(), dead.trap_reason(trapped));
        let name = spec.as_ref().map_or("", |spec| &spec.name);
        tracing::error!(target: "filter", filter = name, "trapped, its instance is replaced: {reason}");
        spec.iter().for_each(|spec| increment(&spec.stats.traps));
        if let Some(observer) = &self.core.filters.observer {
            observer.on_event(&FilterEvent::Trapped { filter: name, reason: &reason });
        }
        let mut specs = dead.specs_to_restart();
        specs.retain(|spec| without != Some(spec.number));
        if !specs.is_empty() {
            self.restart_in_background(specs, state.back_off.map(|back_off| back_off.retry_at));
        }
        let giving_back = dead.mark_dead();
        state.cleanup_task = self.spawn_charged(giving_back, payer);
        if let Some(payer) = payer {
            self.core.filters.restart_quota.charge(payer, clock.elapsed());
        }
    }

    /// Runs the remaining work for a trapped instance in a task whose CPU time is charged to the client whose
    /// request trapped.
    pub(crate) fn spawn_charged(
        &self,
        work: impl Future<Output = ()> + Send + 'static,
        payer: Option<QuotaKey>,
    ) -> Option<JoinHandle<()>> {
        let runtime = Handle::try_current().ok()?;
        let core = Arc::clone(&self.core);
        Some(runtime.spawn(watch_polls(PollSite::Filters, async move {
            let ((), cpu) = measure_cpu(work).await;
            if let Some(payer) = payer {
                core.filters.restart_quota.charge(payer, cpu);
            }
        })))
    }

    /// Creates the next instance in the background, for the filter that trapped and for those with timers.
    fn restart_in_background(&self, specs: Vec<Arc<PluginSpec>>, again: Option<Instant>) {
        let Ok(runtime) = Handle::try_current() else { return };
        let me = self.weak_self.clone();
        runtime.spawn(watch_polls(PollSite::Filters, async move {
            if let Some(again) = again {
                tokio::time::sleep_until(again).await;
            }
            for spec in specs {
                let Some(slot) = me.upgrade() else { return };
                if !spec.is_ended.load(Relaxed) {
                    // A filter that fails again has been logged, and the next request retries it.
                    let _ = slot.prepare_root(spec).await;
                }
            }
        }));
    }
}

impl StateGuard {
    /// Runs a callback and the work that it leaves in the instance.
    ///
    /// # Errors
    /// Fails if the instance does not exist, or traps.
    pub(crate) async fn run<C: ModuleCallback>(
        mut self,
        target: CallbackTarget,
        callback: C,
    ) -> Result<C::Output, EntryError> {
        let Self { slot, state: Some(state) } = &mut self else { return Err(EntryError::InstanceLost) };
        let filters = &slot.core.filters;
        if let Some(call) = callback.new_request()
            && let Some(retry_after) = filters.restart_quota.retry_after(|| call.quota_key())
        {
            return Err(EntryError::OverQuota(retry_after));
        }
        let _running = filters.ticker.track_guest();
        if state.is_entered {
            slot.replace_instance(state, &Trapped::new(LeftHalfway), None);
        }
        if let Some(instance) = &mut state.instance {
            instance.begin_turn();
        }
        if let CallbackTarget::WithRoot(spec) = &target
            && !state.instance.as_ref().is_some_and(|instance| instance.has_root(spec))
        {
            Box::pin(slot.ensure_root(state, spec)).await?;
        }
        let is_there =
            !matches!(target, CallbackTarget::Generation(generation) if generation != state.generation);
        let SlotState { instance: Some(instance), is_entered, .. } = state else {
            return Err(EntryError::InstanceLost);
        };
        if !is_there {
            return Err(EntryError::InstanceLost);
        }
        *is_entered = true;
        let engine = slot.core.module.pre.module().engine();
        let result = {
            let mut called = pin!(callback.call(instance));
            poll_fn(|context| with_alarm(engine, || called.as_mut().poll(context))).await
        };
        let mut trap = None;
        if instance.has_done_streams() && result.is_ok() {
            // A trap at the end of other streams is not this callback's. Its own stream is notified like all
            // in the instance.
            trap = Box::pin(instance.finish_done_streams()).await.err();
        }
        *is_entered = false;
        let result = result.map_err(|trapped| {
            trap = Some(trapped);
            EntryError::InstanceLost
        });
        if let Some(trapped) = trap {
            slot.replace_instance(state, &trapped, None);
        }
        result
    }

    /// Whether there is an instance, or one may be created now.
    pub(crate) fn is_ready(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.instance.is_some() || state.check_back_off().is_ok())
    }

    /// Removes a stream without notifying its module.
    pub(crate) fn remove_stream(&mut self, generation: u64, id: u32) {
        if let Some(state) = self.state.as_mut().filter(|state| state.generation == generation)
            && let Some(instance) = &mut state.instance
        {
            instance.remove_context(id);
        }
    }
}

impl Drop for StateGuard {
    fn drop(&mut self) {
        if let Some(state) = self.state.take() {
            self.slot.release_state(state);
        }
    }
}

impl SlotState {
    /// Takes the instance out of the slot and starts a new generation. Returns the instance with the client
    /// whose request trapped it.
    fn take_failed_instance(&mut self, is_start: bool) -> Option<(Box<FilterInstance>, Option<QuotaKey>)> {
        self.generation += 1;
        let Some(dead) = self.instance.take() else {
            self.record_failure(&InstanceFailure::START);
            return None;
        };
        let payer = if is_start { None } else { dead.payer() };
        self.record_failure(&InstanceFailure { is_start, has_served: dead.has_served(), payer });
        Some((dead, payer))
    }

    /// Determines the back-off for the next instance, and the client that is charged for it.
    fn record_failure(&mut self, failure: &InstanceFailure) {
        self.charged_client = failure.payer;
        if !failure.counts_for_back_off() {
            self.created_at = None;
            self.back_off = None;
            if failure.has_served {
                self.failures = 0;
            }
            return;
        }
        let lived = self.created_at.take().map_or(Duration::ZERO, |made| made.elapsed());
        self.failures = if lived > LONG_LIFE { 1 } else { self.failures.saturating_add(1) };
        let doublings = self.failures.saturating_sub(FREE_FAILURES);
        let wait = match doublings {
            0 => Duration::ZERO,
            doublings => {
                MAX_BACK_OFF.min(Duration::from_millis(10) * 2_u32.saturating_pow(doublings.min(16)))
            }
        };
        self.back_off = Some(BackOff { retry_at: Instant::now() + wait, is_start: failure.is_start });
    }

    fn check_back_off(&self) -> Result<(), NotReady> {
        match self.back_off {
            Some(back_off) if Instant::now() < back_off.retry_at => Err(NotReady::BackingOff(back_off)),
            _ => Ok(()),
        }
    }
}

impl InstanceFailure {
    const START: Self = Self { is_start: true, has_served: false, payer: None };

    /// Whether the failure counts for the back-off. A trap in a request does not, since its client could then
    /// block all others.
    fn counts_for_back_off(&self) -> bool {
        self.is_start || (self.payer.is_none() && !self.has_served)
    }
}
