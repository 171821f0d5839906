//! The cost of restarts, charged to the clients whose requests trap.
//!
//! A request that traps destroys its instance, and the next one is created immediately, so that other clients
//! do not wait because of it. Creating an instance takes CPU time from all clients. So this time is measured
//! and charged to the client whose request trapped, and filters refuse a client that has used up its quota
//! until some of it is available again. The quota of each client is as large as its quota for compiling.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use offload::{QuotaBook, QuotaKey};
use sandbox::CpuClock;

/// The restart quotas of all clients.
pub(crate) struct RestartQuota {
    book: QuotaBook,
    /// Whether anything has been charged. Until then no lookup is needed.
    has_charges: AtomicBool,
}

impl RestartQuota {
    /// Creates the quotas, each with `limit` of CPU time per ten seconds.
    pub(crate) fn new(limit: Duration) -> Self {
        Self { book: QuotaBook::new(limit), has_charges: AtomicBool::new(false) }
    }

    /// Charges a client for CPU time that its request caused beyond its own callback.
    pub(crate) fn charge(&self, payer: QuotaKey, cpu: Duration) {
        self.book.charge(payer, cpu, Instant::now());
        self.has_charges.store(true, Relaxed);
    }

    /// The time until a client that has used up its quota has some again.
    pub(crate) fn retry_after(&self, payer: impl FnOnce() -> QuotaKey) -> Option<Duration> {
        if !self.has_charges.load(Relaxed) {
            return None;
        }
        self.book.retry_after(payer(), Instant::now())
    }
}

/// Awaits a future and measures the CPU time of its polls.
pub(crate) async fn measure_cpu<F: Future>(future: F) -> (F::Output, Duration) {
    let mut future = pin!(future);
    let mut spent = Duration::ZERO;
    let output = poll_fn(|context| {
        let clock = CpuClock::now();
        let polled = future.as_mut().poll(context);
        spent += clock.elapsed();
        polled
    })
    .await;
    (output, spent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_only_the_client_that_was_charged_too_much() {
        let quota = RestartQuota::new(Duration::from_millis(10));
        let (bad, good) = (QuotaKey::new(&"bad"), QuotaKey::new(&"good"));
        assert_eq!(quota.retry_after(|| panic!("nothing was charged")), None);
        quota.charge(bad, Duration::from_millis(15));
        assert!(quota.retry_after(|| bad).is_some());
        assert_eq!(quota.retry_after(|| good), None);
    }
}
