//! The health of an endpoint: outlier ejection from its responses (passive health), and the results of health
//! checks (active health), if there are any.
//!
//! An endpoint that fails several times in a row, or responds to every other request with 500, is *ejected*:
//! it gets no requests for a while, then a single one as a probe. Each failed probe doubles the pause. A
//! healthy endpoint costs two loads per response, and no clock or lock.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

/// The number of consecutive failures after which an endpoint is ejected.
const FAILURES: u32 = 3;
/// The number of 500 responses among the last [`ANSWERS`] after which an endpoint is ejected.
const ERRORS: u32 = 8;
/// The number of responses that [`ERRORS`] applies to.
const ANSWERS: u32 = 16;
/// The shortest and the longest pause of an ejection.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The outcome of a request, as evidence about the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestVerdict {
    /// A response that is not evidence against the endpoint.
    Good,
    /// A 500 response, or a request refused unprocessed: caused by the endpoint or by this request.
    Error,
    /// No connection, no response, no response in time, or 502, 503 or 504.
    Failed,
}

/// A change of state by a verdict, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HealthChange {
    /// The endpoint was ejected for this time.
    Out(Duration),
    /// The endpoint was restored.
    Back,
}

/// The health of one endpoint.
#[derive(Debug)]
pub(crate) struct EndpointHealth {
    epoch: Instant,
    /// The number of consecutive failures.
    failures: AtomicU32,
    /// The last responses, one bit each, the newest lowest; set for a 500.
    errors: AtomicU32,
    /// The time of the next probe, in milliseconds since the epoch; 0 unless the endpoint is ejected.
    due: AtomicU64,
    /// The number of consecutive ejections: the exponent of the pause.
    level: AtomicU32,
    /// The time of the last restoration, in milliseconds since the epoch.
    back: AtomicU64,
    /// Whether the endpoint is unhealthy according to the health checks.
    ill: AtomicBool,
    /// The number of consecutive checks with the same result as the last one, with that result in the highest
    /// bit.
    heard: AtomicU32,
}

/// The bit of [`EndpointHealth::heard`] for successful checks.
const WELL: u32 = 1 << 31;

impl EndpointHealth {
    pub(super) fn new() -> Self {
        Self {
            epoch: Instant::now(),
            failures: AtomicU32::new(0),
            errors: AtomicU32::new(0),
            due: AtomicU64::new(0),
            level: AtomicU32::new(0),
            back: AtomicU64::new(0),
            ill: AtomicBool::new(false),
            heard: AtomicU32::new(WELL),
        }
    }

    /// Returns an independent copy.
    pub(super) fn copy(&self) -> Self {
        Self {
            epoch: self.epoch,
            failures: AtomicU32::new(self.failures.load(Relaxed)),
            errors: AtomicU32::new(self.errors.load(Relaxed)),
            due: AtomicU64::new(self.due.load(Relaxed)),
            level: AtomicU32::new(self.level.load(Relaxed)),
            back: AtomicU64::new(self.back.load(Relaxed)),
            ill: AtomicBool::new(self.ill.load(Relaxed)),
            heard: AtomicU32::new(self.heard.load(Relaxed)),
        }
    }

    /// Whether the endpoint gets regular requests.
    pub(super) fn is_in(&self) -> bool {
        self.due.load(Relaxed) == 0 && !self.ill.load(Relaxed)
    }

    /// Records the result of a check. Returns the number of consecutive equal results, including this one.
    pub(super) fn heard(&self, well: bool) -> u32 {
        let (last, bit) = (self.heard.load(Relaxed), if well { WELL } else { 0 });
        let count = if last & WELL == bit { (last & !WELL).saturating_add(1).min(!WELL) } else { 1 };
        self.heard.store(bit | count, Relaxed);
        count
    }

    /// Sets the health according to the checks; returns `true` if it changed.
    pub(super) fn set_ill(&self, ill: bool) -> bool {
        self.ill.swap(ill, Relaxed) != ill
    }

    /// Claims the probe that is due, if any. The next one becomes due after another pause, in case this one
    /// never reports a result.
    pub(super) fn take_trial(&self) -> bool {
        let due = self.due.load(Relaxed);
        if due == 0 || self.ill.load(Relaxed) {
            return false;
        }
        let now = self.now();
        let next = now + millis(self.pause());
        now >= due && self.due.compare_exchange(due, next, Relaxed, Relaxed).is_ok()
    }

    /// Records the outcome of a request. `chance` marks a request that was sent although the endpoint was
    /// ejected.
    pub(super) fn note(&self, verdict: RequestVerdict, chance: bool) -> Option<HealthChange> {
        let out = self.due.load(Relaxed) != 0;
        match (verdict, out) {
            (RequestVerdict::Good, true) if chance => Some(self.come_back()),
            (_, true) if chance => Some(self.stay_out()),
            // Requests that were in flight at the ejection are not new evidence.
            (_, true) => None,
            (RequestVerdict::Good, false) => {
                self.forgive();
                None
            }
            (RequestVerdict::Failed, false) => {
                (self.failures.fetch_add(1, Relaxed) + 1 >= FAILURES).then(|| self.put_out()).flatten()
            }
            (RequestVerdict::Error, false) => {
                let last = |errors: u32| Some((errors << 1 | 1) & ((1 << ANSWERS) - 1));
                let _ = self.errors.fetch_update(Relaxed, Relaxed, last);
                (self.errors.load(Relaxed).count_ones() >= ERRORS).then(|| self.put_out()).flatten()
            }
        }
    }

    /// Records a good response. Writes nothing if the state is clean, to avoid contention on the cache line.
    fn forgive(&self) {
        if self.failures.load(Relaxed) != 0 {
            self.failures.store(0, Relaxed);
        }
        if self.errors.load(Relaxed) != 0 {
            let last = |errors: u32| Some((errors << 1) & ((1 << ANSWERS) - 1));
            let _ = self.errors.fetch_update(Relaxed, Relaxed, last);
        }
    }

    /// Ejects the endpoint. Of several concurrent attempts, one succeeds.
    fn put_out(&self) -> Option<HealthChange> {
        let now = self.now();
        // The pauses start anew for an endpoint that stayed healthy for long after its last pause.
        if now.saturating_sub(self.back.load(Relaxed)) > 2 * millis(self.pause()) {
            self.level.store(0, Relaxed);
        }
        let pause = jittered(self.pause());
        self.due.compare_exchange(0, (now + millis(pause)).max(1), Relaxed, Relaxed).ok()?;
        self.level.fetch_add(1, Relaxed);
        Some(HealthChange::Out(pause))
    }

    fn stay_out(&self) -> HealthChange {
        let pause = jittered(self.pause());
        self.due.store((self.now() + millis(pause)).max(1), Relaxed);
        self.level.fetch_add(1, Relaxed);
        HealthChange::Out(pause)
    }

    fn come_back(&self) -> HealthChange {
        self.failures.store(0, Relaxed);
        self.errors.store(0, Relaxed);
        self.back.store(self.now(), Relaxed);
        self.due.store(0, Relaxed);
        HealthChange::Back
    }

    fn pause(&self) -> Duration {
        let (first, longest) = PAUSES;
        first.saturating_mul(1 << self.level.load(Relaxed).min(16)).min(longest)
    }

    fn now(&self) -> u64 {
        millis(self.epoch.elapsed())
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns between three quarters of the pause and all of it, so that gateways and endpoints do not
/// synchronize.
fn jittered(pause: Duration) -> Duration {
    let part = RandomState::new().hash_one(0u8) % 256;
    pause.mul_f64(0.75 + part as f64 / 1024.0)
}
