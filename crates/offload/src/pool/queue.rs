//! The queue of waiting jobs, and the running jobs.
//!
//! Jobs are served in rounds with one job of each class per payer: the tenth job of one payer waits behind
//! the first of another. Within a round, payers with large debts wait behind those with small debts. A block
//! of payers has sixteen jobs per round. If the queue is full, the job that would be served last is
//! displaced. Each payer occupies at most one thread at a time.
//!
//! Long jobs, which can't be interrupted, run on all threads but one, and take up at most half of the queue.
//! Other jobs overtake them while they wait for a thread.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::worker::JobFunction;
use crate::job::{JobContext, JobRequest, OffloadError};
use crate::quota::BLOCK_SHARE;

/// The maximum number of waiting jobs.
pub(crate) const MAX_QUEUED: usize = 256;
/// The maximum number of waiting long jobs.
pub(crate) const MAX_QUEUED_LONG: usize = MAX_QUEUED / 2;
/// The maximum number of waiting jobs of one payer.
pub(crate) const MAX_QUEUED_PER_PAYER: usize = 64;
/// The error for a payer with too many waiting jobs.
const PAYER_QUEUE_FULL: OffloadError = OffloadError::QuotaExceeded { retry_after: Duration::from_secs(1) };

/// The rank of a job in the queue: ordered by round, payer's debt, and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JobRank {
    round: u64,
    pub(crate) owed_until: Instant,
    pub(crate) number: u64,
}

/// The class of a job, by the time for which it may occupy a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobClass {
    Short,
    /// The job may take seconds and can't be interrupted.
    Long,
}

/// A waiting job.
pub(crate) struct QueuedJob {
    pub(crate) request: JobRequest,
    pub(crate) class: JobClass,
    pub(crate) context: Arc<JobContext>,
    pub(crate) work: JobFunction,
}

/// A running job.
pub(crate) struct RunningJob {
    pub(crate) request: JobRequest,
    class: JobClass,
    pub(crate) context: Arc<JobContext>,
    pub(crate) worker: usize,
}

/// All jobs of a pool.
pub(crate) struct JobQueue {
    queued: BTreeMap<JobRank, QueuedJob>,
    running: HashMap<u64, RunningJob>,
    /// The idle threads.
    idle_workers: Vec<usize>,
    /// The maximum number of running long jobs.
    max_long: usize,
    /// The round of the job that was started last.
    round: u64,
    next_number: u64,
}

/// The result of queuing a job.
pub(crate) enum QueueAdmission {
    Queued(JobRank),
    /// The job took the place of another one, which is not served any more.
    Displaced(JobRank, QueuedJob),
    /// The job is returned, since dropping it may need the lock of the queue: it may own a request with a
    /// job of its own.
    Refused(OffloadError, QueuedJob),
}

impl JobQueue {
    pub(crate) fn new(workers: usize) -> Self {
        let (idle_workers, max_long) = ((0..workers).rev().collect(), workers.saturating_sub(1).max(1));
        Self {
            queued: BTreeMap::new(),
            running: HashMap::new(),
            idle_workers,
            max_long,
            round: 0,
            next_number: 0,
        }
    }

    pub(crate) fn queued_count(&self) -> usize {
        self.queued.len()
    }

    pub(crate) fn running_count(&self) -> usize {
        self.running.len()
    }

    /// Queues a job by its rank.
    pub(crate) fn push(&mut self, owed_until: Instant, job: QueuedJob) -> QueueAdmission {
        let (key, is_long) = (job.request.payer, job.class == JobClass::Long);
        let (mut of_payer, mut of_block, mut queued_long, mut next_round) = (0, 0, 0, 0);
        // Short jobs may be rounds ahead of the long jobs that they have overtaken.
        let mut current_round = self.round;
        for (rank, other) in &self.queued {
            if other.class == JobClass::Long {
                queued_long += 1;
                if is_long {
                    current_round = current_round.min(rank.round);
                }
            }
            let is_of_class = other.class == job.class;
            let other = other.request.payer;
            if other.payer() == key.payer() {
                of_payer += 1;
                // The rounds of the other class may be far ahead.
                if is_of_class {
                    next_round = rank.round + 1;
                }
            }
            of_block += u64::from(other.has_same_block(key));
        }
        if of_payer >= MAX_QUEUED_PER_PAYER {
            return QueueAdmission::Refused(PAYER_QUEUE_FULL, job);
        }
        let round = next_round.max(current_round + of_block / u64::from(BLOCK_SHARE));
        let rank = JobRank { round, owed_until, number: self.next_number };
        self.next_number += 1;
        let is_long_full = is_long && queued_long >= MAX_QUEUED_LONG;
        if self.queued.len() < MAX_QUEUED && !is_long_full {
            self.queued.insert(rank, job);
            return QueueAdmission::Queued(rank);
        }
        let mut last = self.queued.iter().rev();
        let last = last.find(|(_, other)| !is_long_full || other.class == JobClass::Long);
        let last = last.map(|(last, _)| *last).filter(|last| rank < *last);
        match last.and_then(|last| self.queued.remove(&last)) {
            Some(displaced) => {
                self.queued.insert(rank, job);
                QueueAdmission::Displaced(rank, displaced)
            }
            None => QueueAdmission::Refused(OffloadError::QueueFull, job),
        }
    }

    /// Removes a waiting job; returns `None` if it does not wait.
    pub(crate) fn withdraw(&mut self, rank: JobRank) -> Option<QueuedJob> {
        self.queued.remove(&rank)
    }

    /// Assigns the next job to an idle thread. Returns the number of the job, the number of the thread, and
    /// the work.
    pub(crate) fn start_next(&mut self) -> Option<(u64, usize, JobFunction)> {
        let worker = *self.idle_workers.last()?;
        let is_busy = |payer| self.running.values().any(|job| job.request.payer.payer() == payer);
        let is_long = |job: &&RunningJob| job.class == JobClass::Long;
        let has_long_slot = self.running.values().filter(is_long).count() < self.max_long;
        let may_start = |job: &QueuedJob| {
            (job.class == JobClass::Short || has_long_slot) && !is_busy(job.request.payer.payer())
        };
        let next = self.queued.iter().find(|(_, job)| may_start(job));
        let rank = *next?.0;
        let QueuedJob { request, class, context, work } = self.queued.remove(&rank)?;
        self.idle_workers.pop();
        self.round = self.round.max(rank.round);
        self.running.insert(rank.number, RunningJob { request, class, context, worker });
        Some((rank.number, worker, work))
    }

    /// Removes a running job and marks its thread as idle; returns `None` if that was done before.
    pub(crate) fn finish(&mut self, number: u64) -> Option<RunningJob> {
        let job = self.running.remove(&number)?;
        self.idle_workers.push(job.worker);
        Some(job)
    }

    /// Returns the context of a running job.
    pub(crate) fn running_context(&self, number: u64) -> Option<Arc<JobContext>> {
        self.running.get(&number).map(|job| Arc::clone(&job.context))
    }
}
