//! Progress: each line with the time that is left, by the plan.

use std::time::{Duration, Instant};

use crate::say;

/// The plan of a bench.
pub(crate) struct Progress {
    end: Instant,
}

impl Progress {
    /// A bench begins that takes this long.
    pub(crate) fn new(takes: Duration) -> Self {
        Self { end: Instant::now() + takes }
    }

    /// A step is done.
    pub(crate) fn say(&self, done: &str) {
        let left = self.end.saturating_duration_since(Instant::now()).as_secs();
        say(&format!("  {done:<78} {:>2} min {:02} s left", left / 60, left % 60));
    }
}
