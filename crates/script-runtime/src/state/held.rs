//! Deadlock detection: the groups that a run and its callers hold (rule 7).
//!
//! Each hold of a group knows the groups that its run and the callees of that run wait for. So a run that
//! begins to wait follows only the groups that it depends on, however many other runs wait.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::StateError;
use super::group::CellGroup;

/// The groups that a run and its callers hold.
#[derive(Clone, Debug, Default)]
pub struct HeldLocks(Option<Arc<GroupHold>>);

/// A run's hold of a group.
#[derive(Debug)]
pub(crate) struct GroupHold {
    group: Arc<CellGroup>,
    /// The handler that holds the group.
    at: Arc<str>,
    is_over: AtomicBool,
    /// The groups that the run's callers hold.
    above: HeldLocks,
    /// The groups that the run's callees wait for, by their addresses, each with the number of waiting runs.
    wanted: Mutex<BTreeMap<usize, (Arc<CellGroup>, usize)>>,
}

impl GroupHold {
    /// Whether the run has released the group.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    fn wanted(&self) -> MutexGuard<'_, BTreeMap<usize, (Arc<CellGroup>, usize)>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldLocks {
    /// Returns the empty list, for a request from outside.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds the hold of a run that has acquired a group.
    pub(crate) fn with(&self, group: Arc<CellGroup>, at: &str) -> Self {
        let (is_over, above) = (AtomicBool::new(false), self.clone());
        let hold = Arc::new(GroupHold { group, at: at.into(), is_over, above, wanted: Mutex::default() });
        hold.group.lock().hold = Arc::downgrade(&hold);
        Self(Some(hold))
    }

    /// Marks the innermost group as released.
    pub(crate) fn let_go(&self) {
        if let Some(hold) = &self.0 {
            hold.is_over.store(true, Ordering::Release);
        }
    }

    /// Returns all holds, innermost first, including those of groups that have been released.
    fn chain(&self) -> impl Iterator<Item = &GroupHold> {
        std::iter::successors(self.0.as_deref(), |hold| hold.above.0.as_deref())
    }

    fn holds(&self) -> impl Iterator<Item = &GroupHold> {
        self.chain().filter(|hold| !hold.is_over())
    }

    /// Returns the handler that holds a group, if it is one of these runs.
    pub(crate) fn holder(&self, group: &Arc<CellGroup>) -> Option<Arc<str>> {
        // A group that is being retired blocks its successors.
        let before = group.before();
        let is_it = |hold: &&GroupHold| {
            std::iter::once(group).chain(&before).any(|group| Arc::ptr_eq(&hold.group, group))
        };
        self.holds().find(is_it).map(|hold| Arc::clone(&hold.at))
    }
}

/// Admits runs that hold a group to the queue of another one, one at a time.
#[derive(Debug, Default)]
pub(crate) struct QueueAdmissions(Mutex<()>);

/// Registers a waiting run until it is dropped.
pub(crate) struct WaitingRun {
    holds: HeldLocks,
    wants: Arc<CellGroup>,
}

impl QueueAdmissions {
    /// Registers a wait for a group, or returns an error if its writer waits, directly or through others, for
    /// one of the held groups.
    pub(crate) fn enter(
        &self,
        holds: &HeldLocks,
        wants: &Arc<CellGroup>,
        at: &str,
    ) -> Result<Option<WaitingRun>, StateError> {
        // A run that holds nothing cannot be part of a deadlock.
        if holds.holds().next().is_none() {
            return Ok(None);
        }
        let _alone = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if needed_for(wants).skip(1).any(|group| holds.holder(&group).is_some()) {
            return Err(StateError::Circle { asker: at.into(), holder: Arc::clone(&wants.lock().writer) });
        }
        Ok(Some(WaitingRun::new(holds.clone(), Arc::clone(wants))))
    }
}

impl WaitingRun {
    fn new(holds: HeldLocks, wants: Arc<CellGroup>) -> Self {
        for hold in holds.chain() {
            hold.wanted().entry(address(&wants)).or_insert_with(|| (Arc::clone(&wants), 0)).1 += 1;
        }
        Self { holds, wants }
    }
}

impl Drop for WaitingRun {
    fn drop(&mut self) {
        for hold in self.holds.chain() {
            let mut wanted = hold.wanted();
            if let Entry::Occupied(mut entry) = wanted.entry(address(&self.wants)) {
                entry.get_mut().1 -= 1;
                if entry.get().1 == 0 {
                    entry.remove();
                }
            }
        }
    }
}

/// Returns a group, the groups that its holder waits for, those that their holders wait for, and so on.
fn needed_for(group: &Arc<CellGroup>) -> impl Iterator<Item = Arc<CellGroup>> {
    let (mut seen, mut next) = (HashSet::from([address(group)]), vec![Arc::clone(group)]);
    std::iter::from_fn(move || {
        let group = next.pop()?;
        // A group that is being retired blocks its successors.
        for group in group.before().iter().chain([&group]) {
            let hold = group.lock().hold.upgrade();
            if let Some(hold) = hold.filter(|hold| !hold.is_over()) {
                let wanted = hold.wanted();
                let new = wanted.values().filter(|(wanted, _)| seen.insert(address(wanted)));
                next.extend(new.map(|(wanted, _)| Arc::clone(wanted)));
            }
        }
        Some(group)
    })
}

/// The address of a group, which identifies it as long as it lives.
fn address(group: &Arc<CellGroup>) -> usize {
    Arc::as_ptr(group).addr()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::{StateFixture, counter};

    async fn groups(count: usize) -> Vec<Arc<CellGroup>> {
        let ground = StateFixture::new(counter()).await;
        let home = Arc::clone(&ground.edition().home);
        let domain = Arc::clone(&home.group("n", "/data").unwrap().domain);
        let group = |number| {
            let path = Some(format!("/{number}").into());
            Arc::new(CellGroup::new(Arc::clone(&home), path, Arc::clone(&domain), Vec::new()))
        };
        (0..count).map(group).collect()
    }

    fn is_circle(entered: &Result<Option<WaitingRun>, StateError>) -> bool {
        matches!(entered, Err(StateError::Circle { .. }))
    }

    #[tokio::test]
    async fn a_run_that_begins_to_wait_does_not_look_at_others_that_wait() {
        let (groups, waits) = (groups(1001).await, QueueAdmissions::default());
        let (wanted, others) = groups.split_first().unwrap();
        let held = HeldLocks::none().with(Arc::clone(wanted), "a");
        let others_held: Vec<HeldLocks> =
            others.iter().map(|group| HeldLocks::none().with(Arc::clone(group), "b")).collect();
        let mut waiting = Vec::new();
        for held in &others_held {
            waiting.push(waits.enter(held, wanted, "b").unwrap());
            assert_eq!(needed_for(wanted).count(), 1);
        }
        assert_eq!(needed_for(&others[500]).count(), 2);
        assert!(is_circle(&waits.enter(&held, &others[500], "a")));
        waiting.clear();
        assert_eq!(needed_for(&others[500]).count(), 1);
        assert!(!is_circle(&waits.enter(&held, &others[500], "a")));
    }

    #[tokio::test]
    async fn a_group_counts_as_long_as_a_callee_waits_and_its_run_holds_it() {
        let (groups, waits) = (groups(3).await, QueueAdmissions::default());
        let held: Vec<HeldLocks> =
            groups.iter().map(|group| HeldLocks::none().with(Arc::clone(group), "a")).collect();
        let waits_for = |held: &HeldLocks, group: usize| waits.enter(held, &groups[group], "a");
        // Two callees, one of them with a group of its own.
        let (one, other) = (waits_for(&held[0], 1), waits_for(&held[0].with(Arc::clone(&groups[2]), "b"), 1));
        assert!(is_circle(&waits_for(&held[1], 0)));
        assert!(is_circle(&waits_for(&held[1], 2)));
        drop(other);
        assert!(!is_circle(&waits_for(&held[1], 2)));
        assert!(is_circle(&waits_for(&held[1], 0)));
        held[0].let_go();
        assert!(!is_circle(&waits_for(&held[1], 0)), "an early commit released the group");
        drop(one);
    }
}
