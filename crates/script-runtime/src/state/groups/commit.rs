//! Commits: from a run's change set to the disk.
//!
//! A valid change set is applied in memory at once, so that the group's next writer can build on it; a long
//! one is applied by the pool, while the group's slot keeps other writers waiting. A *courier* submits
//! finished commits to the store, in order and pipelined. It waits only for the first version of a new cell,
//! since the store chooses it. When the store refuses a commit, all commits based on it are refused as well,
//! and the group is rolled back to its durable version. The cells of these commits then get new numbers, so
//! that workers do not mistake their copies for the current values.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use offload::{OffloadError, QuotaKey};
use services::UnfinishedResponse;
use store::{PendingCommit, WriteBatch, WriteLease, WriteResult};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::yield_now;

use super::group::{CellGroup, CellGroupInner, CellGroupState, UNSYNCED_EPOCH};
use super::service_groups::ServiceGroups;
use crate::state::cell::{
    AppliedChanges, CellDraft, CellWrite, CompactionCheck, CompactionResult, DiscardedData,
};
use crate::state::changes::{CellEdits, ChangeSet, ChangeSetError};
use crate::state::error::StateError;
use crate::state::sizes::entry_size;
use crate::state::tree::WorkAllowance;
use crate::state::workers::DiscardedKind;
use crate::work::{run_then_charge, spawn};

/// The future result of a commit. Clones share it.
#[derive(Clone, Debug)]
pub struct DurableCommit(watch::Receiver<Option<Result<(), StateError>>>);

/// A commit in progress.
#[derive(Debug)]
pub(crate) struct SealedCommit {
    version: u64,
    writes: CommitWrites,
    lease: Option<WriteLease>,
    /// The instance that is removed with the commit; the permit is held until the commit is settled.
    removal: Option<InstanceRemoval>,
    result_sender: watch::Sender<Option<Result<(), StateError>>>,
}

/// A commit that was submitted to the store; without writes there is nothing to submit.
struct SubmittedCommit {
    sealed: SealedCommit,
    commit: Option<PendingCommit>,
}

impl DurableCommit {
    /// Waits until the commit is durable.
    ///
    /// # Errors
    /// If the commit, or one that it is based on, was not stored.
    pub async fn wait(&self) -> Result<(), StateError> {
        let mut answer = self.0.clone();
        let answer = answer.wait_for(Option::is_some).await;
        answer
            .ok()
            .and_then(|answer| answer.clone())
            .unwrap_or(Err(StateError::Store(store::StoreError::Stopped)))
    }
}

/// The path of an instance that is removed with a commit, and the writer's permit.
pub(crate) type InstanceRemoval = (Arc<str>, OwnedSemaphorePermit);
/// The writes of a commit, by key.
type CommitWrites = Vec<(Arc<str>, CellWrite)>;
/// The drafts of the run's cells, by slot.
type CellDrafts = Vec<Option<CellDraft>>;

/// The kind of jobs.
pub(crate) const JOB_KIND: &str = "script-state";
/// The maximum time that work waits for the pool, which is longer than anyone waits for a response.
pub(crate) const MAX_POOL_WAIT: Duration = Duration::from_secs(600);

impl CellGroup {
    /// Applies the change set of a run that has the slot. `slots` are the run's cells. Returns `None`,
    /// without an effect, if that takes more work than allowed.
    pub(crate) fn commit(
        self: &Arc<Self>,
        slots: &[Arc<str>],
        built_on: u64,
        worker: u32,
        text: &[u8],
        removes: &mut Option<InstanceRemoval>,
        effort: &mut WorkAllowance,
    ) -> Result<Option<DurableCommit>, StateError> {
        let durable_commit = self.try_commit(slots, built_on, worker, text, removes, effort);
        if durable_commit.is_err() {
            self.renumber_cells(slots);
        }
        durable_commit
    }

    /// Returns the future result of all commits so far.
    pub(crate) fn pending_commits(self: &Arc<Self>, generation: u64) -> Result<DurableCommit, StateError> {
        let mut effort = WorkAllowance::new(WorkAllowance::UNLIMITED);
        let empty = self.commit(&[], generation, 0, b"", &mut None, &mut effort)?;
        empty.ok_or_else(|| UnfinishedResponse.into())
    }

    fn try_commit(
        self: &Arc<Self>,
        slots: &[Arc<str>],
        built_on: u64,
        worker: u32,
        text: &[u8],
        removes: &mut Option<InstanceRemoval>,
        effort: &mut WorkAllowance,
    ) -> Result<Option<DurableCommit>, StateError> {
        let changes = ChangeSet::parse(&Bytes::copy_from_slice(text))
            .and_then(|changes| changes.split_by_slot(slots.len()));
        let mut inner = self.lock();
        let parts = changes.map_err(|refused| inner.changes_error(refused))?;
        let lease = self.check_commit(&inner, built_on, !parts.is_empty() || removes.is_some())?;
        if parts.is_empty() && removes.is_none() && inner.finished == inner.durable {
            let (_, receiver) = watch::channel(Some(Ok(())));
            return Ok(Some(DurableCommit(receiver)));
        }
        let Some(writes) = inner.apply_parts(slots, &parts, &self.service_groups, effort)? else {
            return Ok(None);
        };
        Ok(Some(self.queue_commit(inner, worker, writes, lease, removes.take())))
    }

    /// Like [`CellGroup::commit`], for change sets that take long: the pool applies them to drafts of the
    /// cells, outside of the lock, and charges the payer. Must not be cancelled.
    pub(crate) async fn commit_long(
        self: &Arc<Self>,
        slots: &[Arc<str>],
        built_on: u64,
        worker: u32,
        text: Bytes,
        mut removes: Option<InstanceRemoval>,
        payer: QuotaKey,
    ) -> Result<DurableCommit, StateError> {
        let commit = self.try_commit_long(slots, built_on, worker, text, &mut removes, payer).await;
        if commit.is_err() {
            self.renumber_cells(slots);
        }
        commit
    }

    async fn try_commit_long(
        self: &Arc<Self>,
        slots: &[Arc<str>],
        built_on: u64,
        worker: u32,
        text: Bytes,
        removes: &mut Option<InstanceRemoval>,
        payer: QuotaKey,
    ) -> Result<DurableCommit, StateError> {
        let drafts: CellDrafts = {
            let cells = &mut self.lock().cells;
            slots.iter().map(|key| cells.get_mut(key).map(|cell| cell.take_draft())).collect()
        };
        // The job takes the drafts when it starts: if it never does, none is lost.
        let cell_drafts = Arc::new(Mutex::new(Some(drafts)));
        let taken = Arc::clone(&cell_drafts);
        let work = move || take_shared(&taken).map(|drafts| apply_to_drafts(&text, drafts));
        let Ok(Some((drafts, applied))) = self.run_in_pool(payer, work).await else {
            self.restore_drafts(slots, take_shared(&cell_drafts).unwrap_or_default());
            return Err(UnfinishedResponse.into());
        };
        let applied = match applied {
            Ok(applied) => applied,
            Err(refused) => {
                self.restore_drafts(slots, drafts);
                return Err(self.lock().changes_error(refused));
            }
        };
        let error = {
            let mut inner = self.lock();
            match self.admit_drafts(&inner, slots, built_on, &drafts, &applied, removes.is_some()) {
                Ok(lease) => {
                    let mut waste = DiscardedData::default();
                    inner.restore_drafts(slots, drafts, &mut waste);
                    let writes = inner.push_applied(slots, applied);
                    let durable = self.queue_commit(inner, worker, writes, lease, removes.take());
                    self.service_groups.shared.discard(waste);
                    return Ok(durable);
                }
                Err(error) => error,
            }
        };
        let held = Arc::new(Mutex::new(Some((drafts, applied))));
        let taken = Arc::clone(&held);
        let undone = self
            .run_in_pool(payer, move || {
                take_shared(&taken).map(|(drafts, applied)| undo_drafts(drafts, applied))
            })
            .await;
        // If the pool refuses the job, it is done here: without its drafts, a cell would order members anew.
        let undone = undone
            .unwrap_or_else(|_| take_shared(&held).map(|(drafts, applied)| undo_drafts(drafts, applied)));
        self.restore_drafts(slots, undone.unwrap_or_default());
        Err(error)
    }

    async fn run_in_pool<T: Send + 'static>(
        &self,
        payer: QuotaKey,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, OffloadError> {
        run_then_charge(
            &self.service_groups.shared.offload,
            JOB_KIND,
            payer,
            Instant::now() + MAX_POOL_WAIT,
            work,
        )
        .await
    }

    /// Checks whether a run may still commit; returns the lease.
    fn check_commit(
        &self,
        inner: &CellGroupInner,
        built_on: u64,
        writes: bool,
    ) -> Result<Option<WriteLease>, StateError> {
        if inner.state == CellGroupState::Removed {
            return Err(StateError::ResourceRemoved { path: self.path.clone().unwrap_or_default() });
        }
        if inner.generation != built_on {
            return Err(StateError::Store(store::StoreError::Abandoned));
        }
        let lease = inner.lease.as_ref().map(|(lease, _)| lease.clone());
        if lease.is_none() && writes {
            return Err(StateError::Store(store::StoreError::LeaseLost {
                name: Arc::clone(&self.lease_name),
            }));
        }
        Ok(lease)
    }

    /// Like `check`, for change sets that were applied to drafts; also accounts for their sizes.
    fn admit_drafts(
        &self,
        inner: &CellGroupInner,
        slots: &[Arc<str>],
        built_on: u64,
        drafts: &[Option<CellDraft>],
        applied: &[(usize, AppliedChanges)],
        removes: bool,
    ) -> Result<Option<WriteLease>, StateError> {
        let lease = self.check_commit(inner, built_on, !applied.is_empty() || removes)?;
        let is_out = |key: &Arc<str>| inner.cells.get(key).is_some_and(|cell| cell.has_draft());
        if slots.iter().zip(drafts).any(|(key, draft)| draft.is_some() && !is_out(key)) {
            return Err(StateError::Store(store::StoreError::Abandoned));
        }
        let sizes = applied.iter().filter_map(|(slot, _)| {
            let (key, draft) = (slots.get(*slot)?, drafts.get(*slot)?.as_ref()?);
            Some((key, entry_size(key, draft.text_length())))
        });
        let most = self.service_groups.settings().size;
        self.service_groups
            .sizes
            .apply_commit(most, sizes)
            .map_err(|refused| self.service_groups.state_full_error(refused, most))?;
        Ok(lease)
    }

    fn restore_drafts(&self, slots: &[Arc<str>], drafts: CellDrafts) {
        let mut waste = DiscardedData::default();
        self.lock().restore_drafts(slots, drafts, &mut waste);
        self.service_groups.shared.discard(waste);
    }

    /// Queues a finished commit for the store.
    fn queue_commit(
        self: &Arc<Self>,
        mut inner: MutexGuard<'_, CellGroupInner>,
        worker: u32,
        writes: CommitWrites,
        lease: Option<WriteLease>,
        removes: Option<InstanceRemoval>,
    ) -> DurableCommit {
        let (sender, receiver) = watch::channel(None);
        let cells: Vec<u32> = writes.iter().filter_map(|(key, _)| Some(inner.cells.get(key)?.id)).collect();
        let version = inner.finished;
        inner.queue.push_back(SealedCommit {
            version,
            writes,
            lease,
            removal: removes,
            result_sender: sender,
        });
        let is_carried = std::mem::replace(&mut inner.is_submitting, true);
        // Under the lock, so that the worker is not sent its own changes.
        self.service_groups.shared.workers.record_write(worker, &cells, version);
        drop(inner);
        if is_carried {
            self.commit_finished.notify_one();
        } else {
            spawn(Arc::clone(self).submit_queued());
        }
        DurableCommit(receiver)
    }

    /// Gives cells new numbers, so that workers do not use their copies, which may contain a change set that
    /// was not accepted.
    pub(crate) fn renumber_cells(&self, slots: &[Arc<str>]) {
        let shared = &self.service_groups.shared;
        let mut inner = self.lock();
        let mut ids = Vec::with_capacity(slots.len());
        for key in slots {
            if let Some(cell) = inner.cells.get_mut(key) {
                ids.push(std::mem::replace(&mut cell.id, shared.next_cell_id()));
            }
        }
        drop(inner);
        shared.workers.discard(DiscardedKind::Cell, &ids);
    }

    /// Submits finished commits to the store until the queue is empty.
    async fn submit_queued(self: Arc<Self>) {
        let mut line = self.service_groups.shared.store.pipeline();
        let mut sent: VecDeque<SubmittedCommit> = VecDeque::new();
        loop {
            while let Some((sealed, batch)) = self.take_next(&sent) {
                let commit = match batch {
                    Some(batch) => Some(line.submit(batch).await),
                    None => None,
                };
                sent.push_back(SubmittedCommit { sealed, commit });
            }
            let Some(first) = sent.front_mut() else {
                if self.is_queue_empty() {
                    break;
                }
                continue;
            };
            let answer = match &mut first.commit {
                None => Ok(Vec::new()),
                Some(commit) => tokio::select! {
                    biased;
                    answer = commit => answer,
                    () = self.commit_finished.notified() => continue,
                },
            };
            let Some(SubmittedCommit { sealed, .. }) = sent.pop_front() else { continue };
            match answer {
                Ok(results) => self.settle_commit(sealed, &results).await,
                Err(error) => {
                    self.roll_back(
                        error,
                        std::iter::once(sealed).chain(sent.into_iter().map(|sent| sent.sealed)),
                    );
                    break;
                }
            }
        }
        if self.service_groups.shared.is_draining() {
            self.release_lease().await;
        }
    }

    /// Returns the next commit, and its batch for the store.
    fn take_next(&self, sent: &VecDeque<SubmittedCommit>) -> Option<(SealedCommit, Option<WriteBatch>)> {
        let creates = |sent: &SubmittedCommit| {
            sent.sealed.writes.iter().any(|(_, write)| matches!(write, CellWrite::Create(_)))
        };
        if sent.iter().any(creates) {
            return None;
        }
        let mut inner = self.lock();
        let mut commit = inner.queue.pop_front()?;
        if commit.writes.is_empty() && commit.removal.is_none() {
            return Some((commit, None));
        }
        let keys = &self.service_groups.keys;
        let mut batch = WriteBatch::new();
        if let Some(lease) = &commit.lease {
            batch = batch.with_fence(lease);
        }
        if let Some((path, _)) = &commit.removal
            && let Some(instance) = self.service_groups.instances.find(path)
        {
            let own = keys.instance_prefix(path, &instance.site);
            commit.writes.retain(|(key, _)| !key.starts_with(&*own));
        }
        // Cells of an instance that was removed meanwhile are removed with it.
        commit.writes.retain(|(key, _)| inner.cells.contains_key(key));
        for (key, write) in &commit.writes {
            let Some(cell) = inner.cells.get_mut(key) else { continue };
            batch = match write {
                CellWrite::Create(value) => batch.create(Arc::clone(key), value.clone()),
                CellWrite::Replace(value) => {
                    batch.replace(Arc::clone(key), cell.submitted_version, value.clone())
                }
                CellWrite::Append(change) => {
                    batch.append(Arc::clone(key), cell.submitted_version, change.clone())
                }
            };
            cell.submitted_version += 1;
        }
        if let Some((path, _)) = &commit.removal {
            batch = self.service_groups.add_removal(batch, path, inner.finished);
        }
        Some((commit, Some(batch)))
    }

    /// Whether the queue is empty; if so, the next commit starts a new courier.
    fn is_queue_empty(&self) -> bool {
        let mut inner = self.lock();
        inner.is_submitting = !inner.queue.is_empty();
        !inner.is_submitting
    }

    async fn settle_commit(self: &Arc<Self>, commit: SealedCommit, results: &[WriteResult]) {
        let (mut texts, mut long, mut waste) = (Vec::new(), Vec::new(), DiscardedData::default());
        {
            let mut inner = self.lock();
            inner.durable = commit.version;
            for ((key, _), written) in commit.writes.iter().zip(results) {
                let Some(cell) = inner.cells.get_mut(key) else { continue };
                cell.mark_durable(commit.version, written.version, &mut waste);
                match cell.check_compaction(written.needs_compaction) {
                    Ok(CompactionCheck::Store(version, text)) => {
                        texts.push((Arc::clone(key), (version, text)))
                    }
                    Ok(CompactionCheck::Long(for_store)) => long.push((Arc::clone(key), for_store)),
                    Ok(CompactionCheck::Done) | Err(_) => {}
                }
            }
        }
        self.service_groups.shared.discard(waste);
        for (key, for_store) in long {
            self.begin_compaction(key, for_store);
        }
        for (key, (version, text)) in texts {
            self.store_compacted(key, version, text).await;
        }
        if let Some((path, _permit)) = commit.removal {
            self.service_groups.drop_instance(&path);
        }
        commit.result_sender.send_replace(Some(Ok(())));
    }

    async fn store_compacted(&self, key: Arc<str>, version: u64, text: Bytes) {
        // If this fails, the store requests compaction again.
        drop(self.service_groups.shared.store.submit(WriteBatch::new().compact(key, version, text)).await);
    }

    /// Starts a compaction that takes long, so that it delays no commit.
    pub(crate) fn begin_compaction(self: &Arc<Self>, key: Arc<str>, for_store: bool) {
        let group = Arc::clone(self);
        spawn(async move {
            if let Some((stored, text)) = group.compact_cell(&key).await
                && for_store
            {
                group.store_compacted(key, stored, text).await;
            }
        });
    }

    /// Compacts a cell outside of the lock. Returns the new text and its version in the store, unless the
    /// cell has got another value meanwhile.
    async fn compact_cell(&self, key: &str) -> Option<(u64, Bytes)> {
        let mut history = self.lock().cells.get(key)?.start_history()?;
        while !self.lock().cells.get(key)?.extend_history(&mut history)? {
            yield_now().await;
        }
        let number = history.number();
        // Compactions take turns.
        let payer = QuotaKey::new(&JOB_KIND).exempt();
        let compacted = self.run_in_pool(payer, move || history.compact()).await;
        let (compacted, mut waste) = (compacted.ok().and_then(Result::ok), DiscardedData::default());
        let compacted = self.lock().cells.get_mut(key)?.end_compaction(number, compacted, &mut waste);
        self.service_groups.shared.discard(waste);
        compacted.map(|CompactionResult { stored, text, .. }| (stored, text))
    }

    /// Rolls back a commit that the store refused, together with all commits based on it.
    fn roll_back(&self, error: store::StoreError, built: impl Iterator<Item = SealedCommit>) {
        let mut inner = self.lock();
        let built: Vec<SealedCommit> = built.chain(std::mem::take(&mut inner.queue)).collect();
        inner.generation += 1;
        inner.finished = inner.durable;
        inner.lease = None;
        inner.is_submitting = false;
        inner.synced_epoch = UNSYNCED_EPOCH;
        let (shared, keys) = (&self.service_groups.shared, &self.service_groups.keys);
        let written = built.iter().flat_map(|commit| &commit.writes).map(|(key, _)| Arc::clone(key));
        let mut changed: BTreeSet<Arc<str>> = written.collect();
        // A removal replaces its run's writes to the cells of the instance.
        for (path, _) in built.iter().filter_map(|sealed_commit| sealed_commit.removal.as_ref()) {
            changed.extend(self.domain.scattered.iter().map(|cell| keys.cell_key(path, cell)));
        }
        let mut ids = Vec::with_capacity(changed.len());
        let is_there = inner.state != CellGroupState::Removed;
        // Only these: a group may have the cells of a hundred thousand instances.
        for key in &changed {
            let Some(cell) = inner.cells.get_mut(key) else { continue };
            ids.push(std::mem::replace(&mut cell.id, shared.next_cell_id()));
            cell.roll_back_pending();
            if is_there {
                self.service_groups.update_size(key, cell);
            }
        }
        drop(inner);
        shared.workers.discard(DiscardedKind::Cell, &ids);
        let mut error = Some(error);
        for sealed in built {
            let error = error.take().unwrap_or(store::StoreError::Abandoned);
            sealed.result_sender.send_replace(Some(Err(error.into())));
        }
    }
}

impl CellGroupInner {
    /// Returns the error of a refused change set.
    fn changes_error(&self, reason: ChangeSetError) -> StateError {
        StateError::Changes { handler: Arc::clone(&self.writer), reason: reason.to_string() }
    }

    /// Applies all parts of a change set, atomically. Returns `None`, without an effect, if that takes more
    /// work than allowed.
    fn apply_parts(
        &mut self,
        slots: &[Arc<str>],
        parts: &[CellEdits],
        home: &ServiceGroups,
        effort: &mut WorkAllowance,
    ) -> Result<Option<CommitWrites>, StateError> {
        let version = self.finished + u64::from(!parts.is_empty());
        let mut writes = Vec::with_capacity(parts.len());
        for part in parts {
            let found = slots.get(part.slot).and_then(|key| Some((key, self.cells.get_mut(key)?)));
            let made = found.map(|(key, cell)| {
                cell.apply_change(part, version, effort).map(|write| (Arc::clone(key), write))
            });
            match made {
                Some(Ok(write)) => writes.push(write),
                Some(Err(refused)) => {
                    self.undo_parts(slots, parts);
                    return if refused.is_over_allowance() {
                        Ok(None)
                    } else {
                        Err(self.changes_error(refused))
                    };
                }
                None => {}
            }
        }
        let sizes = writes.iter().filter_map(|(key, _)| {
            self.cells.get(key).map(|cell| (key, entry_size(key, cell.text_length())))
        });
        let most = home.settings().size;
        if let Err(refused) = home.sizes.apply_commit(most, sizes) {
            self.undo_parts(slots, parts);
            return Err(home.state_full_error(refused, most));
        }
        self.finished = version;
        Ok(Some(writes))
    }

    /// Rolls back a change set that was not accepted.
    fn undo_parts(&mut self, slots: &[Arc<str>], parts: &[CellEdits]) {
        for key in parts.iter().filter_map(|part| slots.get(part.slot)) {
            if let Some(cell) = self.cells.get_mut(key) {
                cell.roll_back_to(self.finished);
            }
        }
    }

    /// Adds a change set that was applied to drafts, which are put back already.
    fn push_applied(&mut self, slots: &[Arc<str>], applied: Vec<(usize, AppliedChanges)>) -> CommitWrites {
        self.finished += u64::from(!applied.is_empty());
        let mut writes = Vec::with_capacity(applied.len());
        for (slot, applied) in applied {
            if let Some(key) = slots.get(slot)
                && let Some(cell) = self.cells.get_mut(key)
            {
                writes.push((Arc::clone(key), cell.push_applied(applied, self.finished)));
            }
        }
        writes
    }

    /// Puts drafts back into their cells.
    fn restore_drafts(&mut self, slots: &[Arc<str>], mut drafts: CellDrafts, waste: &mut DiscardedData) {
        for (slot, key) in slots.iter().enumerate() {
            let draft = drafts.get_mut(slot).and_then(Option::take);
            if let Some(cell) = self.cells.get_mut(key) {
                cell.restore_draft(draft, waste);
            } else {
                waste.add(draft.as_ref().map_or(0, CellDraft::text_length), draft);
            }
        }
    }
}

/// Takes the drafts that a job and its caller share.
fn take_shared<T>(held: &Mutex<Option<T>>) -> Option<T> {
    held.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Applies a change set to drafts, atomically. Returns the applied changes, by slot.
fn apply_to_drafts(
    text: &Bytes,
    mut drafts: CellDrafts,
) -> (CellDrafts, Result<Vec<(usize, AppliedChanges)>, ChangeSetError>) {
    // A copy, since the text may be a small part of a large frame.
    let text = Bytes::copy_from_slice(text);
    let parts = match ChangeSet::parse(&text).and_then(|changes| changes.split_by_slot(drafts.len())) {
        Ok(parts) => parts,
        Err(refused) => return (drafts, Err(refused)),
    };
    let mut all = Vec::with_capacity(parts.len());
    for part in parts {
        // The cells of a removed instance are gone.
        let Some(Some(draft)) = drafts.get_mut(part.slot) else { continue };
        match draft.apply(&part) {
            Ok(applied) => all.push((part.slot, applied)),
            Err(refused) => return (undo_drafts(drafts, all), Err(refused)),
        }
    }
    (drafts, Ok(all))
}

/// Undoes the changes that were applied to drafts.
fn undo_drafts(mut drafts: CellDrafts, applied: Vec<(usize, AppliedChanges)>) -> CellDrafts {
    for (slot, applied) in applied {
        if let Some(Some(draft)) = drafts.get_mut(slot) {
            draft.undo(applied);
        }
    }
    drafts
}
