//! Compiled programs by key, bounded in bytes.
//!
//! An item is worth what it is used: uses over the time since the last one (the ORFA paper, section 3.4). Above
//! nine tenths of the capacity the least worthy go, until four fifths are left; [`Cache::sweep`] is called by whoever
//! has just compiled, off the request threads. No owner holds more than half of the cache, so that a
//! stream of one owner's programs pushes out its own. Two requests for the same unseen program
//! compile it once: [`Cache::get_or_make`] hands both the same cell.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use foldhash::fast::RandomState;
use tokio::sync::OnceCell;

/// The key: SHA-256 of what was compiled, and for whom.
pub type Key = [u8; 32];
/// To whom an item belongs, as a number.
pub type OwnerId = u64;

/// An item that was used once just now is worth one use a second, and not infinitely many.
const MOMENT: Duration = Duration::from_secs(1);
/// What is left after a sweep, and where one begins, of ten parts.
const SWEPT: usize = 8;
const FULL: usize = 9;

/// A bounded cache. Each use writes to it: nothing that is only read lies beside it in memory.
#[derive(Debug)]
#[repr(align(128))]
pub struct Cache<T> {
    capacity: usize,
    inner: Mutex<Inner<T>>,
}

/// What a cache holds and did, for the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Items.
    pub items: usize,
    /// Their weight in bytes.
    pub bytes: usize,
    /// Found.
    pub hits: u64,
    /// Not found, and made.
    pub misses: u64,
    /// Pushed out.
    pub evictions: u64,
}

#[derive(Debug)]
struct Inner<T> {
    items: HashMap<Key, Item<T>, RandomState>,
    /// What each owner's items weigh.
    owners: HashMap<OwnerId, usize>,
    stats: CacheStats,
}

#[derive(Debug)]
struct Item<T> {
    cell: Arc<OnceCell<T>>,
    owner: OwnerId,
    weight: usize,
    uses: u32,
    last: Instant,
}

impl<T: Clone> Cache<T> {
    /// A cache for at most `capacity` bytes.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let inner = Inner { items: HashMap::default(), owners: HashMap::new(), stats: CacheStats::default() };
        Self { capacity, inner: Mutex::new(inner) }
    }

    /// The item with this key, if it is there and made. It is used `now`.
    pub fn get(&self, key: Key, now: Instant) -> Option<T> {
        let mut inner = self.lock();
        let item = inner.items.get_mut(&key)?;
        let found = item.cell.get()?.clone();
        item.used(now);
        inner.stats.hits += 1;
        Some(found)
    }

    /// When the item with this key was last used, if it is there.
    pub fn last_use(&self, key: &Key) -> Option<SystemTime> {
        let last = self.lock().items.get(key)?.last;
        SystemTime::now().checked_sub(last.elapsed())
    }

    /// The item with this key, made by `make` if it is not there: the item and its weight. Whatever `make`
    /// refuses is not kept.
    ///
    /// # Errors
    /// Those of `make`.
    pub async fn get_or_make<E, F>(&self, key: Key, owner: OwnerId, make: impl FnOnce() -> F) -> Result<T, E>
    where
        F: Future<Output = Result<(T, usize), E>>,
    {
        let begun = Begun { cache: self, key, cell: self.cell(key, owner) };
        if let Some(item) = begun.cell.get() {
            return Ok(item.clone());
        }
        let mut weight = None;
        let made = begun.cell.get_or_try_init(|| async {
            let (item, bytes) = make().await?;
            weight = Some(bytes);
            Ok(item)
        });
        let made = made.await.cloned();
        weight.into_iter().for_each(|bytes| self.weigh(key, &begun.cell, bytes));
        made
    }

    /// Puts an item there that nobody waits for, unless it is there or being made.
    pub fn put(&self, key: Key, owner: OwnerId, item: T, weight: usize) {
        let cell = self.cell(key, owner);
        if cell.set(item).is_ok() {
            self.weigh(key, &cell, weight);
        }
    }

    /// Lets the least worthy items go where there are too many, or where this owner has more than its share.
    pub fn sweep(&self, owner: OwnerId) {
        let (now, share) = (Instant::now(), self.capacity / 2);
        let mut inner = self.lock();
        let mut gone = Vec::new();
        let held = inner.owners.get(&owner).copied().unwrap_or_default();
        if held > share {
            let over = held - share / 10 * FULL;
            let left = inner.stats.bytes - over;
            gone = inner.shrink(left, now, |item| item.owner == owner);
        }
        if inner.stats.bytes > self.capacity / 10 * FULL {
            gone.extend(inner.shrink(self.capacity / 10 * SWEPT, now, |_| true));
        }
        // To let go of code takes its time: nobody waits for the lock meanwhile.
        drop(inner);
        drop(gone);
    }

    /// An item has become so many bytes heavier, if it is still there.
    pub fn add_weight(&self, key: Key, bytes: usize) {
        let found = self.lock().items.get(&key).map(|item| (item.cell.clone(), item.weight));
        if let Some((cell, weight)) = found {
            self.weigh(key, &cell, weight + bytes);
        }
    }

    /// What it holds and did.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        let inner = self.lock();
        CacheStats { items: inner.items.len(), ..inner.stats }
    }

    fn cell(&self, key: Key, owner: OwnerId) -> Arc<OnceCell<T>> {
        let mut inner = self.lock();
        if let Some(item) = inner.items.get_mut(&key) {
            item.used(Instant::now());
            let cell = item.cell.clone();
            inner.stats.hits += u64::from(cell.initialized());
            return cell;
        }
        inner.stats.misses += 1;
        let cell = Arc::new(OnceCell::new());
        let item = Item { cell: cell.clone(), owner, weight: 0, uses: 1, last: Instant::now() };
        inner.items.insert(key, item);
        cell
    }

    /// Counts an item that was made; where nobody has swept in time, now.
    fn weigh(&self, key: Key, cell: &Arc<OnceCell<T>>, bytes: usize) {
        let mut inner = self.lock();
        let Some(item) = inner.items.get_mut(&key).filter(|item| Arc::ptr_eq(&item.cell, cell)) else {
            return;
        };
        let (owner, before) = (item.owner, std::mem::replace(&mut item.weight, bytes));
        inner.stats.bytes = inner.stats.bytes - before + bytes;
        let held = inner.owners.entry(owner).or_default();
        *held = *held - before + bytes;
        if inner.stats.bytes > self.capacity {
            let gone = inner.shrink(self.capacity / 10 * SWEPT, Instant::now(), |_| true);
            drop(inner);
            drop(gone);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody waits for an item. The last one who goes without it takes its place away: whoever was to make it may have
/// failed, or gone away half-way.
struct Begun<'a, T: Clone> {
    cache: &'a Cache<T>,
    key: Key,
    cell: Arc<OnceCell<T>>,
}

impl<T: Clone> Drop for Begun<'_, T> {
    fn drop(&mut self) {
        if self.cell.initialized() {
            return;
        }
        let mut inner = self.cache.lock();
        let is_last =
            |item: &Item<T>| Arc::ptr_eq(&item.cell, &self.cell) && Arc::strong_count(&self.cell) == 2;
        if inner.items.get(&self.key).is_some_and(is_last) {
            inner.items.remove(&self.key);
        }
    }
}

impl<T> Item<T> {
    fn used(&mut self, now: Instant) {
        self.uses = self.uses.saturating_add(1);
        self.last = self.last.max(now);
    }

    /// Uses over the time since the last one.
    fn value(&self, now: Instant) -> f64 {
        f64::from(self.uses) / (now.saturating_duration_since(self.last) + MOMENT).as_secs_f64()
    }
}

impl<T> Inner<T> {
    /// Takes the least worthy of some items out until so many bytes are left.
    fn shrink(&mut self, bytes: usize, now: Instant, which: impl Fn(&Item<T>) -> bool) -> Vec<Item<T>> {
        let made = self.items.iter().filter(|(_, item)| item.weight > 0 && which(item));
        let mut values: Vec<(f64, Key)> = made.map(|(key, item)| (item.value(now), *key)).collect();
        values.sort_unstable_by(|(a, _), (b, _)| a.total_cmp(b));
        let mut gone = Vec::new();
        for (_, key) in values {
            if self.stats.bytes <= bytes {
                break;
            }
            let Some(item) = self.items.remove(&key) else { continue };
            self.stats.bytes -= item.weight;
            self.stats.evictions += 1;
            if let Some(held) = self.owners.get_mut(&item.owner) {
                *held -= item.weight;
                if *held == 0 {
                    self.owners.remove(&item.owner);
                }
            }
            gone.push(item);
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn put(cache: &Cache<u8>, key: u8, owner: OwnerId, weight: usize) -> u8 {
        let made = cache.get_or_make([key; 32], owner, || async { Ok::<_, ()>((key, weight)) }).await;
        made.unwrap()
    }

    #[tokio::test]
    async fn what_is_used_stays_and_what_came_once_goes() {
        let cache = Cache::new(100);
        put(&cache, 1, 1, 10).await;
        for _ in 0..5 {
            assert_eq!(cache.get([1; 32], Instant::now()), Some(1));
        }
        for key in 2..=60 {
            put(&cache, key, u64::from(key), 10).await;
            cache.sweep(key.into());
        }
        assert_eq!(cache.get([1; 32], Instant::now()), Some(1), "60 others came by and none was used twice");
        assert!(cache.stats().bytes <= 90, "{:?}", cache.stats());
        assert_eq!(cache.stats().evictions as usize + cache.stats().items, 60);
    }

    #[tokio::test]
    async fn nobody_holds_more_than_half() {
        let cache = Cache::new(100);
        for key in 1..=3 {
            put(&cache, key, 1, 10).await;
        }
        for key in 10..=15 {
            put(&cache, key, 2, 10).await;
            cache.sweep(2);
        }
        assert!((1..=3).all(|key| cache.get([key; 32], Instant::now()).is_some()), "the other owner's stay");
        let held = (10..=15).filter(|key| cache.get([*key; 32], Instant::now()).is_some()).count();
        assert!(held <= 5, "{held} of 6");
    }

    #[tokio::test]
    async fn it_is_never_larger_than_it_may_be_even_if_nobody_sweeps() {
        let cache = Cache::new(100);
        for key in 0..50 {
            put(&cache, key, u64::from(key), 10).await;
            assert!(cache.stats().bytes <= 100);
        }
    }

    #[tokio::test]
    async fn what_grows_pushes_others_out_and_what_is_gone_does_not_grow() {
        let cache = Cache::new(100);
        put(&cache, 1, 1, 40).await;
        put(&cache, 2, 2, 40).await;
        assert_eq!(cache.get([2; 32], Instant::now()), Some(2));
        cache.add_weight([2; 32], 30);
        assert_eq!((cache.get([1; 32], Instant::now()), cache.stats().bytes), (None, 70));
        cache.add_weight([1; 32], 30);
        assert_eq!((cache.stats().items, cache.stats().bytes), (1, 70));
    }

    #[tokio::test]
    async fn a_refused_item_is_not_kept() {
        let cache: Cache<u8> = Cache::new(20);
        let refused = cache.get_or_make([1; 32], 0, || async { Err("no") }).await;
        assert_eq!(refused, Err("no"));
        assert_eq!(cache.stats().items, 0);
        assert_eq!(put(&cache, 1, 0, 10).await, 1);
    }

    #[tokio::test]
    async fn who_goes_away_half_way_leaves_nothing_behind() {
        let cache: Cache<u8> = Cache::new(20);
        let never = cache.get_or_make([1; 32], 0, std::future::pending::<Result<(u8, usize), ()>>);
        assert!(tokio::time::timeout(std::time::Duration::ZERO, never).await.is_err());
        assert_eq!(cache.stats().items, 0);
    }

    #[tokio::test]
    async fn one_that_fails_takes_nothing_from_one_that_waits() {
        let cache: Cache<u8> = Cache::new(20);
        let fails = cache.get_or_make([1; 32], 0, || async {
            tokio::task::yield_now().await;
            Err("no")
        });
        let makes = cache.get_or_make([1; 32], 0, || async { Ok::<_, &str>((7, 10)) });
        let (failed, made) = tokio::join!(fails, makes);
        assert_eq!((failed, made), (Err("no"), Ok(7)));
        assert_eq!((cache.get([1; 32], Instant::now()), cache.stats().bytes), (Some(7), 10));
    }

    #[tokio::test]
    async fn two_at_once_make_it_once() {
        let cache: Cache<u8> = Cache::new(20);
        let made = std::sync::atomic::AtomicUsize::new(0);
        let make = || async {
            made.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            tokio::task::yield_now().await;
            Ok::<_, ()>((7, 10))
        };
        let (a, b) = tokio::join!(cache.get_or_make([1; 32], 0, make), cache.get_or_make([1; 32], 0, make));
        assert_eq!((a, b), (Ok(7), Ok(7)));
        assert_eq!(made.into_inner(), 1);
    }
}
