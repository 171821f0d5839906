//! A SQLite file and the connections to it.
//!
//! SQLite blocks, so it is called on tokio's blocking threads. Reads take a connection from a small pool, so
//! that prepared statements are reused. Writes share one connection, because SQLite has one writer anyway and
//! a mutex is cheaper than its busy handler. The file is seeded under another name and then renamed: a
//! service that is stopped while it seeds leaves no incomplete database behind.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, Transaction};
use tokio::sync::Semaphore;

use crate::DatabaseFolder;
use crate::problem::ErrorResponse;

/// Creates the tables and the rows of a service.
pub(crate) type Seed = fn(&Transaction<'_>) -> rusqlite::Result<()>;

/// An error that keeps a service from starting.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The folder for the database can't be created or written to.
    #[error("data-folder: can't use {path} for the databases; name another folder with --data: {source}")]
    Folder {
        /// The folder or file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// SQLite can't open the file.
    #[error("data-file: {path} is not a database of this service; remove it and start again: {source}")]
    Database {
        /// The file.
        path: PathBuf,
        /// SQLite's error.
        source: rusqlite::Error,
    },
    /// The port can't be listened on.
    #[error("listen: can't listen; is the port in use? {source}")]
    Listen {
        /// The system's error.
        source: io::Error,
    },
}

/// Whether a route only reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DatabaseAccess {
    Read,
    Write,
}

/// The connections to the file of one service.
pub(crate) struct Database {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    writer: Mutex<Connection>,
    readers: Arc<Semaphore>,
    /// Keeps a temporary folder until its connections are closed.
    _data: DatabaseFolder,
}

/// The version of tables and rows, incremented with every change: a file of another version is replaced.
const VERSION: i32 = 1;
const READERS: usize = 4;
const STATEMENTS: usize = 64;

impl Database {
    /// Opens the file of the service `name`, which `seed` fills if it doesn't exist.
    pub(crate) fn open(data: &DatabaseFolder, name: &str, seed: Seed) -> Result<Self, DatabaseError> {
        let path = data.path().join(format!("{name}.sqlite"));
        let folder = |source| DatabaseError::Folder { path: path.clone(), source };
        std::fs::create_dir_all(data.path()).map_err(folder)?;
        let database = |source| DatabaseError::Database { path: path.clone(), source };
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

    /// Runs `work`. Call it on a blocking thread, with a permit of [`Self::turn`] if it reads.
    pub(crate) fn run<T>(
        &self,
        access: DatabaseAccess,
        work: impl FnOnce(&Connection) -> Result<T, ErrorResponse>,
    ) -> Result<T, ErrorResponse> {
        if access == DatabaseAccess::Write {
            return work(&lock(&self.writer));
        }
        let idle = lock(&self.idle).pop();
        let connection = idle.map_or_else(|| connect(&self.path), Ok)?;
        let result = work(&connection);
        lock(&self.idle).push(connection);
        result
    }

    /// The permits that limit concurrent reads: more threads than cores would only cost memory.
    pub(crate) fn turn(&self) -> &Arc<Semaphore> {
        &self.readers
    }
}

/// Locks a mutex, even a poisoned one: SQLite rolls back the transaction of a thread that panicked.
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

/// Renames the new file to its final path, and removes SQLite's auxiliary files of an old one.
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
