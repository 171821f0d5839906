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
use std::time::{Duration, Instant};

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
        let inner = Inner { items: HashMap::new(), stats: CacheStats::default() };
        Self { capacity, inner: Mutex::new(inner) }
    }

    /// The item with this key, if it is there and made.
    pub fn get(&self, key: Key) -> Option<T> {
        let mut inner = self.lock();
        let item = inner.items.get_mut(&key)?;
        let found = item.cell.get()?.clone();
        item.used();
        inner.stats.hits += 1;
        Some(found)
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
        let cell = self.cell(key, owner);
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

    /// Lets the least worthy items go where there are too many.
    pub fn sweep(&self) {
        let now = Instant::now();
        let mut inner = self.lock();
        inner.share(self.capacity / 2, now);
        if inner.stats.bytes > self.capacity / 10 * FULL {
            inner.shrink(self.capacity / 10 * SWEPT, now, |_| true);
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
            item.used();
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
    fn weigh(&self, key: Key, bytes: usize) {
        let mut inner = self.lock();
        let Some(item) = inner.items.get_mut(&key) else { return };
        item.weight = bytes;
        inner.stats.bytes += bytes;
        if inner.stats.bytes > self.capacity {
            inner.shrink(self.capacity / 10 * SWEPT, Instant::now(), |_| true);
        }
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

impl<T> Item<T> {
    fn used(&mut self) {
        self.uses = self.uses.saturating_add(1);
        self.last = Instant::now();
    }

    /// Uses over the time since the last one.
    fn value(&self, now: Instant) -> f64 {
        f64::from(self.uses) / (now.saturating_duration_since(self.last) + MOMENT).as_secs_f64()
    }
}

impl<T> Inner<T> {
    /// Takes what an owner has above its share.
    fn share(&mut self, share: usize, now: Instant) {
        let mut owners: HashMap<OwnerId, usize> = HashMap::new();
        self.items.values().for_each(|item| *owners.entry(item.owner).or_default() += item.weight);
        for (owner, bytes) in owners.into_iter().filter(|(_, bytes)| *bytes > share) {
            let least = share / 10 * FULL;
            self.shrink(self.stats.bytes - (bytes - least), now, |item| item.owner == owner);
        }
    }

    /// Pushes out the least worthy of some items until so many bytes are left.
    fn shrink(&mut self, bytes: usize, now: Instant, which: impl Fn(&Item<T>) -> bool) {
        let made = self.items.iter().filter(|(_, item)| item.weight > 0 && which(item));
        let mut values: Vec<(f64, Key)> = made.map(|(key, item)| (item.value(now), *key)).collect();
        values.sort_unstable_by(|(a, _), (b, _)| a.total_cmp(b));
        for (_, key) in values {
            if self.stats.bytes <= bytes {
                break;
            }
            if let Some(item) = self.items.remove(&key) {
                self.stats.bytes -= item.weight;
                self.stats.evictions += 1;
            }
        }
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
            assert_eq!(cache.get([1; 32]), Some(1));
        }
        for key in 2..=60 {
            put(&cache, key, u64::from(key), 10).await;
            cache.sweep();
        }
        assert_eq!(cache.get([1; 32]), Some(1), "60 others came by and none was used twice");
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
            cache.sweep();
        }
        assert!((1..=3).all(|key| cache.get([key; 32]).is_some()), "the other owner's stay");
        let held = (10..=15).filter(|key| cache.get([*key; 32]).is_some()).count();
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
    async fn a_refused_item_is_not_kept() {
        let cache: Cache<u8> = Cache::new(20);
        let refused = cache.get_or_make([1; 32], 0, || async { Err("no") }).await;
        assert_eq!(refused, Err("no"));
        assert_eq!(cache.stats().items, 0);
        assert_eq!(put(&cache, 1, 0, 10).await, 1);
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
