//! How many workers a script has: as many as its load keeps busy.
//!
//! A worker is one thread, so that what counts is the processor time that each uses. One more is started when those
//! that are there use most of theirs, since a request that comes then waits for another's. One leaves when those that
//! stay would have time to spare, and that has been so for a while: starting one costs what a thousand requests cost.

use std::time::Duration;

/// How often it is looked.
pub(super) const TICK: Duration = Duration::from_millis(500);
/// From this part of their time on, workers are busy.
const BUSY: f64 = 0.75;
/// What those that stay may be busy at most, for one to leave.
const SPARE: f64 = 0.5;
/// How many looks in a row.
const PATIENCE: u32 = 60;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Grow,
    Stay,
    Shrink,
}

/// The rule, and how long there was time to spare.
#[derive(Debug, Default)]
pub(super) struct Scale {
    spare: u32,
}

impl Scale {
    /// What to do with so many workers that used this much of a processor each; `least` stay, `most` there are.
    pub(super) fn decide(&mut self, used: &[f64], least: usize, most: usize) -> Step {
        let (count, all) = (used.len(), used.iter().sum::<f64>());
        if count < least {
            return Step::Grow;
        }
        let is_spare = count > least && all <= SPARE * (count - 1) as f64;
        self.spare = if is_spare { self.spare + 1 } else { 0 };
        if count < most && all >= BUSY * count as f64 {
            return Step::Grow;
        }
        if count > most || self.spare >= PATIENCE {
            self.spare = 0;
            return Step::Shrink;
        }
        Step::Stay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_added_while_all_are_busy_and_there_may_be_more() {
        let mut scale = Scale::default();
        assert_eq!(scale.decide(&[0.9], 1, 2), Step::Grow);
        assert_eq!(scale.decide(&[0.9, 0.1], 1, 4), Step::Stay);
        assert_eq!(scale.decide(&[1.0, 1.0], 1, 2), Step::Stay);
        assert_eq!(scale.decide(&[], 1, 2), Step::Grow);
    }

    #[test]
    fn one_leaves_only_when_the_others_have_had_time_to_spare_for_long() {
        let mut scale = Scale::default();
        for _ in 1..PATIENCE {
            assert_eq!(scale.decide(&[0.2, 0.2], 1, 2), Step::Stay);
        }
        assert_eq!(scale.decide(&[0.2, 0.2], 1, 2), Step::Shrink);
        assert_eq!(scale.decide(&[0.2, 0.2], 1, 2), Step::Stay, "it begins anew");
        assert_eq!(scale.decide(&[0.0], 1, 2), Step::Stay, "the least stay");
    }

    #[test]
    fn a_busy_moment_is_remembered() {
        let mut scale = Scale::default();
        for _ in 1..PATIENCE {
            scale.decide(&[0.2, 0.2], 1, 2);
        }
        scale.decide(&[0.9, 0.5], 1, 2);
        assert_eq!(scale.decide(&[0.2, 0.2], 1, 2), Step::Stay);
    }
}
