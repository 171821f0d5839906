//! Deadlock detection: the groups that a run and its callers hold (rule 7).
//!
//! Each hold of a group knows the groups that its run and the callees of that run wait for. So a run that
//! begins to wait follows only the groups that it depends on, however many other runs wait.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::group::CellGroup;
use crate::state::error::StateError;

/// The groups that a run and its callers hold.
#[derive(Clone, Debug, Default)]
pub struct HeldLocks(Option<Arc<GroupHold>>);

/// A run's hold of a group.
#[derive(Debug)]
pub(crate) struct GroupHold {
    group: Arc<CellGroup>,
    /// The handler that holds the group.
    handler: Arc<str>,
    is_released: AtomicBool,
    /// The groups that the run's callers hold.
    caller_locks: HeldLocks,
    /// The groups that the run's callees wait for, by their addresses, each with the number of waiting runs.
    awaited_groups: Mutex<BTreeMap<usize, (Arc<CellGroup>, usize)>>,
}

impl GroupHold {
    /// Whether the run has released the group.
    pub(crate) fn is_released(&self) -> bool {
        self.is_released.load(Ordering::Acquire)
    }

    fn lock_awaited(&self) -> MutexGuard<'_, BTreeMap<usize, (Arc<CellGroup>, usize)>> {
        self.awaited_groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldLocks {
    /// Returns the empty list, for a request from outside.
    #[must_use]
    pub fn empty() -> Self {
        Self::default()
    }

    /// Adds the hold of a run that has acquired a group.
    pub(crate) fn with_hold(&self, group: Arc<CellGroup>, at: &str) -> Self {
        let (is_over, above) = (AtomicBool::new(false), self.clone());
        let hold = Arc::new(GroupHold {
            group,
            handler: at.into(),
            is_released: is_over,
            caller_locks: above,
            awaited_groups: Mutex::default(),
        });
        hold.group.lock().writer_hold = Arc::downgrade(&hold);
        Self(Some(hold))
    }

    /// Marks the innermost group as released.
    pub(crate) fn release(&self) {
        if let Some(hold) = &self.0 {
            hold.is_released.store(true, Ordering::Release);
        }
    }

    /// Returns all holds, innermost first, including those of groups that have been released.
    fn all_holds(&self) -> impl Iterator<Item = &GroupHold> {
        std::iter::successors(self.0.as_deref(), |hold| hold.caller_locks.0.as_deref())
    }

    fn active_holds(&self) -> impl Iterator<Item = &GroupHold> {
        self.all_holds().filter(|hold| !hold.is_released())
    }

    /// Returns the handler that holds a group, if it is one of these runs.
    pub(crate) fn find_holder(&self, group: &Arc<CellGroup>) -> Option<Arc<str>> {
        // A group that is being retired blocks its successors.
        let before = group.predecessors();
        let is_it = |hold: &&GroupHold| {
            std::iter::once(group).chain(&before).any(|group| Arc::ptr_eq(&hold.group, group))
        };
        self.active_holds().find(is_it).map(|hold| Arc::clone(&hold.handler))
    }
}

/// Admits runs that hold a group to the queue of another one, one at a time.
#[derive(Debug, Default)]
pub(crate) struct QueueAdmissions(Mutex<()>);

/// Registers a waiting run until it is dropped.
pub(crate) struct WaitingRun {
    locks: HeldLocks,
    awaited: Arc<CellGroup>,
}

impl QueueAdmissions {
    /// Registers a wait for a group, or returns an error if its writer waits, directly or through others, for
    /// one of the held groups.
    pub(crate) fn register_wait(
        &self,
        holds: &HeldLocks,
        wants: &Arc<CellGroup>,
        at: &str,
    ) -> Result<Option<WaitingRun>, StateError> {
        // A run that holds nothing cannot be part of a deadlock.
        if holds.active_holds().next().is_none() {
            return Ok(None);
        }
        let _alone = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if transitive_waits(wants).skip(1).any(|group| holds.find_holder(&group).is_some()) {
            return Err(StateError::Deadlock { asker: at.into(), holder: Arc::clone(&wants.lock().writer) });
        }
        Ok(Some(WaitingRun::new(holds.clone(), Arc::clone(wants))))
    }
}

impl WaitingRun {
    fn new(locks: HeldLocks, awaited: Arc<CellGroup>) -> Self {
        for hold in locks.all_holds() {
            hold.lock_awaited()
                .entry(group_address(&awaited))
                .or_insert_with(|| (Arc::clone(&awaited), 0))
                .1 += 1;
        }
        Self { locks, awaited }
    }
}

impl Drop for WaitingRun {
    fn drop(&mut self) {
        for hold in self.locks.all_holds() {
            let mut wanted = hold.lock_awaited();
            if let Entry::Occupied(mut entry) = wanted.entry(group_address(&self.awaited)) {
                entry.get_mut().1 -= 1;
                if entry.get().1 == 0 {
                    entry.remove();
                }
            }
        }
    }
}

/// Returns a group, the groups that its holder waits for, those that their holders wait for, and so on.
fn transitive_waits(group: &Arc<CellGroup>) -> impl Iterator<Item = Arc<CellGroup>> {
    let (mut seen, mut next) = (HashSet::from([group_address(group)]), vec![Arc::clone(group)]);
    std::iter::from_fn(move || {
        let group = next.pop()?;
        // A group that is being retired blocks its successors.
        for group in group.predecessors().iter().chain([&group]) {
            let hold = group.lock().writer_hold.upgrade();
            if let Some(hold) = hold.filter(|hold| !hold.is_released()) {
                let wanted = hold.lock_awaited();
                let new = wanted.values().filter(|(wanted, _)| seen.insert(group_address(wanted)));
                next.extend(new.map(|(wanted, _)| Arc::clone(wanted)));
            }
        }
        Some(group)
    })
}

/// The address of a group, which identifies it as long as it lives.
fn group_address(group: &Arc<CellGroup>) -> usize {
    Arc::as_ptr(group).addr()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::{StateFixture, counter_plan};

    async fn test_groups(count: usize) -> Vec<Arc<CellGroup>> {
        let fixture = StateFixture::new(counter_plan()).await;
        let home = Arc::clone(&fixture.edition().service_groups);
        let domain = Arc::clone(&home.get_or_create_group("n", "/data").unwrap().domain);
        let group = |number| {
            let path = Some(format!("/{number}").into());
            Arc::new(CellGroup::new(Arc::clone(&home), path, Arc::clone(&domain), Vec::new()))
        };
        (0..count).map(group).collect()
    }

    fn is_deadlock(entered: &Result<Option<WaitingRun>, StateError>) -> bool {
        matches!(entered, Err(StateError::Deadlock { .. }))
    }

    #[tokio::test]
    async fn a_run_that_begins_to_wait_does_not_look_at_others_that_wait() {
        let (groups, admissions) = (test_groups(1001).await, QueueAdmissions::default());
        let (cell_group, others) = groups.split_first().unwrap();
        let locks = HeldLocks::empty().with_hold(Arc::clone(cell_group), "a");
        let others_held: Vec<HeldLocks> =
            others.iter().map(|group| HeldLocks::empty().with_hold(Arc::clone(group), "b")).collect();
        let mut waiting = Vec::new();
        for held_locks in &others_held {
            waiting.push(admissions.register_wait(held_locks, cell_group, "b").unwrap());
            assert_eq!(transitive_waits(cell_group).count(), 1);
        }
        assert_eq!(transitive_waits(&others[500]).count(), 2);
        assert!(is_deadlock(&admissions.register_wait(&locks, &others[500], "a")));
        waiting.clear();
        assert_eq!(transitive_waits(&others[500]).count(), 1);
        assert!(!is_deadlock(&admissions.register_wait(&locks, &others[500], "a")));
    }

    #[tokio::test]
    async fn a_group_counts_as_long_as_a_callee_waits_and_its_run_holds_it() {
        let (groups, admissions) = (test_groups(3).await, QueueAdmissions::default());
        let lockses: Vec<HeldLocks> =
            groups.iter().map(|group| HeldLocks::empty().with_hold(Arc::clone(group), "a")).collect();
        let waits_for =
            |locks: &HeldLocks, group: usize| admissions.register_wait(locks, &groups[group], "a");
        // Two callees, one of them with a group of its own.
        let (run, other) =
            (waits_for(&lockses[0], 1), waits_for(&lockses[0].with_hold(Arc::clone(&groups[2]), "b"), 1));
        assert!(is_deadlock(&waits_for(&lockses[1], 0)));
        assert!(is_deadlock(&waits_for(&lockses[1], 2)));
        drop(other);
        assert!(!is_deadlock(&waits_for(&lockses[1], 2)));
        assert!(is_deadlock(&waits_for(&lockses[1], 0)));
        lockses[0].release();
        assert!(!is_deadlock(&waits_for(&lockses[1], 0)), "an early commit released the group");
        drop(run);
    }
}
