//! Tests of the controller on a simulated machine with one thread, and of the queue itself.

use std::collections::VecDeque;

use futures_util::FutureExt;

use super::*;

const TARGET: Duration = Duration::from_millis(50);

/// The outcome of a simulated minute. Waits are in milliseconds.
#[derive(Debug, Default)]
struct SimulatedQueueMinute {
    rejected: usize,
    waits: Vec<f64>,
}

impl SimulatedQueueMinute {
    fn percentile(&mut self, part: f64) -> f64 {
        self.waits.sort_by(f64::total_cmp);
        let index = (self.waits.len() as f64 * part) as usize;
        self.waits.get(index).or(self.waits.last()).copied().unwrap_or(0.0)
    }
}

/// Simulates a minute in which guests arrive evenly in groups of four; each takes `cost` seconds.
fn simulate_minute(law: &mut CodelController, from: f64, per_second: f64, cost: f64) -> SimulatedQueueMinute {
    let (mut minute, mut line, mut free) = (SimulatedQueueMinute::default(), VecDeque::new(), from);
    for index in 0.. {
        let now = from + f64::from(index / 4) * 4.0 / per_second;
        if now > from + 60.0 {
            return minute;
        }
        while let Some(came) = line.front().copied()
            && free <= now
        {
            let begins = f64::max(free, came);
            minute.waits.push((begins - came) * 1e3);
            free = begins + cost;
            line.pop_front();
        }
        let left = f64::max(free - cost, 0.0);
        let snapshot = QueueSnapshot {
            last_release: Duration::from_secs_f64(left),
            ..queue_snapshot(now, cost, line.len())
        };
        if free <= now {
            law.record_entry(&snapshot, true);
            minute.waits.push(0.0);
            free = now + cost;
        } else if law.can_admit(&snapshot, TARGET) {
            law.record_entry(&snapshot, false);
            line.push_back(now);
        } else {
            law.record_arrival(&snapshot);
            minute.rejected += 1;
        }
    }
    minute
}

/// The state of a queue before one thread.
fn queue_snapshot(now: f64, turn: f64, waiting: usize) -> QueueSnapshot {
    let (now, turn) = (Duration::from_secs_f64(now), Duration::from_secs_f64(turn));
    QueueSnapshot { now, last_release: now, release_interval: turn, waiting: waiting as u32, threads: 1 }
}

#[test]
fn waits_stay_short_at_four_times_the_capacity() {
    for cost in [0.0001, 0.001, 0.02] {
        let mut minute = simulate_minute(&mut CodelController::default(), 0.0, 4.0 / cost, cost);
        let used = minute.waits.len() as f64 * cost / 60.0;
        assert!(
            minute.percentile(0.99) <= f64::max(500.0 * cost, 1.0) + 1e-6,
            "{cost}: {:?}",
            minute.percentile(0.99)
        );
        assert!(
            minute.percentile(1.0) <= 101.0 + 1000.0 * cost + 1e-6,
            "{cost}: {:?}",
            minute.percentile(1.0)
        );
        assert!(used > 0.6, "{cost}: {used}");
    }
}

#[test]
fn never_rejects_below_capacity() {
    for part in [0.1, 0.5, 0.9] {
        let mut minute = simulate_minute(&mut CodelController::default(), 0.0, part * 1000.0, 0.001);
        assert_eq!(minute.rejected, 0, "at {part}");
        assert!(minute.percentile(1.0) < 5.0);
    }
}

#[test]
fn recovers_soon_after_an_overload() {
    let mut law = CodelController::default();
    assert!(simulate_minute(&mut law, 0.0, 4000.0, 0.001).rejected > 0);
    let after = simulate_minute(&mut law, 60.0, 800.0, 0.001);
    assert!(after.rejected < 800, "{}", after.rejected);
    assert_eq!(simulate_minute(&mut law, 120.0, 800.0, 0.001).rejected, 0);
}

#[test]
fn accepts_a_burst() {
    let mut law = CodelController::default();
    for burst in 0..100 {
        let begins = f64::from(burst) * 0.1;
        law.record_entry(&queue_snapshot(begins, 0.001, 0), true);
        for waiting in (0..90).rev() {
            let now = begins + 0.001 * f64::from(90 - waiting);
            assert!(law.can_admit(&queue_snapshot(now, 0.001, waiting as usize), TARGET));
        }
    }
}

#[test]
fn a_short_persistent_queue_is_not_an_overload() {
    let mut law = CodelController::default();
    for millisecond in 0..10_000 {
        assert!(law.can_admit(&queue_snapshot(f64::from(millisecond) / 1e3, 0.001, 40), TARGET));
    }
}

/// Simulates a minute on a machine whose other processes leave a thread this part of the time; a guest takes
/// a millisecond of CPU time. Returns the number of rejected guests at this rate per second.
fn simulate_competing_processes(part: f64, per_second: f64) -> usize {
    let (mut law, mut line, mut free, mut refused) =
        (CodelController::default(), VecDeque::new(), 0.0_f64, 0);
    let (mut used, cost) = (0.0, 0.001);
    for index in 0..(per_second * 60.0) as usize {
        let now = (index / 8) as f64 * 8.0 / per_second;
        while line.front().is_some() && free <= now {
            line.pop_front();
            free += cost / part;
            used += cost;
        }
        if free <= now {
            law.record_entry(&queue_snapshot(now, cost / part, 0), true);
            free = now + cost / part;
            used += cost;
            continue;
        }
        // Part of the running guest's time has been used already.
        let cpu = used - (free - now) * part;
        let snapshot = QueueSnapshot {
            last_release: Duration::from_secs_f64((free - cost / part).max(0.0)),
            ..queue_snapshot(now, cost / part, line.len())
        };
        law.own_share.update_sample(snapshot.now, || Duration::from_secs_f64(cpu.max(0.0)), 1);
        if law.can_admit(&snapshot, TARGET) {
            law.record_entry(&snapshot, false);
            line.push_back(now);
        } else {
            law.record_arrival(&snapshot);
            refused += 1;
        }
    }
    refused
}

#[test]
fn does_not_reject_because_of_other_processes() {
    for part in [0.05, 0.2, 0.34] {
        assert_eq!(simulate_competing_processes(part, 0.75 * part * 1000.0), 0, "{part}");
    }
}

#[test]
fn rejects_an_overload_beside_other_processes() {
    assert!(simulate_competing_processes(0.34, 4.0 * 340.0) > 30_000);
}

#[test]
fn counts_waits_by_the_share_of_the_process() {
    let law = |part| CodelController { own_share: OwnShare::fixed(part), ..CodelController::default() };
    // Sixty guests wait, for two milliseconds each, on a machine that is busy with other processes.
    let long = queue_snapshot(1.0, 0.002, 60);
    let held = |part| CodelController {
        overload: Some(OverloadWindow { started: Duration::ZERO, arrivals: 0 }),
        ..law(part)
    };
    assert!(!law(1.0).can_admit(&long, TARGET) && law(0.4).can_admit(&long, TARGET));
    assert!(!held(1.0).can_admit(&long, TARGET) && !held(0.4).can_admit(&long, TARGET));
}

fn client_key() -> QuotaKey {
    QuotaKey::new(&"client")
}

#[tokio::test]
async fn runs_guests_of_clients_in_rounds() {
    let line = RunQueue::new(1);
    let first = line.acquire(client_key()).await.unwrap();
    let mut own: Vec<_> = (0..3).map(|_| Box::pin(line.acquire(client_key()))).collect();
    assert!(own.iter_mut().all(|guest| guest.now_or_never().is_none()));
    let mut other = Box::pin(line.acquire(QuotaKey::new(&"other")));
    assert!((&mut other).now_or_never().is_none());
    drop(first);
    drop(own.remove(0).await.unwrap());
    assert!(own.iter_mut().all(|guest| guest.now_or_never().is_none()));
    drop(other.await.unwrap());
}

#[tokio::test]
async fn runs_guests_in_order_of_arrival() {
    let line = RunQueue::new(1);
    let first = line.acquire(client_key()).await.unwrap();
    let (mut second, mut third) =
        (Box::pin(line.acquire(client_key())), Box::pin(line.acquire(client_key())));
    assert!((&mut second).now_or_never().is_none());
    assert!((&mut third).now_or_never().is_none());
    assert_eq!(line.0.waiting.load(Relaxed), 2);
    drop(first);
    assert!((&mut third).now_or_never().is_none());
    drop(second.await.unwrap());
    drop(third.await.unwrap());
    assert_eq!(line.0.waiting.load(Relaxed), 0);
}

#[tokio::test]
async fn a_cancelled_guest_leaves_the_queue() {
    let line = RunQueue::new(1);
    let _first = line.acquire(client_key()).await.unwrap();
    let mut second = Box::pin(line.acquire(client_key()));
    assert!((&mut second).now_or_never().is_none());
    drop(second);
    assert_eq!(line.0.waiting.load(Relaxed), 0);
}

/// Simulates a machine without competing processes.
fn assume_full_share(line: &RunQueue) {
    line.0.lock_controller().own_share = OwnShare::fixed(1.0);
}

#[tokio::test]
async fn rejects_at_once_if_the_queue_is_too_long() {
    let line = RunQueue::new(1);
    assume_full_share(&line);
    line.set_target(Some(TARGET));
    line.0.average_hold.store(nanos(2 * TARGET), Relaxed);
    let _first = line.acquire(client_key()).await.unwrap();
    let mut second = Box::pin(line.acquire(client_key()));
    assert!((&mut second).now_or_never().is_none());
    assert!(!line.has_capacity(Instant::now()));
    assert_eq!(line.acquire(client_key()).await.unwrap_err(), RunQueueFull);
    line.set_target(None);
    assert!(line.has_capacity(Instant::now()));
}

#[tokio::test]
async fn a_delayed_guest_does_not_affect_the_estimated_wait() {
    let mut line = RunQueue::new(1);
    Arc::get_mut(&mut line.0).unwrap().created -= 2 * TARGET;
    assume_full_share(&line);
    line.set_target(Some(TARGET));
    line.0.average_hold.store(nanos(Duration::from_micros(200)), Relaxed);
    let mut first = line.acquire(client_key()).await.unwrap();
    first.acquired = Duration::ZERO;
    drop(first);
    let _second = line.acquire(client_key()).await.unwrap();
    let waiting: Vec<_> = (0..31).map(|_| QueueEntry::new(line.clone(), true)).collect();
    assert!(line.has_capacity(Instant::now()));
    for _ in 0..10 {
        update_average(&line.0.average_hold, 2 * TARGET);
    }
    assert!(!line.has_capacity(Instant::now()), "repeated long runs raise the average");
    drop(waiting);
}
