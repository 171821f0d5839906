//! Request coalescing: work that several requests need at the same time is done once, for all of them.
//!
//! Requests that arrive while the work is in flight share its result. Requests that arrive after its end
//! start it anew, so results are never cached, and no failure reaches a request that could have tried again.
//! The work runs as a task of its own: it continues if the request that started it is cancelled, and ends
//! when the last waiting request is gone.

use std::collections::HashMap;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::{Shared, WeakShared};
use offload::polls::{PollSite, watch_polls};
use tokio::task::JoinHandle;

/// The maximum length in bytes of a part that a fingerprint contains as it is.
const SHORT_PART: usize = 256;

/// The hashes are keyed per process, so that clients cannot choose texts with equal hashes.
static HASHERS: LazyLock<[RandomState; 2]> = LazyLock::new(|| [RandomState::new(), RandomState::new()]);

/// The work in flight, by fingerprint.
#[derive(Debug)]
pub struct InFlightMap<T>(Mutex<InFlightCount<T>>);

#[derive(Debug)]
struct InFlightCount<T> {
    by_key: HashMap<WorkFingerprint, (u64, WeakShared<InFlightWork<T>>)>,
    /// The number of tasks so far, which is the number of the latest.
    count: u64,
}

/// The identity of a piece of work: everything that its result depends on, part by part. It is short, since
/// it is copied and compared while the work in flight is locked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct WorkFingerprint(Vec<u8>);

impl WorkFingerprint {
    /// Adds a part. Parts are length-prefixed: `ab` and `c` differ from `a` and `bc`. A long part is
    /// represented by a hash of 128 bits.
    pub fn add(&mut self, part: &[u8]) {
        self.0.extend_from_slice(&part.len().to_le_bytes());
        if part.len() <= SHORT_PART {
            self.0.extend_from_slice(part);
            return;
        }
        for hasher in &*HASHERS {
            self.0.extend_from_slice(&hasher.hash_one(part).to_le_bytes());
        }
    }
}

impl<T> Default for InFlightMap<T> {
    fn default() -> Self {
        Self(Mutex::new(InFlightCount { by_key: HashMap::new(), count: 0 }))
    }
}

impl<T: Clone + Send + Sync + 'static> InFlightMap<T> {
    /// Waits for the result of the work with this key, started by `begin` unless it is in flight. The result
    /// is `None` if the work panicked. Must be called in a runtime.
    ///
    /// The work runs in a task of its own, whose long polls count for this site. It leaves its serving thread
    /// only if it is movable itself ([`offload::OffloadPool::make_movable`]), whatever the requests that wait
    /// for it.
    pub fn join<F>(
        self: &Arc<Self>,
        key: &WorkFingerprint,
        site: PollSite,
        begin: impl FnOnce() -> F,
    ) -> Shared<InFlightWork<T>>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut under_way = self.lock();
        if let Some(flight) = under_way.by_key.get(key).and_then(|(_, flight)| flight.upgrade()) {
            return flight;
        }
        under_way.count += 1;
        let removal =
            InFlightRemoval { in_flight: Arc::clone(self), key: key.clone(), number: under_way.count };
        let work = begin();
        let task = async move {
            let _landing = removal;
            work.await
        };
        let task = tokio::spawn(watch_polls(site, task));
        let flight = InFlightWork(task).shared();
        let number = under_way.count;
        under_way.by_key.extend(flight.downgrade().map(|weak| (key.clone(), (number, weak))));
        flight
    }
}

impl<T> InFlightMap<T> {
    fn lock(&self) -> MutexGuard<'_, InFlightCount<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Work in a task, which is aborted on drop.
#[derive(Debug)]
pub struct InFlightWork<T>(JoinHandle<T>);

impl<T> Future for InFlightWork<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.0.poll_unpin(context).map(Result::ok)
    }
}

impl<T> Drop for InFlightWork<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Removes the work from the map when it ends, however it ends, so that no later request joins it.
struct InFlightRemoval<T> {
    in_flight: Arc<InFlightMap<T>>,
    key: WorkFingerprint,
    number: u64,
}

impl<T> Drop for InFlightRemoval<T> {
    fn drop(&mut self) {
        let mut under_way = self.in_flight.lock();
        if under_way.by_key.get(&self.key).is_some_and(|(number, _)| *number == self.number) {
            under_way.by_key.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests;
