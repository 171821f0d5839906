//! What is committed: writes that are kept all together or not at all.

use std::sync::Arc;

use bytes::Bytes;

use crate::Lease;

/// Writes that are kept together or not at all, in their order.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub(crate) fence: Option<Lease>,
    pub(crate) writes: Vec<Write>,
}

#[derive(Clone, Debug)]
pub(crate) enum Write {
    /// `expect` is the version before.
    Append {
        key: Arc<str>,
        expect: u64,
        change: Bytes,
    },
    /// As a snapshot; `expect` is the version before, 0 where there must be none, `None` where it does not matter.
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

/// What a write left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The key's version now, 0 for what was removed.
    pub version: u64,
    /// Whether the changes outweigh the snapshot, so that [`Batch::compact`] pays. If each one that is told is followed by
    /// one, then a change costs about twice its own size over time, however large the state is.
    pub compact: bool,
}

impl Batch {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Refused with [`LeaseLost`](crate::Error::LeaseLost) unless this is the newest lease of its name.
    #[must_use]
    pub fn fenced(mut self, lease: &Lease) -> Self {
        self.fence = Some(lease.clone());
        self
    }

    /// Makes a key. It must not be there.
    #[must_use]
    pub fn create(self, key: impl Into<Arc<str>>, value: impl Into<Bytes>) -> Self {
        self.with(Write::Put { key: key.into(), expect: Some(0), value: value.into() })
    }

    /// Adds a change to a key that is at version `expect`, and then at the next.
    #[must_use]
    pub fn append(self, key: impl Into<Arc<str>>, expect: u64, change: impl Into<Bytes>) -> Self {
        self.with(Write::Append { key: key.into(), expect, change: change.into() })
    }

    /// Puts a snapshot in the place of all that there was of a key that is at version `expect`, and then at the next.
    #[must_use]
    pub fn replace(self, key: impl Into<Arc<str>>, expect: u64, value: impl Into<Bytes>) -> Self {
        self.with(Write::Put { key: key.into(), expect: Some(expect), value: value.into() })
    }

    /// Puts a snapshot in the place of whatever was there, or makes the key.
    #[must_use]
    pub fn put(self, key: impl Into<Arc<str>>, value: impl Into<Bytes>) -> Self {
        self.with(Write::Put { key: key.into(), expect: None, value: value.into() })
    }

    /// Removes a key, if it is there.
    #[must_use]
    pub fn remove(self, key: impl Into<Arc<str>>) -> Self {
        self.with(Write::Remove { key: key.into() })
    }

    /// Removes all keys that begin so. Let the prefix end with what separates the parts of your keys.
    #[must_use]
    pub fn remove_all(self, prefix: impl Into<Arc<str>>) -> Self {
        self.with(Write::RemoveAll { prefix: prefix.into() })
    }

    /// Puts a snapshot of `version` in the place of all up to there; changes after it stay, and so does the key's version.
    /// Where an equal or newer snapshot is there already, nothing is done. It needs no fence: what a version is
    /// never changes.
    #[must_use]
    pub fn compact(self, key: impl Into<Arc<str>>, version: u64, snapshot: impl Into<Bytes>) -> Self {
        self.with(Write::Compact { key: key.into(), version, snapshot: snapshot.into() })
    }

    /// About how much memory it takes.
    pub(crate) fn size(&self) -> usize {
        self.writes.iter().map(|write| write.key().len() + write.value().len()).sum()
    }

    fn with(mut self, write: Write) -> Self {
        self.writes.push(write);
        self
    }
}

impl Write {
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
