//! The permission of a run to read or write a group's cells, and the frames that its worker needs for them.

use std::sync::Arc;

use bytes::Bytes;
use offload::QuotaKey;
use services::UnfinishedResponse;
use tokio::sync::OwnedSemaphorePermit;

use super::cell::{MAX_LOCKED_TEXT, StateCell};
use super::error::StateError;
use super::groups::commit::{DurableCommit, InstanceRemoval};
use super::groups::group::{CellGroup, CellGroupInner};
use super::groups::held_locks::HeldLocks;
use super::tree::WorkAllowance;
use super::workers::{PrecedingFrame, ShipmentRoom};
use crate::work::spawn;

/// The run's cells.
#[derive(Debug)]
struct CellView {
    group: Arc<CellGroup>,
    /// The keys by slot.
    keys: Vec<Arc<str>>,
    ids: Vec<u32>,
    version: u64,
    durable: u64,
    is_behind: bool,
}

/// The permission to read the last durable version for the duration of the run.
#[derive(Debug)]
pub struct ReadTicket(CellView);

/// The permission to write. Dropping it without a commit has no effect on the state.
#[derive(Debug)]
pub struct WriteTicket {
    view: CellView,
    generation: u64,
    planned: Vec<usize>,
    held_locks: HeldLocks,
    /// Whether a worker may have completed the run.
    is_started: bool,
    /// Passed on to the next writer when the ticket is dropped.
    permit: Option<OwnedSemaphorePermit>,
}

impl CellView {
    fn new(group: Arc<CellGroup>, keys: Vec<Arc<str>>) -> Self {
        Self { group, keys, ids: Vec::new(), version: 0, durable: 0, is_behind: false }
    }

    /// Captures the current version of the group. Returns its generation.
    fn capture(&mut self, is_writer: bool) -> u64 {
        let group = Arc::clone(&self.group);
        self.capture_locked(&mut group.lock(), is_writer)
    }

    fn capture_locked(&mut self, inner: &mut CellGroupInner, is_writer: bool) -> u64 {
        self.durable = inner.durable;
        self.version = if is_writer { inner.finished } else { inner.durable };
        let shared = &self.group.service_groups.shared;
        let version = inner.durable;
        let cells = &mut inner.cells;
        self.ids = (self.keys.iter())
            .map(|key| {
                cells
                    .entry(Arc::clone(key))
                    .or_insert_with(|| Box::new(StateCell::new_missing(shared.next_cell_id(), version)))
                    .id
            })
            .collect();
        inner.generation
    }

    /// Captures the current version of the group, before the run is sent, and collects the frames for it.
    /// Returns the group's generation as well.
    fn collect_frames(&mut self, worker: u32, is_writer: bool) -> (u64, Vec<PrecedingFrame>) {
        let group = Arc::clone(&self.group);
        let mut inner = group.lock();
        let generation = self.capture_locked(&mut inner, is_writer);
        if inner.is_partial {
            self.is_behind = true;
            return (generation, Vec::new());
        }
        let mut shipment = ShipmentRoom::new();
        let frames = group.service_groups.shared.workers.collect_frames(worker, |worker, frames| {
            for cell in self.keys.iter().filter_map(|key| inner.cells.get(key)) {
                let has = worker.copy_version(cell.id);
                worker.cells.insert(cell.id, cell.collect_frames(has, self.version, &mut shipment, frames));
            }
        });
        self.is_behind = shipment.is_partial;
        (generation, frames)
    }
}

impl ReadTicket {
    pub(crate) fn new(group: Arc<CellGroup>, keys: Vec<Arc<str>>) -> Self {
        let mut view = CellView::new(group, keys);
        view.capture(false);
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

    /// Whether the worker needs more frames than the last ones that were shipped.
    #[must_use]
    pub fn has_more_frames(&self) -> bool {
        self.0.is_behind
    }

    /// Returns the frames that the worker must receive before the run, or some of them: see
    /// [`ReadTicket::has_more_frames`]. The run reads the version that is durable at this time.
    pub fn collect_frames(&mut self, worker: u32) -> Vec<PrecedingFrame> {
        self.0.collect_frames(worker, false).1
    }
}

impl WriteTicket {
    pub(crate) fn new(
        group: Arc<CellGroup>,
        keys: Vec<Arc<str>>,
        planned: Vec<usize>,
        permit: OwnedSemaphorePermit,
        locks: &HeldLocks,
        at: &str,
    ) -> Self {
        {
            let mut inner = group.lock();
            inner.writer = at.into();
            inner.writer_keys.clone_from(&keys);
        }
        let held_locks = locks.with_hold(Arc::clone(&group), at);
        let mut view = CellView::new(group, keys);
        let generation = view.capture(true);
        Self { view, generation, planned, held_locks, is_started: false, permit: Some(permit) }
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
    pub fn planned_cells(&self) -> &[usize] {
        &self.planned
    }

    /// The groups that the run and its callers hold, for the calls that the run makes.
    #[must_use]
    pub fn held_locks(&self) -> HeldLocks {
        self.held_locks.clone()
    }

    /// Whether the worker needs more frames than the last ones that were shipped.
    #[must_use]
    pub fn has_more_frames(&self) -> bool {
        self.view.is_behind
    }

    /// Returns the frames that the worker must receive before the run, or some of them: see
    /// [`WriteTicket::has_more_frames`].
    pub fn collect_frames(&mut self, worker: u32) -> Vec<PrecedingFrame> {
        let (generation, frames) = self.view.collect_frames(worker, true);
        self.generation = generation;
        frames
    }

    /// Applies a change set on this thread, however long it takes, and passes the slot on.
    ///
    /// # Errors
    /// If the change set is invalid, or a commit that it is based on failed. It then has no effect.
    pub fn commit(mut self, worker: u32, changes: &[u8]) -> Result<DurableCommit, StateError> {
        self.mark_ended();
        self.try_commit_inline(worker, changes, &mut None, WorkAllowance::UNLIMITED)?
            .ok_or_else(|| UnfinishedResponse.into())
    }

    /// Like [`WriteTicket::commit`], and removes the instance at `path` in the same commit. The slot is
    /// passed on when that is durable.
    ///
    /// # Errors
    /// As for [`WriteTicket::commit`].
    pub fn commit_and_remove(
        mut self,
        worker: u32,
        changes: &[u8],
        path: &str,
    ) -> Result<DurableCommit, StateError> {
        self.mark_ended();
        let mut removes = self.take_removal(path.into());
        self.try_commit_inline(worker, changes, &mut removes, WorkAllowance::UNLIMITED)?
            .ok_or_else(|| UnfinishedResponse.into())
    }

    /// Applies a change set, and removes the instance at the path `removes`, if there is one. If that takes
    /// long, it is done in the pool and charged to the payer. The commit is completed even if this future is
    /// dropped.
    ///
    /// # Errors
    /// As for [`WriteTicket::commit`], or if the pool has too much to do.
    pub async fn commit_offloaded(
        mut self,
        worker: u32,
        changes: Bytes,
        removes: Option<Arc<str>>,
        payer: QuotaKey,
    ) -> Result<DurableCommit, StateError> {
        self.mark_ended();
        let mut removes = removes.and_then(|path| self.take_removal(path));
        if changes.len() <= MAX_LOCKED_TEXT
            && let Some(durable) =
                self.try_commit_inline(worker, &changes, &mut removes, WorkAllowance::SERVING_LIMIT)?
        {
            return Ok(durable);
        }
        let task = spawn(async move {
            let CellView { group, keys, .. } = &self.view;
            let commit = group.commit_long(keys, self.generation, worker, changes, removes, payer).await;
            drop(self);
            commit
        });
        task.await.unwrap_or_else(|_| Err(UnfinishedResponse.into()))
    }

    fn try_commit_inline(
        &self,
        worker: u32,
        changes: &[u8],
        removes: &mut Option<InstanceRemoval>,
        effort: usize,
    ) -> Result<Option<DurableCommit>, StateError> {
        let CellView { group, keys, .. } = &self.view;
        group.commit(keys, self.generation, worker, changes, removes, &mut WorkAllowance::new(effort))
    }

    /// Returns the removal of an instance, which keeps the slot.
    fn take_removal(&mut self, path: Arc<str>) -> Option<InstanceRemoval> {
        self.permit.take().map(|permit| (path, permit))
    }

    /// Records that a worker got the run: until [`WriteTicket::mark_ended`] or a commit, dropping the ticket
    /// is like [`WriteTicket::abandon`].
    pub(crate) fn mark_started(&mut self) {
        self.is_started = true;
    }

    /// Records that the worker has rolled the run back, or is lost.
    pub(crate) fn mark_ended(&mut self) {
        self.is_started = false;
    }

    /// Passes the slot on without a commit, although the worker may have completed the run: its copies are
    /// not used any more.
    pub(crate) fn abandon(mut self) {
        self.mark_started();
    }
}

impl Drop for WriteTicket {
    fn drop(&mut self) {
        if self.is_started {
            self.view.group.renumber_cells(&self.view.keys);
        }
        self.held_locks.release();
    }
}
