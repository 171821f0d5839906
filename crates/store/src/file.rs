//! Creation, recognition and opening of the file.
//!
//! The file is accessible to its owner only. Its application ID marks it as a store, and its user version is
//! the format, so that databases of other programs and of newer gateways are not modified. A lock on the
//! folder serialises opening between processes, because SQLite does not wait when two processes change a new
//! file's journal mode at once.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::error::{FailureCause, FileFault};
use crate::lease;
use crate::limits::BUSY_TIMEOUT;

/// The application ID in the file header: "ORFA".
const APPLICATION_ID: i32 = 0x4f52_4641;
/// The format that is written, and the newest one that can be read.
const FORMAT: i32 = 1;
/// The size of the write-ahead log, in pages of 4 KiB, after which it is moved into the file. It hardly grows
/// beyond that.
const CHECKPOINT_PAGES: i32 = 4_000;

/// `logs` has a row for each key: the last version, the version of the snapshot (`base`), the size of the
/// snapshot (`kept`) and the size of the changes (`changed`). In `counters`, `floor` is the highest version
/// of all removed keys, and `fence` is the last fence number that was issued.
const SCHEMA_SQL: &str = "
    CREATE TABLE logs (
        id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, version INTEGER NOT NULL, base INTEGER NOT NULL,
        kept INTEGER NOT NULL, changed INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE snapshots (log INTEGER PRIMARY KEY, value BLOB NOT NULL) STRICT;
    CREATE TABLE changes (
        log INTEGER NOT NULL, version INTEGER NOT NULL, change BLOB NOT NULL, PRIMARY KEY (log, version)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE leases (
        name TEXT PRIMARY KEY, holder TEXT NOT NULL, fence INTEGER NOT NULL, since INTEGER NOT NULL,
        until INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    INSERT INTO counters VALUES ('floor', 0), ('fence', 0);
";

/// The failures that a commit survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommitDurability {
    /// A killed process, including this one. If the machine itself stops, the most recent commits may be
    /// lost.
    #[default]
    Process,
    /// A power failure of the machine. Each commit waits for the disk.
    Machine,
}

/// Opens the file, and creates it if it does not exist.
pub(crate) fn open(path: &Path, durability: CommitDurability) -> Result<Connection, FailureCause> {
    let folder = create_file(path)?;
    folder.lock()?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    if connection.is_readonly(rusqlite::MAIN_DB)? {
        return Err(FailureCause::File(FileFault::ReadOnly, String::new()));
    }
    let is_new = check_format(&connection)?;
    configure_connection(&connection, durability)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if is_new {
        transaction.execute_batch(SCHEMA_SQL)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", FORMAT)?;
    }
    lease::delete_expired(&transaction)?;
    transaction.commit()?;
    Ok(connection)
}

/// Returns the device and inode of a file, which identify it regardless of its name; `None` if there is no
/// file.
pub(crate) fn file_identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Creates the folder and the file if they do not exist, both accessible to the owner only. Returns the
/// folder.
fn create_file(path: &Path) -> Result<File, FailureCause> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let folder = File::open(folder)?;
    // An existing file is not opened here: closing a file that SQLite has open in this process would drop
    // SQLite's locks.
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => sync_folders(path),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error.into()),
    }
    Ok(folder)
}

/// Syncs the folder entries of a new file and its new folders, if this user has the permission.
fn sync_folders(path: &Path) {
    let Ok(path) = std::path::absolute(path) else { return };
    for folder in path.ancestors().skip(1) {
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
    }
}

/// Returns whether the file is new; an error if it is not a store.
fn check_format(connection: &Connection) -> Result<bool, FailureCause> {
    let number = |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, i32>(0));
    match (number("application_id")?, number("user_version")?) {
        (APPLICATION_ID, FORMAT) => Ok(false),
        (APPLICATION_ID, format) if format > FORMAT => Err(FailureCause::File(
            FileFault::NewerFormat,
            format!("its format is {format}, the latest known is {FORMAT}"),
        )),
        (0, 0)
            if connection
                .query_one("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i32>(0))?
                == 0 =>
        {
            Ok(true)
        }
        _ => Err(FailureCause::File(FileFault::NotAStore, String::new())),
    }
}

fn configure_connection(connection: &Connection, durability: CommitDurability) -> Result<(), FailureCause> {
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    if mode != "wal" {
        return Err(FailureCause::File(
            FileFault::Io,
            "its file system does not support shared memory; network file systems do not".into(),
        ));
    }
    // Without any synchronisation of the write-ahead log, a power failure could damage the file. NORMAL is
    // the minimum.
    let synchronous = match durability {
        CommitDurability::Process => "normal",
        CommitDurability::Machine => "full",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    connection.pragma_update(None, "journal_size_limit", i64::from(CHECKPOINT_PAGES) * 4096)?;
    connection.pragma_update(None, "temp_store", "memory")?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(())
}
