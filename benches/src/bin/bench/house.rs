//! The measures of type names, comments and module cycles, as `cargo xtask names` and `cargo xtask prose`
//! print them.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use benches::scoreboard::{BetterDirection, HeadlineScore};
use serde::Serialize;

use crate::BenchTools;

/// The headlines: the verb and the measure of xtask, the headline and its unit.
const MEASURES: [(&str, &str, &str, &str); 4] = [
    ("names", "one_word_types_%", "house.one_word_types_percent", "%"),
    ("names", "types_with_2_namesakes_%", "house.namesake_types_percent", "%"),
    ("prose", "pronoun_openers_%", "house.pronoun_openers_percent", "%"),
    ("names", "module_cycles", "house.module_cycles", "cycles"),
];

/// A measure of xtask.
#[derive(Debug, PartialEq, Serialize)]
struct MeasureRow {
    measure: String,
    value: f64,
    target: f64,
}

pub(crate) fn run(tools: &BenchTools) -> Result<()> {
    let (names, prose) = (read_measures("names")?, read_measures("prose")?);
    let scores: Result<Vec<_>> = MEASURES
        .into_iter()
        .map(|(verb, measure, headline, unit)| {
            let rows = if verb == "names" { &names } else { &prose };
            let row = rows.iter().find(|row| row.measure == measure);
            let MeasureRow { value, target, .. } = row.with_context(|| format!("there is no `{measure}`"))?;
            let score = HeadlineScore {
                value: *value,
                unit: unit.into(),
                better: BetterDirection::Lower,
                target: Some(*target),
                against: "Rust of crates/ and environments/ without tests".into(),
                spread: 0.0,
            };
            Ok((headline.to_owned(), score))
        })
        .collect();
    let rows: Vec<MeasureRow> = names.into_iter().chain(prose).collect();
    tools.write_results("house", &rows, scores?)
}

fn read_measures(verb: &str) -> Result<Vec<MeasureRow>> {
    let output = Command::new("cargo").args(["xtask", verb]).output().context("cargo does not run")?;
    let table = String::from_utf8(output.stdout)?;
    let rows: Vec<MeasureRow> = table.lines().filter_map(parse_row).collect();
    ensure!(!rows.is_empty(), "`cargo xtask {verb}` prints no measures");
    Ok(rows)
}

/// Parses a row such as `module_cycles  0.0  <= 5`.
fn parse_row(line: &str) -> Option<MeasureRow> {
    let [measure, value, "<=", target, ..] = *line.split_whitespace().collect::<Vec<_>>() else {
        return None;
    };
    Some(MeasureRow { measure: measure.to_owned(), value: value.parse().ok()?, target: target.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_rows_of_a_table_of_measures() {
        let row = MeasureRow { measure: "module_cycles".into(), value: 7.0, target: 5.0 };
        assert_eq!(parse_row("module_cycles                    7.0   <= 5    MISSED"), Some(row));
        assert_eq!(parse_row("measure                        value   target"), None);
    }
}
