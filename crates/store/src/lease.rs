//! Leases: a time-limited right to write, with a fence number that exposes writes of a former holder.
//!
//! Leases expire by the system clock, but safety depends on the fence alone: numbers only increase, and a
//! batch with an older one is refused. A clock that is set forward ends leases early, and so does one that is
//! set back, because a lease from the future counts as expired. Both cost only a retry.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::error::{FailureCause, StoreError};

/// The time in milliseconds after which an expired lease is deleted.
const EXPIRED_RETENTION_MILLIS: i64 = 24 * 60 * 60 * 1000;

/// A time-limited right to write under a name. [`Store::renew`](crate::Store::renew) extends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteLease {
    /// The name of the lease.
    pub name: Arc<str>,
    /// The fence number, which is larger than those of all earlier leases.
    pub fence: u64,
}

pub(crate) fn acquire(
    connection: &Connection,
    name: &Arc<str>,
    holder: &str,
    time: Duration,
) -> Result<WriteLease, FailureCause> {
    let (now, until) = now_and_deadline(time);
    let sql = "SELECT holder, until - ?3 FROM leases WHERE name = ?1 AND holder <> ?2 AND since <= ?3 AND until > ?3";
    let other = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let taken = connection.prepare_cached(sql)?.query_one(params![name, holder, now], other).optional()?;
    if let Some((holder, left)) = taken {
        let left = Duration::from_millis(left);
        return Err(FailureCause::Refused(StoreError::LeaseTaken { name: Arc::clone(name), holder, left }));
    }
    let sql = "UPDATE counters SET value = value + 1 WHERE name = 'fence' RETURNING value";
    let fence = connection.prepare_cached(sql)?.query_one([], |row| row.get(0))?;
    let sql = "REPLACE INTO leases VALUES (?, ?, ?, ?, ?)";
    connection.prepare_cached(sql)?.execute(params![name, holder, fence, now, until])?;
    Ok(WriteLease { name: Arc::clone(name), fence })
}

pub(crate) fn renew(connection: &Connection, lease: &WriteLease, time: Duration) -> Result<(), FailureCause> {
    let (now, until) = now_and_deadline(time);
    let sql = "UPDATE leases SET since = ?3, until = ?4 WHERE name = ?1 AND fence = ?2";
    let renewed = connection.prepare_cached(sql)?.execute(params![lease.name, lease.fence, now, until])?;
    if renewed == 1 { Ok(()) } else { Err(FailureCause::lease_lost(&lease.name)) }
}

pub(crate) fn release(connection: &Connection, lease: &WriteLease) -> Result<(), FailureCause> {
    let sql = "DELETE FROM leases WHERE name = ? AND fence = ?";
    connection.prepare_cached(sql)?.execute(params![lease.name, lease.fence])?;
    Ok(())
}

/// Fails unless the lease is the newest of its name. An expired lease that was not taken by another holder is
/// valid.
pub(crate) fn check_fence(connection: &Connection, lease: &WriteLease) -> Result<(), FailureCause> {
    let mut statement = connection.prepare_cached("SELECT 1 FROM leases WHERE name = ? AND fence = ?")?;
    if statement.exists(params![lease.name, lease.fence])? {
        Ok(())
    } else {
        Err(FailureCause::lease_lost(&lease.name))
    }
}

/// Deletes expired leases, which would otherwise accumulate when processes end.
pub(crate) fn delete_expired(connection: &Connection) -> Result<(), FailureCause> {
    let (now, _) = now_and_deadline(Duration::ZERO);
    connection.execute("DELETE FROM leases WHERE until + ?2 <= ?1", [now, EXPIRED_RETENTION_MILLIS])?;
    Ok(())
}

/// Returns the current time and the time after a period, in milliseconds since 1970.
fn now_and_deadline(time: Duration) -> (i64, i64) {
    let milliseconds = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    let now = milliseconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
    (now, now.saturating_add(milliseconds(time)))
}
