//! Headlines of servers that took turns: figures of the same round, one by the other.

use benches::scoreboard::{Better, Score};
use benches::stats::{median, spread};

/// A headline of this name.
pub(crate) type Headline = (String, Score);

/// What more of the rounds has is better, or less.
pub(crate) struct Wanted {
    pub(crate) better: Better,
    pub(crate) target: f64,
}

/// One by the other, round by round; none where one of them was not there.
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
