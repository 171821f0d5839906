//! A histogram of durations. Recording takes two atomic additions.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds in microseconds, in steps of 2 to 2.5, from the gateway's own overhead to the longest common
/// client timeouts.
const BOUNDS: [u64; 15] = [
    250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000,
];

/// A histogram of durations.
#[derive(Debug, Default)]
pub struct DurationHistogram {
    counts: [AtomicU64; BOUNDS.len() + 1],
    total_nanos: AtomicU64,
}

/// A snapshot of a histogram.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramSnapshot {
    /// The upper bound in seconds of each bucket, and the number of durations in it, not cumulated.
    pub buckets: Vec<(f64, u64)>,
    /// The sum in seconds.
    pub sum: f64,
    /// The number of durations.
    pub count: u64,
}

impl DurationHistogram {
    /// Records a duration.
    pub fn observe(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.iter().position(|bound| nanos <= bound * 1000).unwrap_or(BOUNDS.len());
        self.counts[bucket].fetch_add(1, Relaxed);
        self.total_nanos.fetch_add(nanos, Relaxed);
    }

    /// Returns a snapshot.
    #[must_use]
    pub fn snapshot(&self) -> HistogramSnapshot {
        let bounds = BOUNDS.iter().map(|micros| Duration::from_micros(*micros).as_secs_f64());
        let bounds = bounds.chain([f64::INFINITY]);
        let buckets: Vec<_> = bounds.zip(self.counts.iter().map(|count| count.load(Relaxed))).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        HistogramSnapshot {
            buckets,
            sum: Duration::from_nanos(self.total_nanos.load(Relaxed)).as_secs_f64(),
            count,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::DurationHistogram;

    #[test]
    fn a_duration_counts_in_the_first_bucket_that_fits() {
        let histogram = DurationHistogram::default();
        for micros in [0, 250, 251, 10_000_000, 10_000_001] {
            histogram.observe(Duration::from_micros(micros));
        }
        let reading = histogram.snapshot();
        let filled: Vec<_> = reading.buckets.iter().filter(|(_, count)| *count > 0).copied().collect();
        assert_eq!(filled, [(0.00025, 2), (0.0005, 1), (10.0, 1), (f64::INFINITY, 1)]);
        assert_eq!((reading.count, reading.sum), (5, 20.000502));
    }
}
