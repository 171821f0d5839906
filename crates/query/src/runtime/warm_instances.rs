//! The pool of warm instances, for the mode *instance*.
//!
//! A program finds its memory as its previous run left it. An instance therefore serves a single session,
//! which is one client's token. It serves one request at a time, and is dropped when it traps, exceeds a
//! limit, or has grown by more than [`MAX_GROWTH`]. A warm instance keeps its slot in the instance pool;
//! between requests, that does not count for its client, which may have as many slots as without it. All of
//! them together use at most half of the slots, and those of one client at most an eighth of that; the
//! instance with the lowest value (uses divided by the time since the last one) is evicted first.

use std::collections::hash_map;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use offload::polls::{PollSite, watch_polls};
use offload::{FairPermit, ShareKey};
use sandbox::{CacheKey, Store};

use super::instantiate::EntryPoints;
use crate::host::QueryGuest;
use crate::program::{RandomMap, SessionId};

/// The maximum growth of an instance, in bytes of linear memory.
pub(crate) const MAX_GROWTH: usize = 512 << 10;
/// The maximum number of instances per session, as needed by concurrent requests.
const MAX_PER_SESSION: usize = 4;
/// The time after which an unused instance is dropped.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum share of one client: the reciprocal of the fraction of all warm instances.
const CLIENT_SHARE: usize = 8;
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// A warm instance, between two requests.
pub(crate) struct WarmInstance {
    pub(crate) store: Store<QueryGuest>,
    pub(crate) state: Box<WarmInstanceState>,
}

/// The state of an instance in addition to its store.
pub(crate) struct WarmInstanceState {
    pub(crate) entry: EntryPoints,
    /// Its slot in the instance pool, idle between requests.
    permit: FairPermit,
    /// The client that it was made for, which may have a part of all warm instances.
    client: ShareKey,
    /// Bytes of linear memory before the first run.
    initial_memory: usize,
    uses: u32,
    last_used: Instant,
}

/// The pool of warm instances.
pub(crate) struct WarmInstancePool {
    max_instances: usize,
    inner: Arc<Mutex<WarmInstancePoolInner>>,
}

#[derive(Default)]
struct WarmInstancePoolInner {
    sessions: RandomMap<SessionId, SessionBucket>,
    count: usize,
    is_sweeping: bool,
}

/// The instances of a session: at least one.
struct SessionBucket {
    /// The key of the session's program.
    key: CacheKey,
    instances: Vec<WarmInstance>,
}

/// Whether an instance has grown too much to be kept, given its linear memory now and before its first run.
pub(crate) fn has_outgrown(linear: usize, first: usize) -> bool {
    linear > first + MAX_GROWTH
}

impl WarmInstanceState {
    pub(crate) fn new(
        entry: EntryPoints,
        permit: FairPermit,
        client: ShareKey,
        initial_memory: usize,
    ) -> Self {
        Self { entry, permit, client, initial_memory, uses: 0, last_used: Instant::now() }
    }

    /// Returns the bytes of linear memory before the first run.
    pub(crate) fn initial_memory(&self) -> usize {
        self.initial_memory
    }

    fn eviction_value(&self, now: Instant) -> f64 {
        let age = now.saturating_duration_since(self.last_used) + Duration::from_secs(1);
        f64::from(self.uses) / age.as_secs_f64()
    }
}

impl WarmInstancePool {
    pub(crate) fn new(instances: u32) -> Self {
        Self { max_instances: (instances / 2) as usize, inner: Arc::default() }
    }

    /// Takes an instance of this session for one request.
    pub(crate) fn take(&self, session: SessionId, key: CacheKey) -> Option<WarmInstance> {
        let mut inner = lock(&self.inner);
        let hash_map::Entry::Occupied(mut lot) = inner.sessions.entry(session) else { return None };
        if lot.get().key != key {
            return None;
        }
        let mut live = lot.get_mut().instances.pop();
        if lot.get().instances.is_empty() {
            lot.remove();
        }
        inner.count -= usize::from(live.is_some());
        drop(inner);
        if let Some(live) = &mut live {
            live.state.permit.set_busy();
        }
        live
    }

    /// Adds an instance, after its first run or a later one.
    pub(crate) fn put(&self, session: SessionId, key: CacheKey, mut live: WarmInstance, now: Instant) {
        if has_outgrown(live.store.data().linear_memory(), live.state.initial_memory)
            || self.max_instances == 0
        {
            return;
        }
        live.state.uses = live.state.uses.saturating_add(1);
        live.state.last_used = now;
        live.state.permit.set_idle();
        // Evicted instances are dropped after the lock is released.
        let mut warm_instances = Vec::new();
        let mut inner = lock(&self.inner);
        let bucket =
            inner.sessions.entry(session).or_insert_with(|| SessionBucket { key, instances: Vec::new() });
        if bucket.key != key || bucket.instances.len() >= MAX_PER_SESSION {
            return;
        }
        let client = live.state.client;
        bucket.instances.push(live);
        inner.count += 1;
        let share = (self.max_instances / CLIENT_SHARE).max(1);
        if inner.count > share && inner.client_count(client) > share {
            warm_instances.extend(inner.remove_least_valuable(now, |state| state.client == client));
        } else if inner.count > self.max_instances {
            warm_instances.extend(inner.remove_least_valuable(now, |_| true));
        }
        if !std::mem::replace(&mut inner.is_sweeping, true) {
            tokio::spawn(watch_polls(PollSite::Query, sweep_idle(Arc::downgrade(&self.inner))));
        }
        drop(inner);
    }

    /// Returns the number of instances.
    pub(crate) fn count(&self) -> usize {
        lock(&self.inner).count
    }
}

impl WarmInstancePoolInner {
    /// Returns the number of a client's instances. There are at most a few hundred in all.
    fn client_count(&self, client: ShareKey) -> usize {
        self.sessions
            .values()
            .flat_map(|bucket| &bucket.instances)
            .filter(|live| live.state.client == client)
            .count()
    }

    /// Removes and returns the instance with the lowest value among those that match.
    fn remove_least_valuable(
        &mut self,
        now: Instant,
        which: impl Fn(&WarmInstanceState) -> bool,
    ) -> Option<WarmInstance> {
        let all = self.sessions.iter().flat_map(|(key, lot)| {
            lot.instances
                .iter()
                .enumerate()
                .filter(|(_, live)| which(&live.state))
                .map(move |(at, live)| (live, *key, at))
        });
        let values = all.map(|(live, key, at)| (live.state.eviction_value(now), key, at));
        let (_, key, at) = values.min_by(|(a, ..), (b, ..)| a.total_cmp(b))?;
        let bucket = self.sessions.get_mut(&key)?;
        let live = bucket.instances.swap_remove(at);
        if bucket.instances.is_empty() {
            self.sessions.remove(&key);
        }
        self.count -= 1;
        Some(live)
    }

    /// Removes and returns the idle instances.
    fn remove_idle(&mut self, now: Instant) -> Vec<WarmInstance> {
        let mut idle = Vec::new();
        self.sessions.retain(|_, SessionBucket { instances: lives, .. }| {
            idle.extend(
                lives.extract_if(.., |live| {
                    now.saturating_duration_since(live.state.last_used) > IDLE_TIMEOUT
                }),
            );
            !lives.is_empty()
        });
        self.count -= idle.len();
        idle
    }
}

/// Drops idle instances periodically, until the pool is empty.
async fn sweep_idle(lives: std::sync::Weak<Mutex<WarmInstancePoolInner>>) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        let Some(pool_inner) = lives.upgrade() else { return };
        let (instances, is_over) = {
            let mut inner = lock(&pool_inner);
            let warm_instances = inner.remove_idle(Instant::now());
            inner.is_sweeping = inner.count > 0;
            (warm_instances, inner.count == 0)
        };
        // Dropping one takes a tenth of a millisecond, and there may be hundreds.
        for live in instances {
            drop(live);
            tokio::task::yield_now().await;
        }
        if is_over {
            return;
        }
    }
}

fn lock(inner: &Mutex<WarmInstancePoolInner>) -> MutexGuard<'_, WarmInstancePoolInner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use offload::{FairSemaphore, QuotaKey};
    use query_abi::ENTRY;
    use sandbox::{GuestClass, Linker, Sandbox};

    use super::*;

    const KEY: CacheKey = [7; 32];

    /// Returns an instance of a client.
    async fn new_warm_instance(sandbox: &Sandbox, slots: &FairSemaphore, client: QuotaKey) -> WarmInstance {
        let wasm = r#"(module (memory (export "memory") 1) (func (export "orfa") (param i32 i32)))"#;
        let module = sandbox.compile(&wat::parse_str(wasm).unwrap()).unwrap();
        let mut store = Store::new(sandbox.engine(), QueryGuest::new_isolated());
        let instance = Linker::new(sandbox.engine()).instantiate_async(&mut store, &module).await.unwrap();
        let run = instance.get_typed_func(&mut store, ENTRY).unwrap();
        let permit = slots.acquire(client).await.unwrap();
        WarmInstance {
            store,
            state: Box::new(WarmInstanceState::new(
                EntryPoints::new_plain(run),
                permit,
                client.queue_share(),
                0,
            )),
        }
    }

    #[tokio::test]
    async fn keeps_nothing_of_sessions_without_instances() {
        let (sandbox, slots) = (Sandbox::unpooled(GuestClass::Plain).unwrap(), FairSemaphore::new(16));
        let (pool, client) = (WarmInstancePool::new(16), QuotaKey::new(&"client"));
        for number in 0..4 {
            pool.put([number; 8], KEY, new_warm_instance(&sandbox, &slots, client).await, Instant::now());
            let inner = lock(&pool.inner);
            assert_eq!((inner.count, inner.sessions.len()), (1, 1));
        }
        let session = *lock(&pool.inner).sessions.keys().next().unwrap();
        drop(pool.take(session, KEY).unwrap());
        let inner = lock(&pool.inner);
        assert_eq!((inner.count, inner.sessions.len()), (0, 0));
        assert_eq!(slots.available_permits(), 16);
    }

    #[tokio::test]
    async fn a_client_evicts_only_its_own_instances_above_its_share() {
        let (sandbox, slots) = (Sandbox::unpooled(GuestClass::Plain).unwrap(), FairSemaphore::new(16));
        let pool = WarmInstancePool::new(16);
        let (attacker, neighbour) = (QuotaKey::new(&"attacker"), QuotaKey::new(&"neighbour"));
        pool.put([255; 8], KEY, new_warm_instance(&sandbox, &slots, neighbour).await, Instant::now());
        for number in 0..4 {
            pool.put([number; 8], KEY, new_warm_instance(&sandbox, &slots, attacker).await, Instant::now());
        }
        assert_eq!(pool.count(), 2);
        assert!(pool.take([255; 8], KEY).is_some());
    }

    #[tokio::test]
    async fn an_idle_instance_leaves_the_other_slot_to_its_client() {
        let (sandbox, slots) =
            (Sandbox::unpooled(GuestClass::Plain).unwrap(), FairSemaphore::with_reserve(2));
        let (pool, client) = (WarmInstancePool::new(2), QuotaKey::new(&"client"));
        let instance = new_warm_instance(&sandbox, &slots, client).await;
        let mut next = Box::pin(slots.acquire(client));
        assert!((&mut next).now_or_never().is_none(), "an instance in use counts");
        pool.put([1; 8], KEY, instance, Instant::now());
        drop(next.now_or_never().expect("an idle one does not count"));
        let warm_instance = pool.take([1; 8], KEY).unwrap();
        assert!(slots.try_acquire(client).is_none(), "it is in use again");
        drop(warm_instance);
        assert_eq!(slots.available_permits(), 2);
    }
}
