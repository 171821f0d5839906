//! The laws of admission control, for the run queue of one simulated thread.

use std::pin::pin;

use admission::admission_tests;
use admission::laws::{MachineState, SimulatedQueue, simulated_cpu_time};
use futures_util::FutureExt;

use super::*;

struct SimulatedRunQueue(RunQueue);

/// A guest that waits or runs.
struct SimulatedGuest {
    ticket: Option<RunTicket>,
    permit: Option<RunPermit>,
}

impl SimulatedQueue for SimulatedRunQueue {
    type Request = QuotaKey;
    type Queue = RunQueue;
    type Work = SimulatedGuest;

    const COST: Duration = Duration::from_millis(1);
    const BURST: usize = 90;
    const LONG_WAIT: Duration = Duration::from_millis(50);
    const INTERVAL: Duration = CODEL_INTERVAL;
    const NOTICE: Duration = Duration::from_millis(150);

    fn new(epoch: Instant) -> Self {
        let mut queue = RunQueue::new(1);
        let shared = Arc::get_mut(&mut queue.0).expect("no other owner");
        (shared.created, shared.cpu_time) = (epoch, simulated_cpu_time);
        queue.set_target(Some(Self::LONG_WAIT));
        Self(queue)
    }

    fn queue(&self) -> &RunQueue {
        &self.0
    }

    fn request(&self) -> QuotaKey {
        QuotaKey::new(&"client")
    }

    fn enter(&mut self, ticket: RunTicket) -> SimulatedGuest {
        SimulatedGuest { ticket: Some(ticket), permit: None }
    }

    fn start(&mut self, guest: &mut SimulatedGuest) {
        let mut wait = pin!(guest.ticket.take().expect("a guest starts once").wait());
        // The guest may yield once.
        let permit = (&mut wait).now_or_never().or_else(|| wait.now_or_never());
        guest.permit = Some(permit.expect("the permit is free").expect("the queue exists"));
    }

    fn finish(&mut self, guest: SimulatedGuest, machine: &MachineState) {
        drop(guest);
        // The permit was measured by the real clock.
        let shared = &*self.0.0;
        shared.average_hold.store(nanos(machine.request_time), Relaxed);
        shared.average_run.store(0, Relaxed);
        shared.last_release.store(nanos(machine.now), Relaxed);
    }

    fn occupied(&self) -> usize {
        self.0.0.waiting.load(Relaxed) + 1 - self.0.0.permits.available_permits()
    }

    /// A rejected guest counts as an arrival.
    fn refusals(&self) -> Option<u64> {
        self.0.0.lock_controller().overload.as_ref().map(|overload| overload.arrivals.into())
    }
}

admission_tests!(SimulatedRunQueue);
