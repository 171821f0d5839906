//! The copies of state in each worker: only differences are sent, and obsolete copies are discarded.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use crate::frame::LARGE_PAYLOAD;

/// A message to a worker that precedes a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrecedingFrame {
    /// The whole value of a cell.
    FullValue {
        /// The cell.
        cell: u32,
        /// The resulting version.
        version: u64,
        /// JSON text.
        value: Bytes,
    },
    /// Changes of a cell.
    Changes {
        /// The cell.
        cell: u32,
        /// The resulting version.
        version: u64,
        /// The change sets, in order.
        changes: Vec<Bytes>,
    },
    /// A cell without a value.
    Unset {
        /// The cell.
        cell: u32,
        /// The resulting version.
        version: u64,
    },
    /// A dynamic instance.
    Instance {
        /// The instance's number.
        id: u32,
        /// JSON text.
        captures: Bytes,
    },
    /// An object that will not be referred to again. Runs that use it continue with their copy.
    Discard {
        /// The kind of the object.
        kind: DiscardedKind,
        /// The object's number.
        id: u32,
    },
}

/// The kind of a discarded object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DiscardedKind {
    /// A cell.
    Cell,
    /// A dynamic instance.
    Instance,
}

/// The number of changes that are sent to a worker at once, and the number of their bytes that are copied.
const MAX_CHANGES: usize = 512;
const MAX_COPIED: usize = 64 << 10;
/// The number of discarded objects that are sent to a worker at once.
const MAX_DISCARDED: usize = 512;

/// The room for changes that are sent to a worker at once: more of them take too long for the group's lock.
#[derive(Debug)]
pub(crate) struct ShipmentRoom {
    remaining_changes: usize,
    remaining_bytes: usize,
    /// Whether something did not fit.
    pub(crate) is_partial: bool,
}

impl ShipmentRoom {
    pub(crate) fn new() -> Self {
        Self { remaining_changes: MAX_CHANGES, remaining_bytes: MAX_COPIED, is_partial: false }
    }

    /// Takes the room for a change; returns `false` if it does not fit.
    pub(crate) fn try_take(&mut self, text: &Bytes) -> bool {
        // Large texts are not copied.
        let copied = if text.len() < LARGE_PAYLOAD { text.len() } else { 0 };
        match (self.remaining_changes.checked_sub(1), self.remaining_bytes.checked_sub(copied)) {
            (Some(changes), Some(copied)) => {
                (self.remaining_changes, self.remaining_bytes) = (changes, copied);
                true
            }
            _ => {
                self.is_partial = true;
                false
            }
        }
    }
}

/// All workers.
#[derive(Debug, Default)]
pub(crate) struct WorkerReplicas(Mutex<HashMap<u32, WorkerCopies>>);

/// The copies in a worker.
#[derive(Debug, Default)]
pub(crate) struct WorkerCopies {
    /// The version of each cell.
    pub(crate) cells: HashMap<u32, u64>,
    pub(crate) instances: HashSet<u32>,
    /// Discarded objects that are not sent to the worker yet.
    pending_discards: BTreeSet<(DiscardedKind, u32)>,
}

impl WorkerCopies {
    /// Returns the version of a cell's copy. Without one the cell is sent again, so it is not discarded
    /// later.
    pub(crate) fn copy_version(&mut self, cell: u32) -> Option<u64> {
        let has = self.cells.get(&cell).copied();
        if has.is_none() {
            self.pending_discards.remove(&(DiscardedKind::Cell, cell));
        }
        has
    }
}

impl WorkerReplicas {
    /// Collects the frames that a worker must receive.
    pub(crate) fn collect_frames(
        &self,
        worker: u32,
        fill: impl FnOnce(&mut WorkerCopies, &mut Vec<PrecedingFrame>),
    ) -> Vec<PrecedingFrame> {
        let mut workers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let worker = workers.entry(worker).or_default();
        let forgotten = std::iter::from_fn(|| worker.pending_discards.pop_first()).take(MAX_DISCARDED);
        let mut frames = forgotten.map(|(what, id)| PrecedingFrame::Discard { kind: what, id }).collect();
        fill(worker, &mut frames);
        frames
    }

    /// Records that the worker's own write produced `version` of these cells, except for those whose copies
    /// were discarded meanwhile.
    pub(crate) fn record_write(&self, worker: u32, cells: &[u32], version: u64) {
        let mut workers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(worker) = workers.get_mut(&worker) {
            for cell in cells {
                if let Some(known) = worker.cells.get_mut(cell) {
                    *known = version;
                }
            }
        }
    }

    pub(crate) fn discard(&self, kind: DiscardedKind, ids: &[u32]) {
        let mut workers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for worker in workers.values_mut() {
            for id in ids {
                let had = match kind {
                    DiscardedKind::Cell => worker.cells.remove(id).is_some(),
                    DiscardedKind::Instance => worker.instances.remove(id),
                };
                if had {
                    worker.pending_discards.insert((kind, *id));
                }
            }
        }
    }

    pub(crate) fn remove_worker(&self, worker: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&worker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_discarded_copies_are_sent_in_parts() {
        let (workers, ids) = (WorkerReplicas::default(), Vec::from_iter(0..1500));
        workers.collect_frames(1, |worker, _| worker.cells.extend(ids.iter().map(|id| (*id, 1))));
        workers.discard(DiscardedKind::Cell, &ids);
        let mut frames = workers.collect_frames(1, |worker, _| {
            assert_eq!(worker.copy_version(1499), None, "it is sent again");
            worker.cells.insert(1499, 2);
        });
        assert_eq!(frames.len(), MAX_DISCARDED);
        for _ in 0..2 {
            frames.extend(workers.collect_frames(1, |_, _| {}));
        }
        let forgotten = (0..1499).map(|id| PrecedingFrame::Discard { kind: DiscardedKind::Cell, id });
        assert_eq!(frames, Vec::from_iter(forgotten));
        assert!(workers.collect_frames(1, |_, _| {}).is_empty());
    }
}
