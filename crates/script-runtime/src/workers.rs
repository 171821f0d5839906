//! The worker processes of a script: they are started, loaded with programs, selected for runs, monitored,
//! and replaced.
//!
//! Each script has its own workers, so that a misbehaving script does not affect the runs of others.
//! `host.rs` is the context shared by all scripts, `worker.rs` the gateway's handle of a worker,
//! `connection.rs` its connection, `process.rs` its process, `scale.rs` the number of workers, `strikes.rs`
//! counts the workers that each handler ended, `availability.rs` notifies of free workers, `supervisor.rs`
//! ends stuck workers, and `sandbox.rs` sandboxes worker processes. This file selects the worker for a run:
//! the one with the lowest load, or for writers the one that their cells map to, since it already has their
//! state.

mod availability;
mod connection;
mod files;
#[cfg(test)]
mod fuzz;
mod host;
mod process;
mod sandbox;
mod scale;
mod strikes;
mod supervisor;
mod worker;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::frame::DiscardKind;
use crate::work::spawn;
use availability::AvailabilityNotifier;
use connection::WorkerEvent;
use host::ScriptHome;
pub(crate) use host::WorkerHost;
pub(crate) use process::LaunchCommand;
pub use process::{NoEngine, WorkerLauncher};
pub use sandbox::exec_sandboxed;
pub(crate) use sandbox::siblings_of_state;
pub(crate) use strikes::HandlerStrikes;
pub(crate) use worker::{ProgramLoadStatus, RunEvent, ScriptWorker, WorkerLoss, WorkerSlot};

/// A program is broken if this many workers were damaged while they loaded it.
const DAMAGED_LOADS: u32 = 2;

/// The worker pool of a script.
pub(crate) struct WorkerPool {
    host: Arc<WorkerHost>,
    script: Arc<str>,
    /// The working directory of the workers.
    folder: PathBuf,
    /// The folder that the workers may write to.
    home: Mutex<Option<Arc<ScriptHome>>>,
    size: WorkerPoolSize,
    /// The target number of workers.
    target_workers: AtomicUsize,
    shared: ArcSwap<Vec<Arc<ScriptWorker>>>,
    state: Mutex<WorkerPoolState>,
    availability: AvailabilityNotifier,
    event_sender: mpsc::UnboundedSender<(Arc<ScriptWorker>, WorkerEvent)>,
    /// A callback that receives the id of each lost worker.
    on_worker_lost: Box<dyn Fn(u32) + Send + Sync>,
    restarts: AtomicUsize,
    runs_started: AtomicUsize,
    inline_runs: AtomicUsize,
    commits: AtomicUsize,
    waiting_writers: AtomicUsize,
}

/// Counts a writer as waiting for its turn.
pub(crate) struct WriterWait<'p>(&'p AtomicUsize);

/// The operator's limits for a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkerPoolSize {
    pub(crate) min: usize,
    pub(crate) max: usize,
    /// CPU time of a run without a pause.
    pub(crate) cpu_limit: Duration,
    /// Total duration of a run.
    pub(crate) run_timeout: Duration,
    /// Heap size limit of each worker, in bytes.
    pub(crate) memory: u64,
}

/// The state under the pool's lock.
#[derive(Default)]
struct WorkerPoolState {
    dedicated: Vec<Arc<ScriptWorker>>,
    programs: BTreeMap<u32, Arc<WorkerProgram>>,
}

/// A program in the form that workers load.
#[derive(Debug)]
pub(crate) struct WorkerProgram {
    pub(crate) number: u32,
    pub(crate) name: String,
    pub(crate) folder: String,
    pub(crate) descriptor: String,
    pub(crate) code: String,
    /// The strikes of its handlers, which its generation shares.
    pub(crate) strikes: Arc<[HandlerStrikes]>,
    /// The number of workers that were damaged by an unknown cause while they loaded it.
    pub(crate) damaged_workers: AtomicU32,
}

/// The statistics of a pool, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// The current number of workers.
    pub workers: usize,
    /// Runs in workers.
    pub runs: usize,
    /// Runs in workers that want a processor.
    pub busy: usize,
    /// Workers that were started to replace lost ones.
    pub restarts: usize,
    /// Runs that have begun, including internal calls.
    pub runs_started: usize,
    /// Runs that were completed without a worker.
    pub inline_runs: usize,
    /// Committed writes.
    pub commits: usize,
    /// Writers that wait for their turn.
    pub waiting_writers: usize,
}

impl WorkerPool {
    /// Creates a pool and begins to start its workers. Must be called inside a runtime.
    pub(crate) fn start(
        host: &Arc<WorkerHost>,
        script: &Arc<str>,
        folder: PathBuf,
        size: WorkerPoolSize,
        left: Box<dyn Fn(u32) + Send + Sync>,
    ) -> Arc<Self> {
        let (news, told) = mpsc::unbounded_channel();
        let pool = Arc::new(Self {
            host: Arc::clone(host),
            script: Arc::clone(script),
            folder,
            home: Mutex::default(),
            size,
            target_workers: AtomicUsize::new(size.min),
            shared: ArcSwap::default(),
            state: Mutex::default(),
            availability: AvailabilityNotifier::default(),
            event_sender: news,
            on_worker_lost: left,
            restarts: AtomicUsize::new(0),
            runs_started: AtomicUsize::new(0),
            inline_runs: AtomicUsize::new(0),
            commits: AtomicUsize::new(0),
            waiting_writers: AtomicUsize::new(0),
        });
        spawn(supervisor::supervise(Arc::downgrade(&pool), told));
        pool
    }

    /// Loads a program into all present and future workers, and waits for the first result.
    pub(crate) async fn load(&self, source: WorkerProgram) -> ProgramLoadStatus {
        let number = source.number;
        let source = Arc::new(source);
        let mut changed = self.availability.subscribe();
        {
            let mut crowd = self.lock_state();
            for worker in self.shared.load().iter().chain(&crowd.dedicated) {
                send_program(worker, &source);
            }
            crowd.programs.insert(number, Arc::clone(&source));
        }
        loop {
            let loaded =
                self.shared.load().iter().map(|worker| worker.load_status(number)).collect::<Vec<_>>();
            if let Some(loaded) = loaded.into_iter().find(|loaded| *loaded != ProgramLoadStatus::NotLoaded) {
                return loaded;
            }
            if source.damaged_workers.load(Relaxed) >= DAMAGED_LOADS {
                let message = "its workers were damaged while they loaded it: it deletes `constructor` of \
                    Array.prototype, which all handlers share (S rule 21), or handlers of the previous program do";
                return ProgramLoadStatus::Broken { message: message.to_owned(), stack: String::new() };
            }
            changed.notified().await;
        }
    }

    /// Unloads a program.
    pub(crate) fn unload(&self, number: u32) {
        let mut crowd = self.lock_state();
        crowd.programs.remove(&number);
        for worker in self.shared.load().iter().chain(&crowd.dedicated) {
            worker.send_frames(|out| out.put_discard(DiscardKind::Program, number));
        }
    }

    /// Returns a slot for a run in the worker with the lowest load, or in the one that the key maps to. Waits
    /// until a worker is ready.
    pub(crate) async fn acquire_slot(&self, program: u32, key: Option<u64>) -> WorkerSlot {
        if let Some(place) = self.try_acquire_slot(program, key) {
            return place;
        }
        let mut changed = self.availability.subscribe();
        loop {
            if let Some(place) = self.try_acquire_slot(program, key) {
                return place;
            }
            changed.notified().await;
        }
    }

    fn try_acquire_slot(&self, program: u32, key: Option<u64>) -> Option<WorkerSlot> {
        let workers = self.shared.load();
        let ready = workers.iter().filter(|worker| worker.is_ready(program));
        let worker = match key {
            // Rendezvous hashing: a key moves only if its worker ends or a new worker ranks higher.
            Some(key) => ready.max_by_key(|worker| rendezvous_hash(key, worker.id)),
            None => ready.min_by_key(|worker| worker.load()),
        };
        worker?.acquire_slot()
    }

    /// Returns a slot in a worker without other runs.
    pub(crate) async fn acquire_dedicated_slot(self: &Arc<Self>, program: u32) -> WorkerSlot {
        let mut changed = self.availability.subscribe();
        loop {
            if let Some(place) = self.try_acquire_dedicated(program) {
                return place;
            }
            changed.notified().await;
        }
    }

    fn try_acquire_dedicated(self: &Arc<Self>, program: u32) -> Option<WorkerSlot> {
        let mut crowd = self.lock_state();
        crowd.dedicated.retain(|worker| !worker.is_lost());
        let is_free = |worker: &&Arc<ScriptWorker>| worker.is_ready(program) && worker.load().1 == 0;
        if let Some(place) = crowd.dedicated.iter().find(is_free).and_then(ScriptWorker::acquire_slot) {
            return Some(place);
        }
        let starts = |worker: &Arc<ScriptWorker>| {
            worker.load_status(program) == ProgramLoadStatus::NotLoaded && !worker.is_lost()
        };
        if crowd.dedicated.len() < self.size.max && !crowd.dedicated.iter().any(starts) {
            let worker = self.spawn_worker(&crowd, true, None);
            crowd.dedicated.push(worker);
        }
        None
    }

    /// Records that code of a handler ended its worker after its run; if the program is 0, the cause is
    /// unknown, and may be a program that the worker was loading.
    fn record_damage(&self, worker: &ScriptWorker, program: u32, handler: usize) {
        if program == 0 {
            // The result of a load is that of shared workers.
            let crowd = self.lock_state();
            let loading = crowd
                .programs
                .values()
                .filter(|source| worker.load_status(source.number) != ProgramLoadStatus::Ready);
            for source in loading.filter(|_| !worker.is_dedicated()) {
                source.damaged_workers.fetch_add(1, Relaxed);
            }
            return;
        }
        let source = self.lock_state().programs.get(&program).cloned();
        if let Some(strikes) = source.as_ref().and_then(|source| source.strikes.get(handler)) {
            strikes.record(1);
        }
    }

    /// Counts a run.
    pub(crate) fn note_run(&self) {
        self.runs_started.fetch_add(1, Relaxed);
    }

    /// Counts a run that was completed without a worker.
    pub(crate) fn note_inline_run(&self) {
        self.inline_runs.fetch_add(1, Relaxed);
    }

    /// Counts a commit.
    pub(crate) fn note_commit(&self) {
        self.commits.fetch_add(1, Relaxed);
    }

    /// Counts a writer as waiting until the guard is dropped.
    pub(crate) fn count_waiting_writer(&self) -> WriterWait<'_> {
        self.waiting_writers.fetch_add(1, Relaxed);
        WriterWait(&self.waiting_writers)
    }

    /// Returns the current statistics.
    pub(crate) fn stats(&self) -> PoolStats {
        let crowd = self.lock_state();
        let mut stats = PoolStats {
            restarts: self.restarts.load(Relaxed),
            runs_started: self.runs_started.load(Relaxed),
            inline_runs: self.inline_runs.load(Relaxed),
            commits: self.commits.load(Relaxed),
            waiting_writers: self.waiting_writers.load(Relaxed),
            ..PoolStats::default()
        };
        for worker in self.shared.load().iter().chain(&crowd.dedicated) {
            let (busy, runs) = worker.load();
            stats.workers += 1;
            stats.busy += busy;
            stats.runs += runs;
        }
        stats
    }

    /// Returns the number of runs in shared workers that want a processor, and the number of shared workers.
    pub(crate) fn current_load(&self) -> (usize, usize) {
        let shared = self.shared.load();
        (shared.iter().map(|worker| worker.load().0).sum(), shared.len())
    }

    /// Whether a program is ready in any shared worker.
    pub(crate) fn is_ready(&self, program: u32) -> bool {
        self.shared.load().iter().any(|worker| worker.is_ready(program))
    }

    /// Starts another shared worker.
    fn add_worker(self: &Arc<Self>, permit: Option<OwnedSemaphorePermit>) {
        let crowd = self.lock_state();
        let worker = self.spawn_worker(&crowd, false, permit);
        let mut workers = Vec::clone(&self.shared.load());
        workers.push(worker);
        self.shared.store(Arc::new(workers));
    }

    fn spawn_worker(
        self: &Arc<Self>,
        crowd: &WorkerPoolState,
        is_solo: bool,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Arc<ScriptWorker> {
        let freed = is_solo.then(|| self.availability.clone());
        let worker = ScriptWorker::new(self.host.next_number(), &self.script, freed);
        crowd.programs.values().for_each(|source| send_program(&worker, source));
        spawn(supervisor::run_worker(Arc::downgrade(self), Arc::clone(&worker), permit));
        worker
    }

    /// Returns the folder that the workers may write to; created on first use.
    fn get_or_create_home(&self) -> std::io::Result<Arc<ScriptHome>> {
        let mut home = self.home.lock().unwrap_or_else(PoisonError::into_inner);
        match &*home {
            Some(home) => Ok(Arc::clone(home)),
            None => Ok(Arc::clone(home.insert(Arc::new(self.host.create_home()?)))),
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, WorkerPoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WriterWait<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// The workers end together with the pool.
impl Drop for WorkerPool {
    fn drop(&mut self) {
        let crowd = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        for worker in self.shared.load().iter().chain(&crowd.dedicated) {
            worker.mark_lost(WorkerLoss::new("the script is no longer served"));
        }
    }
}

fn send_program(worker: &ScriptWorker, source: &WorkerProgram) {
    worker.send_frames(|out| {
        out.put_load(source.number, &source.name, &source.folder, &source.descriptor, &source.code);
    });
}

/// Returns the hash of a worker for a key.
fn rendezvous_hash(key: u64, worker: u32) -> u64 {
    let mut hasher = DefaultHasher::new();
    (key, worker).hash(&mut hasher);
    hasher.finish()
}
