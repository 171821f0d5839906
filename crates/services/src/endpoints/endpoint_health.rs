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
const EJECTION_FAILURES: u32 = 3;
/// The number of 500 responses among the last [`ERROR_WINDOW`] after which an endpoint is ejected.
const EJECTION_ERRORS: u32 = 8;
/// The number of responses that [`EJECTION_ERRORS`] applies to.
const ERROR_WINDOW: u32 = 16;
/// The shortest and the longest pause of an ejection.
const EJECTION_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The outcome of a request, as evidence about the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestVerdict {
    /// A response that is not evidence against the endpoint.
    Success,
    /// A 500 response, or a request refused unprocessed: caused by the endpoint or by this request.
    Error,
    /// No connection, no response, no response in time, or 502, 503 or 504.
    Failure,
}

/// A change of state by a verdict, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HealthChange {
    /// The endpoint was ejected for this time.
    Ejected(Duration),
    /// The endpoint was restored.
    Restored,
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
    next_probe: AtomicU64,
    /// The number of consecutive ejections: the exponent of the pause.
    ejection_count: AtomicU32,
    /// The time of the last restoration, in milliseconds since the epoch.
    restored_at: AtomicU64,
    /// Whether the endpoint is unhealthy according to the health checks.
    is_unhealthy: AtomicBool,
    /// The number of consecutive checks with the same result as the last one, with that result in the highest
    /// bit.
    check_streak: AtomicU32,
}

/// The bit of [`EndpointHealth::check_streak`] for successful checks.
const HEALTHY_BIT: u32 = 1 << 31;

impl EndpointHealth {
    pub(super) fn new() -> Self {
        Self {
            epoch: Instant::now(),
            failures: AtomicU32::new(0),
            errors: AtomicU32::new(0),
            next_probe: AtomicU64::new(0),
            ejection_count: AtomicU32::new(0),
            restored_at: AtomicU64::new(0),
            is_unhealthy: AtomicBool::new(false),
            check_streak: AtomicU32::new(HEALTHY_BIT),
        }
    }

    /// Returns an independent copy.
    pub(super) fn copy_state(&self) -> Self {
        Self {
            epoch: self.epoch,
            failures: AtomicU32::new(self.failures.load(Relaxed)),
            errors: AtomicU32::new(self.errors.load(Relaxed)),
            next_probe: AtomicU64::new(self.next_probe.load(Relaxed)),
            ejection_count: AtomicU32::new(self.ejection_count.load(Relaxed)),
            restored_at: AtomicU64::new(self.restored_at.load(Relaxed)),
            is_unhealthy: AtomicBool::new(self.is_unhealthy.load(Relaxed)),
            check_streak: AtomicU32::new(self.check_streak.load(Relaxed)),
        }
    }

    /// Whether the endpoint gets regular requests.
    pub(super) fn is_available(&self) -> bool {
        self.next_probe.load(Relaxed) == 0 && !self.is_unhealthy.load(Relaxed)
    }

    /// Records the result of a check. Returns the number of consecutive equal results, including this one.
    pub(super) fn record_check(&self, well: bool) -> u32 {
        let (last, bit) = (self.check_streak.load(Relaxed), if well { HEALTHY_BIT } else { 0 });
        let count = if last & HEALTHY_BIT == bit {
            (last & !HEALTHY_BIT).saturating_add(1).min(!HEALTHY_BIT)
        } else {
            1
        };
        self.check_streak.store(bit | count, Relaxed);
        count
    }

    /// Sets the health according to the checks; returns `true` if it changed.
    pub(super) fn set_unhealthy(&self, ill: bool) -> bool {
        self.is_unhealthy.swap(ill, Relaxed) != ill
    }

    /// Claims the probe that is due, if any. The next one becomes due after another pause, in case this one
    /// never reports a result.
    pub(super) fn try_take_probe(&self) -> bool {
        let due = self.next_probe.load(Relaxed);
        if due == 0 || self.is_unhealthy.load(Relaxed) {
            return false;
        }
        let now = self.now_millis();
        let next = now + to_millis(self.ejection_pause());
        now >= due && self.next_probe.compare_exchange(due, next, Relaxed, Relaxed).is_ok()
    }

    /// Records the outcome of a request. `chance` marks a request that was sent although the endpoint was
    /// ejected.
    pub(super) fn record_outcome(&self, verdict: RequestVerdict, chance: bool) -> Option<HealthChange> {
        let out = self.next_probe.load(Relaxed) != 0;
        match (verdict, out) {
            (RequestVerdict::Success, true) if chance => Some(self.restore()),
            (_, true) if chance => Some(self.extend_ejection()),
            // Requests that were in flight at the ejection are not new evidence.
            (_, true) => None,
            (RequestVerdict::Success, false) => {
                self.record_success();
                None
            }
            (RequestVerdict::Failure, false) => {
                (self.failures.fetch_add(1, Relaxed) + 1 >= EJECTION_FAILURES).then(|| self.eject()).flatten()
            }
            (RequestVerdict::Error, false) => {
                let last = |errors: u32| Some((errors << 1 | 1) & ((1 << ERROR_WINDOW) - 1));
                let _ = self.errors.fetch_update(Relaxed, Relaxed, last);
                (self.errors.load(Relaxed).count_ones() >= EJECTION_ERRORS).then(|| self.eject()).flatten()
            }
        }
    }

    /// Records a good response. Writes nothing if the state is clean, to avoid contention on the cache line.
    fn record_success(&self) {
        if self.failures.load(Relaxed) != 0 {
            self.failures.store(0, Relaxed);
        }
        if self.errors.load(Relaxed) != 0 {
            let last = |errors: u32| Some((errors << 1) & ((1 << ERROR_WINDOW) - 1));
            let _ = self.errors.fetch_update(Relaxed, Relaxed, last);
        }
    }

    /// Ejects the endpoint. Of several concurrent attempts, one succeeds.
    fn eject(&self) -> Option<HealthChange> {
        let now = self.now_millis();
        // The pauses start anew for an endpoint that stayed healthy for long after its last pause.
        if now.saturating_sub(self.restored_at.load(Relaxed)) > 2 * to_millis(self.ejection_pause()) {
            self.ejection_count.store(0, Relaxed);
        }
        let pause = add_jitter(self.ejection_pause());
        self.next_probe.compare_exchange(0, (now + to_millis(pause)).max(1), Relaxed, Relaxed).ok()?;
        self.ejection_count.fetch_add(1, Relaxed);
        Some(HealthChange::Ejected(pause))
    }

    fn extend_ejection(&self) -> HealthChange {
        let pause = add_jitter(self.ejection_pause());
        self.next_probe.store((self.now_millis() + to_millis(pause)).max(1), Relaxed);
        self.ejection_count.fetch_add(1, Relaxed);
        HealthChange::Ejected(pause)
    }

    fn restore(&self) -> HealthChange {
        self.failures.store(0, Relaxed);
        self.errors.store(0, Relaxed);
        self.restored_at.store(self.now_millis(), Relaxed);
        self.next_probe.store(0, Relaxed);
        HealthChange::Restored
    }

    fn ejection_pause(&self) -> Duration {
        let (first, longest) = EJECTION_PAUSES;
        first.saturating_mul(1 << self.ejection_count.load(Relaxed).min(16)).min(longest)
    }

    fn now_millis(&self) -> u64 {
        to_millis(self.epoch.elapsed())
    }
}

fn to_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns between three quarters of the pause and all of it, so that gateways and endpoints do not
/// synchronize.
fn add_jitter(pause: Duration) -> Duration {
    let part = RandomState::new().hash_one(0u8) % 256;
    pause.mul_f64(0.75 + part as f64 / 1024.0)
}
