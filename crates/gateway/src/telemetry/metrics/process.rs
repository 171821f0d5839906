//! Metrics of the process, under the names that every Prometheus client library uses.

use std::fmt;
use std::fs;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use admission::process_cpu_time;

use super::page::MetricsPage;

/// Reads the heap's bytes in use: now, and the maximum since the last call.
type HeapReading = fn() -> (usize, usize);

/// The function that reads the heap, in builds whose allocator counts.
static HEAP_READER: OnceLock<HeapReading> = OnceLock::new();

/// Adds the heap's bytes to the metrics, for as long as the process lives.
pub fn observe_heap(reading: fn() -> (usize, usize)) {
    // There is only one allocator, so a later call would set an equivalent function.
    let _ = HEAP_READER.set(reading);
}

/// This process.
#[derive(Debug)]
pub(crate) struct ProcessStats {
    started: SystemTime,
}

impl ProcessStats {
    /// Creates the metrics, with the current time as the process's start.
    pub(crate) fn new() -> Self {
        Self { started: SystemTime::now() }
    }

    /// Writes the metrics that the system provides, fewer outside of Linux.
    pub(crate) fn write(&self, page: &mut MetricsPage<'_>) -> fmt::Result {
        let help = "CPU time in user and system mode";
        page.counter("process_cpu_seconds", help, [([], process_cpu_time().as_secs_f64())])?;
        let started = self.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        let help = "Start time of the process since the Unix epoch";
        page.gauge("process_start_time_seconds", help, [([], started.as_secs_f64())])?;
        let help = "Resident memory";
        page.gauge("process_resident_memory_bytes", help, resident_bytes().map(|bytes| ([], bytes)))?;
        if let Some((live, peak)) = HEAP_READER.get().map(|read| read()) {
            page.gauge("orfa_heap_bytes", "Bytes of the heap in use", [([], live as u64)])?;
            let help = "Maximum bytes of the heap in use since the last scrape";
            page.gauge("orfa_heap_peak_bytes", help, [([], peak as u64)])?;
        }
        page.gauge("process_open_fds", "Open file descriptors", open_descriptors().map(|count| ([], count)))?;
        let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        page.gauge("process_max_fds", "File descriptors that may be open", most.map(|count| ([], count)))
    }
}

/// Returns the resident memory in bytes: the second number of `/proc/self/statm` (proc(5)), which counts
/// pages.
fn resident_bytes() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

fn open_descriptors() -> Option<u64> {
    // Excludes the descriptor of the folder itself.
    Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as u64)
}
