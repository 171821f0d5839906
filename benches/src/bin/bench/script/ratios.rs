//! Headlines of servers that took turns: figures of the same round, one by the other.

use benches::scoreboard::{Better, Score};
use benches::stats::{median, spread};

/// A headline of this name.
pub(super) type Headline = (String, Score);

/// What more of the rounds has is better, or less.
pub(super) struct Wanted {
    pub(super) better: Better,
    pub(super) target: f64,
}

/// One by the other, round by round; none where one of them was not there.
pub(super) fn ratio(
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

pub(super) fn at_least(target: f64) -> Wanted {
    Wanted { better: Better::Higher, target }
}

pub(super) fn at_most(target: f64) -> Wanted {
    Wanted { better: Better::Lower, target }
}
