//! A deployed service: its state, its workers, and the active program. There is one deployment for each name,
//! across configs: a changed config takes it over, and a changed script replaces the old one once a worker
//! has loaded it.
//!
//! `generation.rs` contains the active program, `path_table.rs` selects the handler of a request, and
//! `modules.rs` finds the modules that a script imports.

mod generation;
mod modules;
mod path_table;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use arc_swap::ArcSwapOption;
use script::ScriptProgram;
use tokio::sync::watch;

use crate::problem::ScriptError;
use crate::state::{self, StatePlan, StateRegistry, StateSettings};
use crate::workers::{PoolStats, ProgramLoadStatus, WorkerHost, WorkerPool, WorkerPoolSize};
pub(crate) use generation::ProgramGeneration;
use generation::{load_failure_position, worker_program};
pub use modules::{ScriptModule, imported_modules};
pub(crate) use path_table::{RoutingResult, literal_resources};

/// The context that all deployments share.
pub(crate) struct DeploymentContext {
    pub(crate) host: Arc<WorkerHost>,
    pub(crate) states: StateRegistry,
    programs: AtomicU32,
}

/// A deployed service.
pub(crate) struct ScriptDeployment {
    name: Arc<str>,
    context: Arc<DeploymentContext>,
    /// Locked while a deployment is in progress.
    state: tokio::sync::Mutex<PreservedDeployment>,
    current: ArcSwapOption<ProgramGeneration>,
    /// The reason why no program is active, if it is known; every change is published here.
    blocked_reason: watch::Sender<Option<String>>,
    /// The number of deployments in progress.
    pending_deployments: watch::Sender<usize>,
}

/// The data that is preserved from one deployment to the next.
#[derive(Default)]
struct PreservedDeployment {
    state: Option<state::ServiceState>,
    pool: Option<(Arc<WorkerPool>, DeploymentProperties)>,
    text: String,
}

/// The properties that running workers cannot change: if they differ, new workers are started.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct DeploymentProperties {
    pub(crate) folder: PathBuf,
    pub(crate) size: WorkerPoolSize,
    /// The modules that the script imports, with their contents. An engine reads each of them only once.
    pub(crate) modules: Vec<ScriptModule>,
    /// The files in the script's folder next to the state: workers cannot read files that were added after
    /// they started.
    pub(crate) siblings: Vec<(PathBuf, u64)>,
}

/// The program to be deployed.
pub(crate) struct DeploymentPlans {
    pub(crate) program: Arc<ScriptProgram>,
    /// The index of the service in the program.
    pub(crate) service: usize,
    /// The source text of the script.
    pub(crate) text: String,
    pub(crate) home: DeploymentProperties,
    pub(crate) settings: StateSettings,
}

impl DeploymentContext {
    pub(crate) fn new(host: Arc<WorkerHost>, states: StateRegistry) -> Arc<Self> {
        Arc::new(Self { host, states, programs: AtomicU32::new(0) })
    }

    /// Returns a number that no earlier program of this gateway had.
    fn next_program_number(&self) -> u32 {
        self.programs.fetch_add(1, Relaxed).wrapping_add(1)
    }
}

impl ScriptDeployment {
    pub(crate) fn new(name: &str, context: &Arc<DeploymentContext>) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            context: Arc::clone(context),
            state: tokio::sync::Mutex::default(),
            current: ArcSwapOption::empty(),
            blocked_reason: watch::Sender::new(None),
            pending_deployments: watch::Sender::new(0),
        })
    }

    /// Returns the active program, waiting for the first one.
    pub(crate) async fn current(&self) -> Result<Arc<ProgramGeneration>, ScriptError> {
        if let Some(generation) = self.current.load_full() {
            return Ok(generation);
        }
        let mut standing = self.blocked_reason.subscribe();
        loop {
            if let Some(generation) = self.current.load_full() {
                return Ok(generation);
            }
            if let Some(broken) = standing.borrow_and_update().clone() {
                return Err(ScriptError::LoadFailed(broken));
            }
            if standing.changed().await.is_err() {
                return Err(ScriptError::NotReady);
            }
        }
    }

    /// Returns the reason why no program is active yet. A program remains active until another one replaces
    /// it.
    pub(crate) fn not_ready_reason(&self) -> Option<String> {
        if self.current.load().is_some() {
            return None;
        }
        Some(match &*self.blocked_reason.borrow() {
            Some(why) => format!("it can't be activated: {why}"),
            None => "no worker has loaded it yet".to_owned(),
        })
    }

    /// Whether the service is ready to handle requests.
    pub(crate) fn is_ready(&self) -> bool {
        self.current.load().as_ref().is_some_and(|generation| generation.pool.is_ready(generation.number))
    }

    pub(crate) fn stats(&self) -> PoolStats {
        self.current.load().as_ref().map(|generation| generation.pool.stats()).unwrap_or_default()
    }

    /// Returns the number of runs that want a processor, and the number of workers.
    pub(crate) fn worker_load(&self) -> (usize, usize) {
        self.current.load().as_ref().map(|generation| generation.pool.current_load()).unwrap_or_default()
    }

    /// Starts a deployment in a task of its own. If the program can't be loaded, the active one remains.
    pub(crate) fn start_deployment(self: &Arc<Self>, plans: DeploymentPlans) {
        self.pending_deployments.send_modify(|count| *count += 1);
        let deployment = Arc::clone(self);
        tokio::spawn(async move {
            deployment.deploy(plans).await;
            deployment.pending_deployments.send_modify(|count| *count -= 1);
        });
    }

    /// Waits until all deployments in progress have succeeded or failed.
    pub(crate) async fn wait_until_settled(&self) {
        let mut under_way = self.pending_deployments.subscribe();
        let _ = under_way.wait_for(|count| *count == 0).await; // The sender lives as long as `self`.
    }

    async fn deploy(&self, plans: DeploymentPlans) {
        let mut kept = self.state.lock().await;
        kept.state.iter().for_each(|state| state.set_settings(plans.settings));
        if kept.is_unchanged(&plans) && self.current.load().is_some() {
            return;
        }
        if let Err(why) = self.replace_program(&mut kept, plans).await {
            let stays = if self.current.load().is_some() { "; the previous one remains active" } else { "" };
            // Published before it is logged, so that `/readyz` already reports it when the log line appears.
            self.blocked_reason.send_replace(Some(why.clone()));
            tracing::error!(target: "script", service = &*self.name, "the script can't be activated{stays}: {why}");
        }
    }

    async fn replace_program(
        &self,
        deployment: &mut PreservedDeployment,
        plans: DeploymentPlans,
    ) -> Result<(), String> {
        let DeploymentPlans { program, service, text, home, settings } = plans;
        let pool = match &deployment.pool {
            Some((pool, known)) if *known == home => Arc::clone(pool),
            _ => self.start_pool(&home),
        };
        let number = self.context.next_program_number();
        let source = worker_program(number, &program, service, &home.folder.to_string_lossy());
        let strikes = Arc::clone(&source.strikes);
        match pool.load(source).await {
            ProgramLoadStatus::Ready => {}
            ProgramLoadStatus::NotLoaded => return Err("no worker loaded it".to_owned()),
            ProgramLoadStatus::Broken { message, stack } => {
                pool.unload(number);
                let at = load_failure_position(&program, &stack);
                return Err(format!("{at}: {message}"));
            }
        }
        let planned = StatePlan::from(&program.services[service]);
        let edition = match &deployment.state {
            Some(state) => Ok(state.reload(planned)),
            None => match self.context.states.open_service(planned, settings).await {
                Ok(state) => Ok(deployment.state.insert(state).edition()),
                Err(error) => Err(error),
            },
        };
        let edition = edition.map_err(|error| {
            pool.unload(number);
            error.to_string()
        })?;
        let generation =
            ProgramGeneration::new(number, program, service, edition, Arc::clone(&pool), strikes);
        (deployment.pool, deployment.text) = (Some((pool, home)), text);
        self.current.store(Some(Arc::new(generation)));
        self.blocked_reason.send_replace(None);
        tracing::info!(target: "script", service = &*self.name, "the script is active");
        Ok(())
    }

    fn start_pool(&self, home: &DeploymentProperties) -> Arc<WorkerPool> {
        let (states, folder) = (self.context.states.clone(), home.folder.clone());
        WorkerPool::start(
            &self.context.host,
            &self.name,
            folder,
            home.size,
            Box::new(move |worker| states.remove_worker(worker)),
        )
    }
}

impl PreservedDeployment {
    fn is_unchanged(&self, plans: &DeploymentPlans) -> bool {
        self.text == plans.text && self.pool.as_ref().is_some_and(|(_, home)| *home == plans.home)
    }
}
