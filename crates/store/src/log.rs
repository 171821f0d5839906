//! The statements for keys and their logs.
//!
//! Each change is a separate row, so that its cost depends on its size. Snapshots have a table of their own,
//! because every write updates the row with the version. A key never has the same version twice: a key that
//! is created again after its removal starts above all removed versions (`floor`). So a caller with an old
//! version is never misled by an equal number.

use std::ops::Range;

use bytes::Bytes;
use rusqlite::types::ToSqlOutput;
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};

use crate::batch::{BatchWrite, WriteResult};
use crate::error::{FailureCause, StoreError};
use crate::limits::LARGEST;

/// The estimated overhead of a change in bytes.
const CHANGE_OVERHEAD: usize = 32;
/// The minimum size in bytes of changes for which a snapshot is worthwhile.
const MIN_COMPACTION_BYTES: u64 = 64 << 10;

/// The content of a key: a snapshot and the changes since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyLog {
    /// The last version.
    pub version: u64,
    /// The value at some version; `None` if the caller already has a later one.
    pub snapshot: Option<(u64, Bytes)>,
    /// The changes after the snapshot or after the caller's version, each with its version, without gaps up
    /// to the last one.
    pub changes: Vec<(u64, Bytes)>,
}

pub(crate) fn apply_write(connection: &Connection, write: &BatchWrite) -> Result<WriteResult, FailureCause> {
    let size = write.value().len();
    if size.saturating_add(write.key().len()) > LARGEST {
        return Err(FailureCause::Refused(StoreError::TooLarge { key: write.key().clone(), size }));
    }
    match write {
        BatchWrite::Append { key, expect, change } => append(connection, key, *expect, change),
        BatchWrite::Put { key, expect: Some(0), value } => create(connection, key, value)?.map_or_else(
            || version_conflict(connection, key),
            |version| Ok(WriteResult { version, needs_compaction: false }),
        ),
        BatchWrite::Put { key, expect, value } => put(connection, key, *expect, value),
        BatchWrite::Remove { key } => remove_range(connection, &[key, &next_key(key)]),
        BatchWrite::RemoveAll { prefix } => {
            remove_range(connection, &[prefix, &PrefixEnd::from_prefix(prefix)])
        }
        BatchWrite::Compact { key, version, snapshot } => compact(connection, key, *version, snapshot),
    }
}

fn append(
    connection: &Connection,
    key: &str,
    expect: u64,
    change: &[u8],
) -> Result<WriteResult, FailureCause> {
    let sql = "UPDATE logs SET version = version + 1, changed = changed + ?3 WHERE key = ?1 AND version = ?2
               RETURNING id, kept, changed";
    let log = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let found = connection
        .prepare_cached(sql)?
        .query_one(params![key, version_to_sql(expect), change.len() + CHANGE_OVERHEAD], log)
        .optional()?;
    let Some((id, kept, changed)): Option<(i64, u64, u64)> = found else {
        return version_conflict(connection, key);
    };
    let version = expect + 1;
    connection
        .prepare_cached("INSERT INTO changes VALUES (?, ?, ?)")?
        .execute(params![id, version, change])?;
    Ok(WriteResult { version, needs_compaction: changed > kept.max(MIN_COMPACTION_BYTES) })
}

/// Creates a key; `None` if it exists.
fn create(connection: &Connection, key: &str, value: &[u8]) -> Result<Option<u64>, FailureCause> {
    let sql = "INSERT INTO logs (key, version, base, kept, changed)
               SELECT ?1, value + 1, value + 1, ?2, 0 FROM counters WHERE name = 'floor'
               ON CONFLICT DO NOTHING RETURNING id, version";
    let log = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let made = connection.prepare_cached(sql)?.query_one(params![key, value.len()], log).optional()?;
    let Some((id, version)): Option<(i64, u64)> = made else { return Ok(None) };
    set_snapshot(connection, id, value)?;
    Ok(Some(version))
}

fn put(
    connection: &Connection,
    key: &str,
    expect: Option<u64>,
    value: &[u8],
) -> Result<WriteResult, FailureCause> {
    let sql = "UPDATE logs SET version = version + 1, base = version + 1, kept = ?3, changed = 0
               WHERE key = ?1 AND version = coalesce(?2, version) RETURNING id, version";
    let log = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let found = connection
        .prepare_cached(sql)?
        .query_one(params![key, expect.map(version_to_sql), value.len()], log)
        .optional()?;
    let version = match (found, expect) {
        (Some((id, version)), _) => {
            connection.prepare_cached("DELETE FROM changes WHERE log = ?")?.execute([id])?;
            set_snapshot(connection, id, value)?;
            Some(version)
        }
        (None, Some(_)) => None,
        (None, None) => create(connection, key, value)?,
    };
    version.map_or_else(
        || version_conflict(connection, key),
        |version| Ok(WriteResult { version, needs_compaction: false }),
    )
}

fn compact(
    connection: &Connection,
    key: &str,
    version: u64,
    snapshot: &[u8],
) -> Result<WriteResult, FailureCause> {
    let sql = "SELECT id, version, base FROM logs WHERE key = ? AND version >= ?";
    let log = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let found =
        connection.prepare_cached(sql)?.query_one(params![key, version_to_sql(version)], log).optional()?;
    let Some((id, last, base)): Option<(i64, u64, u64)> = found else {
        return version_conflict(connection, key);
    };
    if base < version {
        let sql = "DELETE FROM changes WHERE log = ? AND version <= ?";
        connection.prepare_cached(sql)?.execute(params![id, version])?;
        set_snapshot(connection, id, snapshot)?;
        let sql = "UPDATE logs SET base = ?2, kept = ?3, changed =
                   (SELECT coalesce(sum(length(change) + ?4), 0) FROM changes WHERE log = ?1) WHERE id = ?1";
        connection.prepare_cached(sql)?.execute(params![id, version, snapshot.len(), CHANGE_OVERHEAD])?;
    }
    Ok(WriteResult { version: last, needs_compaction: false })
}

/// Removes the keys in a range, from the first bound to before the second.
fn remove_range(connection: &Connection, range: &[&dyn ToSql; 2]) -> Result<WriteResult, FailureCause> {
    let sql = "UPDATE counters SET value =
               max(value, (SELECT coalesce(max(version), 0) FROM logs WHERE key >= ? AND key < ?)) WHERE name = 'floor'";
    connection.prepare_cached(sql)?.execute(&range[..])?;
    for sql in [
        "DELETE FROM changes WHERE log IN (SELECT id FROM logs WHERE key >= ? AND key < ?)",
        "DELETE FROM snapshots WHERE log IN (SELECT id FROM logs WHERE key >= ? AND key < ?)",
        "DELETE FROM logs WHERE key >= ? AND key < ?",
    ] {
        connection.prepare_cached(sql)?.execute(&range[..])?;
    }
    Ok(WriteResult { version: 0, needs_compaction: false })
}

fn set_snapshot(connection: &Connection, id: i64, value: &[u8]) -> Result<(), FailureCause> {
    connection.prepare_cached("REPLACE INTO snapshots VALUES (?, ?)")?.execute(params![id, value])?;
    Ok(())
}

fn version_conflict<T>(connection: &Connection, key: &str) -> Result<T, FailureCause> {
    let mut statement = connection.prepare_cached("SELECT version FROM logs WHERE key = ?")?;
    let version = statement.query_one([key], |row| row.get(0)).optional()?;
    Err(FailureCause::conflict(key, version.unwrap_or(0)))
}

/// Returns a key's log after the version that the caller already has; 0 for the complete log.
pub(crate) fn load(connection: &Connection, key: &str, known: u64) -> Result<Option<KeyLog>, FailureCause> {
    let log = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let mut statement = connection.prepare_cached("SELECT id, version, base FROM logs WHERE key = ?")?;
    let found = statement.query_one([key], log).optional()?;
    let Some((id, version, base)): Option<(i64, u64, u64)> = found else { return Ok(None) };
    let knows_base = (base..=version).contains(&known);
    let snapshot = if knows_base { None } else { Some((base, load_snapshot(connection, id)?)) };
    let from = if knows_base { known } else { base };
    let changes = load_changes(connection, key, id, from..version)?;
    Ok(Some(KeyLog { version, snapshot, changes }))
}

/// Returns the logs of at most `most` keys with a prefix after a key, sorted by key.
pub(crate) fn scan(
    connection: &Connection,
    prefix: &str,
    after: &str,
    most: usize,
) -> Result<Vec<(String, KeyLog)>, FailureCause> {
    let sql = "SELECT key, id, version, base, value FROM logs JOIN snapshots ON log = id
               WHERE key > ? AND key < ? ORDER BY key LIMIT ?";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows =
        statement.query(params![after, PrefixEnd::from_prefix(prefix), version_to_sql(most as u64)])?;
    let mut logs = Vec::new();
    while let Some(row) = rows.next()? {
        let (key, id): (String, i64) = (row.get(0)?, row.get(1)?);
        let (version, base): (u64, u64) = (row.get(2)?, row.get(3)?);
        let snapshot = Some((base, row.get::<_, Vec<u8>>(4)?.into()));
        let changes =
            if version == base { Vec::new() } else { load_changes(connection, &key, id, base..version)? };
        logs.push((key, KeyLog { version, snapshot, changes }));
    }
    Ok(logs)
}

fn load_snapshot(connection: &Connection, id: i64) -> Result<Bytes, FailureCause> {
    let mut statement = connection.prepare_cached("SELECT value FROM snapshots WHERE log = ?")?;
    Ok(statement.query_one([id], |row| row.get::<_, Vec<u8>>(0))?.into())
}

/// Returns the changes after the first version up to the last one. A missing change is an error.
fn load_changes(
    connection: &Connection,
    key: &str,
    id: i64,
    versions: Range<u64>,
) -> Result<Vec<(u64, Bytes)>, FailureCause> {
    let sql = "SELECT version, change FROM changes WHERE log = ? AND version > ? ORDER BY version";
    let mut statement = connection.prepare_cached(sql)?;
    let change = |row: &Row<'_>| Ok((row.get(0)?, Bytes::from(row.get::<_, Vec<u8>>(1)?)));
    let rows = statement.query_map(params![id, versions.start], change)?;
    let changes: Vec<(u64, Bytes)> = rows.collect::<Result<_, _>>()?;
    if !changes.iter().map(|(version, _)| *version).eq(versions.start + 1..=versions.end) {
        return Err(FailureCause::corrupt(&format!("`{key}` lacks changes")));
    }
    Ok(changes)
}

/// Returns the keys with a prefix and their versions, sorted by key.
pub(crate) fn keys(connection: &Connection, prefix: &str) -> Result<Vec<(String, u64)>, FailureCause> {
    let sql = "SELECT key, version FROM logs WHERE key >= ? AND key < ? ORDER BY key";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement
        .query_map(params![prefix, PrefixEnd::from_prefix(prefix)], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Returns the keys with a prefix and the size of their snapshots and changes in bytes, sorted by key.
pub(crate) fn sizes(connection: &Connection, prefix: &str) -> Result<Vec<(String, u64)>, FailureCause> {
    let sql = "SELECT key, kept + changed FROM logs WHERE key >= ? AND key < ? ORDER BY key";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement
        .query_map(params![prefix, PrefixEnd::from_prefix(prefix)], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Converts a version to SQLite's integer type. The maximum is never reached in practice.
fn version_to_sql(version: u64) -> i64 {
    i64::try_from(version).unwrap_or(i64::MAX)
}

/// Returns the first text after a key in sort order.
fn next_key(key: &str) -> String {
    format!("{key}\0")
}

/// The upper bound of the keys with a prefix.
enum PrefixEnd {
    Before(String),
    /// There is no upper bound.
    Unbounded,
}

impl PrefixEnd {
    /// Returns the prefix with its last character incremented. Characters without a successor are removed.
    fn from_prefix(prefix: &str) -> Self {
        let mut end = prefix.to_owned();
        while let Some(last) = end.pop() {
            if let Some(next) = (last..=char::MAX).nth(1) {
                end.push(next);
                return Self::Before(end);
            }
        }
        Self::Unbounded
    }
}

impl ToSql for PrefixEnd {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match self {
            Self::Before(end) => end.to_sql(),
            // Blobs sort after all texts.
            Self::Unbounded => Ok(Vec::new().into()),
        }
    }
}
