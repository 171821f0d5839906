//! Whether so many runs wait for the workers that further requests had better be refused.
//!
//! How many wait says little: a worker is through with a thousand short handlers in some milliseconds. So a long line is
//! given the time that a burst takes. One that is still long then is more than the workers can do.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// More runs than these that want a processor, for each worker, are a long line.
const LONG: usize = 512;
/// So long it may be one.
const BURST: Duration = Duration::from_millis(250);

/// The runs that wait for a route's workers.
#[derive(Debug)]
pub(crate) struct Line {
    opened: Instant,
    /// Since when it is long, in nanoseconds; 0 while it is not.
    long_since: AtomicU64,
}

impl Line {
    pub(crate) fn new(opened: Instant) -> Self {
        Self { opened, long_since: AtomicU64::new(0) }
    }

    /// Whether there is room for one more when so many run.
    pub(crate) fn has_room(&self, now: Instant, busy: usize, workers: usize) -> bool {
        if busy <= LONG * workers.max(1) {
            self.long_since.store(0, Relaxed);
            return true;
        }
        let now = now.saturating_duration_since(self.opened).as_nanos().max(1);
        let now = u64::try_from(now).unwrap_or(u64::MAX);
        let since = self.long_since.compare_exchange(0, now, Relaxed, Relaxed).unwrap_or_else(|since| since);
        since == 0 || Duration::from_nanos(now.saturating_sub(since)) < BURST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_finds_room_and_a_line_that_stays_long_does_not() {
        let opened = Instant::now();
        let line = Line::new(opened);
        let has_room = |millis, busy| line.has_room(opened + Duration::from_millis(millis), busy, 2);
        assert!(has_room(0, 2_000), "a burst");
        assert!(has_room(200, 2_000), "which takes its time");
        assert!(!has_room(300, 2_000), "and is none by now");
        assert!(has_room(301, 1_024), "what is not long has room");
        assert!(has_room(500, 2_000), "the next burst");
        assert!(!has_room(751, 1_025));
    }
}
