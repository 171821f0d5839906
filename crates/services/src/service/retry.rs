//! Retry rules and the retry budget of a service.
//!
//! Retries help if one endpoint fails, and hurt if all fail: each request would be sent three times to
//! services that are overloaded already. All retries of a service therefore share one budget, a share of the
//! requests of the last ten seconds, as in Finagle and linkerd.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use http::Method;
use tokio::time::Instant;

use crate::config::PercentConfig;

/// The length of the window in seconds.
const WINDOW_SECONDS: usize = 10;
/// The number of retries per second that are allowed in addition to the share.
const MIN_RETRIES_PER_SECOND: u64 = 3;

/// Whether a request with this method may be retried even if it may have arrived: the method is safe (RFC
/// 9110, section 9.2.1), or is `QUERY` (RFC 10008).
pub(crate) fn is_safe_method(method: &Method) -> bool {
    method.is_safe() || method.as_str() == "QUERY"
}

/// The retry budget of one service.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    epoch: Instant,
    /// Request counts by second: the second in the upper half, the count in the lower half.
    requests: [AtomicU64; WINDOW_SECONDS],
    /// Retry counts by second, as pairs of second and count.
    retries: Mutex<[(u32, u32); WINDOW_SECONDS]>,
}

impl RetryBudget {
    pub(crate) fn new() -> Self {
        Self { epoch: Instant::now(), requests: Default::default(), retries: Mutex::default() }
    }

    /// Counts a request.
    pub(crate) fn deposit(&self, now: Instant) {
        let second = self.elapsed_second(now);
        let Some(slot) = self.requests.get(second as usize % WINDOW_SECONDS) else { return };
        let count = |entry: u64| {
            let kept = if entry >> 32 == u64::from(second) { entry } else { u64::from(second) << 32 };
            Some(kept + u64::from(kept as u32 != u32::MAX))
        };
        let _ = slot.fetch_update(Relaxed, Relaxed, count);
    }

    /// Takes one retry out of the budget; returns `false` if the budget is used up.
    pub(crate) fn withdraw(&self, budget: PercentConfig, now: Instant) -> bool {
        let second = self.elapsed_second(now);
        let recent = |then: u32| then <= second && second - then < WINDOW_SECONDS as u32;
        let entries = self.requests.iter().map(|slot| slot.load(Relaxed));
        let requests: u64 = entries
            .filter(|entry| recent((entry >> 32) as u32))
            .map(|entry| entry & u64::from(u32::MAX))
            .sum();
        let mut retries = self.retries.lock().unwrap_or_else(PoisonError::into_inner);
        let spent: u64 =
            retries.iter().filter(|(then, _)| recent(*then)).map(|(_, count)| u64::from(*count)).sum();
        if spent >= requests * u64::from(budget.0) / 100 + MIN_RETRIES_PER_SECOND * WINDOW_SECONDS as u64 {
            return false;
        }
        if let Some(slot) = retries.get_mut(second as usize % WINDOW_SECONDS) {
            let count = if slot.0 == second { slot.1 } else { 0 };
            *slot = (second, count.saturating_add(1));
        }
        true
    }

    /// Returns whole seconds since the creation of the budget, starting at 1; 0 marks an unused slot.
    fn elapsed_second(&self, now: Instant) -> u32 {
        let elapsed = now.saturating_duration_since(self.epoch).as_secs();
        u32::try_from(elapsed).unwrap_or(u32::MAX - 1).saturating_add(1)
    }
}

#[cfg(test)]
mod tests;
