//! Whether an endpoint is trusted with requests: what its answers say (passive health), and what the
//! checks say (active health), where there are any.
//!
//! An endpoint that fails in a row, or answers every other request with 500, is *out*: it gets no
//! requests for a while, then one as a trial. Each trial that fails doubles the while. A healthy endpoint
//! costs two loads an answer, and neither a clock nor a lock.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

/// How many failures in a row put an endpoint out.
const FAILURES: u32 = 3;
/// How many of the last [`ANSWERS`] answers may be 500 before an endpoint is out.
const ERRORS: u32 = 8;
/// How many answers are remembered for [`ERRORS`].
const ANSWERS: u32 = 16;
/// The first pause, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// An answer that does not speak against the endpoint.
    Good,
    /// It answered 500, or gave the request back: the fault of the endpoint, or of this one request.
    Error,
    /// No connection, no answer, no answer in time, or 502, 503 or 504.
    Failed,
}

/// What a verdict has changed, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The endpoint is out, for so long.
    Out(Duration),
    /// It is back.
    Back,
}

/// The standing of one endpoint.
#[derive(Debug)]
pub(crate) struct Standing {
    epoch: Instant,
    /// Failures with nothing good in between.
    failures: AtomicU32,
    /// The last answers, one bit each, the newest lowest: set for a 500.
    errors: AtomicU32,
    /// When the next trial is due, in milliseconds since the epoch; 0 for an endpoint that is in.
    due: AtomicU64,
    /// How often in a row it was put out: the exponent of the pause.
    level: AtomicU32,
    /// When it came back, in milliseconds since the epoch.
    back: AtomicU64,
    /// Whether the checks say that it is not well.
    ill: AtomicBool,
    /// The answers to checks that agree with the last one: how many, and whether that was a good one in
    /// the highest bit.
    heard: AtomicU32,
}

/// The bit of [`Standing::heard`] for good answers.
const WELL: u32 = 1 << 31;

impl Standing {
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

    /// The same, to be kept apart from now on.
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

    /// Whether it gets requests as any other.
    pub(super) fn is_in(&self) -> bool {
        self.due.load(Relaxed) == 0 && !self.ill.load(Relaxed)
    }

    /// Takes in the answer to a check; how many in a row have agreed with it, itself included.
    pub(super) fn heard(&self, well: bool) -> u32 {
        let (last, bit) = (self.heard.load(Relaxed), if well { WELL } else { 0 });
        let count = if last & WELL == bit { (last & !WELL).saturating_add(1).min(!WELL) } else { 1 };
        self.heard.store(bit | count, Relaxed);
        count
    }

    /// What the checks say; `true` if they said something else before.
    pub(super) fn set_ill(&self, ill: bool) -> bool {
        self.ill.swap(ill, Relaxed) != ill
    }

    /// Takes the trial that is due, if one is. The next is due after another pause, for the case that
    /// nothing is ever heard of this one.
    pub(super) fn take_trial(&self) -> bool {
        let due = self.due.load(Relaxed);
        if due == 0 || self.ill.load(Relaxed) {
            return false;
        }
        let now = self.now();
        let next = now + millis(self.pause());
        now >= due && self.due.compare_exchange(due, next, Relaxed, Relaxed).is_ok()
    }

    /// Takes in what came of a request. `chance` says that it was sent although the endpoint was out.
    pub(super) fn note(&self, verdict: Verdict, chance: bool) -> Option<Change> {
        let out = self.due.load(Relaxed) != 0;
        match (verdict, out) {
            (Verdict::Good, true) if chance => Some(self.come_back()),
            (_, true) if chance => Some(self.stay_out()),
            // What was under way when it was put out is no news.
            (_, true) => None,
            (Verdict::Good, false) => {
                self.forgive();
                None
            }
            (Verdict::Failed, false) => {
                (self.failures.fetch_add(1, Relaxed) + 1 >= FAILURES).then(|| self.put_out()).flatten()
            }
            (Verdict::Error, false) => {
                let last = |errors: u32| Some((errors << 1 | 1) & ((1 << ANSWERS) - 1));
                let _ = self.errors.fetch_update(Relaxed, Relaxed, last);
                (self.errors.load(Relaxed).count_ones() >= ERRORS).then(|| self.put_out()).flatten()
            }
        }
    }

    /// A good answer: nothing is written where nothing was amiss.
    fn forgive(&self) {
        if self.failures.load(Relaxed) != 0 {
            self.failures.store(0, Relaxed);
        }
        if self.errors.load(Relaxed) != 0 {
            let last = |errors: u32| Some((errors << 1) & ((1 << ANSWERS) - 1));
            let _ = self.errors.fetch_update(Relaxed, Relaxed, last);
        }
    }

    /// Puts it out; of several that want to at once, one does.
    fn put_out(&self) -> Option<Change> {
        let now = self.now();
        // Whoever held out for longer than the last pause begins anew.
        if now.saturating_sub(self.back.load(Relaxed)) > 2 * millis(self.pause()) {
            self.level.store(0, Relaxed);
        }
        let pause = jittered(self.pause());
        self.due.compare_exchange(0, (now + millis(pause)).max(1), Relaxed, Relaxed).ok()?;
        self.level.fetch_add(1, Relaxed);
        Some(Change::Out(pause))
    }

    fn stay_out(&self) -> Change {
        let pause = jittered(self.pause());
        self.due.store((self.now() + millis(pause)).max(1), Relaxed);
        self.level.fetch_add(1, Relaxed);
        Change::Out(pause)
    }

    fn come_back(&self) -> Change {
        self.failures.store(0, Relaxed);
        self.errors.store(0, Relaxed);
        self.back.store(self.now(), Relaxed);
        self.due.store(0, Relaxed);
        Change::Back
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

/// Between three quarters of it and all of it, so that gateways, and endpoints, don't try in step.
fn jittered(pause: Duration) -> Duration {
    let part = RandomState::new().hash_one(0u8) % 256;
    pause.mul_f64(0.75 + part as f64 / 1024.0)
}
