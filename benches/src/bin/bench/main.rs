//! `make bench`: what ORFA costs, each figure beside what it is measured against, in one run.
//!
//! The server is pinned to one core and the load to the other; CPU per request is what the server's
//! process used, user and system, by the requests that were answered. Rounds of the rivals alternate, so
//! that a noisy neighbour meets all of them. Rows go to `benches/results/NAME.json`, headlines to
//! `scoreboard.json`, and docs/benchmarks.md is written of both.

mod aggregate;
mod awake;
mod busy;
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
mod ways;
mod workflows;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use allocator::Allocator;
use anyhow::{Result, bail, ensure};
use benches::machine::{self, Moment};
use benches::scoreboard::{self, Score};
use clap::Parser;
use serde::Serialize;

use crate::progress::minutes;

/// That of the gateway, parts of which run in here.
#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// A bench: its name, about how many seconds it takes, and what runs it.
type Bench = (&'static str, u64, fn(&Tools) -> Result<()>);

/// All of them, which together take less than forty minutes, and none more than eight.
const BENCHES: &[Bench] = &[
    ("unseen", 5, unseen::run),
    ("threads", 20, threads::run),
    ("query", 140, query::run),
    ("json", 15, json::run),
    ("idle", 5, idle::run),
    ("gigabyte", 10, gigabyte::run),
    ("dead", 30, dead::run),
    ("routes", 30, routes::run),
    ("reload", 15, reload::run),
    ("overload", 90, overload::run),
    ("neighbours", 85, neighbours::run),
    ("flood", 85, flood::run),
    ("kept", 5, kept::run),
    ("proxy", 110, proxy::run),
    ("dedup", 80, dedup::run),
    ("curves", 50, script::curves::run),
    ("filter", 130, filter::run),
    ("memory", 65, memory::run),
    ("ways", 190, ways::run),
    ("workflows", 140, workflows::run),
    ("market", 70, workflows::market),
    ("script", 155, script::run),
    ("aggregate", 90, aggregate::run),
    ("graphql", 360, graphql::run),
    ("strapi", 325, strapi::run),
];

/// Measures, and writes benches/results/.
#[derive(Parser)]
struct Arguments {
    /// The gateway; by default the one that `make dist` makes, or for short rounds the one beside this program.
    #[arg(long)]
    orfa: Option<PathBuf>,
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
    /// What the benches after this one take.
    later: Duration,
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
    let beside = std::env::current_exe()?;
    let laid_out = (!arguments.short).then(|| beside.with_file_name("../dist/orfa"));
    let mut tools = Tools {
        orfa: benches::process::find(arguments.orfa.clone().or(laid_out))?,
        floor: beside.with_file_name("floor"),
        upstream: beside.with_file_name("upstream"),
        handwritten: beside.with_file_name("handwritten"),
        rivals: beside.with_file_name("../rivals"),
        is_short: arguments.short,
        is_long: arguments.long,
        later: Duration::ZERO,
    };
    if let Some(unknown) = arguments.only.iter().find(|only| !BENCHES.iter().any(|(name, ..)| name == only)) {
        let names: Vec<&str> = BENCHES.iter().map(|(name, ..)| *name).collect();
        bail!("there is no bench `{unknown}`: take {}", names.join(", "));
    }
    let chosen =
        |(name, ..): &&Bench| arguments.only.is_empty() || arguments.only.iter().any(|only| only == name);
    let chosen: Vec<&Bench> = BENCHES.iter().filter(chosen).collect();
    let mut failed = Vec::new();
    for (place, (name, takes, bench)) in chosen.iter().enumerate() {
        let later = chosen.iter().skip(place + 1).map(|(_, takes, _)| takes).sum();
        tools.later = if tools.is_short { Duration::ZERO } else { Duration::from_secs(later) };
        say(&format!("{name} ... ({}, then{})", minutes(Duration::from_secs(*takes)), minutes(tools.later)));
        let (began, before) = (Instant::now(), Moment::now()?);
        // What one of them meets costs nobody what the others have measured.
        let how = match bench(&tools) {
            Ok(()) if tools.is_short => "done".to_owned(),
            Ok(()) => {
                machine::record(before.until_now(name, began.elapsed())?)?;
                "done".to_owned()
            }
            Err(error) => {
                failed.push(*name);
                format!("failed, {error:#},")
            }
        };
        say(&format!("{name}: {how} in{}", minutes(began.elapsed())));
    }
    if !tools.is_short {
        if let Some(rivals) = rivals::versions(&tools) {
            scoreboard::rows("rivals", &rivals)?;
        }
        benches::page::write()?;
    }
    let failed = failed.join(",");
    ensure!(
        failed.is_empty(),
        "{failed} failed, and what the results say of it is older: `make bench ONLY={failed}` tries again"
    );
    Ok(())
}

/// Whether what took so many milliseconds from afar is asked no further time: it is round trips, one after the other, and will
/// take as long again.
pub(crate) fn is_long(ms: f64) -> bool {
    ms >= 700.0
}

/// Progress and figures, for whoever waits.
#[expect(clippy::print_stdout, reason = "this is what the program is for")]
pub(crate) fn say(line: &str) {
    println!("{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_takes_less_than_forty_minutes_and_no_part_more_than_eight() {
        assert!(BENCHES.iter().map(|(_, takes, _)| takes).sum::<u64>() < 40 * 60);
        assert!(BENCHES.iter().all(|(_, takes, _)| *takes <= 8 * 60));
    }
}
