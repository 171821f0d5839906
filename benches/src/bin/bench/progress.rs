//! Progress: each line with the time that is left, by the plan: of the bench, and of all that are to run.

use std::time::{Duration, Instant};

use crate::{Tools, say};

/// The plan of a bench.
pub(crate) struct Progress {
    end: Instant,
    /// What the benches after this one take.
    later: Duration,
}

impl Progress {
    /// A bench begins that takes this long.
    pub(crate) fn new(tools: &Tools, takes: Duration) -> Self {
        Self { end: Instant::now() + takes, later: tools.later }
    }

    /// A step is done.
    pub(crate) fn say(&self, done: &str) {
        let left = self.end.saturating_duration_since(Instant::now());
        let all = if self.later.is_zero() {
            String::new()
        } else {
            format!(", {} of all", minutes(left + self.later))
        };
        say(&format!("  {done:<78} {} left{all}", minutes(left)));
    }
}

/// `2 min 05 s`
pub(crate) fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{:>2} min {:02} s", seconds / 60, seconds % 60)
}
