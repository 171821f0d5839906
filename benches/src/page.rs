//! docs/benchmarks.md, made of `benches/results/`: each table and figure of the five documents that ORFA was built after,
//! theirs beside ours and the rivals', and then the scoreboard.
//!
//! What a document prints stands in its section's source as it is printed there; of figures that it only draws, the page
//! says what its text does. What the results lack is named, with the command that measures it, and never made up.

mod apisix;
mod board;
mod dedup;
mod marketplace;
mod orfa;
mod results;
mod s;
mod table;
mod ways;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use self::results::Results;
use crate::scoreboard;

const INTRODUCTION: &str = "<!-- Made of benches/results/ by `make bench`: don't edit. -->
# Benchmarks

What ORFA costs and what it saves, beside what the documents it was built after measured, and beside what people would use
instead. `make bench` measures all of it and writes this page; `make bench ONLY=query,script` measures some of it.

- One machine with two shared cores: the server has one, the load and the services behind the server have the other. Rounds of
  the rivals take turns, so that a noisy neighbour meets all of them, and none begins before the one before has come to rest;
  only what a slow line decides is measured way by way. A figure is the median of its rounds, and in parentheses is their
  spread, from the smallest to the largest.
- ORFA is the file that `make dist` makes, as operators have it: its code is laid out by what runs often, which
  is learnt from requests like some of these. The bare server and the handwritten one beside it are plain release builds.
- CPU is what the server and all processes that it started used, user and system, by the requests that were answered: where a
  machine is shared it says more than requests per second.
- A distance is a TCP proxy that delivers every byte half a round trip later, and counts what crosses it, heads included.
  Connections stand already, but those that are called cold: to set one up takes a round trip.
- The documents' machines were others, and mostly larger or farther apart. Their figures and ours are comparable by their
  ratios only.
- Each rival runs in production mode, with kept connections and its documented fast settings, by the config in
  [`benches/rivals`](../benches/rivals), its log off; but nginx and Envoy write the access log that ORFA writes too. The raw rows
  are in [`benches/results`](../benches/results).
- A `–` stands where something was not, or can't be, measured.

";

/// A picture: the name of its file, without the ending, and the SVG.
type Plot = (&'static str, String);

/// Writes the page and its pictures.
///
/// # Errors
/// If the results can't be read, or something can't be written.
pub fn write() -> Result<()> {
    for (name, drawn) in plots()? {
        let path = plot(name);
        std::fs::write(&path, drawn).with_context(|| format!("{} can't be written", path.display()))?;
    }
    let path = path();
    std::fs::write(&path, text()?).with_context(|| format!("{} can't be written", path.display()))
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/benchmarks.md")
}

/// The file of a picture.
fn plot(name: &str) -> PathBuf {
    scoreboard::folder().join(name).with_extension("svg")
}

/// The pictures that are drawn of rows; those of S are drawn by its bench.
fn plots() -> Result<Vec<Plot>> {
    let results = Results::read(&scoreboard::folder())?;
    Ok([orfa::plots(&results), marketplace::plots(&results)].concat())
}

/// The page, of the results as they are.
fn text() -> Result<String> {
    let folder = scoreboard::folder();
    let board = scoreboard::read(&folder.join("scoreboard.json"))?;
    Ok(page(&Results::read(&folder)?) + &board::section(&board))
}

/// All but the scoreboard.
fn page(results: &Results) -> String {
    let sections =
        [ways::section, orfa::section, s::section, dedup::section, apisix::section, marketplace::section];
    let sections: String = sections.iter().map(|section| section(results)).collect();
    INTRODUCTION.to_owned() + &sections + &board::rivals(results) + &board::machine(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_what_the_results_give() {
        if std::env::var_os("ORFA_GENERATE").is_some() {
            write().expect("to write");
        }
        let page = std::fs::read_to_string(path()).expect("a page");
        assert!(
            page == text().expect("results"),
            "docs/benchmarks.md is not what benches/results/ gives: `cargo xtask generate` writes it"
        );
        for (name, drawn) in plots().expect("results") {
            let file = std::fs::read_to_string(plot(name)).unwrap_or_default();
            assert!(
                file == drawn,
                "{name}.svg is not what benches/results/ gives: `cargo xtask generate` draws it"
            );
            assert!(page.contains(name), "{name}.svg is not on the page");
        }
    }

    #[test]
    fn what_was_not_measured_is_named_with_what_measures_it() {
        let page = page(&Results::default());
        for bench in ["query", "strapi", "curves", "dedup", "filter", "graphql", "ways"] {
            let said = format!("Not measured yet: `make bench ONLY={bench}`");
            assert!(page.contains(&said), "{bench}:\n{page}");
        }
    }
}
