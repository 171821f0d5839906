//! Requests that move from their serving thread to the pool for a while.
//!
//! Most steps of a request are short, but parsing or composing a long response is not. Before such work, a
//! request calls [`move_to_pool`]. A [`MovableFuture`] then runs its next poll in the pool, as a job of its
//! payer: everything that the request does until it has to wait. Afterwards it returns to its serving thread.
//!
//! A poll in the pool has a cooperative budget as on a serving thread (`tokio::task::coop`): 128 units. Each
//! ready tokio resource and each [`move_to_pool`] consumes one. Without a budget, a request would occupy its
//! thread as long as any resource is ready. When the budget is used up, the future is woken and returned. It
//! continues on its serving thread, or at its [`move_to_pool`], which queues and charges a new job behind
//! those of other payers. The work between two calls of [`move_to_pool`] is one unit whatever its duration:
//! callers must bound it by the size of a text.
//!
//! Pieces of work that are short each can be long together: sixteen short texts may arrive before a request
//! is polled again. A request therefore calls [`move_if_long`] with the size of each piece, which adds up the
//! work of a poll and leaves only before it becomes too much.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::task::coop::poll_proceed;

use crate::job::{JobRequest, OffloadError};
use crate::pool::{JobClass, OffloadPool};
use crate::quota::QuotaKey;
use crate::work::SHORT_TEXT;

/// The estimated CPU time of a move.
const ESTIMATE: Duration = Duration::from_millis(2);

/// The thread that the current future is polled on.
enum PollingThread {
    /// The future cannot move.
    Fixed,
    /// The future is on a serving thread, and this poll has done this work, as counted by [`move_if_long`].
    Serving(usize),
    /// The future is on a serving thread and has requested to move.
    MoveRequested,
    /// The future is in the pool, and has done this work since its last [`move_to_pool`]. The flag is set if
    /// it was dropped meanwhile.
    Pool(Arc<AtomicBool>, usize),
}

thread_local! {
    static POLLING_THREAD: RefCell<PollingThread> = const { RefCell::new(PollingThread::Fixed) };
}

type BoxedFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
/// A poll in the pool, which returns the future, unless it was lost, and the result of the poll.
type PoolPoll<T> = BoxedFuture<Result<(BoxedFuture<T>, Poll<T>), OffloadError>>;

/// A future whose polls can run in the pool, on request: see [`move_to_pool`].
///
/// The output is an error if the pool rejected a move or missed the deadline.
pub struct MovableFuture<T> {
    state: MovableState<T>,
    move_parameters: MoveParameters,
}

enum MovableState<T> {
    Serving(BoxedFuture<T>),
    InPool(PoolPoll<T>),
    /// A transitional state, and the final state.
    Empty,
}

/// The parameters of moves.
struct MoveParameters {
    pool: OffloadPool,
    kind: &'static str,
    payer: QuotaKey,
    deadline: Instant,
    /// Whether a move waits while the payer's quota is used up. Otherwise the poll ends with an error, and
    /// the future stays in its place.
    is_paced: bool,
    is_dropped: Arc<AtomicBool>,
}

/// Moves the rest of this poll to the pool, if the future is part of a [`MovableFuture`]; otherwise returns
/// at once. In the pool it also returns at once, unless the [`MovableFuture`] was dropped. If the poll's
/// budget is used up there, it continues in a new job.
pub async fn move_to_pool() {
    poll_fn(|context| {
        POLLING_THREAD.with_borrow_mut(|thread| match thread {
            PollingThread::Pool(is_dropped, _) if is_dropped.load(Relaxed) => Poll::Pending,
            PollingThread::Fixed => Poll::Ready(()),
            PollingThread::Pool(_, work) => {
                *work = 0;
                poll_proceed(context).map(|unit| unit.made_progress())
            }
            PollingThread::Serving(_) | PollingThread::MoveRequested => {
                *thread = PollingThread::MoveRequested;
                // Wake the task, since combinators poll only those of their futures that were woken.
                context.waker().wake_by_ref();
                Poll::Pending
            }
        })
    })
    .await;
}

/// Counts the work that follows, in bytes of text, which take up to ten nanoseconds each. Moves the rest of
/// this poll to the pool, as [`move_to_pool`] does, if the work of the poll would exceed [`SHORT_TEXT`]. In
/// the pool, it calls [`move_to_pool`] whenever that much is done.
pub async fn move_if_long(work: usize) {
    let is_short = POLLING_THREAD.with_borrow_mut(|thread| match thread {
        PollingThread::Serving(done) | PollingThread::Pool(_, done) => {
            *done = done.saturating_add(work);
            *done <= SHORT_TEXT
        }
        PollingThread::Fixed => true,
        PollingThread::MoveRequested => false,
    });
    if !is_short {
        move_to_pool().await;
    }
}

impl OffloadPool {
    /// Makes a future movable. Its moves are jobs of this kind, charged to the payer, until the deadline.
    pub fn make_movable<T: Send + 'static>(
        &self,
        kind: &'static str,
        payer: QuotaKey,
        deadline: Instant,
        future: impl Future<Output = T> + Send + 'static,
    ) -> MovableFuture<T> {
        let is_dropped = Arc::default();
        let mover = MoveParameters { pool: self.clone(), kind, payer, deadline, is_paced: true, is_dropped };
        MovableFuture { state: MovableState::Serving(Box::pin(future)), move_parameters: mover }
    }
}

impl<T: Send + 'static> MovableFuture<T> {
    /// Runs the future, but does not wait for quota, for work that others wait for, too.
    ///
    /// # Errors
    /// The movable itself, if a move would have to wait for its payer's quota. It continues when it is
    /// awaited, and waits for quota then.
    pub async fn run_within_quota(mut self) -> Result<Result<T, OffloadError>, Self> {
        self.move_parameters.is_paced = false;
        let result = (&mut self).await;
        self.move_parameters.is_paced = true;
        if matches!(self.state, MovableState::Serving(_)) { Err(self) } else { Ok(result) }
    }
}

impl MoveParameters {
    fn job_request(&self) -> JobRequest {
        JobRequest { kind: self.kind, payer: self.payer, estimate: ESTIMATE, deadline: self.deadline }
    }

    /// Polls a future once in the pool. If the job is not `charged` yet, waits for quota before.
    fn poll_in_pool<T: Send + 'static>(
        &self,
        mut future: BoxedFuture<T>,
        charged: Option<Instant>,
        context: &Context<'_>,
    ) -> PoolPoll<T> {
        let (pool, request) = (self.pool.clone(), self.job_request());
        let (waker, handle) = (context.waker().clone(), Handle::current());
        let thread = PollingThread::Pool(Arc::clone(&self.is_dropped), 0);
        Box::pin(async move {
            let poll = move || {
                // The future needs the timers and sockets of its own runtime. Unlike `Handle::enter`,
                // `block_on` sets up a cooperative budget. It returns at once, since its own future is ready
                // after the poll.
                let polled = handle.block_on(async {
                    let (polled, _) = with_polling_thread(thread, || {
                        future.as_mut().poll(&mut Context::from_waker(&waker))
                    });
                    polled
                });
                (future, polled)
            };
            let owed_until = match charged {
                Some(owed_until) => owed_until,
                None => pool.charge_paced(&request).await?,
            };
            pool.run_charged(request, JobClass::Short, owed_until, move |_| poll()).await
        })
    }
}

impl<T: Send + 'static> Future for MovableFuture<T> {
    type Output = Result<T, OffloadError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            match &mut this.state {
                MovableState::Serving(future) => {
                    let (polled, thread) =
                        with_polling_thread(PollingThread::Serving(0), || future.as_mut().poll(context));
                    match (polled, thread) {
                        (Poll::Ready(output), _) => {
                            this.state = MovableState::Empty;
                            return Poll::Ready(Ok(output));
                        }
                        (Poll::Pending, PollingThread::MoveRequested) => {}
                        (Poll::Pending, _) => return Poll::Pending,
                    }
                    let charged = match this.move_parameters.pool.charge(&this.move_parameters.job_request())
                    {
                        Ok(owed_until) => Some(owed_until),
                        Err(_) if this.move_parameters.is_paced => None,
                        Err(error) => return Poll::Ready(Err(error)),
                    };
                    if let MovableState::Serving(future) =
                        std::mem::replace(&mut this.state, MovableState::Empty)
                    {
                        this.state =
                            MovableState::InPool(this.move_parameters.poll_in_pool(future, charged, context));
                    }
                }
                MovableState::InPool(away) => match ready!(away.as_mut().poll(context)) {
                    Ok((_, Poll::Ready(output))) => {
                        this.state = MovableState::Empty;
                        return Poll::Ready(Ok(output));
                    }
                    // The future may have been woken while it was in the pool.
                    Ok((future, Poll::Pending)) => this.state = MovableState::Serving(future),
                    Err(error) => {
                        this.state = MovableState::Empty;
                        return Poll::Ready(Err(error));
                    }
                },
                MovableState::Empty => return Poll::Pending,
            }
        }
    }
}

impl<T> Drop for MovableFuture<T> {
    fn drop(&mut self) {
        self.move_parameters.is_dropped.store(true, Relaxed);
    }
}

/// Runs a closure in a seat. Returns the seat's state afterwards.
fn with_polling_thread<R>(thread: PollingThread, work: impl FnOnce() -> R) -> (R, PollingThread) {
    /// Restores the previous seat, even if the closure panics.
    struct PreviousThread(Option<PollingThread>);
    impl PreviousThread {
        fn restore(&mut self) -> PollingThread {
            let before = self.0.take().unwrap_or(PollingThread::Fixed);
            POLLING_THREAD.replace(before)
        }
    }
    impl Drop for PreviousThread {
        fn drop(&mut self) {
            if self.0.is_some() {
                self.restore();
            }
        }
    }
    let mut before = PreviousThread(Some(POLLING_THREAD.replace(thread)));
    let result = work();
    (result, before.restore())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use futures_util::FutureExt;
    use futures_util::future::join_all;

    use super::*;
    use crate::pool::OffloadConfig;

    const HOUR: Duration = Duration::from_secs(3600);

    fn start_pool() -> OffloadPool {
        OffloadPool::start(OffloadConfig { threads: 1, quota: HOUR }).unwrap()
    }

    fn movable<T: Send + 'static>(
        pool: &OffloadPool,
        future: impl Future<Output = T> + Send + 'static,
    ) -> MovableFuture<T> {
        pool.make_movable("test", QuotaKey::new(&1), Instant::now() + HOUR, future)
    }

    fn current_thread_id() -> thread::ThreadId {
        thread::current().id()
    }

    #[tokio::test]
    async fn runs_in_the_pool_until_it_waits() {
        let serving = current_thread_id();
        let (before, away, back) = movable(&start_pool(), async {
            let before = current_thread_id();
            move_to_pool().await;
            let away = current_thread_id();
            tokio::time::sleep(Duration::from_millis(1)).await;
            (before, away, current_thread_id())
        })
        .await
        .unwrap();
        assert_eq!((before, back), (serving, serving));
        assert_ne!(away, serving);
    }

    #[tokio::test]
    async fn continues_in_place_if_it_cannot_move() {
        let serving = current_thread_id();
        assert_eq!(async { move_to_pool().map(|()| current_thread_id()).await }.await, serving);
    }

    #[tokio::test]
    async fn moves_parts_that_are_polled_among_others() {
        let serving = current_thread_id();
        let parts = join_all((0..40).map(|_| async {
            move_to_pool().await;
            let away = current_thread_id();
            tokio::task::yield_now().await;
            move_to_pool().await;
            [away, current_thread_id()]
        }));
        let seats = movable(&start_pool(), parts).await.unwrap();
        assert_eq!(seats.len(), 40);
        assert!(seats.iter().flatten().all(|seat| *seat != serving));
    }

    #[tokio::test]
    async fn adds_up_the_work_of_a_poll() {
        let serving = current_thread_id();
        let parts = |count| {
            join_all((0..count).map(|_| async {
                move_if_long(SHORT_TEXT / 4).await;
                current_thread_id()
            }))
        };
        let seats = movable(&start_pool(), parts(4)).await.unwrap();
        assert!(seats.iter().all(|seat| *seat == serving), "short together");
        let seats = movable(&start_pool(), parts(16)).await.unwrap();
        assert_eq!(seats.iter().filter(|seat| **seat == serving).count(), 4, "the rest leaves");
        let one_by_one = movable(&start_pool(), async {
            let mut seats = Vec::new();
            for _ in 0..8 {
                move_if_long(SHORT_TEXT).await;
                seats.push(current_thread_id());
                tokio::task::yield_now().await;
            }
            seats
        });
        assert!(one_by_one.await.unwrap().iter().all(|seat| *seat == serving), "a poll each");
        let seats = movable(&start_pool(), async {
            move_if_long(SHORT_TEXT + 1).await;
            current_thread_id()
        });
        assert_ne!(seats.await.unwrap(), serving);
    }

    #[tokio::test]
    async fn small_work_in_the_pool_uses_up_no_budget() {
        let serving = current_thread_id();
        let is_away = movable(&start_pool(), async move {
            move_to_pool().await;
            // One unit of 128 is used up.
            for _ in 0..127 {
                move_if_long(1).await;
            }
            current_thread_id() != serving && tokio::task::coop::has_budget_remaining()
        });
        assert_eq!(is_away.await, Ok(true));
    }

    #[tokio::test]
    async fn a_moved_future_yields_to_other_jobs() {
        let pool = start_pool();
        let (begins, begun) = tokio::sync::oneshot::channel();
        let (go, gone) = std::sync::mpsc::channel::<()>();
        let has_run = Arc::new(AtomicBool::new(false));
        let runs = Arc::clone(&has_run);
        let moved = movable(&pool, async move {
            move_to_pool().await;
            let _ = begins.send(());
            let _ = gone.recv();
            for _ in 0..10_000 {
                if has_run.load(Relaxed) {
                    return true;
                }
                move_to_pool().await;
            }
            false
        });
        let moved = tokio::spawn(moved);
        begun.await.unwrap();
        let request = JobRequest {
            kind: "other",
            payer: QuotaKey::new(&2),
            estimate: Duration::ZERO,
            deadline: Instant::now() + HOUR,
        };
        let mut other = Box::pin(pool.run(request, move |_| runs.store(true, Relaxed)));
        assert!(other.as_mut().now_or_never().is_none(), "the only thread is busy");
        drop(go);
        assert_eq!(other.await, Ok(()));
        assert_eq!(moved.await.unwrap(), Ok(true), "the other job ran before the moved future was done");
    }

    #[tokio::test]
    async fn a_moved_future_returns_when_its_budget_is_used_up() {
        let serving = current_thread_id();
        let is_back = movable(&start_pool(), async move {
            move_to_pool().await;
            assert_ne!(current_thread_id(), serving);
            for _ in 0..10_000 {
                if current_thread_id() == serving {
                    return true;
                }
                tokio::task::coop::consume_budget().await;
            }
            false
        });
        assert_eq!(is_back.await, Ok(true));
    }

    #[tokio::test]
    async fn returns_instead_of_waiting_for_quota() {
        let (pool, payer, serving) = (start_pool(), QuotaKey::new(&1), current_thread_id());
        let within = movable(&pool, move_to_pool()).run_within_quota().await;
        assert!(matches!(within, Ok(Ok(()))));
        let (debt, now) = (100 * HOUR, Instant::now());
        pool.quota().charge(payer, debt, now);
        let moved = movable(&pool, move_to_pool().map(|()| current_thread_id()));
        let Err(future) = moved.run_within_quota().await else { panic!("there is no quota") };
        pool.quota().correct_charge(payer, debt, Duration::ZERO, now);
        assert_ne!(future.await.unwrap(), serving, "it continues");
    }

    #[tokio::test]
    async fn reports_a_panic_in_the_pool() {
        let moved = movable(&start_pool(), async {
            move_to_pool().await;
            panic!("on purpose")
        });
        let moved: Result<(), OffloadError> = moved.await;
        assert_eq!(moved, Err(OffloadError::Panicked));
    }

    #[tokio::test]
    async fn stops_when_its_caller_is_gone() {
        let pool = start_pool();
        let (begins, begun) = tokio::sync::oneshot::channel();
        let (go, gone) = std::sync::mpsc::channel::<()>();
        let went_on = Arc::new(AtomicBool::new(false));
        let goes_on = Arc::clone(&went_on);
        let moved = movable(&pool, async move {
            move_to_pool().await;
            let _ = begins.send(());
            let _ = gone.recv();
            move_to_pool().await;
            goes_on.store(true, Relaxed);
        });
        let moved = tokio::spawn(moved);
        begun.await.unwrap();
        moved.abort();
        assert!(moved.await.unwrap_err().is_cancelled());
        drop(go);
        let request = JobRequest {
            kind: "test",
            payer: QuotaKey::new(&2),
            estimate: Duration::ZERO,
            deadline: Instant::now() + HOUR,
        };
        assert_eq!(pool.run(request, |_| ()).await, Ok(()), "the thread is free");
        assert!(!went_on.load(Relaxed));
    }
}
