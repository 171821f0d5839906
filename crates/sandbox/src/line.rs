//! The run queue of guests: guests wait for a thread, and are rejected at once if the queue is too long.
//!
//! A guest that waits in the runtime's own queue is not visible: the runtime notices its arrival only after
//! the guests before it have run for their millisecond. So only as many guests as there are threads have a
//! run permit, the others wait here in rounds with one guest per client, and a guest that gets its permit
//! lets its thread poll for new input first. The length of the queue is thus known when the next guest
//! arrives. Times the average time that a guest holds its permit, it is the wait of that guest (Little's
//! law).
//!
//! The maximum length follows the idea of CoDel (RFC 8289, section 4): a burst passes, so the queue may
//! exceed the target for a while; but a queue that was never below the target for an [`INTERVAL`] is an
//! overload, and waiting in it helps no guest. It is then kept short until no more guests arrive than can be
//! served.
//!
//! If other processes use the cores, guests wait even in a short queue, and rejecting one does not help the
//! others. Therefore only the share of a wait in which this process ran counts ([`OwnShare`]).
//!
//! If guests are very short there is no queue: new input is polled soon enough, and yielding would cost more
//! than running.
//!
//! A guest releases its permit when it waits for a service, and when it becomes heavy (see
//! [`crate::HeavyGate`]): guests that have started and are ready again take precedence over new ones.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use offload::{FairPermit, FairSemaphore, QuotaKey};
use rustix::time::{ClockId, clock_gettime};

use crate::meter::HEAVY;

/// The maximum time that the queue may stay above the target.
const INTERVAL: Duration = Duration::from_millis(100);
/// The factor by which the queue may exceed the target in a burst.
const BURST: u32 = 2;
/// The divisor of the target for the queue's length during an overload.
const PART: u32 = 50;
/// The time for which arrivals are counted before an overload can end, and the share of the capacity below
/// which it ends.
const WATCH: Duration = Duration::from_secs(1);
const SERVED: f64 = 0.9;
/// The interval between samples of this process's share of the processors while guests wait; the age from
/// which on a sample is useless; and the minimum share.
const SAMPLE: Duration = Duration::from_millis(20);
const STALE: Duration = Duration::from_millis(200);
const LEAST_SHARE: f64 = 0.02;
/// Guests that run for less do not yield before they start.
const LITTLE: Duration = Duration::from_micros(100);
/// The inverse weight of a guest in the moving averages.
const WEIGHT: u64 = 16;

/// The run queue. All clones share it.
#[derive(Clone, Debug)]
pub struct RunQueue(Arc<RunQueueShared>);

/// Aligned to avoid false sharing: each guest writes to it.
#[derive(Debug)]
#[repr(align(128))]
struct RunQueueShared {
    places: FairSemaphore,
    width: u32,
    opened: Instant,
    waiting: AtomicUsize,
    /// The average time that a guest holds its permit, and the average time that it runs, in nanoseconds.
    takes: AtomicU64,
    runs: AtomicU64,
    /// The time when a guest last released its permit, in nanoseconds since the queue was created.
    left: AtomicU64,
    /// The target for the wait in nanoseconds, or `u64::MAX`.
    target: AtomicU64,
    law: Mutex<CodelController>,
}

/// A run permit, held until it is dropped.
#[derive(Debug)]
pub struct RunPermit {
    line: RunQueue,
    /// The time when the permit was acquired, since the queue was created.
    since: Duration,
    /// The time when the guest started to run.
    begun: Duration,
    _permit: FairPermit,
}

/// Error: the queue is so long that a new guest would wait for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// The admission controller. It has no clock of its own: times are relative to the queue's creation.
#[derive(Debug, Default)]
struct CodelController {
    /// The time when the wait was last at or below the target.
    short: Duration,
    /// The state of an overload, during which the queue is kept short.
    held: Option<OverloadWindow>,
    share: OwnShare,
}

/// The recent share of its threads' time in which this process ran.
#[derive(Debug)]
struct OwnShare {
    part: f64,
    /// The time of the last sample, and the process's CPU time at that point.
    sampled: Option<(Duration, Duration)>,
}

/// Counts arrivals during an overload, since a point in time.
#[derive(Debug)]
struct OverloadWindow {
    since: Duration,
    came: u32,
}

/// The observable state of the queue.
#[derive(Clone, Copy, Debug)]
struct QueueSnapshot {
    now: Duration,
    /// The time of the last release of a permit, and the average time between two releases.
    left: Duration,
    turn: Duration,
    waiting: u32,
    width: u32,
}

/// Counts a waiting guest until it is dropped.
struct WaitingGuest<'a>(&'a AtomicUsize);

impl RunQueue {
    /// Creates a queue for this number of threads.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        let width = u32::try_from(threads).unwrap_or(u32::MAX).max(1);
        Self(Arc::new(RunQueueShared {
            places: FairSemaphore::new(threads.max(1)),
            width,
            opened: Instant::now(),
            waiting: AtomicUsize::new(0),
            takes: AtomicU64::new(0),
            runs: AtomicU64::new(0),
            left: AtomicU64::new(0),
            target: AtomicU64::new(u64::MAX),
            law: Mutex::default(),
        }))
    }

    /// Sets the target for waits, which bursts may exceed. `None` means no limit.
    pub fn keep_to(&self, target: Option<Duration>) {
        self.0.target.store(target.map_or(u64::MAX, nanos), Relaxed);
    }

    /// Whether another guest may arrive. A rejection counts as an arrival.
    #[must_use]
    pub fn has_room(&self, now: Instant) -> bool {
        self.0.has_room(now.saturating_duration_since(self.0.opened))
    }

    /// Waits for a permit for a guest of this client, and then for the thread to poll for new input.
    ///
    /// # Errors
    /// If the queue is too long.
    pub async fn stand(&self, client: QuotaKey) -> Result<RunPermit, TooLong> {
        let (line, now) = (&*self.0, self.0.opened.elapsed());
        let permit = line.places.try_acquire(client);
        if permit.is_none() && !line.has_room(now) {
            return Err(TooLong);
        }
        line.law().stand(&line.seen(now), permit.is_some());
        let (permit, since) = match permit {
            Some(permit) => (permit, now),
            None => {
                let _waits = WaitingGuest::one(&line.waiting);
                let permit = line.places.acquire(client).await.ok_or(TooLong)?;
                (permit, line.opened.elapsed())
            }
        };
        let mut place = RunPermit { line: self.clone(), since, begun: since, _permit: permit };
        if line.runs.load(Relaxed) > nanos(LITTLE) {
            tokio::task::yield_now().await;
            place.begun = line.opened.elapsed();
        }
        Ok(place)
    }
}

impl RunQueueShared {
    fn has_room(&self, now: Duration) -> bool {
        let target = self.target.load(Relaxed);
        if self.places.available_permits() > 0 || target == u64::MAX {
            return true;
        }
        let (seen, mut law) = (self.seen(now), self.law());
        law.share.learn(now, cpu_time, seen.width);
        let has_room = law.has_room(&seen, Duration::from_nanos(target));
        if !has_room {
            law.come(&seen);
        }
        has_room
    }

    fn seen(&self, now: Duration) -> QueueSnapshot {
        QueueSnapshot {
            now,
            left: Duration::from_nanos(self.left.load(Relaxed)),
            turn: Duration::from_nanos(self.takes.load(Relaxed)) / self.width,
            waiting: u32::try_from(self.waiting.load(Relaxed)).unwrap_or(u32::MAX),
            width: self.width,
        }
    }

    /// Code that holds this lock can't panic. If it did, the state would still be a usable estimate.
    fn law(&self) -> MutexGuard<'_, CodelController> {
        self.law.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CodelController {
    /// Records a guest that enters the queue, or finds it empty.
    fn stand(&mut self, seen: &QueueSnapshot, is_empty: bool) {
        if is_empty {
            self.short = seen.now;
        }
        self.come(seen);
    }

    /// Records an arrival, including rejected ones.
    fn come(&mut self, seen: &QueueSnapshot) {
        let Some(held) = &mut self.held else { return };
        held.came += 1;
        let watched = seen.now.saturating_sub(held.since);
        if watched < WATCH {
            return;
        }
        let is_overload = seen.turn * held.came > watched.mul_f64(SERVED);
        self.held = is_overload.then_some(OverloadWindow { since: seen.now, came: 0 });
        self.short = seen.now;
    }

    /// Whether another guest may wait.
    fn has_room(&mut self, seen: &QueueSnapshot, target: Duration) -> bool {
        let wait = seen.until_next() + seen.turn.saturating_mul(seen.waiting);
        let (wait, turn) = (wait.mul_f64(self.share.part), seen.turn.mul_f64(self.share.part));
        if wait <= target {
            self.short = seen.now;
        }
        if self.held.is_none() && seen.now.saturating_sub(self.short) > INTERVAL {
            self.held = Some(OverloadWindow { since: seen.now, came: 0 });
        }
        if self.held.is_some() {
            // One guest may always wait, or a thread would be idle until the next arrival.
            wait <= (target / PART).max(turn / 2)
        } else {
            seen.waiting < seen.width || wait <= target * BURST
        }
    }
}

impl Default for OwnShare {
    fn default() -> Self {
        Self { part: 1.0, sampled: None }
    }
}

impl OwnShare {
    /// Takes a sample if the last one is old enough. Reads the clock only then, since that is a system call.
    fn learn(&mut self, now: Duration, cpu_time: impl FnOnce() -> Duration, threads: u32) {
        let since = self.sampled.map(|(at, cpu)| (now.saturating_sub(at), cpu));
        if since.is_some_and(|(passed, _)| passed < SAMPLE) {
            return;
        }
        let cpu = cpu_time();
        self.part = match since {
            Some((passed, before)) if passed < STALE => {
                let all = passed.as_secs_f64() * f64::from(threads);
                (cpu.saturating_sub(before).as_secs_f64() / all).clamp(LEAST_SHARE, 1.0)
            }
            // While threads were idle, their speed is unknown: accept all guests until there is a sample.
            _ => 0.0,
        };
        self.sampled = Some((now, cpu));
    }
}

/// Returns the CPU time of all threads of the process.
fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}

impl QueueSnapshot {
    /// Returns the expected time until a permit is released.
    fn until_next(&self) -> Duration {
        (self.left + self.turn).saturating_sub(self.now)
    }
}

impl<'a> WaitingGuest<'a> {
    fn one(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Relaxed);
        Self(waiting)
    }
}

impl Drop for WaitingGuest<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl RunPermit {
    /// Whether the guest has held the permit for so long that others should not have to wait for it.
    #[must_use]
    pub fn is_heavy(&self) -> bool {
        self.line.0.opened.elapsed().saturating_sub(self.since) > HEAVY
    }
}

impl Drop for RunPermit {
    fn drop(&mut self) {
        let line = &*self.line.0;
        let now = line.opened.elapsed();
        average(&line.takes, now.saturating_sub(self.since));
        average(&line.runs, now.saturating_sub(self.begun));
        line.left.store(nanos(now), Relaxed);
    }
}

/// Adds a value to a moving average. Concurrent updates may be lost. A value is capped at the weight of all
/// earlier ones together, since a shared machine may have delayed the guest; if guests really take longer,
/// further values show it.
fn average(nanoseconds: &AtomicU64, one: Duration) {
    let before = nanoseconds.load(Relaxed);
    let most = if before == 0 { u64::MAX } else { before.saturating_mul(WEIGHT) };
    nanoseconds.store(before - before / WEIGHT + nanos(one).min(most) / WEIGHT, Relaxed);
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
