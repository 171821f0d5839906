//! `benches/results/`: the rows of each bench, and the scoreboard of headline figures.
//!
//! The scoreboard is one committed file into which every bench writes its own names, so that the effect of a
//! code change on the figures is visible in the diff.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Headline figures by name, such as `query.fresh.cpu_us_over_floor`.
pub type Scoreboard = BTreeMap<String, HeadlineScore>;

/// A headline figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeadlineScore {
    /// The figure.
    pub value: f64,
    /// Its unit: `ms`, `us`, `MB`, `ratio`.
    pub unit: String,
    /// The direction of improvement.
    pub better: BetterDirection,
    /// The target to be met, if there is one.
    pub target: Option<f64>,
    /// The basis of the comparison, in words.
    pub against: String,
    /// The range of the measured values, from the smallest to the largest, in the same unit.
    pub spread: f64,
}

impl HeadlineScore {
    /// Whether the target is met, if there is one.
    #[must_use]
    pub fn is_met(&self) -> Option<bool> {
        self.target.map(|target| match self.better {
            BetterDirection::Lower => self.value <= target,
            BetterDirection::Higher => self.value >= target,
        })
    }

    /// Rounds to a thousandth of the unit: more digits would only add noise to diffs.
    fn round_to_thousandth(self) -> Self {
        let round = |value: f64| (value * 1000.0).round() / 1000.0;
        Self { value: round(self.value), spread: round(self.spread), ..self }
    }
}

/// The direction of improvement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BetterDirection {
    /// Lower values are better.
    Lower,
    /// Higher values are better.
    Higher,
}

/// The folder of the results.
#[must_use]
pub fn results_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("results")
}

/// Writes figures into the scoreboard and keeps those of other names.
///
/// # Errors
/// Fails if the file can't be read or written, or is not a scoreboard.
pub fn record(scores: impl IntoIterator<Item = (String, HeadlineScore)>) -> Result<()> {
    record_in(&results_folder().join("scoreboard.json"), scores)
}

/// Writes the rows of a bench to `NAME.json`.
///
/// # Errors
/// Fails if the file can't be written.
pub fn write_rows<T: Serialize>(name: &str, rows: &[T]) -> Result<()> {
    write_json(&results_folder().join(name).with_extension("json"), &rows)
}

/// The rows of the last run of a bench; empty if there was none.
///
/// # Errors
/// Fails if they can't be read, or have another format.
pub fn earlier_rows<T: DeserializeOwned>(name: &str) -> Result<Vec<T>> {
    read_or_default(&results_folder().join(name).with_extension("json"))
}

/// Writes JSON in a format that is readable in diffs.
///
/// # Errors
/// Fails if the file can't be written.
pub fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("{} can't be made", folder.display()))?;
    }
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    std::fs::write(path, text).with_context(|| format!("{} can't be written", path.display()))
}

/// Reads a scoreboard; empty if the file does not exist.
///
/// # Errors
/// Fails if the file can't be read, or is not a scoreboard.
pub fn read_scoreboard(path: &Path) -> Result<Scoreboard> {
    read_or_default(path)
}

fn read_or_default<T: DeserializeOwned + Default>(path: &Path) -> Result<T> {
    match std::fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).with_context(|| format!("{} is wrong", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(T::default()),
        Err(error) => Err(error).with_context(|| format!("{} can't be read", path.display())),
    }
}

fn record_in(path: &Path, scores: impl IntoIterator<Item = (String, HeadlineScore)>) -> Result<()> {
    let mut board = read_scoreboard(path)?;
    board.extend(scores.into_iter().map(|(name, score)| (name, score.round_to_thousandth())));
    write_json(path, &board)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(value: f64) -> HeadlineScore {
        let (unit, against) = ("ms".to_owned(), "nothing".to_owned());
        HeadlineScore {
            value,
            unit,
            better: BetterDirection::Lower,
            target: Some(10.0),
            against,
            spread: 0.5,
        }
    }

    #[test]
    fn keeps_figures_of_other_benches() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("results").join("scoreboard.json");
        record_in(&path, [("a".into(), score(1.0)), ("b".into(), score(2.0))]).expect("to write");
        record_in(&path, [("b".into(), score(3.0))]).expect("to write again");
        let board: Scoreboard =
            serde_json::from_slice(&std::fs::read(&path).expect("a file")).expect("a scoreboard");
        assert_eq!(board, Scoreboard::from([("a".into(), score(1.0)), ("b".into(), score(3.0))]));
    }

    #[test]
    fn does_not_overwrite_a_damaged_scoreboard() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("scoreboard.json");
        std::fs::write(&path, "{").expect("to write");
        assert!(record_in(&path, [("a".into(), score(1.0))]).is_err());
        assert_eq!(std::fs::read(&path).expect("a file"), b"{");
    }
}
