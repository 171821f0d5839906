//! The right of a run to read or write a group's cells, and what its worker has to be sent for that.

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
    /// By slot.
    keys: Vec<Arc<str>>,
    ids: Vec<u32>,
    version: u64,
    durable: u64,
}

/// The right to read the last durable version, as long as the run goes on.
#[derive(Debug)]
pub struct ReadTicket(View);

/// The right to write. Dropped, nothing happened.
#[derive(Debug)]
pub struct WriteTicket {
    view: View,
    generation: u64,
    planned: Vec<usize>,
    held: Held,
    /// Given on when the ticket ends.
    permit: Option<OwnedSemaphorePermit>,
}

impl View {
    /// Looks at the group as it is now, before the run is sent.
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

    /// The version that the run reads. Shipping may make it a later one.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.0.version
    }

    /// The last durable version.
    #[must_use]
    pub fn durable(&self) -> u64 {
        self.0.durable
    }

    /// What the worker knows the cells by, in the order of the slots. Shipping may change them.
    #[must_use]
    pub fn cells(&self) -> &[u32] {
        &self.0.ids
    }

    /// What the worker has to be sent before the run, which reads the version that is the last durable one now.
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

    /// What the worker knows the cells by, in the order of the slots. Shipping may change them.
    #[must_use]
    pub fn cells(&self) -> &[u32] {
        &self.view.ids
    }

    /// The cells' indices in the plan, in the order of the slots.
    #[must_use]
    pub fn planned(&self) -> &[usize] {
        &self.planned
    }

    /// The groups that the run and its callers hold, for the calls that it makes.
    #[must_use]
    pub fn held(&self) -> Held {
        self.held.clone()
    }

    /// What the worker has to be sent before the run.
    pub fn ship(&mut self, worker: u32) -> Vec<Frame> {
        self.generation = self.view.look(true);
        self.view.ship(worker)
    }

    /// Makes a change set, and gives the slot on.
    ///
    /// # Errors
    /// When it does not fit, or what it was built on was not kept. Then nothing happened.
    pub fn commit(self, worker: u32, changes: &[u8]) -> Result<Durable, Error> {
        self.view.group.commit(&self.view.keys, self.generation, worker, changes, None)
    }

    /// Makes a change set, and removes the instance at `path` with it. The slot is given on when that is durable.
    ///
    /// # Errors
    /// As [`WriteTicket::commit`].
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
