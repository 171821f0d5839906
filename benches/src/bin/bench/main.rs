//! `make bench`: what ORFA costs, each figure beside what it is measured against, in one run.
//!
//! The server is pinned to one core and the load to the other; CPU per request is what the server's
//! process used, user and system, by the requests that were answered. Rounds of the rivals alternate, so
//! that a noisy neighbour meets all of them. Rows go to `benches/results/NAME.json`, headlines to
//! `scoreboard.json`.

mod aggregate;
mod awake;
mod dead;
mod dedup;
mod filter;
mod flood;
mod gigabyte;
mod graphql;
mod idle;
mod json;
mod kept;
mod load;
mod memory;
mod neighbours;
mod open;
mod overload;
mod process;
mod progress;
mod proxy;
mod query;
mod ratios;
mod reload;
mod rivals;
mod routes;
mod script;
mod service;
mod strapi;
mod study;
mod threads;
mod unseen;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use benches::scoreboard::{self, Score};
use clap::Parser;
use serde::Serialize;

/// A bench: its name and what runs it.
type Bench = (&'static str, fn(&Tools) -> Result<()>);

/// In the order of what they take.
const BENCHES: &[Bench] = &[
    ("unseen", unseen::run),
    ("threads", threads::run),
    ("query", query::run),
    ("json", json::run),
    ("idle", idle::run),
    ("gigabyte", gigabyte::run),
    ("dead", dead::run),
    ("routes", routes::run),
    ("reload", reload::run),
    ("overload", overload::run),
    ("neighbours", neighbours::run),
    ("flood", flood::run),
    ("kept", kept::run),
    ("proxy", proxy::run),
    ("dedup", dedup::run),
    ("curves", script::curves::run),
    ("filter", filter::run),
    ("memory", memory::run),
    ("script", script::run),
    ("aggregate", aggregate::run),
    ("graphql", graphql::run),
    ("strapi", strapi::run),
];

/// Measures, and writes benches/results/.
#[derive(Parser)]
struct Arguments {
    /// Only these, with commas between.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Short rounds, to see whether everything runs; writes no results.
    #[arg(long)]
    short: bool,
    /// The crawl of depth 16 too, where the curves are drawn.
    #[arg(long, conflicts_with = "short")]
    long: bool,
}

/// What the benches run.
#[derive(Clone)]
pub(crate) struct Tools {
    orfa: PathBuf,
    floor: PathBuf,
    /// The service that costs next to nothing.
    upstream: PathBuf,
    /// What one who knows Rust writes in place of aggregates.
    handwritten: PathBuf,
    /// The folder of the rivals that could be had.
    rivals: PathBuf,
    is_short: bool,
    is_long: bool,
}

impl Tools {
    /// How long a round takes.
    fn time(&self, time: Duration) -> Duration {
        if self.is_short { time.min(Duration::from_secs(1)) } else { time }
    }

    /// How many rounds there are.
    fn rounds(&self, rounds: usize) -> usize {
        if self.is_short { 1 } else { rounds }
    }

    /// Says the headlines and, unless all was short, writes them and the rows to `benches/results/`.
    fn results<T: Serialize>(
        &self,
        name: &str,
        rows: &[T],
        scores: impl IntoIterator<Item = (String, Score)>,
    ) -> Result<()> {
        let scores: Vec<_> = scores.into_iter().collect();
        for (name, Score { value, unit, target, spread, against, .. }) in &scores {
            let target = target.map_or_else(String::new, |target| format!(", target {target}"));
            say(&format!("  {name}: {value:.3} {unit} (spread {spread:.3}{target}; against {against})"));
        }
        if self.is_short {
            say("  (short rounds: nothing is written)");
            return Ok(());
        }
        scoreboard::rows(name, rows)?;
        scoreboard::record(scores)
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("bench: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let orfa = benches::process::find(None)?;
    let tools = Tools {
        floor: orfa.with_file_name("floor"),
        upstream: orfa.with_file_name("upstream"),
        handwritten: orfa.with_file_name("handwritten"),
        rivals: orfa.with_file_name("../rivals"),
        is_short: arguments.short,
        is_long: arguments.long,
        orfa,
    };
    if let Some(unknown) = arguments.only.iter().find(|only| !BENCHES.iter().any(|(name, _)| name == only)) {
        let names: Vec<&str> = BENCHES.iter().map(|(name, _)| *name).collect();
        bail!("there is no bench `{unknown}`: take {}", names.join(", "));
    }
    let chosen = |name: &str| arguments.only.is_empty() || arguments.only.iter().any(|only| only == name);
    for (name, bench) in BENCHES.iter().filter(|(name, _)| chosen(name)) {
        say(&format!("{name} ..."));
        bench(&tools)?;
    }
    Ok(())
}

/// Progress and figures, for whoever waits.
#[expect(clippy::print_stdout, reason = "this is what the program is for")]
pub(crate) fn say(line: &str) {
    println!("{line}");
}
