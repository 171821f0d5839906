//! What each worker has been sent, so that nothing is sent twice, and what it may forget.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

/// What goes to a worker before a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A cell's whole value.
    Whole {
        /// The cell.
        cell: u32,
        /// What version it is then.
        version: u64,
        /// JSON text.
        value: Bytes,
    },
    /// What changed in a cell.
    Changes {
        /// The cell.
        cell: u32,
        /// What version it is then.
        version: u64,
        /// A JSON array of change sets.
        changes: Bytes,
    },
    /// A cell that has no value.
    Unset {
        /// The cell.
        cell: u32,
        /// What version it is then.
        version: u64,
    },
    /// A dynamic instance.
    Instance {
        /// Its number.
        id: u32,
        /// JSON text.
        captures: Bytes,
    },
    /// Something that will not be named again. Runs that use it go on with what they have.
    Forget {
        /// What.
        what: Forget,
        /// Its number.
        id: u32,
    },
}

/// What is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Forget {
    /// A cell.
    Cell,
    /// A dynamic instance.
    Instance,
}

/// All workers.
#[derive(Debug, Default)]
pub(crate) struct Workers(Mutex<HashMap<u32, Worker>>);

/// What one has.
#[derive(Debug, Default)]
pub(crate) struct Worker {
    /// The last version of each cell.
    pub(crate) cells: HashMap<u32, u64>,
    pub(crate) instances: HashSet<u32>,
    forgotten: Vec<Frame>,
}

impl Workers {
    /// Collects what a worker is to be sent.
    pub(crate) fn ship(&self, worker: u32, fill: impl FnOnce(&mut Worker, &mut Vec<Frame>)) -> Vec<Frame> {
        let mut workers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let worker = workers.entry(worker).or_default();
        let mut frames = std::mem::take(&mut worker.forgotten);
        fill(worker, &mut frames);
        frames
    }

    /// The worker itself made these cells what they are at `version`.
    pub(crate) fn wrote(&self, worker: u32, cells: &[u32], version: u64) {
        let mut workers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(worker) = workers.get_mut(&worker) {
            worker.cells.extend(cells.iter().map(|cell| (*cell, version)));
        }
    }

    pub(crate) fn forget(&self, what: Forget, ids: &[u32]) {
        let mut workers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for worker in workers.values_mut() {
            for id in ids {
                let had = match what {
                    Forget::Cell => worker.cells.remove(id).is_some(),
                    Forget::Instance => worker.instances.remove(id),
                };
                if had {
                    worker.forgotten.push(Frame::Forget { what, id: *id });
                }
            }
        }
    }

    pub(crate) fn gone(&self, worker: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&worker);
    }
}
