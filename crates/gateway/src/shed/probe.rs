//! The probe of the gateway's queueing delay: the time that a ready task waits for a thread.
//!
//! The probe yields and runs again once the thread has polled for new input and gone through its run queue,
//! which is the path of a request from its socket to its first line of code. Only the part of the time in
//! which the gateway itself ran counts (`own.rs`). The probe sleeps while there are no requests or shedding
//! is off.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use super::law::Law;
use super::own::{Elapsed, cpu_time};
use super::{Counts, Load, nanos};

/// The interval between two probes.
const EVERY: Duration = Duration::from_millis(2);
/// The number of probes without any request after which the probe sleeps.
const IDLE: u32 = 50;

/// Estimates the wait in the runtime's global queue: depth over throughput (Little's law). The throughput
/// includes requests and connections that open or close. A thread with tasks of its own rarely polls the
/// global queue, and the probe is a local task, so the probe does not measure this wait itself.
fn queued(passed: u64, since: Duration) -> Duration {
    let waiting = Handle::current().metrics().global_queue_depth();
    since.mul_f64(waiting as f64 / passed.max(1) as f64)
}

/// Probes until the load is dropped.
pub(super) async fn watch(weak: Weak<Load>) {
    let mut law = Law::default();
    if let Some(load) = weak.upgrade() {
        let threads = Handle::current().metrics().num_workers();
        load.threads.store(u32::try_from(threads).unwrap_or(u32::MAX), Relaxed);
    }
    let (mut last, mut idle) = ((Instant::now(), cpu_time()), 0);
    let mut counted = Counts::default();
    loop {
        tokio::time::sleep(EVERY).await;
        let Some(load) = weak.upgrade() else { return };
        let (begun, cpu) = (Instant::now(), cpu_time());
        load.begin_wait(begun, cpu);
        tokio::task::yield_now().await;
        let (now, used) = (Instant::now(), cpu_time());
        load.waits.store(0, Relaxed);
        let count = load.counts();
        let new = count.since(counted);
        let passed = new.taken + new.refused + new.turns;
        let threads = load.threads.load(Relaxed);
        let waited = Elapsed { wall: now - begun, cpu: used.saturating_sub(cpu) };
        let between = Elapsed { wall: now - last.0, cpu: used.saturating_sub(last.1) };
        let since = between.wall;
        load.waited.store(nanos(waited.wall.max(queued(passed, since))), Relaxed);
        let delay = waited.own(threads).max(queued(passed, between.own(threads)));
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
        (last, counted) = ((now, used), count);
        idle = if new.taken + new.refused == 0 || !load.is_watched() { idle + 1 } else { 0 };
        if idle >= IDLE && rate.is_none() {
            let wake = Arc::clone(&load.wake);
            load.asleep.store(true, Relaxed);
            drop(load);
            wake.notified().await;
            let Some(load) = weak.upgrade() else { return };
            load.asleep.store(false, Relaxed);
            (last, counted, idle) = ((Instant::now(), cpu_time()), load.counts(), 0);
        }
    }
}
