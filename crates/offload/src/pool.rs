//! The pool: submission of jobs and their lifecycle.
//!
//! A job is charged and queued by its caller's task, and assigned to a thread as soon as one is idle. The
//! completion of a job is handled by a task of the runtime, or by the job's caller if that comes first: the
//! threads themselves take no lock (see `worker.rs`). The order of the jobs is decided in `queue.rs`.

mod queue;
mod stats;
mod worker;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::job::{JobContext, JobRequest, OffloadError};
use crate::quota::QuotaBook;
use queue::{JobQueue, JobRank, QueueAdmission, QueuedJob};
use worker::{JobFunction, ResultDelivery, ThreadAssignment};

pub(crate) use queue::JobClass;
pub use stats::{JobKindStats, OffloadStats};

/// The settings of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffloadConfig {
    /// The number of threads.
    pub threads: usize,
    /// The CPU time that one payer may use in ten seconds.
    pub quota: Duration,
}

/// A pool of low-priority threads. Clones share the pool; the threads end with the last clone.
#[derive(Clone)]
pub struct OffloadPool(Arc<PoolShared>);

struct PoolShared {
    workers: Vec<Sender<ThreadAssignment>>,
    quota: QuotaBook,
    state: Mutex<PoolState>,
}

struct PoolState {
    jobs: JobQueue,
    stats: OffloadStats,
}

/// A guard for a job that its caller waits for; dropping it cancels the job.
struct WaitingCaller<'a> {
    pool: &'a OffloadPool,
    rank: JobRank,
    context: Arc<JobContext>,
    is_done: bool,
}

impl Default for OffloadConfig {
    fn default() -> Self {
        Self { threads: 1, quota: Duration::from_millis(500) }
    }
}

impl OffloadPool {
    /// Starts the threads.
    ///
    /// # Errors
    /// An error of the system while starting threads.
    pub fn start(config: OffloadConfig) -> io::Result<Self> {
        let threads = config.threads.max(1);
        let workers = (0..threads).map(worker::start_worker).collect::<io::Result<Vec<_>>>()?;
        let state = PoolState { jobs: JobQueue::new(threads), stats: OffloadStats::default() };
        let quota = QuotaBook::new(config.quota);
        Ok(Self(Arc::new(PoolShared { workers, quota, state: Mutex::new(state) })))
    }

    /// Runs a job on one of the threads and waits for its result, at most until the deadline. A job that may
    /// take seconds and can't be interrupted belongs into [`OffloadPool::run_long`].
    ///
    /// The payer is charged the estimate in advance, and the actual CPU time when the job is over. If this
    /// future is dropped, a waiting job is withdrawn, and a running one is marked as cancelled.
    ///
    /// # Errors
    /// An error if the payer's quota is used up, too many jobs wait, the deadline passes, or the job panics.
    pub async fn run<T: Send + 'static>(
        &self,
        request: JobRequest,
        job: impl FnOnce(&JobContext) -> T + Send + 'static,
    ) -> Result<T, OffloadError> {
        self.run_in_class(JobClass::Short, request, job).await
    }

    /// Like [`OffloadPool::run`], for a job that may take seconds and can't be interrupted. If the pool has
    /// several threads, such jobs never occupy all of them.
    ///
    /// # Errors
    /// The errors of [`OffloadPool::run`].
    pub async fn run_long<T: Send + 'static>(
        &self,
        request: JobRequest,
        job: impl FnOnce(&JobContext) -> T + Send + 'static,
    ) -> Result<T, OffloadError> {
        self.run_in_class(JobClass::Long, request, job).await
    }

    /// Like [`OffloadPool::run`], but waits while the payer's quota is used up. For work caused by services'
    /// responses, which is delayed instead of refused.
    ///
    /// # Errors
    /// An error if too many jobs wait, the deadline passes, or the job panics.
    pub async fn run_paced<T: Send + 'static>(
        &self,
        request: JobRequest,
        job: impl FnOnce(&JobContext) -> T + Send + 'static,
    ) -> Result<T, OffloadError> {
        let owed_until = self.charge_paced(&request).await?;
        self.run_charged(request, JobClass::Short, owed_until, job).await
    }

    /// Charges for a job of a class and runs it.
    async fn run_in_class<T: Send + 'static>(
        &self,
        class: JobClass,
        request: JobRequest,
        job: impl FnOnce(&JobContext) -> T + Send + 'static,
    ) -> Result<T, OffloadError> {
        let owed_until = self
            .charge(&request)
            .inspect_err(|error| self.lock().stats.count_rejection(error.rejection_reason()))?;
        self.run_charged(request, class, owed_until, job).await
    }

    /// Runs a job that has been charged already.
    pub(crate) async fn run_charged<T: Send + 'static>(
        &self,
        request: JobRequest,
        class: JobClass,
        owed_until: Instant,
        job: impl FnOnce(&JobContext) -> T + Send + 'static,
    ) -> Result<T, OffloadError> {
        let (sender, result) = oneshot::channel();
        let work = Box::new(move |context: &JobContext| -> ResultDelivery {
            let result = match context.is_cancelled() {
                true => Err(OffloadError::DeadlineExceeded),
                // A panic ends only this job.
                false => catch_unwind(AssertUnwindSafe(|| job(context))).map_err(|_| OffloadError::Panicked),
            };
            Box::new(move || drop(sender.send(result)))
        });
        let mut waiting = self.submit(request, class, owed_until, work)?;
        let result = tokio::select! {
            biased;
            // A displaced job is dropped, and so has no result.
            result = result => result.unwrap_or(Err(OffloadError::QueueFull)),
            () = tokio::time::sleep_until(request.deadline.into()) => Err(OffloadError::DeadlineExceeded),
        };
        waiting.is_done = true;
        if let Err(error) = &result {
            self.lock().stats.count_rejection(error.rejection_reason());
        }
        if !matches!(result, Err(OffloadError::DeadlineExceeded)) {
            self.finish_job(waiting.rank.number);
        }
        result
    }

    /// The quota accounts of all payers, for work outside of the pool.
    #[must_use]
    pub fn quota(&self) -> &QuotaBook {
        &self.0.quota
    }

    /// Returns the statistics of the pool.
    #[must_use]
    pub fn stats(&self) -> OffloadStats {
        let state = self.lock();
        let (queued, running) = (state.jobs.queued_count(), state.jobs.running_count());
        OffloadStats { queued, running, ..state.stats.clone() }
    }

    /// Like `charge`, but waits while the payer's quota is used up.
    pub(crate) async fn charge_paced(&self, request: &JobRequest) -> Result<Instant, OffloadError> {
        loop {
            let retry_after = match self.charge(request) {
                Err(OffloadError::QuotaExceeded { retry_after }) => retry_after,
                result => return result,
            };
            let until = Instant::now() + retry_after;
            tokio::time::sleep_until(until.min(request.deadline).into()).await;
            if until >= request.deadline {
                self.lock().stats.count_rejection(OffloadError::DeadlineExceeded.rejection_reason());
                return Err(OffloadError::DeadlineExceeded);
            }
        }
    }

    /// Charges for a job. Returns the time at which the payer's previous debts are earned back.
    pub(crate) fn charge(&self, request: &JobRequest) -> Result<Instant, OffloadError> {
        let charged = self.0.quota.try_charge(request.payer, request.estimate, Instant::now());
        charged.map_err(|retry_after| OffloadError::QuotaExceeded { retry_after })
    }

    /// Queues a job.
    fn submit(
        &self,
        request: JobRequest,
        class: JobClass,
        owed_until: Instant,
        work: JobFunction,
    ) -> Result<WaitingCaller<'_>, OffloadError> {
        let context = Arc::new(JobContext::new(request.deadline));
        let job = QueuedJob { request, class, context: Arc::clone(&context), work };
        let admission = self.lock().jobs.push(owed_until, job);
        let rank = match admission {
            QueueAdmission::Queued(rank) => rank,
            QueueAdmission::Displaced(rank, displaced) => {
                self.refund(&displaced.request);
                rank
            }
            QueueAdmission::Refused(error, refused) => {
                self.refund(&refused.request);
                self.lock().stats.count_rejection(error.rejection_reason());
                return Err(error);
            }
        };
        self.start_jobs();
        Ok(WaitingCaller { pool: self, rank, context, is_done: false })
    }

    /// Assigns jobs to threads as long as there are waiting jobs and idle threads.
    fn start_jobs(&self) {
        while let Some((number, worker, assignment, finished)) = self.next_job() {
            if let Some(sender) = self.0.workers.get(worker) {
                // A thread lives as long as its sender.
                let _ = sender.send(assignment);
            }
            let pool = self.clone();
            tokio::spawn(async move {
                let _ = finished.await;
                pool.finish_job(number);
            });
        }
    }

    fn next_job(&self) -> Option<(u64, usize, ThreadAssignment, oneshot::Receiver<()>)> {
        let mut state = self.lock();
        let (number, worker, work) = state.jobs.start_next()?;
        let context = state.jobs.running_context(number)?;
        drop(state);
        let (sender, finished) = oneshot::channel();
        Some((number, worker, ThreadAssignment { context, work, finished: sender }, finished))
    }

    /// Handles the end of a job, on the first report of it, and starts further jobs.
    fn finish_job(&self, number: u64) {
        let mut state = self.lock();
        let Some(job) = state.jobs.finish(number) else { return };
        let cpu = job.context.total_cpu();
        state.stats.count_job(job.request.kind, cpu);
        drop(state);
        self.0.quota.correct_charge(job.request.payer, job.request.estimate, cpu, Instant::now());
        self.start_jobs();
    }

    /// Refunds the charge of a job that never started.
    fn refund(&self, request: &JobRequest) {
        self.0.quota.correct_charge(request.payer, request.estimate, Duration::ZERO, Instant::now());
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WaitingCaller<'_> {
    fn drop(&mut self) {
        self.context.abandon();
        let mut state = self.pool.lock();
        if !self.is_done {
            state.stats.count_rejection("cancelled");
        }
        let withdrawn = state.jobs.withdraw(self.rank);
        drop(state);
        // The work is dropped here, outside of the lock.
        if let Some(job) = withdrawn {
            self.pool.refund(&job.request);
        }
    }
}

#[cfg(test)]
mod tests;
