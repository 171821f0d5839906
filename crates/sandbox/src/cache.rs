//! The compile cache in memory: compiled programs, bounded in bytes.
//!
//! The value of an item is its uses divided by the time since the last one (the ORFA paper, section 3.4).
//! Above nine tenths of the capacity, the items with the lowest values are evicted until four fifths are
//! left. The thread that compiled a program calls [`ItemCache::make_room`], outside of the request threads.
//! No owner may hold more than half of the cache, so that a stream of one owner's programs evicts that
//! owner's own items. Two requests for the same new program compile it once: [`ItemCache::get_or_make`] gives
//! both the same cell.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use foldhash::fast::RandomState;
use tokio::sync::OnceCell;

/// The key of an item: SHA-256 of the program and its owner.
pub type CacheKey = [u8; 32];
/// The identifier of an item's owner.
pub type OwnerId = u64;

/// Added to the time since the last use, so that an item that was just used has a finite value.
const MIN_IDLE_TIME: Duration = Duration::from_secs(1);
/// The fill level after a sweep, and the level that starts one, in tenths of the capacity.
const SWEEP_TARGET_TENTHS: usize = 8;
const SWEEP_START_TENTHS: usize = 9;

/// A bounded cache. Aligned to avoid false sharing with read-only data, since each use writes to it.
#[derive(Debug)]
#[repr(align(128))]
pub struct ItemCache<T> {
    capacity: usize,
    inner: Mutex<ItemCacheInner<T>>,
}

/// Statistics of a cache, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// The number of items.
    pub items: usize,
    /// The weight of all items in bytes.
    pub bytes: usize,
    /// The number of lookups that found an item.
    pub hits: u64,
    /// The number of lookups that did not, so that the item was made.
    pub misses: u64,
    /// The number of evicted items.
    pub evictions: u64,
}

#[derive(Debug)]
struct ItemCacheInner<T> {
    items: HashMap<CacheKey, CacheItem<T>, RandomState>,
    /// The weight of each owner's items.
    owners: HashMap<OwnerId, usize>,
    stats: CacheStats,
}

#[derive(Debug)]
struct CacheItem<T> {
    cell: Arc<OnceCell<T>>,
    owner: OwnerId,
    weight: usize,
    uses: u32,
    last_used: Instant,
}

impl<T: Clone> ItemCache<T> {
    /// Creates a cache for at most `capacity` bytes.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let inner = ItemCacheInner {
            items: HashMap::default(),
            owners: HashMap::new(),
            stats: CacheStats::default(),
        };
        Self { capacity, inner: Mutex::new(inner) }
    }

    /// Returns the item with this key, if it is complete, and marks it as used at `now`.
    pub fn get(&self, key: CacheKey, now: Instant) -> Option<T> {
        let mut inner = self.lock();
        let item = inner.items.get_mut(&key)?;
        let found = item.cell.get()?.clone();
        item.record_use(now);
        inner.stats.hits += 1;
        Some(found)
    }

    /// Returns the time when the item with this key was last used.
    pub fn last_used(&self, key: &CacheKey) -> Option<SystemTime> {
        let last = self.lock().items.get(key)?.last_used;
        SystemTime::now().checked_sub(last.elapsed())
    }

    /// Returns the item with this key. If it is missing, calls `make`, which returns the item and its weight.
    /// Errors of `make` are not cached.
    ///
    /// # Errors
    /// The errors of `make`.
    pub async fn get_or_make<E, F>(
        &self,
        key: CacheKey,
        owner: OwnerId,
        make: impl FnOnce() -> F,
    ) -> Result<T, E>
    where
        F: Future<Output = Result<(T, usize), E>>,
    {
        let lookup = PendingLookup { cache: self, key, cell: self.get_or_insert_cell(key, owner) };
        if let Some(item) = lookup.cell.get() {
            return Ok(item.clone());
        }
        let mut weight = None;
        let made = lookup.cell.get_or_try_init(|| async {
            let (item, bytes) = make().await?;
            weight = Some(bytes);
            Ok(item)
        });
        let made = made.await.cloned();
        weight.into_iter().for_each(|bytes| self.set_weight(key, &lookup.cell, bytes));
        made
    }

    /// Inserts an item, unless it is present or being made.
    pub fn put(&self, key: CacheKey, owner: OwnerId, item: T, weight: usize) {
        let cell = self.get_or_insert_cell(key, owner);
        if cell.set(item).is_ok() {
            self.set_weight(key, &cell, weight);
        }
    }

    /// Evicts the items with the lowest values if the cache is too full with a new item of this weight, or if
    /// its owner exceeds its share.
    pub fn make_room(&self, owner: OwnerId, weight: usize) {
        let (now, share) = (Instant::now(), self.capacity / 2);
        let mut inner = self.lock();
        let mut items = Vec::new();
        let held = inner.owners.get(&owner).copied().unwrap_or_default() + weight;
        if held > share {
            let over = held - share / 10 * SWEEP_START_TENTHS;
            let left = inner.stats.bytes.saturating_sub(over);
            items = inner.evict_until(left, now, |item| item.owner == owner);
        }
        if inner.stats.bytes + weight > self.capacity / 10 * SWEEP_START_TENTHS {
            let left = (self.capacity / 10 * SWEEP_TARGET_TENTHS).saturating_sub(weight);
            items.extend(inner.evict_until(left, now, |_| true));
        }
        // Freeing code takes time, so the lock is released first.
        drop(inner);
        drop(items);
    }

    /// Increases the weight of an item, if it is still cached.
    pub fn add_weight(&self, key: CacheKey, bytes: usize) {
        let found = self.lock().items.get(&key).map(|item| (item.cell.clone(), item.weight));
        if let Some((cell, weight)) = found {
            self.set_weight(key, &cell, weight + bytes);
        }
    }

    /// Returns the cache's statistics.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        let inner = self.lock();
        CacheStats { items: inner.items.len(), ..inner.stats }
    }

    fn get_or_insert_cell(&self, key: CacheKey, owner: OwnerId) -> Arc<OnceCell<T>> {
        let mut inner = self.lock();
        if let Some(item) = inner.items.get_mut(&key) {
            item.record_use(Instant::now());
            let cell = item.cell.clone();
            inner.stats.hits += u64::from(cell.initialized());
            return cell;
        }
        inner.stats.misses += 1;
        let cell = Arc::new(OnceCell::new());
        let item = CacheItem { cell: cell.clone(), owner, weight: 0, uses: 1, last_used: Instant::now() };
        inner.items.insert(key, item);
        cell
    }

    /// Adds a new item's weight. Sweeps at once if the cache exceeds its capacity.
    fn set_weight(&self, key: CacheKey, cell: &Arc<OnceCell<T>>, bytes: usize) {
        let mut inner = self.lock();
        let Some(item) = inner.items.get_mut(&key).filter(|item| Arc::ptr_eq(&item.cell, cell)) else {
            return;
        };
        let (owner, before) = (item.owner, std::mem::replace(&mut item.weight, bytes));
        inner.stats.bytes = inner.stats.bytes - before + bytes;
        let held = inner.owners.entry(owner).or_default();
        *held = *held - before + bytes;
        if inner.stats.bytes > self.capacity {
            let items = inner.evict_until(self.capacity / 10 * SWEEP_TARGET_TENTHS, Instant::now(), |_| true);
            drop(inner);
            drop(items);
        }
    }

    fn lock(&self) -> MutexGuard<'_, ItemCacheInner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pending lookup of an item. The last one that ends without the item removes its entry, since the lookup
/// that was to make it has failed or was cancelled.
struct PendingLookup<'a, T: Clone> {
    cache: &'a ItemCache<T>,
    key: CacheKey,
    cell: Arc<OnceCell<T>>,
}

impl<T: Clone> Drop for PendingLookup<'_, T> {
    fn drop(&mut self) {
        if self.cell.initialized() {
            return;
        }
        let mut inner = self.cache.lock();
        let is_last =
            |item: &CacheItem<T>| Arc::ptr_eq(&item.cell, &self.cell) && Arc::strong_count(&self.cell) == 2;
        if inner.items.get(&self.key).is_some_and(is_last) {
            inner.items.remove(&self.key);
        }
    }
}

impl<T> CacheItem<T> {
    fn record_use(&mut self, now: Instant) {
        self.uses = self.uses.saturating_add(1);
        self.last_used = self.last_used.max(now);
    }

    /// Returns the uses divided by the time since the last one.
    fn eviction_value(&self, now: Instant) -> f64 {
        f64::from(self.uses) / (now.saturating_duration_since(self.last_used) + MIN_IDLE_TIME).as_secs_f64()
    }
}

impl<T> ItemCacheInner<T> {
    /// Removes and returns the matching items with the lowest values, until `bytes` are left.
    fn evict_until(
        &mut self,
        bytes: usize,
        now: Instant,
        which: impl Fn(&CacheItem<T>) -> bool,
    ) -> Vec<CacheItem<T>> {
        let made = self.items.iter().filter(|(_, item)| item.weight > 0 && which(item));
        let mut values: Vec<(f64, CacheKey)> =
            made.map(|(key, item)| (item.eviction_value(now), *key)).collect();
        values.sort_unstable_by(|(a, _), (b, _)| a.total_cmp(b));
        let mut items = Vec::new();
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
            items.push(item);
        }
        items
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn put(cache: &ItemCache<u8>, key: u8, owner: OwnerId, weight: usize) -> u8 {
        let made = cache.get_or_make([key; 32], owner, || async { Ok::<_, ()>((key, weight)) }).await;
        made.unwrap()
    }

    #[tokio::test]
    async fn keeps_used_items_and_evicts_unused_ones() {
        let cache = ItemCache::new(100);
        put(&cache, 1, 1, 10).await;
        for _ in 0..5 {
            assert_eq!(cache.get([1; 32], Instant::now()), Some(1));
        }
        for key in 2..=60 {
            cache.make_room(key.into(), 10);
            put(&cache, key, u64::from(key), 10).await;
        }
        assert_eq!(cache.get([1; 32], Instant::now()), Some(1), "59 others were used only once");
        assert!(cache.stats().bytes <= 90, "{:?}", cache.stats());
        assert_eq!(cache.stats().evictions as usize + cache.stats().items, 60);
    }

    #[tokio::test]
    async fn no_owner_exceeds_half_of_the_capacity() {
        let cache = ItemCache::new(100);
        for key in 1..=3 {
            put(&cache, key, 1, 10).await;
        }
        for key in 10..=15 {
            cache.make_room(2, 10);
            put(&cache, key, 2, 10).await;
        }
        assert!(
            (1..=3).all(|key| cache.get([key; 32], Instant::now()).is_some()),
            "the other owner's items stay"
        );
        let held = (10..=15).filter(|key| cache.get([*key; 32], Instant::now()).is_some()).count();
        assert!(held <= 5, "{held} of 6");
    }

    #[tokio::test]
    async fn inserting_an_item_after_making_room_evicts_nothing() {
        let cache = ItemCache::new(100);
        for key in 0..9 {
            put(&cache, key, u64::from(key), 10).await;
        }
        cache.make_room(50, 40);
        let evicted = cache.stats().evictions;
        assert!(evicted > 0, "40 more bytes do not fit");
        put(&cache, 50, 50, 40).await;
        assert_eq!(cache.stats().evictions, evicted);
    }

    #[tokio::test]
    async fn never_exceeds_the_capacity_without_sweeps() {
        let cache = ItemCache::new(100);
        for key in 0..50 {
            put(&cache, key, u64::from(key), 10).await;
            assert!(cache.stats().bytes <= 100);
        }
    }

    #[tokio::test]
    async fn added_weight_evicts_other_items() {
        let cache = ItemCache::new(100);
        put(&cache, 1, 1, 40).await;
        put(&cache, 2, 2, 40).await;
        assert_eq!(cache.get([2; 32], Instant::now()), Some(2));
        cache.add_weight([2; 32], 30);
        assert_eq!((cache.get([1; 32], Instant::now()), cache.stats().bytes), (None, 70));
        cache.add_weight([1; 32], 30);
        assert_eq!((cache.stats().items, cache.stats().bytes), (1, 70));
    }

    #[tokio::test]
    async fn does_not_cache_errors() {
        let cache: ItemCache<u8> = ItemCache::new(20);
        let refused = cache.get_or_make([1; 32], 0, || async { Err("no") }).await;
        assert_eq!(refused, Err("no"));
        assert_eq!(cache.stats().items, 0);
        assert_eq!(put(&cache, 1, 0, 10).await, 1);
    }

    #[tokio::test]
    async fn a_cancelled_lookup_leaves_no_entry() {
        let cache: ItemCache<u8> = ItemCache::new(20);
        let never = cache.get_or_make([1; 32], 0, std::future::pending::<Result<(u8, usize), ()>>);
        assert!(tokio::time::timeout(std::time::Duration::ZERO, never).await.is_err());
        assert_eq!(cache.stats().items, 0);
    }

    #[tokio::test]
    async fn a_failed_lookup_does_not_affect_waiting_ones() {
        let cache: ItemCache<u8> = ItemCache::new(20);
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
    async fn concurrent_lookups_make_an_item_once() {
        let cache: ItemCache<u8> = ItemCache::new(20);
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
