//! Cells that are written together: one writer at a time, and readers of the last durable version.
//!
//! A group's version counts its commits. It begins with the sum of what the store says of its cells, each of which gets at
//! least one version with each commit that touches it: so it never goes back, restarts and edits of the script included.
//! The next writer starts on the last *finished* version; readers see the last *durable* one.
//!
//! The cells' values lie in `cell.rs`; here is when they are loaded, and who may write: within this gateway who has the
//! group's slot, among gateways who has its lease. `commit.rs` brings what is finished to the store.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use store::Lease;
use tokio::sync::{Notify, Semaphore};

use super::cell::Cell;
use super::changes::Refused;
use super::commit::Sealed;
use super::error::Error;
use super::home::{Domain, Home};
use super::keys::Keys;
use super::workers::Forget;

/// How long a lease is taken for.
pub(crate) const LEASE: Duration = Duration::from_secs(10);
/// A lease that ends so soon is renewed before it is relied on.
const MARGIN: Duration = Duration::from_secs(2);
/// That nothing was ever looked at: everything is to be asked of the store again.
pub(crate) const NEVER: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) home: Arc<Home>,
    /// Of its instance; none where there is one group for the whole service.
    pub(crate) path: Option<Arc<str>>,
    pub(crate) lease_name: Arc<str>,
    pub(crate) domain: Arc<Domain>,
    /// Groups that had some of its cells, and have to be done with them first.
    before: Mutex<Vec<Arc<Group>>>,
    /// One permit: the writer's. First come, first served.
    pub(crate) slot: Arc<Semaphore>,
    /// One loads at a time.
    loading: tokio::sync::Mutex<()>,
    /// Something was finished.
    pub(crate) arrived: Notify,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    /// By their keys in the store.
    pub(crate) cells: HashMap<Arc<str>, Cell>,
    pub(crate) finished: u64,
    pub(crate) durable: u64,
    /// Counts what was taken back: runs that were built on it can't commit.
    pub(crate) generation: u64,
    pub(crate) state: State,
    pub(crate) lease: Option<(Lease, Instant)>,
    /// How much of what other gateways did was looked at.
    pub(crate) seen: u64,
    /// Finished and not handed to the store yet.
    pub(crate) queue: VecDeque<Sealed>,
    pub(crate) is_carried: bool,
    /// The handler that has the slot.
    pub(crate) writer: Arc<str>,
    /// When it was last asked for, in ticks.
    pub(crate) used: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing was loaded yet.
    New,
    Open,
    /// Whoever asks looks for the group that took its place.
    Closed,
    /// Its instance was removed.
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

    /// Sees to it that these cells are here and no older than what other gateways committed, and, for a writer, that
    /// we have the lease.
    pub(crate) async fn prepare(&self, wanted: &[Arc<str>], writes: bool) -> Result<(), Error> {
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

    /// The groups that have to be done with its cells before it has them.
    pub(crate) fn before(&self) -> Vec<Arc<Self>> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for the writer, and for what was written to be durable or refused; then nobody uses the group any more.
    async fn retire(self: &Arc<Self>) {
        let Ok(permit) = self.slot.acquire().await else { return };
        let generation = self.lock().generation;
        // Nothing is written, but it is settled after all that was.
        if let Ok(settled) = self.commit(&[], generation, 0, b"", None) {
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
        // Others may have written while it was theirs.
        inner.seen = NEVER;
        Ok(())
    }

    /// Whether the lease is still ours, and then for longer.
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

    async fn load(&self, wanted: &[Arc<str>], epoch: u64) -> Result<(), Error> {
        let (known, is_new) = self.unknown(wanted, epoch);
        let elsewhere = if is_new { self.elsewhere().await? } else { 0 };
        let logs = self.home.shared.store.load_after(known.clone()).await?;
        let mut inner = self.lock();
        // What is under way was built on what is here: the store will say whether that is still so.
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
                        Some(log) => {
                            Cell::loaded(id, version, log).map_err(|refused| unreadable(&key, refused))?
                        }
                        None => Cell::missing(id, version),
                    };
                    inner.cells.insert(Arc::clone(&key), cell);
                }
                (Some(cell), _) if is_busy || cell.stored != asked => {}
                (Some(cell), Some(log)) if log.version > asked => {
                    came += log.version - asked;
                    cell.refresh(next, log).map_err(|refused| unreadable(&key, refused))?;
                }
                (Some(cell), None) if asked > 0 => {
                    shared.workers.forget(Forget::Cell, &[cell.id]);
                    *cell = Cell::missing(shared.cell_id(), version);
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
        Ok(())
    }

    /// The keys that have to be asked for, with what is known of each; and whether nothing was loaded yet.
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

    /// Whether there is one at each path of this cell, though the group is the service's.
    fn is_scattered(&self, key: &str) -> bool {
        self.path.is_none() && self.domain.scattered.iter().any(|own| **own == *Keys::own(key))
    }

    /// The versions of all those cells: not all of them are loaded.
    async fn elsewhere(&self) -> Result<u64, Error> {
        if self.path.is_some() || self.domain.scattered.is_empty() {
            return Ok(0);
        }
        let keys = self.home.shared.store.keys(self.home.keys.all_instances()).await?;
        Ok(keys.iter().filter(|(key, _)| self.is_scattered(key)).map(|(_, version)| version).sum())
    }

    /// Renews the lease if somebody writes and it ends soon; gives it back if the gateway drains and nobody does.
    pub(crate) async fn keep_lease(&self, now: Instant) {
        if self.home.shared.is_draining() {
            self.release().await;
        }
        let lease = self.lock().lease.clone();
        let Some((lease, _)) = lease.filter(|(_, end)| *end < now + LEASE / 2) else { return };
        if self.slot.available_permits() == 0 {
            // The store being away now is told to who commits.
            let _ = self.renew(&lease).await;
        }
    }

    /// Gives the lease back if nobody writes.
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
            // One that is not given back ends by itself.
            let _ = self.home.shared.store.release(&lease).await;
        }
    }

    /// Forgets its cells; who asks finds it in this state.
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
