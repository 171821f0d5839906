//! Load shedding: an overloaded gateway refuses excess requests at once, so that the requests it admits are
//! still answered in good time.
//!
//! The measured signal is the gateway's own queueing delay, as in DAGOR (Zhou et al., "Overload Control for
//! Scaling WeChat Microservices", SoCC 2018), and not the latency of responses: a slow upstream service does
//! not overload the gateway. A probe (`load_shedder/probe.rs`) passes through the runtime as every request
//! does and measures the time, and while tasks wait in the runtime's global queue, so do markers in that
//! queue (`load_shedder/global_queue.rs`). Delay caused by other processes on the machine does not count: a
//! wait is limited to the time that the gateway's threads ran meanwhile ([`ProcessTimes`]).
//!
//! Shedding begins by CoDel's rule (RFC 8289, section 4): not when the delay is long, but when it was never
//! short for a whole [`INTERVAL`] in which requests were admitted, so that bursts pass. From then on requests
//! are admitted at a rate that follows Breakwater (Cho et al., OSDI 2020): while the delay is short the rate
//! grows by a small step, and by larger steps the longer that lasts; otherwise it falls in proportion to the
//! excess, at most by half. While the delay is very long no request is admitted: a queue of refusals drains
//! quickly, and the requests in it would be answered too late anyway. A probe that has waited that long
//! already has the same effect: a rate slightly above capacity would let the queue grow, and the rate would
//! keep growing until the probe has passed through it. Shedding ends after a second in which the rate refused
//! nothing. Refusals by other limits do not count for this: otherwise a client above its own limit could keep
//! the gateway shedding.
//!
//! Programs have a run queue of known length (`sandbox/src/run_queue.rs`), so their handlers report a lack of
//! room themselves, earlier than a probe could.
//!
//! A request costs two additions while nothing is shed, and never a lock.

mod admission_controller;
mod global_queue;
mod probe;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use admission::{Admission, ProcessTimes, process_cpu_time};
use services::GatewayOverloaded;
use tokio::sync::Notify;

use crate::config::ShedConfig;

/// The admission control of requests.
#[derive(Debug)]
pub(crate) struct LoadShedder {
    max_in_flight: usize,
    load: Arc<MeasuredLoad>,
}

/// The measured load and the current rate. It outlives configs.
#[derive(Debug)]
pub(crate) struct MeasuredLoad {
    epoch: Instant,
    in_flight: AtomicUsize,
    admitted: AtomicU64,
    /// The number of refused requests, and of those that the rate refused.
    refused: AtomicU64,
    refused_by_rate: AtomicU64,
    /// Nanoseconds between two admitted requests; 0 while nothing is shed, and [`ADMIT_NONE`].
    admission_interval: AtomicU64,
    /// The earliest time for the next admission, in nanoseconds.
    next_admission: AtomicU64,
    /// The start of the probe's current wait, in nanoseconds, and the CPU time of the process at that moment;
    /// 0 while the probe does not wait.
    probe_wait_start: AtomicU64,
    probe_wait_cpu: AtomicU64,
    /// The probe's last wait, in nanoseconds, and the part of it that was the gateway's own work. Both are
    /// the maximum before the first wait.
    last_wait: AtomicU64,
    last_own_wait: AtomicU64,
    /// The number of threads that run requests.
    threads: AtomicU32,
    /// Returns the CPU time of the process. Replaced in tests.
    cpu_time: fn() -> Duration,
    /// The longest acceptable delay, in nanoseconds; 0 if shedding is off.
    target_delay: AtomicU64,
    /// Whether the probe sleeps, as it does without requests and while shedding is off.
    is_probe_asleep: AtomicBool,
    probe_wake: Arc<Notify>,
}

/// The numbers of requests up to a moment, or between two moments.
#[derive(Clone, Copy, Debug, Default)]
struct RequestCounts {
    admitted: u64,
    refused: u64,
    refused_by_rate: u64,
}

/// A guard that counts an admitted request as in flight.
#[derive(Debug)]
pub(crate) struct InFlightGuard(Arc<MeasuredLoad>);

/// The value of `admission_interval` while no request is admitted.
const ADMIT_NONE: u64 = u64::MAX;
/// The longest wait of a response for other work that still counts as prompt.
const MAX_PROMPT_WAIT: Duration = Duration::from_millis(2);
/// The burst that a rate allows, in nanoseconds.
const RATE_BURST: u64 = 1_000_000;

impl LoadShedder {
    /// Creates the admission control from the config, with the measured load of `earlier`.
    pub(crate) fn new(config: &ShedConfig, earlier: Option<&Self>) -> Self {
        let load = match earlier {
            Some(earlier) => Arc::clone(&earlier.load),
            None => Arc::new(MeasuredLoad::new(Instant::now())),
        };
        let target = if config.automatic { nanos(config.delay.0) } else { 0 };
        load.target_delay.store(target, Relaxed);
        Self { max_in_flight: config.max_in_flight as usize, load }
    }

    /// Counts an admitted request as refused, because its handler refused it after this time. A request that
    /// was refused late, such as one that queued until its deadline, still counts as admitted too: the
    /// measurements of its time include it.
    pub(crate) fn note_refused(&self, after: Duration) {
        self.load.refused.fetch_add(1, Relaxed);
        if after < INTERVAL {
            self.load.admitted.fetch_sub(1, Relaxed);
        }
    }

    /// Whether threads process ready tasks almost immediately, as measured by the probe.
    pub(crate) fn is_prompt(&self) -> bool {
        let load = &self.load;
        let (waited, since) = (load.last_wait.load(Relaxed), load.probe_wait_start.load(Relaxed));
        let waits = || nanos(load.epoch.elapsed()).saturating_sub(since);
        load.is_enabled()
            && waited <= nanos(MAX_PROMPT_WAIT)
            && (since == 0 || waits() <= nanos(MAX_PROMPT_WAIT))
    }

    /// The number of requests in flight.
    #[cfg(test)]
    pub(crate) fn in_flight(&self) -> usize {
        self.load.in_flight.load(Relaxed)
    }

    /// The number of refused requests since the process started.
    pub(crate) fn refused(&self) -> u64 {
        self.load.refused.load(Relaxed)
    }

    /// Measures the runtime that polls the future and sets the rate, for as long as the gateway exists.
    pub(crate) fn run_probe(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        probe::run_probe(Arc::downgrade(&self.load))
    }
}

/// Admits a request if its client and its handler have room too, which the function returns. Refuses it if
/// there are too many requests, for the gateway's threads or for its memory.
impl<F: FnOnce() -> bool> Admission<F> for LoadShedder {
    type Permit = InFlightGuard;
    type Error = GatewayOverloaded;

    fn try_acquire(&self, now: Instant, has_room: F) -> Result<InFlightGuard, GatewayOverloaded> {
        let load = &self.load;
        if load.is_probe_asleep.load(Relaxed) && load.is_enabled() {
            load.probe_wake.notify_one();
        }
        let before = load.in_flight.fetch_add(1, Relaxed);
        let guard = InFlightGuard(Arc::clone(load));
        let rate_admits = || load.try_take_slot(now) || (before == 0 && load.is_nearly_idle(now));
        let is_limited = before >= self.max_in_flight || !has_room();
        if is_limited || !rate_admits() {
            load.refused.fetch_add(1, Relaxed);
            load.refused_by_rate.fetch_add(u64::from(!is_limited), Relaxed);
            return Err(GatewayOverloaded);
        }
        load.admitted.fetch_add(1, Relaxed);
        Ok(guard)
    }
}

impl RequestCounts {
    /// Returns the numbers since an earlier moment.
    fn since(self, earlier: Self) -> Self {
        Self {
            admitted: self.admitted.saturating_sub(earlier.admitted),
            refused: self.refused.saturating_sub(earlier.refused),
            refused_by_rate: self.refused_by_rate.saturating_sub(earlier.refused_by_rate),
        }
    }

    /// Returns a measurement for the control law.
    fn measurement(self, delay: Duration, since: Duration) -> admission_controller::ProbeMeasurement {
        admission_controller::ProbeMeasurement {
            delay,
            elapsed: since,
            admitted: self.admitted,
            refused: self.refused_by_rate,
        }
    }
}

impl MeasuredLoad {
    fn new(epoch: Instant) -> Self {
        Self {
            epoch,
            in_flight: AtomicUsize::new(0),
            admitted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            refused_by_rate: AtomicU64::new(0),
            admission_interval: AtomicU64::new(0),
            next_admission: AtomicU64::new(0),
            probe_wait_start: AtomicU64::new(0),
            probe_wait_cpu: AtomicU64::new(0),
            last_wait: AtomicU64::new(u64::MAX),
            last_own_wait: AtomicU64::new(u64::MAX),
            threads: AtomicU32::new(1),
            cpu_time: process_cpu_time,
            target_delay: AtomicU64::new(0),
            is_probe_asleep: AtomicBool::new(false),
            probe_wake: Arc::default(),
        }
    }

    /// Returns the numbers of requests since the process started.
    fn counts(&self) -> RequestCounts {
        RequestCounts {
            admitted: self.admitted.load(Relaxed),
            refused: self.refused.load(Relaxed),
            refused_by_rate: self.refused_by_rate.load(Relaxed),
        }
    }

    /// Whether shedding is on.
    fn is_enabled(&self) -> bool {
        self.target_delay.load(Relaxed) > 0
    }

    /// Records the start of a wait of the probe.
    fn begin_wait(&self, now: Instant, cpu: Duration) {
        self.probe_wait_cpu.store(nanos(cpu), Relaxed);
        self.probe_wait_start.store(nanos(now.saturating_duration_since(self.epoch)), Relaxed);
    }

    /// Whether almost no work of the gateway is waiting for a thread, by the probe's last wait and its
    /// current one.
    fn is_nearly_idle(&self, now: Instant) -> bool {
        let good = admission_controller::acceptable_delay(self.target_delay());
        let now = nanos(now.saturating_duration_since(self.epoch));
        self.last_own_wait.load(Relaxed) <= nanos(good) && !self.is_probe_waiting(now, |wait| wait > good)
    }

    fn target_delay(&self) -> Duration {
        Duration::from_nanos(self.target_delay.load(Relaxed))
    }

    /// Whether the rate admits another request (GCRA, see `limits/rate_limits.rs`).
    fn try_take_slot(&self, now: Instant) -> bool {
        let every = self.admission_interval.load(Relaxed);
        if every == 0 || every == ADMIT_NONE {
            return every == 0;
        }
        let now = nanos(now.saturating_duration_since(self.epoch));
        if self.is_probe_stuck(now) {
            return false;
        }
        let slack = RATE_BURST.max(every / 2);
        let more = |next: u64| (next <= now.saturating_add(slack)).then(|| next.max(now) + every);
        self.next_admission.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// Whether the probe's current wait is so long that no request is admitted before it ends.
    fn is_probe_stuck(&self, now: u64) -> bool {
        self.is_probe_waiting(now, |wait| admission_controller::closes_admission(wait, self.target_delay()))
    }

    /// Whether the probe is waiting and `is_long` holds for its wait so far.
    fn is_probe_waiting(&self, now: u64, is_long: impl Fn(Duration) -> bool) -> bool {
        let since = self.probe_wait_start.load(Relaxed);
        let wall = Duration::from_nanos(now.saturating_sub(since));
        // Reading the CPU clock is a system call, so it is only read if the wait is long by the wall clock.
        since > 0 && is_long(wall) && {
            let cpu =
                (self.cpu_time)().saturating_sub(Duration::from_nanos(self.probe_wait_cpu.load(Relaxed)));
            let threads = self.threads.load(Relaxed);
            is_long(ProcessTimes { wall, cpu }.own_time(threads))
        }
    }

    /// Whether requests are admitted at a rate.
    fn is_shedding(&self) -> bool {
        self.admission_interval.load(Relaxed) > 0
    }

    /// Sets the rate of admitted requests; `None` admits all.
    fn set_rate(&self, per_second: Option<f64>) {
        let every =
            per_second.map_or(0, |rate| if rate > 0.0 { ((1e9 / rate) as u64).max(1) } else { ADMIT_NONE });
        self.admission_interval.store(every, Relaxed);
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Wakes the probe, so that its task ends.
impl Drop for MeasuredLoad {
    fn drop(&mut self) {
        self.probe_wake.notify_one();
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

/// The time in which the delay has to be short at least once.
pub(crate) const INTERVAL: Duration = Duration::from_millis(100);

#[cfg(test)]
mod admission_tests;
#[cfg(test)]
mod tests;
