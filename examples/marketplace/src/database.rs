//! A SQLite file and the connections to it.
//!
//! SQLite blocks, so it is called on tokio's blocking threads. Reads take a connection from a small stack of
//! them, so that their prepared statements stay; writes share one connection, because SQLite has one
//! writer anyway and waiting for a mutex is cheaper than its busy handler. The file is filled under another
//! name and then renamed: a service that is stopped while it seeds leaves no half database behind.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, Transaction};
use tokio::sync::Semaphore;

use crate::Data;
use crate::problem::Problem;

/// Creates the tables and the rows of a service.
pub(crate) type Seed = fn(&Transaction<'_>) -> rusqlite::Result<()>;

/// Why a service could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder for the database can't be made or written to.
    #[error("data-folder: can't use {path} for the databases; name another folder with --data: {source}")]
    Folder {
        /// The folder or file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// SQLite does not like the file.
    #[error("data-file: {path} is no database of this service; remove it and start again: {source}")]
    Database {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// The port can't be listened on.
    #[error("listen: can't listen; is the port in use? {source}")]
    Listen {
        /// What the system said.
        source: io::Error,
    },
}

/// Whether a route only reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// The connections to the file of one service.
pub(crate) struct Database {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    writer: Mutex<Connection>,
    readers: Arc<Semaphore>,
    /// Held so that a fresh folder outlives its connections.
    _data: Data,
}

/// Goes up with every change of tables or rows: an older file is thrown away and made anew.
const VERSION: i32 = 1;
const READERS: usize = 4;
const STATEMENTS: usize = 64;

impl Database {
    /// Opens the file of the service `name`, made by `seed` if it is absent.
    pub(crate) fn open(data: &Data, name: &str, seed: Seed) -> Result<Self, Error> {
        let path = data.path().join(format!("{name}.sqlite"));
        let folder = |source| Error::Folder { path: path.clone(), source };
        std::fs::create_dir_all(data.path()).map_err(folder)?;
        let database = |source| Error::Database { path: path.clone(), source };
        if version(&path) != Some(VERSION) {
            let made = path.with_extension(format!("{}.new", std::process::id()));
            let _ = std::fs::remove_file(&made);
            create(&made, seed).map_err(database)?;
            replace(&made, &path).map_err(folder)?;
        }
        let writer = connect(&path).map_err(database)?;
        Ok(Self {
            idle: Mutex::default(),
            writer: Mutex::new(writer),
            readers: Arc::new(Semaphore::new(READERS)),
            _data: data.clone(),
            path,
        })
    }

    /// Runs `work`; call it on a blocking thread, with a permit of [`Self::turn`] if it reads.
    pub(crate) fn run<T>(
        &self,
        access: Access,
        work: impl FnOnce(&Connection) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        if access == Access::Write {
            return work(&lock(&self.writer));
        }
        let idle = lock(&self.idle).pop();
        let connection = idle.map_or_else(|| connect(&self.path), Ok)?;
        let result = work(&connection);
        lock(&self.idle).push(connection);
        result
    }

    /// A permit for each read that may run now: threads that only queue for a core would cost memory.
    pub(crate) fn turn(&self) -> &Arc<Semaphore> {
        &self.readers
    }
}

/// A panic while the lock was held can't have left a connection half-way: SQLite rolls back.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn version(path: &Path) -> Option<i32> {
    if !path.exists() {
        return None;
    }
    let connection = Connection::open(path).ok()?;
    connection.pragma_query_value(None, "user_version", |row| row.get(0)).ok()
}

fn create(path: &Path, seed: Seed) -> rusqlite::Result<()> {
    let mut connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "OFF")?;
    connection.pragma_update(None, "synchronous", "OFF")?;
    connection.pragma_update(None, "user_version", VERSION)?;
    let transaction = connection.transaction()?;
    seed(&transaction)?;
    transaction.commit()?;
    connection.execute_batch("ANALYZE")
}

/// Puts the new file in its place, without what SQLite kept beside an old one.
fn replace(made: &Path, path: &Path) -> io::Result<()> {
    for beside in ["sqlite-wal", "sqlite-shm", "sqlite-journal"] {
        let _ = std::fs::remove_file(path.with_extension(beside));
    }
    std::fs::rename(made, path)
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "cache_size", -16_384)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}
