//! The process as the system sees it, under the names that every Prometheus client library uses.

use std::fmt;
use std::fs;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use super::page::Page;

/// Bytes of the heap in use, now and at most since they were asked for last.
type HeapReading = fn() -> (usize, usize);

/// How the heap is read, in builds whose allocator counts.
static HEAP: OnceLock<HeapReading> = OnceLock::new();

/// Shows the heap's bytes among the metrics, for as long as the process lives.
pub fn observe_heap(reading: fn() -> (usize, usize)) {
    // The allocator is one, and whoever comes second reads the same.
    let _ = HEAP.set(reading);
}

/// This process.
#[derive(Debug)]
pub(crate) struct Process {
    started: SystemTime,
}

impl Process {
    /// It starts about now.
    pub(crate) fn new() -> Self {
        Self { started: SystemTime::now() }
    }

    /// Writes what there is to be read: outside of Linux that is less.
    pub(crate) fn write(&self, page: &mut Page<'_>) -> fmt::Result {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let cpu = Duration::new(cpu.tv_sec.unsigned_abs(), u32::try_from(cpu.tv_nsec).unwrap_or_default());
        let help = "CPU time in user and system mode";
        page.counter("process_cpu_seconds", help, [([], cpu.as_secs_f64())])?;
        let started = self.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        let help = "When the process started, since the epoch";
        page.gauge("process_start_time_seconds", help, [([], started.as_secs_f64())])?;
        let help = "Memory that is resident";
        page.gauge("process_resident_memory_bytes", help, resident().map(|bytes| ([], bytes)))?;
        if let Some((live, peak)) = HEAP.get().map(|read| read()) {
            page.gauge("orfa_heap_bytes", "Bytes of the heap that are in use", [([], live as u64)])?;
            let help = "Most bytes of the heap that were in use since the last scrape";
            page.gauge("orfa_heap_peak_bytes", help, [([], peak as u64)])?;
        }
        page.gauge("process_open_fds", "File descriptors that are open", open().map(|count| ([], count)))?;
        let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        page.gauge("process_max_fds", "File descriptors that may be open", most.map(|count| ([], count)))
    }
}

/// The second number of `/proc/self/statm` (proc(5)), which counts pages.
fn resident() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

fn open() -> Option<u64> {
    // One of them is the folder's own.
    Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as u64)
}
