//! `benches/guard.json`: the instructions of each path at the last update.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::callgrind::RequestInstructions;

/// The growth of a path that is tolerated.
pub(crate) const MAX_GROWTH: f64 = 0.05;
/// The share of a path from which a function is listed.
const MIN_SHARE: f64 = 0.01;
/// The number of functions that are named when a path has grown.
const LISTED_FUNCTIONS: usize = 3;

/// All paths by name.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct GuardBaseline(BTreeMap<String, PathInstructions>);

/// The instructions of a request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PathInstructions {
    instructions: u64,
    functions: BTreeMap<String, u64>,
}

impl GuardBaseline {
    /// Reads the committed baseline. Without one, every path counts as new.
    pub(crate) fn read() -> Result<Self> {
        let file = baseline_file();
        if !file.exists() {
            return Ok(Self::default());
        }
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        serde_json::from_str(&text).with_context(|| format!("{} is wrong", file.display()))
    }

    /// Replaces the counts of paths.
    pub(crate) fn update(&mut self, counted: &[(&str, RequestInstructions)]) -> Result<()> {
        let known =
            counted.iter().map(|(path, cost)| ((*path).to_owned(), PathInstructions::from_cost(cost)));
        self.0.extend(known);
        benches::scoreboard::write_json(&baseline_file(), self)
    }

    /// Remarks on each path that has changed significantly, with the functions that have grown.
    pub(crate) fn compare(&self, counted: &[(&str, RequestInstructions)]) -> Vec<String> {
        counted.iter().filter_map(|(path, cost)| self.describe_change(path, cost)).collect()
    }

    /// Whether a path is within its limit.
    pub(crate) fn is_within_limit(&self, path: &str, cost: &RequestInstructions) -> bool {
        self.0.get(path).is_some_and(|instructions| {
            relative_growth(cost.instructions, instructions.instructions) <= MAX_GROWTH
        })
    }

    /// # Errors
    /// Fails if a path has grown too much, or is new.
    pub(crate) fn check(&self, counted: &[(&str, RequestInstructions)]) -> Result<()> {
        let over = counted.iter().filter(|(path, cost)| !self.is_within_limit(path, cost));
        let over: Vec<&str> = over.map(|(path, _)| *path).collect();
        if over.is_empty() {
            return Ok(());
        }
        bail!(
            "more instructions than in benches/guard.json: {}. `make guard LIST=30` names the functions that take them; \
             if the increase is justified, `make guard UPDATE=1` writes the new counts, which belong in the same commit",
            over.join(", ")
        )
    }

    fn describe_change(&self, path: &str, cost: &RequestInstructions) -> Option<String> {
        let Some(known) = self.0.get(path) else {
            return Some(format!("{path} is not in benches/guard.json"));
        };
        let share = relative_growth(cost.instructions, known.instructions);
        if share.abs() <= MAX_GROWTH {
            return None;
        }
        let (was, is) = (group_thousands(known.instructions), group_thousands(cost.instructions));
        let percent = share.abs() * 100.0;
        if share < 0.0 {
            return Some(format!(
                "{path} takes {percent:.1} % less than in benches/guard.json, {is} instructions and not {was}: \
                 `make guard UPDATE=1` updates the baseline"
            ));
        }
        let grown = known
            .grown_functions(cost)
            .into_iter()
            .map(|(name, by)| format!("\n  {:>12}  {name}", format!("+{}", group_thousands(by))));
        Some(format!(
            "{path} takes {percent:.1} % more than in benches/guard.json, {is} instructions and not {was}; most of all{}",
            grown.collect::<String>()
        ))
    }
}

impl PathInstructions {
    fn from_cost(cost: &RequestInstructions) -> Self {
        let least = (cost.instructions as f64 * MIN_SHARE) as u64;
        let functions = cost.functions.iter().filter(|(_, count)| **count >= least);
        Self {
            instructions: cost.instructions,
            functions: functions.map(|(name, count)| (name.clone(), *count)).collect(),
        }
    }

    /// The functions that have grown most. A function that is not listed counts with the minimum share.
    fn grown_functions<'c>(&self, cost: &'c RequestInstructions) -> Vec<(&'c str, u64)> {
        let least = (self.instructions as f64 * MIN_SHARE) as u64;
        let by =
            |name: &str, count: u64| count.saturating_sub(self.functions.get(name).copied().unwrap_or(least));
        let grown = cost.functions.iter().map(|(name, count)| (&**name, by(name, *count)));
        let mut grown: Vec<_> = grown.filter(|(_, by)| *by > 0).collect();
        grown.sort_by_key(|(_, by)| std::cmp::Reverse(*by));
        grown.truncate(LISTED_FUNCTIONS);
        grown
    }
}

/// The relative growth; negative if the count has decreased.
fn relative_growth(is: u64, was: u64) -> f64 {
    is as f64 / was.max(1) as f64 - 1.0
}

/// Formats a number with separators.
pub(crate) fn group_thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn baseline_file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../guard.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(functions: &[(&str, u64)]) -> RequestInstructions {
        let functions: BTreeMap<String, u64> =
            functions.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        RequestInstructions { instructions: functions.values().sum(), functions }
    }

    fn baseline() -> GuardBaseline {
        GuardBaseline(BTreeMap::from([(
            "proxy".to_owned(),
            PathInstructions::from_cost(&cost(&[("read", 600), ("write", 400)])),
        )]))
    }

    #[test]
    fn growth_by_more_than_a_twentieth_fails_with_the_functions() {
        let counted = [("proxy", cost(&[("read", 600), ("write", 452), ("log", 8)]))];
        assert!(baseline().check(&counted).is_err());
        let remarks = baseline().compare(&counted).concat();
        assert!(remarks.contains("6.0 % more") && remarks.contains("+52  write"), "{remarks}");
        assert!(!remarks.contains("log") && !remarks.contains("read"), "{remarks}");
    }

    #[test]
    fn ignores_smaller_growth() {
        let counted = [("proxy", cost(&[("read", 600), ("write", 449)]))];
        assert!(baseline().check(&counted).is_ok());
        assert!(baseline().compare(&counted).is_empty());
    }

    #[test]
    fn reports_improvements_without_failing() {
        let counted = [("proxy", cost(&[("read", 600)]))];
        assert!(baseline().check(&counted).is_ok());
        assert!(baseline().compare(&counted).concat().contains("UPDATE=1"));
    }

    #[test]
    fn a_path_without_a_baseline_fails() {
        assert!(baseline().check(&[("new", cost(&[("read", 1)]))]).is_err());
    }

    #[test]
    fn groups_thousands() {
        assert_eq!([0, 999, 1000, 1_234_567].map(group_thousands), ["0", "999", "1,000", "1,234,567"]);
    }
}
