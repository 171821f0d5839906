//! What the services have done so far, as numbers: for metrics. Nothing in them comes from a client.

mod histogram;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::retry::RetryBudget;
use crate::service::Service;

pub use histogram::{Histogram, Reading};

/// What one service has done. The counts begin with the process and outlive a reload of the config.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceStats {
    /// Its name.
    pub service: Arc<str>,
    /// Calls, each counted once, however often it was sent.
    pub requests: u64,
    /// Calls that ended with an answer of 500 or more, or without one.
    pub failures: u64,
    /// How often a call was sent to another endpoint.
    pub retries: u64,
    /// How often one was not, because the budget for retries was used up.
    pub retries_refused: u64,
    /// From sending to the head of the answer, of calls that were answered.
    pub took: Reading,
    /// Its endpoints as they are now.
    pub endpoints: Vec<EndpointStats>,
}

/// What one endpoint of a service has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointStats {
    /// Host and port as the config has them.
    pub target: String,
    /// Which of the addresses that the name stands for.
    pub address: Option<SocketAddr>,
    /// Requests that were given to it, retries included.
    pub requests: u64,
    /// Those that failed: no connection, broken off, too slow, or answered with 500, 502, 503 or 504.
    pub failures: u64,
    /// How often it was left out for failing, trials that failed included.
    pub ejections: u64,
    /// How many requests are under way there, streamed answers included.
    pub outstanding: u32,
    /// Whether it gets requests.
    pub healthy: bool,
}

/// The counts of one service, kept across reloads.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) requests: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) retries_refused: AtomicU64,
    pub(crate) took: Histogram,
    pub(crate) budget: RetryBudget,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            requests: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            retries_refused: AtomicU64::new(0),
            took: Histogram::default(),
            budget: RetryBudget::new(),
        }
    }
}

impl ServiceStats {
    pub(crate) fn of(service: &Service) -> Self {
        let tally = &service.tally;
        Self {
            service: Arc::clone(service.name()),
            requests: tally.requests.load(Relaxed),
            failures: tally.failures.load(Relaxed),
            retries: tally.retries.load(Relaxed),
            retries_refused: tally.retries_refused.load(Relaxed),
            took: tally.took.read(),
            endpoints: service.targets.stats(),
        }
    }
}
