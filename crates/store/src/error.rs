//! What can go wrong, in words for who has to mend it.
//!
//! A *refusal* is the answer to one request: what it went on from is not so any more. A *fault* is the file's: it meets
//! all that is in the same transaction. [`Fail`] keeps the two apart on the way to the thread, which knows the file.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::ErrorCode;

/// Why a request to the store was not fulfilled. Nothing of it is kept then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A write goes on from a version that is not the last one.
    #[error("{}", conflict(key, *version))]
    Conflict {
        /// The key.
        key: Arc<str>,
        /// The version that is there, 0 where there is no such key.
        version: u64,
    },
    /// Another holder has the lease.
    #[error("`{holder}` has the lease of `{name}` for another {} ms", left.as_millis())]
    LeaseTaken {
        /// The lease's name.
        name: Arc<str>,
        /// Who has it.
        holder: Arc<str>,
        /// How long it lasts unless it is renewed.
        left: Duration,
    },
    /// The lease ended: it was released, or someone else has a newer one.
    #[error("the lease of `{name}` is lost: someone else took it, or it was released")]
    LeaseLost {
        /// The lease's name.
        name: Arc<str>,
    },
    /// A batch that this one builds on was not kept.
    #[error("a batch that this one builds on was not kept")]
    Abandoned,
    /// A key and its value are together larger than [`LARGEST`](crate::LARGEST).
    #[error("`{key}`: the value has {size} bytes; {} are the most", crate::LARGEST)]
    TooLarge {
        /// The key.
        key: Arc<str>,
        /// How large the value is.
        size: usize,
    },
    /// The file can't be used, or not just now.
    #[error("{}: {fault}{}", file.display(), detail(why))]
    File {
        /// The file.
        file: Arc<Path>,
        /// What is wrong with it.
        fault: Fault,
        /// What the system says, where that tells more; or nothing.
        why: Arc<str>,
    },
    /// The store's thread is gone.
    #[error("the store has stopped")]
    Stopped,
}

/// What can be wrong with the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// No space is left.
    #[error("the disk is full")]
    Full,
    /// Another process does not let go of it.
    #[error("another process has kept the file locked for {} s", crate::file::PATIENCE.as_secs())]
    Locked,
    /// What is read is not what was written.
    #[error("the file is damaged")]
    Corrupt,
    /// It can be read only.
    #[error("the file can't be written to")]
    ReadOnly,
    /// A newer gateway made it.
    #[error("the file was made by a newer version of this program")]
    Newer,
    /// Something else made it.
    #[error("the file is not a store")]
    NotOurs,
    /// It was removed or replaced while it was open.
    #[error("the file is not at its path any more")]
    Gone,
    /// The system says no.
    #[error("the file can't be used")]
    Io,
}

impl Error {
    /// The stable code, in kebab-case. It never changes its meaning.
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

    /// What the reader can do about it, in one sentence.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Conflict { .. } | Self::Abandoned => "load what is there now, and try again on top of it",
            Self::LeaseTaken { .. } => "try again when the lease ends, or when its holder does",
            Self::LeaseLost { .. } => {
                "ask for the lease again, load what is there now, and try again on top of it"
            }
            Self::TooLarge { .. } => "keep the value in several keys",
            Self::File { fault, .. } => fault.hint(),
            Self::Stopped => "restart the gateway; its log says what happened before",
        }
    }
}

impl Fault {
    fn code(self) -> &'static str {
        match self {
            Self::Full => "store-full",
            Self::Locked => "store-locked",
            Self::Corrupt => "store-corrupt",
            Self::ReadOnly => "store-read-only",
            Self::Newer => "store-newer",
            Self::NotOurs => "store-not-ours",
            Self::Gone => "store-gone",
            Self::Io => "store-io",
        }
    }

    fn hint(self) -> &'static str {
        match self {
            Self::Full => "make room on the disk; nothing needs a restart",
            Self::Locked => {
                "end what else has the file open: a backup, a shell of SQLite, a process that hangs"
            }
            Self::Corrupt => {
                "move the file and those beside it (-wal, -shm) away, and put a backup in its place"
            }
            Self::ReadOnly => {
                "let the gateway's user write to the file and to its folder, on a file system that is writable"
            }
            Self::Newer => "start the version that made it, or name another file",
            Self::NotOurs => "name another file, or move this one away",
            Self::Gone => "move it back, or end the gateway and start it on what is there now",
            Self::Io => "look at the path, the rights of the folder, and the system's log of the disk",
        }
    }

    fn of(error: &rusqlite::Error) -> Self {
        use rusqlite::Error as Sqlite;
        match error {
            Sqlite::SqliteFailure(error, _) => Self::of_code(error.code),
            // The statements are ours and tried: what they don't find, or find of another type, is damage.
            Sqlite::SqlInputError { error, .. } if error.code != ErrorCode::Unknown => {
                Self::of_code(error.code)
            }
            Sqlite::SqlInputError { .. }
            | Sqlite::QueryReturnedNoRows
            | Sqlite::IntegralValueOutOfRange(..)
            | Sqlite::InvalidColumnType(..)
            | Sqlite::FromSqlConversionFailure(..)
            | Sqlite::Utf8Error(..) => Self::Corrupt,
            _ => Self::Io,
        }
    }

    fn of_code(code: ErrorCode) -> Self {
        match code {
            ErrorCode::DiskFull => Self::Full,
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed => {
                Self::Locked
            }
            // What is there twice is something that its index does not show.
            ErrorCode::DatabaseCorrupt | ErrorCode::TypeMismatch | ErrorCode::ConstraintViolation => {
                Self::Corrupt
            }
            ErrorCode::ReadOnly | ErrorCode::PermissionDenied => Self::ReadOnly,
            ErrorCode::NotADatabase => Self::NotOurs,
            _ => Self::Io,
        }
    }
}

/// Why a request failed, before the file is named.
#[derive(Debug)]
pub(crate) enum Fail {
    /// This request is not fulfilled; others in the transaction are not touched.
    Refused(Error),
    /// The transaction can't go on.
    File(Fault, String),
}

impl Fail {
    pub(crate) fn conflict(key: &str, version: u64) -> Self {
        Self::Refused(Error::Conflict { key: key.into(), version })
    }

    pub(crate) fn lost(name: &Arc<str>) -> Self {
        Self::Refused(Error::LeaseLost { name: Arc::clone(name) })
    }

    /// Damage that SQLite does not see.
    pub(crate) fn damage(what: &str) -> Self {
        Self::File(Fault::Corrupt, what.to_owned())
    }

    pub(crate) fn at(self, file: &Arc<Path>) -> Error {
        match self {
            Self::Refused(error) => error,
            Self::File(fault, why) => Error::File { file: Arc::clone(file), fault, why: why.into() },
        }
    }
}

impl From<rusqlite::Error> for Fail {
    fn from(error: rusqlite::Error) -> Self {
        Self::File(Fault::of(&error), error.to_string())
    }
}

impl From<std::io::Error> for Fail {
    fn from(error: std::io::Error) -> Self {
        use std::io::ErrorKind;
        let fault = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Fault::Full,
            ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => Fault::ReadOnly,
            _ => Fault::Io,
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
