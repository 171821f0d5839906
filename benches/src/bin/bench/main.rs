//! `make bench`: the costs of ORFA, each next to its basis of comparison, in one run.
//!
//! The server is pinned to one core and the load to the other. CPU per request is the CPU time of the
//! server's processes, user and system, divided by the number of answered requests. Rounds of the rivals
//! alternate, so that a disturbance affects all of them. Rows are written to `benches/results/NAME.json` and
//! headlines to `scoreboard.json`, and docs/benchmarks.md is generated from both.

mod aggregate;
mod busy_polling;
mod cache_memory;
mod cold_programs;
mod dedup;
mod failover;
mod filter;
mod flood;
mod gigabyte;
mod graphql;
mod house;
mod idle;
mod job_variants;
mod json;
mod load;
mod memory;
mod neighbours;
mod open_loop;
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
mod workflow_throughput;
mod workflows;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use allocator::GlobalAllocator;
use anyhow::{Result, bail, ensure};
use benches::machine::{self, ProcessorMoment};
use benches::scoreboard::{self, HeadlineScore};
use clap::Parser;
use serde::Serialize;

use crate::progress::format_minutes;

/// The gateway's allocator, since parts of the gateway run in this process.
#[global_allocator]
static ALLOCATOR: GlobalAllocator = GlobalAllocator;

/// A bench: its name, its approximate duration in seconds, and its function.
type BenchEntry = (&'static str, u64, fn(&BenchTools) -> Result<()>);

/// All benches. Together they take less than forty minutes, and none takes more than eight.
const BENCHES: &[BenchEntry] = &[
    ("unseen", 5, cold_programs::run),
    ("threads", 20, threads::run),
    ("query", 140, query::run),
    ("json", 15, json::run),
    ("idle", 5, idle::run),
    ("gigabyte", 10, gigabyte::run),
    ("dead", 30, failover::run),
    ("routes", 30, routes::run),
    ("reload", 15, reload::run),
    ("overload", 90, overload::run),
    ("neighbours", 85, neighbours::run),
    ("flood", 85, flood::run),
    ("kept", 5, cache_memory::run),
    ("proxy", 110, proxy::run),
    ("dedup", 80, dedup::run),
    ("curves", 50, script::curves::run),
    ("filter", 130, filter::run),
    ("memory", 65, memory::run),
    ("ways", 190, job_variants::run),
    ("workflows", 140, workflows::run),
    ("market", 70, workflows::run_market),
    ("script", 155, script::run),
    ("aggregate", 90, aggregate::run),
    ("graphql", 360, graphql::run),
    ("strapi", 325, strapi::run),
    ("house", 1, house::run),
];

/// Runs the benchmarks and writes benches/results/.
#[derive(Parser)]
struct BenchArguments {
    /// The gateway. Default: the one that `make dist` builds, or for short rounds the one next to this
    /// executable.
    #[arg(long)]
    orfa: Option<PathBuf>,
    /// Only these benches, separated by commas.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Short rounds, to check that everything runs. Writes no results.
    #[arg(long)]
    short: bool,
    /// Also crawls to depth 16 for the curves.
    #[arg(long, conflicts_with = "short")]
    long: bool,
}

/// The executables and options of the benches.
#[derive(Clone)]
pub(crate) struct BenchTools {
    orfa: PathBuf,
    floor: PathBuf,
    /// The service with minimal cost.
    upstream: PathBuf,
    /// The handwritten alternative to aggregates.
    handwritten: PathBuf,
    /// The folder of the installed rivals.
    rivals: PathBuf,
    is_short: bool,
    is_long: bool,
    /// The duration of the benches after the current one.
    remaining: Duration,
}

impl BenchTools {
    /// The duration of a round.
    fn round_time(&self, time: Duration) -> Duration {
        if self.is_short { time.min(Duration::from_secs(1)) } else { time }
    }

    /// The number of rounds.
    fn rounds(&self, rounds: usize) -> usize {
        if self.is_short { 1 } else { rounds }
    }

    /// Prints the headlines and, unless rounds are short, writes them and the rows to `benches/results/`.
    fn write_results<T: Serialize>(
        &self,
        name: &str,
        rows: &[T],
        scores: impl IntoIterator<Item = (String, HeadlineScore)>,
    ) -> Result<()> {
        let scores: Vec<_> = scores.into_iter().collect();
        for (name, HeadlineScore { value, unit, target, spread, against, .. }) in &scores {
            let target = target.map_or_else(String::new, |target| format!(", target {target}"));
            print_line(&format!(
                "  {name}: {value:.3} {unit} (spread {spread:.3}{target}; against {against})"
            ));
        }
        if self.is_short {
            print_line("  (short rounds: nothing is written)");
            return Ok(());
        }
        scoreboard::write_rows(name, rows)?;
        scoreboard::record(scores)
    }
}

fn main() -> ExitCode {
    match run(&BenchArguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_line(&format!("bench: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &BenchArguments) -> Result<()> {
    let beside = std::env::current_exe()?;
    let laid_out = (!arguments.short).then(|| beside.with_file_name("../dist/orfa"));
    let mut tools = BenchTools {
        orfa: benches::process::find_gateway(arguments.orfa.clone().or(laid_out))?,
        floor: beside.with_file_name("floor"),
        upstream: beside.with_file_name("upstream"),
        handwritten: beside.with_file_name("handwritten"),
        rivals: beside.with_file_name("../rivals"),
        is_short: arguments.short,
        is_long: arguments.long,
        remaining: Duration::ZERO,
    };
    if let Some(unknown) = arguments.only.iter().find(|only| !BENCHES.iter().any(|(name, ..)| name == only)) {
        let names: Vec<&str> = BENCHES.iter().map(|(name, ..)| *name).collect();
        bail!("there is no bench `{unknown}`: take {}", names.join(", "));
    }
    let chosen = |(name, ..): &&BenchEntry| {
        arguments.only.is_empty() || arguments.only.iter().any(|only| only == name)
    };
    let chosen: Vec<&BenchEntry> = BENCHES.iter().filter(chosen).collect();
    let mut failed = Vec::new();
    for (place, (name, takes, bench)) in chosen.iter().enumerate() {
        let later = chosen.iter().skip(place + 1).map(|(_, takes, _)| takes).sum();
        tools.remaining = if tools.is_short { Duration::ZERO } else { Duration::from_secs(later) };
        print_line(&format!(
            "{name} ... ({}, then{})",
            format_minutes(Duration::from_secs(*takes)),
            format_minutes(tools.remaining)
        ));
        let (began, before) = (Instant::now(), ProcessorMoment::now()?);
        // A failure of one bench must not discard the results of others.
        let how = match bench(&tools) {
            Ok(()) if tools.is_short => "done".to_owned(),
            Ok(()) => {
                machine::record(before.steal_until_now(name, began.elapsed())?)?;
                "done".to_owned()
            }
            Err(error) => {
                failed.push(*name);
                format!("failed, {error:#},")
            }
        };
        print_line(&format!("{name}: {how} in{}", format_minutes(began.elapsed())));
    }
    if !tools.is_short {
        if let Some(rivals) = rivals::rival_versions(&tools) {
            scoreboard::write_rows("rivals", &rivals)?;
        }
        benches::page::write()?;
    }
    let failed = failed.join(",");
    ensure!(
        failed.is_empty(),
        "{failed} failed, so its results are outdated: `make bench ONLY={failed}` tries again"
    );
    Ok(())
}

/// Whether a measurement of this many milliseconds over a distance is not repeated: it consists of sequential
/// round trips, and would take the same time again.
pub(crate) fn is_long(ms: f64) -> bool {
    ms >= 700.0
}

/// Prints progress and figures.
#[expect(clippy::print_stdout, reason = "this is what the program is for")]
pub(crate) fn print_line(line: &str) {
    println!("{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_benches_fit_into_forty_minutes_and_each_into_eight() {
        assert!(BENCHES.iter().map(|(_, takes, _)| takes).sum::<u64>() < 40 * 60);
        assert!(BENCHES.iter().all(|(_, takes, _)| *takes <= 8 * 60));
    }
}
