//! docs/benchmarks.md, generated from `benches/results/`: each table and figure of the five documents that
//! ORFA was built after, with their values beside ours and those of rivals, and then the scoreboard.
//!
//! The figures that a document prints are in the source of its section. For figures that it only draws, the
//! page repeats the document's text. Missing results are named together with the command that measures them,
//! and never made up.

mod apisix;
mod approaches;
mod board;
mod dedup;
mod marketplace;
mod orfa;
mod results;
mod s;
pub mod svg;
mod table;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm};

use self::results::BenchResults;
use crate::scoreboard;

const INTRODUCTION: &str = "<!-- Generated from benches/results/ by `make bench`: don't edit. -->
# Benchmarks

The costs and savings of ORFA, next to the results in the documents that it was built after, and next to alternatives.
`make bench` measures everything and writes this page; `make bench ONLY=query,script` measures a part.

- One machine with two shared cores: the server has one, the load and the services behind the server have the other. Rounds of
  the rivals take turns, so that a disturbance affects all of them, and none begins before the one before has finished its work;
  only measurements over a slow line run one variant after the other. A figure is the median of its rounds, followed by their
  spread in parentheses, from the smallest to the largest.
- ORFA is the file that `make dist` builds, as operators use it: its code layout is optimised for hot code, with a profile of
  requests similar to these. The bare server and the handwritten one are plain release builds.
- CPU is the CPU time of the server and all its child processes, user and system, divided by the number of answered requests: on
  a shared machine it is more meaningful than requests per second.
- A distance is a TCP proxy that delivers every byte half a round trip later, and counts the bytes that cross it, including heads.
  Connections are set up in advance, except for those that are called cold: setting one up takes a round trip.
- The documents' machines were different ones, and mostly larger or farther apart. Their figures and ours are comparable by their
  ratios only.
- Each rival runs in production mode, with kept connections and its documented fast settings, with the config in
  [`benches/rivals`](../benches/rivals). Its log is disabled, except that nginx and Envoy write the same access log as ORFA. The raw rows
  are in [`benches/results`](../benches/results).
- A `–` marks a figure that was not or can't be measured.

";

/// The maximum width of a line of a paragraph, in characters.
const WIDTH: usize = 120;

/// A chart: the name of its file without the extension, and the SVG.
type NamedPlot = (&'static str, String);

/// Writes the page and its charts.
///
/// # Errors
/// Fails if the results can't be read, or a file can't be written.
pub fn write() -> Result<()> {
    for (name, drawn) in draw_plots()? {
        let path = chart_file(name);
        std::fs::write(&path, drawn).with_context(|| format!("{} can't be written", path.display()))?;
    }
    let path = page_file();
    std::fs::write(&path, page_text()?).with_context(|| format!("{} can't be written", path.display()))
}

fn page_file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/benchmarks.md")
}

/// The file of a chart.
fn chart_file(name: &str) -> PathBuf {
    scoreboard::results_folder().join(name).with_extension("svg")
}

/// The charts that are drawn from rows. Those of S are drawn by its bench.
fn draw_plots() -> Result<Vec<NamedPlot>> {
    let results = BenchResults::read(&scoreboard::results_folder())?;
    Ok([orfa::plots(&results), marketplace::plots(&results)].concat())
}

/// The page for the current results.
fn page_text() -> Result<String> {
    let folder = scoreboard::results_folder();
    let board = scoreboard::read_scoreboard(&folder.join("scoreboard.json"))?;
    Ok(page_sections(&BenchResults::read(&folder)?) + &board::section(&board))
}

/// The page without the scoreboard.
fn page_sections(results: &BenchResults) -> String {
    let sections = [
        approaches::section,
        orfa::section,
        s::section,
        dedup::section,
        apisix::section,
        marketplace::section,
    ];
    let sections: String = sections.iter().map(|section| section(results)).collect();
    wrap_paragraphs(
        &(INTRODUCTION.to_owned() + &sections + &board::rivals(results) + &board::machine(results)),
    )
}

/// Wraps paragraphs. Tables, headings and images stay as they are.
fn wrap_paragraphs(page: &str) -> String {
    let options = Options::new(WIDTH)
        .wrap_algorithm(WrapAlgorithm::FirstFit)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation)
        .break_words(false);
    let is_paragraph = |line: &str| !line.starts_with(['|', '#', '!', '<', ' ', '-']);
    let lines = page.lines().map(|line| {
        if is_paragraph(line) { textwrap::fill(line, &options) + "\n" } else { format!("{line}\n") }
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_matches_the_results() {
        if std::env::var_os("ORFA_GENERATE").is_some() {
            write().expect("to write");
        }
        let page = std::fs::read_to_string(page_file()).expect("a page");
        assert!(
            page == page_text().expect("results"),
            "docs/benchmarks.md does not match benches/results/: `cargo xtask generate` writes it"
        );
        for (name, drawn) in draw_plots().expect("results") {
            let file = std::fs::read_to_string(chart_file(name)).unwrap_or_default();
            assert!(
                file == drawn,
                "{name}.svg does not match benches/results/: `cargo xtask generate` draws it"
            );
            assert!(page.contains(name), "{name}.svg is not on the page");
        }
    }

    #[test]
    fn missing_results_are_named_with_their_command() {
        let page = page_sections(&BenchResults::default());
        for bench in ["query", "strapi", "curves", "dedup", "filter", "graphql", "ways"] {
            let said = format!("Not measured yet: `make bench ONLY={bench}`");
            assert!(page.contains(&said), "{bench}:\n{page}");
        }
    }
}
