//! The jobs that wait, and those that threads have.
//!
//! Jobs are served in rounds, one of each payer a round: the tenth job of one payer waits behind the first of another.
//! Within a round a payer that owes much waits behind one that owes little. A block of payers has sixteen jobs a round.
//! Where the queue is full, the job that would be served last has to go. One payer has one thread at a time.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::job::{JobContext, JobRequest, OffloadError};
use crate::key::BLOCK_SHARE;
use crate::worker::Work;

/// The number of jobs that wait at most.
pub(crate) const MAX_QUEUED: usize = 256;
/// Those of one payer.
pub(crate) const MAX_QUEUED_PER_PAYER: usize = 64;
/// What a payer is told that has so many waiting.
const PAYER_QUEUE_FULL: OffloadError = OffloadError::QuotaExceeded { retry_after: Duration::from_secs(1) };

/// The place of a job in the queue: by its round, then by its payer's debt, then by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JobRank {
    round: u64,
    pub(crate) owed_until: Instant,
    pub(crate) number: u64,
}

/// A job that waits.
pub(crate) struct QueuedJob {
    pub(crate) request: JobRequest,
    pub(crate) context: Arc<JobContext>,
    pub(crate) work: Work,
}

/// A job that a thread has.
pub(crate) struct RunningJob {
    pub(crate) request: JobRequest,
    pub(crate) context: Arc<JobContext>,
    pub(crate) worker: usize,
}

/// All jobs of a pool.
pub(crate) struct JobQueue {
    queued: BTreeMap<JobRank, QueuedJob>,
    running: HashMap<u64, RunningJob>,
    /// The threads that have nothing to do.
    idle: Vec<usize>,
    /// The round of the job that was started last.
    round: u64,
    next: u64,
}

/// What became of a job that was to be queued.
pub(crate) enum Admission {
    Queued(JobRank),
    /// In the place of another one, which is not served any more.
    Displaced(JobRank, QueuedJob),
    Refused(OffloadError),
}

impl JobQueue {
    pub(crate) fn new(workers: usize) -> Self {
        let idle = (0..workers).rev().collect();
        Self { queued: BTreeMap::new(), running: HashMap::new(), idle, round: 0, next: 0 }
    }

    pub(crate) fn queued(&self) -> usize {
        self.queued.len()
    }

    pub(crate) fn running(&self) -> usize {
        self.running.len()
    }

    /// Puts a job in its place.
    pub(crate) fn push(&mut self, owed_until: Instant, job: QueuedJob) -> Admission {
        let key = job.request.payer;
        let (mut of_payer, mut of_block, mut round) = (0, 0, self.round);
        for (rank, other) in &self.queued {
            let other = other.request.payer;
            if other.payer() == key.payer() {
                of_payer += 1;
                round = round.max(rank.round + 1);
            }
            of_block += u64::from(other.shares_block(key));
        }
        if of_payer >= MAX_QUEUED_PER_PAYER {
            return Admission::Refused(PAYER_QUEUE_FULL);
        }
        let round = round.max(self.round + of_block / u64::from(BLOCK_SHARE));
        let rank = JobRank { round, owed_until, number: self.next };
        self.next += 1;
        if self.queued.len() < MAX_QUEUED {
            self.queued.insert(rank, job);
            return Admission::Queued(rank);
        }
        match self.queued.last_entry() {
            Some(last) if rank < *last.key() => {
                let displaced = last.remove();
                self.queued.insert(rank, job);
                Admission::Displaced(rank, displaced)
            }
            _ => Admission::Refused(OffloadError::QueueFull),
        }
    }

    /// Takes a job out that is not wanted any more; `None` if it does not wait.
    pub(crate) fn withdraw(&mut self, rank: JobRank) -> Option<QueuedJob> {
        self.queued.remove(&rank)
    }

    /// Gives the next job to a thread that has nothing to do: the job's number, the thread's, and the work.
    pub(crate) fn start(&mut self) -> Option<(u64, usize, Work)> {
        let worker = *self.idle.last()?;
        let is_busy = |payer| self.running.values().any(|job| job.request.payer.payer() == payer);
        let next = self.queued.iter().find(|(_, job)| !is_busy(job.request.payer.payer()));
        let rank = *next?.0;
        let QueuedJob { request, context, work } = self.queued.remove(&rank)?;
        self.idle.pop();
        self.round = self.round.max(rank.round);
        self.running.insert(rank.number, RunningJob { request, context, worker });
        Some((rank.number, worker, work))
    }

    /// The job that a thread had until now; `None` if that was noted before.
    pub(crate) fn finish(&mut self, number: u64) -> Option<RunningJob> {
        let job = self.running.remove(&number)?;
        self.idle.push(job.worker);
        Some(job)
    }

    /// The context of a job that a thread has.
    pub(crate) fn context(&self, number: u64) -> Option<Arc<JobContext>> {
        self.running.get(&number).map(|job| Arc::clone(&job.context))
    }
}
