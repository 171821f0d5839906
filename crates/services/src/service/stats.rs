//! Statistics of the services, for metrics. They contain no data from clients.

mod histogram;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::retry::RetryBudget;
use crate::endpoints::EndpointStats;

pub use histogram::{DurationHistogram, HistogramSnapshot};

/// Statistics of one service. The counts start with the process and survive config reloads.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceStats {
    /// The service's name.
    pub service: Arc<str>,
    /// The number of calls, each counted once, whatever the number of attempts.
    pub requests: u64,
    /// The number of calls that ended with a status of 500 or more, or without a response.
    pub failures: u64,
    /// The number of retries on other endpoints.
    pub retries: u64,
    /// The number of retries that the retry budget did not permit.
    pub retries_refused: u64,
    /// The time from sending to the head of the response, of calls with a response.
    pub response_time: HistogramSnapshot,
    /// The current endpoints.
    pub endpoints: Vec<EndpointStats>,
}

/// The counters of one service, kept across config reloads.
#[derive(Debug)]
pub(crate) struct ServiceCounters {
    pub(crate) requests: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) retries_refused: AtomicU64,
    pub(crate) response_time: DurationHistogram,
    pub(crate) retry_budget: RetryBudget,
}

impl ServiceCounters {
    pub(crate) fn new() -> Self {
        Self {
            requests: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            retries_refused: AtomicU64::new(0),
            response_time: DurationHistogram::default(),
            retry_budget: RetryBudget::new(),
        }
    }
}
