//! The number of bytes in use, with the feature `count`.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The number of allocated bytes: the requested sizes, without the allocator's overhead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapUsage {
    /// The bytes allocated now.
    pub live: usize,
    /// The maximum since the last call of [`take_usage`].
    pub peak: usize,
}

/// Returns the usage, and starts a new peak.
#[must_use]
pub fn take_usage() -> HeapUsage {
    let live = LIVE.load(Relaxed);
    HeapUsage { live, peak: PEAK.swap(live, Relaxed).max(live) }
}

#[inline]
pub(crate) fn add(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Relaxed) + bytes;
    // A new peak is rare: without this check each allocation would write to it.
    if live > PEAK.load(Relaxed) {
        PEAK.fetch_max(live, Relaxed);
    }
}

#[inline]
pub(crate) fn remove(bytes: usize) {
    LIVE.fetch_sub(bytes, Relaxed);
}
