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
const LOOK: Duration = Duration::from_millis(50);

type StoreJobs = Vec<Box<dyn StoreJob>>;

/// A message to the thread.
pub(crate) enum StoreMessage {
    Do(Box<dyn StoreJob>),
    /// A subscriber for commits of other processes was added.
    Look,
}

impl StoreMessage {
    fn job(self) -> Option<Box<dyn StoreJob>> {
        match self {
            Self::Do(job) => Some(job),
            Self::Look => None,
        }
    }
}

/// The state of the thread.
pub(crate) struct StoreThread {
    connection: Connection,
    file: Arc<Path>,
    /// The identity of the file when it was opened.
    number: Option<(u64, u64)>,
    messages: Receiver<StoreMessage>,
    others: watch::Sender<()>,
    /// The time and result of the last check for commits by other processes.
    looked: Instant,
    seen: Option<i64>,
}

impl StoreThread {
    pub(crate) fn new(
        connection: Connection,
        file: Arc<Path>,
        messages: Receiver<StoreMessage>,
        others: watch::Sender<()>,
    ) -> Self {
        let number = file::number(&file);
        let (looked, seen) = (Instant::now(), None);
        let mut keeper = Self { connection, file, number, messages, others, looked, seen };
        keeper.look();
        keeper
    }

    /// Runs until all senders have been dropped.
    pub(crate) fn run(mut self) {
        while let Some(first) = self.next() {
            let jobs = std::iter::once(first).chain(self.messages.try_iter());
            self.work(jobs.filter_map(StoreMessage::job).collect());
            if self.is_watched() && self.looked.elapsed() >= LOOK {
                self.look();
            }
        }
    }

    fn next(&mut self) -> Option<StoreMessage> {
        while self.is_watched() {
            match self.messages.recv_timeout(LOOK) {
                Ok(message) => return Some(message),
                Err(RecvTimeoutError::Timeout) => self.look(),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        self.messages.recv().ok()
    }

    fn work(&mut self, mut jobs: StoreJobs) {
        if jobs.is_empty() {
            return;
        }
        match self.transact(&mut jobs) {
            Ok(()) => jobs.into_iter().for_each(|job| job.answer(None)),
            Err(FailureCause::File(FileFault::Full, _)) if jobs.len() > 1 => {
                jobs.into_iter().for_each(|job| self.work(vec![job]))
            }
            Err(fail) => self.fail(jobs, fail),
        }
    }

    /// Fails the writes and retries the reads. If there are only reads, these fail.
    fn fail(&mut self, jobs: StoreJobs, fail: FailureCause) {
        let error = fail.at(&self.file);
        let (writes, reads): (StoreJobs, StoreJobs) =
            jobs.into_iter().partition(|job| job.access() == RequestAccess::Write);
        let (failed, again) = if writes.is_empty() { (reads, writes) } else { (writes, reads) };
        failed.into_iter().for_each(|job| job.answer(Some(&error)));
        self.work(again);
    }

    fn transact(&mut self, jobs: &mut [Box<dyn StoreJob>]) -> Result<(), FailureCause> {
        let writes = jobs.iter().any(|job| job.access() == RequestAccess::Write);
        let behavior = if writes { TransactionBehavior::Immediate } else { TransactionBehavior::Deferred };
        let transaction = self.connection.transaction_with_behavior(behavior)?;
        let attempted = jobs.iter_mut().try_for_each(|job| job.attempt(&transaction));
        // Data in a removed file would be acknowledged, but lost when the process ends.
        let is_gone = writes && file::number(&self.file) != self.number;
        let attempted = attempted.and_then(|()| match is_gone {
            true => Err(FailureCause::File(FileFault::Gone, String::new())),
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

    fn is_watched(&self) -> bool {
        self.others.receiver_count() > 0
    }

    /// Notifies subscribers of commits by other processes since the last check. An error here will be
    /// reported by the next request.
    pub(crate) fn look(&mut self) {
        self.looked = Instant::now();
        let now = self.connection.pragma_query_value(None, "data_version", |row| row.get(0)).ok();
        if now != self.seen && now.is_some() {
            let is_first = self.seen.is_none();
            self.seen = now;
            if !is_first {
                self.others.send_replace(());
            }
        }
    }
}
