//! CoDel's rule for the beginning of an overload (RFC 8289, section 4).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The value of `since` while the queue is short.
const SHORT: u64 = u64::MAX;

/// A detector of standing queues. A queue that is long for a moment absorbs a burst, which is its purpose. A
/// queue that has not been short for a whole interval is an overload, and waiting in it helps no request.
///
/// Times are relative to any fixed moment. The threshold between short and long queues is the caller's.
#[derive(Debug)]
pub struct StandingQueue {
    /// Nanoseconds.
    interval: u64,
    /// The start of the current interval in nanoseconds, or [`SHORT`].
    since: AtomicU64,
}

impl StandingQueue {
    /// Creates a detector for a queue that is short. An overload begins after this interval.
    #[must_use]
    pub fn new(interval: Duration) -> Self {
        Self { interval: nanos(interval), since: AtomicU64::new(SHORT) }
    }

    /// Records that the queue is short. The interval starts when it is first observed to be long: the rule
    /// for queues that are observed rarely, such as on arrivals only.
    #[inline]
    pub fn clear(&self) {
        self.since.store(SHORT, Relaxed);
    }

    /// Records that the queue is short, or that observations begin again. The interval starts now: the rule
    /// for queues that are observed all the time.
    #[inline]
    pub fn restart(&self, now: Duration) {
        self.since.store(nanos(now), Relaxed);
    }

    /// Records that the queue is long. Returns whether it has not been short for the interval.
    #[inline]
    pub fn observe_long(&self, now: Duration) -> bool {
        let now = nanos(now);
        let since = match self.since.load(Relaxed) {
            SHORT => self.since.compare_exchange(SHORT, now, Relaxed, Relaxed).map_or_else(|at| at, |_| now),
            since => since,
        };
        // The interval may have restarted later, if another thread's reading of the clock is newer.
        now.saturating_sub(since) >= self.interval
    }
}

#[inline]
fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(100);

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_interval_starts_with_the_first_observation_of_a_long_queue() {
        let queue = StandingQueue::new(INTERVAL);
        assert!(!queue.observe_long(millis(500)) && !queue.observe_long(millis(599)));
        assert!(queue.observe_long(millis(600)));
        queue.clear();
        assert!(!queue.observe_long(millis(900)) && queue.observe_long(millis(1_000)));
    }

    #[test]
    fn the_interval_starts_with_the_last_observation_of_a_short_queue() {
        let queue = StandingQueue::new(INTERVAL);
        queue.restart(millis(500));
        assert!(!queue.observe_long(millis(599)) && queue.observe_long(millis(600)));
        queue.restart(millis(650));
        assert!(!queue.observe_long(millis(749)));
        assert!(!queue.observe_long(millis(640)), "a clock reading from before");
    }
}
