//! The laws of admission control, for the queue of one simulated worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use admission::admission_tests;
use admission::laws::{MachineState, Permit, SimulatedQueue};

use super::*;

struct SimulatedWorkers {
    queue: WorkerQueue,
    busy_runs: Arc<AtomicUsize>,
}

/// A run that wants a processor, as the worker counts it.
struct SimulatedRun(Arc<AtomicUsize>);

impl Drop for SimulatedRun {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl SimulatedQueue for SimulatedWorkers {
    type Request = WorkerLoad;
    type Queue = WorkerQueue;
    type Work = SimulatedRun;

    const COST: Duration = Duration::from_micros(200);
    const BURST: usize = 1_000;
    /// The time in which one worker completes [`LONG_QUEUE_PER_WORKER`] runs.
    const LONG_WAIT: Duration = Duration::from_micros(512 * 200);
    const INTERVAL: Duration = BURST_TOLERANCE;
    const NOTICE: Duration = Duration::from_millis(300);

    fn new(epoch: Instant) -> Self {
        Self { queue: WorkerQueue::new(epoch), busy_runs: Arc::default() }
    }

    fn queue(&self) -> &WorkerQueue {
        &self.queue
    }

    fn request(&self) -> WorkerLoad {
        WorkerLoad { busy_runs: self.occupied(), workers: 1 }
    }

    fn enter(&mut self, (): Permit<Self>) -> SimulatedRun {
        self.busy_runs.fetch_add(1, Relaxed);
        SimulatedRun(Arc::clone(&self.busy_runs))
    }

    fn finish(&mut self, work: SimulatedRun, _machine: &MachineState) {
        drop(work);
    }

    fn occupied(&self) -> usize {
        self.busy_runs.load(Relaxed)
    }

    /// The gateway's load shedder counts refusals by handlers.
    fn refusals(&self) -> Option<u64> {
        None
    }
}

admission_tests!(SimulatedWorkers);
