//! The thread that has the file: it takes all that waits, does it in one transaction, and then answers everyone.
//!
//! So a commit to disk is paid for once by all who came while the last one was under way, and who reads sees what is kept,
//! or will be before the answer is out. A request that is refused leaves nothing behind and spoils nothing for the others.
//! When the transaction itself fails for want of room, each request is tried again alone: a small one may fit.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::watch;

use crate::error::{Fail, Fault};
use crate::file;
use crate::request::{Access, Job};

/// How often the file is asked whether another process wrote to it, while somebody wants to know.
const LOOK: Duration = Duration::from_millis(50);

type Jobs = Vec<Box<dyn Job>>;

/// What the thread is sent.
pub(crate) enum Message {
    Do(Box<dyn Job>),
    /// Somebody wants to know from now on when others write.
    Look,
}

impl Message {
    fn job(self) -> Option<Box<dyn Job>> {
        match self {
            Self::Do(job) => Some(job),
            Self::Look => None,
        }
    }
}

/// What the thread has.
pub(crate) struct Keeper {
    connection: Connection,
    file: Arc<Path>,
    /// That of the file when it was opened.
    number: Option<(u64, u64)>,
    messages: Receiver<Message>,
    others: watch::Sender<()>,
    /// When it was looked whether others wrote, and what was seen.
    looked: Instant,
    seen: Option<i64>,
}

impl Keeper {
    pub(crate) fn new(
        connection: Connection,
        file: Arc<Path>,
        messages: Receiver<Message>,
        others: watch::Sender<()>,
    ) -> Self {
        let number = file::number(&file);
        let (looked, seen) = (Instant::now(), None);
        let mut keeper = Self { connection, file, number, messages, others, looked, seen };
        keeper.look();
        keeper
    }

    /// Works until nobody can send anything any more.
    pub(crate) fn run(mut self) {
        while let Some(first) = self.next() {
            let jobs = std::iter::once(first).chain(self.messages.try_iter());
            self.work(jobs.filter_map(Message::job).collect());
            if self.is_watched() && self.looked.elapsed() >= LOOK {
                self.look();
            }
        }
    }

    fn next(&mut self) -> Option<Message> {
        while self.is_watched() {
            match self.messages.recv_timeout(LOOK) {
                Ok(message) => return Some(message),
                Err(RecvTimeoutError::Timeout) => self.look(),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        self.messages.recv().ok()
    }

    fn work(&mut self, mut jobs: Jobs) {
        if jobs.is_empty() {
            return;
        }
        match self.transact(&mut jobs) {
            Ok(()) => jobs.into_iter().for_each(|job| job.answer(None)),
            Err(Fail::File(Fault::Full, _)) if jobs.len() > 1 => {
                jobs.into_iter().for_each(|job| self.work(vec![job]))
            }
            Err(fail) => self.fail(jobs, fail),
        }
    }

    /// Those that write have failed, and those that read have too, unless it was beside others.
    fn fail(&mut self, jobs: Jobs, fail: Fail) {
        let error = fail.at(&self.file);
        let (writes, reads): (Jobs, Jobs) = jobs.into_iter().partition(|job| job.access() == Access::Write);
        let (failed, again) = if writes.is_empty() { (reads, writes) } else { (writes, reads) };
        failed.into_iter().for_each(|job| job.answer(Some(&error)));
        self.work(again);
    }

    fn transact(&mut self, jobs: &mut [Box<dyn Job>]) -> Result<(), Fail> {
        let writes = jobs.iter().any(|job| job.access() == Access::Write);
        let behavior = if writes { TransactionBehavior::Immediate } else { TransactionBehavior::Deferred };
        let transaction = self.connection.transaction_with_behavior(behavior)?;
        let attempted = jobs.iter_mut().try_for_each(|job| job.attempt(&transaction));
        // What goes into a file that was removed would be acknowledged, and lost with the process.
        let is_gone = writes && file::number(&self.file) != self.number;
        let attempted = attempted.and_then(|()| match is_gone {
            true => Err(Fail::File(Fault::Gone, String::new())),
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

    /// Tells if others wrote since the last look. What goes wrong here meets the next request too, and is said there.
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
