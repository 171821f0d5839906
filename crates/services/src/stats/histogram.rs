//! Times in buckets, by two atomic additions each.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds in microseconds: steps of 2 to 2.5 from what a gateway takes by itself to what no client
/// waits for.
const BOUNDS: [u64; 15] = [
    250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000,
];

/// How often something took how long.
#[derive(Debug, Default)]
pub struct Histogram {
    counts: [AtomicU64; BOUNDS.len() + 1],
    nanos: AtomicU64,
}

/// A histogram at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// Seconds, and how often it took no longer, but longer than the bucket before.
    pub buckets: Vec<(f64, u64)>,
    /// Seconds in all.
    pub sum: f64,
    /// How often in all.
    pub count: u64,
}

impl Histogram {
    /// It took so long.
    pub fn observe(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.iter().position(|bound| nanos <= bound * 1000).unwrap_or(BOUNDS.len());
        self.counts[bucket].fetch_add(1, Relaxed);
        self.nanos.fetch_add(nanos, Relaxed);
    }

    /// As it is now.
    #[must_use]
    pub fn read(&self) -> Reading {
        let bounds = BOUNDS.iter().map(|micros| Duration::from_micros(*micros).as_secs_f64());
        let bounds = bounds.chain([f64::INFINITY]);
        let buckets: Vec<_> = bounds.zip(self.counts.iter().map(|count| count.load(Relaxed))).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        Reading { buckets, sum: Duration::from_nanos(self.nanos.load(Relaxed)).as_secs_f64(), count }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Histogram;

    #[test]
    fn a_time_falls_into_the_first_bucket_that_holds_it() {
        let histogram = Histogram::default();
        for micros in [0, 250, 251, 10_000_000, 10_000_001] {
            histogram.observe(Duration::from_micros(micros));
        }
        let reading = histogram.read();
        let filled: Vec<_> = reading.buckets.iter().filter(|(_, count)| *count > 0).copied().collect();
        assert_eq!(filled, [(0.00025, 2), (0.0005, 1), (10.0, 1), (f64::INFINITY, 1)]);
        assert_eq!((reading.count, reading.sum), (5, 20.000502));
    }
}
