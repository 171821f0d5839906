//! Clocks: the CPU time of a thread, and monotonic time.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A reading of the calling thread's CPU clock (`CLOCK_THREAD_CPUTIME_ID`).
#[derive(Clone, Copy, Debug)]
pub struct CpuClock(Duration);

impl CpuClock {
    /// Reads the clock, which takes a system call.
    #[must_use]
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanos = u32::try_from(now.tv_nsec).unwrap_or(0);
        Self(Duration::new(seconds, nanos))
    }

    /// The CPU time since this reading, on the same thread.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        Self::now().since(self)
    }

    /// The CPU time between an earlier reading on the same thread and this one.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Returns the monotonic clock in nanoseconds since a fixed time in the process (`CLOCK_MONOTONIC`). Cheaper
/// than `Instant` for measuring durations.
pub(crate) fn wall_nanos() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}
