//! CPU metering: a guest is charged for the CPU time of its polls, including host functions.
//!
//! The clock is the thread's CPU clock, so that a guest is not charged for other processes. Reading it takes
//! a system call, while the wall clock is nearly free and never shows less than the CPU time. A poll shorter
//! than [`BRIEF_POLL`] by the wall clock is therefore charged that time. A longer one is measured from the
//! last reading of the CPU clock, which is repeated if it is older than [`BRIEF_POLL`]. A guest is thus
//! charged for at most that much of its neighbours' time, and for none once it has used more itself.
//!
//! Guests that have used more than [`HEAVY_THRESHOLD`] take turns at a [`HeavyGate`], for one poll (about a
//! millisecond) each, so that light requests always find a free thread. The turns go round the clients: many
//! heavy guests of one client have no more of them than one guest of another.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use offload::{CpuClock, FairPermit, FairSemaphore, QuotaKey};
use wasmtime::Engine;

use crate::alarm::with_alarm;

/// The CPU time from which on a guest is heavy.
pub(crate) const HEAVY_THRESHOLD: Duration = Duration::from_millis(5);
/// The limit below which polls are charged by the wall clock, and the maximum age of a reading of the CPU
/// clock.
const BRIEF_POLL: Duration = Duration::from_micros(100);

type HeavyTurn = Pin<Box<dyn Future<Output = Option<FairPermit>> + Send>>;

/// The semaphore at which heavy guests take turns.
#[derive(Clone, Debug)]
pub struct HeavyGate(FairSemaphore);

/// A heavy guest's turn, which ends on drop.
#[derive(Debug)]
pub struct TurnPermit(#[expect(dead_code, reason = "dropping it is its use")] FairPermit);

/// The start of a poll by the wall clock, and a reading of the CPU clock at or before the start.
struct PollStart {
    wall: Instant,
    cpu: CpuClock,
}

/// Error: the guest exceeded its CPU limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverCpu;

/// A future that is charged for its polls.
pub struct MeteredFuture<'g, F> {
    future: Pin<Box<F>>,
    cpu_used: Duration,
    limit: Duration,
    gate: &'g HeavyGate,
    client: QuotaKey,
    engine: Engine,
    turn: Option<HeavyTurn>,
}

impl HeavyGate {
    /// Creates a gate that leaves one thread free of heavy guests.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Self(FairSemaphore::new(threads.saturating_sub(1).max(1)))
    }

    /// Waits for a turn if a guest of this client with this CPU time is heavy. The permit is for one poll.
    pub async fn wait_turn(&self, client: QuotaKey, spent: Duration) -> Option<TurnPermit> {
        if spent < HEAVY_THRESHOLD {
            return None;
        }
        self.0.acquire(client).await.map(TurnPermit)
    }

    fn acquire_turn(&self, client: QuotaKey) -> HeavyTurn {
        let semaphore = self.0.clone();
        Box::pin(async move { semaphore.acquire(client).await })
    }
}

thread_local! {
    /// The last reading of this thread's CPU clock, with its time.
    static LAST: Cell<Option<(Instant, CpuClock)>> = const { Cell::new(None) };
}

impl PollStart {
    /// Starts a measurement. Reads the CPU clock if the guest has used more than [`BRIEF_POLL`] already.
    fn start(spent: Duration) -> Self {
        let wall = Instant::now();
        let last = LAST
            .get()
            .filter(|(at, _)| spent < BRIEF_POLL && wall.saturating_duration_since(*at) < BRIEF_POLL);
        let (_, cpu) = last.unwrap_or_else(|| Self::read_clock(wall));
        Self { wall, cpu }
    }

    /// Returns the CPU time since the start.
    fn elapsed(&self) -> Duration {
        let now = Instant::now();
        let wall = now.saturating_duration_since(self.wall);
        if wall < BRIEF_POLL {
            return wall;
        }
        let (_, cpu) = Self::read_clock(now);
        wall.min(cpu.since(self.cpu))
    }

    fn read_clock(wall: Instant) -> (Instant, CpuClock) {
        let read = (wall, CpuClock::now());
        LAST.set(Some(read));
        read
    }
}

impl<'g, F: Future> MeteredFuture<'g, F> {
    /// Meters `future`, which runs a client's guest of an engine, and ends it after its polls took more than
    /// `limit`.
    pub fn new(future: F, limit: Duration, gate: &'g HeavyGate, client: QuotaKey, engine: &Engine) -> Self {
        let (future, engine) = (Box::pin(future), engine.clone());
        Self { future, cpu_used: Duration::ZERO, limit, gate, client, engine, turn: None }
    }

    /// Returns the CPU time of all polls so far.
    #[must_use]
    pub fn cpu_used(&self) -> Duration {
        self.cpu_used
    }

    /// Waits for a turn if the guest is heavy.
    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<Option<FairPermit>> {
        if self.cpu_used < HEAVY_THRESHOLD {
            return Poll::Ready(None);
        }
        let turn = self.turn.get_or_insert_with(|| self.gate.acquire_turn(self.client));
        let permit = ready!(turn.as_mut().poll(context));
        self.turn = None;
        Poll::Ready(permit)
    }
}

impl<F: Future> Future for MeteredFuture<'_, F> {
    type Output = Result<F::Output, OverCpu>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let _permit = ready!(this.poll_turn(context));
        let poll_start = PollStart::start(this.cpu_used);
        let polled = with_alarm(&this.engine, || this.future.as_mut().poll(context));
        this.cpu_used += poll_start.elapsed();
        match polled {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending if this.cpu_used > this.limit => Poll::Ready(Err(OverCpu)),
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

    fn metered_poll<T>(
        poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> MeteredFuture<'static, impl Future<Output = T>> {
        static GATE: LazyLock<HeavyGate> = LazyLock::new(|| HeavyGate::new(2));
        let (client, limit) = (QuotaKey::new(&"client"), Duration::from_millis(20));
        MeteredFuture::new(std::future::poll_fn(poll), limit, &GATE, client, &Engine::default())
    }

    fn spin(span: Duration) {
        let clock = CpuClock::now();
        while clock.elapsed() < span {
            black_box(0);
        }
    }

    #[test]
    fn does_not_charge_for_waiting() {
        let mut future = metered_poll(|_| {
            std::thread::sleep(5 * BRIEF_POLL);
            Poll::Ready(())
        });
        let clock = CpuClock::now();
        let began = Instant::now();
        (&mut future).now_or_never().unwrap().unwrap();
        assert!(future.cpu_used() <= clock.elapsed() + BRIEF_POLL, "{:?}", future.cpu_used());
        assert!(future.cpu_used() <= began.elapsed());
    }

    #[test]
    fn charges_for_all_work_and_little_of_earlier_guests() {
        for work in [BRIEF_POLL / 4, BRIEF_POLL, 20 * BRIEF_POLL] {
            spin(BRIEF_POLL / 2);
            let mut works = metered_poll(move |_| {
                spin(work);
                Poll::Ready(())
            });
            let clock = CpuClock::now();
            (&mut works).now_or_never().unwrap().unwrap();
            let used = clock.elapsed();
            // The two clocks may run at slightly different rates.
            assert!(works.cpu_used() >= work / 100 * 99, "{:?} of {work:?}", works.cpu_used());
            assert!(works.cpu_used() <= used + BRIEF_POLL, "{:?} of {used:?}", works.cpu_used());
        }
    }

    #[test]
    fn clients_take_turns_in_rounds() {
        let gate = HeavyGate::new(2);
        let turn = |client: &'static str| {
            let gate = gate.clone();
            async move { gate.wait_turn(QuotaKey::new(&client), HEAVY_THRESHOLD).await }.boxed()
        };
        let first = turn("attacker").now_or_never().unwrap();
        let mut waiting: Vec<_> = (0..3).map(|_| turn("attacker")).collect();
        assert!(waiting.iter_mut().all(|turn| turn.now_or_never().is_none()));
        let mut neighbour = turn("neighbour");
        assert!((&mut neighbour).now_or_never().is_none());
        drop(first);
        drop(waiting.remove(0).now_or_never().unwrap());
        assert!(neighbour.now_or_never().is_some(), "the second turn is the neighbour's");
    }

    #[test]
    fn ends_a_guest_that_never_finishes() {
        let mut polls = 0;
        let mut spins = metered_poll(|_| {
            polls += 1;
            spin(BRIEF_POLL / 2);
            Poll::<()>::Pending
        });
        let ended = std::iter::from_fn(|| Some((&mut spins).now_or_never())).flatten().next();
        assert_eq!(ended, Some(Err(OverCpu)));
        drop(spins);
        assert!(polls <= 20 * 20 + 10, "{polls} polls of a twentieth of a millisecond");
    }
}
