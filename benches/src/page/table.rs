//! Markdown tables, and number formatting.

use super::results::RoundAggregate;
use crate::scoreboard;

/// The placeholder for a missing figure.
const MISSING_FIGURE: &str = "–";

/// A table with names on the left and figures on the right.
pub(super) fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let head: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
    let rule = format!("| --- |{}\n", " ---: |".repeat(head.len().saturating_sub(1)));
    let rows: String = rows.into_iter().map(|row| line(&row)).collect();
    line(&head) + &rule + &rows + "\n"
}

/// A note that a bench has not run.
pub(super) fn missing_note(bench: &str) -> String {
    format!("*Not measured yet: `make bench ONLY={bench}`.*\n\n")
}

/// A link to a chart, if its bench has drawn it.
pub(super) fn chart_link(name: &str, what: &str) -> String {
    let file = format!("{name}.svg");
    let is_there = scoreboard::results_folder().join(&file).exists();
    if is_there { format!("![{what}](../benches/results/{file})\n\n") } else { String::new() }
}

/// Formats a number with three significant digits, or with all digits before the point.
pub(super) fn format_number(value: f64) -> String {
    let size = value.abs();
    if size >= 99.95 {
        return group_thousands(value.round());
    }
    let digits = match size {
        _ if size >= 9.995 => 1,
        _ if size >= 0.0995 || size == 0.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

/// Formats an integer with separators, as in `1,234,567`.
fn group_thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let places = digits.len();
    let mut text = if value < 0.0 { "-".to_owned() } else { String::new() };
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (places - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number, if there is one.
pub(super) fn number_cell(value: impl Into<Option<f64>>) -> String {
    value.into().map_or_else(|| MISSING_FIGURE.into(), format_number)
}

/// Formats a figure with its spread, if there is one.
pub(super) fn spread_cell(figure: Option<RoundAggregate>) -> String {
    match figure {
        None => MISSING_FIGURE.into(),
        Some(RoundAggregate { median, spread: None }) => format_number(median),
        Some(RoundAggregate { median, spread: Some(spread) }) => {
            format!("{} ({})", format_number(median), format_number(spread))
        }
    }
}

/// Formats a ratio.
pub(super) fn format_ratio(value: Option<f64>) -> String {
    value.map_or_else(|| MISSING_FIGURE.into(), |value| format!("{}×", format_number(value)))
}

/// The cells of a row: its name, then its values.
pub(super) fn table_row(
    name: impl Into<String>,
    cells: impl IntoIterator<Item = impl Into<String>>,
) -> Vec<String> {
    std::iter::once(name.into()).chain(cells.into_iter().map(Into::into)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_or_all_before_the_point() {
        let numbers = [0.0, 0.0123, 0.123, 1.234, 12.34, 99.96, 123.4, 1234.6, -1_234_567.0];
        let texts = ["0.00", "0.012", "0.12", "1.23", "12.3", "100", "123", "1,235", "-1,234,567"];
        assert_eq!(numbers.map(format_number), texts);
    }

    #[test]
    fn a_table_is_markdown() {
        let text = table(
            &["way", "ms"],
            [table_row("REST", [number_cell(1.5)]), table_row("ORFA", [number_cell(None)])],
        );
        assert_eq!(text, "| way | ms |\n| --- | ---: |\n| REST | 1.50 |\n| ORFA | – |\n\n");
    }
}
