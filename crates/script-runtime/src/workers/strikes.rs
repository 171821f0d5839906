//! The workers that a handler ended: after two of them, its runs do not share workers with other runs.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// A handler that has ended this many workers runs alone from then on.
const STRIKES: u32 = 2;

/// The number of workers that a handler ended.
#[derive(Debug)]
pub(crate) struct HandlerStrikes {
    /// The position of the handler, as used in logs and errors.
    pub(crate) place: String,
    count: AtomicU32,
}

impl HandlerStrikes {
    pub(crate) fn new(place: String) -> Self {
        Self { place, count: AtomicU32::new(0) }
    }

    /// Records that the handler ended its worker.
    pub(crate) fn add(&self, times: u32) {
        if self.count.fetch_add(times, Relaxed) + times >= STRIKES {
            let at = &*self.place;
            tracing::warn!(target: "script", at, "the handler has ended two workers, and runs alone from now on");
        }
    }

    /// Whether the handler must run alone, since it has ended several workers.
    pub(crate) fn runs_alone(&self) -> bool {
        self.count.load(Relaxed) >= STRIKES
    }
}
