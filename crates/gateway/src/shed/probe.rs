//! The probe of the gateway's queueing delay: the time that a ready task waits for a thread.
//!
//! The probe yields and runs again once the thread has polled for new input and gone through its run queue,
//! which is the path of a request from its socket to its first line of code. Tasks for which that run queue
//! has no room wait in the global queue (`global_queue.rs`); the longer wait counts. Only the part of the
//! time in which the gateway itself ran counts (`own.rs`). The probe sleeps while there are no requests or
//! shedding is off.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use super::global_queue::GlobalQueue;
use super::law::AdmissionController;
use super::own::ClockReading;
use super::{MeasuredLoad, RequestCounts, nanos};

/// The interval between two probes.
const EVERY: Duration = Duration::from_millis(2);
/// The number of probes without any request after which the probe sleeps.
const IDLE: u32 = 50;

/// Probes until the load is dropped.
pub(super) async fn watch(weak: Weak<MeasuredLoad>) {
    let mut law = AdmissionController::default();
    if let Some(load) = weak.upgrade() {
        let threads = Handle::current().metrics().num_workers();
        load.threads.store(u32::try_from(threads).unwrap_or(u32::MAX), Relaxed);
    }
    let mut global_queue = GlobalQueue::new(Handle::current());
    let (mut last, mut idle) = (Instant::now(), 0);
    let mut counted = RequestCounts::default();
    loop {
        tokio::time::sleep(EVERY).await;
        let Some(load) = weak.upgrade() else { return };
        let begun = ClockReading::now();
        load.begin_wait(begun.wall, begun.cpu);
        tokio::task::yield_now().await;
        let now = ClockReading::now();
        load.waits.store(0, Relaxed);
        let count = load.counts();
        let new = count.since(counted);
        let threads = load.threads.load(Relaxed);
        let since = now.wall - last;
        let [passed, waiting] = global_queue.waits(now);
        let waits = [now.since(begun), passed, waiting];
        let waited = waits.iter().map(|wait| wait.wall).max().unwrap_or_default();
        let delay = waits.iter().map(|wait| wait.own(threads)).max().unwrap_or_default();
        load.waited.store(nanos(waited), Relaxed);
        load.own_wait.store(nanos(delay), Relaxed);
        let was = load.every.load(Relaxed) > 0;
        let rate = match load.target.load(Relaxed) {
            0 => None,
            target => law.learn(new.seen(delay, since), Duration::from_nanos(target)),
        };
        load.keep_to(rate);
        if was != rate.is_some() {
            tracing::warn!(shedding = rate.is_some(), "the gateway's load has changed");
        }
        (last, counted) = (now.wall, count);
        idle = if new.taken + new.refused == 0 || !load.is_watched() { idle + 1 } else { 0 };
        if idle >= IDLE && rate.is_none() {
            let wake = Arc::clone(&load.wake);
            load.asleep.store(true, Relaxed);
            drop(load);
            wake.notified().await;
            let Some(load) = weak.upgrade() else { return };
            load.asleep.store(false, Relaxed);
            (last, counted, idle) = (Instant::now(), load.counts(), 0);
        }
    }
}
