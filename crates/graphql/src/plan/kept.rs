//! The plan cache, by document. When it exceeds its memory limit, plans without repeated use are evicted first.
//!
//! A plan is charged with its own memory (`weight.rs`) and its document's text. Eviction uses the clock
//! algorithm: an entry at the head of the queue that was used since it was queued is requeued once. A flood of
//! one-time documents therefore does not evict plans that are in use.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

use super::Plan;

pub(crate) struct Kept {
    most: usize,
    plans: RwLock<Plans>,
}

/// Plans that were evicted. To drop them may take long.
pub(crate) type EvictedPlans = Vec<Arc<Plan>>;

/// The document of a plan, and the name of its operation.
type Key = (Arc<str>, Option<Box<str>>);

#[derive(Default)]
struct Plans {
    /// The plans by document, with an entry for each operation name.
    known: HashMap<Arc<str>, Vec<KeptPlan>>,
    /// The queue of eviction candidates.
    order: VecDeque<Key>,
    bytes: usize,
}

struct KeptPlan {
    operation: Option<Box<str>>,
    plan: Arc<Plan>,
    bytes: usize,
    is_used: AtomicBool,
}

/// The overhead of an entry in bytes, besides its plan and its document's text.
const EACH: usize = 256;

impl Kept {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, plans: RwLock::default() }
    }

    pub(crate) fn get(&self, text: &str, name: Option<&str>) -> Option<Arc<Plan>> {
        let plans = self.plans.read().unwrap_or_else(PoisonError::into_inner);
        let known = plans.known.get(text)?.iter().find(|known| known.operation.as_deref() == name)?;
        if !known.is_used.load(Relaxed) {
            known.is_used.store(true, Relaxed);
        }
        Some(Arc::clone(&known.plan))
    }

    /// Caches a plan, unless it is larger than a quarter of the cache. Returns the plans that were evicted, so
    /// that they are not dropped under the lock.
    pub(crate) fn keep(&self, text: &str, name: Option<&str>, plan: &Arc<Plan>) -> EvictedPlans {
        let bytes = plan.bytes + text.len() + name.map_or(0, str::len) + EACH;
        if bytes > self.most / 4 {
            return Vec::new();
        }
        let mut plans = self.plans.write().unwrap_or_else(PoisonError::into_inner);
        let text: Arc<str> = match plans.known.get_key_value(text) {
            Some((known, _)) => Arc::clone(known),
            None => text.into(),
        };
        let entries = plans.known.entry(Arc::clone(&text)).or_default();
        if entries.iter().any(|known| known.operation.as_deref() == name) {
            return Vec::new();
        }
        let operation: Option<Box<str>> = name.map(Into::into);
        let is_used = AtomicBool::new(false);
        entries.push(KeptPlan { operation: operation.clone(), plan: Arc::clone(plan), bytes, is_used });
        plans.order.push_back((text, operation));
        plans.bytes += bytes;
        plans.shrink(self.most)
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.plans.read().unwrap().bytes
    }
}

impl Plans {
    fn shrink(&mut self, most: usize) -> EvictedPlans {
        let mut evicted = Vec::new();
        while self.bytes > most
            && let Some((text, operation)) = self.order.pop_front()
        {
            let Some(entries) = self.known.get_mut(&text) else { continue };
            let Some(place) = entries.iter().position(|known| known.operation == operation) else { continue };
            if entries[place].is_used.swap(false, Relaxed) {
                self.order.push_back((text, operation));
                continue;
            }
            let KeptPlan { plan, bytes, .. } = entries.swap_remove(place);
            self.bytes -= bytes;
            evicted.push(plan);
            if entries.is_empty() {
                self.known.remove(&text);
            }
        }
        evicted
    }
}

#[cfg(test)]
mod tests;
