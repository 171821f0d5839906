//! CPU time is what the polls of a guest took, host functions included.
//!
//! The clock is the thread's CPU clock, so a guest does not pay for its neighbours. To read it takes a system call,
//! where the wall's clock costs next to nothing and never shows less: a poll that was [`BRIEF`] by that is charged
//! by that. A longer one is counted from the last reading of the CPU clock, which is made again where it is older
//! than that; so nobody pays for more than so much of its neighbours, and who has used more, for nothing.
//!
//! A guest that has used more than [`HEAVY`] takes turns with the other heavy ones at a [`Gate`], a poll (about a
//! millisecond) each, so that light requests always find a free thread.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use offload::CpuClock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmtime::Engine;

use crate::alarm::with_alarm;

/// From here on a guest is heavy.
pub(crate) const HEAVY: Duration = Duration::from_millis(5);
/// Polls that were shorter are charged by the wall's clock; and so old may a reading of the CPU clock be.
const BRIEF: Duration = Duration::from_micros(100);

type Turn = Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send>>;

/// Where heavy guests take turns.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Semaphore>);

/// A heavy guest's turn, until it is dropped.
#[derive(Debug)]
pub struct TurnPermit(#[expect(dead_code, reason = "dropping it is its use")] OwnedSemaphorePermit);

/// When a poll began, by the wall's clock and at the latest by the CPU clock.
struct Begun {
    wall: Instant,
    cpu: CpuClock,
}

/// The guest used more CPU time than it was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverCpu;

/// A future that is charged for its polls.
pub struct Metered<'g, F> {
    future: Pin<Box<F>>,
    spent: Duration,
    limit: Duration,
    gate: &'g Gate,
    engine: Engine,
    turn: Option<Turn>,
}

impl Gate {
    /// A gate that lets as many heavy guests run at once as leave one thread to the others.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Self(Arc::new(Semaphore::new(threads.saturating_sub(1).max(1))))
    }

    /// Waits for a turn where a guest that has used so much CPU time is heavy. The permit is for one slice.
    pub async fn wait_turn(&self, spent: Duration) -> Option<TurnPermit> {
        if spent < HEAVY {
            return None;
        }
        Arc::clone(&self.0).acquire_owned().await.ok().map(TurnPermit)
    }

    fn turn(&self) -> Turn {
        let semaphore = self.0.clone();
        Box::pin(async move { semaphore.acquire_owned().await.ok() })
    }
}

thread_local! {
    /// The last reading of this thread's CPU clock, and when that was.
    static LAST: Cell<Option<(Instant, CpuClock)>> = const { Cell::new(None) };
}

impl Begun {
    /// Now. For a guest that has used so much already the clock is read.
    fn now(spent: Duration) -> Self {
        let wall = Instant::now();
        let last = LAST.get().filter(|(at, _)| spent < BRIEF && wall.saturating_duration_since(*at) < BRIEF);
        let (_, cpu) = last.unwrap_or_else(|| Self::read(wall));
        Self { wall, cpu }
    }

    /// The CPU time since then.
    fn elapsed(&self) -> Duration {
        let now = Instant::now();
        let wall = now.saturating_duration_since(self.wall);
        if wall < BRIEF {
            return wall;
        }
        let (_, cpu) = Self::read(now);
        wall.min(cpu.since(self.cpu))
    }

    fn read(wall: Instant) -> (Instant, CpuClock) {
        let read = (wall, CpuClock::now());
        LAST.set(Some(read));
        read
    }
}

impl<'g, F: Future> Metered<'g, F> {
    /// Charges `future`, which runs a guest of an engine, and ends it when its polls took more than `limit`.
    pub fn new(future: F, limit: Duration, gate: &'g Gate, engine: &Engine) -> Self {
        let (future, engine) = (Box::pin(future), engine.clone());
        Self { future, spent: Duration::ZERO, limit, gate, engine, turn: None }
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
        let turn = self.turn.get_or_insert_with(|| self.gate.turn());
        let permit = ready!(turn.as_mut().poll(context));
        self.turn = None;
        Poll::Ready(permit)
    }
}

impl<F: Future> Future for Metered<'_, F> {
    type Output = Result<F::Output, OverCpu>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let _permit = ready!(this.poll_turn(context));
        let begun = Begun::now(this.spent);
        let polled = with_alarm(&this.engine, || this.future.as_mut().poll(context));
        this.spent += begun.elapsed();
        match polled {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending if this.spent > this.limit => Poll::Ready(Err(OverCpu)),
            Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::sync::LazyLock;

    use futures_util::FutureExt;

    use super::*;

    fn metered<T>(
        poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Metered<'static, impl Future<Output = T>> {
        static GATE: LazyLock<Gate> = LazyLock::new(|| Gate::new(2));
        Metered::new(std::future::poll_fn(poll), Duration::from_millis(20), &GATE, &Engine::default())
    }

    fn spin(span: Duration) {
        let clock = CpuClock::now();
        while clock.elapsed() < span {
            black_box(0);
        }
    }

    #[test]
    fn who_waits_does_not_pay_for_it() {
        let mut waits = metered(|_| {
            std::thread::sleep(5 * BRIEF);
            Poll::Ready(())
        });
        let clock = CpuClock::now();
        let began = Instant::now();
        (&mut waits).now_or_never().unwrap().unwrap();
        assert!(waits.spent() <= clock.elapsed() + BRIEF, "{:?}", waits.spent());
        assert!(waits.spent() <= began.elapsed());
    }

    #[test]
    fn who_works_pays_for_all_of_it_and_little_of_what_others_did_before() {
        for work in [BRIEF / 4, BRIEF, 20 * BRIEF] {
            spin(BRIEF / 2);
            let mut works = metered(move |_| {
                spin(work);
                Poll::Ready(())
            });
            let clock = CpuClock::now();
            (&mut works).now_or_never().unwrap().unwrap();
            let used = clock.elapsed();
            // The two clocks may not run quite alike.
            assert!(works.spent() >= work / 100 * 99, "{:?} of {work:?}", works.spent());
            assert!(works.spent() <= used + BRIEF, "{:?} of {used:?}", works.spent());
        }
    }

    #[test]
    fn who_works_for_ever_comes_to_an_end() {
        let mut polls = 0;
        let mut spins = metered(|_| {
            polls += 1;
            spin(BRIEF / 2);
            Poll::<()>::Pending
        });
        let ended = std::iter::from_fn(|| Some((&mut spins).now_or_never())).flatten().next();
        assert_eq!(ended, Some(Err(OverCpu)));
        drop(spins);
        assert!(polls <= 20 * 20 + 10, "{polls} polls of a twentieth of a millisecond");
    }
}
