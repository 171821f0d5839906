//! `benches/results/`: the rows of each bench, and the scoreboard of the headline figures.
//!
//! The scoreboard is one committed file that every bench writes its own names into, so that a change of
//! the code shows what it did to the figures.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Headline figures by name, such as `query.fresh.cpu_us_over_floor`.
pub type Scoreboard = BTreeMap<String, Score>;

/// A headline figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Score {
    /// The figure.
    pub value: f64,
    /// Its unit: `ms`, `us`, `MB`, `ratio`.
    pub unit: String,
    /// Which way is better.
    pub better: Better,
    /// What it should at least reach.
    pub target: Option<f64>,
    /// What it is measured against, in words.
    pub against: String,
    /// From the smallest to the largest of the measured values, in the same unit.
    pub spread: f64,
}

impl Score {
    /// Whether it reaches its target, where it has one.
    #[must_use]
    pub fn is_met(&self) -> Option<bool> {
        self.target.map(|target| match self.better {
            Better::Lower => self.value <= target,
            Better::Higher => self.value >= target,
        })
    }

    /// To a thousandth of its unit: more digits would only make noise in the diffs.
    fn rounded(self) -> Self {
        let round = |value: f64| (value * 1000.0).round() / 1000.0;
        Self { value: round(self.value), spread: round(self.spread), ..self }
    }
}

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Less of it.
    Lower,
    /// More of it.
    Higher,
}

/// The folder of the results.
#[must_use]
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("results")
}

/// Writes figures into the scoreboard; those of other names stay.
///
/// # Errors
/// If the file can't be read or written, or is no scoreboard.
pub fn record(scores: impl IntoIterator<Item = (String, Score)>) -> Result<()> {
    record_in(&folder().join("scoreboard.json"), scores)
}

/// Writes the rows of a bench to `NAME.json`.
///
/// # Errors
/// If the file can't be written.
pub fn rows<T: Serialize>(name: &str, rows: &[T]) -> Result<()> {
    write(&folder().join(name).with_extension("json"), &rows)
}

/// The rows that the last run of a bench wrote; none where there was none.
///
/// # Errors
/// If they can't be read, or are no such rows.
pub fn earlier_rows<T: DeserializeOwned>(name: &str) -> Result<Vec<T>> {
    read_or_default(&folder().join(name).with_extension("json"))
}

/// Writes JSON as a file that reads well in a diff.
///
/// # Errors
/// If the file can't be written.
pub fn write<T: Serialize>(path: &Path, value: &T) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("{} can't be made", folder.display()))?;
    }
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    std::fs::write(path, text).with_context(|| format!("{} can't be written", path.display()))
}

/// The scoreboard that a file has; an empty one where there is none.
///
/// # Errors
/// If it can't be read, or is no scoreboard.
pub fn read(path: &Path) -> Result<Scoreboard> {
    read_or_default(path)
}

fn read_or_default<T: DeserializeOwned + Default>(path: &Path) -> Result<T> {
    match std::fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).with_context(|| format!("{} is wrong", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(T::default()),
        Err(error) => Err(error).with_context(|| format!("{} can't be read", path.display())),
    }
}

fn record_in(path: &Path, scores: impl IntoIterator<Item = (String, Score)>) -> Result<()> {
    let mut board = read(path)?;
    board.extend(scores.into_iter().map(|(name, score)| (name, score.rounded())));
    write(path, &board)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(value: f64) -> Score {
        let (unit, against) = ("ms".to_owned(), "nothing".to_owned());
        Score { value, unit, better: Better::Lower, target: Some(10.0), against, spread: 0.5 }
    }

    #[test]
    fn figures_of_others_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("results").join("scoreboard.json");
        record_in(&path, [("a".into(), score(1.0)), ("b".into(), score(2.0))]).expect("to write");
        record_in(&path, [("b".into(), score(3.0))]).expect("to write again");
        let board: Scoreboard =
            serde_json::from_slice(&std::fs::read(&path).expect("a file")).expect("a scoreboard");
        assert_eq!(board, Scoreboard::from([("a".into(), score(1.0)), ("b".into(), score(3.0))]));
    }

    #[test]
    fn a_damaged_scoreboard_is_not_overwritten() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("scoreboard.json");
        std::fs::write(&path, "{").expect("to write");
        assert!(record_in(&path, [("a".into(), score(1.0))]).is_err());
        assert_eq!(std::fs::read(&path).expect("a file"), b"{");
    }
}
