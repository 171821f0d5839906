//! What all S services share: the store, the engine, what is deployed, and what is under way.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;

use crate::config::{Durability, ScriptsConfig};
use crate::deployment::Deployment;
use crate::state::{self, States};
use crate::workers::{Host, Launch, Launcher, NoEngine};

/// How often state is looked after.
const TICK: Duration = Duration::from_secs(1);

/// What all S services share. Made once; it outlasts changes of the config.
pub struct Scripts {
    pub(crate) host: Arc<Host>,
    pub(crate) states: States,
    /// The folder of the state.
    pub(crate) kept: PathBuf,
    /// Heap of a worker, in bytes.
    pub(crate) memory: u64,
    most_internal: u32,
    internal: Arc<AtomicU32>,
    under_way: Arc<Count>,
    programs: AtomicU32,
    deployments: Mutex<HashMap<String, Weak<Deployment>>>,
    is_watched: AtomicBool,
}

/// Why no script can be served.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is nothing that runs workers.
    #[error("{0}; install it, or name another under `scripts.engine`")]
    Engine(#[from] NoEngine),
    /// The workers' files can't be written.
    #[error("the workers' folder: {0}")]
    Folder(#[from] std::io::Error),
    /// The store can't be opened.
    #[error("the state of scripts: {0}")]
    State(#[from] state::Error),
}

/// A call between resources that is under way.
#[derive(Debug)]
pub(crate) struct Internal(Arc<AtomicU32>);

/// A run that is under way.
pub(crate) struct UnderWay(Arc<Count>);

/// Runs under way, and who waits until there are none.
#[derive(Default)]
struct Count {
    runs: AtomicU32,
    none: Notify,
}

impl Scripts {
    /// Opens the store, and finds the engine. Relative paths begin in the folder. Workers confine themselves by the
    /// launcher; without one they can do what the gateway's user can. Starts nothing yet.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn new(
        config: &ScriptsConfig,
        folder: &Path,
        launcher: Option<Launcher>,
    ) -> Result<Arc<Self>, StartError> {
        if launcher.is_none() {
            tracing::warn!(target: "script", "workers are not confined: they can do what the gateway's user can");
        }
        let kept = std::path::absolute(folder.join(&config.state))?;
        let launch = Launch::of(&config.engine, config.memory.0, launcher, kept.clone())?;
        let durability = match config.durability {
            Durability::Process => store::Durability::Process,
            Durability::Machine => store::Durability::Machine,
        };
        let states = States::open(&kept, durability)?;
        Ok(Arc::new(Self {
            host: Host::new(launch, config.workers as usize)?,
            states,
            kept,
            memory: config.memory.0,
            most_internal: config.internal_calls,
            internal: Arc::default(),
            under_way: Arc::default(),
            programs: AtomicU32::new(0),
            deployments: Mutex::default(),
            is_watched: AtomicBool::new(false),
        }))
    }

    /// The gateway is about to end: from now on leases are given back as soon as nobody writes, so that another gateway
    /// gets them.
    pub async fn leave(&self) {
        self.states.drain().await;
    }

    /// No further runs are begun by clients: waits until those under way are over, and gives the leases back. Whoever
    /// calls this says how long it waits.
    pub async fn drain(&self) {
        self.idle().await;
        self.states.drain().await;
    }

    /// Waits until no run is under way, those behind answers included.
    pub async fn idle(&self) {
        loop {
            // From here on nobody's end is missed, even before this is waited for.
            let none = self.under_way.none.notified();
            if self.under_way() == 0 {
                return;
            }
            none.await;
        }
    }

    /// Runs under way.
    #[must_use]
    pub fn under_way(&self) -> u32 {
        self.under_way.runs.load(SeqCst)
    }

    /// Begins what goes on beside requests, once.
    pub(crate) fn watch(self: &Arc<Self>) {
        if self.is_watched.swap(true, Relaxed) {
            return;
        }
        let scripts = Arc::downgrade(self);
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(TICK);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let Some(states) = scripts.upgrade().map(|scripts| scripts.states.clone()) else { return };
                states.tick(SystemTime::now()).await;
            }
        });
    }

    /// A number that no program of this gateway had before.
    pub(crate) fn program(&self) -> u32 {
        self.programs.fetch_add(1, Relaxed).wrapping_add(1)
    }

    /// What is deployed under this name, or is made.
    pub(crate) fn deployment(&self, name: &str, make: impl FnOnce() -> Arc<Deployment>) -> Arc<Deployment> {
        let mut deployments = self.deployments();
        if let Some(known) = deployments.get(name).and_then(Weak::upgrade) {
            return known;
        }
        let made = make();
        deployments.retain(|_, deployment| deployment.strong_count() > 0);
        deployments.insert(name.to_owned(), Arc::downgrade(&made));
        made
    }

    /// Room for one more call between resources.
    pub(crate) fn internal(&self) -> Option<Internal> {
        let more = |count: u32| (count < self.most_internal).then_some(count + 1);
        self.internal.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(Internal(Arc::clone(&self.internal)))
    }

    pub(crate) fn most_internal(&self) -> u32 {
        self.most_internal
    }

    /// Counts a run.
    pub(crate) fn begin(&self) -> UnderWay {
        self.under_way.runs.fetch_add(1, SeqCst);
        UnderWay(Arc::clone(&self.under_way))
    }

    fn deployments(&self) -> MutexGuard<'_, HashMap<String, Weak<Deployment>>> {
        self.deployments.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Internal {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if self.0.runs.fetch_sub(1, SeqCst) == 1 {
            self.0.none.notify_waiters();
        }
    }
}
