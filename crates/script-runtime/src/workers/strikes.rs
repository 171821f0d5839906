//! The workers that a handler ended: after two of them, its runs do not share workers with other runs.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// A handler that has ended this many workers runs alone from then on.
const MAX_STRIKES: u32 = 2;

/// The number of workers that a handler ended.
#[derive(Debug)]
pub(crate) struct HandlerStrikes {
    /// The position of the handler, as used in logs and errors.
    pub(crate) position: String,
    count: AtomicU32,
}

impl HandlerStrikes {
    pub(crate) fn new(position: String) -> Self {
        Self { position, count: AtomicU32::new(0) }
    }

    /// Records that the handler ended its worker.
    pub(crate) fn record(&self, times: u32) {
        if self.count.fetch_add(times, Relaxed) + times >= MAX_STRIKES {
            let at = &*self.position;
            tracing::warn!(target: "script", at, "the handler has ended two workers, and runs alone from now on");
        }
    }

    /// Whether the handler must run alone, since it has ended several workers.
    pub(crate) fn is_isolated(&self) -> bool {
        self.count.load(Relaxed) >= MAX_STRIKES
    }
}
