//! A job: what its caller asks for, what it sees while it runs, and why it was not done.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::key::QuotaKey;

/// What a job is and who answers for it.
#[derive(Clone, Copy, Debug)]
pub struct JobRequest {
    /// The kind of work, as metrics have it: a name of this code's, never of a client's.
    pub kind: &'static str,
    /// Who pays.
    pub payer: QuotaKey,
    /// The CPU time that it will take at most, as far as can be seen beforehand.
    pub estimate: Duration,
    /// The moment from which on nobody wants the result.
    pub deadline: Instant,
}

/// What a running job sees of its caller.
#[derive(Debug)]
pub struct JobContext {
    deadline: Instant,
    is_abandoned: AtomicBool,
    elsewhere_nanos: AtomicU64,
    cpu_nanos: AtomicU64,
}

/// Why a job has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OffloadError {
    /// Too many jobs wait already.
    #[error("too much work is queued")]
    QueueFull,
    /// The payer has caused as much work as it may, or has as many jobs waiting as it may.
    #[error("the caller has caused as much work as it may for now")]
    QuotaExceeded {
        /// When it may cause some again.
        retry_after: Duration,
    },
    /// The deadline passed before the job was done.
    #[error("the work was not done in time")]
    DeadlineExceeded,
    /// The job panicked.
    #[error("the work failed unexpectedly")]
    Panicked,
}

impl JobContext {
    pub(crate) fn new(deadline: Instant) -> Self {
        Self {
            deadline,
            is_abandoned: AtomicBool::new(false),
            elsewhere_nanos: AtomicU64::new(0),
            cpu_nanos: AtomicU64::new(0),
        }
    }

    /// Whether nobody wants the result any more: the caller is gone, or the deadline has passed. A look takes some
    /// tens of nanoseconds.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.is_abandoned.load(Relaxed) || Instant::now() >= self.deadline
    }

    /// The moment from which on nobody wants the result.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Adds CPU time that the job took on threads of its own.
    pub fn add_cpu(&self, cpu: Duration) {
        self.elsewhere_nanos.fetch_add(nanos(cpu), Relaxed);
    }

    pub(crate) fn abandon(&self) {
        self.is_abandoned.store(true, Relaxed);
    }

    /// Notes what the worker's thread took.
    pub(crate) fn set_cpu(&self, cpu: Duration) {
        self.cpu_nanos.store(nanos(cpu), Relaxed);
    }

    /// All that the job took.
    pub(crate) fn cpu(&self) -> Duration {
        let own = self.cpu_nanos.load(Relaxed);
        Duration::from_nanos(own.saturating_add(self.elsewhere_nanos.load(Relaxed)))
    }
}

impl OffloadError {
    /// The label of metrics.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::QueueFull => "queue-full",
            Self::QuotaExceeded { .. } => "quota",
            Self::DeadlineExceeded => "deadline",
            Self::Panicked => "panic",
        }
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
