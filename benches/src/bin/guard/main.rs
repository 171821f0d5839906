//! `make guard`: how many instructions a request takes on each hot path, beside those of `benches/guard.json`.
//!
//! Times depend on the machine and on who else uses it; instructions hardly do. The gateway runs in callgrind, on one core,
//! with everything in its way that an operator has; what it asks is played here, outside. A path that takes
//! more than a twentieth above the baseline fails, so that such a change is made on purpose: with `--update`, in the
//! same commit. `paths.rs` has what is asked, `callgrind.rs` counts, `baseline.rs` compares. With `--exercise` nothing is
//! counted: `scripts/dist` learns from what is asked then which code is hot.

mod baseline;
mod callgrind;
mod paths;

use std::path::PathBuf;

use anyhow::{Context, Result};
use benches::process::Orfa;
use clap::Parser;
use futures_util::future::try_join_all;

use baseline::Baseline;
use callgrind::{Callgrind, Cost};
use paths::{Path, World};

/// Requests before it is counted: until what is made once has been made, and what is kept is warm.
const WARM_UPS: usize = 8;
/// How often a path is counted, and by so many requests each time: what else goes on now and then, and whether an answer is
/// there already when it is looked for, makes a difference of a hundredth or two. The one in the middle counts.
const ROUNDS: usize = 3;
const REQUESTS: usize = 12;
/// How often a path is counted that takes more than it may.
const TIMES: usize = 3;
/// So many ask at once where nothing is counted.
const CLIENTS: usize = 8;

/// Counts the instructions of a request on each hot path.
#[derive(Debug, Parser)]
struct Arguments {
    /// The gateway; by default the one beside this program.
    #[arg(long)]
    orfa: Option<PathBuf>,
    /// Only these paths.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Lists so many functions of each path, the costliest first, and compares nothing.
    #[arg(long, value_name = "FUNCTIONS", conflicts_with = "update")]
    list: Option<usize>,
    /// Writes the baseline.
    #[arg(long)]
    update: bool,
    /// Counts nothing: asks for each path so many times, of a gateway as an operator has it, and ends that.
    #[arg(long, value_name = "REQUESTS", conflicts_with_all = ["list", "update", "only"])]
    exercise: Option<usize>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if let Some(requests) = arguments.exercise {
        return tokio::runtime::Runtime::new()?.block_on(exercise(&arguments, requests));
    }
    callgrind::prepare()?;
    let mut baseline = Baseline::read()?;
    let counted = tokio::runtime::Runtime::new()?.block_on(count(&arguments, &baseline))?;
    if let Some(functions) = arguments.list {
        counted.iter().for_each(|(path, cost)| list(path, cost, functions));
        return Ok(());
    }
    if arguments.update {
        return baseline.update(&counted);
    }
    baseline.compare(&counted).into_iter().for_each(|remark| say(&remark));
    baseline.check(&counted)
}

/// All paths, one after the other, in one gateway.
async fn count(arguments: &Arguments, baseline: &Baseline) -> Result<Vec<(&'static str, Cost)>> {
    let orfa = benches::process::find(arguments.orfa.clone())?;
    let world = World::new(&orfa, true).await?;
    let gateway = Callgrind::start(&orfa, &world.config).await?;
    let is_wanted =
        |path: &Path| arguments.only.is_empty() || arguments.only.iter().any(|name| name == path.name);
    let mut paths = world.paths(gateway.address()).await?;
    paths.retain(is_wanted);
    for path in &paths {
        path.begin().await.with_context(|| path.name)?;
    }
    gateway.begin().await?;
    let compares = arguments.list.is_none() && !arguments.update;
    let mut counted = Vec::new();
    for path in &paths {
        let mut cost = measure(&gateway, path).await.with_context(|| path.name)?;
        for _ in 1..if compares { TIMES } else { 1 } {
            if baseline.allows(path.name, &cost) {
                break;
            }
            cost = measure(&gateway, path).await.with_context(|| path.name)?;
        }
        say(&format!(
            "{:<16} {:>12} instructions a request",
            path.name,
            baseline::grouped(cost.instructions)
        ));
        counted.push((path.name, cost));
    }
    Ok(counted)
}

/// Asks for all paths, of a gateway that then ends as it does when it is asked to.
async fn exercise(arguments: &Arguments, requests: usize) -> Result<()> {
    let orfa = benches::process::find(arguments.orfa.clone())?;
    let has_scripts = paths::has_node();
    // What builds programs is not what is asked: only that may leave counts behind.
    let world = World::new(&benches::process::find(None)?, has_scripts).await?;
    let gateway = Orfa::start(&orfa, &world.config).await?;
    for path in world.paths(gateway.address()).await? {
        path.begin().await.with_context(|| path.name)?;
        let clients = (0..CLIENTS).map(|_| path.ask(requests.div_ceil(CLIENTS)));
        try_join_all(clients).await.with_context(|| path.name)?;
    }
    if !has_scripts {
        say("handlers in S were not asked: there is no Node.js 20 or newer");
    }
    gateway.end().await
}

/// What a request takes, and where.
async fn measure(gateway: &Callgrind, path: &Path) -> Result<Cost> {
    path.ask(WARM_UPS).await?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        gateway.zero().await?;
        path.ask(REQUESTS).await?;
        rounds.push(gateway.cost(REQUESTS as u64).await?);
    }
    rounds.sort_by_key(|cost| cost.instructions);
    Ok(rounds.swap_remove(ROUNDS / 2))
}

fn list(path: &str, cost: &Cost, functions: usize) {
    say(&format!("{path}:"));
    for (name, instructions) in cost.costliest().into_iter().take(functions) {
        say(&format!("  {:>12}  {name}", baseline::grouped(instructions)));
    }
}

/// What it found, for whoever waits.
#[expect(clippy::print_stdout, reason = "this is what the program is for")]
fn say(line: &str) {
    println!("{line}");
}
