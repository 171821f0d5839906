//! How long the gateway's own queue is: the time that a task which is ready waits for a thread.
//!
//! The probe gives its place up and is run again once the thread has looked for new input and has been
//! through its queue: the very way of a request from its socket to its first line of code. While no
//! requests come, it sleeps.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::law::{Law, Seen};
use super::{Load, nanos};

/// From one probe to the next.
const EVERY: Duration = Duration::from_millis(2);
/// So many probes without any request, and the probe sleeps.
const IDLE: u32 = 50;

/// Probes until the load is nobody's any more.
pub(super) async fn watch(weak: Weak<Load>) {
    let mut law = Law::default();
    let (mut last, mut idle) = (Instant::now(), 0);
    let mut counted = (0, 0);
    loop {
        tokio::time::sleep(EVERY).await;
        let Some(load) = weak.upgrade() else { return };
        let begun = Instant::now();
        load.waits.store(nanos(begun.saturating_duration_since(load.opened)), Relaxed);
        tokio::task::yield_now().await;
        let now = Instant::now();
        load.waits.store(0, Relaxed);
        let count = (load.taken.load(Relaxed), load.refused.load(Relaxed));
        let (taken, refused) = (count.0 - counted.0, count.1 - counted.1);
        let seen = Seen { delay: now - begun, since: now - last, taken, refused };
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
        idle = if taken + refused == 0 { idle + 1 } else { 0 };
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
