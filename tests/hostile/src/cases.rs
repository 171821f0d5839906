//! The cases, one file per area.

/// Defines a case: its name, its attack on a target, and its allowed endings. A case that makes the gateway
/// hold more than a few requests also has the rows of `BOUNDS` that it fills, each with a count.
macro_rules! case {
    ($name:literal, |$target:ident| $attack:expr, [$($ending:expr),+ $(,)?] $(,)?) => {
        case!($name, |$target| $attack, [$($ending),+], &[])
    };
    ($name:literal, |$target:ident| $attack:expr, [$($ending:expr),+ $(,)?], $holds:expr $(,)?) => {
        $crate::case::AttackCase {
            name: $name,
            attack: |$target| Box::pin(async move { $attack.await }),
            endings: &[$($ending),+],
            holds: $holds,
        }
    };
}

/// Rows of `BOUNDS`, each with the number of times that a case fills it.
type HeldRows = &'static [(&'static str, u64)];

mod aggregate;
mod bodies;
mod bombs;
mod filter;
mod graphql;
mod http1;
mod http2;
mod javascript;
mod module;
mod proxy;
mod script;
mod tls;

use crate::case::AttackCase;

/// Returns all cases, ordered by area.
#[must_use]
pub fn all_cases() -> Vec<AttackCase> {
    let areas: [&[AttackCase]; 11] = [
        aggregate::CASES,
        bodies::CASES,
        filter::CASES,
        graphql::CASES,
        http1::CASES,
        http2::CASES,
        javascript::CASES,
        module::CASES,
        proxy::CASES,
        script::CASES,
        tls::CASES,
    ];
    areas.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_names_are_unique() {
        let mut names: Vec<&str> = all_cases().iter().map(|case| case.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn cases_refer_to_rows_of_the_table_of_bounds() {
        for case in all_cases() {
            for (row, _) in case.holds {
                assert!(crate::BOUNDS.iter().any(|bound| bound.name == *row), "{}: no row {row}", case.name);
            }
        }
    }
}
