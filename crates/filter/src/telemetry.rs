//! Observation of filters: metrics that modules define, the host's counters, log lines about refusals, and
//! events for an observer.

mod metrics;
mod observe;
mod refusal_log;
mod stats;

pub(crate) use metrics::FilterMetrics;
pub use metrics::{FilterMetric, MetricValue};
pub use observe::{FilterEvent, FilterObserver};
pub use stats::FilterStats;
pub(crate) use stats::{FilterCounters, increment};
