//! How much of a wait is the gateway's own.
//!
//! A task that is ready waits for a thread, and a thread that is ready for a processor. Where other processes have the
//! processors, the second takes long though nothing of the gateway's is before it, and no request that is refused makes it
//! shorter. So a wait counts as far as the gateway's threads ran meanwhile: on a machine of its own, all of it does.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Wall time and the CPU time of the process, at a moment or between two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Elapsed {
    pub(super) wall: Duration,
    pub(super) cpu: Duration,
}

impl Elapsed {
    /// The part of the wall time in which so many threads were at work for the gateway.
    pub(super) fn own(self, threads: u32) -> Duration {
        self.wall.min(self.cpu / threads.max(1))
    }
}

/// The CPU time that the process has used, with all its threads.
pub(super) fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(wall: u64, cpu: u64, threads: u32) -> u128 {
        let [wall, cpu] = [wall, cpu].map(Duration::from_millis);
        Elapsed { wall, cpu }.own(threads).as_millis()
    }

    #[test]
    fn a_wait_counts_as_far_as_the_gateway_ran() {
        assert_eq!(own(60, 60, 1), 60, "a thread that worked all the time");
        assert_eq!(own(60, 120, 2), 60, "two of them");
        assert_eq!(own(60, 2, 1), 2, "other processes had the processor");
        assert_eq!(own(60, 60, 2), 30, "and one of two");
        assert_eq!(own(60, 400, 2), 60, "threads beside them do not make it longer");
        assert_eq!(own(60, 5, 0), 5);
    }
}
