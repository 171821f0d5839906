//! The control law of load shedding, without a clock: measured delays are the input, the rate is the output.

use std::time::Duration;

use super::INTERVAL;

/// The fraction of the target delay that is acceptable once shedding has begun. A queue only helps with
/// bursts, and this load is sustained.
const HOLD: f64 = 0.02;
/// The multiple of the acceptable delay above which no request is admitted: queued requests have waited too
/// long already, and a queue of refusals drains quickly. If the delay stays long for [`INTERVAL`], since
/// clients retry at once, this does not help and admission resumes.
const CLOSE: f64 = 4.0;
/// The interval between updates of the rate while requests are shed.
const STEP: Duration = Duration::from_millis(10);
/// The first rate, as a fraction of the throughput before.
const BEGIN: f64 = 0.8;
/// The upward step, as a fraction of the best throughput, and the number of steps without an excess after
/// which the step is twice as long, three times as long and so on: a rate that was good for long is probably
/// far below capacity.
const UP: f64 = 0.01;
const LONGER: f64 = 10.0;
/// The strength of the decrease on an excess, and the smallest fraction that remains after one step.
const DOWN: f64 = 0.1;
const LEAST_LEFT: f64 = 0.5;
/// The decay per step of the remembered best throughput: the one that scales upward steps, which decays on
/// downward steps only, and the slower one that bounds the rate from below.
const FADE: f64 = 0.05;
const FADE_SLOWLY: f64 = 0.0001;
/// The minimum rate as a fraction of the best throughput, whatever the delay: refusals alone can keep the
/// delay long.
const LEAST: f64 = 0.2;
/// The minimum rate in requests a second: without admitted requests nothing can be measured.
const SLOWEST: f64 = 5.0;
/// The time without a refusal by the rate after which shedding ends.
const QUIET: Duration = Duration::from_secs(1);

/// A measurement of the probe.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbeMeasurement {
    /// The wait for a thread.
    pub(super) delay: Duration,
    /// The time since the previous measurement.
    pub(super) since: Duration,
    /// The number of requests that were admitted since then, and of those that the rate refused.
    pub(super) taken: u64,
    pub(super) refused: u64,
}

/// The controller's state.
#[derive(Debug)]
pub(super) struct AdmissionController {
    /// The shortest delay in the current window, the length of the window so far, and the requests admitted
    /// in it.
    shortest: Duration,
    window: Duration,
    taken: u64,
    quiet: Duration,
    /// The time in which no request was admitted, since the last acceptable delay.
    closed: Duration,
    /// The rate, while requests are shed.
    rate: Option<AdmissionRate>,
}

/// The rate, in requests a second.
#[derive(Clone, Copy, Debug)]
struct AdmissionRate {
    now: f64,
    /// The throughput when the delay was acceptable, recently and over a longer time.
    best: f64,
    before: f64,
    /// The number of upward steps since the last downward one.
    ups: u32,
}

impl Default for AdmissionController {
    fn default() -> Self {
        let (shortest, zero) = (Duration::MAX, Duration::ZERO);
        Self { shortest, window: zero, taken: 0, quiet: zero, closed: zero, rate: None }
    }
}

impl AdmissionController {
    /// Processes a measurement. Returns the requests a second to admit, or `None` to admit all.
    pub(super) fn learn(&mut self, seen: ProbeMeasurement, target: Duration) -> Option<f64> {
        self.shortest = self.shortest.min(seen.delay);
        self.window += seen.since;
        self.taken += seen.taken;
        self.quiet = if seen.refused > 0 { Duration::ZERO } else { self.quiet + seen.since };
        match &mut self.rate {
            // The interval starts again if the delay was short at least once, or if there was no request that
            // could have caused it, as while thousands of connections open.
            None if self.shortest <= target || (self.window >= INTERVAL && self.taken == 0) => {
                self.begin_window();
            }
            None if self.window >= INTERVAL => {
                let best = (self.taken as f64 / self.window.as_secs_f64()).max(SLOWEST);
                self.rate = Some(AdmissionRate { now: best * BEGIN, best, before: best, ups: 0 });
                self.quiet = Duration::ZERO;
                self.begin_window();
            }
            Some(_) if self.quiet >= QUIET => {
                self.rate = None;
                self.begin_window();
            }
            Some(rate) if self.window >= STEP => {
                rate.step(excess(self.shortest, target));
                self.begin_window();
            }
            _ => {}
        }
        let excess = excess(seen.delay, target);
        if self.rate.is_none() || excess <= 0.0 {
            self.closed = Duration::ZERO;
        }
        let is_closed = closes(seen.delay, target) && self.closed < INTERVAL;
        if is_closed && self.rate.is_some() {
            self.closed += seen.since;
        }
        self.rate.map(|rate| if is_closed { 0.0 } else { rate.now })
    }

    fn begin_window(&mut self) {
        self.shortest = Duration::MAX;
        self.window = Duration::ZERO;
        self.taken = 0;
    }
}

impl AdmissionRate {
    fn step(&mut self, excess: f64) {
        if excess > 0.0 {
            let least = (self.before * LEAST).max(SLOWEST);
            self.now = (self.now * (1.0 - DOWN * excess).max(LEAST_LEFT)).max(least);
            self.best -= (self.best - self.now) * FADE;
            self.ups = 0;
        } else {
            self.now += self.best * UP * (1.0 + f64::from(self.ups) / LONGER);
            self.ups = self.ups.saturating_add(1);
            self.best = self.best.max(self.now);
        }
        self.before = (self.before * (1.0 - FADE_SLOWLY)).max(self.best);
    }
}

/// Whether a delay is so long that no request is admitted.
pub(super) fn closes(delay: Duration, target: Duration) -> bool {
    excess(delay, target) > CLOSE - 1.0
}

/// The longest acceptable delay while requests are shed.
pub(super) fn good(target: Duration) -> Duration {
    target.mul_f64(HOLD)
}

/// The relative excess of a delay over the acceptable one while requests are shed: 0 for none, 1 for twice as
/// long.
fn excess(delay: Duration, target: Duration) -> f64 {
    delay.as_secs_f64() / good(target).as_secs_f64() - 1.0
}
