//! The thread that owns the file. It takes all waiting requests, executes them in one transaction, and then
//! sends the results.
//!
//! So one commit to disk serves all requests that arrived during the previous one, and reads return data that
//! is durable or will be before the result is sent. A refused request leaves nothing behind and does not
//! affect the others. If the transaction itself fails because the disk is full, each request is retried
//! alone, since a small one may fit.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::watch;

use crate::error::{FailureCause, FileFault};
use crate::file;
use crate::request::{RequestAccess, StoreJob};

/// The interval between checks for commits by other processes, while there are subscribers.
const COMMIT_CHECK_INTERVAL: Duration = Duration::from_millis(50);

type StoreJobs = Vec<Box<dyn StoreJob>>;

/// A message to the thread.
pub(crate) enum StoreMessage {
    Execute(Box<dyn StoreJob>),
    /// A subscriber for commits of other processes was added.
    CheckForeignCommits,
}

impl StoreMessage {
    fn into_job(self) -> Option<Box<dyn StoreJob>> {
        match self {
            Self::Execute(job) => Some(job),
            Self::CheckForeignCommits => None,
        }
    }
}

/// The state of the thread.
pub(crate) struct StoreThread {
    connection: Connection,
    file: Arc<Path>,
    /// The identity of the file when it was opened.
    file_identity: Option<(u64, u64)>,
    messages: Receiver<StoreMessage>,
    foreign_commits: watch::Sender<()>,
    /// The time and result of the last check for commits by other processes.
    last_check: Instant,
    data_version: Option<i64>,
}

impl StoreThread {
    pub(crate) fn new(
        connection: Connection,
        file: Arc<Path>,
        messages: Receiver<StoreMessage>,
        others: watch::Sender<()>,
    ) -> Self {
        let number = file::file_identity(&file);
        let (looked, seen) = (Instant::now(), None);
        let mut keeper = Self {
            connection,
            file,
            file_identity: number,
            messages,
            foreign_commits: others,
            last_check: looked,
            data_version: seen,
        };
        keeper.check_foreign_commits();
        keeper
    }

    /// Runs until all senders have been dropped.
    pub(crate) fn run(mut self) {
        while let Some(first) = self.next_message() {
            let jobs = std::iter::once(first).chain(self.messages.try_iter());
            self.process_jobs(jobs.filter_map(StoreMessage::into_job).collect());
            if self.has_subscribers() && self.last_check.elapsed() >= COMMIT_CHECK_INTERVAL {
                self.check_foreign_commits();
            }
        }
    }

    fn next_message(&mut self) -> Option<StoreMessage> {
        while self.has_subscribers() {
            match self.messages.recv_timeout(COMMIT_CHECK_INTERVAL) {
                Ok(message) => return Some(message),
                Err(RecvTimeoutError::Timeout) => self.check_foreign_commits(),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        self.messages.recv().ok()
    }

    fn process_jobs(&mut self, mut jobs: StoreJobs) {
        if jobs.is_empty() {
            return;
        }
        match self.transact(&mut jobs) {
            Ok(()) => jobs.into_iter().for_each(|job| job.send_result(None)),
            Err(FailureCause::File(FileFault::Full, _)) if jobs.len() > 1 => {
                jobs.into_iter().for_each(|job| self.process_jobs(vec![job]))
            }
            Err(fail) => self.fail_jobs(jobs, fail),
        }
    }

    /// Fails the writes and retries the reads. If there are only reads, these fail.
    fn fail_jobs(&mut self, jobs: StoreJobs, fail: FailureCause) {
        let error = fail.into_store_error(&self.file);
        let (writes, reads): (StoreJobs, StoreJobs) =
            jobs.into_iter().partition(|job| job.access() == RequestAccess::Write);
        let (failed, store_jobs) = if writes.is_empty() { (reads, writes) } else { (writes, reads) };
        failed.into_iter().for_each(|job| job.send_result(Some(&error)));
        self.process_jobs(store_jobs);
    }

    fn transact(&mut self, jobs: &mut [Box<dyn StoreJob>]) -> Result<(), FailureCause> {
        let writes = jobs.iter().any(|job| job.access() == RequestAccess::Write);
        let behavior = if writes { TransactionBehavior::Immediate } else { TransactionBehavior::Deferred };
        let transaction = self.connection.transaction_with_behavior(behavior)?;
        let attempted = jobs.iter_mut().try_for_each(|job| job.attempt(&transaction));
        // Data in a removed file would be acknowledged, but lost when the process ends.
        let is_gone = writes && file::file_identity(&self.file) != self.file_identity;
        let attempted = attempted.and_then(|()| match is_gone {
            true => Err(FailureCause::File(FileFault::FileReplaced, String::new())),
            false => Ok(()),
        });
        let kept = attempted.and_then(|()| Ok(transaction.commit()?));
        if kept.is_err() {
            jobs.iter_mut().for_each(|job| job.undo());
        }
        kept
    }

    #[cfg(test)]
    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    fn has_subscribers(&self) -> bool {
        self.foreign_commits.receiver_count() > 0
    }

    /// Notifies subscribers of commits by other processes since the last check. An error here will be
    /// reported by the next request.
    pub(crate) fn check_foreign_commits(&mut self) {
        self.last_check = Instant::now();
        let now = self.connection.pragma_query_value(None, "data_version", |row| row.get(0)).ok();
        if now != self.data_version && now.is_some() {
            let is_first = self.data_version.is_none();
            self.data_version = now;
            if !is_first {
                self.foreign_commits.send_replace(());
            }
        }
    }
}
