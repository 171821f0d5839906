//! `make guard`: the number of instructions that a request takes on each hot path, compared with
//! `benches/guard.json`.
//!
//! Times depend on the machine and its other load; instruction counts hardly do. The gateway runs under
//! callgrind, on one core, with all features that operators use. Its upstream service runs in this process. A
//! path that exceeds the baseline by more than a twentieth fails, so that such a change is made on purpose,
//! with `--update`, in the same commit. `paths.rs` has the requests, `callgrind.rs` counts, `baseline.rs`
//! compares. With `--exercise` nothing is counted: `scripts/dist` then uses the requests as a profile for
//! code layout.

mod baseline;
mod callgrind;
mod paths;

use std::path::PathBuf;

use anyhow::{Context, Result};
use benches::process::OrfaProcess;
use clap::Parser;
use futures_util::future::try_join_all;

use baseline::GuardBaseline;
use callgrind::{CallgrindGateway, RequestInstructions};
use paths::{GuardPath, GuardServers};

/// The number of requests before counting, until one-time work is done and caches are warm.
const WARM_UPS: usize = 8;
/// The number of rounds for a path, and of requests per round. Periodic work, and whether a response has
/// arrived when it is first polled, change the result by a hundredth or two, so the median round counts.
const ROUNDS: usize = 3;
const REQUESTS: usize = 12;
/// The number of attempts for a path that exceeds its limit.
const MAX_ATTEMPTS: usize = 3;
/// The number of concurrent clients when nothing is counted.
const CLIENTS: usize = 8;

/// Counts the instructions of a request on each hot path.
#[derive(Debug, Parser)]
struct GuardArguments {
    /// The gateway. Default: the one next to this executable.
    #[arg(long)]
    orfa: Option<PathBuf>,
    /// Only these paths.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Lists this number of functions of each path, the most expensive first, without a comparison.
    #[arg(long, value_name = "FUNCTIONS", conflicts_with = "update")]
    list: Option<usize>,
    /// Writes the baseline.
    #[arg(long)]
    update: bool,
    /// Counts nothing: sends this number of requests on each path to a gateway without callgrind, and
    /// terminates it.
    #[arg(long, value_name = "REQUESTS", conflicts_with_all = ["list", "update", "only"])]
    exercise: Option<usize>,
}

fn main() -> Result<()> {
    let arguments = GuardArguments::parse();
    if let Some(requests) = arguments.exercise {
        return tokio::runtime::Runtime::new()?.block_on(exercise(&arguments, requests));
    }
    callgrind::block_unsupported_calls()?;
    let mut baseline = GuardBaseline::read()?;
    let counted = tokio::runtime::Runtime::new()?.block_on(count_paths(&arguments, &baseline))?;
    if let Some(functions) = arguments.list {
        counted.iter().for_each(|(path, cost)| print_functions(path, cost, functions));
        return Ok(());
    }
    if arguments.update {
        return baseline.update(&counted);
    }
    baseline.compare(&counted).into_iter().for_each(|remark| print_line(&remark));
    baseline.check(&counted)
}

/// Counts all paths one after the other in one gateway.
async fn count_paths(
    arguments: &GuardArguments,
    baseline: &GuardBaseline,
) -> Result<Vec<(&'static str, RequestInstructions)>> {
    let orfa = benches::process::find_gateway(arguments.orfa.clone())?;
    let world = GuardServers::new(&orfa, true).await?;
    let gateway = CallgrindGateway::start(&orfa, &world.config).await?;
    let is_wanted =
        |path: &GuardPath| arguments.only.is_empty() || arguments.only.iter().any(|name| name == path.name);
    let mut paths = world.paths(gateway.address()).await?;
    paths.retain(is_wanted);
    for path in &paths {
        path.wait_until_answered().await.with_context(|| path.name)?;
    }
    gateway.start_counting().await?;
    let compares = arguments.list.is_none() && !arguments.update;
    let mut counted = Vec::new();
    for path in &paths {
        let mut cost = measure(&gateway, path).await.with_context(|| path.name)?;
        for _ in 1..if compares { MAX_ATTEMPTS } else { 1 } {
            if baseline.is_within_limit(path.name, &cost) {
                break;
            }
            cost = measure(&gateway, path).await.with_context(|| path.name)?;
        }
        print_line(&format!(
            "{:<16} {:>12} instructions a request",
            path.name,
            baseline::group_thousands(cost.instructions)
        ));
        counted.push((path.name, cost));
    }
    Ok(counted)
}

/// Sends requests on all paths to a gateway, and terminates it gracefully.
async fn exercise(arguments: &GuardArguments, requests: usize) -> Result<()> {
    let orfa = benches::process::find_gateway(arguments.orfa.clone())?;
    let has_scripts = paths::has_node();
    // Programs are built with another binary: only requests may contribute to the profile.
    let world = GuardServers::new(&benches::process::find_gateway(None)?, has_scripts).await?;
    let gateway = OrfaProcess::start(&orfa, &world.config).await?;
    for path in world.paths(gateway.address()).await? {
        path.wait_until_answered().await.with_context(|| path.name)?;
        let clients = (0..CLIENTS).map(|_| path.send_repeatedly(requests.div_ceil(CLIENTS)));
        try_join_all(clients).await.with_context(|| path.name)?;
    }
    if !has_scripts {
        print_line("handlers in S are skipped: they need Node.js 20 or newer");
    }
    gateway.terminate().await
}

/// The cost of a request.
async fn measure(gateway: &CallgrindGateway, path: &GuardPath) -> Result<RequestInstructions> {
    path.send_repeatedly(WARM_UPS).await?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        gateway.reset_counts().await?;
        path.send_repeatedly(REQUESTS).await?;
        rounds.push(gateway.request_cost(REQUESTS as u64).await?);
    }
    rounds.sort_by_key(|cost| cost.instructions);
    Ok(rounds.swap_remove(ROUNDS / 2))
}

fn print_functions(path: &str, cost: &RequestInstructions, functions: usize) {
    print_line(&format!("{path}:"));
    for (name, instructions) in cost.costliest().into_iter().take(functions) {
        print_line(&format!("  {:>12}  {name}", baseline::group_thousands(instructions)));
    }
}

/// Prints a result.
#[expect(clippy::print_stdout, reason = "this is what the program is for")]
fn print_line(line: &str) {
    println!("{line}");
}
