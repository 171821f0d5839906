//! The cost of restarts, charged to the clients whose requests trap.
//!
//! A request that traps takes its instance along, and the next one is made at once: no client waits for the fault of another.
//! What that costs is CPU time of all. So it is measured and charged to the client, and one that has used up its quota is
//! refused by filters until it has some again. Each client has a quota as large as that for compiling.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use offload::{QuotaBook, QuotaKey};
use sandbox::CpuClock;

/// The accounts of all clients.
pub(crate) struct RestartQuota {
    book: QuotaBook,
    /// Whether anything was ever charged: nothing is looked up before.
    has_charges: AtomicBool,
}

impl RestartQuota {
    /// Opens the accounts, in each of which there is `limit` of CPU time in ten seconds.
    pub(crate) fn new(limit: Duration) -> Self {
        Self { book: QuotaBook::new(limit), has_charges: AtomicBool::new(false) }
    }

    /// Charges a client for CPU time that its request took beyond its own callback.
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
pub(crate) async fn measured<F: Future>(future: F) -> (F::Output, Duration) {
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
