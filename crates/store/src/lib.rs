//! Durable bytes with versions. This crate does not interpret the bytes.
//!
//! A key has a *log*: a snapshot at some version and the changes since, so that the cost of a write depends
//! on the size of the change. Writes are submitted in atomic [`WriteBatch`]es that specify the version they
//! are based on. Fenced [`WriteLease`]s determine the writer. All of this also holds between processes that
//! have the same file open, such as two gateways during a handover.
//!
//! The file is a SQLite database on a dedicated thread (`thread.rs`). It is accessed through `rusqlite`
//! instead of `sqlx`: SQLite writes one transaction at a time, so a connection pool would only queue for its
//! lock and pay for each commit separately. A single thread commits all waiting requests together (group
//! commit), calls SQLite without a thread switch for each statement, and preserves the order of submission.
//! Network file systems are not supported.
//!
//! The modules, from low to high: `limits` and `error`; `lease` (its statements); `batch`, which defines the
//! writes; `log` (the statements for keys) and `file` (the tables); `request`; and `thread`, which executes
//! the requests.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod batch;
mod error;
mod file;
mod lease;
mod limits;
mod log;
mod request;
#[cfg(test)]
mod tests;
mod thread;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::{Semaphore, oneshot, watch};

use batch::BatchWrite;
pub use batch::{WriteBatch, WriteResult};
use error::FailureCause;
pub use error::{FileFault, StoreError};
pub use file::CommitDurability;
pub use lease::WriteLease;
pub use limits::LARGEST;
pub use log::KeyLog;
pub use request::PendingCommit;
use request::{IsBroken, RequestAccess, StoreRequest};
use thread::{StoreMessage, StoreThread};

/// The capacity of the queue in KiB. A request takes one plus its size, and waits until there is room.
const QUEUE_CAPACITY_KIB: u32 = 64 << 10;

/// A file of logs and leases. Clones share it. When the last one is dropped, the waiting requests are
/// completed and the file is closed.
#[derive(Clone, Debug)]
pub struct Store {
    messages: Sender<StoreMessage>,
    queue_permits: Arc<Semaphore>,
    foreign_commits: Arc<watch::Sender<()>>,
}

impl Store {
    /// Opens a file. The file and its folder are created if they do not exist, both accessible to this user
    /// only. The call blocks on the disk and is intended for the start of a program.
    ///
    /// # Errors
    /// If the file can't be used: see [`FileFault`].
    pub fn open(path: &Path, durability: CommitDurability) -> Result<Self, StoreError> {
        let file: Arc<Path> = path.into();
        file::open(path, durability)
            .and_then(|connection| Self::start(connection, Arc::clone(&file)))
            .map_err(|fail| fail.into_store_error(&file))
    }

    fn start(connection: Connection, file: Arc<Path>) -> Result<Self, FailureCause> {
        let (messages, received) = mpsc::channel();
        let others = watch::Sender::new(());
        let keeper = StoreThread::new(connection, file, received, others.clone());
        std::thread::Builder::new().name("store".into()).spawn(|| keeper.run())?;
        Ok(Self {
            messages,
            queue_permits: Arc::new(Semaphore::new(QUEUE_CAPACITY_KIB as usize)),
            foreign_commits: Arc::new(others),
        })
    }

    /// Commits a batch atomically, and waits until it is durable. Returns a [`WriteResult`] for each write.
    ///
    /// # Errors
    /// If the batch is refused, or the file can't be written to.
    pub async fn commit(&self, batch: WriteBatch) -> Result<Vec<WriteResult>, StoreError> {
        self.submit(batch).await.await
    }

    /// Waits until there is room in the queue, submits a batch, and returns a future of its result. Batches
    /// are executed in the order of submission.
    pub async fn submit(&self, batch: WriteBatch) -> PendingCommit {
        self.submit_on(batch, None).await
    }

    /// Returns a pipeline for batches that build on each other.
    #[must_use]
    pub fn pipeline(&self) -> BatchPipeline {
        BatchPipeline { store: self.clone(), is_broken: IsBroken::default() }
    }

    /// Returns the log of a key, or `None` if there is no such key.
    ///
    /// # Errors
    /// If the file can't be read.
    pub async fn load(&self, key: impl Into<Arc<str>>) -> Result<Option<KeyLog>, StoreError> {
        let key = key.into();
        self.execute(RequestAccess::Read, move |connection| log::load(connection, &key, 0)).await
    }

    /// Returns the logs of several keys at one point in time, so that no commit lies between them. Each log
    /// begins after the version that the caller already has; 0 returns the complete log.
    ///
    /// # Errors
    /// If the file can't be read.
    pub async fn load_after(&self, known: Vec<(Arc<str>, u64)>) -> Result<Vec<Option<KeyLog>>, StoreError> {
        self.execute(RequestAccess::Read, move |connection| {
            known.iter().map(|(key, known)| log::load(connection, key, *known)).collect()
        })
        .await
    }

    /// Returns the keys with a prefix and their versions, sorted by key. End the prefix with the separator of
    /// your keys.
    ///
    /// # Errors
    /// If the file can't be read.
    pub async fn keys(&self, prefix: impl Into<Arc<str>>) -> Result<Vec<(String, u64)>, StoreError> {
        let prefix = prefix.into();
        self.execute(RequestAccess::Read, move |connection| log::keys(connection, &prefix)).await
    }

    /// Returns the keys with a prefix and the size of each log in bytes, sorted by key. The size includes the
    /// snapshot, the changes since, and a small overhead for each change. It is never less than the size of
    /// the value.
    ///
    /// # Errors
    /// If the file can't be read.
    pub async fn sizes(&self, prefix: impl Into<Arc<str>>) -> Result<Vec<(String, u64)>, StoreError> {
        let prefix = prefix.into();
        self.execute(RequestAccess::Read, move |connection| log::sizes(connection, &prefix)).await
    }

    /// Returns the logs of at most `most` keys with a prefix, sorted by key and starting after the key
    /// `after`. To read all pages, start with the prefix, continue with the last key of each page, and stop
    /// at an empty page.
    ///
    /// # Errors
    /// If the file can't be read.
    pub async fn scan(
        &self,
        prefix: impl Into<Arc<str>>,
        after: impl Into<Arc<str>>,
        most: usize,
    ) -> Result<Vec<(String, KeyLog)>, StoreError> {
        let (prefix, after) = (prefix.into(), after.into());
        self.execute(RequestAccess::Read, move |connection| log::scan(connection, &prefix, &after, most))
            .await
    }

    /// Acquires a lease unless another holder has it. A holder with the same name takes the lease over from
    /// itself, and its former lease is lost.
    ///
    /// # Errors
    /// [`StoreError::LeaseTaken`], or if the file can't be written to.
    pub async fn acquire_lease(
        &self,
        name: impl Into<Arc<str>>,
        holder: impl Into<Arc<str>>,
        time: Duration,
    ) -> Result<WriteLease, StoreError> {
        let (name, holder) = (name.into(), holder.into());
        self.execute(RequestAccess::Write, move |connection| lease::acquire(connection, &name, &holder, time))
            .await
    }

    /// Extends a lease to `time` from now. An expired lease can be renewed as long as it was not taken by
    /// another holder.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`], or if the file can't be written to.
    pub async fn renew(&self, lease: &WriteLease, time: Duration) -> Result<(), StoreError> {
        let lease = lease.clone();
        self.execute(RequestAccess::Write, move |connection| lease::renew(connection, &lease, time)).await
    }

    /// Releases a lease. From then on it cannot be used for writes. Releasing a lost lease has no effect.
    ///
    /// # Errors
    /// If the file can't be written to.
    pub async fn release(&self, lease: &WriteLease) -> Result<(), StoreError> {
        let lease = lease.clone();
        self.execute(RequestAccess::Write, move |connection| lease::release(connection, &lease)).await
    }

    /// Returns a notification of commits by other processes.
    #[must_use]
    pub fn subscribe_commits(&self) -> CommitNotification {
        let changed = CommitNotification { foreign_commits: self.foreign_commits.subscribe() };
        // If the thread has ended, the next request reports it.
        let _ = self.messages.send(StoreMessage::CheckForeignCommits);
        changed
    }

    async fn submit_on(&self, batch: WriteBatch, is_broken: Option<IsBroken>) -> PendingCommit {
        let size = batch.approximate_size();
        let answered = self
            .enqueue_request(RequestAccess::Write, size, is_broken, move |connection| {
                write_batch(connection, &batch)
            })
            .await;
        PendingCommit { result_receiver: answered }
    }

    async fn execute<T: Send + 'static>(
        &self,
        access: RequestAccess,
        work: impl FnMut(&Connection) -> Result<T, FailureCause> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.enqueue_request(access, 0, None, work).await.await.unwrap_or(Err(StoreError::Stopped))
    }

    async fn enqueue_request<T: Send + 'static>(
        &self,
        access: RequestAccess,
        size: usize,
        is_broken: Option<IsBroken>,
        work: impl FnMut(&Connection) -> Result<T, FailureCause> + Send + 'static,
    ) -> oneshot::Receiver<Result<T, StoreError>> {
        let share = u32::try_from(size / 1024)
            .unwrap_or(QUEUE_CAPACITY_KIB)
            .saturating_add(1)
            .min(QUEUE_CAPACITY_KIB);
        let Ok(room) = Arc::clone(&self.queue_permits).acquire_many_owned(share).await else {
            // The semaphore is never closed. The dropped sender of this channel reports that the store has
            // stopped.
            return oneshot::channel().1;
        };
        let (request, answered) = StoreRequest::new(work, access, is_broken, room);
        let _ = self.messages.send(StoreMessage::Execute(Box::new(request)));
        answered
    }
}

/// Writes a batch. A refused batch leaves nothing behind.
fn write_batch(connection: &Connection, batch: &WriteBatch) -> Result<Vec<WriteResult>, FailureCause> {
    if let Some(lease) = &batch.fence {
        lease::check_fence(connection, lease)?;
    }
    let write = |write: &BatchWrite| log::apply_write(connection, write);
    // A single write is refused before it writes anything.
    if let [only] = &batch.writes[..] {
        return Ok(vec![write(only)?]);
    }
    connection.prepare_cached("SAVEPOINT batch")?.execute([])?;
    let results = batch.writes.iter().map(write).collect();
    if matches!(results, Err(FailureCause::Refused(_))) {
        connection.prepare_cached("ROLLBACK TO batch")?.execute([])?;
    }
    if !matches!(results, Err(FailureCause::File(..))) {
        connection.prepare_cached("RELEASE batch")?.execute([])?;
    }
    results
}

/// Batches that build on each other, so that one can be submitted before the result of the previous one is
/// known. After a failed batch, all later ones are refused with [`StoreError::Abandoned`], even if another
/// writer's commit happens to make their versions match. Then load the current state and create another
/// pipeline.
#[derive(Debug)]
pub struct BatchPipeline {
    store: Store,
    is_broken: IsBroken,
}

impl BatchPipeline {
    /// Submits a batch as [`Store::submit`] does.
    pub async fn submit(&mut self, batch: WriteBatch) -> PendingCommit {
        self.store.submit_on(batch, Some(Arc::clone(&self.is_broken))).await
    }
}

/// A notification of commits by other processes, at most a tenth of a second later. It does not contain the
/// changed keys, may be spurious, and does not cover commits of this store. Callers that cache loaded logs
/// use [`Store::load_after`] before they use them again.
#[derive(Debug)]
pub struct CommitNotification {
    foreign_commits: watch::Receiver<()>,
}

impl CommitNotification {
    /// Waits until another process has committed something since the last notification.
    ///
    /// # Errors
    /// [`StoreError::Stopped`] if the store has ended.
    pub async fn next(&mut self) -> Result<(), StoreError> {
        self.foreign_commits.changed().await.map_err(|_| StoreError::Stopped)
    }
}
