//! The end of the page: the rivals with their versions, and the whole scoreboard.

use super::results::BenchResults;
use super::table::{format_number, missing_note, number_cell, table, table_row};
use crate::scoreboard::{BetterDirection, HeadlineScore, Scoreboard};

/// Display names for names in the rows.
const NAMES: [(&str, &str); 6] = [
    ("graphql", "GraphQL's \"hello world\""),
    ("fastify", "Fastify, the handlers and the cluster"),
    ("aggregate", "Fastify, the joins"),
    ("dedup", "the deduplicators"),
    ("hive", "Hive Gateway"),
    ("json-rivals", "the JSON parsers"),
];

/// The rivals with their versions, and those that were not available.
pub(super) fn rivals(results: &BenchResults) -> String {
    let heading = "## The rivals\n\nVersions of the rivals and tools. Not available in the registries in use, and not measured: APISIX, \
                   Ocelot and HotChocolate, which two of the documents measured; Memos and Gitea, which are replaced by stand-ins.\n\n";
    let rows = results.rows_of("rivals");
    if rows.is_empty() {
        return format!("{heading}{}", missing_note("query"));
    }
    let rows = rows.iter().map(|rival| {
        let text = |field: &str| rival[field].as_str();
        let version = text("version").unwrap_or("not available, left out");
        let name = text("name").unwrap_or_default();
        table_row(NAMES.iter().find(|(known, _)| *known == name).map_or(name, |(_, name)| name), [version])
    });
    format!("{heading}{}", table(&["rival", "version"], rows))
}

/// The processor time that the host of the machine took, by bench.
pub(super) fn machine(results: &BenchResults) -> String {
    let heading = "## The machine\n\nBoth processors belong to a virtual machine, whose host lends them to others too. The share of the \
                   wanted processor time that the host took away (*steal*), and the duration of each bench:\n\n";
    let rows = results.rows_of("machine");
    if rows.is_empty() {
        return format!("{heading}{}", missing_note("query"));
    }
    let rows = rows.iter().map(|met| {
        let seconds = met["seconds"].as_u64().unwrap_or_default();
        let taken = met["taken_percent"].as_f64().map(|percent| format!("{percent:.1} %"));
        let took = format!("{} min {:02} s", seconds / 60, seconds % 60);
        table_row(
            format!("`{}`", met["bench"].as_str().unwrap_or_default()),
            [took, taken.unwrap_or_else(|| number_cell(None))],
        )
    });
    format!("{heading}{}", table(&["bench", "took", "steal"], rows))
}

/// Every headline, with missed targets first.
pub(super) fn section(board: &Scoreboard) -> String {
    let with_target = board.values().filter(|score| score.target.is_some()).count();
    let mut missed = board.iter().filter(|(_, score)| score.is_met() == Some(false)).peekable();
    let met = with_target - board.values().filter(|score| score.is_met() == Some(false)).count();
    let mut text = format!(
        "## The scoreboard\n\nThe headlines of all benches ([`scoreboard.json`](../benches/results/scoreboard.json)): {met} of \
         {with_target} targets are met.\n\n"
    );
    if missed.peek().is_some() {
        text += "**Missed:**\n\n";
        text += &scores(missed);
        text += "**Met, or without a target:**\n\n";
    }
    text += &scores(board.iter().filter(|(_, score)| score.is_met() != Some(false)));
    text.truncate(text.trim_end().len());
    text + "\n"
}

fn scores<'a>(scores: impl Iterator<Item = (&'a String, &'a HeadlineScore)>) -> String {
    let rows = scores.map(|(name, score)| {
        let (sign, mark) = match (score.better, score.is_met()) {
            (_, None) => ("", ""),
            (BetterDirection::Lower, Some(met)) => ("at most ", if met { "yes" } else { "**no**" }),
            (BetterDirection::Higher, Some(met)) => ("at least ", if met { "yes" } else { "**no**" }),
        };
        let target = score
            .target
            .map_or_else(|| number_cell(None), |target| format!("{sign}{}", format_number(target)));
        let value = format!("{} {}", format_number(score.value), score.unit);
        table_row(
            format!("`{name}`"),
            [value, format_number(score.spread), target, mark.to_owned(), score.against.replace('|', "/")],
        )
    });
    table(&["headline", "value", "spread", "target", "met", "against"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_missed_targets_first() {
        let score = |value, better| HeadlineScore {
            value,
            unit: "ms".into(),
            better,
            target: Some(2.0),
            against: "nothing".into(),
            spread: 0.5,
        };
        let board = [
            ("a.met".to_owned(), score(1.0, BetterDirection::Lower)),
            ("b.missed".to_owned(), score(1.0, BetterDirection::Higher)),
        ];
        let text = section(&board.into_iter().collect());
        assert!(text.contains("1 of 2 targets are met"), "{text}");
        let missed = "| `b.missed` | 1.00 ms | 0.50 | at least 2.00 | **no** | nothing |";
        let met = "| `a.met` | 1.00 ms | 0.50 | at most 2.00 | yes | nothing |";
        assert!(text.find(missed).expect("the missed") < text.find(met).expect("the met"), "{text}");
    }
}
