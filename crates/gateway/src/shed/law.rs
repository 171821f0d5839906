//! The law of shedding, without a clock of its own: measured delays go in, a rate comes out.

use std::time::Duration;

use super::INTERVAL;

/// What part of the delay at which shedding begins is good from then on: a queue is of use only where
/// load comes in bursts, and this load does not.
const HOLD: f64 = 0.02;
/// So many times more, and nothing is taken: who waits has waited too long already, and a queue of
/// refusals is soon gone. If it isn't within [`INTERVAL`], since clients ask again at once, it does not
/// help and is given up.
const CLOSE: f64 = 4.0;
/// How often the rate is set while something is shed, and how many probes that takes.
const STEP: Duration = Duration::from_millis(10);
/// How much of what was served before is taken at first.
const BEGIN: f64 = 0.8;
/// The step upwards, as a part of what was served when all went well; and after how many of them without an excess it is
/// twice as long, thrice as long, and so on: a rate that has long been good is far from what can be done.
const UP: f64 = 0.01;
const LONGER: f64 = 10.0;
/// How strongly the rate follows an excess downwards, and the least that is left of it.
const DOWN: f64 = 0.1;
const LEAST_LEFT: f64 = 0.5;
/// How fast the memory of better times fades with each step: that which steps upwards are measured by,
/// downwards only, and the slower one that the least rate is a part of.
const FADE: f64 = 0.05;
const FADE_SLOWLY: f64 = 0.0001;
/// The least rate, whatever the delay: refusals alone may make a queue that is never short.
const LEAST: f64 = 0.2;
/// The same in requests a second: without any there is nothing to learn from.
const SLOWEST: f64 = 5.0;
/// Without a refusal for so long, shedding ends.
const QUIET: Duration = Duration::from_secs(1);

/// What the probe found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// How long it waited for a thread.
    pub(super) delay: Duration,
    /// How long ago the one before was.
    pub(super) since: Duration,
    /// Requests that were taken and refused since.
    pub(super) taken: u64,
    pub(super) refused: u64,
}

/// What is known so far.
#[derive(Debug)]
pub(super) struct Law {
    /// The shortest delay in the window, how long the window is by now, and what was taken in it.
    shortest: Duration,
    window: Duration,
    taken: u64,
    quiet: Duration,
    /// For how long nothing was taken, without a good delay since.
    closed: Duration,
    /// While something is shed.
    rate: Option<Rate>,
}

/// Requests a second.
#[derive(Clone, Copy, Debug)]
struct Rate {
    now: f64,
    /// What was served when all went well, of late and before.
    best: f64,
    before: f64,
    /// Steps upwards since the last one downwards.
    ups: u32,
}

impl Default for Law {
    fn default() -> Self {
        let (shortest, zero) = (Duration::MAX, Duration::ZERO);
        Self { shortest, window: zero, taken: 0, quiet: zero, closed: zero, rate: None }
    }
}

impl Law {
    /// How many requests a second are taken from now on, if delays up to the target are good; `None`
    /// while all are.
    pub(super) fn learn(&mut self, seen: Seen, target: Duration) -> Option<f64> {
        self.shortest = self.shortest.min(seen.delay);
        self.window += seen.since;
        self.taken += seen.taken;
        self.quiet = if seen.refused > 0 { Duration::ZERO } else { self.quiet + seen.since };
        match &mut self.rate {
            // It was short: the interval begins anew.
            None if self.shortest <= target => self.begin_window(),
            None if self.window >= INTERVAL => {
                let best = (self.taken as f64 / self.window.as_secs_f64()).max(SLOWEST);
                self.rate = Some(Rate { now: best * BEGIN, best, before: best, ups: 0 });
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

impl Rate {
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

/// Whether nothing is taken after such a delay, or during one.
pub(super) fn closes(delay: Duration, target: Duration) -> bool {
    excess(delay, target) > CLOSE - 1.0
}

/// The longest delay that is good while something is shed.
pub(super) fn good(target: Duration) -> Duration {
    target.mul_f64(HOLD)
}

/// How far a delay is above what is good while something is shed: 0 for not at all, 1 for twice.
fn excess(delay: Duration, target: Duration) -> f64 {
    delay.as_secs_f64() / good(target).as_secs_f64() - 1.0
}
