//! Where guests stand in line for a thread, and are told at once when the line is too long.
//!
//! A guest that is ready to run and waits in the runtime's own queue is seen by nobody: who comes next is
//! looked at only once it has had its millisecond. So as many guests have a place as there are threads, the
//! others wait here, in the order in which they came, and a guest that gets its place lets its thread look
//! for new input first. The length of the line is then known when the next one comes, and times what one
//! takes it is how long that one would wait (Little's law).
//!
//! How long a line may be is CoDel's idea (RFC 8289, section 4): a burst passes, so a line may be longer
//! than the target; but one that was never shorter for an [`INTERVAL`] is no burst, and to stand in it helps
//! nobody. It is held short then, until no more come than can be served.
//!
//! Where other processes have the cores, guests wait though few stand in line, and to refuse one makes no other sooner: a
//! wait counts as far as the process itself ran meanwhile ([`OwnShare`]).
//!
//! Where guests are done at once there is no line: whoever comes next is looked at soon enough, and to give
//! way would cost more than to run.
//!
//! A guest gives its place up when it waits for a service, and when it is heavy (see [`crate::Gate`]): what
//! was begun and is ready again goes before what was not.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::Semaphore;

use crate::meter::HEAVY;

/// How long a line may stand without being as short as the target once.
const INTERVAL: Duration = Duration::from_millis(100);
/// How much longer than the target a line may be in a burst.
const BURST: u32 = 2;
/// What part of the target it may be long from then on.
const PART: u32 = 50;
/// How long is watched what comes before a line is held no more, and how much of what can be served it
/// may be.
const WATCH: Duration = Duration::from_secs(1);
const SERVED: f64 = 0.9;
/// How often the share of the processors is looked at while guests wait; when nobody has looked for so long, nothing is
/// known of it; and the least that is believed.
const SAMPLE: Duration = Duration::from_millis(20);
const STALE: Duration = Duration::from_millis(200);
const LEAST_SHARE: f64 = 0.02;
/// Guests that run for less don't give way to new input before.
const LITTLE: Duration = Duration::from_micros(100);
/// A guest counts for so much in what one takes.
const WEIGHT: u64 = 16;

/// The line before the threads. All clones are the same one.
#[derive(Clone, Debug)]
pub struct Line(Arc<Shared>);

/// Each guest writes to it: nothing else lies beside it in memory.
#[derive(Debug)]
#[repr(align(128))]
struct Shared {
    places: Semaphore,
    width: u32,
    opened: Instant,
    waiting: AtomicUsize,
    /// How long a guest keeps its place in nanoseconds, and how long it runs in it.
    takes: AtomicU64,
    runs: AtomicU64,
    /// When the last one left it, in nanoseconds since the line was opened.
    left: AtomicU64,
    /// How long a line may be in nanoseconds, or `u64::MAX`.
    target: AtomicU64,
    law: Mutex<Law>,
}

/// A place at one of the threads, until it is dropped.
#[derive(Debug)]
pub struct Place {
    line: Line,
    /// Since when, from the time on when the line was opened.
    since: Duration,
    /// Since when whoever has it runs.
    begun: Duration,
}

/// Who would come now would have to wait for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// How many may wait. It has no clock of its own: times are since the line was opened.
#[derive(Debug, Default)]
struct Law {
    /// When the line was last as short as the target.
    short: Duration,
    /// While it is held short.
    held: Option<Held>,
    share: OwnShare,
}

/// The part of the time of its threads in which this process ran, of late.
#[derive(Debug)]
struct OwnShare {
    part: f64,
    /// When it was last looked at, and the CPU time that the process had used by then.
    sampled: Option<(Duration, Duration)>,
}

/// Since when it is watched how many come.
#[derive(Debug)]
struct Held {
    since: Duration,
    came: u32,
}

/// What can be seen of a line.
#[derive(Clone, Copy, Debug)]
struct Seen {
    now: Duration,
    /// When somebody last left a place, and how long it takes until the next one does.
    left: Duration,
    turn: Duration,
    waiting: u32,
    width: u32,
}

/// One more that waits, for as long as it does.
struct Waits<'a>(&'a AtomicUsize);

impl Line {
    /// A line before so many threads.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        let width = u32::try_from(threads).unwrap_or(u32::MAX).max(1);
        Self(Arc::new(Shared {
            places: Semaphore::new(threads.max(1)),
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

    /// How long guests may wait in a burst; `None` for as long as it takes.
    pub fn keep_to(&self, target: Option<Duration>) {
        self.0.target.store(target.map_or(u64::MAX, nanos), Relaxed);
    }

    /// Whether one more may come. Who hears no counts as one who came and went.
    #[must_use]
    pub fn has_room(&self, now: Instant) -> bool {
        self.0.has_room(now.saturating_duration_since(self.0.opened))
    }

    /// Waits for a place, and then for the thread to look for new input.
    ///
    /// # Errors
    /// When the line is too long already.
    pub async fn stand(&self) -> Result<Place, TooLong> {
        let (line, now) = (&*self.0, self.0.opened.elapsed());
        let permit = line.places.try_acquire();
        if permit.is_err() && !line.has_room(now) {
            return Err(TooLong);
        }
        line.law().stand(&line.seen(now), permit.is_ok());
        let (permit, since) = match permit {
            Ok(permit) => (permit, now),
            Err(_) => {
                let _waits = Waits::one(&line.waiting);
                let permit = line.places.acquire().await.map_err(|_| TooLong)?;
                (permit, line.opened.elapsed())
            }
        };
        // The place gives it back: a permit that lived for itself would need another handle of the line.
        permit.forget();
        let mut place = Place { line: self.clone(), since, begun: since };
        if line.runs.load(Relaxed) > nanos(LITTLE) {
            tokio::task::yield_now().await;
            place.begun = line.opened.elapsed();
        }
        Ok(place)
    }
}

impl Shared {
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

    fn seen(&self, now: Duration) -> Seen {
        Seen {
            now,
            left: Duration::from_nanos(self.left.load(Relaxed)),
            turn: Duration::from_nanos(self.takes.load(Relaxed)) / self.width,
            waiting: u32::try_from(self.waiting.load(Relaxed)).unwrap_or(u32::MAX),
            width: self.width,
        }
    }

    /// Nothing that holds it can panic; if it did, what it knows would still be a good guess.
    fn law(&self) -> MutexGuard<'_, Law> {
        self.law.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Law {
    /// One more stands in the line, or found it empty.
    fn stand(&mut self, seen: &Seen, is_empty: bool) {
        if is_empty {
            self.short = seen.now;
        }
        self.come(seen);
    }

    /// One more came, and may have gone again.
    fn come(&mut self, seen: &Seen) {
        let Some(held) = &mut self.held else { return };
        held.came += 1;
        let watched = seen.now.saturating_sub(held.since);
        if watched < WATCH {
            return;
        }
        let is_overload = seen.turn * held.came > watched.mul_f64(SERVED);
        self.held = is_overload.then_some(Held { since: seen.now, came: 0 });
        self.short = seen.now;
    }

    /// Whether one more may wait.
    fn has_room(&mut self, seen: &Seen, target: Duration) -> bool {
        let wait = seen.until_next() + seen.turn.saturating_mul(seen.waiting);
        let (wait, turn) = (wait.mul_f64(self.share.part), seen.turn.mul_f64(self.share.part));
        if wait <= target {
            self.short = seen.now;
        }
        if self.held.is_none() && seen.now.saturating_sub(self.short) > INTERVAL {
            self.held = Some(Held { since: seen.now, came: 0 });
        }
        if self.held.is_some() {
            // Not for nobody at all: a thread would stand idle until the next one comes.
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
    /// Takes a look where the last one is some time ago. The clock is asked only then: that is a system call.
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
            // Threads that were idle meanwhile say nothing of how fast they are: until that is seen, nobody is refused.
            _ => 0.0,
        };
        self.sampled = Some((now, cpu));
    }
}

/// The CPU time of the process, of all its threads.
fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}

impl Seen {
    /// How long it is likely to take until a place is free.
    fn until_next(&self) -> Duration {
        (self.left + self.turn).saturating_sub(self.now)
    }
}

impl<'a> Waits<'a> {
    fn one(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Relaxed);
        Self(waiting)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Place {
    /// Whether whoever has it has had it for too long for others to wait.
    #[must_use]
    pub fn is_heavy(&self) -> bool {
        self.line.0.opened.elapsed().saturating_sub(self.since) > HEAVY
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let line = &*self.line.0;
        let now = line.opened.elapsed();
        average(&line.takes, now.saturating_sub(self.since));
        average(&line.runs, now.saturating_sub(self.begun));
        line.left.store(nanos(now), Relaxed);
        line.places.add_permits(1);
    }
}

/// Counts one more in an average. Two at once may forget one another. One that was held up, by a machine that others share,
/// counts for no more than all before it together: guests that really take longer say so again.
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
