//! The bytes in use, where the feature `count` is on.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// Bytes that were asked for and not given back: their sizes as asked for, without what the allocator adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapUsage {
    /// At this moment.
    pub live: usize,
    /// The most since [`take_usage`] was called last.
    pub peak: usize,
}

/// Returns the usage, and begins a new peak.
#[must_use]
pub fn take_usage() -> HeapUsage {
    let live = LIVE.load(Relaxed);
    HeapUsage { live, peak: PEAK.swap(live, Relaxed).max(live) }
}

#[inline]
pub(crate) fn add(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Relaxed) + bytes;
    // A peak that grows is rare: without this look each allocation would write to it.
    if live > PEAK.load(Relaxed) {
        PEAK.fetch_max(live, Relaxed);
    }
}

#[inline]
pub(crate) fn remove(bytes: usize) {
    LIVE.fetch_sub(bytes, Relaxed);
}
