//! The errors of the store, with messages and hints for operators.
//!
//! A *refusal* concerns a single request: its precondition does not hold. A *fault* concerns the file, and
//! fails all requests in the same transaction. [`FailureCause`] represents both until the thread adds the
//! file's name.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::ErrorCode;

use crate::limits::{BUSY_TIMEOUT, LARGEST};

/// The reason why a request to the store failed. A failed request changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// A write is based on a version that is not the last one.
    #[error("{}", conflict(key, *version))]
    Conflict {
        /// The key.
        key: Arc<str>,
        /// The current version; 0 if there is no such key.
        version: u64,
    },
    /// Another holder has the lease.
    #[error("`{holder}` has the lease of `{name}` for another {} ms", left.as_millis())]
    LeaseTaken {
        /// The lease's name.
        name: Arc<str>,
        /// The current holder.
        holder: Arc<str>,
        /// The remaining time unless the lease is renewed.
        left: Duration,
    },
    /// The lease was released, or another holder has a newer one.
    #[error("the lease of `{name}` is lost: another holder took it, or it was released")]
    LeaseLost {
        /// The lease's name.
        name: Arc<str>,
    },
    /// A batch that this one builds on failed.
    #[error("a batch that this one builds on was not kept")]
    Abandoned,
    /// A key and its value together exceed [`LARGEST`].
    #[error("`{key}`: the value has {size} bytes, but at most {LARGEST} are allowed")]
    TooLarge {
        /// The key.
        key: Arc<str>,
        /// The size of the value in bytes.
        size: usize,
    },
    /// The file can't be used at the moment.
    #[error("{}: {fault}{}", file.display(), detail(why))]
    File {
        /// The file.
        file: Arc<Path>,
        /// The fault.
        fault: FileFault,
        /// Details from the system; may be empty.
        why: Arc<str>,
    },
    /// The store's thread is gone.
    #[error("the store has stopped")]
    Stopped,
}

/// The faults of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileFault {
    /// There is no space left.
    #[error("the disk is full")]
    Full,
    /// Another process has locked the file for too long.
    #[error("another process has kept the file locked for {} s", BUSY_TIMEOUT.as_secs())]
    Locked,
    /// The content of the file is damaged.
    #[error("the file is damaged")]
    Corrupt,
    /// The file is read-only.
    #[error("the file can't be written to")]
    ReadOnly,
    /// The file was created by a newer gateway.
    #[error("the file was made by a newer version of this program")]
    NewerFormat,
    /// The file was created by another program.
    #[error("the file is not a store")]
    NotAStore,
    /// The file was removed or replaced while it was open.
    #[error("the file is no longer at its path")]
    FileReplaced,
    /// The operating system reported another error.
    #[error("the file can't be used")]
    Io,
}

impl StoreError {
    /// The stable code in kebab-case. Its meaning never changes.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Conflict { .. } => "state-conflict",
            Self::LeaseTaken { .. } => "state-lease-taken",
            Self::LeaseLost { .. } => "state-lease-lost",
            Self::Abandoned => "state-abandoned",
            Self::TooLarge { .. } => "state-too-large",
            Self::File { fault, .. } => fault.code(),
            Self::Stopped => "store-stopped",
        }
    }

    /// A hint for the user in one sentence.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Conflict { .. } | Self::Abandoned => "load the current state, and try again on top of it",
            Self::LeaseTaken { .. } => "try again when the lease or its holder has ended",
            Self::LeaseLost { .. } => {
                "acquire the lease again, load the current state, and try again on top of it"
            }
            Self::TooLarge { .. } => "keep the value in several keys",
            Self::File { fault, .. } => fault.hint(),
            Self::Stopped => "restart the gateway; its log contains the cause",
        }
    }
}

impl FileFault {
    fn code(self) -> &'static str {
        match self {
            Self::Full => "store-full",
            Self::Locked => "store-locked",
            Self::Corrupt => "store-corrupt",
            Self::ReadOnly => "store-read-only",
            Self::NewerFormat => "store-newer",
            Self::NotAStore => "store-not-ours",
            Self::FileReplaced => "store-gone",
            Self::Io => "store-io",
        }
    }

    fn hint(self) -> &'static str {
        match self {
            Self::Full => "free space on the disk; a restart is not necessary",
            Self::Locked => {
                "end other programs that have the file open: a backup, an SQLite shell, a process that hangs"
            }
            Self::Corrupt => {
                "move the file and its companion files (-wal, -shm) away, and then restore a backup"
            }
            Self::ReadOnly => {
                "let the gateway's user write to the file and to its folder, on a file system that is writable"
            }
            Self::NewerFormat => "start the version that created it, or specify another file",
            Self::NotAStore => "specify another file, or move this one away",
            Self::FileReplaced => "move it back, or restart the gateway with the file that is there now",
            Self::Io => "check the path, the permissions of the folder, and the system log for disk errors",
        }
    }

    fn from_sqlite(error: &rusqlite::Error) -> Self {
        use rusqlite::Error as SqliteError;
        match error {
            SqliteError::SqliteFailure(error, _) => Self::from_sqlite_code(error.code),
            // The statements are fixed and tested. Missing or differently typed results mean that the file is
            // damaged.
            SqliteError::SqlInputError { error, .. } if error.code != ErrorCode::Unknown => {
                Self::from_sqlite_code(error.code)
            }
            SqliteError::SqlInputError { .. }
            | SqliteError::QueryReturnedNoRows
            | SqliteError::IntegralValueOutOfRange(..)
            | SqliteError::InvalidColumnType(..)
            | SqliteError::FromSqlConversionFailure(..)
            | SqliteError::Utf8Error(..) => Self::Corrupt,
            _ => Self::Io,
        }
    }

    fn from_sqlite_code(code: ErrorCode) -> Self {
        match code {
            ErrorCode::DiskFull => Self::Full,
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed => {
                Self::Locked
            }
            // A constraint violation means that an index does not match its table.
            ErrorCode::DatabaseCorrupt | ErrorCode::TypeMismatch | ErrorCode::ConstraintViolation => {
                Self::Corrupt
            }
            ErrorCode::ReadOnly | ErrorCode::PermissionDenied => Self::ReadOnly,
            ErrorCode::NotADatabase => Self::NotAStore,
            _ => Self::Io,
        }
    }
}

/// The cause of a failure, before the file's name is added.
#[derive(Debug)]
pub(crate) enum FailureCause {
    /// This request is refused; others in the transaction are not affected.
    Refused(StoreError),
    /// The transaction has failed.
    File(FileFault, String),
}

impl FailureCause {
    pub(crate) fn conflict(key: &str, version: u64) -> Self {
        Self::Refused(StoreError::Conflict { key: key.into(), version })
    }

    pub(crate) fn lease_lost(name: &Arc<str>) -> Self {
        Self::Refused(StoreError::LeaseLost { name: Arc::clone(name) })
    }

    /// Damage that SQLite does not detect.
    pub(crate) fn corrupt(what: &str) -> Self {
        Self::File(FileFault::Corrupt, what.to_owned())
    }

    pub(crate) fn into_store_error(self, file: &Arc<Path>) -> StoreError {
        match self {
            Self::Refused(error) => error,
            Self::File(fault, why) => StoreError::File { file: Arc::clone(file), fault, why: why.into() },
        }
    }
}

impl From<rusqlite::Error> for FailureCause {
    fn from(error: rusqlite::Error) -> Self {
        Self::File(FileFault::from_sqlite(&error), error.to_string())
    }
}

impl From<std::io::Error> for FailureCause {
    fn from(error: std::io::Error) -> Self {
        use std::io::ErrorKind;
        let fault = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => FileFault::Full,
            ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => FileFault::ReadOnly,
            _ => FileFault::Io,
        };
        Self::File(fault, error.to_string())
    }
}

fn conflict(key: &str, version: u64) -> String {
    match version {
        0 => format!("there is no `{key}`"),
        version => format!("`{key}` is at version {version}, which is not the one that was expected"),
    }
}

fn detail(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!(" ({why})") }
}
