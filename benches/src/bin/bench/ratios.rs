//! Headlines of servers that take turns: ratios of figures of the same round.

use benches::scoreboard::{BetterDirection, HeadlineScore};
use benches::stats::{median, spread};

/// A headline with its name.
pub(crate) type NamedScore = (String, HeadlineScore);

/// The direction of improvement, and the target.
pub(crate) struct HeadlineTarget {
    pub(crate) better: BetterDirection,
    pub(crate) target: f64,
}

/// The headline for the ratio of two servers, by round; `None` if one of them was not measured.
pub(crate) fn ratio(
    name: &str,
    over: &[f64],
    under: &[f64],
    headline_target: HeadlineTarget,
    against: String,
) -> Option<NamedScore> {
    let values: Vec<f64> = over.iter().zip(under).map(|(over, under)| over / under).collect();
    let HeadlineTarget { better, target } = headline_target;
    let (value, spread) = (median(&values), spread(&values));
    let score = HeadlineScore { value, unit: "ratio".into(), better, target: Some(target), against, spread };
    (!values.is_empty()).then(|| (name.to_owned(), score))
}

pub(crate) fn at_least(target: f64) -> HeadlineTarget {
    HeadlineTarget { better: BetterDirection::Higher, target }
}

pub(crate) fn at_most(target: f64) -> HeadlineTarget {
    HeadlineTarget { better: BetterDirection::Lower, target }
}
