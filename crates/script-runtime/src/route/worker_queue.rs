//! Load shedding: decides whether too many runs wait for the workers to accept further requests.
//!
//! The queue length alone is not a good signal: a worker completes a thousand short handlers in some
//! milliseconds. A long queue is therefore tolerated for the duration of a burst. If it is still long after
//! that, the workers are overloaded.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The number of runs for each worker that want a processor above which the queue counts as long.
const MAX_RUNS_PER_WORKER: usize = 512;
/// The time for which the queue may be long.
const BURST_TOLERANCE: Duration = Duration::from_millis(250);

/// The queue of runs that wait for a route's workers.
#[derive(Debug)]
pub(crate) struct WorkerQueue {
    created: Instant,
    /// The time since which the queue is long, in nanoseconds after `opened`; 0 while it is not long.
    long_since: AtomicU64,
}

impl WorkerQueue {
    pub(crate) fn new(created: Instant) -> Self {
        Self { created, long_since: AtomicU64::new(0) }
    }

    /// Whether the queue has room for one more run, given `busy` runs that want a processor.
    pub(crate) fn has_capacity(&self, now: Instant, busy: usize, workers: usize) -> bool {
        if busy <= MAX_RUNS_PER_WORKER * workers.max(1) {
            self.long_since.store(0, Relaxed);
            return true;
        }
        let now = now.saturating_duration_since(self.created).as_nanos().max(1);
        let now = u64::try_from(now).unwrap_or(u64::MAX);
        let since = self.long_since.compare_exchange(0, now, Relaxed, Relaxed).unwrap_or_else(|since| since);
        since == 0 || Duration::from_nanos(now.saturating_sub(since)) < BURST_TOLERANCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admits_a_burst_and_refuses_once_the_queue_stays_long() {
        let opened = Instant::now();
        let line = WorkerQueue::new(opened);
        let has_room = |millis, busy| line.has_capacity(opened + Duration::from_millis(millis), busy, 2);
        assert!(has_room(0, 2_000), "a burst");
        assert!(has_room(200, 2_000), "the burst is still short");
        assert!(!has_room(300, 2_000), "the queue has been long for more than a burst");
        assert!(has_room(301, 1_024), "a short queue has room");
        assert!(has_room(500, 2_000), "the next burst");
        assert!(!has_room(751, 1_025));
    }
}
