//! The file: made, recognised, opened.
//!
//! It is made for its owner alone. It says by its application id that it is a store, and by its user version which format
//! it has, so that neither another program's database nor a newer gateway's is touched. Processes open it one after the other, by a
//! lock of the folder: SQLite does not wait when two at once change a new file's journal mode.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::error::{Fail, Fault};
use crate::{Durability, lease};

/// How long another process may keep the file locked. Ours do for milliseconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// "ORFA", in the file's head.
const APPLICATION: i32 = 0x4f52_4641;
/// The format that this gateway writes, and the newest that it reads.
const FORMAT: i32 = 1;
/// After so many pages of 4 KiB the log goes back into the file, and begins anew. It is also about how large it gets.
const CHECKPOINT: i32 = 4_000;

/// `logs` has a row for each key: the last version, that of the snapshot (`base`), and how much weighs what: the snapshot
/// (`kept`) and the changes (`changed`). Of `counters`, `floor` is the highest version that anything had that was removed,
/// and `fence` the last one that was given out.
const TABLES: &str = "
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

/// Opens the file, and makes it if it is not there.
pub(crate) fn open(path: &Path, durability: Durability) -> Result<Connection, Fail> {
    let folder = make(path)?;
    folder.lock()?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(PATIENCE)?;
    if connection.is_readonly(rusqlite::MAIN_DB)? {
        return Err(Fail::File(Fault::ReadOnly, String::new()));
    }
    let is_new = recognise(&connection)?;
    set_up(&connection, durability)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if is_new {
        transaction.execute_batch(TABLES)?;
        transaction.pragma_update(None, "application_id", APPLICATION)?;
        transaction.pragma_update(None, "user_version", FORMAT)?;
    }
    lease::forget_ended(&transaction)?;
    transaction.commit()?;
    Ok(connection)
}

/// What a file is known by, whatever its name is; none where there is no file.
pub(crate) fn number(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Makes the folder and the file if they are not there, for nobody else to read. Gives the folder.
fn make(path: &Path) -> Result<File, Fail> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let folder = File::open(folder)?;
    // Only where there is no file: to open and close one that SQLite has open in this process would drop its locks.
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => sync_names(path),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error.into()),
    }
    Ok(folder)
}

/// Has the system keep the names of a new file and its new folders, as far as this user may ask for it.
fn sync_names(path: &Path) {
    let Ok(path) = std::path::absolute(path) else { return };
    for folder in path.ancestors().skip(1) {
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
    }
}

/// Whether the file is new; an error if it is not ours.
fn recognise(connection: &Connection) -> Result<bool, Fail> {
    let number = |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, i32>(0));
    match (number("application_id")?, number("user_version")?) {
        (APPLICATION, FORMAT) => Ok(false),
        (APPLICATION, format) if format > FORMAT => {
            Err(Fail::File(Fault::Newer, format!("its format is {format}, this program knows {FORMAT}")))
        }
        (0, 0)
            if connection
                .query_one("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i32>(0))?
                == 0 =>
        {
            Ok(true)
        }
        _ => Err(Fail::File(Fault::NotOurs, String::new())),
    }
}

fn set_up(connection: &Connection, durability: Durability) -> Result<(), Fail> {
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    if mode != "wal" {
        return Err(Fail::File(
            Fault::Io,
            "its file system has no shared memory; one over a network has not".into(),
        ));
    }
    // Without a write-ahead log that is synchronised at all, losing power could damage the file: NORMAL is the least.
    let synchronous = match durability {
        Durability::Process => "normal",
        Durability::Machine => "full",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT)?;
    connection.pragma_update(None, "journal_size_limit", i64::from(CHECKPOINT) * 4096)?;
    connection.pragma_update(None, "temp_store", "memory")?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(())
}
