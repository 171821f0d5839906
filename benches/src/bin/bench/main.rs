//! `make bench`: what ORFA costs, each figure beside what it is measured against, in one run.
//!
//! The server is pinned to one core and the load to the other; CPU per request is what the server's
//! process used, user and system, by the requests that were answered. Rounds of the rivals alternate, so
//! that a noisy neighbour meets all of them. Rows go to `benches/results/NAME.json`, headlines to
//! `scoreboard.json`.

mod load;
mod memory;
mod neighbours;
mod process;
mod query;
mod threads;
mod unseen;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;

/// A bench: its name and what runs it.
type Bench = (&'static str, fn(&Tools) -> Result<()>);

/// In the order of what they take.
const BENCHES: &[Bench] = &[
    ("unseen", unseen::run),
    ("threads", threads::run),
    ("query", query::run),
    ("neighbours", neighbours::run),
    ("memory", memory::run),
];

/// Measures, and writes benches/results/.
#[derive(Parser)]
struct Arguments {
    /// Only these, with commas between: unseen, threads, query, neighbours, memory.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// What the benches run.
pub(crate) struct Tools {
    orfa: PathBuf,
    floor: PathBuf,
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
    let tools = Tools { floor: orfa.with_file_name("floor"), orfa };
    if let Some(unknown) = arguments.only.iter().find(|only| !BENCHES.iter().any(|(name, _)| name == only)) {
        bail!("there is no bench `{unknown}`: take unseen, threads, query, neighbours, memory");
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
