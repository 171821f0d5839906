//! Durable bytes with versions: nothing here knows what the bytes mean.
//!
//! A key has a *log*: a snapshot at some version and the changes since, so that a write costs what it changes. Writes go in
//! [`Batch`]es, which are kept as a whole or not at all, and say which version they go on from; who may write at
//! all is settled by fenced [`Lease`]s. All of that holds between processes that have the same file open, as
//! two gateways do while one hands over to the other.
//!
//! It is SQLite, on one thread of its own (`thread.rs`), by `rusqlite` and not `sqlx`: SQLite writes one transaction at
//! a time, so that a pool of connections would only queue for its lock, and each commit would be paid for alone. One
//! thread that takes all that waits commits it together, calls SQLite without a hop to another thread for
//! each statement, and keeps the order in which batches were handed over. Files on network file systems can't be used.
//!
//! To read on: `batch.rs` has what can be written, `log.rs` and `lease.rs` the statements, `file.rs` the tables.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod batch;
mod error;
mod file;
mod lease;
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

use batch::Write;
pub use batch::{Batch, Written};
use error::Fail;
pub use error::{Error, Fault};
pub use lease::Lease;
pub use log::{LARGEST, Log};
pub use request::Commit;
use request::{Access, IsBroken, Request};
use thread::{Keeper, Message};

/// How much may wait, in KiB. A request counts as one and what it weighs; who finds no room waits for it.
const ROOM: u32 = 64 << 10;

/// What a commit survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// That processes are killed, this one too. When the machine itself stops, the last commits may be lost, no others.
    #[default]
    Process,
    /// That the machine loses power: each commit waits for the disk.
    Machine,
}

/// A file of logs and leases. Clones share it; with the last one gone it is closed, after what still waits.
#[derive(Clone, Debug)]
pub struct Store {
    messages: Sender<Message>,
    room: Arc<Semaphore>,
    others: Arc<watch::Sender<()>>,
}

impl Store {
    /// Opens a file, and makes it and its folder if they are not there, both for this user only. It blocks for as
    /// long as the disk does: for the start of a program.
    ///
    /// # Errors
    /// When the file can't be used: see [`Fault`].
    pub fn open(path: &Path, durability: Durability) -> Result<Self, Error> {
        let file: Arc<Path> = path.into();
        file::open(path, durability)
            .and_then(|connection| Self::start(connection, Arc::clone(&file)))
            .map_err(|fail| fail.at(&file))
    }

    fn start(connection: Connection, file: Arc<Path>) -> Result<Self, Fail> {
        let (messages, received) = mpsc::channel();
        let others = watch::Sender::new(());
        let keeper = Keeper::new(connection, file, received, others.clone());
        std::thread::Builder::new().name("store".into()).spawn(|| keeper.run())?;
        Ok(Self { messages, room: Arc::new(Semaphore::new(ROOM as usize)), others: Arc::new(others) })
    }

    /// Keeps a batch, all of it or nothing: when this answers it is durable. Gives a [`Written`] for each write.
    ///
    /// # Errors
    /// When the batch is refused, or the file can't be written to.
    pub async fn commit(&self, batch: Batch) -> Result<Vec<Written>, Error> {
        self.submit(batch).await.await
    }

    /// Waits until there is room in the queue, hands a batch over and gives the future of its answer. Batches are
    /// done in the order in which they were handed over.
    pub async fn submit(&self, batch: Batch) -> Commit {
        self.submit_on(batch, None).await
    }

    /// For batches that build on each other.
    #[must_use]
    pub fn pipeline(&self) -> Pipeline {
        Pipeline { store: self.clone(), is_broken: IsBroken::default() }
    }

    /// A key's log, `None` if there is no such key.
    ///
    /// # Errors
    /// When the file can't be read.
    pub async fn load(&self, key: impl Into<Arc<str>>) -> Result<Option<Log>, Error> {
        let key = key.into();
        self.ask(Access::Read, move |connection| log::load(connection, &key, 0)).await
    }

    /// The logs of several keys at one moment, so that no commit lies between them; of each what came after the version
    /// that the caller knows, 0 for all of it.
    ///
    /// # Errors
    /// When the file can't be read.
    pub async fn load_after(&self, known: Vec<(Arc<str>, u64)>) -> Result<Vec<Option<Log>>, Error> {
        self.ask(Access::Read, move |connection| {
            known.iter().map(|(key, known)| log::load(connection, key, *known)).collect()
        })
        .await
    }

    /// The keys that begin with a prefix, in order, with their versions. Let it end with what separates the parts of
    /// your keys.
    ///
    /// # Errors
    /// When the file can't be read.
    pub async fn keys(&self, prefix: impl Into<Arc<str>>) -> Result<Vec<(String, u64)>, Error> {
        let prefix = prefix.into();
        self.ask(Access::Read, move |connection| log::keys(connection, &prefix)).await
    }

    /// The keys that begin with a prefix, in order, with the bytes that each one's log takes: its snapshot, the changes since,
    /// and a few bytes for each change. They are never fewer than those of the value.
    ///
    /// # Errors
    /// When the file can't be read.
    pub async fn sizes(&self, prefix: impl Into<Arc<str>>) -> Result<Vec<(String, u64)>, Error> {
        let prefix = prefix.into();
        self.ask(Access::Read, move |connection| log::sizes(connection, &prefix)).await
    }

    /// The logs of the keys that begin with a prefix, in order: as many as `most`, from behind the key `after` on. Who
    /// reads them all page by page asks from the prefix on, then from the last key of each page, until one is empty.
    ///
    /// # Errors
    /// When the file can't be read.
    pub async fn scan(
        &self,
        prefix: impl Into<Arc<str>>,
        after: impl Into<Arc<str>>,
        most: usize,
    ) -> Result<Vec<(String, Log)>, Error> {
        let (prefix, after) = (prefix.into(), after.into());
        self.ask(Access::Read, move |connection| log::scan(connection, &prefix, &after, most)).await
    }

    /// Takes a lease, unless another holder has it. Who has it already under the same name takes it over from itself:
    /// the former lease is lost.
    ///
    /// # Errors
    /// [`Error::LeaseTaken`], or when the file can't be written to.
    pub async fn lease(
        &self,
        name: impl Into<Arc<str>>,
        holder: impl Into<Arc<str>>,
        time: Duration,
    ) -> Result<Lease, Error> {
        let (name, holder) = (name.into(), holder.into());
        self.ask(Access::Write, move |connection| lease::take(connection, &name, &holder, time)).await
    }

    /// Makes a lease last for `time` from now on. One that ended is renewed too, as long as nobody took it.
    ///
    /// # Errors
    /// [`Error::LeaseLost`], or when the file can't be written to.
    pub async fn renew(&self, lease: &Lease, time: Duration) -> Result<(), Error> {
        let lease = lease.clone();
        self.ask(Access::Write, move |connection| lease::renew(connection, &lease, time)).await
    }

    /// Gives a lease back. From then on nothing can be written with it; one that is lost already stays so.
    ///
    /// # Errors
    /// When the file can't be written to.
    pub async fn release(&self, lease: &Lease) -> Result<(), Error> {
        let lease = lease.clone();
        self.ask(Access::Write, move |connection| lease::release(connection, &lease)).await
    }

    /// Tells when another process has committed something.
    #[must_use]
    pub fn changed(&self) -> Changed {
        let changed = Changed { others: self.others.subscribe() };
        // Where the thread is gone, the next request says so.
        let _ = self.messages.send(Message::Look);
        changed
    }

    async fn submit_on(&self, batch: Batch, is_broken: Option<IsBroken>) -> Commit {
        let size = batch.size();
        let answered = self
            .hand_over(Access::Write, size, is_broken, move |connection| commit(connection, &batch))
            .await;
        Commit { answered }
    }

    async fn ask<T: Send + 'static>(
        &self,
        access: Access,
        work: impl FnMut(&Connection) -> Result<T, Fail> + Send + 'static,
    ) -> Result<T, Error> {
        self.hand_over(access, 0, None, work).await.await.unwrap_or(Err(Error::Stopped))
    }

    async fn hand_over<T: Send + 'static>(
        &self,
        access: Access,
        size: usize,
        is_broken: Option<IsBroken>,
        work: impl FnMut(&Connection) -> Result<T, Fail> + Send + 'static,
    ) -> oneshot::Receiver<Result<T, Error>> {
        let share = u32::try_from(size / 1024).unwrap_or(ROOM).saturating_add(1).min(ROOM);
        let Ok(room) = Arc::clone(&self.room).acquire_many_owned(share).await else {
            // It is never closed. The other end of a channel that is dropped says that the store has stopped.
            return oneshot::channel().1;
        };
        let (request, answered) = Request::new(work, access, is_broken, room);
        let _ = self.messages.send(Message::Do(Box::new(request)));
        answered
    }
}

/// Writes a batch; when it is refused, nothing of it is left.
fn commit(connection: &Connection, batch: &Batch) -> Result<Vec<Written>, Fail> {
    if let Some(lease) = &batch.fence {
        lease::check(connection, lease)?;
    }
    let write = |write: &Write| log::write(connection, write);
    // A write alone is refused before it writes anything.
    if let [only] = &batch.writes[..] {
        return Ok(vec![write(only)?]);
    }
    connection.prepare_cached("SAVEPOINT batch")?.execute([])?;
    let written = batch.writes.iter().map(write).collect();
    if matches!(written, Err(Fail::Refused(_))) {
        connection.prepare_cached("ROLLBACK TO batch")?.execute([])?;
    }
    if !matches!(written, Err(Fail::File(..))) {
        connection.prepare_cached("RELEASE batch")?.execute([])?;
    }
    written
}

/// Batches that build on each other, so that one can be handed over before the last was answered: once one was not kept, all
/// later ones are refused with [`Error::Abandoned`], even where someone else's commit made their versions right.
/// Then load what is there, and make another pipeline.
#[derive(Debug)]
pub struct Pipeline {
    store: Store,
    is_broken: IsBroken,
}

impl Pipeline {
    /// As [`Store::submit`].
    pub async fn submit(&mut self, batch: Batch) -> Commit {
        self.store.submit_on(batch, Some(Arc::clone(&self.is_broken))).await
    }
}

/// Tells when another process has committed something, at the latest a tenth of a second later; not what, and it may
/// tell once too often. Own commits are not told. Who keeps what was loaded asks [`Store::load_after`] before it is
/// used the next time.
#[derive(Debug)]
pub struct Changed {
    others: watch::Receiver<()>,
}

impl Changed {
    /// Waits until another process has committed something since this was last told.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the store is gone.
    pub async fn next(&mut self) -> Result<(), Error> {
        self.others.changed().await.map_err(|_| Error::Stopped)
    }
}
