//! The limits of a store, which its errors report.

use std::time::Duration;

/// The maximum size in bytes of a key and its value together. SQLite's own limit is near 1 GB.
pub const LARGEST: usize = 512 << 20;

/// The maximum time that another process may keep the file locked. Gateways lock it for milliseconds.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
