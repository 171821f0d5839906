//! The rows of the benches, with the queries that the page needs: selection by bench and field, and medians.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::stats::{median, spread};

/// All rows, by bench.
#[derive(Default)]
pub(super) struct BenchResults(BTreeMap<String, Vec<Value>>);

/// A selection of rows of a bench.
#[derive(Clone, Default)]
pub(super) struct RowSelection<'a>(Vec<&'a Value>);

/// The aggregate of several rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RoundAggregate {
    pub(super) median: f64,
    /// `None` for a single measurement.
    pub(super) spread: Option<f64>,
}

impl BenchResults {
    /// Reads the results in a folder.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let mut benches = BTreeMap::new();
        for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if path.extension().is_none_or(|extension| extension != "json") || name == "scoreboard" {
                continue;
            }
            let text = std::fs::read(&path)?;
            benches.insert(name, serde_json::from_slice(&text).with_context(|| path.display().to_string())?);
        }
        Ok(Self(benches))
    }

    /// The rows of a bench; empty if it never ran.
    pub(super) fn rows_of(&self, bench: &str) -> RowSelection<'_> {
        RowSelection(self.0.get(bench).map(|rows| rows.iter().collect()).unwrap_or_default())
    }
}

impl<'a> RowSelection<'a> {
    /// The rows with this value in a field.
    pub(super) fn with_value(&self, field: &str, value: impl Into<Value>) -> Self {
        let value = value.into();
        Self(self.0.iter().copied().filter(|row| row[field] == value).collect())
    }

    /// The rows that have a field.
    pub(super) fn with_field(&self, field: &str) -> Self {
        Self(self.0.iter().copied().filter(|row| row.get(field).is_some()).collect())
    }

    /// The distinct values of a field, in the order of the rows.
    pub(super) fn distinct(&self, field: &str) -> Vec<&'a Value> {
        let mut values = Vec::new();
        for value in self.0.iter().copied().filter_map(|row| row.get(field)) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        values
    }

    /// Like `distinct`, for texts.
    pub(super) fn distinct_texts(&self, field: &str) -> Vec<&'a str> {
        self.distinct(field).into_iter().filter_map(Value::as_str).collect()
    }

    /// The numbers at a path such as `cpu_us` or `ms/093`, one per row.
    pub(super) fn numbers(&self, place: &str) -> Vec<f64> {
        let place = format!("/{place}");
        self.0.iter().filter_map(|row| row.pointer(&place)?.as_f64()).collect()
    }

    /// The median of the numbers, with their spread.
    pub(super) fn figure(&self, place: &str) -> Option<RoundAggregate> {
        let numbers = self.numbers(place);
        let spread = (numbers.len() > 1).then(|| spread(&numbers));
        (!numbers.is_empty()).then(|| RoundAggregate { median: median(&numbers), spread })
    }

    /// The median of the numbers.
    pub(super) fn median(&self, place: &str) -> Option<f64> {
        Some(self.figure(place)?.median)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &'a Value> {
        self.0.iter().copied()
    }
}

/// The ratio of two figures, if both exist.
pub(super) fn ratio(over: Option<f64>, under: Option<f64>) -> Option<f64> {
    Some(over? / under?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn figures_are_medians_of_the_selected_rows() {
        let rows = json!([
            { "server": "a", "round": 0, "ms": { "093": 1.0 } }, { "server": "a", "round": 1, "ms": { "093": 4.0 } },
            { "server": "b", "round": 0, "ms": { "093": 9.0 } },
        ]);
        let results =
            BenchResults([("x".to_owned(), rows.as_array().expect("rows").clone())].into_iter().collect());
        let rows = results.rows_of("x");
        assert_eq!(
            rows.with_value("server", "a").figure("ms/093"),
            Some(RoundAggregate { median: 2.5, spread: Some(3.0) })
        );
        assert_eq!(
            rows.with_value("server", "b").figure("ms/093"),
            Some(RoundAggregate { median: 9.0, spread: None })
        );
        assert_eq!(rows.with_value("server", "c").figure("ms/093"), None);
        assert_eq!(rows.distinct_texts("server"), ["a", "b"]);
        assert!(results.rows_of("y").is_empty());
    }
}
