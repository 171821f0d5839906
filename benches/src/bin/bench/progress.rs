//! Progress lines with the estimated remaining time of the bench, and of all remaining benches.

use std::time::{Duration, Instant};

use crate::{BenchTools, print_line};

/// The estimated end of a bench.
pub(crate) struct BenchProgress {
    end: Instant,
    /// The duration of the benches after this one.
    remaining: Duration,
}

impl BenchProgress {
    /// Starts a bench with this estimated duration.
    pub(crate) fn new(tools: &BenchTools, takes: Duration) -> Self {
        Self { end: Instant::now() + takes, remaining: tools.remaining }
    }

    /// Prints a completed step.
    pub(crate) fn report(&self, done: &str) {
        let left = self.end.saturating_duration_since(Instant::now());
        let all = if self.remaining.is_zero() {
            String::new()
        } else {
            format!(", {} of all", format_minutes(left + self.remaining))
        };
        print_line(&format!("  {done:<78} {} left{all}", format_minutes(left)));
    }
}

/// Formats a duration as in `2 min 05 s`.
pub(crate) fn format_minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{:>2} min {:02} s", seconds / 60, seconds % 60)
}
