//! The atomic batches of writes.

use std::sync::Arc;

use bytes::Bytes;

use crate::lease::WriteLease;

/// Writes that are committed atomically and in order.
#[derive(Clone, Debug, Default)]
pub struct WriteBatch {
    pub(crate) fence: Option<WriteLease>,
    pub(crate) writes: Vec<BatchWrite>,
}

#[derive(Clone, Debug)]
pub(crate) enum BatchWrite {
    /// Appends a change. `expect` is the version before.
    Append {
        key: Arc<str>,
        expect: u64,
        change: Bytes,
    },
    /// Writes a snapshot. `expect` is the version before, 0 if the key must not exist, `None` if the version
    /// does not matter.
    Put {
        key: Arc<str>,
        expect: Option<u64>,
        value: Bytes,
    },
    Remove {
        key: Arc<str>,
    },
    RemoveAll {
        prefix: Arc<str>,
    },
    Compact {
        key: Arc<str>,
        version: u64,
        snapshot: Bytes,
    },
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteResult {
    /// The new version of the key; 0 after a removal.
    pub version: u64,
    /// Whether the changes outweigh the snapshot, so that [`WriteBatch::compact`] is worthwhile. If each such
    /// result is followed by a compaction, a change costs about twice its own size on average, however large
    /// the state is.
    pub needs_compaction: bool,
}

impl WriteBatch {
    /// Creates an empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the batch fail with [`LeaseLost`](crate::StoreError::LeaseLost) unless this is the newest lease
    /// of its name.
    #[must_use]
    pub fn with_fence(mut self, lease: &WriteLease) -> Self {
        self.fence = Some(lease.clone());
        self
    }

    /// Creates a key, which must not exist.
    #[must_use]
    pub fn create(self, key: impl Into<Arc<str>>, value: impl Into<Bytes>) -> Self {
        self.push_write(BatchWrite::Put { key: key.into(), expect: Some(0), value: value.into() })
    }

    /// Appends a change to a key at version `expect`. The version increases by one.
    #[must_use]
    pub fn append(self, key: impl Into<Arc<str>>, expect: u64, change: impl Into<Bytes>) -> Self {
        self.push_write(BatchWrite::Append { key: key.into(), expect, change: change.into() })
    }

    /// Replaces the whole log of a key at version `expect` by a snapshot. The version increases by one.
    #[must_use]
    pub fn replace(self, key: impl Into<Arc<str>>, expect: u64, value: impl Into<Bytes>) -> Self {
        self.push_write(BatchWrite::Put { key: key.into(), expect: Some(expect), value: value.into() })
    }

    /// Replaces the whole log of a key by a snapshot, or creates the key.
    #[must_use]
    pub fn put(self, key: impl Into<Arc<str>>, value: impl Into<Bytes>) -> Self {
        self.push_write(BatchWrite::Put { key: key.into(), expect: None, value: value.into() })
    }

    /// Removes a key if it exists.
    #[must_use]
    pub fn remove(self, key: impl Into<Arc<str>>) -> Self {
        self.push_write(BatchWrite::Remove { key: key.into() })
    }

    /// Removes all keys with a prefix. End the prefix with the separator of your keys.
    #[must_use]
    pub fn remove_all(self, prefix: impl Into<Arc<str>>) -> Self {
        self.push_write(BatchWrite::RemoveAll { prefix: prefix.into() })
    }

    /// Replaces the log up to `version` by a snapshot of that version. Later changes and the key's version
    /// stay. If there is already an equal or newer snapshot, nothing is done. No fence is necessary, because
    /// the value at a version never changes.
    #[must_use]
    pub fn compact(self, key: impl Into<Arc<str>>, version: u64, snapshot: impl Into<Bytes>) -> Self {
        self.push_write(BatchWrite::Compact { key: key.into(), version, snapshot: snapshot.into() })
    }

    /// Returns the approximate memory size in bytes.
    pub(crate) fn approximate_size(&self) -> usize {
        self.writes.iter().map(|write| write.key().len() + write.value().len()).sum()
    }

    fn push_write(mut self, write: BatchWrite) -> Self {
        self.writes.push(write);
        self
    }
}

impl BatchWrite {
    pub(crate) fn key(&self) -> &Arc<str> {
        match self {
            Self::Append { key, .. }
            | Self::Put { key, .. }
            | Self::Remove { key }
            | Self::RemoveAll { prefix: key }
            | Self::Compact { key, .. } => key,
        }
    }

    pub(crate) fn value(&self) -> &[u8] {
        match self {
            Self::Append { change: value, .. }
            | Self::Put { value, .. }
            | Self::Compact { snapshot: value, .. } => value,
            Self::Remove { .. } | Self::RemoveAll { .. } => &[],
        }
    }
}
