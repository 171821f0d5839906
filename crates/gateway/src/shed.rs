//! Load shedding: a gateway that is asked for more than it can do refuses the rest at once, so that what
//! it takes is still answered in good time.
//!
//! What is measured is the gateway's own queue, as in DAGOR (Zhou et al., "Overload Control for Scaling
//! WeChat Microservices", SoCC 2018), and not how long answers take: a slow service behind the gateway is
//! no overload of the gateway. A probe (`shed/probe.rs`) goes through the runtime as every request does
//! and tells how long that took. Nor is it one where other processes have the processors: of a wait counts as much as the
//! gateway's threads ran meanwhile (`shed/own.rs`).
//!
//! When to begin is CoDel's rule (RFC 8289, section 4): not when the delay is long, but when it was never
//! short for a whole [`INTERVAL`]; a burst passes. How much to take from then on is a rate, and follows
//! Breakwater (Cho et al., OSDI 2020): as long as the delay is short it grows by a small step, by longer ones
//! the longer that lasts; otherwise it falls in proportion to the excess, to a half at most. While the delay is
//! very long nothing is taken: a queue of refusals is soon gone, and what waited in it would be answered late
//! anyway. A probe that is still waiting says so too, as soon as it has waited that long: a rate a little above
//! what can be done lets everything in, and until the probe has come through that queue it would go on growing.
//! Shedding ends when nothing had to be refused for a second.
//!
//! Programs have a queue of their own, whose length is known (`sandbox/src/line.rs`): their way of answering says
//! itself whether it has room, and sooner than any probe could.
//!
//! A request costs two additions while nothing is shed, and no lock ever.

mod law;
mod own;
mod probe;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Deserialize;
use services::Overloaded;
use tokio::sync::Notify;

/// How the gateway protects itself from more than it can do.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ShedConfig {
    /// Refuse requests when they would have to wait for the gateway's own threads.
    pub automatic: bool,
    /// How long they may wait there before shedding begins; from then on the wait is kept to a fiftieth of it.
    /// It is not about services: those have their own timeouts.
    pub delay: services::Duration,
    /// How many requests may be under way, up to the last byte of their answers.
    #[schemars(range(min = 1))]
    pub max_in_flight: u32,
}

/// What decides whether a request is taken.
#[derive(Debug)]
pub(crate) struct Shed {
    max_in_flight: usize,
    load: Arc<Load>,
}

/// What goes on. It outlives configs.
#[derive(Debug)]
pub(crate) struct Load {
    opened: Instant,
    in_flight: AtomicUsize,
    taken: AtomicU64,
    refused: AtomicU64,
    /// First and last turns of connections: who opens or closes thousands at once has the threads take that many.
    turns: AtomicU64,
    /// Nanoseconds from one request that is taken to the next; 0 while nothing is shed, and [`CLOSED`].
    every: AtomicU64,
    /// When the next one may be taken, in nanoseconds.
    next: AtomicU64,
    /// Since when the probe waits, in nanoseconds, and the CPU time of the process at that moment; 0 while it does not.
    waits: AtomicU64,
    waits_cpu: AtomicU64,
    /// How long it waited last, in nanoseconds; the longest there is before it has waited once. And how much of that was the
    /// gateway's own work.
    waited: AtomicU64,
    own_wait: AtomicU64,
    /// The threads that requests run on.
    threads: AtomicU32,
    /// What tells the CPU time of the process.
    cpu_time: fn() -> Duration,
    /// The longest delay that is good, in nanoseconds; 0 where nothing is to be shed.
    target: AtomicU64,
    /// The probe sleeps while nothing happens, and where nothing is to be shed.
    asleep: AtomicBool,
    wake: Arc<Notify>,
}

/// A request that was taken, until it is over.
#[derive(Debug)]
pub(crate) struct Taken(Arc<Load>);

/// Nothing is taken.
const CLOSED: u64 = u64::MAX;
/// What an answer may wait for others without anybody's noticing.
const PROMPT: Duration = Duration::from_millis(2);
/// How much may come at once when a rate is kept, in nanoseconds.
const SLACK: u64 = 1_000_000;

impl Default for ShedConfig {
    fn default() -> Self {
        Self { automatic: true, delay: services::Duration::from_millis(50), max_in_flight: 20_000 }
    }
}

impl Shed {
    /// What the config says. An earlier one lends what it knows of the load.
    pub(crate) fn new(config: &ShedConfig, earlier: Option<&Self>) -> Self {
        let load = match earlier {
            Some(earlier) => Arc::clone(&earlier.load),
            None => Arc::new(Load::new(Instant::now())),
        };
        let target = if config.automatic { nanos(config.delay.0) } else { 0 };
        load.target.store(target, Relaxed);
        Self { max_in_flight: config.max_in_flight as usize, load }
    }

    /// Takes a request that began just now, if its way of answering has room too.
    ///
    /// # Errors
    /// When there are too many, for the gateway's threads or for its memory.
    pub(crate) fn admit(&self, now: Instant, way: impl FnOnce() -> bool) -> Result<Taken, Overloaded> {
        let load = &self.load;
        if load.asleep.load(Relaxed) && load.is_watched() {
            load.wake.notify_one();
        }
        let before = load.in_flight.fetch_add(1, Relaxed);
        let taken = Taken(Arc::clone(load));
        let has_room = || load.has_room(now) || (before == 0 && load.is_empty(now));
        if before >= self.max_in_flight || !way() || !has_room() {
            load.refused.fetch_add(1, Relaxed);
            return Err(Overloaded);
        }
        load.taken.fetch_add(1, Relaxed);
        Ok(taken)
    }

    /// One that was taken was refused after all, by its way of answering.
    pub(crate) fn note_refused(&self) {
        self.load.refused.fetch_add(1, Relaxed);
        self.load.taken.fetch_sub(1, Relaxed);
    }

    /// Whether a thread is through with what is ready for it in next to no time, as far as that is measured.
    pub(crate) fn is_prompt(&self) -> bool {
        let load = &self.load;
        let (waited, since) = (load.waited.load(Relaxed), load.waits.load(Relaxed));
        let waits = || nanos(load.opened.elapsed()).saturating_sub(since);
        load.is_watched() && waited <= nanos(PROMPT) && (since == 0 || waits() <= nanos(PROMPT))
    }

    /// How many requests are under way.
    #[cfg(test)]
    pub(crate) fn in_flight(&self) -> usize {
        self.load.in_flight.load(Relaxed)
    }

    /// A connection has its first turn, or its last without having asked for anything.
    pub(crate) fn note_turn(&self) {
        self.load.turns.fetch_add(1, Relaxed);
    }

    /// How many of these there were.
    #[cfg(test)]
    pub(crate) fn turns(&self) -> u64 {
        self.load.turns.load(Relaxed)
    }

    /// How many were refused since the process began.
    pub(crate) fn refused(&self) -> u64 {
        self.load.refused.load(Relaxed)
    }

    /// Measures the runtime that this is polled on, and sets the rate, for as long as the gateway lives.
    pub(crate) fn watch(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        probe::watch(Arc::downgrade(&self.load))
    }
}

impl Load {
    fn new(opened: Instant) -> Self {
        Self {
            opened,
            in_flight: AtomicUsize::new(0),
            taken: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            turns: AtomicU64::new(0),
            every: AtomicU64::new(0),
            next: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            waits_cpu: AtomicU64::new(0),
            waited: AtomicU64::new(u64::MAX),
            own_wait: AtomicU64::new(u64::MAX),
            threads: AtomicU32::new(1),
            cpu_time: own::cpu_time,
            target: AtomicU64::new(0),
            asleep: AtomicBool::new(false),
            wake: Arc::default(),
        }
    }

    /// Whether anything may be shed.
    fn is_watched(&self) -> bool {
        self.target.load(Relaxed) > 0
    }

    /// The probe begins to wait.
    fn begin_wait(&self, now: Instant, cpu: Duration) {
        self.waits_cpu.store(nanos(cpu), Relaxed);
        self.waits.store(nanos(now.saturating_duration_since(self.opened)), Relaxed);
    }

    /// Whether next to nothing of the gateway's own waits for a thread, as far as the probe has seen and sees.
    fn is_empty(&self, now: Instant) -> bool {
        let good = law::good(self.target());
        let now = nanos(now.saturating_duration_since(self.opened));
        self.own_wait.load(Relaxed) <= nanos(good) && !self.waits_for(now, |wait| wait > good)
    }

    fn target(&self) -> Duration {
        Duration::from_nanos(self.target.load(Relaxed))
    }

    /// Whether the rate has room for one more. (GCRA, see `rights/rates.rs`.)
    fn has_room(&self, now: Instant) -> bool {
        let every = self.every.load(Relaxed);
        if every == 0 || every == CLOSED {
            return every == 0;
        }
        let now = nanos(now.saturating_duration_since(self.opened));
        if self.is_stuck(now) {
            return false;
        }
        let slack = SLACK.max(every / 2);
        let more = |next: u64| (next <= now.saturating_add(slack)).then(|| next.max(now) + every);
        self.next.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// Whether the probe has waited for so long already that nothing is to be taken before it is through.
    fn is_stuck(&self, now: u64) -> bool {
        self.waits_for(now, |wait| law::closes(wait, self.target()))
    }

    /// Whether the probe waits, and what it has waited so far is long.
    fn waits_for(&self, now: u64, is_long: impl Fn(Duration) -> bool) -> bool {
        let since = self.waits.load(Relaxed);
        let wall = Duration::from_nanos(now.saturating_sub(since));
        // The clock of the CPU is a system call: it is asked only where the wait is long by the wall clock.
        since > 0 && is_long(wall) && {
            let cpu = (self.cpu_time)().saturating_sub(Duration::from_nanos(self.waits_cpu.load(Relaxed)));
            let threads = self.threads.load(Relaxed);
            is_long(own::Elapsed { wall, cpu }.own(threads))
        }
    }

    /// Takes only so many a second from now on; `None` for all.
    fn keep_to(&self, per_second: Option<f64>) {
        let every =
            per_second.map_or(0, |rate| if rate > 0.0 { ((1e9 / rate) as u64).max(1) } else { CLOSED });
        self.every.store(every, Relaxed);
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Wakes the probe, which then finds that there is nothing left to measure.
impl Drop for Load {
    fn drop(&mut self) {
        self.wake.notify_one();
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

/// The length of time in which the delay has to be short once.
pub(crate) const INTERVAL: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests;
