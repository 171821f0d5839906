//! The paper on object deduplication: its tables 1 to 4, and the sizes of alternative libraries.

use serde_json::Value;

use super::results::{BenchResults, RowSelection};
use super::table::{missing_note, number_cell, table, table_row};

/// The paper's three architectures and their names here.
const ARCHITECTURES: [(&str, &str); 3] = [
    ("plain", "1, no treatment"),
    ("gzip", "2, HTTP compression"),
    ("deduplicator", "3, object deduplication"),
];
/// The paper's page sizes.
const SIZES: [u64; 3] = [10, 50, 100];

/// A table of gains: its number, its subject, our field, and the paper's percentages over architectures 1 and
/// 2.
type GainsTable = (u8, &'static str, &'static str, [[f64; 3]; 2]);

const GAINS: [GainsTable; 3] = [
    (2, "throughput", "throughput", [[0.0, 0.0, 0.33], [0.0, 0.0, 0.0]]),
    (3, "response time", "response", [[11.04, 62.53, 95.22], [0.66, -0.12, -1.45]]),
    (4, "parsing time", "parsing", [[75.78, 276.38, 309.35], [64.61, 193.76, 218.07]]),
];
/// The treatments that are compared with the architectures: the paper's library, and ours.
const TREATMENTS: [(&str, &str); 4] = [
    ("deduplicator", "graphql-deduplicator, used by the paper"),
    ("dedup", "ORFA"),
    ("dedup+gzip", "ORFA with gzip"),
    ("dedup+br", "ORFA with Brotli"),
];
const FORMS: [(&str, &str); 4] = [
    ("plain", "plain"),
    ("dedup", "**ORFA**"),
    ("crunch", "graphql-crunch"),
    ("deduplicator", "graphql-deduplicator"),
];

pub(super) fn section(results: &BenchResults) -> String {
    let heading = "## Object deduplication in GraphQL\n\nThe paper requests a repository's history of 10, 50 and 100 commits by one author from \
        GitHub. Ours is generated with the same size for 10 and 50, and somewhat larger for 100, and crosses a line of one megabit per second \
        with a round trip of 100 ms. Node can't read zstd, so parsing it is not measured.\n\n";
    let rows = results.rows_of("dedup");
    if rows.is_empty() {
        return heading.to_owned() + &missing_note("dedup");
    }
    heading.to_owned()
        + &table_1(&rows)
        + &GAINS.map(|gains| gain_table(&rows, gains)).concat()
        + &size_table(&rows)
}

fn cell_rows<'a>(rows: &RowSelection<'a>, nodes: u64, way: &str) -> RowSelection<'a> {
    rows.with_value("nodes", nodes).with_value("way", way)
}

fn table_1(rows: &RowSelection<'_>) -> String {
    let heading = "### Table 1: bytes, response, parsing, throughput\n\nEach pair is theirs and ours.\n\n";
    let fields = ["bytes", "response_ms", "parsing_ms", "per_second"];
    let pair = |of: &RowSelection<'_>| {
        fields.map(|field| {
            let theirs = of.median(&format!("paper/{field}"));
            format!("{} / {}", number_cell(theirs), number_cell(of.median(field)))
        })
    };
    let mut lines = Vec::new();
    for nodes in SIZES {
        for way in rows.with_value("nodes", nodes).distinct_texts("way") {
            let label = ARCHITECTURES.iter().find(|(name, _)| *name == way).map(|(_, label)| *label);
            let label =
                label.map_or_else(|| format!("**{way}**"), |label| format!("{way}: architecture {label}"));
            lines.push(table_row(format!("{nodes} commits, {label}"), pair(&cell_rows(rows, nodes, way))));
        }
    }
    heading.to_owned()
        + &table(&["theirs / ours", "bytes", "response ms", "parsing ms", "responses per second"], lines)
}

/// A table of gains in percent, over no treatment and over compression.
fn gain_table(rows: &RowSelection<'_>, (number, what, field, paper): GainsTable) -> String {
    let mut lines = Vec::new();
    for (over, (_, architecture)) in ARCHITECTURES.into_iter().take(2).enumerate() {
        let label = |who: &str| format!("{who}, over architecture {architecture}");
        lines.push(table_row(label("theirs"), paper[over].map(number_cell)));
        for (way, who) in TREATMENTS {
            let of = |nodes| number_cell(cell_rows(rows, nodes, way).median(&format!("gain/{over}/{field}")));
            lines.push(table_row(label(who), SIZES.map(of)));
        }
    }
    let heads = SIZES.map(|nodes| format!("{nodes} commits"));
    let head = ["gain in %", &heads[0], &heads[1], &heads[2]];
    format!("### Table {number}: {what}\n\n{}", table(&head, lines))
}

/// The sizes of seven histories in the form of each library.
fn size_table(rows: &RowSelection<'_>) -> String {
    let texts = rows.with_field("read_us");
    let lines = texts.iter().map(|text| {
        let name = format!("commits: {}, authors: {}", text["nodes"], text["authors"]);
        let bytes = FORMS.map(|(form, _)| number_cell(text["bytes"][form].as_f64()));
        let micros = FORMS.map(|(form, _)| number_cell(text["read_us"].get(form).and_then(Value::as_f64)));
        table_row(name, bytes.into_iter().chain(micros))
    });
    let heads = FORMS
        .map(|(_, name)| format!("{name}, bytes"))
        .into_iter()
        .chain(FORMS.map(|(_, name)| format!("{name}, us")));
    let heads: Vec<String> = std::iter::once(String::new()).chain(heads).collect();
    let head: Vec<&str> = heads.iter().map(String::as_str).collect();
    format!("### Sizes, and the time that Node takes to read each form\n\n{}", table(&head, lines))
}
