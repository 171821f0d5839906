//! The worker processes of a script: they are started, loaded with programs, selected for runs, monitored,
//! and replaced.
//!
//! Each script has its own workers, so that a misbehaving script does not affect the runs of others.
//! `host.rs` is the context shared by all scripts, `worker.rs` the gateway's handle of a worker, `link.rs`
//! its connection, `process.rs` its process, `scale.rs` the number of workers, `strikes.rs` counts the
//! workers that each handler ended, and `watch.rs` ends stuck workers. This file selects the worker for a
//! run: the one with the lowest load, or for writers the one that their cells map to, since it already has
//! their state.

mod files;
#[cfg(test)]
mod fuzz;
mod host;
mod link;
mod process;
mod scale;
mod strikes;
mod watch;
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
use host::ScriptHome;
pub(crate) use host::WorkerHost;
use link::WorkerEvent;
pub(crate) use process::LaunchCommand;
pub use process::{NoEngine, WorkerLauncher};
pub(crate) use strikes::HandlerStrikes;
use watch::AvailabilityNotifier;
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
    wanted: AtomicUsize,
    shared: ArcSwap<Vec<Arc<ScriptWorker>>>,
    crowd: Mutex<WorkerPoolState>,
    changes: AvailabilityNotifier,
    news: mpsc::UnboundedSender<(Arc<ScriptWorker>, WorkerEvent)>,
    /// A callback that receives the id of each lost worker.
    left: Box<dyn Fn(u32) + Send + Sync>,
    restarts: AtomicUsize,
    begun: AtomicUsize,
    composed: AtomicUsize,
    commits: AtomicUsize,
    waiting: AtomicUsize,
}

/// Counts a writer as waiting for its turn.
pub(crate) struct WriterWait<'p>(&'p AtomicUsize);

/// The operator's limits for a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkerPoolSize {
    pub(crate) least: usize,
    pub(crate) most: usize,
    /// CPU time of a run without a pause.
    pub(crate) time: Duration,
    /// Total duration of a run.
    pub(crate) wall: Duration,
    /// Heap size limit of each worker, in bytes.
    pub(crate) memory: u64,
}

/// The state under the pool's lock.
#[derive(Default)]
struct WorkerPoolState {
    solos: Vec<Arc<ScriptWorker>>,
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
    pub(crate) damaged: AtomicU32,
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
    pub begun: usize,
    /// Runs that were completed without a worker.
    pub composed: usize,
    /// Committed writes.
    pub commits: usize,
    /// Writers that wait for their turn.
    pub waiting: usize,
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
            wanted: AtomicUsize::new(size.least),
            shared: ArcSwap::default(),
            crowd: Mutex::default(),
            changes: AvailabilityNotifier::default(),
            news,
            left,
            restarts: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
            composed: AtomicUsize::new(0),
            commits: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
        });
        spawn(watch::supervise(Arc::downgrade(&pool), told));
        pool
    }

    /// Loads a program into all present and future workers, and waits for the first result.
    pub(crate) async fn load(&self, source: WorkerProgram) -> ProgramLoadStatus {
        let number = source.number;
        let source = Arc::new(source);
        let mut changed = self.changes.listen();
        {
            let mut crowd = self.crowd();
            for worker in self.shared.load().iter().chain(&crowd.solos) {
                give(worker, &source);
            }
            crowd.programs.insert(number, Arc::clone(&source));
        }
        loop {
            let loaded = self.shared.load().iter().map(|worker| worker.loaded(number)).collect::<Vec<_>>();
            if let Some(loaded) = loaded.into_iter().find(|loaded| *loaded != ProgramLoadStatus::Not) {
                return loaded;
            }
            if source.damaged.load(Relaxed) >= DAMAGED_LOADS {
                let message = "its workers were damaged while they loaded it: it deletes `constructor` of \
                    Array.prototype, which all handlers share (S rule 21), or handlers of the previous program do";
                return ProgramLoadStatus::Broken { message: message.to_owned(), stack: String::new() };
            }
            changed.next().await;
        }
    }

    /// Unloads a program.
    pub(crate) fn unload(&self, number: u32) {
        let mut crowd = self.crowd();
        crowd.programs.remove(&number);
        for worker in self.shared.load().iter().chain(&crowd.solos) {
            worker.say(|out| out.forget(DiscardKind::Program, number));
        }
    }

    /// Returns a slot for a run in the worker with the lowest load, or in the one that the key maps to. Waits
    /// until a worker is ready.
    pub(crate) async fn place(&self, program: u32, key: Option<u64>) -> WorkerSlot {
        if let Some(place) = self.try_place(program, key) {
            return place;
        }
        let mut changed = self.changes.listen();
        loop {
            if let Some(place) = self.try_place(program, key) {
                return place;
            }
            changed.next().await;
        }
    }

    fn try_place(&self, program: u32, key: Option<u64>) -> Option<WorkerSlot> {
        let workers = self.shared.load();
        let ready = workers.iter().filter(|worker| worker.is_ready(program));
        let worker = match key {
            // Rendezvous hashing: a key moves only if its worker ends or a new worker ranks higher.
            Some(key) => ready.max_by_key(|worker| draw(key, worker.id)),
            None => ready.min_by_key(|worker| worker.load()),
        };
        worker?.place()
    }

    /// Returns a slot in a worker without other runs.
    pub(crate) async fn place_alone(self: &Arc<Self>, program: u32) -> WorkerSlot {
        let mut changed = self.changes.listen();
        loop {
            if let Some(place) = self.try_place_alone(program) {
                return place;
            }
            changed.next().await;
        }
    }

    fn try_place_alone(self: &Arc<Self>, program: u32) -> Option<WorkerSlot> {
        let mut crowd = self.crowd();
        crowd.solos.retain(|worker| !worker.is_gone());
        let is_free = |worker: &&Arc<ScriptWorker>| worker.is_ready(program) && worker.load().1 == 0;
        if let Some(place) = crowd.solos.iter().find(is_free).and_then(ScriptWorker::place) {
            return Some(place);
        }
        let starts = |worker: &Arc<ScriptWorker>| {
            worker.loaded(program) == ProgramLoadStatus::Not && !worker.is_gone()
        };
        if crowd.solos.len() < self.size.most && !crowd.solos.iter().any(starts) {
            let worker = self.spawn(&crowd, true, None);
            crowd.solos.push(worker);
        }
        None
    }

    /// Records that code of a handler ended its worker after its run; if the program is 0, the cause is
    /// unknown, and may be a program that the worker was loading.
    fn damaged(&self, worker: &ScriptWorker, program: u32, handler: usize) {
        if program == 0 {
            // The result of a load is that of shared workers.
            let crowd = self.crowd();
            let loading = crowd
                .programs
                .values()
                .filter(|source| worker.loaded(source.number) != ProgramLoadStatus::Ready);
            for source in loading.filter(|_| !worker.is_alone()) {
                source.damaged.fetch_add(1, Relaxed);
            }
            return;
        }
        let source = self.crowd().programs.get(&program).cloned();
        if let Some(strikes) = source.as_ref().and_then(|source| source.strikes.get(handler)) {
            strikes.add(1);
        }
    }

    /// Counts a run.
    pub(crate) fn note_run(&self) {
        self.begun.fetch_add(1, Relaxed);
    }

    /// Counts a run that was completed without a worker.
    pub(crate) fn note_composed(&self) {
        self.composed.fetch_add(1, Relaxed);
    }

    /// Counts a commit.
    pub(crate) fn note_commit(&self) {
        self.commits.fetch_add(1, Relaxed);
    }

    /// Counts a writer as waiting until the guard is dropped.
    pub(crate) fn waits(&self) -> WriterWait<'_> {
        self.waiting.fetch_add(1, Relaxed);
        WriterWait(&self.waiting)
    }

    /// Returns the current statistics.
    pub(crate) fn stats(&self) -> PoolStats {
        let crowd = self.crowd();
        let mut stats = PoolStats {
            restarts: self.restarts.load(Relaxed),
            begun: self.begun.load(Relaxed),
            composed: self.composed.load(Relaxed),
            commits: self.commits.load(Relaxed),
            waiting: self.waiting.load(Relaxed),
            ..PoolStats::default()
        };
        for worker in self.shared.load().iter().chain(&crowd.solos) {
            let (busy, runs) = worker.load();
            stats.workers += 1;
            stats.busy += busy;
            stats.runs += runs;
        }
        stats
    }

    /// Returns the number of runs in shared workers that want a processor, and the number of shared workers.
    pub(crate) fn load_now(&self) -> (usize, usize) {
        let shared = self.shared.load();
        (shared.iter().map(|worker| worker.load().0).sum(), shared.len())
    }

    /// Whether a program is ready in any shared worker.
    pub(crate) fn is_ready(&self, program: u32) -> bool {
        self.shared.load().iter().any(|worker| worker.is_ready(program))
    }

    /// Starts another shared worker.
    fn add(self: &Arc<Self>, permit: Option<OwnedSemaphorePermit>) {
        let crowd = self.crowd();
        let worker = self.spawn(&crowd, false, permit);
        let mut workers = Vec::clone(&self.shared.load());
        workers.push(worker);
        self.shared.store(Arc::new(workers));
    }

    fn spawn(
        self: &Arc<Self>,
        crowd: &WorkerPoolState,
        is_solo: bool,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Arc<ScriptWorker> {
        let freed = is_solo.then(|| self.changes.clone());
        let worker = ScriptWorker::new(self.host.number(), &self.script, freed);
        crowd.programs.values().for_each(|source| give(&worker, source));
        spawn(watch::keep(Arc::downgrade(self), Arc::clone(&worker), permit));
        worker
    }

    /// Returns the folder that the workers may write to; created on first use.
    fn home(&self) -> std::io::Result<Arc<ScriptHome>> {
        let mut home = self.home.lock().unwrap_or_else(PoisonError::into_inner);
        match &*home {
            Some(home) => Ok(Arc::clone(home)),
            None => Ok(Arc::clone(home.insert(Arc::new(self.host.home()?)))),
        }
    }

    fn crowd(&self) -> MutexGuard<'_, WorkerPoolState> {
        self.crowd.lock().unwrap_or_else(PoisonError::into_inner)
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
        let crowd = self.crowd.get_mut().unwrap_or_else(PoisonError::into_inner);
        for worker in self.shared.load().iter().chain(&crowd.solos) {
            worker.lose(WorkerLoss::of("the script is no longer served"));
        }
    }
}

fn give(worker: &ScriptWorker, source: &WorkerProgram) {
    worker.say(|out| {
        out.load(source.number, &source.name, &source.folder, &source.descriptor, &source.code);
    });
}

/// Returns the hash of a worker for a key.
fn draw(key: u64, worker: u32) -> u64 {
    let mut hasher = DefaultHasher::new();
    (key, worker).hash(&mut hasher);
    hasher.finish()
}
