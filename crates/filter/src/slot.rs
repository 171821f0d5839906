//! A place for one instance of a virtual machine: where it is made, entered, and buried when it traps.
//!
//! A trap takes all contexts of the instance with it. Each is told, so that nobody waits for what never comes;
//! the next request finds a new instance. One that goes on trapping is replaced at longer and longer
//! intervals, up to a second, in which its filters do what `on_trap` says.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

use sandbox::{GuestResult, Trapped};

use crate::instance::Instance;
use crate::observe::Event;
use crate::plugin::Spec;
use crate::stats::count;
use crate::vm::Core;

/// So many instances may trap in a row without anybody waiting.
const FREE_FAILURES: u32 = 5;
/// The longest wait for the next one.
const LONGEST: Duration = Duration::from_secs(1);
/// An instance that lived for so long is no failure in a row.
const LONG_LIFE: Duration = Duration::from_secs(5);

/// A place for one instance.
pub(crate) struct Slot {
    core: Arc<Core>,
    me: Weak<Self>,
    used: AtomicBool,
    state: Mutex<State>,
}

/// What is in it.
#[derive(Default)]
pub(crate) struct State {
    instance: Option<Box<Instance>>,
    /// How many instances there were before.
    pub(crate) generation: u64,
    failures: u32,
    made: Option<Instant>,
    again: Option<Instant>,
}

/// The instance is not there any more, or can't be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone;

impl Slot {
    pub(crate) fn new(core: &Arc<Core>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            core: Arc::clone(core),
            me: me.clone(),
            used: AtomicBool::new(false),
            state: Mutex::default(),
        })
    }

    /// Whether there was ever an instance in it.
    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Relaxed)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| self.cleared(poisoned))
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(self.cleared(poisoned)),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// After a panic nobody knows what the instance is in the middle of: it goes.
    fn cleared<'a>(&self, poisoned: PoisonError<MutexGuard<'a, State>>) -> MutexGuard<'a, State> {
        let mut state = poisoned.into_inner();
        if let Some(dead) = state.kill() {
            dead.bury();
        }
        self.state.clear_poison();
        state
    }

    /// Calls into the instance of this generation.
    ///
    /// # Errors
    /// When it is gone, or traps now.
    pub(crate) fn with<T>(
        &self,
        generation: u64,
        call: impl FnOnce(&mut Instance) -> GuestResult<T>,
    ) -> Result<T, Gone> {
        let state = self.lock();
        if state.generation != generation {
            return Err(Gone);
        }
        self.run(state, call)
    }

    /// Calls into the instance that is there.
    ///
    /// # Errors
    /// When there is none, or it traps.
    pub(crate) fn run<T>(
        &self,
        mut state: MutexGuard<'_, State>,
        call: impl FnOnce(&mut Instance) -> GuestResult<T>,
    ) -> Result<T, Gone> {
        let Some(instance) = state.instance.as_deref_mut() else { return Err(Gone) };
        let _running = self.core.filters.ticker.run();
        let result = call(instance).and_then(|value| instance.settle().map(|()| value));
        result.map_err(|trapped| {
            let dead = state.kill();
            drop(state);
            self.bury(dead, &trapped, None);
            Gone
        })
    }

    /// Has an instance, made now if there is none, in which the filter has its root context.
    ///
    /// # Errors
    /// When it can't be made, or not yet.
    pub(crate) fn prepare<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        spec: &Arc<Spec>,
    ) -> Result<MutexGuard<'a, State>, crate::instance::NotReady> {
        if state.instance.as_ref().is_some_and(|instance| instance.has_root(spec)) {
            return Ok(state);
        }
        let _running = self.core.filters.ticker.run();
        if state.instance.is_none() {
            state.wait_over()?;
            self.used.store(true, Relaxed);
            match Instance::new(&self.core, (self.me.clone(), state.generation), spec) {
                Ok(instance) => {
                    state.made = Some(Instant::now());
                    state.instance = Some(Box::new(instance));
                }
                Err(error) => {
                    count(&spec.stats.traps);
                    state.note_failure();
                    return Err(error);
                }
            }
        }
        let Some(instance) = state.instance.as_deref_mut() else {
            return Err(crate::instance::NotReady::Later);
        };
        match instance.start(spec) {
            Ok(()) => Ok(state),
            Err(crate::instance::NotReady::Trapped(trapped)) => {
                let dead = state.kill();
                drop(state);
                // Not again by itself what can't even start: that would go on for ever.
                self.bury(dead, &trapped, Some(spec));
                Err(crate::instance::NotReady::Trapped(trapped))
            }
            Err(error) => Err(error),
        }
    }

    /// Tells the log and everybody who has a context in it, and has the next one made, but not for who is to be
    /// left out.
    fn bury(&self, dead: Option<Box<Instance>>, trapped: &Trapped, without: Option<&Spec>) {
        let Some(dead) = dead else { return };
        let (spec, reason) = (dead.current_spec(), dead.reason(trapped));
        let name = spec.as_ref().map_or("", |spec| &spec.name);
        tracing::error!(target: "filter", filter = name, "trapped, its instance is replaced: {reason}");
        spec.iter().for_each(|spec| count(&spec.stats.traps));
        if let Some(observer) = &self.core.filters.observer {
            observer.see(&Event::Trapped { filter: name, reason: &reason });
        }
        let mut specs = dead.to_revive();
        specs.retain(|spec| without.is_none_or(|without| without.number != spec.number));
        if !specs.is_empty() {
            self.revive(specs);
        }
        dead.bury();
    }

    /// Makes the next instance beside requests, for the filter that trapped and for those with timers.
    fn revive(&self, specs: Vec<Arc<Spec>>) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (me, again) = (self.me.clone(), self.lock().again);
        runtime.spawn(async move {
            if let Some(again) = again {
                tokio::time::sleep_until(again.into()).await;
            }
            for spec in specs {
                let Some(slot) = me.upgrade() else { return };
                let state = slot.lock();
                if !spec.ended.load(Relaxed) {
                    // One that fails again is in the log, and tried again by the next request.
                    drop(slot.prepare(state, &spec));
                }
            }
        });
    }
}

impl State {
    /// Takes the instance away. What it knew is not to be found by its generation any more.
    fn kill(&mut self) -> Option<Box<Instance>> {
        self.generation += 1;
        self.note_failure();
        self.instance.take()
    }

    fn note_failure(&mut self) {
        let lived = self.made.take().map_or(Duration::ZERO, |made| made.elapsed());
        self.failures = if lived > LONG_LIFE { 1 } else { self.failures.saturating_add(1) };
        let doublings = self.failures.saturating_sub(FREE_FAILURES);
        let wait = match doublings {
            0 => Duration::ZERO,
            doublings => LONGEST.min(Duration::from_millis(10) * 2_u32.saturating_pow(doublings.min(16))),
        };
        self.again = Some(Instant::now() + wait);
    }

    fn wait_over(&self) -> Result<(), crate::instance::NotReady> {
        match self.again {
            Some(again) if Instant::now() < again => Err(crate::instance::NotReady::Later),
            _ => Ok(()),
        }
    }

    /// Whether there is an instance, or one may be made.
    pub(crate) fn is_ready(&self) -> bool {
        self.instance.is_some() || self.wait_over().is_ok()
    }

    /// The instance, if there is one: for whoever cleans up.
    pub(crate) fn has_instance(&self) -> bool {
        self.instance.is_some()
    }
}
