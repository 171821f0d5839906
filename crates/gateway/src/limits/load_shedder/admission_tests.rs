//! The laws of admission control, for the load shedder with a simulated probe.

use admission::laws::{MachineState, Permit, SimulatedQueue, simulated_cpu_time};
use admission::{ClockReading, admission_tests};

use super::probe::{PROBE_INTERVAL, RateSetter};
use super::*;

/// A load shedder, and a probe that passes through the machine's queue.
struct SimulatedShedder {
    shedder: LoadShedder,
    setter: RateSetter,
    next_probe: Duration,
    /// The start of the probe's wait, and the number of requests that are processed before it.
    probe: Option<(ClockReading, usize)>,
}

impl SimulatedQueue for SimulatedShedder {
    type Request = fn() -> bool;
    type Queue = LoadShedder;
    type Work = InFlightGuard;

    const COST: Duration = Duration::from_millis(1);
    const BURST: usize = 80;
    const LONG_WAIT: Duration = Duration::from_millis(50);
    const INTERVAL: Duration = INTERVAL;
    /// A probe measures the wait when it has passed, and the queue grows meanwhile.
    const NOTICE: Duration = Duration::from_millis(500);

    fn new(epoch: Instant) -> Self {
        let mut load = MeasuredLoad::new(epoch);
        load.cpu_time = simulated_cpu_time;
        load.target_delay.store(nanos(Self::LONG_WAIT), Relaxed);
        Self {
            shedder: LoadShedder { max_in_flight: usize::MAX, load: Arc::new(load) },
            setter: RateSetter::new(epoch),
            next_probe: Duration::ZERO,
            probe: None,
        }
    }

    fn queue(&self) -> &LoadShedder {
        &self.shedder
    }

    fn request(&self) -> fn() -> bool {
        || true
    }

    fn enter(&mut self, permit: Permit<Self>) -> InFlightGuard {
        permit
    }

    fn finish(&mut self, work: InFlightGuard, _machine: &MachineState) {
        drop(work);
    }

    fn observe(&mut self, machine: &MachineState) {
        let (load, now) =
            (&self.shedder.load, ClockReading { wall: machine.instant, cpu: simulated_cpu_time() });
        if self.probe.is_none() && machine.now >= self.next_probe {
            load.begin_wait(now.wall, now.cpu);
            self.probe = Some((now, machine.finished + machine.backlog));
        }
        if let Some((begun, _)) = self.probe.take_if(|(_, turn)| *turn <= machine.finished) {
            load.probe_wait_start.store(0, Relaxed);
            self.setter.end_wait(load, now.wall, &[now.since(begun)]);
            self.next_probe = machine.now + PROBE_INTERVAL;
        }
    }

    fn occupied(&self) -> usize {
        self.shedder.in_flight()
    }

    fn refusals(&self) -> Option<u64> {
        Some(self.shedder.refused())
    }
}

admission_tests!(SimulatedShedder);
