//! The host's counters of each filter, for the gateway's metrics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::refusal_log::RefusalLog;

/// The counters of all filters with one name.
#[derive(Debug, Default)]
pub(crate) struct FilterCounters {
    pub(crate) requests: AtomicU64,
    pub(crate) local_responses: AtomicU64,
    pub(crate) traps: AtomicU64,
    pub(crate) starts: AtomicU64,
    pub(crate) calls: AtomicU64,
    pub(crate) failed_requests: AtomicU64,
    pub(crate) bypassed_requests: AtomicU64,
    pub(crate) refused_calls: AtomicU64,
    pub(crate) hostcall_errors: AtomicU64,
    pub(crate) refusals: RefusalLog,
}

/// A snapshot of a filter's counters. Filters of the same name are counted together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilterStats {
    /// The filter's name.
    pub filter: String,
    /// Requests that the filter has seen.
    pub requests: u64,
    /// Requests that the filter answered itself.
    pub local_responses: u64,
    /// Traps, including callbacks that exceeded their time or memory.
    pub traps: u64,
    /// Root contexts that were started and configured.
    pub starts: u64,
    /// HTTP and gRPC calls.
    pub calls: u64,
    /// Requests that ended with a problem caused by the filter.
    pub failed_requests: u64,
    /// Requests that continued without the filter after a trap.
    pub bypassed_requests: u64,
    /// HTTP and gRPC calls that could not be made.
    pub refused_calls: u64,
    /// Calls of other host functions that returned an error.
    pub hostcall_errors: u64,
}

impl FilterCounters {
    pub(crate) fn snapshot(&self, filter: &str) -> FilterStats {
        FilterStats {
            filter: filter.to_owned(),
            requests: self.requests.load(Relaxed),
            local_responses: self.local_responses.load(Relaxed),
            traps: self.traps.load(Relaxed),
            starts: self.starts.load(Relaxed),
            calls: self.calls.load(Relaxed),
            failed_requests: self.failed_requests.load(Relaxed),
            bypassed_requests: self.bypassed_requests.load(Relaxed),
            refused_calls: self.refused_calls.load(Relaxed),
            hostcall_errors: self.hostcall_errors.load(Relaxed),
        }
    }
}

/// Increments a counter.
pub(crate) fn increment(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}
