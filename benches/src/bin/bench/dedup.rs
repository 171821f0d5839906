//! Deduplicated responses: the history of a GitHub repository, as requested in the paper on object
//! deduplication, whose commits have one author, ten, or one each. Measures the size plain and deduplicated,
//! next to graphql-crunch and graphql-deduplicator; the time that Node takes to read it; and the paper's
//! table over a slow line.

mod distant_client;
mod history;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use benches::scoreboard::{BetterDirection, HeadlineScore};
use benches::stats::{median, spread};
use bytes::Bytes;
use dedup::{DedupForm, DedupLimits};
use serde::Serialize;

use crate::process::{SERVER_CORE, pinned_command};
use crate::progress::BenchProgress;
use crate::{BenchTools, rivals};

/// The approximate duration of the whole bench.
const EXPECTED_DURATION: Duration = Duration::from_secs(120);
/// The numbers of nodes and authors.
const HISTORIES: [(usize, usize); 7] =
    [(10, 1), (50, 1), (100, 1), (10, 10), (50, 10), (100, 10), (100, 100)];
const ROUNDS: usize = 11;
/// The number of times that a text is encoded. The fastest one counts.
const ENCODE_RUNS: usize = 200;

#[derive(Serialize)]
#[serde(untagged)]
enum DedupRow {
    Text(HistoryFigures),
    Cell(distant_client::VariantResults),
}

/// The sizes in bytes and times in microseconds of a history.
#[derive(Serialize)]
struct HistoryFigures {
    nodes: usize,
    authors: usize,
    /// The size of each form.
    bytes: BTreeMap<&'static str, usize>,
    /// The time to encode the text.
    encode_us: f64,
    /// The time to read each form in Node as the whole object: the median of the rounds.
    read_us: BTreeMap<String, f64>,
    #[serde(skip)]
    rounds: ReaderRounds,
}

/// The times of each reader by round.
type ReaderRounds = BTreeMap<String, Vec<f64>>;

pub(crate) fn run(tools: &BenchTools) -> Result<()> {
    let Some(rival) = rivals::installed_path(tools, "dedup") else { return Ok(()) };
    let progress = BenchProgress::new(tools, tools.round_time(EXPECTED_DURATION));
    let folder = tempfile::tempdir()?;
    let mut texts = HISTORIES
        .map(|(nodes, authors)| write_history(folder.path(), nodes, authors))
        .into_iter()
        .collect::<Result<Vec<_>>>()?;
    let mut told = measure_readers(&rival, folder.path(), tools.rounds(ROUNDS))?;
    for text in &mut texts {
        let name = history_name(text.nodes, text.authors);
        text.rounds = told.remove(&name).with_context(|| format!("Node reported no times of {name}"))?;
        text.read_us = text.rounds.iter().map(|(way, times)| (way.clone(), median(times))).collect();
        for rival in ["crunch", "deduplicator"] {
            text.bytes
                .insert(rival, std::fs::metadata(history_file(folder.path(), &name, rival))?.len() as usize);
        }
        progress.report(&describe_history(text));
    }
    let scores = scores(&texts)?;
    let cells = distant_client::run(tools, folder.path(), &texts, &progress)?;
    let rows: Vec<DedupRow> =
        texts.into_iter().map(DedupRow::Text).chain(cells.into_iter().map(DedupRow::Cell)).collect();
    tools.write_results("dedup", &rows, scores)
}

fn history_name(nodes: usize, authors: usize) -> String {
    format!("{nodes}-{authors}")
}

fn history_file(folder: &Path, name: &str, form: &str) -> PathBuf {
    folder.join(format!("{name}.{form}.json"))
}

/// Writes a history in its plain form and, if that is smaller, deduplicated.
fn write_history(folder: &Path, nodes: usize, authors: usize) -> Result<HistoryFigures> {
    let (name, plain) =
        (history_name(nodes, authors), Bytes::from(history::history(nodes, authors).to_string()));
    std::fs::write(history_file(folder, &name, "plain"), &plain)?;
    let mut encode_us = f64::INFINITY;
    let mut wire = None;
    for _ in 0..ENCODE_RUNS {
        let begun = Instant::now();
        wire = dedup::encode_text(&plain, DedupForm::GraphQl, &DedupLimits::default())?;
        encode_us = encode_us.min(begun.elapsed().as_secs_f64() * 1e6);
    }
    if let Some(wire) = &wire {
        std::fs::write(history_file(folder, &name, "dedup"), wire)?;
    }
    let bytes = [("plain", plain.len()), ("dedup", wire.map_or(plain.len(), |wire| wire.len()))].into();
    Ok(HistoryFigures {
        nodes,
        authors,
        bytes,
        encode_us,
        read_us: BTreeMap::new(),
        rounds: ReaderRounds::new(),
    })
}

/// The time that Node takes to read each history in each form.
fn measure_readers(rival: &Path, folder: &Path, rounds: usize) -> Result<BTreeMap<String, ReaderRounds>> {
    let decoder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk/javascript/dedup.js");
    let mut node = pinned_command(SERVER_CORE, Path::new("node"));
    let output = node.arg(rival).arg(folder).arg(decoder).arg(rounds.to_string()).output()?;
    ensure!(output.status.success(), "node: {}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn describe_history(text: &HistoryFigures) -> String {
    let bytes = |form| text.bytes.get(form).copied().unwrap_or_default();
    let time = |way: &str| text.read_us.get(way).copied().unwrap_or_default();
    format!(
        "{:>3} nodes, {:>3} authors: {:>6} bytes, deduplicated {:>6}, crunch {:>6}; read in {:.0}, {:.0}, {:.0} us",
        text.nodes,
        text.authors,
        bytes("plain"),
        bytes("dedup"),
        bytes("crunch"),
        time("plain"),
        time("dedup"),
        time("crunch"),
    )
}

fn scores(texts: &[HistoryFigures]) -> Result<Vec<(String, HeadlineScore)>> {
    let size = |text: &HistoryFigures, one, other| -> Option<f64> {
        Some(*text.bytes.get(one)? as f64 / *text.bytes.get(other)? as f64)
    };
    let worst = |one, other| {
        let ratios: Vec<f64> = texts.iter().filter_map(|text| size(text, one, other)).collect();
        (ratios.iter().copied().fold(0.0, f64::max), spread(&ratios))
    };
    let alone = |text: &&HistoryFigures| text.nodes == text.authors;
    let unrepeated: Vec<f64> =
        texts.iter().filter(alone).filter_map(|text| size(text, "dedup", "plain")).collect();
    let score = |(value, spread), target, against: &str| HeadlineScore {
        value,
        unit: "ratio".into(),
        better: BetterDirection::Lower,
        target: Some(target),
        against: against.into(),
        spread,
    };
    let mut scores = vec![
        (
            "dedup.size_vs_crunch.worst".to_owned(),
            score(
                worst("dedup", "crunch"),
                1.03,
                "graphql-crunch 2.2.0, version 2 of its form; the worst of seven histories",
            ),
        ),
        (
            "dedup.unrepeated_size_ratio".to_owned(),
            score(
                (unrepeated.iter().copied().fold(0.0, f64::max), spread(&unrepeated)),
                1.01,
                "the plain text of a history in which nothing is repeated",
            ),
        ),
    ];
    // The paper's histories have one author. Those with ten are in the rows only.
    for text in texts.iter().filter(|text| text.authors == 1 && text.nodes >= 50) {
        let times = rounds_ratio(&text.rounds, "dedup", "plain").context("no times")?;
        let name = format!("dedup.decode_vs_parse.{}", text.nodes);
        scores.push((name, score(times, 0.5, "JSON.parse of the plain text, in Node, in CPU time")));
    }
    Ok(scores)
}

/// The median and the spread of the ratio of two readers' times, by round.
fn rounds_ratio(rounds: &ReaderRounds, one: &str, other: &str) -> Option<(f64, f64)> {
    let ratios: Vec<f64> =
        rounds.get(one)?.iter().zip(rounds.get(other)?).map(|(one, other)| one / other).collect();
    Some((median(&ratios), spread(&ratios)))
}
