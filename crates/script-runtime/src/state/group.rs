//! Groups of cells that are written together: one writer at a time, and readers of the last durable version.
//!
//! A group's version counts its commits. It begins with the sum of the stored versions of its cells, each of
//! which increases with every commit that touches the cell; so it never decreases, even across restarts and
//! edits of the script. The next writer builds on the last *finished* version; readers see the last *durable*
//! one.
//!
//! The values of cells are in `cell.rs`; this file loads them and controls write access: within this gateway
//! by the group's slot, among gateways by its lease. `commit.rs` writes finished versions to the store.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use offload::QuotaKey;
use store::{Lease, Log};
use tokio::sync::{Notify, Semaphore};

use super::cell::{Cell, Compaction, Folded, SHORT, Waste};
use super::changes::Refused;
use super::commit::Sealed;
use super::error::Error;
use super::home::{Domain, Home};
use super::keys::Keys;
use super::workers::Forget;

/// The duration of a lease.
pub(crate) const LEASE: Duration = Duration::from_secs(10);
/// A lease with less remaining time is renewed before it is relied on.
const MARGIN: Duration = Duration::from_secs(2);
/// The epoch of a group that has not been synchronised: everything must be loaded again.
pub(crate) const NEVER: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) home: Arc<Home>,
    /// The path of its instance; `None` if the whole service has one group.
    pub(crate) path: Option<Arc<str>>,
    pub(crate) lease_name: Arc<str>,
    pub(crate) domain: Arc<Domain>,
    /// Retiring groups that share some of its cells, and must be finished first.
    before: Mutex<Vec<Arc<Group>>>,
    /// The writer's permit; first come, first served.
    pub(crate) slot: Arc<Semaphore>,
    /// Serialises loading.
    loading: tokio::sync::Mutex<()>,
    /// Notifies the courier of a finished commit.
    pub(crate) arrived: Notify,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    /// The cells by their keys in the store.
    pub(crate) cells: HashMap<Arc<str>, Cell>,
    pub(crate) finished: u64,
    pub(crate) durable: u64,
    /// Incremented on a rollback: runs that are based on an earlier generation cannot commit.
    pub(crate) generation: u64,
    pub(crate) state: State,
    pub(crate) lease: Option<(Lease, Instant)>,
    /// The epoch up to which changes of other gateways are loaded.
    pub(crate) seen: u64,
    /// Finished commits that are not yet submitted to the store.
    pub(crate) queue: VecDeque<Sealed>,
    pub(crate) is_carried: bool,
    /// The handler that has the slot.
    pub(crate) writer: Arc<str>,
    /// The tick of the last use.
    pub(crate) used: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Not loaded yet.
    New,
    Open,
    /// Replaced by another group, which must be looked up.
    Closed,
    /// The instance was removed.
    Gone,
}

impl Group {
    pub(crate) fn new(
        home: Arc<Home>,
        path: Option<Arc<str>>,
        domain: Arc<Domain>,
        before: Vec<Arc<Self>>,
    ) -> Self {
        Self {
            lease_name: home.keys.lease(path.as_deref(), &domain.name),
            path,
            domain,
            before: Mutex::new(before),
            slot: Arc::new(Semaphore::new(1)),
            loading: tokio::sync::Mutex::default(),
            arrived: Notify::new(),
            inner: Mutex::new(Inner {
                cells: HashMap::new(),
                finished: 0,
                durable: 0,
                generation: 0,
                state: State::New,
                lease: None,
                seen: NEVER,
                queue: VecDeque::new(),
                is_carried: false,
                writer: "".into(),
                used: home.shared.ticks.load(Ordering::Relaxed),
            }),
            home,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ensures that these cells are loaded and include all commits of other gateways, and, for a writer, that
    /// this gateway holds the lease.
    pub(crate) async fn prepare(self: &Arc<Self>, wanted: &[Arc<str>], writes: bool) -> Result<(), Error> {
        if self.is_ready(wanted, writes) {
            return Ok(());
        }
        let _alone = self.loading.lock().await;
        if self.is_ready(wanted, writes) {
            return Ok(());
        }
        for group in self.before() {
            group.retire().await;
        }
        self.before.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let epoch = self.home.shared.epoch();
        if writes {
            self.take_lease().await?;
        }
        self.load(wanted, epoch).await
    }

    /// Returns the groups that must be finished with its cells first.
    pub(crate) fn before(&self) -> Vec<Arc<Self>> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for the writer and for pending commits, and closes the group.
    async fn retire(self: &Arc<Self>) {
        let Ok(permit) = self.slot.acquire().await else { return };
        let generation = self.lock().generation;
        if let Ok(settled) = self.settled(generation) {
            let _ = settled.wait().await;
        }
        self.close(State::Closed);
        drop(permit);
        self.release().await;
    }

    fn is_ready(&self, wanted: &[Arc<str>], writes: bool) -> bool {
        let mut inner = self.lock();
        inner.used = self.home.shared.ticks.load(Ordering::Relaxed);
        let is_held = inner.lease.as_ref().is_some_and(|(_, end)| *end > Instant::now() + MARGIN);
        let is_fresh = inner.seen != NEVER && (is_held || inner.seen == self.home.shared.epoch());
        is_fresh && (is_held || !writes) && wanted.iter().all(|key| inner.cells.contains_key(key))
    }

    async fn take_lease(&self) -> Result<(), Error> {
        let held = self.lock().lease.clone();
        if let Some((lease, end)) = held
            && (end > Instant::now() + MARGIN || self.renew(&lease).await?)
        {
            return Ok(());
        }
        let until = Instant::now() + LEASE;
        let lease = self.home.lease(&self.lease_name).await?;
        let mut inner = self.lock();
        inner.lease = Some((lease, until));
        // Other gateways may have written while they held the lease.
        inner.seen = NEVER;
        Ok(())
    }

    /// Extends the lease; returns whether this gateway still holds it.
    pub(crate) async fn renew(&self, lease: &Lease) -> Result<bool, Error> {
        let until = Instant::now() + LEASE;
        let renewed = self.home.shared.store.renew(lease, LEASE).await;
        let mut inner = self.lock();
        match renewed {
            Ok(()) => {
                if let Some((_, end)) = inner.lease.as_mut().filter(|(known, _)| known == lease) {
                    *end = until;
                }
                Ok(true)
            }
            Err(store::Error::LeaseLost { .. }) => {
                inner.lease = None;
                inner.seen = NEVER;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn load(self: &Arc<Self>, wanted: &[Arc<str>], epoch: u64) -> Result<(), Error> {
        let (known, is_new) = self.unknown(wanted, epoch);
        let elsewhere = if is_new { self.elsewhere().await? } else { 0 };
        let logs = self.home.shared.store.load_after(known.clone()).await?;
        let logs = self.folded(&known, logs).await?;
        let (mut waste, mut long) = (Waste::default(), Vec::new());
        let mut inner = self.lock();
        // Pending commits build on the current values: the store will report whether these are still valid.
        let is_busy = inner.finished != inner.durable;
        let (version, next) = (inner.durable, inner.finished + 1);
        let mut came = 0;
        for ((key, asked), log) in known.into_iter().zip(logs) {
            let shared = &self.home.shared;
            match (inner.cells.get_mut(&key), log) {
                (None, log) => {
                    let is_counted = is_new && !self.is_scattered(&key);
                    came += log.as_ref().filter(|_| is_counted).map_or(0, |log| log.version);
                    let id = shared.cell_id();
                    let cell = match log {
                        Some(log) => Cell::loaded(id, version, log),
                        None => Cell::missing(id, version),
                    };
                    inner.cells.insert(Arc::clone(&key), cell);
                }
                (Some(cell), _) if is_busy || cell.stored != asked => {}
                (Some(cell), Some(log)) if log.version > asked => {
                    came += log.version - asked;
                    cell.refresh(next, log, &mut waste);
                    match cell.compaction(false).map_err(|refused| unreadable(&key, refused))? {
                        Compaction::Long(_) => long.push(Arc::clone(&key)),
                        Compaction::Store(..) | Compaction::Done => {}
                    }
                }
                (Some(cell), None) if asked > 0 => {
                    shared.workers.forget(Forget::Cell, &[cell.id]);
                    let missing = Cell::missing(shared.cell_id(), version);
                    waste.add(cell.bytes(), std::mem::replace(cell, missing));
                }
                _ => {}
            }
            if let Some(cell) = inner.cells.get(&key) {
                self.home.count(&key, cell);
            }
        }
        if is_new {
            inner.finished = (came + elsewhere).max(self.home.floor.load(Ordering::Relaxed));
            inner.state = State::Open;
        } else {
            inner.finished += came;
        }
        if !is_busy {
            inner.durable = inner.finished;
            inner.seen = epoch;
        }
        drop(inner);
        self.home.shared.discard(waste);
        for key in long {
            self.begin_compaction(key, false);
        }
        Ok(())
    }

    /// Applies the changes of logs to their snapshots; long ones in the pool.
    async fn folded(
        &self,
        known: &[(Arc<str>, u64)],
        logs: Vec<Option<Log>>,
    ) -> Result<Vec<Option<Folded>>, Error> {
        let work = logs.iter().flatten().map(Folded::work).sum::<usize>();
        let fold = move || logs.into_iter().map(|log| log.map(Folded::of).transpose()).collect::<Vec<_>>();
        let folded = if work <= SHORT {
            fold()
        } else {
            self.home.shared.work(QuotaKey::new(&self.lease_name), fold).await?
        };
        let keys = known.iter().map(|(key, _)| key);
        keys.zip(folded).map(|(key, log)| log.map_err(|refused| unreadable(key, refused))).collect()
    }

    /// Returns the keys to be loaded, with the known version of each, and whether nothing is loaded yet.
    fn unknown(&self, wanted: &[Arc<str>], epoch: u64) -> (Vec<(Arc<str>, u64)>, bool) {
        let inner = self.lock();
        let lacks =
            wanted.iter().filter(|key| !inner.cells.contains_key(*key)).map(|key| (Arc::clone(key), 0));
        let mut unknown: Vec<_> = lacks.collect();
        if inner.seen != epoch {
            unknown.extend(inner.cells.iter().map(|(key, cell)| (Arc::clone(key), cell.stored)));
        }
        (unknown, inner.state == State::New)
    }

    /// Whether a cell exists once at each path although the group is that of the whole service.
    fn is_scattered(&self, key: &str) -> bool {
        self.path.is_none() && self.domain.scattered.iter().any(|own| **own == *Keys::own(key))
    }

    /// Returns the sum of the versions of all such cells: not all of them are loaded.
    async fn elsewhere(&self) -> Result<u64, Error> {
        if self.path.is_some() || self.domain.scattered.is_empty() {
            return Ok(0);
        }
        let keys = self.home.shared.store.keys(self.home.keys.all_instances()).await?;
        Ok(keys.iter().filter(|(key, _)| self.is_scattered(key)).map(|(_, version)| version).sum())
    }

    /// Renews an expiring lease during a write; releases the lease if the gateway drains and no run writes.
    pub(crate) async fn keep_lease(&self, now: Instant) {
        if self.home.shared.is_draining() {
            self.release().await;
        }
        let lease = self.lock().lease.clone();
        let Some((lease, _)) = lease.filter(|(_, end)| *end < now + LEASE / 2) else { return };
        if self.slot.available_permits() == 0 {
            // If the store fails now, the commit will report it.
            let _ = self.renew(&lease).await;
        }
    }

    /// Releases the lease if no run writes.
    pub(crate) async fn release(&self) {
        let Ok(_permit) = self.slot.try_acquire() else { return };
        let lease = {
            let mut inner = self.lock();
            if inner.is_carried || !inner.queue.is_empty() {
                return;
            }
            inner.seen = NEVER;
            inner.lease.take()
        };
        if let Some((lease, _)) = lease {
            // A lease that is not released expires.
            let _ = self.home.shared.store.release(&lease).await;
        }
    }

    /// The length of the texts of all cells.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().cells.values().map(Cell::bytes).sum()
    }

    /// Discards the cells, and sets the state that later requests find.
    pub(crate) fn close(&self, state: State) {
        let mut inner = self.lock();
        inner.state = state;
        let ids: Vec<u32> = inner.cells.values().map(|cell| cell.id).collect();
        self.home.shared.workers.forget(Forget::Cell, &ids);
    }
}

fn unreadable(key: &Arc<str>, refused: Refused) -> Error {
    Error::Unreadable { key: Arc::clone(key), reason: refused.to_string() }
}
