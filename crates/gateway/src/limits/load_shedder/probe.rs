//! The probe of the gateway's queueing delay: the time that a ready task waits for a thread.
//!
//! The probe yields and runs again once the thread has polled for new input and gone through its run queue,
//! which is the path of a request from its socket to its first line of code. Tasks for which that run queue
//! has no room wait in the global queue (`global_queue.rs`); the longer wait counts. Only the part of the
//! time in which the gateway itself ran counts ([`ProcessTimes`]). The probe sleeps while there are no
//! requests or shedding is off.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use admission::{ClockReading, ProcessTimes};
use tokio::runtime::Handle;

use super::admission_controller::AdmissionController;
use super::global_queue::GlobalQueue;
use super::{MeasuredLoad, RequestCounts, nanos};

/// The interval between two probes.
pub(super) const PROBE_INTERVAL: Duration = Duration::from_millis(2);
/// The number of probes without any request after which the probe sleeps.
const IDLE_PROBES: u32 = 50;

/// Sets the rate from the probe's measurements.
#[derive(Debug)]
pub(super) struct RateSetter {
    law: AdmissionController,
    /// The time of the last measurement, and the numbers of requests at that time.
    last: Instant,
    counted: RequestCounts,
}

impl RateSetter {
    pub(super) fn new(now: Instant) -> Self {
        Self { law: AdmissionController::default(), last: now, counted: RequestCounts::default() }
    }

    /// Begins to measure at another time: earlier requests do not count.
    fn restart(&mut self, now: Instant, load: &MeasuredLoad) {
        (self.last, self.counted) = (now, load.counts());
    }

    /// Processes the longest of the measured waits. Returns the numbers of requests since the last
    /// measurement.
    pub(super) fn end_wait(
        &mut self,
        load: &MeasuredLoad,
        now: Instant,
        timeses: &[ProcessTimes],
    ) -> RequestCounts {
        let threads = load.threads.load(Relaxed);
        let waited = timeses.iter().map(|wait| wait.wall).max().unwrap_or_default();
        let delay = timeses.iter().map(|wait| wait.own_time(threads)).max().unwrap_or_default();
        load.last_wait.store(nanos(waited), Relaxed);
        load.last_own_wait.store(nanos(delay), Relaxed);
        let count = load.counts();
        let new = count.since(self.counted);
        let rate = match load.target_delay.load(Relaxed) {
            0 => None,
            target => self.law.update(new.measurement(delay, now - self.last), Duration::from_nanos(target)),
        };
        load.set_rate(rate);
        (self.last, self.counted) = (now, count);
        new
    }
}

/// Probes until the load is dropped.
pub(super) async fn run_probe(weak: Weak<MeasuredLoad>) {
    if let Some(load) = weak.upgrade() {
        let threads = Handle::current().metrics().num_workers();
        load.threads.store(u32::try_from(threads).unwrap_or(u32::MAX), Relaxed);
    }
    let mut global_queue = GlobalQueue::new(Handle::current());
    let (mut setter, mut idle) = (RateSetter::new(Instant::now()), 0);
    loop {
        tokio::time::sleep(PROBE_INTERVAL).await;
        let Some(load) = weak.upgrade() else { return };
        let reading = ClockReading::now();
        load.begin_wait(reading.wall, reading.cpu);
        tokio::task::yield_now().await;
        let now = ClockReading::now();
        load.probe_wait_start.store(0, Relaxed);
        let was = load.is_shedding();
        let [passed, waiting] = global_queue.measure_waits(now);
        let new = setter.end_wait(&load, now.wall, &[now.since(reading), passed, waiting]);
        let sheds = load.is_shedding();
        if was != sheds {
            tracing::warn!(shedding = sheds, "the gateway's load has changed");
        }
        idle = if new.admitted + new.refused == 0 || !load.is_enabled() { idle + 1 } else { 0 };
        if idle >= IDLE_PROBES && !sheds {
            let wake = Arc::clone(&load.probe_wake);
            load.is_probe_asleep.store(true, Relaxed);
            drop(load);
            wake.notified().await;
            let Some(load) = weak.upgrade() else { return };
            load.is_probe_asleep.store(false, Relaxed);
            setter.restart(Instant::now(), &load);
            idle = 0;
        }
    }
}
