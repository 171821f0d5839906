//! The state of one S service: its groups, found by cell and path, and its dynamic instances.
//!
//! The program determines the cells of each group; a changed program may group them differently while runs of
//! the old one continue. The active groups are then coarse enough for both programs. Other groups are
//! retired: their successors wait for their writers, and for their commits to be durable, before they load
//! anything.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use services::UnfinishedResponse;
use store::{WriteBatch, WriteLease};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::yield_now;

use super::group::{CellGroup, CellGroupState, LEASE_DURATION};
use super::held_locks::{HeldLocks, QueueAdmissions};
use super::instances::{InstanceRegistry, unix_millis};
use crate::state::cell::{DiscardedData, StateCell};
use crate::state::error::StateError;
use crate::state::keys::StoreKeys;
use crate::state::plan::{CellScope, StatePlan};
use crate::state::sizes::{StateSizes, StateTooLarge, entry_size};
use crate::state::workers::DiscardedKind;
use crate::state::{IDLE_TICKS, StateSettings, StateShared};
use crate::work::spawn;

/// The initial and the maximum interval between attempts to acquire a lease.
const LEASE_RETRY_INTERVALS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(250));

/// The number of groups that maintenance handles at once.
const GROUPS_PER_PAGE: usize = 256;

/// Cells that are written together.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WriteDomain {
    /// The first key of its cells.
    pub(crate) name: Arc<str>,
    /// The cells that exist once in the service. If there are any, the service has a single group for the
    /// domain.
    pub(crate) shared: Vec<Arc<str>>,
    /// The cells that exist once at each path.
    pub(crate) scattered: Vec<Arc<str>>,
}

impl GroupTable {
    /// Returns the possible keys of groups, at a path or for the whole service.
    fn group_paths(&self, path: Option<&str>) -> Vec<DomainPath> {
        let names: BTreeSet<&Arc<str>> = self.domains.values().map(|domain| &domain.name).collect();
        names.into_iter().map(|name| (Arc::clone(name), path.map(Arc::from))).collect()
    }

    /// Removes some of the retired groups at a path, or of those of the whole service.
    fn take_retired(
        &mut self,
        path: Option<&str>,
        which: impl Fn(&Arc<CellGroup>) -> bool,
    ) -> Vec<Arc<CellGroup>> {
        let path: Option<Arc<str>> = path.map(Arc::from);
        let Some(groups) = self.retired.get_mut(&path) else { return Vec::new() };
        let cell_groups = groups.extract_if(.., |group| which(group)).collect();
        if groups.is_empty() {
            self.retired.remove(&path);
        }
        cell_groups
    }
}

impl WriteDomain {
    /// Whether a key below [`StoreKeys::instances_prefix`] is that of a scattered cell.
    pub(crate) fn is_scattered(&self, key: &str) -> bool {
        self.scattered.iter().any(|own| **own == *StoreKeys::local_key(key))
    }

    fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.shared.iter().chain(&self.scattered)
    }

    /// Returns the cells of a dynamic resource.
    fn cells_of_site(&self, site: &str) -> impl Iterator<Item = &Arc<str>> {
        self.scattered.iter().filter(move |cell| StoreKeys::belongs_to(cell, site))
    }
}

#[derive(Debug)]
pub(crate) struct ServiceGroups {
    pub(crate) shared: Arc<StateShared>,
    settings: Mutex<StateSettings>,
    pub(crate) keys: StoreKeys,
    pub(crate) instances: InstanceRegistry,
    pub(crate) sizes: StateSizes,
    pub(crate) queue_admissions: QueueAdmissions,
    /// The minimum version at which a group begins.
    pub(crate) floor: AtomicU64,
    table: Mutex<GroupTable>,
    /// The paths of instances that are being removed: the store may have completed the removal before this
    /// gateway gets its response.
    removals_in_progress: Mutex<Vec<Arc<str>>>,
}

/// The permit to write a group.
type WritePermit = (Arc<CellGroup>, OwnedSemaphorePermit);

/// A domain's name, with a path if there is a group for each path.
type DomainPath = (Arc<str>, Option<Arc<str>>);

#[derive(Debug, Default)]
struct GroupTable {
    /// The domains by cell.
    domains: HashMap<Arc<str>, Arc<WriteDomain>>,
    /// In order, so that maintenance can go through them page by page.
    groups: BTreeMap<DomainPath, Arc<CellGroup>>,
    /// Groups of domains that are no longer active, by path.
    retired: HashMap<Option<Arc<str>>, Vec<Arc<CellGroup>>>,
}

/// Marks an instance as being removed until it is dropped.
struct InstanceRemovalGuard<'h> {
    service_groups: &'h ServiceGroups,
    path: Arc<str>,
}

impl<'h> InstanceRemovalGuard<'h> {
    fn new(service_groups: &'h ServiceGroups, path: &str) -> Self {
        let path: Arc<str> = path.into();
        service_groups.lock_removals().push(Arc::clone(&path));
        Self { service_groups, path }
    }
}

impl Drop for InstanceRemovalGuard<'_> {
    fn drop(&mut self) {
        let mut leaving = self.service_groups.lock_removals();
        if let Some(place) = leaving.iter().position(|path| Arc::ptr_eq(path, &self.path)) {
            leaving.swap_remove(place);
        }
    }
}

impl ServiceGroups {
    pub(crate) fn new(shared: Arc<StateShared>, settings: StateSettings, keys: StoreKeys) -> Self {
        Self {
            shared,
            settings: Mutex::new(settings),
            keys,
            instances: InstanceRegistry::default(),
            sizes: StateSizes::default(),
            queue_admissions: QueueAdmissions::default(),
            floor: AtomicU64::new(0),
            table: Mutex::default(),
            removals_in_progress: Mutex::default(),
        }
    }

    /// Whether an instance is being removed.
    pub(crate) fn is_being_removed(&self, path: &str) -> bool {
        self.lock_removals().iter().any(|leaving| **leaving == *path)
    }

    fn lock_removals(&self) -> MutexGuard<'_, Vec<Arc<str>>> {
        self.removals_in_progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn settings(&self) -> StateSettings {
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_settings(&self, settings: StateSettings) {
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner) = settings;
    }

    /// Updates a cell's size; a cell that is neither stored nor about to be stored does not count.
    pub(crate) fn update_size(&self, key: &Arc<str>, cell: &StateCell) {
        if cell.exists {
            self.sizes.set_size(key, entry_size(key, cell.text_length()));
        } else {
            self.sizes.remove(key);
        }
    }

    pub(crate) fn state_full_error(&self, refused: StateTooLarge, most: u64) -> StateError {
        StateError::StateFull { service: Arc::clone(self.keys.service()), size: refused.size, most }
    }

    fn lock_table(&self) -> MutexGuard<'_, GroupTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops all groups, which hold references to this.
    pub(crate) fn drop_groups(&self) {
        let mut table = self.lock_table();
        table.groups.clear();
        table.retired.clear();
    }

    /// Returns the group of a cell at a path.
    pub(crate) fn get_or_create_group(self: &Arc<Self>, cell: &str, path: &str) -> Option<Arc<CellGroup>> {
        let mut table = self.lock_table();
        let domain = Arc::clone(table.domains.get(cell)?);
        let path: Option<Arc<str>> = domain.shared.is_empty().then(|| path.into());
        let place = (Arc::clone(&domain.name), path.clone());
        if let Some(group) = table.groups.get(&place) {
            return Some(Arc::clone(group));
        }
        let shares =
            |group: &&Arc<CellGroup>| group.domain.keys().any(|key| domain.keys().any(|other| other == key));
        let paths: Vec<Option<Arc<str>>> = match &path {
            Some(_) => vec![None, path.clone()],
            // It has cells at every path.
            None => table.retired.keys().cloned().collect(),
        };
        let retired = paths.iter().filter_map(|path| table.retired.get(path)).flatten();
        let before = retired.filter(shares).map(Arc::clone).collect();
        let group = Arc::new(CellGroup::new(Arc::clone(self), path, domain, before));
        table.groups.insert(place, Arc::clone(&group));
        Some(group)
    }

    /// Forgets a retired group that is finished.
    pub(crate) fn remove_retired(&self, group: &Arc<CellGroup>) {
        self.lock_table().take_retired(group.path.as_deref(), |retired| Arc::ptr_eq(retired, group));
    }

    /// Returns the groups at a path, or those of the whole service.
    fn groups_at(&self, path: Option<&str>) -> Vec<Arc<CellGroup>> {
        let table = self.lock_table();
        table.group_paths(path).iter().filter_map(|place| table.groups.get(place).map(Arc::clone)).collect()
    }

    pub(crate) fn groups(&self) -> Vec<Arc<CellGroup>> {
        self.lock_table().groups.values().map(Arc::clone).collect()
    }

    /// Returns the first groups after a place.
    fn group_page(&self, after: Option<&DomainPath>) -> Vec<(DomainPath, Arc<CellGroup>)> {
        let table = self.lock_table();
        let rest = table.groups.range::<DomainPath, _>((after.map_or(Unbounded, Excluded), Unbounded));
        rest.take(GROUPS_PER_PAGE).map(|(place, group)| (place.clone(), Arc::clone(group))).collect()
    }

    /// Activates the coarsest domains that all these plans require.
    pub(crate) fn activate_domains(&self, plans: &[Arc<StatePlan>]) {
        let mut table = self.lock_table();
        let table = &mut *table;
        table.domains = merge_domains(plans);
        let GroupTable { domains, groups, retired } = table;
        let is_changed =
            |((name, _), group): &(&DomainPath, &Arc<CellGroup>)| domains.get(name) != Some(&group.domain);
        let changed: Vec<DomainPath> =
            groups.iter().filter(is_changed).map(|(place, _)| place.clone()).collect();
        for group in changed.iter().filter_map(|place| groups.remove(place)) {
            retired.entry(group.path.clone()).or_default().push(group);
        }
    }

    /// Acquires a lease, waiting until no other gateway holds it.
    pub(crate) async fn acquire_lease(&self, name: &Arc<str>) -> Result<WriteLease, StateError> {
        let (store, holder) = (&self.shared.store, &self.shared.lease_owner);
        let (mut waited, mut pause) = (Duration::ZERO, LEASE_RETRY_INTERVALS.0);
        loop {
            match store.acquire_lease(Arc::clone(name), Arc::clone(holder.name()), LEASE_DURATION).await {
                Ok(lease) => return Ok(lease),
                Err(store::StoreError::LeaseTaken { holder: other, .. }) if holder.has_ended(&other) => {
                    // Acquired in the name of the dead holder, which fails if a third gateway holds the lease
                    // by now, and then released.
                    if let Ok(left) = store.acquire_lease(Arc::clone(name), other, LEASE_DURATION).await {
                        store.release(&left).await?;
                    }
                }
                Err(store::StoreError::LeaseTaken { .. }) if waited < self.settings().max_lease_wait => {
                    tokio::time::sleep(pause).await;
                    waited += pause;
                    pause = (pause * 2).min(LEASE_RETRY_INTERVALS.1);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Extends the batch by the removal of an instance. The versions of its cells are lost, so the current
    /// version of the groups (at least `version`) is stored as the minimum for future ones.
    pub(crate) fn add_removal(&self, batch: WriteBatch, path: &str, version: u64) -> WriteBatch {
        // If there is none, another gateway has removed it.
        let Some(instance) = self.instances.find(path) else { return batch };
        let floor = self.floor.fetch_max(version, Ordering::Relaxed).max(version);
        let batch = batch
            .remove(self.keys.declaration_key(path))
            .remove_all(self.keys.instance_prefix(path, &instance.site));
        batch.put(self.keys.floor_key(), floor.to_string())
    }

    /// Removes an instance, even if no program declares it; returns whether it existed. If its cells belong
    /// to a group of the whole service, this waits for its turn like a writer, unless a caller already holds
    /// the slot, since it must not make other writers fail. A writer of only the instance gets an error after
    /// the removal. A removal that has begun is completed even if this future is dropped.
    pub(crate) async fn remove_instance(
        self: &Arc<Self>,
        path: &str,
        locks: &HeldLocks,
        at: &str,
    ) -> Result<bool, StateError> {
        let mut waited = None;
        let slots = loop {
            match self.try_acquire_slots(locks, waited.take()) {
                Ok(slots) => break slots,
                Err(busy) => {
                    // Holds no slot while it waits for another one, which avoids deadlocks.
                    let _waiting = self.queue_admissions.register_wait(locks, &busy, at)?;
                    let permit = Arc::clone(&busy.write_slot).acquire_owned().await;
                    waited = permit.ok().map(|permit| (busy, permit));
                }
            }
        };
        let (home, path) = (Arc::clone(self), Arc::<str>::from(path));
        let task = spawn(async move { home.remove_with_permits(&path, slots).await });
        task.await.unwrap_or_else(|_| Err(UnfinishedResponse.into()))
    }

    /// Acquires the slots of all groups of the service that contain cells of instances, in addition to one
    /// that was waited for; on failure, returns a group whose slot is taken.
    fn try_acquire_slots(
        &self,
        locks: &HeldLocks,
        waited: Option<WritePermit>,
    ) -> Result<Vec<WritePermit>, Arc<CellGroup>> {
        let groups = self.groups_at(None).into_iter().filter(|group| !group.domain.scattered.is_empty());
        let has =
            |group: &Arc<CellGroup>| waited.as_ref().is_some_and(|(known, _)| Arc::ptr_eq(known, group));
        let wanted = groups.filter(|group| locks.find_holder(group).is_none() && !has(group));
        let others = wanted.map(|group| match Arc::clone(&group.write_slot).try_acquire_owned() {
            Ok(permit) => Ok((group, permit)),
            Err(_) => Err(group),
        });
        let mut slots = others.collect::<Result<Vec<_>, _>>()?;
        slots.extend(waited);
        Ok(slots)
    }

    /// Removes an instance from the store and from memory. Must not be cancelled between the two.
    async fn remove_with_permits(&self, path: &str, slots: Vec<WritePermit>) -> Result<bool, StateError> {
        for (group, _) in &slots {
            // Waits for earlier commits; their errors are reported to their writers.
            let generation = group.lock().generation;
            if let Ok(durable) = group.pending_commits(generation) {
                let _ = durable.wait().await;
            }
        }
        if self.instances.find(path).is_none() {
            return Ok(false);
        }
        let shared = self.groups_at(None);
        let version = shared.iter().map(|group| group.lock().finished).max().unwrap_or_default();
        let _leaving = InstanceRemovalGuard::new(self, path);
        self.shared.store.commit(self.add_removal(WriteBatch::new(), path, version)).await?;
        self.drop_instance(path);
        Ok(true)
    }

    /// Drops an instance that is no longer in the store.
    pub(crate) fn drop_instance(&self, path: &str) {
        // First, so that a run that no longer finds its cells can determine the reason.
        let Some(instance) = self.instances.remove(path) else { return };
        let site = &instance.site;
        let groups: Vec<Arc<CellGroup>> = {
            let mut table = self.lock_table();
            // The groups of a literal resource at the path stay.
            let has_cells = |group: &Arc<CellGroup>| group.domain.cells_of_site(site).next().is_some();
            let mut own = table.group_paths(Some(path));
            own.retain(|place| table.groups.get(place).is_some_and(has_cells));
            let mut cell_groups: Vec<_> = own.iter().filter_map(|place| table.groups.remove(place)).collect();
            cell_groups.extend(table.take_retired(Some(path), has_cells));
            cell_groups
        };
        groups.iter().for_each(|group| group.close(CellGroupState::Removed));
        self.shared.discard(groups.into_iter().collect());
        self.drop_cells(path, site, |_| true);
        // Last, when no group can update sizes there any more.
        self.sizes.remove(&self.keys.declaration_key(path));
        self.sizes.remove_all(&self.keys.instance_prefix(path, site));
        self.shared.workers.discard(DiscardedKind::Instance, &[instance.id]);
    }

    /// Drops cells that were cached as missing before the instance was created.
    pub(crate) fn drop_missing_cells(&self, path: &str, site: &str) {
        self.drop_cells(path, site, |cell| !cell.exists);
    }

    /// Drops cells of an instance, so that they are loaded again on the next use.
    fn drop_cells(&self, path: &str, site: &str, which: impl Fn(&StateCell) -> bool) {
        let (mut ids, mut waste) = (Vec::new(), DiscardedData::default());
        for group in self.groups_at(Some(path)).into_iter().chain(self.groups_at(None)) {
            // By their keys: a group may have the cells of a hundred thousand instances.
            let keys = group.domain.cells_of_site(site).map(|cell| self.keys.cell_key(path, cell));
            let cells = &mut group.lock().cells;
            for key in keys {
                if cells.get(&key).is_some_and(|cell| which(cell))
                    && let Some(cell) = cells.remove(&key)
                {
                    ids.push(cell.id);
                    waste.add(cell.text_length(), cell);
                }
            }
        }
        self.shared.workers.discard(DiscardedKind::Cell, &ids);
        self.shared.discard(waste);
    }

    /// Loads the data that is needed before the first request.
    pub(crate) async fn load_initial(&self) -> Result<(), StateError> {
        let key = self.keys.floor_key();
        if let Some((_, text)) = self.shared.store.load(Arc::clone(&key)).await?.and_then(|log| log.snapshot)
        {
            let floor = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok());
            let broken = || StateError::Unreadable { key, reason: "it is not a number".to_owned() };
            self.floor.store(floor.ok_or_else(broken)?, Ordering::Relaxed);
        }
        // The store's sizes do not include the memory of instances, which is added next.
        self.sizes.load(self.shared.store.sizes(self.keys.service_prefix()).await?);
        self.load_all_instances().await
    }

    /// Performs periodic maintenance, about once a second.
    pub(crate) async fn tick(&self, tick: u64, now: SystemTime, instant: Instant) {
        let mut last = None;
        loop {
            let page = self.instances.expired(unix_millis(now), last.as_ref());
            let Some(end) = page.last() else { break };
            last = Some(end.clone());
            for (_, path) in page {
                // An instance that is being written is removed at a later tick.
                let Ok(slots) = self.try_acquire_slots(&HeldLocks::empty(), None) else { continue };
                if let Err(error) = self.remove_with_permits(&path, slots).await {
                    tracing::warn!(%error, path = &*path, "an expired dynamic resource was not removed");
                }
            }
            yield_now().await;
        }
        if let Err(error) = self.sync_instances().await {
            tracing::warn!(%error, "changes of dynamic resources by other gateways were not loaded");
        }
        let mut last = None;
        loop {
            let page = self.group_page(last.as_ref());
            let Some((end, _)) = page.last() else { break };
            last = Some(end.clone());
            for (_, group) in page {
                group.maintain_lease(instant).await;
            }
            yield_now().await;
        }
        self.unload_idle(tick.saturating_sub(IDLE_TICKS)).await;
    }

    /// Unloads groups that have not been used since `tick`.
    pub(crate) async fn unload_idle(&self, tick: u64) {
        let mut last = None;
        loop {
            let (idle, end) = self.take_idle(last.as_ref(), tick);
            if end.is_none() {
                break;
            }
            last = end;
            for group in &idle {
                group.close(CellGroupState::Closed);
                group.release_lease().await;
            }
            self.shared.discard(idle.into_iter().collect());
            yield_now().await;
        }
    }

    /// Removes those of the first groups after a place that have not been used since `tick`. Returns them,
    /// and the last place that was checked.
    fn take_idle(&self, after: Option<&DomainPath>, tick: u64) -> (Vec<Arc<CellGroup>>, Option<DomainPath>) {
        let mut table = self.lock_table();
        let rest = table.groups.range::<DomainPath, _>((after.map_or(Unbounded, Excluded), Unbounded));
        let page: Vec<DomainPath> = rest.take(GROUPS_PER_PAGE).map(|(place, _)| place.clone()).collect();
        let is_idle = |group: &Arc<CellGroup>| {
            let inner = group.lock();
            // Only the table refers to it, so there is neither a run nor a courier.
            Arc::strong_count(group) == 1 && inner.last_used < tick && !inner.is_submitting
        };
        let mut idle = Vec::new();
        for place in &page {
            if table.groups.get(place).is_some_and(is_idle) {
                idle.extend(table.groups.remove(place));
            }
        }
        (idle, page.into_iter().next_back())
    }
}

/// Returns the domains for all these plans: cells that any of them groups together are in one domain.
fn merge_domains(plans: &[Arc<StatePlan>]) -> HashMap<Arc<str>, Arc<WriteDomain>> {
    // A union-find forest: each cell points to a cell of the same domain, and finally to the one that names
    // the domain.
    let mut above: BTreeMap<Arc<str>, Arc<str>> = BTreeMap::new();
    let mut is_shared: HashMap<Arc<str>, bool> = HashMap::new();
    for plan in plans {
        for cell in &plan.cells {
            above.entry(Arc::clone(&cell.key)).or_insert_with(|| Arc::clone(&cell.key));
            is_shared.insert(Arc::clone(&cell.key), cell.scope == CellScope::Service);
        }
        for group in &plan.groups {
            let keys = group.iter().filter_map(|cell| plan.cells.get(*cell)).map(|cell| &cell.key);
            let tops: Vec<Arc<str>> = keys.map(|key| find_root(&above, key)).collect();
            let Some(least) = tops.iter().min().cloned() else { continue };
            for top in tops {
                above.insert(top, Arc::clone(&least));
            }
        }
    }
    let mut domains: BTreeMap<Arc<str>, WriteDomain> = BTreeMap::new();
    for key in above.keys() {
        let name = find_root(&above, key);
        let empty = || WriteDomain { name: Arc::clone(&name), shared: Vec::new(), scattered: Vec::new() };
        let domain = domains.entry(Arc::clone(&name)).or_insert_with(empty);
        let is_shared = is_shared.get(key).copied().unwrap_or_default();
        let cells = if is_shared { &mut domain.shared } else { &mut domain.scattered };
        cells.push(Arc::clone(key));
    }
    let mut by_cell = HashMap::new();
    for domain in domains.into_values().map(Arc::new) {
        by_cell.extend(domain.keys().map(|key| (Arc::clone(key), Arc::clone(&domain))));
    }
    by_cell
}

fn find_root(above: &BTreeMap<Arc<str>, Arc<str>>, key: &Arc<str>) -> Arc<str> {
    let mut top = key;
    while let Some(next) = above.get(top).filter(|next| *next != top) {
        top = next;
    }
    Arc::clone(top)
}
