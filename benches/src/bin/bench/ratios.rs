//! Headlines of servers that take turns: ratios of figures of the same round.

use benches::scoreboard::{Better, Score};
use benches::stats::{median, spread};

/// A headline with its name.
pub(crate) type Headline = (String, Score);

/// The direction of improvement, and the target.
pub(crate) struct Wanted {
    pub(crate) better: Better,
    pub(crate) target: f64,
}

/// The headline for the ratio of two servers, by round; `None` if one of them was not measured.
pub(crate) fn ratio(
    name: &str,
    over: &[f64],
    under: &[f64],
    wanted: Wanted,
    against: String,
) -> Option<Headline> {
    let values: Vec<f64> = over.iter().zip(under).map(|(over, under)| over / under).collect();
    let Wanted { better, target } = wanted;
    let (value, spread) = (median(&values), spread(&values));
    let score = Score { value, unit: "ratio".into(), better, target: Some(target), against, spread };
    (!values.is_empty()).then(|| (name.to_owned(), score))
}

pub(crate) fn at_least(target: f64) -> Wanted {
    Wanted { better: Better::Higher, target }
}

pub(crate) fn at_most(target: f64) -> Wanted {
    Wanted { better: Better::Lower, target }
}
