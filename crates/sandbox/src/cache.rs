//! Compiled programs by content hash, bounded in bytes.
//!
//! A small cache of whatever the level above compiles: the caller says what an item weighs. The least
//! recently used item goes first. (Value by use over time, and who may push out whom, come with the
//! caching modes.) Two requests with the same unseen program compile it once: [`Cache::get_or_make`] hands
//! both the same cell.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OnceCell;

/// The key: SHA-256 of what was compiled.
pub type Key = [u8; 32];

/// A bounded cache.
#[derive(Debug)]
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
    items: HashMap<Key, Item<T>>,
    clock: u64,
    stats: CacheStats,
}

#[derive(Debug)]
struct Item<T> {
    cell: Arc<OnceCell<T>>,
    weight: usize,
    used: u64,
}

impl<T: Clone> Cache<T> {
    /// A cache for at most `capacity` bytes.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let inner = Inner { items: HashMap::new(), clock: 0, stats: CacheStats::default() };
        Self { capacity, inner: Mutex::new(inner) }
    }

    /// The item with this key, made by `make` if it is not there. Whatever `make` refuses is not kept.
    ///
    /// # Errors
    /// Those of `make`.
    pub async fn get_or_make<E, F>(&self, key: Key, make: impl FnOnce() -> F) -> Result<T, E>
    where
        F: Future<Output = Result<(T, usize), E>>,
    {
        let cell = self.cell(key);
        if let Some(item) = cell.get() {
            return Ok(item.clone());
        }
        let mut weight = None;
        let made = cell
            .get_or_try_init(|| async {
                let (item, bytes) = make().await?;
                weight = Some(bytes);
                Ok(item)
            })
            .await;
        match (&made, weight) {
            (Ok(_), Some(bytes)) => self.weigh(key, bytes),
            (Err(_), _) => self.forget(key),
            _ => {}
        }
        made.cloned()
    }

    /// What it holds and did.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        let inner = self.lock();
        CacheStats { items: inner.items.len(), ..inner.stats }
    }

    fn cell(&self, key: Key) -> Arc<OnceCell<T>> {
        let mut inner = self.lock();
        inner.clock += 1;
        let now = inner.clock;
        if let Some(item) = inner.items.get_mut(&key) {
            item.used = now;
            let cell = item.cell.clone();
            inner.stats.hits += 1;
            return cell;
        }
        inner.stats.misses += 1;
        let cell = Arc::new(OnceCell::new());
        inner.items.insert(key, Item { cell: cell.clone(), weight: 0, used: now });
        cell
    }

    fn weigh(&self, key: Key, bytes: usize) {
        let mut inner = self.lock();
        if let Some(item) = inner.items.get_mut(&key) {
            item.weight = bytes;
            inner.stats.bytes += bytes;
        }
        while inner.stats.bytes > self.capacity && inner.evict(key) {}
    }

    /// Drops an item that could not be made, unless somebody has begun to make it again.
    fn forget(&self, key: Key) {
        let mut inner = self.lock();
        if inner.items.get(&key).is_some_and(|item| item.cell.get().is_none()) {
            inner.items.remove(&key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Inner<T> {
    /// Pushes out the item that was not used for longest, though not `keep`. `false` if there is none.
    fn evict(&mut self, keep: Key) -> bool {
        let made = self.items.iter().filter(|(key, item)| **key != keep && item.weight > 0);
        let Some(key) = made.min_by_key(|(_, item)| item.used).map(|(key, _)| *key) else { return false };
        if let Some(item) = self.items.remove(&key) {
            self.stats.bytes -= item.weight;
            self.stats.evictions += 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn put(cache: &Cache<u8>, key: u8, weight: usize) -> u8 {
        let made = cache.get_or_make([key; 32], || async { Ok::<_, ()>((key, weight)) }).await;
        made.unwrap()
    }

    #[tokio::test]
    async fn the_least_recently_used_item_goes_first() {
        let cache = Cache::new(20);
        put(&cache, 1, 10).await;
        put(&cache, 2, 10).await;
        put(&cache, 1, 10).await;
        put(&cache, 3, 10).await;
        let expected = CacheStats { items: 2, bytes: 20, hits: 1, misses: 3, evictions: 1 };
        assert_eq!(cache.stats(), expected);
        let kept = cache.get_or_make([1; 32], || async { Err::<(u8, usize), _>("gone") }).await;
        assert_eq!(kept, Ok(1));
    }

    #[tokio::test]
    async fn a_refused_item_is_not_kept() {
        let cache: Cache<u8> = Cache::new(20);
        let refused = cache.get_or_make([1; 32], || async { Err("no") }).await;
        assert_eq!(refused, Err("no"));
        assert_eq!(cache.stats().items, 0);
        assert_eq!(put(&cache, 1, 10).await, 1);
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
        let (a, b) = tokio::join!(cache.get_or_make([1; 32], make), cache.get_or_make([1; 32], make));
        assert_eq!((a, b), (Ok(7), Ok(7)));
        assert_eq!(made.into_inner(), 1);
    }
}
