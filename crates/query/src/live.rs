//! The pool of warm instances, for the mode *instance*.
//!
//! A program finds its memory as its previous run left it. An instance therefore serves a single session,
//! which is one client's token. It serves one request at a time, and is dropped when it traps, exceeds a
//! limit, or has grown by more than [`GROWTH`]. A warm instance keeps its slot in the instance pool. All of
//! them together use at most half of the slots; the instance with the lowest value (uses divided by the time
//! since the last one) is evicted first.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use offload::polls::{PollSite, watched};
use sandbox::{Key, OwnerId, Store};
use tokio::sync::OwnedSemaphorePermit;

use crate::guest::Guest;
use crate::random::RandomMap;
use crate::run::Entry;
use crate::token::Session;

/// The maximum growth of an instance, in bytes of linear memory.
pub(crate) const GROWTH: usize = 512 << 10;
/// The maximum number of instances per session, as needed by concurrent requests.
const EACH: usize = 4;
/// The time after which an unused instance is dropped.
const IDLE: Duration = Duration::from_secs(60);
/// The maximum share of one owner: the reciprocal of the fraction of all warm instances.
const SHARE: usize = 8;
const SWEEP: Duration = Duration::from_secs(10);

/// A warm instance, between two requests.
pub(crate) struct Live {
    pub(crate) store: Store<Guest>,
    pub(crate) seat: Box<Seat>,
}

/// The state of an instance in addition to its store.
pub(crate) struct Seat {
    pub(crate) entry: Entry,
    /// Its slot in the instance pool.
    _permit: OwnedSemaphorePermit,
    /// The owner, for the per-owner maximum.
    owner: OwnerId,
    /// Bytes of linear memory before the first run.
    first: usize,
    uses: u32,
    last: Instant,
}

/// The pool of warm instances.
pub(crate) struct Lives {
    most: usize,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    sessions: RandomMap<Session, Lot>,
    /// The number of instances per owner. The sweep removes owners without instances.
    owners: RandomMap<OwnerId, usize>,
    count: usize,
    is_swept: bool,
}

/// The instances of a session. Empty while all are in use, until the next sweep.
struct Lot {
    /// The key of the session's program.
    key: Key,
    lives: Vec<Live>,
}

/// Whether an instance has grown too much to be kept, given its linear memory now and before its first run.
pub(crate) fn has_outgrown(linear: usize, first: usize) -> bool {
    linear > first + GROWTH
}

impl Seat {
    pub(crate) fn new(entry: Entry, permit: OwnedSemaphorePermit, owner: OwnerId, first: usize) -> Self {
        Self { entry, _permit: permit, owner, first, uses: 0, last: Instant::now() }
    }

    /// Returns the bytes of linear memory before the first run.
    pub(crate) fn first(&self) -> usize {
        self.first
    }

    fn value(&self, now: Instant) -> f64 {
        let age = now.saturating_duration_since(self.last) + Duration::from_secs(1);
        f64::from(self.uses) / age.as_secs_f64()
    }
}

impl Lives {
    pub(crate) fn new(instances: u32) -> Self {
        Self { most: (instances / 2) as usize, inner: Arc::default() }
    }

    /// Takes an instance of this session for one request.
    pub(crate) fn take(&self, session: Session, key: Key) -> Option<Live> {
        let mut inner = lock(&self.inner);
        let live = inner.sessions.get_mut(&session).filter(|lot| lot.key == key)?.lives.pop()?;
        inner.gone(live.seat.owner);
        Some(live)
    }

    /// Adds an instance, after its first run or a later one.
    pub(crate) fn put(&self, session: Session, key: Key, mut live: Live, now: Instant) {
        if has_outgrown(live.store.data().linear(), live.seat.first) || self.most == 0 {
            return;
        }
        live.seat.uses = live.seat.uses.saturating_add(1);
        live.seat.last = now;
        // Evicted instances are dropped after the lock is released.
        let mut gone = Vec::new();
        let mut inner = lock(&self.inner);
        let lot = inner.sessions.entry(session).or_insert_with(|| Lot { key, lives: Vec::new() });
        if lot.key != key || lot.lives.len() >= EACH {
            return;
        }
        let owner = live.seat.owner;
        lot.lives.push(live);
        inner.count += 1;
        let held = inner.owners.entry(owner).or_default();
        *held += 1;
        if *held > (self.most / SHARE).max(1) {
            gone.extend(inner.least(now, |seat| seat.owner == owner));
        } else if inner.count > self.most {
            gone.extend(inner.least(now, |_| true));
        }
        if !std::mem::replace(&mut inner.is_swept, true) {
            tokio::spawn(watched(PollSite::Query, sweep(Arc::downgrade(&self.inner))));
        }
        drop(inner);
    }

    /// Returns the number of instances.
    pub(crate) fn count(&self) -> usize {
        lock(&self.inner).count
    }
}

impl Inner {
    /// Removes an instance from the counts.
    fn gone(&mut self, owner: OwnerId) {
        self.count -= 1;
        self.owners.entry(owner).and_modify(|held| *held -= 1);
    }

    /// Removes and returns the instance with the lowest value among those that match.
    fn least(&mut self, now: Instant, which: impl Fn(&Seat) -> bool) -> Option<Live> {
        let all = self.sessions.iter().flat_map(|(key, lot)| {
            lot.lives
                .iter()
                .enumerate()
                .filter(|(_, live)| which(&live.seat))
                .map(move |(at, live)| (live, *key, at))
        });
        let values = all.map(|(live, key, at)| (live.seat.value(now), key, at));
        let (_, key, at) = values.min_by(|(a, ..), (b, ..)| a.total_cmp(b))?;
        let live = self.sessions.get_mut(&key)?.lives.swap_remove(at);
        self.gone(live.seat.owner);
        Some(live)
    }

    /// Removes and returns the idle instances.
    fn idle(&mut self, now: Instant) -> Vec<Live> {
        let mut idle = Vec::new();
        self.sessions.retain(|_, Lot { lives, .. }| {
            idle.extend(lives.extract_if(.., |live| now.saturating_duration_since(live.seat.last) > IDLE));
            !lives.is_empty()
        });
        idle.iter().for_each(|live| self.gone(live.seat.owner));
        self.owners.retain(|_, held| *held > 0);
        idle
    }
}

/// Drops idle instances periodically, until the pool is empty.
async fn sweep(lives: std::sync::Weak<Mutex<Inner>>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        let Some(lives) = lives.upgrade() else { return };
        let (gone, is_over) = {
            let mut inner = lock(&lives);
            let gone = inner.idle(Instant::now());
            inner.is_swept = inner.count > 0;
            (gone, inner.count == 0)
        };
        // Dropping one takes a tenth of a millisecond, and there may be hundreds.
        for live in gone {
            drop(live);
            tokio::task::yield_now().await;
        }
        if is_over {
            return;
        }
    }
}

fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}
