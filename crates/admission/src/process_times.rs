//! The part of a wait that this process causes itself.
//!
//! A ready task waits for a thread, and a ready thread for a processor. If other processes occupy the
//! processors, the second wait is long although the process has no backlog, and refusing requests would not
//! shorten it. So a wait counts only up to the time that the process's threads ran meanwhile: on a dedicated
//! machine, that is all of it.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// A reading of the wall clock and of the CPU time of the process.
#[derive(Clone, Copy, Debug)]
pub struct ClockReading {
    /// The wall clock.
    pub wall: Instant,
    /// The CPU time of all threads of the process.
    pub cpu: Duration,
}

/// Wall time and CPU time of the process between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessTimes {
    /// The time that passed.
    pub wall: Duration,
    /// The CPU time that all threads used.
    pub cpu: Duration,
}

impl ClockReading {
    /// Reads both clocks, which takes a system call.
    #[must_use]
    pub fn now() -> Self {
        Self { wall: Instant::now(), cpu: process_cpu_time() }
    }

    /// Returns the time since an earlier reading.
    #[must_use]
    #[inline]
    pub fn since(self, earlier: Self) -> ProcessTimes {
        ProcessTimes {
            wall: self.wall.saturating_duration_since(earlier.wall),
            cpu: self.cpu.saturating_sub(earlier.cpu),
        }
    }
}

impl ProcessTimes {
    /// The part of the wall time in which this number of threads ran.
    #[must_use]
    #[inline]
    pub fn own_time(self, threads: u32) -> Duration {
        self.wall.min(self.cpu / threads.max(1))
    }

    /// That part as a fraction of the wall time, which must not be zero.
    #[must_use]
    #[inline]
    pub fn own_share(self, threads: u32) -> f64 {
        let all = self.wall.as_secs_f64() * f64::from(threads.max(1));
        (self.cpu.as_secs_f64() / all).min(1.0)
    }
}

/// Returns the CPU time that all threads of the process have used.
#[must_use]
pub fn process_cpu_time() -> Duration {
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
