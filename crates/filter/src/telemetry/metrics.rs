//! The metrics that modules define: counters, gauges, histograms, by name for the whole process.
//!
//! Modules that define the same name with the same type share the metric, as instances on several threads
//! have to. The number of metrics is bounded.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::abi::HostStatus;

/// The maximum number of metrics of a process.
const MAX_METRICS: usize = 10_000;
/// The maximum length of a name in bytes.
const MAX_NAME: usize = 1024;
/// The upper bounds of a histogram's buckets, the same as Envoy's.
const BUCKET_BOUNDS: [f64; 19] = [
    0.5, 1.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1e3, 2.5e3, 5e3, 1e4, 3e4, 6e4, 3e5, 6e5, 1.8e6,
    3.6e6,
];

/// A metric with its current value.
#[derive(Clone, Debug, PartialEq)]
pub struct FilterMetric {
    /// The name that the module chose; any text.
    pub name: String,
    /// The value.
    pub value: MetricValue,
}

/// The value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub enum MetricValue {
    /// A number that never decreases.
    Counter(u64),
    /// A number.
    Gauge(i64),
    /// The distribution of the recorded values.
    Histogram {
        /// Upper bounds with the cumulative number of values up to each.
        buckets: Vec<(f64, u64)>,
        /// The sum of all values.
        sum: f64,
        /// The number of values.
        count: u64,
    },
}

/// All metrics of a process.
#[derive(Default)]
pub(crate) struct FilterMetrics {
    inner: RwLock<FilterMetricsInner>,
}

#[derive(Default)]
struct FilterMetricsInner {
    by_name: BTreeMap<String, u32>,
    cells: Vec<Arc<MetricCell>>,
}

enum MetricCell {
    Counter(AtomicU64),
    Gauge(AtomicI64),
    Histogram(Mutex<FilterHistogram>),
}

#[derive(Clone, Default)]
struct FilterHistogram {
    counts: [u64; BUCKET_BOUNDS.len()],
    sum: f64,
    count: u64,
}

impl FilterMetrics {
    /// Returns the id of the metric with this name, created if there is none.
    pub(crate) fn define(&self, kind: u32, name: &[u8]) -> Result<u32, HostStatus> {
        if name.len() > MAX_NAME {
            return Err(HostStatus::InternalFailure);
        }
        let name = std::str::from_utf8(name).map_err(|_| HostStatus::BadArgument)?;
        let cell = MetricCell::new(kind).ok_or(HostStatus::BadArgument)?;
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = inner.by_name.get(name).copied() {
            let same = inner.get(id).is_some_and(|cell| cell.kind() == kind);
            return if same { Ok(id) } else { Err(HostStatus::BadArgument) };
        }
        if inner.cells.len() >= MAX_METRICS {
            return Err(HostStatus::InternalFailure);
        }
        inner.cells.push(Arc::new(cell));
        let id = u32::try_from(inner.cells.len()).map_err(|_| HostStatus::InternalFailure)?;
        inner.by_name.insert(name.to_owned(), id);
        Ok(id)
    }

    /// Adds to a counter or a gauge. A counter never decreases.
    pub(crate) fn increment(&self, id: u32, by: i64) -> Result<(), HostStatus> {
        match (&*self.find_cell(id)?, u64::try_from(by)) {
            (MetricCell::Counter(counter), Ok(by)) => drop(counter.fetch_add(by, Relaxed)),
            (MetricCell::Gauge(gauge), _) => drop(gauge.fetch_add(by, Relaxed)),
            (MetricCell::Counter(_), Err(_)) | (MetricCell::Histogram(_), _) => {
                return Err(HostStatus::BadArgument);
            }
        }
        Ok(())
    }

    /// Sets a gauge, records a value in a histogram, or adds to a counter.
    pub(crate) fn record(&self, id: u32, value: u64) -> Result<(), HostStatus> {
        match &*self.find_cell(id)? {
            MetricCell::Counter(counter) => drop(counter.fetch_add(value, Relaxed)),
            MetricCell::Gauge(gauge) => gauge.store(value.cast_signed(), Relaxed),
            MetricCell::Histogram(histogram) => {
                histogram.lock().unwrap_or_else(PoisonError::into_inner).record(value as f64);
            }
        }
        Ok(())
    }

    /// The value of a counter or a gauge.
    pub(crate) fn get(&self, id: u32) -> Result<u64, HostStatus> {
        match &*self.find_cell(id)? {
            MetricCell::Counter(counter) => Ok(counter.load(Relaxed)),
            MetricCell::Gauge(gauge) => Ok(gauge.load(Relaxed).cast_unsigned()),
            MetricCell::Histogram(_) => Err(HostStatus::BadArgument),
        }
    }

    /// All metrics with their current values, in alphabetical order.
    pub(crate) fn snapshot(&self) -> Vec<FilterMetric> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        let metric = |(name, id): (&String, &u32)| {
            Some(FilterMetric { name: name.clone(), value: inner.get(*id)?.value() })
        };
        inner.by_name.iter().filter_map(metric).collect()
    }

    fn find_cell(&self, id: u32) -> Result<Arc<MetricCell>, HostStatus> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned().ok_or(HostStatus::NotFound)
    }
}

impl FilterMetricsInner {
    fn get(&self, id: u32) -> Option<&Arc<MetricCell>> {
        self.cells.get((id as usize).checked_sub(1)?)
    }
}

impl MetricCell {
    fn new(kind: u32) -> Option<Self> {
        match kind {
            0 => Some(Self::Counter(AtomicU64::default())),
            1 => Some(Self::Gauge(AtomicI64::default())),
            2 => Some(Self::Histogram(Mutex::default())),
            _ => None,
        }
    }

    fn kind(&self) -> u32 {
        match self {
            Self::Counter(_) => 0,
            Self::Gauge(_) => 1,
            Self::Histogram(_) => 2,
        }
    }

    fn value(&self) -> MetricValue {
        match self {
            Self::Counter(counter) => MetricValue::Counter(counter.load(Relaxed)),
            Self::Gauge(gauge) => MetricValue::Gauge(gauge.load(Relaxed)),
            Self::Histogram(histogram) => {
                let FilterHistogram { counts, sum, count } =
                    histogram.lock().unwrap_or_else(PoisonError::into_inner).clone();
                MetricValue::Histogram {
                    buckets: BUCKET_BOUNDS.into_iter().zip(counts).collect(),
                    sum,
                    count,
                }
            }
        }
    }
}

impl FilterHistogram {
    fn record(&mut self, value: f64) {
        let within = BUCKET_BOUNDS.iter().zip(&mut self.counts).filter(|(bound, _)| value <= **bound);
        within.for_each(|(_, count)| *count += 1);
        self.sum += value;
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_name_and_type_share_a_metric() {
        let metrics = FilterMetrics::default();
        let id = metrics.define(0, b"hits").unwrap();
        assert_eq!(metrics.define(0, b"hits"), Ok(id));
        assert_eq!(metrics.define(1, b"hits"), Err(HostStatus::BadArgument));
        assert_eq!(metrics.define(3, b"other"), Err(HostStatus::BadArgument));
        assert_eq!(metrics.increment(id, 2), Ok(()));
        assert_eq!(metrics.increment(id, -1), Err(HostStatus::BadArgument));
        assert_eq!(metrics.get(id), Ok(2));
        assert_eq!(metrics.get(id + 1), Err(HostStatus::NotFound));
    }

    #[test]
    fn limits_number_and_name_length_of_metrics() {
        let metrics = FilterMetrics::default();
        assert_eq!(metrics.define(0, &[b'n'; MAX_NAME + 1]), Err(HostStatus::InternalFailure));
        (0..MAX_METRICS).for_each(|number| _ = metrics.define(0, number.to_string().as_bytes()).unwrap());
        assert_eq!(metrics.define(0, b"more"), Err(HostStatus::InternalFailure));
        assert!(metrics.define(0, b"7").is_ok(), "an existing metric");
    }

    #[test]
    fn histogram_counts_values_up_to_each_bound() {
        let metrics = FilterMetrics::default();
        let id = metrics.define(2, b"ms").unwrap();
        [1, 7, 7, 99_999_999].into_iter().for_each(|value| metrics.record(id, value).unwrap());
        assert_eq!(metrics.get(id), Err(HostStatus::BadArgument));
        let MetricValue::Histogram { buckets, count, .. } = &metrics.snapshot()[0].value else {
            panic!("no histogram")
        };
        assert_eq!((buckets[1], buckets[3], buckets[18].1, *count), ((1.0, 1), (10.0, 3), 3, 4));
    }
}
