//! The probe of the gateway's queueing delay: the time that a ready task waits for a thread.
//!
//! The probe yields and runs again once the thread has polled for new input and gone through its run queue,
//! which is the path of a request from its socket to its first line of code. Tasks for which that run queue
//! has no room wait in the global queue (`global_queue.rs`); the longer wait counts. Only the part of the
//! time in which the gateway itself ran counts (`process_times.rs`). The probe sleeps while there are no
//! requests or shedding is off.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use super::admission_controller::AdmissionController;
use super::global_queue::GlobalQueue;
use super::process_times::ClockReading;
use super::{MeasuredLoad, RequestCounts, nanos};

/// The interval between two probes.
const PROBE_INTERVAL: Duration = Duration::from_millis(2);
/// The number of probes without any request after which the probe sleeps.
const IDLE_PROBES: u32 = 50;

/// Probes until the load is dropped.
pub(super) async fn run_probe(weak: Weak<MeasuredLoad>) {
    let mut law = AdmissionController::default();
    if let Some(load) = weak.upgrade() {
        let threads = Handle::current().metrics().num_workers();
        load.threads.store(u32::try_from(threads).unwrap_or(u32::MAX), Relaxed);
    }
    let mut global_queue = GlobalQueue::new(Handle::current());
    let (mut last, mut idle) = (Instant::now(), 0);
    let mut counted = RequestCounts::default();
    loop {
        tokio::time::sleep(PROBE_INTERVAL).await;
        let Some(load) = weak.upgrade() else { return };
        let begun = ClockReading::now();
        load.begin_wait(begun.wall, begun.cpu);
        tokio::task::yield_now().await;
        let now = ClockReading::now();
        load.probe_wait_start.store(0, Relaxed);
        let count = load.counts();
        let new = count.since(counted);
        let threads = load.threads.load(Relaxed);
        let since = now.wall - last;
        let [passed, waiting] = global_queue.measure_waits(now);
        let waits = [now.since(begun), passed, waiting];
        let waited = waits.iter().map(|wait| wait.wall).max().unwrap_or_default();
        let delay = waits.iter().map(|wait| wait.own_time(threads)).max().unwrap_or_default();
        load.last_wait.store(nanos(waited), Relaxed);
        load.last_own_wait.store(nanos(delay), Relaxed);
        let was = load.admission_interval.load(Relaxed) > 0;
        let rate = match load.target_delay.load(Relaxed) {
            0 => None,
            target => law.update(new.measurement(delay, since), Duration::from_nanos(target)),
        };
        load.set_rate(rate);
        if was != rate.is_some() {
            tracing::warn!(shedding = rate.is_some(), "the gateway's load has changed");
        }
        (last, counted) = (now.wall, count);
        idle = if new.admitted + new.refused == 0 || !load.is_enabled() { idle + 1 } else { 0 };
        if idle >= IDLE_PROBES && rate.is_none() {
            let wake = Arc::clone(&load.probe_wake);
            load.is_probe_asleep.store(true, Relaxed);
            drop(load);
            wake.notified().await;
            let Some(load) = weak.upgrade() else { return };
            load.is_probe_asleep.store(false, Relaxed);
            (last, counted, idle) = (Instant::now(), load.counts(), 0);
        }
    }
}
