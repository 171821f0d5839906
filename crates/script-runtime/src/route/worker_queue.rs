//! Load shedding: decides whether too many runs wait for the workers to accept further requests.
//!
//! The queue length alone is not a good signal: a worker completes a thousand short handlers in some
//! milliseconds. A long queue is therefore tolerated for the duration of a burst. If it is still long after
//! that, the workers are overloaded.

use std::time::{Duration, Instant};

use admission::{Admission, StandingQueue};

/// The number of runs for each worker that want a processor above which the queue counts as long.
const LONG_QUEUE_PER_WORKER: usize = 512;
/// The time for which the queue may be long.
const BURST_TOLERANCE: Duration = Duration::from_millis(250);

/// The queue of runs that wait for a route's workers.
#[derive(Debug)]
pub(crate) struct WorkerQueue {
    created: Instant,
    queue: StandingQueue,
}

/// The load of a route's workers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerLoad {
    /// The number of runs that want a processor.
    pub(crate) busy_runs: usize,
    pub(crate) workers: usize,
}

/// Error: too many runs wait for the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many runs wait for the workers")]
pub(crate) struct WorkerQueueFull;

impl WorkerQueue {
    pub(crate) fn new(created: Instant) -> Self {
        Self { created, queue: StandingQueue::new(BURST_TOLERANCE) }
    }
}

/// Admits one more run under this load.
impl Admission<WorkerLoad> for WorkerQueue {
    /// Workers count their runs themselves, since a run that waits for a call wants no processor
    /// (`workers/worker.rs`).
    type Permit = ();
    type Error = WorkerQueueFull;

    fn try_acquire(&self, now: Instant, load: WorkerLoad) -> Result<(), WorkerQueueFull> {
        if load.busy_runs <= LONG_QUEUE_PER_WORKER * load.workers.max(1) {
            self.queue.clear();
            return Ok(());
        }
        let now = now.saturating_duration_since(self.created);
        if self.queue.observe_long(now) { Err(WorkerQueueFull) } else { Ok(()) }
    }
}

#[cfg(test)]
mod admission_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admits_a_burst_and_refuses_once_the_queue_stays_long() {
        let opened = Instant::now();
        let line = WorkerQueue::new(opened);
        let has_room = |millis, busy_runs| {
            let load = WorkerLoad { busy_runs, workers: 2 };
            line.try_acquire(opened + Duration::from_millis(millis), load).is_ok()
        };
        assert!(has_room(0, 2_000), "a burst");
        assert!(has_room(200, 2_000), "the burst is still short");
        assert!(!has_room(300, 2_000), "the queue has been long for more than a burst");
        assert!(has_room(301, 1_024), "a short queue has room");
        assert!(has_room(500, 2_000), "the next burst");
        assert!(!has_room(751, 1_025));
    }
}
