//! A semaphore whose waiting tasks are served in rounds with one task per payer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::wait_queue::{WaitKey, WaitQueue};
use crate::quota::QuotaKey;

/// A semaphore that is fair to payers. All clones share it.
#[derive(Clone, Debug)]
pub struct FairSemaphore(Arc<SemaphoreShared>);

/// A permit, taken until it is dropped.
#[derive(Debug)]
pub struct FairPermit {
    /// `None` if the permit was returned already.
    shared: Option<Arc<SemaphoreShared>>,
    share: WaitKey,
    /// Whether the permit does not count for its share.
    is_idle: bool,
}

#[derive(Debug)]
struct SemaphoreShared(Mutex<SemaphoreState>);

#[derive(Debug)]
struct SemaphoreState {
    permits: PermitCounts,
    wait_queue: WaitQueue<FairPermit>,
}

/// A permit that was taken for a waiting task, and the task's end of the queue.
type GrantedPermit = (WaitKey, oneshot::Sender<FairPermit>);

/// The number of free permits, and of those that are held.
#[derive(Debug)]
struct PermitCounts {
    free: usize,
    /// The number of permits of each share that holds any which are not idle, ordered by share, if there is a
    /// reserve.
    held_by_share: Option<Vec<(WaitKey, usize)>>,
}

impl FairSemaphore {
    /// Creates a semaphore for short work. One payer may hold all permits while no other one waits.
    #[must_use]
    pub fn new(permits: usize) -> Self {
        Self::with_permits(PermitCounts { free: permits, held_by_share: None })
    }

    /// Creates a semaphore for long work, with a reserve for payers that hold few permits: a payer gets a
    /// permit only while it holds fewer than there are free ones. One payer thus holds at most half of them,
    /// two hold a third each, and so on (dynamic thresholds, doi:10.1109/90.664262). Idle permits
    /// ([`FairPermit::set_idle`]) are neither free nor count for their payer.
    #[must_use]
    pub fn with_reserve(permits: usize) -> Self {
        Self::with_permits(PermitCounts { free: permits, held_by_share: Some(Vec::new()) })
    }

    fn with_permits(permits: PermitCounts) -> Self {
        // Tasks that wait are not refused, so the maximum number of refusable ones does not matter.
        Self(Arc::new(SemaphoreShared(Mutex::new(SemaphoreState { permits, wait_queue: WaitQueue::new(0) }))))
    }

    /// Returns the number of free permits.
    #[must_use]
    pub fn available_permits(&self) -> usize {
        self.0.lock().permits.free
    }

    /// Takes a permit if the payer may have one now.
    #[must_use]
    pub fn try_acquire(&self, payer: QuotaKey) -> Option<FairPermit> {
        let share = Some(payer.queue_share());
        self.0.lock().permits.try_take(share).then(|| self.0.new_permit(share))
    }

    /// Waits for a permit, in the payer's turn. The result is never `None` while the semaphore exists.
    pub async fn acquire(&self, payer: QuotaKey) -> Option<FairPermit> {
        let share = Some(payer.queue_share());
        let turn = {
            let mut state = self.0.lock();
            if state.permits.try_take(share) {
                return Some(self.0.new_permit(share));
            }
            state.wait_queue.push(Some(payer), false)?
        };
        turn.await.ok()
    }
}

impl SemaphoreShared {
    /// Code that holds this lock can't panic.
    fn lock(&self) -> MutexGuard<'_, SemaphoreState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates the permit for a share that has taken one.
    fn new_permit(self: &Arc<Self>, share: WaitKey) -> FairPermit {
        FairPermit { shared: Some(Arc::clone(self)), share, is_idle: false }
    }

    /// Passes permits to waiting tasks: this one, and then those that are available.
    fn grant_permits(self: &Arc<Self>, mut next: Option<GrantedPermit>) {
        while let Some((share, sender)) = next {
            next = match sender.send(self.new_permit(share)) {
                Ok(()) => self.lock().grant_next(),
                Err(mut refused) => {
                    // The task was cancelled. Its permit is returned here instead of recursively.
                    refused.shared = None;
                    self.lock().return_permit(share)
                }
            };
        }
    }
}

impl SemaphoreState {
    /// Returns a permit that is not idle, and takes one for the next task that may have one.
    fn return_permit(&mut self, share: WaitKey) -> Option<GrantedPermit> {
        self.permits.free += 1;
        self.set_idle(share)
    }

    /// Stops counting a permit for its share, and takes one for the next task that may have one.
    fn set_idle(&mut self, share: WaitKey) -> Option<GrantedPermit> {
        self.permits.uncount_permit(share);
        self.grant_next()
    }

    /// Takes a permit for the next task that may have one. A share with a waiting task that may not have one
    /// holds one itself, so at most as many shares are passed over as there are permits.
    fn grant_next(&mut self) -> Option<GrantedPermit> {
        let Self { permits, wait_queue: waiting } = self;
        if permits.free == 0 || waiting.is_empty() {
            return None;
        }
        let (share, sender) = waiting.pop_eligible(|share| permits.can_take(share))?;
        permits.try_take(share).then_some((share, sender))
    }
}

impl PermitCounts {
    fn can_take(&self, share: WaitKey) -> bool {
        let held = self.held_by_share.as_ref().and_then(|held| held.get(share_position(held, share).ok()?));
        held.map_or(0, |(_, count)| *count) < self.free
    }

    fn try_take(&mut self, share: WaitKey) -> bool {
        if self.free == 0 || !self.count_permit(share, self.free) {
            return false;
        }
        self.free -= 1;
        true
    }

    /// Counts a permit for its share, if that has less than a number of them.
    fn count_permit(&mut self, share: WaitKey, threshold: usize) -> bool {
        let Some(held) = &mut self.held_by_share else { return true };
        match share_position(held, share) {
            Ok(at) if held[at].1 >= threshold => return false,
            Ok(at) => held[at].1 += 1,
            Err(at) => held.insert(at, (share, 1)),
        }
        true
    }

    /// Stops counting a permit for its share.
    fn uncount_permit(&mut self, share: WaitKey) {
        if let Some(held) = &mut self.held_by_share
            && let Ok(at) = share_position(held, share)
        {
            held[at].1 -= 1;
            if held[at].1 == 0 {
                held.remove(at);
            }
        }
    }
}

/// Returns the index of a share, or the one at which it is to be inserted.
fn share_position(held: &[(WaitKey, usize)], share: WaitKey) -> Result<usize, usize> {
    held.binary_search_by(|(holder, _)| holder.cmp(&share))
}

impl FairPermit {
    /// Marks the permit as idle while its holder does not use it: it stays taken, but does not count towards
    /// its payer's threshold.
    pub fn set_idle(&mut self) {
        if let Some(shared) = self.shared.as_ref().filter(|_| !self.is_idle) {
            self.is_idle = true;
            let next = shared.lock().set_idle(self.share);
            shared.grant_permits(next);
        }
    }

    /// Counts an idle permit again, even if its payer exceeds its threshold by that.
    pub fn set_busy(&mut self) {
        if let Some(shared) = self.shared.as_ref().filter(|_| self.is_idle) {
            self.is_idle = false;
            shared.lock().permits.count_permit(self.share, usize::MAX);
        }
    }
}

impl Drop for FairPermit {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            let next = {
                let mut state = shared.lock();
                if self.is_idle {
                    state.permits.free += 1;
                    state.grant_next()
                } else {
                    state.return_permit(self.share)
                }
            };
            shared.grant_permits(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn payers() -> (QuotaKey, QuotaKey) {
        (QuotaKey::new(&"attacker"), QuotaKey::new(&"neighbour"))
    }

    #[test]
    fn serves_payers_in_rounds() {
        let (attacker, neighbour) = payers();
        let semaphore = FairSemaphore::new(2);
        let permits = [(); 2].map(|()| semaphore.try_acquire(attacker).expect("no other payer waits"));
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(semaphore.acquire(attacker))).collect();
        assert!(waiting.iter_mut().all(|task| task.now_or_never().is_none()));
        let mut last = Box::pin(semaphore.acquire(neighbour));
        assert!((&mut last).now_or_never().is_none());
        assert!(semaphore.try_acquire(neighbour).is_none(), "a new task does not pass waiting ones");
        drop(permits);
        assert!(last.now_or_never().is_some(), "served after the attacker's first task");
    }

    #[test]
    fn reserves_permits_for_payers_with_few() {
        let (attacker, neighbour) = payers();
        let semaphore = FairSemaphore::with_reserve(8);
        let mut permits: Vec<_> = (0..4).map(|_| semaphore.try_acquire(attacker).unwrap()).collect();
        let mut waiting = Box::pin(semaphore.acquire(attacker));
        assert!((&mut waiting).now_or_never().is_none(), "a payer holds at most half of the permits");
        let first = semaphore.try_acquire(neighbour).expect("the other half is for others");
        let second = semaphore.try_acquire(neighbour).unwrap();
        permits.truncate(3);
        assert!((&mut waiting).now_or_never().is_none(), "it holds as many as are free");
        drop(first);
        assert!(waiting.now_or_never().is_some());
        drop((permits, second));
        assert_eq!(semaphore.available_permits(), 8);
    }

    #[test]
    fn idle_permits_do_not_count_towards_the_threshold() {
        let (client, neighbour) = payers();
        let semaphore = FairSemaphore::with_reserve(3);
        let mut idle = semaphore.try_acquire(client).unwrap();
        let mut used = semaphore.try_acquire(client).unwrap();
        let mut waiting = Box::pin(semaphore.acquire(client));
        assert!((&mut waiting).now_or_never().is_none());
        idle.set_idle();
        assert!((&mut waiting).now_or_never().is_none(), "it holds one, as many as are free");
        used.set_idle();
        let granted = waiting.now_or_never().expect("an idle permit wakes a waiting task");
        assert_eq!(semaphore.available_permits(), 0, "idle permits stay taken");
        drop(granted);
        for permit in [&mut idle, &mut used] {
            permit.set_busy();
        }
        assert!(semaphore.try_acquire(client).is_none(), "they count again");
        idle.set_idle();
        drop(idle);
        assert_eq!(semaphore.available_permits(), 2);
        drop((semaphore.try_acquire(neighbour).unwrap(), used));
        assert_eq!(semaphore.available_permits(), 3);
        assert!(semaphore.0.lock().permits.held_by_share.as_ref().is_some_and(Vec::is_empty));
    }

    #[test]
    fn a_reserve_leaves_a_single_permit_usable() {
        let (attacker, neighbour) = payers();
        let semaphore = FairSemaphore::with_reserve(1);
        let permit = semaphore.try_acquire(attacker).unwrap();
        let mut next = Box::pin(semaphore.acquire(neighbour));
        assert!((&mut next).now_or_never().is_none());
        drop(permit);
        assert!(next.now_or_never().is_some());
    }

    #[test]
    fn passes_over_cancelled_tasks() {
        let (attacker, neighbour) = payers();
        for semaphore in [FairSemaphore::new(1), FairSemaphore::with_reserve(1)] {
            let permit = semaphore.try_acquire(attacker).unwrap();
            for _ in 0..10 {
                assert!(semaphore.acquire(attacker).now_or_never().is_none());
            }
            let mut next = Box::pin(semaphore.acquire(neighbour));
            assert!((&mut next).now_or_never().is_none());
            drop(permit);
            drop((&mut next).now_or_never().expect("the permit passed over the cancelled tasks"));
            assert_eq!(semaphore.available_permits(), 1);
            let fair_permit = semaphore.try_acquire(attacker).unwrap();
            let mut served = Box::pin(semaphore.acquire(neighbour));
            assert!((&mut served).now_or_never().is_none());
            drop(fair_permit);
            drop(served);
            assert_eq!(
                semaphore.available_permits(),
                1,
                "a task that is cancelled in its turn returns the permit"
            );
        }
    }
}
