//! The number of bytes in use, with the feature `count`.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK_BYTES: AtomicUsize = AtomicUsize::new(0);

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
    let live = LIVE_BYTES.load(Relaxed);
    HeapUsage { live, peak: PEAK_BYTES.swap(live, Relaxed).max(live) }
}

#[inline]
pub(crate) fn add_bytes(bytes: usize) {
    let live = LIVE_BYTES.fetch_add(bytes, Relaxed) + bytes;
    // A new peak is rare: without this check each allocation would write to it.
    if live > PEAK_BYTES.load(Relaxed) {
        PEAK_BYTES.fetch_max(live, Relaxed);
    }
}

#[inline]
pub(crate) fn remove_bytes(bytes: usize) {
    LIVE_BYTES.fetch_sub(bytes, Relaxed);
}
