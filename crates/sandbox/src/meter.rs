//! CPU time is what the polls of a guest took, host functions included.
//!
//! The clock is the thread's CPU clock, so a guest does not pay for its neighbours. A guest that has
//! used more than [`HEAVY`] takes turns with the other heavy ones at a [`Gate`], a poll (about a
//! millisecond) each, so that light requests always find a free thread.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// From here on a guest is heavy.
pub(crate) const HEAVY: Duration = Duration::from_millis(5);

type Turn = Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send>>;

/// Where heavy guests take turns.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Semaphore>);

/// The thread's CPU time.
#[derive(Clone, Copy, Debug)]
pub struct CpuClock(Duration);

/// The guest used more CPU time than it was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverCpu;

/// A future that is charged for its polls.
pub struct Metered<F> {
    future: Pin<Box<F>>,
    spent: Duration,
    limit: Duration,
    gate: Gate,
    turn: Option<Turn>,
}

impl Gate {
    /// A gate that lets as many heavy guests run at once as leave one thread to the others.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Self(Arc::new(Semaphore::new(threads.saturating_sub(1).max(1))))
    }

    fn turn(&self) -> Turn {
        let semaphore = self.0.clone();
        Box::pin(async move { semaphore.acquire_owned().await.ok() })
    }
}

impl CpuClock {
    /// Reads the clock.
    #[must_use]
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanos = u32::try_from(now.tv_nsec).unwrap_or(0);
        Self(Duration::new(seconds, nanos))
    }

    /// The CPU time since then, on the same thread.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }
}

impl<F: Future> Metered<F> {
    /// Charges `future`, and ends it when its polls took more than `limit`.
    pub fn new(future: F, limit: Duration, gate: Gate) -> Self {
        Self { future: Box::pin(future), spent: Duration::ZERO, limit, gate, turn: None }
    }

    /// What its polls took so far.
    #[must_use]
    pub fn spent(&self) -> Duration {
        self.spent
    }

    /// Waits for a turn if the guest is heavy.
    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<Option<OwnedSemaphorePermit>> {
        if self.spent < HEAVY {
            return Poll::Ready(None);
        }
        let gate = &self.gate;
        let turn = self.turn.get_or_insert_with(|| gate.turn());
        let permit = ready!(turn.as_mut().poll(context));
        self.turn = None;
        Poll::Ready(permit)
    }
}

impl<F: Future> Future for Metered<F> {
    type Output = Result<F::Output, OverCpu>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let _permit = ready!(this.poll_turn(context));
        let clock = CpuClock::now();
        let polled = this.future.as_mut().poll(context);
        this.spent += clock.elapsed();
        match polled {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending if this.spent > this.limit => Poll::Ready(Err(OverCpu)),
            Poll::Pending => Poll::Pending,
        }
    }
}
