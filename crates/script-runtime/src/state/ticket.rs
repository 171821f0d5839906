//! The permission of a run to read or write a group's cells, and the frames that its worker needs for them.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use super::cell::Cell;
use super::commit::Durable;
use super::error::Error;
use super::group::Group;
use super::held::Held;
use super::workers::Frame;

/// The run's cells.
#[derive(Debug)]
struct View {
    group: Arc<Group>,
    /// The keys by slot.
    keys: Vec<Arc<str>>,
    ids: Vec<u32>,
    version: u64,
    durable: u64,
}

/// The permission to read the last durable version for the duration of the run.
#[derive(Debug)]
pub struct ReadTicket(View);

/// The permission to write. Dropping it without a commit has no effect on the state.
#[derive(Debug)]
pub struct WriteTicket {
    view: View,
    generation: u64,
    planned: Vec<usize>,
    held: Held,
    /// Passed on to the next writer when the ticket is dropped.
    permit: Option<OwnedSemaphorePermit>,
}

impl View {
    /// Captures the current version of the group, before the run is sent.
    fn look(&mut self, is_writer: bool) -> u64 {
        let mut inner = self.group.lock();
        self.durable = inner.durable;
        self.version = if is_writer { inner.finished } else { inner.durable };
        let shared = &self.group.home.shared;
        let version = inner.durable;
        let cells = &mut inner.cells;
        self.ids = (self.keys.iter())
            .map(|key| {
                cells.entry(Arc::clone(key)).or_insert_with(|| Cell::missing(shared.cell_id(), version)).id
            })
            .collect();
        inner.generation
    }

    fn ship(&self, worker: u32) -> Vec<Frame> {
        let inner = self.group.lock();
        self.group.home.shared.workers.ship(worker, |worker, frames| {
            for cell in self.keys.iter().filter_map(|key| inner.cells.get(key)) {
                let has = worker.cells.get(&cell.id).copied();
                worker.cells.insert(cell.id, cell.ship(has, self.version, frames));
            }
        })
    }
}

impl ReadTicket {
    pub(crate) fn new(group: Arc<Group>, keys: Vec<Arc<str>>) -> Self {
        let mut view = View { group, keys, ids: Vec::new(), version: 0, durable: 0 };
        view.look(false);
        Self(view)
    }

    /// The version that the run reads. Shipping may increase it.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.0.version
    }

    /// The last durable version.
    #[must_use]
    pub fn durable(&self) -> u64 {
        self.0.durable
    }

    /// The workers' numbers of the cells, in the order of the slots. Shipping may change them.
    #[must_use]
    pub fn cells(&self) -> &[u32] {
        &self.0.ids
    }

    /// Returns the frames that the worker must receive before the run. The run reads the version that is
    /// durable at this time.
    pub fn ship(&mut self, worker: u32) -> Vec<Frame> {
        self.0.look(false);
        self.0.ship(worker)
    }
}

impl WriteTicket {
    pub(crate) fn new(
        group: Arc<Group>,
        keys: Vec<Arc<str>>,
        planned: Vec<usize>,
        permit: OwnedSemaphorePermit,
        held: &Held,
        at: &str,
    ) -> Self {
        group.lock().writer = at.into();
        let held = held.with(Arc::clone(&group), at);
        let mut view = View { group, keys, ids: Vec::new(), version: 0, durable: 0 };
        let generation = view.look(true);
        Self { view, generation, planned, held, permit: Some(permit) }
    }

    /// The version that the run builds on. It writes the next one.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.view.version
    }

    /// The last durable version.
    #[must_use]
    pub fn durable(&self) -> u64 {
        self.view.durable
    }

    /// The workers' numbers of the cells, in the order of the slots. Shipping may change them.
    #[must_use]
    pub fn cells(&self) -> &[u32] {
        &self.view.ids
    }

    /// The cells' indices in the plan, in the order of the slots.
    #[must_use]
    pub fn planned(&self) -> &[usize] {
        &self.planned
    }

    /// The groups that the run and its callers hold, for the calls that the run makes.
    #[must_use]
    pub fn held(&self) -> Held {
        self.held.clone()
    }

    /// Returns the frames that the worker must receive before the run.
    pub fn ship(&mut self, worker: u32) -> Vec<Frame> {
        self.generation = self.view.look(true);
        self.view.ship(worker)
    }

    /// Applies a change set, and passes the slot on.
    ///
    /// # Errors
    /// If the change set is invalid, or a commit that it is based on failed. It then has no effect.
    pub fn commit(self, worker: u32, changes: &[u8]) -> Result<Durable, Error> {
        self.view.group.commit(&self.view.keys, self.generation, worker, changes, None)
    }

    /// Applies a change set, and removes the instance at `path` in the same commit. The slot is passed on
    /// when that is durable.
    ///
    /// # Errors
    /// As for [`WriteTicket::commit`].
    pub fn commit_and_remove(mut self, worker: u32, changes: &[u8], path: &str) -> Result<Durable, Error> {
        let removes = self.permit.take().map(|permit| (path.into(), permit));
        self.view.group.commit(&self.view.keys, self.generation, worker, changes, removes)
    }
}

impl Drop for WriteTicket {
    fn drop(&mut self) {
        self.held.let_go();
    }
}
