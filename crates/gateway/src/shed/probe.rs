//! How long the gateway's own queue is: the time that a task which is ready waits for a thread.
//!
//! The probe gives its place up and is run again once the thread has looked for new input and has been
//! through its queue: the very way of a request from its socket to its first line of code. While no
//! requests come, or nothing is to be shed, it sleeps.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use super::law::{Law, Seen};
use super::{Load, nanos};

/// From one probe to the next.
const EVERY: Duration = Duration::from_millis(2);
/// So many probes without any request, and the probe sleeps.
const IDLE: u32 = 50;

/// How long those wait that a thread's own queue had no place for: as long as it takes until so many have had their turn
/// (Little's law), requests and new connections. A thread looks at the common queue only now and then while it has tasks of
/// its own, the probe among them, so that the probe is none of those who wait there.
fn queued(passed: u64, since: Duration) -> Duration {
    let waiting = Handle::current().metrics().global_queue_depth();
    since.mul_f64(waiting as f64 / passed.max(1) as f64)
}

/// Probes until the load is nobody's any more.
pub(super) async fn watch(weak: Weak<Load>) {
    let mut law = Law::default();
    let (mut last, mut idle) = (Instant::now(), 0);
    let mut counted = (0, 0, 0);
    loop {
        tokio::time::sleep(EVERY).await;
        let Some(load) = weak.upgrade() else { return };
        let begun = Instant::now();
        load.waits.store(nanos(begun.saturating_duration_since(load.opened)), Relaxed);
        tokio::task::yield_now().await;
        let now = Instant::now();
        load.waits.store(0, Relaxed);
        let count = (load.taken.load(Relaxed), load.refused.load(Relaxed), load.connected.load(Relaxed));
        let (taken, refused) = (count.0.saturating_sub(counted.0), count.1.saturating_sub(counted.1));
        let connected = count.2.saturating_sub(counted.2);
        let since = now - last;
        let delay = (now - begun).max(queued(taken + refused + connected, since));
        load.waited.store(nanos(delay), Relaxed);
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
        (last, counted) = (now, count);
        idle = if taken + refused == 0 || !load.is_watched() { idle + 1 } else { 0 };
        if idle >= IDLE && rate.is_none() {
            let wake = Arc::clone(&load.wake);
            load.asleep.store(true, Relaxed);
            drop(load);
            wake.notified().await;
            let Some(load) = weak.upgrade() else { return };
            load.asleep.store(false, Relaxed);
            (last, idle) = (Instant::now(), 0);
        }
    }
}
