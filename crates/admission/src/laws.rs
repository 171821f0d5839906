//! The laws of admission control, and a simulated machine on which they are checked.
//!
//! The machine has one thread, which processes requests in order of arrival. Time, also CPU time, is
//! simulated. [`admission_tests!`](crate::admission_tests) makes a test of each law for a [`SimulatedQueue`].

use std::cell::Cell;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::Admission;

thread_local! {
    static CPU_TIME: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// The interval at which an idle machine is observed.
const TICK: Duration = Duration::from_millis(1);
/// The load of an overload, relative to the capacity.
const OVERLOAD: u32 = 4;
/// The shares of the processor that other processes leave.
const LEFT_SHARES: [f64; 3] = [0.05, 0.2, 0.34];
/// The load beside other processes, relative to the capacity that they leave, and the number of requests that
/// arrive together.
const SHARED_LOAD: f64 = 0.75;
const SHARED_GROUP: usize = 8;

/// An implementation of [`Admission`] in front of the simulated machine.
pub trait SimulatedQueue {
    /// The information that the queue decides by.
    type Request;
    /// The queue.
    type Queue: Admission<Self::Request>;
    /// An admitted request.
    type Work;

    /// The CPU time of a request.
    const COST: Duration;
    /// The number of requests that may arrive at once.
    const BURST: usize;
    /// The wait from which on the queue is long.
    const LONG_WAIT: Duration;
    /// The time for which it may be long.
    const INTERVAL: Duration;
    /// The time until an overload of four times the capacity is noticed. It consists of the time until the
    /// queue is long, the interval, and the delay of the measurement.
    const NOTICE: Duration;

    /// Creates a queue. Its CPU clock is [`simulated_cpu_time`], and times are relative to `epoch`.
    fn new(epoch: Instant) -> Self;
    /// Returns the queue.
    fn queue(&self) -> &Self::Queue;
    /// Returns the information about a request that arrives now.
    fn request(&self) -> Self::Request;
    /// Enters an admitted request.
    fn enter(&mut self, permit: Permit<Self>) -> Self::Work;
    /// Begins to process a request, once the machine's thread is free.
    fn start(&mut self, _work: &mut Self::Work) {}
    /// Drops a request that has been processed.
    fn finish(&mut self, work: Self::Work, machine: &MachineState);
    /// Observes the machine, after each completed request and at least every millisecond.
    fn observe(&mut self, _machine: &MachineState) {}
    /// Returns the number of admitted requests that have not been dropped.
    fn occupied(&self) -> usize;
    /// Returns a number that a refusal during an overload increases by one. `None` if the queue leaves it to
    /// its caller to count refusals.
    fn refusals(&self) -> Option<u64>;
}

/// The permit of a simulated queue.
pub type Permit<S> = <<S as SimulatedQueue>::Queue as Admission<<S as SimulatedQueue>::Request>>::Permit;

/// The observable state of the machine. Times are relative to its epoch.
#[derive(Clone, Copy, Debug)]
pub struct MachineState {
    /// The wall clock.
    pub now: Duration,
    /// The wall clock as an instant.
    pub instant: Instant,
    /// The wall time that a request takes.
    pub request_time: Duration,
    /// The number of requests that have been processed.
    pub finished: usize,
    /// The number of admitted requests that have not been processed.
    pub backlog: usize,
}

/// The machine.
struct SimulatedMachine<S: SimulatedQueue> {
    queue: S,
    epoch: Instant,
    now: Duration,
    /// The share of the processor that other processes leave.
    share: f64,
    waiting: VecDeque<S::Work>,
    running: Option<RunningRequest<S::Work>>,
    finished: usize,
    refused: usize,
    last_refusal: Option<Duration>,
    /// The longest wait by the wall clock.
    longest_wait: Duration,
}

struct RunningRequest<W> {
    work: W,
    finishes: Duration,
}

/// Returns the CPU time that the simulated machine of the calling thread has used.
#[must_use]
pub fn simulated_cpu_time() -> Duration {
    CPU_TIME.get()
}

/// Defines a test of each law for a type that implements `laws::SimulatedQueue`.
#[macro_export]
macro_rules! admission_tests {
    ($queue:ty: $($law:ident)*) => {
        $(
            #[test]
            fn $law() {
                $crate::laws::$law::<$queue>();
            }
        )*
    };
    ($queue:ty) => {
        $crate::admission_tests! {
            $queue:
            an_idle_queue_admits_a_request_even_after_an_overload
            a_burst_within_the_limit_passes
            a_sustained_overload_is_refused_within_an_interval
            a_recovery_ends_an_overload
            a_dropped_permit_frees_its_place
            waits_for_other_processes_do_not_count
            an_overload_beside_other_processes_is_refused
            a_refused_request_is_counted
        }
    };
}

/// Law: a request that finds the machine idle is admitted, whatever was before.
///
/// # Panics
/// If the queue breaks the law.
pub fn an_idle_queue_admits_a_request_even_after_an_overload<S: SimulatedQueue>() {
    let mut machine = SimulatedMachine::<S>::new(1.0);
    assert!(machine.offer(), "the first request of all");
    machine.overload(Duration::from_secs(2));
    assert!(machine.refused > 0, "there was an overload");
    for request in 0..20 {
        machine.run_until_idle();
        assert!(machine.offer(), "request {request} after an overload");
    }
}

/// Law: a burst is admitted if it is processed before the queue has been long for an interval.
///
/// # Panics
/// If the queue breaks the law.
pub fn a_burst_within_the_limit_passes<S: SimulatedQueue>() {
    let mut machine = SimulatedMachine::<S>::new(1.0);
    for burst in 0..20 {
        for request in 0..S::BURST {
            assert!(machine.offer(), "request {request} of burst {burst}");
        }
        // For a part of the interval, the queue stays as long as it is.
        machine.offer_evenly(S::INTERVAL * 3 / 10, 1.0, 1);
        assert_eq!(machine.refused, 0, "after burst {burst}");
        machine.run_for(S::COST * 2 * count(S::BURST));
        assert_eq!(machine.backlog(), 0);
    }
    assert!(machine.longest_wait > S::LONG_WAIT, "the queue was long: {:?}", machine.longest_wait);
}

/// Law: an overload is noticed once the queue has been long for an interval. From then on most of the excess
/// is refused, and the machine stays busy.
///
/// # Panics
/// If the queue breaks the law.
pub fn a_sustained_overload_is_refused_within_an_interval<S: SimulatedQueue>() {
    let mut machine = SimulatedMachine::<S>::new(1.0);
    machine.overload(S::NOTICE);
    assert!(machine.refused > 0, "nothing was refused within {:?}", S::NOTICE);
    machine.overload(Duration::from_secs(2));
    let (refused, finished, period) = (machine.refused, machine.finished, Duration::from_secs(3));
    machine.overload(period);
    let capacity = machine.capacity(period);
    let (refused, finished) = (machine.refused - refused, machine.finished - finished);
    assert!(refused > 2 * capacity, "{refused} were refused at a capacity of {capacity}");
    assert!(finished > capacity / 2, "{finished} were processed at a capacity of {capacity}");
}

/// Law: soon after the load has fallen below the capacity, no request is refused.
///
/// # Panics
/// If the queue breaks the law.
pub fn a_recovery_ends_an_overload<S: SimulatedQueue>() {
    let mut machine = SimulatedMachine::<S>::new(1.0);
    machine.overload(Duration::from_secs(3));
    let end = machine.now;
    assert!(machine.last_refusal.is_some(), "there was an overload");
    machine.offer_evenly(Duration::from_secs(10), 0.5, 1);
    let last = machine.last_refusal.unwrap_or_default().saturating_sub(end);
    assert!(last < Duration::from_secs(5), "refused {last:?} after the overload");
}

/// Law: an admitted request occupies one place, until it is dropped.
///
/// # Panics
/// If the queue breaks the law.
pub fn a_dropped_permit_frees_its_place<S: SimulatedQueue>() {
    let mut machine = SimulatedMachine::<S>::new(1.0);
    for round in 0..3 {
        for place in 1..=S::BURST / 2 {
            assert!(machine.offer(), "round {round}");
            assert_eq!(machine.queue.occupied(), place);
        }
        while let Some(work) = machine.waiting.pop_back() {
            drop(work);
            assert_eq!(machine.queue.occupied(), machine.backlog());
        }
        machine.running = None;
        assert_eq!(machine.queue.occupied(), 0);
        machine.run_for(S::INTERVAL);
    }
}

/// Law: while other processes have the processor, requests wait for long without an overload. No request is
/// refused.
///
/// # Panics
/// If the queue breaks the law.
pub fn waits_for_other_processes_do_not_count<S: SimulatedQueue>() {
    for share in LEFT_SHARES {
        let mut machine = SimulatedMachine::<S>::new(share);
        machine.offer_evenly(Duration::from_secs(60), SHARED_LOAD, SHARED_GROUP);
        assert_eq!(machine.refused, 0, "with {share} of the processor");
        assert!(machine.longest_wait > S::COST.mul_f64(5.0 / share), "{:?}", machine.longest_wait);
    }
}

/// Law: an overload is refused, even if other processes have a part of the processor.
///
/// # Panics
/// If the queue breaks the law.
pub fn an_overload_beside_other_processes_is_refused<S: SimulatedQueue>() {
    let mut machine = SimulatedMachine::<S>::new(0.34);
    let period = Duration::from_secs(10);
    machine.overload(period);
    let capacity = machine.capacity(period);
    assert!(machine.refused > 3 * capacity / 2, "{} at a capacity of {capacity}", machine.refused);
}

/// Law: each refusal during an overload is counted once.
///
/// # Panics
/// If the queue breaks the law.
pub fn a_refused_request_is_counted<S: SimulatedQueue>() {
    let mut machine = SimulatedMachine::<S>::new(1.0);
    machine.overload(Duration::from_secs(3));
    if machine.queue.refusals().is_none() {
        return;
    }
    // The first refusal may begin another period of the count.
    while machine.offer() {}
    let before = machine.queue.refusals().unwrap_or_default();
    for refusal in 1..=3 {
        assert!(!machine.offer());
        assert_eq!(machine.queue.refusals(), Some(before + refusal));
    }
}

impl<S: SimulatedQueue> SimulatedMachine<S> {
    fn new(share: f64) -> Self {
        CPU_TIME.set(Duration::ZERO);
        let epoch = Instant::now();
        Self {
            queue: S::new(epoch),
            epoch,
            now: Duration::ZERO,
            share,
            waiting: VecDeque::new(),
            running: None,
            finished: 0,
            refused: 0,
            last_refusal: None,
            longest_wait: Duration::ZERO,
        }
    }

    /// Returns the number of requests that the machine can process in this time.
    fn capacity(&self, period: Duration) -> usize {
        (period.as_secs_f64() / self.request_time().as_secs_f64()) as usize
    }

    /// Returns the wall time that a request takes.
    fn request_time(&self) -> Duration {
        S::COST.div_f64(self.share)
    }

    fn backlog(&self) -> usize {
        self.waiting.len() + usize::from(self.running.is_some())
    }

    fn state(&self) -> MachineState {
        MachineState {
            now: self.now,
            instant: self.epoch + self.now,
            request_time: self.request_time(),
            finished: self.finished,
            backlog: self.backlog(),
        }
    }

    /// Offers a request now. Returns whether it is admitted.
    fn offer(&mut self) -> bool {
        let request = self.queue.request();
        let Ok(permit) = self.queue.queue().try_acquire(self.epoch + self.now, request) else {
            self.refused += 1;
            self.last_refusal = Some(self.now);
            return false;
        };
        let work = self.queue.enter(permit);
        let before = self.request_time() * count(self.backlog());
        self.longest_wait = self.longest_wait.max(before);
        self.waiting.push_back(work);
        self.start_next();
        true
    }

    fn start_next(&mut self) {
        if self.running.is_some() {
            return;
        }
        self.running = self.waiting.pop_front().map(|mut work| {
            self.queue.start(&mut work);
            RunningRequest { work, finishes: self.now + self.request_time() }
        });
    }

    /// Offers requests at a load, relative to the capacity, in groups that arrive together.
    fn offer_evenly(&mut self, period: Duration, load: f64, group: usize) {
        let end = self.now + period;
        let interval = self.request_time().mul_f64(group as f64 / load);
        while self.now < end {
            for _ in 0..group {
                self.offer();
            }
            self.run_for(interval);
        }
    }

    fn overload(&mut self, period: Duration) {
        self.offer_evenly(period, f64::from(OVERLOAD), OVERLOAD as usize);
    }

    fn run_until_idle(&mut self) {
        while self.backlog() > 0 {
            self.run_for(TICK);
        }
        self.run_for(S::INTERVAL);
    }

    fn run_for(&mut self, period: Duration) {
        let end = self.now + period;
        while self.now < end {
            let finishes = self.running.as_ref().map_or(Duration::MAX, |running| running.finishes);
            self.advance_to(finishes.min(self.now + TICK).min(end));
            if let Some(running) = self.running.take_if(|running| running.finishes <= self.now) {
                self.finished += 1;
                let state = self.state();
                self.queue.finish(running.work, &state);
                self.start_next();
            }
            let state = self.state();
            self.queue.observe(&state);
        }
    }

    /// Advances the clocks. The thread uses its share of the processor while it has a request.
    fn advance_to(&mut self, now: Duration) {
        if self.running.is_some() {
            CPU_TIME.set(CPU_TIME.get() + (now - self.now).mul_f64(self.share));
        }
        self.now = now;
    }
}

fn count(requests: usize) -> u32 {
    u32::try_from(requests).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    /// A queue that refuses nothing, or everything.
    struct FixedQueue<const ADMITS: bool>(Rc<()>);

    #[derive(Debug)]
    struct AlwaysRefused;

    impl std::fmt::Display for AlwaysRefused {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("refused")
        }
    }

    impl std::error::Error for AlwaysRefused {}

    impl<const ADMITS: bool> Admission<()> for FixedQueue<ADMITS> {
        type Permit = Rc<()>;
        type Error = AlwaysRefused;

        fn try_acquire(&self, _now: Instant, (): ()) -> Result<Rc<()>, AlwaysRefused> {
            if ADMITS { Ok(Rc::clone(&self.0)) } else { Err(AlwaysRefused) }
        }
    }

    impl<const ADMITS: bool> SimulatedQueue for FixedQueue<ADMITS> {
        type Request = ();
        type Queue = Self;
        type Work = Rc<()>;

        const COST: Duration = Duration::from_millis(1);
        const BURST: usize = 80;
        const LONG_WAIT: Duration = Duration::from_millis(50);
        const INTERVAL: Duration = Duration::from_millis(100);
        const NOTICE: Duration = Duration::from_millis(150);

        fn new(_epoch: Instant) -> Self {
            Self(Rc::default())
        }

        fn queue(&self) -> &Self {
            self
        }

        fn request(&self) {}

        fn enter(&mut self, permit: Rc<()>) -> Rc<()> {
            permit
        }

        fn finish(&mut self, work: Rc<()>, _machine: &MachineState) {
            drop(work);
        }

        fn occupied(&self) -> usize {
            Rc::strong_count(&self.0) - 1
        }

        fn refusals(&self) -> Option<u64> {
            Some(0)
        }
    }

    #[test]
    fn a_queue_that_refuses_nothing_follows_the_laws_without_an_overload() {
        a_burst_within_the_limit_passes::<FixedQueue<true>>();
        a_dropped_permit_frees_its_place::<FixedQueue<true>>();
        waits_for_other_processes_do_not_count::<FixedQueue<true>>();
    }

    #[test]
    #[should_panic(expected = "nothing was refused within 150ms")]
    fn finds_a_queue_that_refuses_nothing() {
        a_sustained_overload_is_refused_within_an_interval::<FixedQueue<true>>();
    }

    #[test]
    #[should_panic(expected = "the first request of all")]
    fn finds_a_queue_that_refuses_a_request_while_it_is_idle() {
        an_idle_queue_admits_a_request_even_after_an_overload::<FixedQueue<false>>();
    }

    #[test]
    #[should_panic(expected = "request 0 of burst 0")]
    fn finds_a_queue_that_refuses_a_burst() {
        a_burst_within_the_limit_passes::<FixedQueue<false>>();
    }
}
