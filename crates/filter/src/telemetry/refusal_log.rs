//! A record of the refusals that have been logged, so that clients can't flood the log with them.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::sync::lock;

/// The refusals of a filter that have been logged. The keys are constants, so there are a few dozen at most.
#[derive(Debug, Default)]
pub(crate) struct RefusalLog {
    entries: Mutex<HashMap<(&'static str, &'static str), LoggedRefusals>>,
}

#[derive(Debug)]
struct LoggedRefusals {
    logged_at: Instant,
    suppressed_count: u64,
}

impl RefusalLog {
    /// Whether to log a refusal, with the number of suppressed ones since the last logged one.
    pub(crate) fn admit(
        &self,
        function: &'static str,
        reason: &'static str,
        again: Option<Duration>,
    ) -> Option<u64> {
        let now = Instant::now();
        let mut logged = lock(&self.entries);
        let Some(last) = logged.get_mut(&(function, reason)) else {
            logged.insert((function, reason), LoggedRefusals { logged_at: now, suppressed_count: 0 });
            return Some(0);
        };
        if again.is_none_or(|again| now.saturating_duration_since(last.logged_at) < again) {
            last.suppressed_count += 1;
            return None;
        }
        last.logged_at = now;
        Some(std::mem::take(&mut last.suppressed_count))
    }
}
