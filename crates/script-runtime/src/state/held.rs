//! Deadlock detection: the groups that a run and its callers hold (rule 7).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::Error;
use super::group::Group;

/// The groups that a run and its callers hold.
#[derive(Clone, Debug, Default)]
pub struct Held(Option<Arc<Hold>>);

#[derive(Debug)]
struct Hold {
    group: Arc<Group>,
    /// The handler that holds the group.
    at: Arc<str>,
    is_over: AtomicBool,
    /// The groups that the run's callers hold.
    above: Held,
}

impl Held {
    /// Returns the empty list, for a request from outside.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    pub(crate) fn with(&self, group: Arc<Group>, at: &str) -> Self {
        Self(Some(Arc::new(Hold {
            group,
            at: at.into(),
            is_over: AtomicBool::new(false),
            above: self.clone(),
        })))
    }

    /// Marks the innermost group as released.
    pub(crate) fn let_go(&self) {
        if let Some(hold) = &self.0 {
            hold.is_over.store(true, Ordering::Release);
        }
    }

    fn holds(&self) -> impl Iterator<Item = &Hold> {
        std::iter::successors(self.0.as_deref(), |hold| hold.above.0.as_deref())
            .filter(|hold| !hold.is_over.load(Ordering::Acquire))
    }

    /// Returns the handler that holds a group, if it is one of these runs.
    pub(crate) fn holder(&self, group: &Arc<Group>) -> Option<Arc<str>> {
        // A group that is being retired blocks its successors.
        let before = group.before();
        let is_it =
            |hold: &&Hold| std::iter::once(group).chain(&before).any(|group| Arc::ptr_eq(&hold.group, group));
        self.holds().find(is_it).map(|hold| Arc::clone(&hold.at))
    }
}

/// The runs that hold a group and wait for another one.
#[derive(Debug, Default)]
pub(crate) struct Waits(Mutex<Waiters>);

#[derive(Debug, Default)]
struct Waiters {
    last: u64,
    all: Vec<Wait>,
}

#[derive(Debug)]
struct Wait {
    number: u64,
    holds: Held,
    wants: Arc<Group>,
}

/// Registers a waiting run until it is dropped.
pub(crate) struct Waiting<'a> {
    waits: &'a Waits,
    number: u64,
}

impl Waits {
    fn lock(&self) -> MutexGuard<'_, Waiters> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a wait for a group, or returns an error if its writer waits, directly or through others, for
    /// one of the held groups.
    pub(crate) fn enter(
        &self,
        holds: &Held,
        wants: &Arc<Group>,
        at: &str,
    ) -> Result<Option<Waiting<'_>>, Error> {
        // A run that holds nothing cannot be part of a deadlock.
        if holds.holds().next().is_none() {
            return Ok(None);
        }
        let mut waits = self.lock();
        let mut needed = vec![Arc::clone(wants)];
        let mut next = 0;
        while let Some(group) = needed.get(next).cloned() {
            next += 1;
            for wait in waits.all.iter().filter(|wait| wait.holds.holder(&group).is_some()) {
                if holds.holder(&wait.wants).is_some() {
                    return Err(Error::Circle { asker: at.into(), holder: Arc::clone(&wants.lock().writer) });
                }
                if !needed.iter().any(|known| Arc::ptr_eq(known, &wait.wants)) {
                    needed.push(Arc::clone(&wait.wants));
                }
            }
        }
        waits.last += 1;
        let number = waits.last;
        waits.all.push(Wait { number, holds: holds.clone(), wants: Arc::clone(wants) });
        Ok(Some(Waiting { waits: self, number }))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.waits.lock().all.retain(|wait| wait.number != self.number);
    }
}
