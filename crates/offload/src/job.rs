//! Jobs: the caller's request, the context of a running job, and errors.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::quota::QuotaKey;

/// The description of a job and its payer.
#[derive(Clone, Copy, Debug)]
pub struct JobRequest {
    /// The kind of work, as a metrics label. A constant of the code, never a value from clients.
    pub kind: &'static str,
    /// The payer.
    pub payer: QuotaKey,
    /// The estimated upper limit of the CPU time.
    pub estimate: Duration,
    /// The time after which the result is not needed any more.
    pub deadline: Instant,
}

/// The connection of a running job to its caller.
#[derive(Debug)]
pub struct JobContext {
    deadline: Instant,
    is_abandoned: AtomicBool,
    extra_cpu_nanos: AtomicU64,
    cpu_nanos: AtomicU64,
}

/// The reason why a job has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OffloadError {
    /// The queue is full.
    #[error("too much work is queued")]
    QueueFull,
    /// The payer has used up its quota, or has too many jobs waiting.
    #[error("the caller has used up its quota of work for now")]
    QuotaExceeded {
        /// The time until the payer has quota again.
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
            extra_cpu_nanos: AtomicU64::new(0),
            cpu_nanos: AtomicU64::new(0),
        }
    }

    /// Whether the result is not needed any more: the caller is gone, or the deadline has passed. Takes some
    /// tens of nanoseconds.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.is_abandoned.load(Relaxed) || Instant::now() >= self.deadline
    }

    /// The time after which the result is not needed any more.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Adds CPU time that the job used on threads of its own.
    pub fn add_cpu(&self, cpu: Duration) {
        self.extra_cpu_nanos.fetch_add(to_nanos(cpu), Relaxed);
    }

    pub(crate) fn abandon(&self) {
        self.is_abandoned.store(true, Relaxed);
    }

    /// Sets the CPU time on the worker thread.
    pub(crate) fn set_worker_cpu(&self, cpu: Duration) {
        self.cpu_nanos.store(to_nanos(cpu), Relaxed);
    }

    /// The total CPU time of the job.
    pub(crate) fn total_cpu(&self) -> Duration {
        let own = self.cpu_nanos.load(Relaxed);
        Duration::from_nanos(own.saturating_add(self.extra_cpu_nanos.load(Relaxed)))
    }
}

impl OffloadError {
    /// The label in metrics.
    pub(crate) fn rejection_reason(self) -> &'static str {
        match self {
            Self::QueueFull => "queue-full",
            Self::QuotaExceeded { .. } => "quota",
            Self::DeadlineExceeded => "deadline",
            Self::Panicked => "panic",
        }
    }
}

fn to_nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
