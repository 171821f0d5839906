//! Fair scheduling of a connection's requests.
//!
//! Each request is a task, and the runtime polls tasks in the order in which they are woken. A client that
//! sends a hundred requests at once would have a hundred tasks ahead of another client's single one. So only
//! as many requests of a connection as there are cores are in the runtime's run queue at a time. The others
//! that were woken wait in the connection's own queue, whose first enters the run queue when one of them has
//! been polled.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZero;
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use pin_project_lite::pin_project;

/// The maximum number of a connection's requests in the runtime's run queue.
static MAX_ACTIVE: LazyLock<usize> =
    LazyLock::new(|| std::thread::available_parallelism().map_or(1, NonZero::get));

/// The run queue of a connection's requests.
#[derive(Clone, Default)]
pub(super) struct RequestTurns(Arc<Mutex<TurnQueue>>);

#[derive(Default)]
struct TurnQueue {
    /// The number of requests in the runtime's run queue, including those being polled.
    active: usize,
    waiting: VecDeque<u64>,
    /// The states of the requests that have not ended, by number.
    states: BTreeMap<u64, TurnState>,
    /// The number of the next request.
    next: u64,
}

/// A request's entry in the queue.
struct TurnEntry {
    turns: RequestTurns,
    number: u64,
}

/// A request's state.
struct TurnState {
    position: TurnPosition,
    /// The waker of the task.
    waker: Option<Waker>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TurnPosition {
    /// The request waits for an event.
    Idle,
    /// The request is in the connection's queue.
    Queued,
    /// The request may run, but the runtime has not polled it yet. Its first poll moves it to the end of the
    /// runtime's run queue, so that it does not overtake other tasks.
    ScheduledUnpolled,
    /// The request is in the runtime's run queue.
    Scheduled,
    /// The request is being polled.
    Polling,
    /// The request is being polled, and was woken meanwhile.
    PollingWoken,
}

pin_project! {
    /// A request that takes turns with others: see [`RequestTurns::take`].
    pub(super) struct TakingTurns<F> {
        place: Arc<TurnEntry>,
        waker: Waker,
        #[pin]
        future: F,
    }

    impl<F> PinnedDrop for TakingTurns<F> {
        fn drop(this: Pin<&mut Self>) {
            this.place.leave();
        }
    }
}

impl RequestTurns {
    /// Makes a request take turns with the connection's other requests, behind those that are ready. The
    /// runtime polls a new task in any case; a request that has to wait does nothing then.
    pub(super) fn take_turns<F: Future>(&self, future: F) -> TakingTurns<F> {
        let number = self.lock_queue().add();
        let turn_entry = Arc::new(TurnEntry { turns: self.clone(), number });
        let waker = Waker::from(Arc::clone(&turn_entry));
        TakingTurns { place: turn_entry, waker, future }
    }

    fn lock_queue(&self) -> MutexGuard<'_, TurnQueue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TurnQueue {
    /// Adds a request and returns its number. There is no task to wake yet.
    fn add(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        self.states.insert(number, TurnState { position: TurnPosition::Idle, waker: None });
        let _ = self.schedule(number);
        number
    }

    /// Moves a request to the runtime's run queue, or to the connection's queue if the limit is reached.
    /// Returns the waker if the task is to be woken.
    fn schedule(&mut self, number: u64) -> Option<Waker> {
        let state = self.states.get_mut(&number)?;
        if self.active < *MAX_ACTIVE {
            self.active += 1;
            state.position = TurnPosition::Scheduled;
            return state.waker.clone();
        }
        state.position = TurnPosition::Queued;
        self.waiting.push_back(number);
        None
    }

    /// Ends a turn, and returns the waker of the next request in the queue.
    fn end_turn(&mut self) -> Option<Waker> {
        self.active -= 1;
        let next = self.waiting.pop_front()?;
        let state = self.states.get_mut(&next)?;
        self.active += 1;
        state.position =
            if state.waker.is_some() { TurnPosition::Scheduled } else { TurnPosition::ScheduledUnpolled };
        state.waker.clone()
    }
}

impl TurnEntry {
    /// Whether the request may be polled now. Otherwise it is woken when it may.
    fn try_begin_poll(&self, waker: &Waker) -> bool {
        let mut line = self.turns.lock_queue();
        let Some(state) = line.states.get_mut(&self.number) else { return false };
        if state.waker.as_ref().is_none_or(|known| !known.will_wake(waker)) {
            state.waker = Some(waker.clone());
        }
        match state.position {
            TurnPosition::Scheduled => {
                state.position = TurnPosition::Polling;
                return true;
            }
            TurnPosition::ScheduledUnpolled => {
                state.position = TurnPosition::Scheduled;
                waker.wake_by_ref();
            }
            _ => {}
        }
        false
    }

    /// Records that the request was polled and is pending.
    fn end_poll(&self) {
        let mut guard = self.turns.lock_queue();
        let line = &mut *guard;
        let Some(state) = line.states.get_mut(&self.number) else { return };
        let is_woken =
            std::mem::replace(&mut state.position, TurnPosition::Idle) == TurnPosition::PollingWoken;
        if is_woken {
            state.position = TurnPosition::Queued;
            line.waiting.push_back(self.number);
        }
        let next = line.end_turn();
        drop(guard);
        next.into_iter().for_each(Waker::wake);
    }

    /// Removes a request that has completed or was dropped.
    fn leave(&self) {
        let mut line = self.turns.lock_queue();
        let state = line.states.remove(&self.number);
        let next = match state.as_ref().map(|state| state.position) {
            Some(
                TurnPosition::ScheduledUnpolled
                | TurnPosition::Scheduled
                | TurnPosition::Polling
                | TurnPosition::PollingWoken,
            ) => line.end_turn(),
            Some(TurnPosition::Queued) => {
                line.waiting.retain(|number| *number != self.number);
                None
            }
            Some(TurnPosition::Idle) | None => None,
        };
        drop(line);
        next.into_iter().for_each(Waker::wake);
    }
}

impl Wake for TurnEntry {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut line = self.turns.lock_queue();
        let Some(state) = line.states.get_mut(&self.number) else { return };
        let called = match state.position {
            TurnPosition::Idle => line.schedule(self.number),
            TurnPosition::Polling => {
                state.position = TurnPosition::PollingWoken;
                None
            }
            TurnPosition::Queued
            | TurnPosition::ScheduledUnpolled
            | TurnPosition::Scheduled
            | TurnPosition::PollingWoken => None,
        };
        drop(line);
        called.into_iter().for_each(Waker::wake);
    }
}

impl<F: Future> Future for TakingTurns<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        if !this.place.try_begin_poll(context.waker()) {
            return Poll::Pending;
        }
        let polled = this.future.poll(&mut Context::from_waker(this.waker));
        match polled {
            Poll::Ready(_) => this.place.leave(),
            Poll::Pending => this.place.end_poll(),
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::poll_fn;
    use std::rc::Rc;

    use tokio::task::{LocalSet, spawn_local};

    use super::*;

    /// Returns pending once, and wakes its task at once.
    async fn yield_once() {
        let mut is_woken = false;
        poll_fn(|context| {
            if std::mem::replace(&mut is_woken, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    #[tokio::test]
    async fn a_connections_requests_do_not_starve_other_tasks() {
        const REQUESTS: usize = 100;
        let (turns, polled) = (RequestTurns::default(), Rc::new(RefCell::new(Vec::new())));
        let local = LocalSet::new();
        local
            .run_until(async {
                let turn = |name: usize| {
                    let polled = Rc::clone(&polled);
                    async move {
                        for _ in 0..3 {
                            polled.borrow_mut().push(name);
                            yield_once().await;
                        }
                    }
                };
                let mut tasks: Vec<_> =
                    (0..REQUESTS).map(|number| spawn_local(turns.take_turns(turn(number)))).collect();
                tasks.push(spawn_local(turn(REQUESTS)));
                for task in tasks {
                    task.await.unwrap();
                }
            })
            .await;
        let polled = polled.borrow();
        assert_eq!(polled.len(), 3 * (REQUESTS + 1));
        let other: Vec<usize> = (0..polled.len()).filter(|at| polled.get(*at) == Some(&REQUESTS)).collect();
        assert!(other.iter().all(|at| *at <= 4 * *MAX_ACTIVE), "the other's turns were {other:?}");
        // Requests have their turns in order.
        let first = polled.iter().filter(|name| **name < REQUESTS).take(REQUESTS);
        assert!(first.copied().eq(0..REQUESTS));
    }

    #[tokio::test]
    async fn a_dropped_request_makes_room_in_every_state() {
        let turns = RequestTurns::default();
        let counts = || {
            let line = turns.lock_queue();
            (line.active, line.waiting.len())
        };
        let never = || turns.take_turns(std::future::pending::<()>());
        let mut turnses: Vec<_> = (0..2 * *MAX_ACTIVE + 2).map(|_| Box::pin(never())).collect();
        let mut context = Context::from_waker(Waker::noop());
        // Each request gets its first turn, the waiting ones when they are polled again.
        for _ in 0..turnses.len() {
            turnses.iter_mut().for_each(|wait| assert!(wait.as_mut().poll(&mut context).is_pending()));
        }
        assert_eq!(counts(), (0, 0));
        turnses.iter().for_each(|wait| wait.waker.wake_by_ref());
        assert_eq!(counts(), (*MAX_ACTIVE, *MAX_ACTIVE + 2));
        turnses.drain(..1);
        turnses.pop();
        assert_eq!(counts(), (*MAX_ACTIVE, *MAX_ACTIVE));
        turnses.clear();
        assert_eq!(counts(), (0, 0));
        turns.take_turns(async {}).await;
        assert_eq!(counts(), (0, 0));
    }
}
