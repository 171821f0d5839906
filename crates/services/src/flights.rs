//! Work that several requests want at the same time is done once, for all of them.
//!
//! Who comes while it is under way gets the same result; who comes behind its end begins anew, so nothing is ever kept,
//! and no failure is handed to anybody who could have tried again. It runs as a task of its own: it goes on when the
//! request that began it is given up, and ends when nobody waits for it any more.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::{Shared, WeakShared};
use tokio::task::JoinHandle;

/// What is under way, by what it is.
#[derive(Debug)]
pub struct Flights<T>(Mutex<UnderWay<T>>);

#[derive(Debug)]
struct UnderWay<T> {
    by_key: HashMap<Fingerprint, (u64, WeakShared<Flight<T>>)>,
    /// How many there have been: each has a number of its own.
    count: u64,
}

/// What makes work the same: everything that its result depends on, one part after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fingerprint(Vec<u8>);

impl Fingerprint {
    /// Adds a part. Where it ends is part of the whole: `ab` and `c` are not `a` and `bc`.
    pub fn add(&mut self, part: &[u8]) {
        self.0.extend_from_slice(&part.len().to_le_bytes());
        self.0.extend_from_slice(part);
    }
}

impl<T> Default for Flights<T> {
    fn default() -> Self {
        Self(Mutex::new(UnderWay { by_key: HashMap::new(), count: 0 }))
    }
}

impl<T: Clone + Send + Sync + 'static> Flights<T> {
    /// Waits for the result of the work of this key that is under way; where there is none, `begin` says what it is. `None`
    /// if it panicked. Has to be called in a runtime.
    pub fn join<F>(self: &Arc<Self>, key: &Fingerprint, begin: impl FnOnce() -> F) -> Shared<Flight<T>>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut under_way = self.lock();
        if let Some(flight) = under_way.by_key.get(key).and_then(|(_, flight)| flight.upgrade()) {
            return flight;
        }
        under_way.count += 1;
        let landing = Landing { flights: Arc::clone(self), key: key.clone(), number: under_way.count };
        let work = begin();
        let task = tokio::spawn(async move {
            let _landing = landing;
            work.await
        });
        let flight = Flight(task).shared();
        let number = under_way.count;
        under_way.by_key.extend(flight.downgrade().map(|weak| (key.clone(), (number, weak))));
        flight
    }
}

impl<T> Flights<T> {
    fn lock(&self) -> MutexGuard<'_, UnderWay<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Work in a task, which ends with this.
#[derive(Debug)]
pub struct Flight<T>(JoinHandle<T>);

impl<T> Future for Flight<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.0.poll_unpin(context).map(Result::ok)
    }
}

impl<T> Drop for Flight<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Nobody joins what has ended, however it did.
struct Landing<T> {
    flights: Arc<Flights<T>>,
    key: Fingerprint,
    number: u64,
}

impl<T> Drop for Landing<T> {
    fn drop(&mut self) {
        let mut under_way = self.flights.lock();
        if under_way.by_key.get(&self.key).is_some_and(|(number, _)| *number == self.number) {
            under_way.by_key.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests;
