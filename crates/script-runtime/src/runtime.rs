//! The context that all S services share: the store, the engine, the deployments, and the runs in flight.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use offload::OffloadPool;
use tokio::sync::Notify;

use crate::config::{ScriptsConfig, StateDurability};
use crate::deployment::{DeploymentContext, ScriptDeployment};
use crate::state::{self, StateRegistry};
use crate::work::spawn;
use crate::workers::{LaunchCommand, NoEngine, WorkerHost, WorkerLauncher};

/// The interval of the maintenance of state.
const TICK: Duration = Duration::from_secs(1);

/// The context that all S services share. Created once; it outlives changes of the config.
pub struct ScriptRuntime {
    /// The folder of the state.
    pub(crate) state_folder: PathBuf,
    /// Heap of a worker, in bytes.
    pub(crate) memory: u64,
    /// The pool for long work that requests cause.
    pub(crate) offload: OffloadPool,
    max_internal_calls: u32,
    internal_calls: Arc<AtomicU32>,
    runs_in_flight: Arc<RunsInFlight>,
    deployment_context: Arc<DeploymentContext>,
    deployments: Mutex<HashMap<String, Weak<ScriptDeployment>>>,
    is_maintained: AtomicBool,
}

/// A reason why no script can be served.
#[derive(Debug, thiserror::Error)]
pub enum ScriptStartError {
    /// The engine that runs the workers is missing.
    #[error("{0}; install it, or set `scripts.engine` to another one")]
    Engine(#[from] NoEngine),
    /// The workers' files can't be written.
    #[error("the workers' folder: {0}")]
    Folder(#[from] std::io::Error),
    /// The store can't be opened.
    #[error("the state of scripts: {0}")]
    State(#[from] state::StateError),
}

/// Permit of a call between resources in flight.
#[derive(Debug)]
pub(crate) struct InternalCallPermit(Arc<AtomicU32>);

/// Guard of a run in flight.
pub(crate) struct RunInFlightGuard(Arc<RunsInFlight>);

/// The number of runs in flight, and the tasks that wait until it is zero.
#[derive(Default)]
struct RunsInFlight {
    runs: AtomicU32,
    idle: Notify,
}

impl ScriptRuntime {
    /// Opens the store and locates the engine. Relative paths are resolved against `folder`. Workers sandbox
    /// themselves through the launcher; without one they can do whatever the gateway's user can do. Long work
    /// that requests cause is done in the pool. Does not start any worker.
    ///
    /// # Errors
    /// [`ScriptStartError`].
    pub fn new(
        config: &ScriptsConfig,
        folder: &Path,
        launcher: Option<WorkerLauncher>,
        offload: OffloadPool,
    ) -> Result<Arc<Self>, ScriptStartError> {
        if launcher.is_none() {
            tracing::warn!(target: "script", "workers are not confined: they have all rights of the gateway's user");
        }
        let kept = std::path::absolute(folder.join(&config.state_dir))?;
        let launch = LaunchCommand::from_config(&config.engine, config.memory.0, launcher, kept.clone())?;
        let durability = match config.durability {
            StateDurability::Process => store::CommitDurability::Process,
            StateDurability::Machine => store::CommitDurability::Machine,
        };
        let states = StateRegistry::open(&kept, durability, offload.clone())?;
        let host = WorkerHost::new(launch, config.workers as usize)?;
        Ok(Arc::new(Self {
            state_folder: kept,
            memory: config.memory.0,
            offload,
            max_internal_calls: config.internal_calls,
            internal_calls: Arc::default(),
            runs_in_flight: Arc::default(),
            deployment_context: DeploymentContext::new(host, states),
            deployments: Mutex::default(),
            is_maintained: AtomicBool::new(false),
        }))
    }

    /// Prepares for shutdown: from now on, a lease is returned as soon as no writer uses it, so that another
    /// gateway can acquire it.
    pub async fn drain_leases(&self) {
        self.deployment_context.states.drain().await;
    }

    /// Waits until all runs in flight have ended, and returns the leases. The caller ensures that no further
    /// runs start, and limits how long it waits.
    pub async fn drain(&self) {
        self.wait_idle().await;
        self.deployment_context.states.drain().await;
    }

    /// Waits until no run is in flight, including runs that continue after their response.
    pub async fn wait_idle(&self) {
        loop {
            // Registered before the check, so that the end of a run in between is not missed.
            let none = self.runs_in_flight.idle.notified();
            if self.runs_in_flight() == 0 {
                return;
            }
            none.await;
        }
    }

    /// The number of runs in flight.
    #[must_use]
    pub fn runs_in_flight(&self) -> u32 {
        self.runs_in_flight.runs.load(SeqCst)
    }

    /// Starts the background maintenance, once.
    pub(crate) fn start_maintenance(&self) {
        if self.is_maintained.swap(true, Relaxed) {
            return;
        }
        let context = Arc::downgrade(&self.deployment_context);
        spawn(async move {
            let mut ticks = tokio::time::interval(TICK);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let Some(states) = context.upgrade().map(|context| context.states.clone()) else { return };
                states.tick(SystemTime::now()).await;
            }
        });
    }

    /// Returns the deployment with this name, or creates it.
    pub(crate) fn get_or_create_deployment(&self, name: &str) -> Arc<ScriptDeployment> {
        let mut deployments = self.lock_deployments();
        if let Some(script_deployment) = deployments.get(name).and_then(Weak::upgrade) {
            return script_deployment;
        }
        let made = ScriptDeployment::new(name, &self.deployment_context);
        deployments.retain(|_, deployment| deployment.strong_count() > 0);
        deployments.insert(name.to_owned(), Arc::downgrade(&made));
        made
    }

    /// Acquires the permit for one more call between resources.
    pub(crate) fn acquire_internal_call(&self) -> Option<InternalCallPermit> {
        let more = |count: u32| (count < self.max_internal_calls).then_some(count + 1);
        self.internal_calls.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(InternalCallPermit(Arc::clone(&self.internal_calls)))
    }

    pub(crate) fn max_internal_calls(&self) -> u32 {
        self.max_internal_calls
    }

    /// Counts a run as in flight.
    pub(crate) fn track_run(&self) -> RunInFlightGuard {
        self.runs_in_flight.runs.fetch_add(1, SeqCst);
        RunInFlightGuard(Arc::clone(&self.runs_in_flight))
    }

    fn lock_deployments(&self) -> MutexGuard<'_, HashMap<String, Weak<ScriptDeployment>>> {
        self.deployments.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InternalCallPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Drop for RunInFlightGuard {
    fn drop(&mut self) {
        if self.0.runs.fetch_sub(1, SeqCst) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}
