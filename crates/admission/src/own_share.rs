//! The share of its threads' time in which this process ran, to discount waits that are estimated.

use std::time::Duration;

use crate::process_times::ProcessTimes;

/// The interval between samples while requests wait, and the age from which on a sample is useless.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);
const MAX_SAMPLE_AGE: Duration = Duration::from_millis(200);
/// The minimum share.
const MIN_CPU_SHARE: f64 = 0.02;

/// The recent share of its threads' time in which this process ran.
///
/// If other processes use the cores, requests wait even in a short queue, and refusing one does not help the
/// others. Therefore only this share of a wait counts.
#[derive(Debug)]
pub struct OwnShare {
    fraction: f64,
    /// The time of the last sample, and the process's CPU time at that point.
    last_sample: Option<(Duration, Duration)>,
}

impl Default for OwnShare {
    fn default() -> Self {
        Self { fraction: 1.0, last_sample: None }
    }
}

impl OwnShare {
    /// Creates a share that no sample changes.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn fixed(fraction: f64) -> Self {
        Self { fraction, last_sample: Some((Duration::MAX, Duration::ZERO)) }
    }

    /// Returns the share, from 0 to 1.
    #[must_use]
    #[inline]
    pub fn fraction(&self) -> f64 {
        self.fraction
    }

    /// Takes a sample if the last one is old enough. Reads the CPU clock only then, since that is a system
    /// call. `now` is relative to any fixed moment.
    #[inline]
    pub fn update_sample(&mut self, now: Duration, cpu_time: impl FnOnce() -> Duration, threads: u32) {
        let since = self.last_sample.map(|(at, cpu)| (now.saturating_sub(at), cpu));
        if since.is_some_and(|(passed, _)| passed < SAMPLE_INTERVAL) {
            return;
        }
        let cpu = cpu_time();
        self.fraction = match since {
            Some((wall, before)) if wall < MAX_SAMPLE_AGE => {
                let times = ProcessTimes { wall, cpu: cpu.saturating_sub(before) };
                times.own_share(threads).max(MIN_CPU_SHARE)
            }
            // While threads were idle, their speed is unknown: accept all requests until there is a sample.
            _ => 0.0,
        };
        self.last_sample = Some((now, cpu));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_the_share_while_requests_wait() {
        let mut share = OwnShare::default();
        let mut sample = |millis: u64, cpu: u64| {
            share.update_sample(Duration::from_millis(millis), || Duration::from_millis(cpu), 2);
            share.fraction()
        };
        assert_eq!([sample(0, 0), sample(10, 5), sample(100, 50), sample(200, 250)], [0.0, 0.0, 0.25, 1.0]);
        assert_eq!(sample(300, 250), MIN_CPU_SHARE);
        assert_eq!(sample(3_000, 260), 0.0, "idle for long");
    }
}
