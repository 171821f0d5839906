//! The control law of load shedding, without a clock: measured delays are the input, the rate is the output.

use std::time::Duration;

use admission::StandingQueue;

use super::INTERVAL;

/// The fraction of the target delay that is acceptable once shedding has begun. A queue only helps with
/// bursts, and this load is sustained.
const HOLD_FRACTION: f64 = 0.02;
/// The multiple of the acceptable delay above which no request is admitted: queued requests have waited too
/// long already, and a queue of refusals drains quickly. If the delay stays long for [`INTERVAL`], since
/// clients retry at once, this does not help and admission resumes.
const CLOSE_MULTIPLE: f64 = 4.0;
/// The interval between updates of the rate while requests are shed.
const STEP_INTERVAL: Duration = Duration::from_millis(10);
/// The first rate, as a fraction of the throughput before.
const INITIAL_FRACTION: f64 = 0.8;
/// The upward step, as a fraction of the best throughput, and the number of steps without an excess after
/// which the step is twice as long, three times as long and so on: a rate that was good for long is probably
/// far below capacity.
const STEP_UP: f64 = 0.01;
const STEPS_TO_DOUBLE: f64 = 10.0;
/// The strength of the decrease on an excess, and the smallest fraction that remains after one step.
const STEP_DOWN: f64 = 0.1;
const MIN_STEP_FRACTION: f64 = 0.5;
/// The decay per step of the remembered best throughput: the one that scales upward steps, which decays on
/// downward steps only, and the slower one that bounds the rate from below.
const BEST_DECAY: f64 = 0.05;
const LONG_TERM_DECAY: f64 = 0.0001;
/// The minimum rate as a fraction of the best throughput, whatever the delay: refusals alone can keep the
/// delay long.
const MIN_FRACTION: f64 = 0.2;
/// The minimum rate in requests a second: without admitted requests nothing can be measured.
const MIN_RATE: f64 = 5.0;
/// The time without a refusal by the rate after which shedding ends.
const QUIET_PERIOD: Duration = Duration::from_secs(1);

/// A measurement of the probe.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbeMeasurement {
    /// The wait for a thread.
    pub(super) delay: Duration,
    /// The time since the previous measurement.
    pub(super) elapsed: Duration,
    /// The number of requests that were admitted since then, and of those that the rate refused.
    pub(super) admitted: u64,
    pub(super) refused: u64,
}

/// The controller's state.
#[derive(Debug)]
pub(super) struct AdmissionController {
    /// The sum of the times between the measurements.
    now: Duration,
    /// Whether the delay was short in the last interval, while nothing is shed.
    standing: StandingQueue,
    /// The shortest delay in the current window, the length of the window so far, and the requests admitted
    /// in it.
    min_delay: Duration,
    window: Duration,
    admitted: u64,
    quiet_time: Duration,
    /// The time in which no request was admitted, since the last acceptable delay.
    closed_time: Duration,
    /// The rate, while requests are shed.
    rate: Option<AdmissionRate>,
}

/// The rate, in requests a second.
#[derive(Clone, Copy, Debug)]
struct AdmissionRate {
    current: f64,
    /// The throughput when the delay was acceptable, recently and over a longer time.
    best_throughput: f64,
    long_term_best: f64,
    /// The number of upward steps since the last downward one.
    steps_up: u32,
}

impl Default for AdmissionController {
    fn default() -> Self {
        let (shortest, zero) = (Duration::MAX, Duration::ZERO);
        let queue = StandingQueue::new(INTERVAL);
        queue.restart(zero);
        Self {
            now: zero,
            standing: queue,
            min_delay: shortest,
            window: zero,
            admitted: 0,
            quiet_time: zero,
            closed_time: zero,
            rate: None,
        }
    }
}

impl AdmissionController {
    /// Processes a measurement. Returns the requests a second to admit, or `None` to admit all.
    pub(super) fn update(&mut self, measurement: ProbeMeasurement, target: Duration) -> Option<f64> {
        self.now += measurement.elapsed;
        self.min_delay = self.min_delay.min(measurement.delay);
        self.window += measurement.elapsed;
        self.admitted += measurement.admitted;
        self.quiet_time =
            if measurement.refused > 0 { Duration::ZERO } else { self.quiet_time + measurement.elapsed };
        match &mut self.rate {
            None if self.min_delay <= target => self.begin_window(),
            None if !self.standing.observe_long(self.now) => {}
            // No request could have caused the delay, as while thousands of connections open.
            None if self.admitted == 0 => self.begin_window(),
            None => {
                let best = (self.admitted as f64 / self.window.as_secs_f64()).max(MIN_RATE);
                self.rate = Some(AdmissionRate {
                    current: best * INITIAL_FRACTION,
                    best_throughput: best,
                    long_term_best: best,
                    steps_up: 0,
                });
                self.quiet_time = Duration::ZERO;
                self.begin_window();
            }
            Some(_) if self.quiet_time >= QUIET_PERIOD => {
                self.rate = None;
                self.begin_window();
            }
            Some(rate) if self.window >= STEP_INTERVAL => {
                rate.step(relative_excess(self.min_delay, target));
                self.begin_window();
            }
            _ => {}
        }
        let excess = relative_excess(measurement.delay, target);
        if self.rate.is_none() || excess <= 0.0 {
            self.closed_time = Duration::ZERO;
        }
        let is_closed = closes_admission(measurement.delay, target) && self.closed_time < INTERVAL;
        if is_closed && self.rate.is_some() {
            self.closed_time += measurement.elapsed;
        }
        self.rate.map(|rate| if is_closed { 0.0 } else { rate.current })
    }

    fn begin_window(&mut self) {
        self.standing.restart(self.now);
        self.min_delay = Duration::MAX;
        self.window = Duration::ZERO;
        self.admitted = 0;
    }
}

impl AdmissionRate {
    fn step(&mut self, excess: f64) {
        if excess > 0.0 {
            let least = (self.long_term_best * MIN_FRACTION).max(MIN_RATE);
            self.current = (self.current * (1.0 - STEP_DOWN * excess).max(MIN_STEP_FRACTION)).max(least);
            self.best_throughput -= (self.best_throughput - self.current) * BEST_DECAY;
            self.steps_up = 0;
        } else {
            self.current +=
                self.best_throughput * STEP_UP * (1.0 + f64::from(self.steps_up) / STEPS_TO_DOUBLE);
            self.steps_up = self.steps_up.saturating_add(1);
            self.best_throughput = self.best_throughput.max(self.current);
        }
        self.long_term_best = (self.long_term_best * (1.0 - LONG_TERM_DECAY)).max(self.best_throughput);
    }
}

/// Whether a delay is so long that no request is admitted.
pub(super) fn closes_admission(delay: Duration, target: Duration) -> bool {
    relative_excess(delay, target) > CLOSE_MULTIPLE - 1.0
}

/// The longest acceptable delay while requests are shed.
pub(super) fn acceptable_delay(target: Duration) -> Duration {
    target.mul_f64(HOLD_FRACTION)
}

/// The relative excess of a delay over the acceptable one while requests are shed: 0 for none, 1 for twice as
/// long.
fn relative_excess(delay: Duration, target: Duration) -> f64 {
    delay.as_secs_f64() / acceptable_delay(target).as_secs_f64() - 1.0
}
