//! A queue of tasks that wait for something that one of them has at a time.
//!
//! Tasks are served in rounds with one task per payer: the tenth task of one client waits behind the first
//! of another. A block of payers has sixteen tasks per round, and tasks without a payer have one together. If
//! too many requests wait, the last one of the client with the most is displaced.

use std::collections::{HashMap, VecDeque};

use tokio::sync::oneshot;

use crate::quota::{QuotaKey, ShareKey};

/// The number of cancelled tasks that stay in any queue until their turn.
const MAX_CANCELLED: usize = 64;

/// The share of a payer; `None` for tasks without a payer.
pub(crate) type WaitKey = Option<ShareKey>;

/// A queue of tasks that each wait to receive a value.
#[derive(Debug)]
pub struct WaitQueue<T> {
    /// The maximum number of waiting tasks that begin a request.
    max_requests: usize,
    /// The shares with waiting tasks.
    shares: HashMap<WaitKey, QueueShare<T>>,
    /// The shares with waiting tasks, in the order of their next turns.
    turns: VecDeque<WaitKey>,
    /// The number of waiting tasks, and of those that begin a request.
    len: usize,
    requests: usize,
    /// At most the number of tasks that were left when cancelled ones were last removed.
    swept_len: usize,
}

/// The waiting tasks of one share, first in, first out.
#[derive(Debug)]
struct QueueShare<T> {
    tasks: VecDeque<QueuedTask<T>>,
    /// The number of tasks that begin a request.
    requests: usize,
}

/// A waiting task.
#[derive(Debug)]
struct QueuedTask<T> {
    sender: oneshot::Sender<T>,
    begins_request: bool,
}

impl<T> WaitQueue<T> {
    /// Creates a queue in which at most this number of tasks that begin a request wait.
    #[must_use]
    pub fn new(max_requests: usize) -> Self {
        let (shares, turns) = (HashMap::new(), VecDeque::new());
        Self { max_requests, shares, turns, len: 0, requests: 0, swept_len: 0 }
    }

    /// The number of waiting tasks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no task waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Queues a task. Returns `None` if it begins a request, and too many of these wait.
    pub fn push(&mut self, payer: Option<QuotaKey>, begins_request: bool) -> Option<oneshot::Receiver<T>> {
        let key = payer.map(QuotaKey::queue_share);
        if self.len >= self.swept_len.saturating_mul(2).saturating_add(MAX_CANCELLED) {
            self.remove_cancelled();
        }
        if begins_request && self.requests >= self.max_requests {
            self.remove_cancelled();
            if self.requests >= self.max_requests && !self.displace_request(key) {
                return None;
            }
        }
        let (sender, receiver) = oneshot::channel();
        let share = self.shares.entry(key).or_insert_with(|| {
            self.turns.push_back(key);
            QueueShare { tasks: VecDeque::new(), requests: 0 }
        });
        share.tasks.push_back(QueuedTask { sender, begins_request });
        share.requests += usize::from(begins_request);
        self.requests += usize::from(begins_request);
        self.len += 1;
        Some(receiver)
    }

    /// Removes the next task.
    pub fn pop(&mut self) -> Option<oneshot::Sender<T>> {
        self.pop_eligible(|_| true).map(|(_, sender)| sender)
    }

    /// Removes the next task of an eligible share. The other shares keep their turns.
    pub(crate) fn pop_eligible(
        &mut self,
        is_eligible: impl Fn(WaitKey) -> bool,
    ) -> Option<(WaitKey, oneshot::Sender<T>)> {
        let turn = self.turns.iter().position(|key| is_eligible(*key))?;
        let key = self.turns.remove(turn)?;
        let share = self.shares.get_mut(&key)?;
        let task = share.tasks.pop_front()?;
        share.requests -= usize::from(task.begins_request);
        self.requests -= usize::from(task.begins_request);
        self.len -= 1;
        self.swept_len = self.swept_len.min(self.len);
        if share.tasks.is_empty() {
            self.shares.remove(&key);
        } else {
            self.turns.push_back(key);
        }
        Some((key, task.sender))
    }

    /// Removes the last request of the share with the most, if that has at least two more than this one.
    fn displace_request(&mut self, key: WaitKey) -> bool {
        let own = self.shares.get(&key).map_or(0, |share| share.requests);
        let Some(largest) = self.shares.values_mut().max_by_key(|share| share.requests) else { return false };
        if largest.requests <= own + 1 {
            return false;
        }
        let Some(last) = largest.tasks.iter().rposition(|task| task.begins_request) else { return false };
        // At least one request remains, so the share keeps its turn.
        largest.tasks.remove(last);
        largest.requests -= 1;
        self.requests -= 1;
        self.len -= 1;
        true
    }

    /// Removes the tasks that no longer wait.
    fn remove_cancelled(&mut self) {
        (self.len, self.requests) = (0, 0);
        self.shares.retain(|_, share| {
            share.tasks.retain(|task| !task.sender.is_closed());
            share.requests = share.tasks.iter().filter(|task| task.begins_request).count();
            self.len += share.tasks.len();
            self.requests += share.requests;
            !share.tasks.is_empty()
        });
        self.turns.retain(|key| self.shares.contains_key(key));
        self.swept_len = self.len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_WAITING: usize = 1024;

    /// Serves all waiting tasks, each with the number of tasks before it.
    fn serve_all(queue: &mut WaitQueue<usize>) {
        let mut served = 0;
        while let Some(next) = queue.pop() {
            let _ = next.send(served);
            served += 1;
        }
        assert_eq!((queue.len(), queue.requests, queue.shares.len()), (0, 0, 0));
    }

    #[test]
    fn serves_payers_in_rounds() {
        let (attacker, neighbour) = (QuotaKey::new(&"attacker"), QuotaKey::new(&"neighbour"));
        let mut queue = WaitQueue::new(MAX_WAITING);
        let payers = [Some(attacker), Some(attacker), Some(attacker), Some(neighbour), None, Some(neighbour)];
        let turns = payers.map(|payer| queue.push(payer, true).unwrap());
        serve_all(&mut queue);
        assert_eq!(turns.map(|mut turn| turn.try_recv().unwrap()), [0, 3, 5, 1, 2, 4]);
    }

    #[test]
    fn a_full_queue_displaces_requests_of_the_payer_with_the_most() {
        let (attacker, neighbour) = (QuotaKey::new(&"attacker"), QuotaKey::new(&"neighbour"));
        let mut queue = WaitQueue::new(MAX_WAITING);
        let mut turns: Vec<_> = (0..MAX_WAITING).map(|_| queue.push(Some(attacker), true).unwrap()).collect();
        assert!(queue.push(Some(attacker), true).is_none());
        let end = queue.push(Some(attacker), false).expect("other callbacks are never refused");
        let mut next = queue.push(Some(neighbour), true).unwrap();
        let mut displaced = turns.pop().unwrap();
        assert!(displaced.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Closed));
        drop((turns.pop(), end));
        let mut last = queue.push(Some(attacker), true).expect("a cancelled request frees its place");
        assert_eq!(queue.len(), MAX_WAITING, "the cancelled callbacks are gone");
        serve_all(&mut queue);
        assert_eq!((next.try_recv(), last.try_recv()), (Ok(1), Ok(MAX_WAITING - 1)));
    }

    #[test]
    fn other_callbacks_do_not_take_places_of_requests() {
        let mut queue = WaitQueue::<()>::new(MAX_WAITING);
        let ends: Vec<_> = (0..2 * MAX_WAITING).map(|_| queue.push(None, false).unwrap()).collect();
        assert!(queue.push(Some(QuotaKey::new(&"neighbour")), true).is_some());
        drop(ends);
    }

    #[test]
    fn a_block_of_payers_has_at_most_sixteen_turns_in_a_round() {
        let mut queue = WaitQueue::new(MAX_WAITING);
        let network = |number: i32| QuotaKey::new(&number).with_block(&"block");
        let turns: Vec<_> = (0..500).map(|number| queue.push(Some(network(number)), true)).collect();
        let mut next = queue.push(Some(QuotaKey::new(&"neighbour")), true).unwrap();
        serve_all(&mut queue);
        assert!(next.try_recv().unwrap() <= 16);
        drop(turns);
    }

    #[test]
    fn cancelled_tasks_do_not_accumulate() {
        let mut queue = WaitQueue::<()>::new(MAX_WAITING);
        let payers = (0..100).map(|number| QuotaKey::new(&number));
        let waiting: Vec<_> = payers.map(|payer| queue.push(Some(payer), false)).collect();
        for _ in 0..10_000 {
            drop(queue.push(Some(QuotaKey::new(&"attacker")), false));
            assert!(queue.len() <= 2 * waiting.len() + MAX_CANCELLED, "{}", queue.len());
        }
    }
}
