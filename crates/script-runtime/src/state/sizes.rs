//! Accounting of a service's state: the size of each key and its value, and their sum.
//!
//! Every cell and every declaration of a dynamic resource counts, loaded or not. All declarations are in
//! memory and are counted with their memory. At the start, the store provides the length of each key's log,
//! which is never less than that of its value; once a cell is loaded, its exact size counts. A size is always
//! set rather than added, so that the sum does not drift when the store refuses a commit or another gateway
//! writes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound::{Included, Unbounded};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The overhead in bytes of each entry besides its key and value.
const ENTRY_OVERHEAD: u64 = 64;

/// The sizes of a service's keys and values, and their sum.
#[derive(Debug, Default)]
pub(crate) struct StateSizes(Mutex<ValueSizes>);

#[derive(Debug, Default)]
struct ValueSizes {
    by_key: BTreeMap<Arc<str>, u64>,
    total: u64,
    /// Bytes of declarations that are not stored yet.
    reserved: u64,
}

/// The reserved space of a declaration, until it is stored or given up.
#[derive(Debug)]
pub(crate) struct SizeReservation<'a> {
    sizes: &'a StateSizes,
    bytes: u64,
}

/// The state would exceed its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateTooLarge {
    /// The size of the state including the refused write.
    pub(crate) size: u64,
}

/// Returns the size of an entry: a key, and a value of this length.
pub(crate) fn entry_size(key: &str, value: usize) -> u64 {
    ENTRY_OVERHEAD + key.len() as u64 + value as u64
}

impl StateSizes {
    fn lock(&self) -> MutexGuard<'_, ValueSizes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The size of the whole state.
    #[cfg(test)]
    pub(crate) fn total(&self) -> u64 {
        self.lock().total
    }

    /// Sets the sizes from the store: each key with the length of its log.
    pub(crate) fn load(&self, logs: Vec<(String, u64)>) {
        let mut sizes = self.lock();
        for (key, bytes) in logs {
            let size = ENTRY_OVERHEAD + key.len() as u64 + bytes;
            sizes.set_size(&key.into(), size);
        }
    }

    /// Sets the sizes of the entries that a commit writes. A commit that grows the state above `most` is
    /// refused without an effect; any other commit is accepted.
    pub(crate) fn apply_commit<'k>(
        &self,
        most: u64,
        written: impl Iterator<Item = (&'k Arc<str>, u64)> + Clone,
    ) -> Result<(), StateTooLarge> {
        let mut sizes = self.lock();
        let (mut added, mut removed) = (0, 0);
        for (key, size) in written.clone() {
            added += size;
            removed += sizes.by_key.get(key).copied().unwrap_or_default();
        }
        let size = (sizes.total + sizes.reserved + added).saturating_sub(removed);
        if added > removed && size > most {
            return Err(StateTooLarge { size });
        }
        written.for_each(|(key, size)| sizes.set_size(key, size));
        Ok(())
    }

    /// Reserves space, if it fits below `most`.
    pub(crate) fn reserve(&self, most: u64, bytes: u64) -> Result<SizeReservation<'_>, StateTooLarge> {
        let mut sizes = self.lock();
        let size = sizes.total + sizes.reserved + bytes;
        if size > most {
            return Err(StateTooLarge { size });
        }
        sizes.reserved += bytes;
        Ok(SizeReservation { sizes: self, bytes })
    }

    /// Sets the size of a key.
    pub(crate) fn set_size(&self, key: &Arc<str>, size: u64) {
        self.lock().set_size(key, size);
    }

    /// Removes a key.
    pub(crate) fn remove(&self, key: &str) {
        self.lock().remove(key);
    }

    /// Removes all keys with this prefix.
    pub(crate) fn remove_all(&self, prefix: &str) {
        let mut sizes = self.lock();
        let from = sizes.by_key.range::<str, _>((Included(prefix), Unbounded));
        let keys: Vec<Arc<str>> =
            from.map(|(key, _)| key).take_while(|key| key.starts_with(prefix)).map(Arc::clone).collect();
        keys.iter().for_each(|key| sizes.remove(key));
    }
}

impl ValueSizes {
    fn set_size(&mut self, key: &Arc<str>, size: u64) {
        let was = match self.by_key.entry(Arc::clone(key)) {
            Entry::Occupied(mut known) => known.insert(size),
            Entry::Vacant(place) => {
                place.insert(size);
                0
            }
        };
        self.total = (self.total + size).saturating_sub(was);
    }

    fn remove(&mut self, key: &str) {
        let was = self.by_key.remove(key).unwrap_or_default();
        self.total = self.total.saturating_sub(was);
    }
}

impl Drop for SizeReservation<'_> {
    fn drop(&mut self) {
        self.sizes.lock().reserved -= self.bytes;
    }
}
