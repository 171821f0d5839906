//! Groups of cells that are written together: one writer at a time, and readers of the last durable version.
//!
//! A group's version counts its commits. It begins with the sum of the stored versions of its cells, each of
//! which increases with every commit that touches the cell; so it never decreases, even across restarts and
//! edits of the script. The next writer builds on the last *finished* version; readers see the last *durable*
//! one.
//!
//! The values of cells are in `cell.rs`; this file loads them and controls write access: within this gateway
//! by the group's slot, among gateways by its lease. `commit.rs` writes finished versions to the store.
//!
//! A group of the whole service may have the cells of a hundred thousand instances. So it is loaded and
//! closed page by page, and long work on its cells is done in the pool.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use offload::QuotaKey;
use services::UnfinishedResponse;
use store::{KeyLog, WriteLease};
use tokio::sync::{Notify, OwnedMutexGuard, Semaphore};
use tokio::task::yield_now;

use super::commit::SealedCommit;
use super::held_locks::GroupHold;
use super::service_groups::{ServiceGroups, WriteDomain};
use crate::state::StateShared;
use crate::state::cell::{CompactionCheck, DiscardedData, FoldedLog, MAX_LOCKED_TEXT, StateCell};
use crate::state::changes::ChangeSetError;
use crate::state::error::StateError;
use crate::state::workers::DiscardedKind;
use crate::work::spawn;

/// The duration of a lease.
pub(crate) const LEASE_DURATION: Duration = Duration::from_secs(10);
/// A lease with less remaining time is renewed before it is relied on.
const LEASE_RENEWAL_MARGIN: Duration = Duration::from_secs(2);
/// The epoch of a group that has not been synchronised: everything must be loaded again.
pub(crate) const UNSYNCED_EPOCH: u64 = u64::MAX;
/// The number of cells that are worked on at once under the lock.
pub(crate) const CELLS_PER_PAGE: usize = 256;

#[derive(Debug)]
pub(crate) struct CellGroup {
    pub(crate) service_groups: Arc<ServiceGroups>,
    /// The path of its instance; `None` if the whole service has one group.
    pub(crate) path: Option<Arc<str>>,
    pub(crate) lease_name: Arc<str>,
    pub(crate) domain: Arc<WriteDomain>,
    /// Retiring groups that share some of its cells, and must be finished first.
    predecessors: Mutex<Vec<Arc<CellGroup>>>,
    /// The writer's permit; first come, first served.
    pub(crate) write_slot: Arc<Semaphore>,
    /// Serialises loading.
    loading: Arc<tokio::sync::Mutex<()>>,
    /// Notifies the courier of a finished commit.
    pub(crate) commit_finished: Notify,
    inner: Mutex<CellGroupInner>,
}

#[derive(Debug)]
pub(crate) struct CellGroupInner {
    /// The cells by their keys in the store, in order, so that there are pages of them.
    pub(crate) cells: BTreeMap<Arc<str>, Box<StateCell>>,
    pub(crate) finished: u64,
    pub(crate) durable: u64,
    /// Incremented on a rollback: runs that are based on an earlier generation cannot commit.
    pub(crate) generation: u64,
    pub(crate) state: CellGroupState,
    pub(crate) lease: Option<(WriteLease, Instant)>,
    /// The epoch up to which changes of other gateways are loaded.
    pub(crate) synced_epoch: u64,
    /// Whether only some of the loaded cells are in place: a run that is sent now could see a part of another
    /// gateway's commit.
    pub(crate) is_partial: bool,
    /// Finished commits that are not yet submitted to the store.
    pub(crate) queue: VecDeque<SealedCommit>,
    pub(crate) is_submitting: bool,
    /// The handler that has the slot.
    pub(crate) writer: Arc<str>,
    /// The keys of the cells that it may write.
    pub(crate) writer_keys: Vec<Arc<str>>,
    /// The hold of the run that has the slot.
    pub(crate) writer_hold: Weak<GroupHold>,
    /// The tick of the last use.
    pub(crate) last_used: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CellGroupState {
    /// Not loaded yet.
    New,
    Open,
    /// Replaced by another group, which must be looked up.
    Closed,
    /// The instance was removed.
    Removed,
}

impl CellGroup {
    pub(crate) fn new(
        service_groups: Arc<ServiceGroups>,
        path: Option<Arc<str>>,
        domain: Arc<WriteDomain>,
        before: Vec<Arc<Self>>,
    ) -> Self {
        Self {
            lease_name: service_groups.keys.lease_name(path.as_deref(), &domain.name),
            path,
            domain,
            predecessors: Mutex::new(before),
            write_slot: Arc::new(Semaphore::new(1)),
            loading: Arc::default(),
            commit_finished: Notify::new(),
            inner: Mutex::new(CellGroupInner {
                cells: BTreeMap::new(),
                finished: 0,
                durable: 0,
                generation: 0,
                state: CellGroupState::New,
                lease: None,
                synced_epoch: UNSYNCED_EPOCH,
                is_partial: false,
                queue: VecDeque::new(),
                is_submitting: false,
                writer: "".into(),
                writer_keys: Vec::new(),
                writer_hold: Weak::new(),
                last_used: service_groups.shared.ticks.load(Ordering::Relaxed),
            }),
            service_groups,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, CellGroupInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ensures that these cells are loaded and include all commits of other gateways, and, for a writer, that
    /// this gateway holds the lease.
    pub(crate) async fn ensure_loaded(
        self: &Arc<Self>,
        wanted: &[Arc<str>],
        writes: bool,
    ) -> Result<(), StateError> {
        if self.is_loaded(wanted, writes) {
            return Ok(());
        }
        let alone = Arc::clone(&self.loading).lock_owned().await;
        if self.is_loaded(wanted, writes) {
            return Ok(());
        }
        let before = self.predecessors();
        for group in &before {
            group.retire().await;
        }
        self.predecessors.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.service_groups.shared.discard(before.into_iter().collect());
        let epoch = self.service_groups.shared.epoch();
        if writes {
            self.ensure_lease().await?;
        }
        self.load_wanted(wanted, epoch, alone).await
    }

    /// Returns the groups that must be finished with its cells first.
    pub(crate) fn predecessors(&self) -> Vec<Arc<Self>> {
        self.predecessors.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for the writer and for pending commits, and closes the group.
    async fn retire(self: &Arc<Self>) {
        let Ok(permit) = self.write_slot.acquire().await else { return };
        let generation = self.lock().generation;
        if let Ok(settled) = self.pending_commits(generation) {
            let _ = settled.wait().await;
        }
        self.close(CellGroupState::Closed);
        self.service_groups.remove_retired(self);
        drop(permit);
        self.release_lease().await;
    }

    fn is_loaded(&self, wanted: &[Arc<str>], writes: bool) -> bool {
        let mut inner = self.lock();
        inner.last_used = self.service_groups.shared.ticks.load(Ordering::Relaxed);
        let is_held =
            inner.lease.as_ref().is_some_and(|(_, end)| *end > Instant::now() + LEASE_RENEWAL_MARGIN);
        let is_fresh = inner.synced_epoch != UNSYNCED_EPOCH
            && (is_held || inner.synced_epoch == self.service_groups.shared.epoch());
        is_fresh && (is_held || !writes) && wanted.iter().all(|key| inner.cells.contains_key(key))
    }

    async fn ensure_lease(&self) -> Result<(), StateError> {
        let held = self.lock().lease.clone();
        if let Some((lease, end)) = held
            && (end > Instant::now() + LEASE_RENEWAL_MARGIN || self.renew_lease(&lease).await?)
        {
            return Ok(());
        }
        let until = Instant::now() + LEASE_DURATION;
        let lease = self.service_groups.acquire_lease(&self.lease_name).await?;
        let mut inner = self.lock();
        inner.lease = Some((lease, until));
        // Other gateways may have written while they held the lease.
        inner.synced_epoch = UNSYNCED_EPOCH;
        Ok(())
    }

    /// Extends the lease; returns whether this gateway still holds it.
    pub(crate) async fn renew_lease(&self, lease: &WriteLease) -> Result<bool, StateError> {
        let until = Instant::now() + LEASE_DURATION;
        let renewed = self.service_groups.shared.store.renew(lease, LEASE_DURATION).await;
        let mut inner = self.lock();
        match renewed {
            Ok(()) => {
                if let Some((_, end)) = inner.lease.as_mut().filter(|(known, _)| known == lease) {
                    *end = until;
                }
                Ok(true)
            }
            Err(store::StoreError::LeaseLost { .. }) => {
                inner.lease = None;
                inner.synced_epoch = UNSYNCED_EPOCH;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn load_wanted(
        self: &Arc<Self>,
        wanted: &[Arc<str>],
        epoch: u64,
        alone: OwnedMutexGuard<()>,
    ) -> Result<(), StateError> {
        let CellsToLoad { cells, missing, is_new } = self.cells_to_load(wanted, epoch).await;
        let came = if is_new { self.scattered_versions().await? } else { 0 };
        let loaded = self.load_cells(cells, missing).await?;
        if loaded.len() <= CELLS_PER_PAGE {
            return self.install_cells(loaded, came, is_new, epoch).await;
        }
        // In a task, so that it is completed if the request ends.
        let group = Arc::clone(self);
        let task = spawn(async move {
            let _alone = alone;
            let _partial = PartialLoadGuard::new(&group);
            group.install_cells(loaded, came, is_new, epoch).await
        });
        task.await.unwrap_or_else(|_| Err(UnfinishedResponse.into()))
    }

    /// Puts cells from the store in place, page by page. `came` is the sum of the versions of other cells.
    async fn install_cells(
        self: &Arc<Self>,
        loaded: Vec<LoadedCell>,
        mut came: u64,
        is_new: bool,
        epoch: u64,
    ) -> Result<(), StateError> {
        let mut loaded = loaded.into_iter();
        let (mut waste, mut long, mut was_busy) = (DiscardedData::default(), Vec::new(), false);
        loop {
            let is_last = loaded.len() <= CELLS_PER_PAGE;
            {
                let mut inner = self.lock();
                // Pending commits build on the current values: the store will report whether these are still
                // valid.
                let is_busy = inner.finished != inner.durable;
                was_busy |= is_busy;
                for cell in loaded.by_ref().take(CELLS_PER_PAGE) {
                    came += self.install_cell(&mut inner, cell, is_new, &mut waste, &mut long)?;
                }
                if !is_new {
                    if came > 0 {
                        inner.renumber_written(&self.service_groups.shared);
                    }
                    inner.finished += std::mem::take(&mut came);
                } else if is_last {
                    inner.finished = came.max(self.service_groups.floor.load(Ordering::Relaxed));
                    inner.state = CellGroupState::Open;
                }
                if !is_busy {
                    inner.durable = inner.finished;
                }
                if is_last && !was_busy {
                    inner.synced_epoch = epoch;
                }
            }
            if is_last {
                break;
            }
            yield_now().await;
        }
        self.service_groups.shared.discard(waste);
        for key in long {
            self.begin_compaction(key, false);
        }
        Ok(())
    }

    /// Puts a cell from the store in place, unless it has been changed here meanwhile. Returns the number of
    /// other gateways' commits that it includes. Keys of compactions that take long are added to `long`.
    fn install_cell(
        &self,
        inner: &mut CellGroupInner,
        (key, asked, log): LoadedCell,
        is_new: bool,
        waste: &mut DiscardedData,
        long: &mut Vec<Arc<str>>,
    ) -> Result<u64, StateError> {
        let shared = &self.service_groups.shared;
        let is_busy = inner.finished != inner.durable;
        let (version, next, mut came) = (inner.durable, inner.finished + 1, 0);
        match (inner.cells.get_mut(&key), log) {
            // Dropped meanwhile: it is loaded on the next use.
            (None, _) if asked > 0 => {}
            (None, log) => {
                let is_counted = is_new && !self.is_scattered(&key);
                came = log.as_ref().filter(|_| is_counted).map_or(0, |log| log.version);
                let id = shared.next_cell_id();
                let cell = match log {
                    Some(log) => StateCell::from_log(id, version, log),
                    None => StateCell::new_missing(id, version),
                };
                inner.cells.insert(Arc::clone(&key), Box::new(cell));
            }
            (Some(cell), _) if is_busy || cell.stored_version != asked => {}
            (Some(cell), Some(log)) if log.version > asked => {
                came = log.version - asked;
                cell.apply_foreign(next, log, waste);
                match cell.check_compaction(false).map_err(|refused| unreadable_error(&key, refused))? {
                    CompactionCheck::Long(_) => long.push(Arc::clone(&key)),
                    CompactionCheck::Store(..) | CompactionCheck::Done => {}
                }
            }
            (Some(cell), None) if asked > 0 => {
                shared.workers.discard(DiscardedKind::Cell, &[cell.id]);
                let missing = Box::new(StateCell::new_missing(shared.next_cell_id(), version));
                waste.add(cell.text_length(), std::mem::replace(cell, missing));
            }
            _ => {}
        }
        if let Some(cell) = inner.cells.get(&key) {
            self.service_groups.update_size(&key, cell);
        }
        Ok(came)
    }

    /// Loads cells. Returns the first `missing` ones, and those that have changed.
    async fn load_cells(
        &self,
        cells: Vec<(Arc<str>, u64)>,
        missing: usize,
    ) -> Result<Vec<LoadedCell>, StateError> {
        let mut asked = Vec::with_capacity(cells.len());
        for page in cells.chunks(CELLS_PER_PAGE) {
            if !asked.is_empty() {
                yield_now().await;
            }
            asked.extend_from_slice(page);
        }
        let logs = self.service_groups.shared.store.load_after(asked).await?;
        let is_short = cells.len() <= CELLS_PER_PAGE
            && logs.iter().flatten().map(FoldedLog::parse_work).sum::<usize>() <= MAX_LOCKED_TEXT;
        let fold = move || fold_logs(cells, logs, missing);
        if is_short {
            fold()
        } else {
            self.service_groups.shared.run_offloaded(QuotaKey::new(&self.lease_name), fold).await?
        }
    }

    async fn cells_to_load(&self, wanted: &[Arc<str>], epoch: u64) -> CellsToLoad {
        let (mut cells, is_new, is_stale) = {
            let inner = self.lock();
            let lacks = wanted.iter().filter(|key| !inner.cells.contains_key(*key));
            let lacks: Vec<_> = lacks.map(|key| (Arc::clone(key), 0)).collect();
            (lacks, inner.state == CellGroupState::New, inner.synced_epoch != epoch)
        };
        let missing = cells.len();
        let (mut page, mut last) = if is_stale { self.cell_page(None) } else { CellPage::default() };
        loop {
            cells.extend(page.into_iter().map(|(key, stored, _)| (key, stored)));
            let Some(end) = last else { break };
            yield_now().await;
            (page, last) = self.cell_page(Some(&end));
        }
        CellsToLoad { cells, missing, is_new }
    }

    /// Returns the first cells after a key.
    fn cell_page(&self, after: Option<&Arc<str>>) -> CellPage {
        let inner = self.lock();
        let rest = inner.cells.range::<Arc<str>, _>((after.map_or(Unbounded, Excluded), Unbounded));
        let page =
            rest.take(CELLS_PER_PAGE).map(|(key, cell)| (Arc::clone(key), cell.stored_version, cell.id));
        let page: Vec<_> = page.collect();
        let last = page.get(CELLS_PER_PAGE - 1).map(|(key, ..)| Arc::clone(key));
        (page, last)
    }

    /// Whether a cell exists once at each path although the group is that of the whole service.
    fn is_scattered(&self, key: &str) -> bool {
        self.path.is_none() && self.domain.is_scattered(key)
    }

    /// Returns the sum of the versions of all such cells: not all of them are loaded.
    async fn scattered_versions(&self) -> Result<u64, StateError> {
        if self.path.is_some() || self.domain.scattered.is_empty() {
            return Ok(0);
        }
        let keys = self.service_groups.shared.store.keys(self.service_groups.keys.instances_prefix()).await?;
        let (is_short, domain) = (keys.len() <= CELLS_PER_PAGE, Arc::clone(&self.domain));
        let sum = move || {
            let scattered = keys.iter().filter(|(key, _)| domain.is_scattered(key));
            scattered.map(|(_, version)| version).sum::<u64>()
        };
        if is_short {
            Ok(sum())
        } else {
            self.service_groups.shared.run_offloaded(QuotaKey::new(&self.lease_name), sum).await
        }
    }

    /// Renews an expiring lease during a write; releases the lease if the gateway drains and no run writes.
    pub(crate) async fn maintain_lease(&self, now: Instant) {
        if self.service_groups.shared.is_draining() {
            self.release_lease().await;
        }
        let lease = self.lock().lease.clone();
        let Some((lease, _)) = lease.filter(|(_, end)| *end < now + LEASE_DURATION / 2) else { return };
        if self.write_slot.available_permits() == 0 {
            // If the store fails now, the commit will report it.
            let _ = self.renew_lease(&lease).await;
        }
    }

    /// Releases the lease if no run writes.
    pub(crate) async fn release_lease(&self) {
        let Ok(_permit) = self.write_slot.try_acquire() else { return };
        let lease = {
            let mut inner = self.lock();
            if inner.is_submitting || !inner.queue.is_empty() {
                return;
            }
            inner.synced_epoch = UNSYNCED_EPOCH;
            inner.lease.take()
        };
        if let Some((lease, _)) = lease {
            // A lease that is not released expires.
            let _ = self.service_groups.shared.store.release(&lease).await;
        }
    }

    /// Sets the state that later requests find, and discards the copies of the cells in workers.
    pub(crate) fn close(self: &Arc<Self>, state: CellGroupState) {
        self.lock().state = state;
        let Some(mut last) = self.discard_page(None) else { return };
        let group = Arc::clone(self);
        spawn(async move {
            loop {
                yield_now().await;
                match group.discard_page(Some(&last)) {
                    Some(next) => last = next,
                    None => break,
                }
            }
            let shared = Arc::clone(&group.service_groups.shared);
            shared.discard(std::iter::once(group).collect());
        });
    }

    /// Discards the copies of the first cells after a key in workers. Returns the key of the last one, if
    /// there may be more.
    fn discard_page(&self, after: Option<&Arc<str>>) -> Option<Arc<str>> {
        let (page, last) = self.cell_page(after);
        let ids: Vec<u32> = page.into_iter().map(|(.., id)| id).collect();
        self.service_groups.shared.workers.discard(DiscardedKind::Cell, &ids);
        last
    }
}

impl CellGroupInner {
    /// Gives the cells of a running writer new numbers, before other gateways' commits increase the version:
    /// at that version, the copies in the writer's worker contain its changes, which may still be rolled
    /// back.
    fn renumber_written(&mut self, shared: &StateShared) {
        if self.writer_hold.upgrade().is_none_or(|hold| hold.is_released()) {
            return;
        }
        let cells = &mut self.cells;
        let renumber =
            |key: &Arc<str>| Some(std::mem::replace(&mut cells.get_mut(key)?.id, shared.next_cell_id()));
        let ids: Vec<u32> = self.writer_keys.iter().filter_map(renumber).collect();
        shared.workers.discard(DiscardedKind::Cell, &ids);
    }
}

impl FromIterator<Arc<CellGroup>> for DiscardedData {
    fn from_iter<I: IntoIterator<Item = Arc<CellGroup>>>(groups: I) -> Self {
        let mut waste = Self::default();
        for group in groups {
            let bytes = {
                let cells = &group.lock().cells;
                if cells.len() > CELLS_PER_PAGE {
                    usize::MAX
                } else {
                    cells.values().map(|cell| cell.text_length()).sum()
                }
            };
            waste.add(bytes, group);
        }
        waste
    }
}

/// Keeps runs from being sent until it is dropped, while the cells of a group are put in place.
struct PartialLoadGuard<'g>(&'g CellGroup);

impl<'g> PartialLoadGuard<'g> {
    fn new(group: &'g CellGroup) -> Self {
        group.lock().is_partial = true;
        Self(group)
    }
}

impl Drop for PartialLoadGuard<'_> {
    fn drop(&mut self) {
        self.0.lock().is_partial = false;
    }
}

/// The cells that a group has to load.
struct CellsToLoad {
    /// The keys, each with the version that is known.
    cells: Vec<(Arc<str>, u64)>,
    /// The number of cells that are not in memory, which are the first ones.
    missing: usize,
    /// Whether the group has loaded nothing yet.
    is_new: bool,
}

/// Some cells: the key, the version in the store, and the number of each. Also the key of the last one, if
/// there may be more.
type CellPage = (Vec<(Arc<str>, u64, u32)>, Option<Arc<str>>);

/// A cell from the store: its key, the version that was known before, and what is later than that.
type LoadedCell = (Arc<str>, u64, Option<FoldedLog>);

/// Returns the first cells, and those that have changed, with the changes of their logs applied.
fn fold_logs(
    cells: Vec<(Arc<str>, u64)>,
    logs: Vec<Option<KeyLog>>,
    missing: usize,
) -> Result<Vec<LoadedCell>, StateError> {
    let is_changed = |asked: u64, log: Option<&KeyLog>| log.map_or(asked > 0, |log| log.version > asked);
    let loaded = cells.into_iter().zip(logs).enumerate();
    let changed = loaded
        .filter(|(number, ((_, asked), log))| *number < missing || is_changed(*asked, log.as_ref()))
        .map(|(_, ((key, asked), log))| match log.map(FoldedLog::from_log).transpose() {
            Ok(log) => Ok((key, asked, log)),
            Err(refused) => Err(unreadable_error(&key, refused)),
        });
    changed.collect()
}

fn unreadable_error(key: &Arc<str>, refused: ChangeSetError) -> StateError {
    StateError::Unreadable { key: Arc::clone(key), reason: refused.to_string() }
}
