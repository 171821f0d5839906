//! Autoscaling of a script's workers by load.
//!
//! A worker is a single thread, so the relevant measure is the CPU time of each. Another worker is started
//! when the existing ones use most of their time, since a new request would otherwise wait for another one. A
//! worker is retired when the remaining ones would have spare time, and only after a while, since starting
//! one costs as much as a thousand requests.

use std::time::Duration;

/// The interval of the checks.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Workers count as busy from this fraction of their time.
const BUSY_UTILISATION: f64 = 0.75;
/// The maximum utilisation of the remaining workers when one is retired.
const SPARE_UTILISATION: f64 = 0.5;
/// The number of consecutive checks with spare time before a worker is retired.
const SPARE_CHECKS: u32 = 60;

/// A scaling decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScalingDecision {
    Grow,
    Stay,
    Shrink,
}

/// The scaling rule, with the number of consecutive checks with spare time.
#[derive(Debug, Default)]
pub(super) struct ScalingRule {
    spare_checks: u32,
}

impl ScalingRule {
    /// Decides by the CPU utilisation of each worker, given the minimum and maximum number of workers.
    pub(super) fn decide(&mut self, used: &[f64], least: usize, most: usize) -> ScalingDecision {
        let (count, all) = (used.len(), used.iter().sum::<f64>());
        if count < least {
            return ScalingDecision::Grow;
        }
        let is_spare = count > least && all <= SPARE_UTILISATION * (count - 1) as f64;
        self.spare_checks = if is_spare { self.spare_checks + 1 } else { 0 };
        if count < most && all >= BUSY_UTILISATION * count as f64 {
            return ScalingDecision::Grow;
        }
        if count > most || self.spare_checks >= SPARE_CHECKS {
            self.spare_checks = 0;
            return ScalingDecision::Shrink;
        }
        ScalingDecision::Stay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_while_all_workers_are_busy_up_to_the_maximum() {
        let mut scale = ScalingRule::default();
        assert_eq!(scale.decide(&[0.9], 1, 2), ScalingDecision::Grow);
        assert_eq!(scale.decide(&[0.9, 0.1], 1, 4), ScalingDecision::Stay);
        assert_eq!(scale.decide(&[1.0, 1.0], 1, 2), ScalingDecision::Stay);
        assert_eq!(scale.decide(&[], 1, 2), ScalingDecision::Grow);
    }

    #[test]
    fn shrinks_only_after_a_long_time_with_spare_capacity() {
        let mut scale = ScalingRule::default();
        for _ in 1..SPARE_CHECKS {
            assert_eq!(scale.decide(&[0.2, 0.2], 1, 2), ScalingDecision::Stay);
        }
        assert_eq!(scale.decide(&[0.2, 0.2], 1, 2), ScalingDecision::Shrink);
        assert_eq!(scale.decide(&[0.2, 0.2], 1, 2), ScalingDecision::Stay, "the count starts again");
        assert_eq!(scale.decide(&[0.0], 1, 2), ScalingDecision::Stay, "the minimum remains");
    }

    #[test]
    fn a_busy_moment_resets_the_count() {
        let mut scale = ScalingRule::default();
        for _ in 1..SPARE_CHECKS {
            scale.decide(&[0.2, 0.2], 1, 2);
        }
        scale.decide(&[0.9, 0.5], 1, 2);
        assert_eq!(scale.decide(&[0.2, 0.2], 1, 2), ScalingDecision::Stay);
    }
}
