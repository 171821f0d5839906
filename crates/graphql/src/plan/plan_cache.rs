//! The plan cache, by document. When it exceeds its memory limit, plans without repeated use are evicted
//! first.
//!
//! A plan is charged with its own memory (`plan_memory.rs`) and its document's text. Eviction uses the clock
//! algorithm: an entry at the head of the queue that was used since it was queued is requeued once. A flood
//! of one-time documents therefore does not evict plans that are in use.
//!
//! Requests on serving threads wait for the lock. Therefore, texts are hashed outside of it, and only serving
//! threads hold it: a thread of the offload pool has a lower priority.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

use super::QueryPlan;

pub(crate) struct CachedPlan {
    max_bytes: usize,
    /// The hash is keyed, so that clients cannot choose documents with equal hashes.
    hasher: RandomState,
    plans: RwLock<PlanCache>,
}

/// Plans that were evicted. To drop them may take long.
pub(crate) type EvictedPlans = Vec<Arc<QueryPlan>>;

#[derive(Default)]
struct PlanCache {
    /// The plans by the hash of the document and the operation's name.
    entries: HashMap<u64, CachedQueryPlan>,
    /// The queue of eviction candidates.
    order: VecDeque<u64>,
    bytes: usize,
}

struct CachedQueryPlan {
    text: Arc<str>,
    operation: Option<Box<str>>,
    plan: Arc<QueryPlan>,
    bytes: usize,
    is_used: AtomicBool,
}

/// The overhead of an entry in bytes, besides its plan and its document's text.
const ENTRY_OVERHEAD: usize = 256;

/// The maximum number of eviction candidates that are examined for a new plan, which bounds the time under
/// the lock. A plan that has no room afterwards is not cached.
const MAX_CANDIDATES: usize = 1024;

impl CachedPlan {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { max_bytes, hasher: RandomState::new(), plans: RwLock::default() }
    }

    pub(crate) fn get(&self, text: &str, name: Option<&str>) -> Option<Arc<QueryPlan>> {
        let hash = self.hasher.hash_one((text, name));
        let plans = self.plans.read().unwrap_or_else(PoisonError::into_inner);
        let plan = plans.entries.get(&hash)?;
        if plan.operation.as_deref() != name || *plan.text != *text {
            return None;
        }
        if !plan.is_used.load(Relaxed) {
            plan.is_used.store(true, Relaxed);
        }
        Some(Arc::clone(&plan.plan))
    }

    /// Caches a plan, unless it is larger than a quarter of the cache. Returns the plans that were evicted,
    /// so that they are not dropped under the lock.
    pub(crate) fn insert(&self, text: &Arc<str>, name: Option<&str>, plan: &Arc<QueryPlan>) -> EvictedPlans {
        let bytes = plan.bytes + text.len() + name.map_or(0, str::len) + ENTRY_OVERHEAD;
        if bytes > self.max_bytes / 4 {
            return Vec::new();
        }
        let hash = self.hasher.hash_one((&**text, name));
        let (text, operation, plan) = (Arc::clone(text), name.map(Into::into), Arc::clone(plan));
        let kept_plan = CachedQueryPlan { text, operation, plan, bytes, is_used: AtomicBool::new(false) };
        let mut plans = self.plans.write().unwrap_or_else(PoisonError::into_inner);
        if plans.entries.contains_key(&hash) {
            return Vec::new();
        }
        let evicted = plans.shrink(self.max_bytes - bytes);
        if plans.bytes + bytes <= self.max_bytes {
            plans.entries.insert(hash, kept_plan);
            plans.order.push_back(hash);
            plans.bytes += bytes;
        }
        evicted
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.plans.read().unwrap().bytes
    }
}

impl PlanCache {
    fn shrink(&mut self, most: usize) -> EvictedPlans {
        let mut evicted = Vec::new();
        for _ in 0..MAX_CANDIDATES {
            if self.bytes <= most {
                break;
            }
            let Some(hash) = self.order.pop_front() else { break };
            if self.entries.get(&hash).is_some_and(|kept_plan| kept_plan.is_used.swap(false, Relaxed)) {
                self.order.push_back(hash);
            } else if let Some(CachedQueryPlan { plan, bytes, .. }) = self.entries.remove(&hash) {
                self.bytes -= bytes;
                evicted.push(plan);
            }
        }
        evicted
    }
}

#[cfg(test)]
mod tests;
