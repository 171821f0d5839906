//! How long the gateway's own queue is: the time that a task which is ready waits for a thread.
//!
//! The probe gives its place up and is run again once the thread has looked for new input and has been
//! through its queue: the very way of a request from its socket to its first line of code. Of that time counts in which the
//! gateway itself was at work (`own.rs`). While no requests come, or nothing is to be shed, it sleeps.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use super::law::{Law, Seen};
use super::own::{Elapsed, cpu_time};
use super::{Load, nanos};

/// From one probe to the next.
const EVERY: Duration = Duration::from_millis(2);
/// So many probes without any request, and the probe sleeps.
const IDLE: u32 = 50;

/// How long those wait that a thread's own queue had no place for: as long as it takes until so many have had their turn
/// (Little's law), requests and connections that come or go. A thread looks at the common queue only now and then while it has tasks of
/// its own, the probe among them, so that the probe is none of those who wait there.
fn queued(passed: u64, since: Duration) -> Duration {
    let waiting = Handle::current().metrics().global_queue_depth();
    since.mul_f64(waiting as f64 / passed.max(1) as f64)
}

/// Probes until the load is nobody's any more.
pub(super) async fn watch(weak: Weak<Load>) {
    let mut law = Law::default();
    if let Some(load) = weak.upgrade() {
        let threads = Handle::current().metrics().num_workers();
        load.threads.store(u32::try_from(threads).unwrap_or(u32::MAX), Relaxed);
    }
    let (mut last, mut idle) = ((Instant::now(), cpu_time()), 0);
    let mut counted = (0, 0, 0);
    loop {
        tokio::time::sleep(EVERY).await;
        let Some(load) = weak.upgrade() else { return };
        let (begun, cpu) = (Instant::now(), cpu_time());
        load.begin_wait(begun, cpu);
        tokio::task::yield_now().await;
        let (now, used) = (Instant::now(), cpu_time());
        load.waits.store(0, Relaxed);
        let count = (load.taken.load(Relaxed), load.refused.load(Relaxed), load.turns.load(Relaxed));
        let (taken, refused) = (count.0.saturating_sub(counted.0), count.1.saturating_sub(counted.1));
        let passed = taken + refused + count.2.saturating_sub(counted.2);
        let threads = load.threads.load(Relaxed);
        let waited = Elapsed { wall: now - begun, cpu: used.saturating_sub(cpu) };
        let between = Elapsed { wall: now - last.0, cpu: used.saturating_sub(last.1) };
        let since = between.wall;
        load.waited.store(nanos(waited.wall.max(queued(passed, since))), Relaxed);
        let delay = waited.own(threads).max(queued(passed, between.own(threads)));
        load.own_wait.store(nanos(delay), Relaxed);
        let seen = Seen { delay, since, taken, refused };
        let was = load.every.load(Relaxed) > 0;
        let rate = match load.target.load(Relaxed) {
            0 => None,
            target => law.learn(seen, Duration::from_nanos(target)),
        };
        load.keep_to(rate);
        if was != rate.is_some() {
            tracing::warn!(shedding = rate.is_some(), "the gateway's load has changed");
        }
        (last, counted) = ((now, used), count);
        idle = if taken + refused == 0 || !load.is_watched() { idle + 1 } else { 0 };
        if idle >= IDLE && rate.is_none() {
            let wake = Arc::clone(&load.wake);
            load.asleep.store(true, Relaxed);
            drop(load);
            wake.notified().await;
            let Some(load) = weak.upgrade() else { return };
            load.asleep.store(false, Relaxed);
            (last, idle) = ((Instant::now(), cpu_time()), 0);
        }
    }
}
