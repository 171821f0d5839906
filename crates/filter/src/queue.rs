//! The queue of callbacks that wait for an instance.
//!
//! Callbacks are served in rounds with one callback per payer: the tenth callback of one client waits behind
//! the first of another. A block of payers has sixteen callbacks per round, and root contexts have one together.
//! If too many requests wait, the last one of the client with the most is displaced.

use std::collections::{HashMap, VecDeque};

use offload::QuotaKey;
use tokio::sync::oneshot;

/// The maximum number of requests that wait for one instance before they have a stream there.
pub(crate) const MAX_WAITING: usize = 1024;

/// The share of a payer ([`QuotaKey::queue_share`]); `None` for callbacks of root contexts.
type ShareKey = Option<(u64, u64)>;

/// A queue of tasks that each wait to receive a value.
pub(crate) struct WaitQueue<T> {
    /// The shares with waiting tasks.
    shares: HashMap<ShareKey, QueueShare<T>>,
    /// The shares with waiting tasks, in the order of their next turns.
    turns: VecDeque<ShareKey>,
    /// The number of waiting tasks, and of those that begin a request.
    len: usize,
    requests: usize,
}

/// The waiting tasks of one share, first in, first out.
struct QueueShare<T> {
    waiting: VecDeque<QueuedTask<T>>,
    /// The number of tasks that begin a request.
    requests: usize,
}

/// A waiting task.
struct QueuedTask<T> {
    sender: oneshot::Sender<T>,
    begins_request: bool,
}

impl<T> WaitQueue<T> {
    pub(crate) fn new() -> Self {
        Self { shares: HashMap::new(), turns: VecDeque::new(), len: 0, requests: 0 }
    }

    /// The number of waiting tasks.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Queues a task. Returns `None` if it begins a request, and too many of these wait.
    pub(crate) fn push(
        &mut self,
        payer: Option<QuotaKey>,
        begins_request: bool,
    ) -> Option<oneshot::Receiver<T>> {
        let key = payer.map(QuotaKey::queue_share);
        if begins_request && self.requests >= MAX_WAITING {
            self.remove_cancelled();
            if self.requests >= MAX_WAITING && !self.displace_for(key) {
                return None;
            }
        }
        let (sender, receiver) = oneshot::channel();
        let share = self.shares.entry(key).or_insert_with(|| {
            self.turns.push_back(key);
            QueueShare { waiting: VecDeque::new(), requests: 0 }
        });
        share.waiting.push_back(QueuedTask { sender, begins_request });
        share.requests += usize::from(begins_request);
        self.requests += usize::from(begins_request);
        self.len += 1;
        Some(receiver)
    }

    /// Removes the next task.
    pub(crate) fn pop(&mut self) -> Option<oneshot::Sender<T>> {
        let key = self.turns.pop_front()?;
        let share = self.shares.get_mut(&key)?;
        let task = share.waiting.pop_front()?;
        share.requests -= usize::from(task.begins_request);
        self.requests -= usize::from(task.begins_request);
        self.len -= 1;
        if share.waiting.is_empty() {
            self.shares.remove(&key);
        } else {
            self.turns.push_back(key);
        }
        Some(task.sender)
    }

    /// Removes the last request of the share with the most, if that has at least two more than this one.
    fn displace_for(&mut self, key: ShareKey) -> bool {
        let own = self.shares.get(&key).map_or(0, |share| share.requests);
        let Some(largest) = self.shares.values_mut().max_by_key(|share| share.requests) else { return false };
        if largest.requests <= own + 1 {
            return false;
        }
        let Some(last) = largest.waiting.iter().rposition(|task| task.begins_request) else { return false };
        // At least one request remains, so the share keeps its turn.
        largest.waiting.remove(last);
        largest.requests -= 1;
        self.requests -= 1;
        self.len -= 1;
        true
    }

    /// Removes the tasks that no longer wait.
    fn remove_cancelled(&mut self) {
        (self.len, self.requests) = (0, 0);
        self.shares.retain(|_, share| {
            share.waiting.retain(|task| !task.sender.is_closed());
            share.requests = share.waiting.iter().filter(|task| task.begins_request).count();
            self.len += share.waiting.len();
            self.requests += share.requests;
            !share.waiting.is_empty()
        });
        self.turns.retain(|key| self.shares.contains_key(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves all waiting tasks, each with the number of tasks before it.
    fn serve(queue: &mut WaitQueue<usize>) {
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
        let mut queue = WaitQueue::new();
        let payers = [Some(attacker), Some(attacker), Some(attacker), Some(neighbour), None, Some(neighbour)];
        let turns = payers.map(|payer| queue.push(payer, true).unwrap());
        serve(&mut queue);
        assert_eq!(turns.map(|mut turn| turn.try_recv().unwrap()), [0, 3, 5, 1, 2, 4]);
    }

    #[test]
    fn a_full_queue_displaces_requests_of_the_payer_with_the_most() {
        let (attacker, neighbour) = (QuotaKey::new(&"attacker"), QuotaKey::new(&"neighbour"));
        let mut queue = WaitQueue::new();
        let mut turns: Vec<_> = (0..MAX_WAITING).map(|_| queue.push(Some(attacker), true).unwrap()).collect();
        assert!(queue.push(Some(attacker), true).is_none());
        let end = queue.push(Some(attacker), false).expect("other callbacks are never refused");
        let mut next = queue.push(Some(neighbour), true).unwrap();
        let mut displaced = turns.pop().unwrap();
        assert!(displaced.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Closed));
        drop((turns.pop(), end));
        let mut last = queue.push(Some(attacker), true).expect("a cancelled request frees its place");
        assert_eq!(queue.len(), MAX_WAITING, "the cancelled callbacks are gone");
        serve(&mut queue);
        assert_eq!((next.try_recv(), last.try_recv()), (Ok(1), Ok(MAX_WAITING - 1)));
    }

    #[test]
    fn other_callbacks_do_not_take_places_of_requests() {
        let mut queue = WaitQueue::<()>::new();
        let ends: Vec<_> = (0..2 * MAX_WAITING).map(|_| queue.push(None, false).unwrap()).collect();
        assert!(queue.push(Some(QuotaKey::new(&"neighbour")), true).is_some());
        drop(ends);
    }

    #[test]
    fn a_block_of_payers_has_at_most_sixteen_turns_in_a_round() {
        let mut queue = WaitQueue::new();
        let network = |number: i32| QuotaKey::new(&number).in_block(&"block");
        let turns: Vec<_> = (0..500).map(|number| queue.push(Some(network(number)), true)).collect();
        let mut next = queue.push(Some(QuotaKey::new(&"neighbour")), true).unwrap();
        serve(&mut queue);
        assert!(next.try_recv().unwrap() <= 16);
        drop(turns);
    }
}
