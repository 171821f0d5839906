//! The part of a wait that the gateway causes itself.
//!
//! A ready task waits for a thread, and a ready thread for a processor. If other processes occupy the
//! processors, the second wait is long although the gateway has no backlog, and refusing requests would not
//! shorten it. So a wait counts only up to the time that the gateway's threads ran meanwhile: on a dedicated
//! machine, that is all of it.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// A reading of the wall clock and of the CPU time of the process.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockReading {
    pub(super) wall: Instant,
    pub(super) cpu: Duration,
}

/// Wall time and CPU time of the process between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessTimes {
    pub(super) wall: Duration,
    pub(super) cpu: Duration,
}

impl ClockReading {
    pub(super) fn now() -> Self {
        Self { wall: Instant::now(), cpu: cpu_time() }
    }

    /// Returns the time since an earlier reading.
    pub(super) fn since(self, earlier: Self) -> ProcessTimes {
        ProcessTimes {
            wall: self.wall.saturating_duration_since(earlier.wall),
            cpu: self.cpu.saturating_sub(earlier.cpu),
        }
    }
}

impl ProcessTimes {
    /// The part of the wall time in which this number of threads worked for the gateway.
    pub(super) fn own_time(self, threads: u32) -> Duration {
        self.wall.min(self.cpu / threads.max(1))
    }
}

/// The CPU time that all threads of the process have used.
pub(super) fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_millis(wall: u64, cpu: u64, threads: u32) -> u128 {
        let [wall, cpu] = [wall, cpu].map(Duration::from_millis);
        ProcessTimes { wall, cpu }.own_time(threads).as_millis()
    }

    #[test]
    fn counts_only_the_part_of_a_wait_in_which_the_gateway_ran() {
        assert_eq!(own_millis(60, 60, 1), 60, "a thread that worked all the time");
        assert_eq!(own_millis(60, 120, 2), 60, "two of them");
        assert_eq!(own_millis(60, 2, 1), 2, "other processes had the processor");
        assert_eq!(own_millis(60, 60, 2), 30, "and one of two");
        assert_eq!(own_millis(60, 400, 2), 60, "threads beside them do not make it longer");
        assert_eq!(own_millis(60, 5, 0), 5);
    }
}
