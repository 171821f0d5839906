//! The write-ahead state of S services: access control for readers and writers, synchronisation of workers,
//! and durability. This module uses no processes or sockets, so that its rules can be tested in isolation.
//!
//! A [`ServiceState`] is the state of an S service, a [`StateView`] the view of one program. A run requests a
//! [`ReadTicket`] or waits for a [`WriteTicket`]; the ticket determines the [`PrecedingFrame`]s that its
//! worker must receive first, and commits the run's change set to the store. The files:
//!
//! - `tree.rs`, `object.rs`, `changes.rs`: values and change sets
//! - `cell.rs`: a value, its durable part, and the difference to a worker's copy
//! - `groups.rs`: cells that are written together, versions, leases, commits, dynamic resources
//! - `sizes.rs`: accounting of the state's size
//! - `plan.rs`: the state that a program declares; `service.rs`, `edition.rs`: the state of a service, and
//!   the view of a program; `ticket.rs`: a run's access
//! - `workers.rs`: the copies in workers; `keys.rs`: keys of the store; `lease_owner.rs`: the identity of
//!   this gateway

mod cell;
mod changes;
mod edition;
mod error;
#[cfg(test)]
pub(crate) mod fuzz;
mod groups;
mod keys;
mod lease_owner;
mod object;
mod plan;
mod service;
mod sizes;
#[cfg(test)]
mod tests;
mod ticket;
mod tree;
mod workers;

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use offload::{OffloadPool, QuotaKey};
use services::UnfinishedResponse;
use store::{CommitDurability, Store};

use cell::DiscardedData;
pub use edition::{DeclarationResult, DynamicInstance, ResourceDeclaration, StateRequest, StateView};
pub use error::StateError;
use groups::commit;
pub use groups::commit::DurableCommit;
pub use groups::held_locks::HeldLocks;
use groups::service_groups::ServiceGroups;
use keys::StoreKeys;
use lease_owner::LeaseOwner;
pub use plan::{CellScope, PlanCell, PlanHandler, PlanResource, StatePlan};
pub use service::ServiceState;
pub use ticket::{ReadTicket, WriteTicket};
use workers::WorkerReplicas;
pub use workers::{DiscardedKind, PrecedingFrame};

use crate::work::{run_then_charge, spawn};

/// The name of the store's file.
const STORE_FILE: &str = "state.db";
/// The number of ticks without use after which a group is unloaded.
const IDLE_TICKS: u64 = 60;

/// The operator's settings.
#[derive(Clone, Copy, Debug)]
pub struct StateSettings {
    /// The maximum number of dynamic resources of a service.
    pub instances: usize,
    /// The time to live of a dynamic resource; without it, it exists until it is removed.
    pub ttl: Option<Duration>,
    /// The maximum size of a service's state in bytes, including its keys.
    pub size: u64,
    /// The maximum time that a writer waits for another gateway's lease.
    pub max_lease_wait: Duration,
}

impl Default for StateSettings {
    fn default() -> Self {
        Self { instances: 100_000, ttl: None, size: 256 << 20, max_lease_wait: Duration::from_secs(10) }
    }
}

/// The state of all S services of a gateway. Clones share it.
#[derive(Clone, Debug)]
pub struct StateRegistry(Arc<StateShared>);

/// The data that all services share.
pub(crate) struct StateShared {
    pub(crate) store: Store,
    /// The pool for work that takes long: on large values, and on large change sets.
    pub(crate) offload: OffloadPool,
    pub(crate) lease_owner: LeaseOwner,
    pub(crate) workers: WorkerReplicas,
    pub(crate) ticks: AtomicU64,
    cells: AtomicU32,
    instances: AtomicU32,
    /// Incremented when a change by another gateway is detected.
    epoch: AtomicU64,
    is_watching: AtomicBool,
    is_draining: AtomicBool,
    services: Mutex<HashMap<Arc<str>, Weak<ServiceGroups>>>,
}

impl fmt::Debug for StateShared {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("StateShared").field("store", &self.store).finish_non_exhaustive()
    }
}

impl StateShared {
    /// Does long work in the pool, without a charge.
    pub(crate) async fn run_offloaded<T: Send + 'static>(
        &self,
        payer: QuotaKey,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, StateError> {
        let deadline = Instant::now() + commit::MAX_POOL_WAIT;
        let done = run_then_charge(&self.offload, commit::JOB_KIND, payer.exempt(), deadline, work).await;
        done.map_err(|_| UnfinishedResponse.into())
    }

    /// Drops data in the pool.
    pub(crate) fn discard(self: &Arc<Self>, waste: DiscardedData) {
        if !waste.is_empty() {
            let shared = Arc::clone(self);
            spawn(async move { shared.run_offloaded(QuotaKey::new(&"waste"), move || drop(waste)).await });
        }
    }

    pub(crate) fn next_cell_id(&self) -> u32 {
        self.cells.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn next_instance_id(&self) -> u32 {
        self.instances.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    fn live_services(&self) -> Vec<Arc<ServiceGroups>> {
        let services = self.services.lock().unwrap_or_else(PoisonError::into_inner);
        services.values().filter_map(Weak::upgrade).collect()
    }
}

impl StateRegistry {
    /// Opens the store in a folder. Blocks on disk access, so it is meant for the start of a gateway. Work
    /// that takes long is done in the pool.
    ///
    /// # Errors
    /// If the folder or the store can't be used.
    pub fn open(
        folder: &Path,
        durability: CommitDurability,
        offload: OffloadPool,
    ) -> Result<Self, StateError> {
        let store = Store::open(&folder.join(STORE_FILE), durability)?;
        let unusable = |error: std::io::Error| StateError::Folder {
            folder: folder.to_string_lossy().into(),
            reason: error.to_string(),
        };
        let holder = LeaseOwner::new(folder).map_err(unusable)?;
        Ok(Self(Arc::new(StateShared {
            store,
            offload,
            lease_owner: holder,
            workers: WorkerReplicas::default(),
            ticks: AtomicU64::new(0),
            cells: AtomicU32::new(0),
            instances: AtomicU32::new(0),
            epoch: AtomicU64::new(0),
            is_watching: AtomicBool::new(false),
            is_draining: AtomicBool::new(false),
            services: Mutex::default(),
        })))
    }

    /// Returns the state of an S service, with its dynamic resources; cells are loaded on first use.
    ///
    /// # Errors
    /// If a service of that name exists already, or the store fails.
    pub async fn open_service(
        &self,
        plan: StatePlan,
        settings: StateSettings,
    ) -> Result<ServiceState, StateError> {
        self.watch_commits();
        let keys = StoreKeys::new(&plan.service);
        let name = Arc::clone(keys.service());
        let home = Arc::new(ServiceGroups::new(Arc::clone(&self.0), settings, keys));
        {
            let mut services = self.0.services.lock().unwrap_or_else(PoisonError::into_inner);
            if services.get(&name).is_some_and(|home| home.strong_count() > 0) {
                return Err(StateError::DuplicateService { service: name });
            }
            services.insert(name, Arc::downgrade(&home));
        }
        home.load_initial().await?;
        Ok(ServiceState::new(home, plan))
    }

    /// Watches for changes by other gateways until this is dropped.
    fn watch_commits(&self) {
        if self.0.is_watching.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut changed = self.0.store.subscribe_commits();
        let shared = Arc::downgrade(&self.0);
        spawn(async move {
            while changed.next().await.is_ok() {
                let Some(shared) = shared.upgrade() else { break };
                shared.epoch.fetch_add(1, Ordering::Release);
            }
        });
    }

    /// Must be called about once a second: renews leases of groups that are being written, removes expired
    /// resources, and unloads idle groups.
    pub async fn tick(&self, now: SystemTime) {
        let tick = self.0.ticks.fetch_add(1, Ordering::Relaxed) + 1;
        for home in self.0.live_services() {
            home.tick(tick, now, Instant::now()).await;
        }
    }

    /// Starts draining: from now on, leases are released as soon as no writer uses them.
    pub async fn drain(&self) {
        self.0.is_draining.store(true, Ordering::Release);
        for home in self.0.live_services() {
            for group in home.groups() {
                group.release_lease().await;
            }
        }
    }

    /// Forgets a lost worker and its copies.
    pub fn remove_worker(&self, worker: u32) {
        self.0.workers.remove_worker(worker);
    }
}
