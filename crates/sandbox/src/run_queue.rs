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
//! exceed the target for a while; but a queue that was never below the target for a [`CODEL_INTERVAL`] is an
//! overload, and waiting in it helps no guest. It is then kept short until no more guests arrive than can be
//! served.
//!
//! If other processes use the cores, guests wait even in a short queue, and rejecting one does not help the
//! others. Therefore only the share of a wait in which this process ran counts ([`OwnShare`]).
//!
//! The queue is an implementation of [`Admission`]: a guest gets a ticket at once, or is rejected.
//!
//! If guests are very short there is no queue: new input is polled soon enough, and yielding would cost more
//! than running.
//!
//! A guest releases its permit when it waits for a service, and when it becomes heavy (see
//! [`crate::HeavyGate`]): guests that have started and are ready again take precedence over new ones.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use admission::{Admission, OwnShare, StandingQueue, process_cpu_time};
use offload::{FairPermit, FairSemaphore, QuotaKey};

use crate::meter::HEAVY_THRESHOLD;

/// The maximum time that the queue may stay above the target.
const CODEL_INTERVAL: Duration = Duration::from_millis(100);
/// The factor by which the queue may exceed the target in a burst.
const BURST_FACTOR: u32 = 2;
/// The divisor of the target for the queue's length during an overload.
const OVERLOAD_DIVISOR: u32 = 50;
/// The time for which arrivals are counted before an overload can end, and the share of the capacity below
/// which it ends.
const OVERLOAD_WATCH_TIME: Duration = Duration::from_secs(1);
const RECOVERY_LOAD: f64 = 0.9;
/// Guests that run for less do not yield before they start.
const MIN_RUN_TO_YIELD: Duration = Duration::from_micros(100);
/// The inverse weight of a guest in the moving averages.
const AVERAGE_WEIGHT: u64 = 16;

/// The run queue. All clones share it.
#[derive(Clone, Debug)]
pub struct RunQueue(Arc<RunQueueShared>);

/// Aligned to avoid false sharing: each guest writes to it.
#[derive(Debug)]
#[repr(align(128))]
struct RunQueueShared {
    permits: FairSemaphore,
    threads: u32,
    created: Instant,
    waiting: AtomicUsize,
    /// The average time that a guest holds its permit, and the average time that it runs, in nanoseconds.
    average_hold: AtomicU64,
    average_run: AtomicU64,
    /// The time when a guest last released its permit, in nanoseconds since the queue was created.
    last_release: AtomicU64,
    /// The target for the wait in nanoseconds, or `u64::MAX`.
    target: AtomicU64,
    controller: Mutex<CodelController>,
    /// Returns the CPU time of the process. Replaced in tests.
    cpu_time: fn() -> Duration,
}

/// An admitted guest. It is counted until the ticket is dropped; its turn begins with [`RunTicket::wait`].
#[derive(Debug)]
#[must_use]
pub struct RunTicket(TicketState);

#[derive(Debug)]
enum TicketState {
    /// A permit was free.
    Admitted(RunPermit),
    /// The guest has to wait for a permit.
    Waiting(QueueEntry, QuotaKey),
}

/// A run permit, held until it is dropped.
#[derive(Debug)]
pub struct RunPermit {
    entry: QueueEntry,
    /// The time when the permit was acquired, since the queue was created.
    acquired: Duration,
    /// The time when the guest started to run.
    run_started: Duration,
    _permit: FairPermit,
}

/// Error: the queue is so long that a new guest would wait for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the run queue is too long")]
pub struct RunQueueFull;

/// The admission controller. It has no clock of its own: times are relative to the queue's creation.
#[derive(Debug)]
struct CodelController {
    /// Whether the wait was at or below the target in the last interval.
    standing: StandingQueue,
    /// The state of an overload, during which the queue is kept short.
    overload: Option<OverloadWindow>,
    own_share: OwnShare,
}

/// Counts arrivals during an overload, since a point in time.
#[derive(Debug)]
struct OverloadWindow {
    started: Duration,
    arrivals: u32,
}

/// The observable state of the queue.
#[derive(Clone, Copy, Debug)]
struct QueueSnapshot {
    now: Duration,
    /// The time of the last release of a permit, and the average time between two releases.
    last_release: Duration,
    release_interval: Duration,
    waiting: u32,
    threads: u32,
}

/// A guest in the queue. While it waits it is counted, until it gets its permit or is dropped.
#[derive(Debug)]
struct QueueEntry {
    queue: RunQueue,
    is_waiting: bool,
}

impl RunQueue {
    /// Creates a queue for this number of threads.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        let width = u32::try_from(threads).unwrap_or(u32::MAX).max(1);
        Self(Arc::new(RunQueueShared {
            permits: FairSemaphore::new(threads.max(1)),
            threads: width,
            created: Instant::now(),
            waiting: AtomicUsize::new(0),
            average_hold: AtomicU64::new(0),
            average_run: AtomicU64::new(0),
            last_release: AtomicU64::new(0),
            target: AtomicU64::new(u64::MAX),
            controller: Mutex::default(),
            cpu_time: process_cpu_time,
        }))
    }

    /// Sets the target for waits, which bursts may exceed. `None` means no limit.
    pub fn set_target(&self, target: Option<Duration>) {
        self.0.target.store(target.map_or(u64::MAX, nanos), Relaxed);
    }

    /// Whether another guest may arrive. A rejection counts as an arrival.
    #[must_use]
    pub fn has_capacity(&self, now: Instant) -> bool {
        self.0.has_capacity(now.saturating_duration_since(self.0.created))
    }

    /// Waits for a permit for a guest of this client, and then for the thread to poll for new input.
    ///
    /// # Errors
    /// If the queue is too long.
    pub async fn acquire(&self, client: QuotaKey) -> Result<RunPermit, RunQueueFull> {
        self.try_acquire(Instant::now(), client)?.wait().await
    }
}

impl Admission<QuotaKey> for RunQueue {
    type Permit = RunTicket;
    type Error = RunQueueFull;

    #[inline]
    fn try_acquire(&self, now: Instant, client: QuotaKey) -> Result<RunTicket, RunQueueFull> {
        let shared = &*self.0;
        let now = now.saturating_duration_since(shared.created);
        let permit = shared.permits.try_acquire(client);
        if permit.is_none() && !shared.has_capacity(now) {
            return Err(RunQueueFull);
        }
        shared.lock_controller().record_entry(&shared.snapshot(now), permit.is_some());
        let entry = QueueEntry::new(self.clone(), permit.is_none());
        Ok(RunTicket(match permit {
            Some(permit) => TicketState::Admitted(RunPermit::new(entry, now, permit)),
            None => TicketState::Waiting(entry, client),
        }))
    }
}

impl RunTicket {
    /// Waits for the guest's permit, and then for the thread to poll for new input.
    ///
    /// # Errors
    /// Never fails while the queue exists.
    pub async fn wait(self) -> Result<RunPermit, RunQueueFull> {
        let mut permit = match self.0 {
            TicketState::Admitted(permit) => permit,
            TicketState::Waiting(mut entry, client) => {
                let permit = entry.queue.0.permits.acquire(client).await.ok_or(RunQueueFull)?;
                entry.end_wait();
                let acquired = entry.queue.0.created.elapsed();
                RunPermit::new(entry, acquired, permit)
            }
        };
        if permit.shared().average_run.load(Relaxed) > nanos(MIN_RUN_TO_YIELD) {
            tokio::task::yield_now().await;
            permit.run_started = permit.shared().created.elapsed();
        }
        Ok(permit)
    }
}

impl RunQueueShared {
    fn has_capacity(&self, now: Duration) -> bool {
        let target = self.target.load(Relaxed);
        if self.permits.available_permits() > 0 || target == u64::MAX {
            return true;
        }
        let (snapshot, mut law) = (self.snapshot(now), self.lock_controller());
        law.own_share.update_sample(now, self.cpu_time, snapshot.threads);
        let has_room = law.can_admit(&snapshot, Duration::from_nanos(target));
        if !has_room {
            law.record_arrival(&snapshot);
        }
        has_room
    }

    fn snapshot(&self, now: Duration) -> QueueSnapshot {
        QueueSnapshot {
            now,
            last_release: Duration::from_nanos(self.last_release.load(Relaxed)),
            release_interval: Duration::from_nanos(self.average_hold.load(Relaxed)) / self.threads,
            waiting: u32::try_from(self.waiting.load(Relaxed)).unwrap_or(u32::MAX),
            threads: self.threads,
        }
    }

    /// Code that holds this lock can't panic. If it did, the state would still be a usable estimate.
    fn lock_controller(&self) -> MutexGuard<'_, CodelController> {
        self.controller.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for CodelController {
    fn default() -> Self {
        let queue = StandingQueue::new(CODEL_INTERVAL);
        queue.restart(Duration::ZERO);
        Self { standing: queue, overload: None, own_share: OwnShare::default() }
    }
}

impl CodelController {
    /// Records a guest that enters the queue, or finds it empty.
    fn record_entry(&mut self, snapshot: &QueueSnapshot, is_empty: bool) {
        if is_empty {
            self.standing.restart(snapshot.now);
        }
        self.record_arrival(snapshot);
    }

    /// Records an arrival, including rejected ones.
    fn record_arrival(&mut self, snapshot: &QueueSnapshot) {
        let Some(window) = &mut self.overload else { return };
        window.arrivals += 1;
        let watched = snapshot.now.saturating_sub(window.started);
        if watched < OVERLOAD_WATCH_TIME {
            return;
        }
        let is_overload = snapshot.release_interval * window.arrivals > watched.mul_f64(RECOVERY_LOAD);
        self.overload = is_overload.then_some(OverloadWindow { started: snapshot.now, arrivals: 0 });
        self.standing.restart(snapshot.now);
    }

    /// Whether another guest may wait.
    fn can_admit(&mut self, snapshot: &QueueSnapshot, target: Duration) -> bool {
        let wait = snapshot.time_to_release() + snapshot.release_interval.saturating_mul(snapshot.waiting);
        let own_share = self.own_share.fraction();
        let (wait, turn) = (wait.mul_f64(own_share), snapshot.release_interval.mul_f64(own_share));
        if wait <= target {
            self.standing.restart(snapshot.now);
        } else if self.overload.is_none() && self.standing.observe_long(snapshot.now) {
            self.overload = Some(OverloadWindow { started: snapshot.now, arrivals: 0 });
        }
        if self.overload.is_some() {
            // One guest may always wait, or a thread would be idle until the next arrival.
            wait <= (target / OVERLOAD_DIVISOR).max(turn / 2)
        } else {
            snapshot.waiting < snapshot.threads || wait <= target * BURST_FACTOR
        }
    }
}

impl QueueSnapshot {
    /// Returns the expected time until a permit is released.
    fn time_to_release(&self) -> Duration {
        (self.last_release + self.release_interval).saturating_sub(self.now)
    }
}

impl QueueEntry {
    fn new(queue: RunQueue, is_waiting: bool) -> Self {
        if is_waiting {
            queue.0.waiting.fetch_add(1, Relaxed);
        }
        Self { queue, is_waiting }
    }

    fn end_wait(&mut self) {
        if std::mem::take(&mut self.is_waiting) {
            self.queue.0.waiting.fetch_sub(1, Relaxed);
        }
    }
}

impl Drop for QueueEntry {
    fn drop(&mut self) {
        self.end_wait();
    }
}

impl RunPermit {
    fn new(entry: QueueEntry, acquired: Duration, permit: FairPermit) -> Self {
        Self { entry, acquired, run_started: acquired, _permit: permit }
    }

    fn shared(&self) -> &RunQueueShared {
        &self.entry.queue.0
    }

    /// Whether the guest has held the permit for so long that others should not have to wait for it.
    #[must_use]
    pub fn is_heavy(&self) -> bool {
        self.shared().created.elapsed().saturating_sub(self.acquired) > HEAVY_THRESHOLD
    }
}

impl Drop for RunPermit {
    fn drop(&mut self) {
        let shared = self.shared();
        let now = shared.created.elapsed();
        update_average(&shared.average_hold, now.saturating_sub(self.acquired));
        update_average(&shared.average_run, now.saturating_sub(self.run_started));
        shared.last_release.store(nanos(now), Relaxed);
    }
}

/// Adds a value to a moving average. Concurrent updates may be lost. A value is capped at the weight of all
/// earlier ones together, since a shared machine may have delayed the guest; if guests really take longer,
/// further values show it.
fn update_average(nanoseconds: &AtomicU64, one: Duration) {
    let before = nanoseconds.load(Relaxed);
    let most = if before == 0 { u64::MAX } else { before.saturating_mul(AVERAGE_WEIGHT) };
    nanoseconds.store(before - before / AVERAGE_WEIGHT + nanos(one).min(most) / AVERAGE_WEIGHT, Relaxed);
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod admission_tests;
#[cfg(test)]
mod tests;
