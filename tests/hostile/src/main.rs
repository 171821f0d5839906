//! `hostile`: plays the adversarial suite against a binary, and prints the cases that end in an unexpected
//! way.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use hostile::{AttackCase, AttackTarget, SuiteReport, all_cases, bounds_table, measure, play_all};

/// Play the adversarial suite against a gateway.
#[derive(Debug, Parser)]
struct HostileArguments {
    /// The gateway's binary
    #[arg(long)]
    binary: PathBuf,
    /// Play only cases whose name contains this text
    #[arg(long)]
    only: Option<String>,
    /// List the cases instead of playing them
    #[arg(long)]
    list: bool,
    /// Print the table of docs/bounds.md instead of playing cases
    #[arg(long)]
    bounds: bool,
    /// Print how each case ended
    #[arg(long)]
    verbose: bool,
    /// Play the cases one by one beside a light load, and measure their effect on it
    #[arg(long)]
    measure: bool,
    /// Write the measurements to benches/results/
    #[arg(long, requires = "measure")]
    update: bool,
}

/// The attackers' nice value, so that the gateway has priority on a shared machine.
const NICE: i32 = 19;

fn main() -> anyhow::Result<ExitCode> {
    let attackers = || _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().on_thread_start(attackers).enable_all().build()?;
    runtime.block_on(run())
}

async fn run() -> anyhow::Result<ExitCode> {
    let HostileArguments { binary, only, list, bounds, verbose, measure: measures, update } =
        HostileArguments::parse();
    if bounds {
        anstream::print!("{}", bounds_table());
        return Ok(ExitCode::SUCCESS);
    }
    let is_wanted = |case: &AttackCase| only.as_ref().is_none_or(|only| case.name.contains(only));
    let cases: Vec<AttackCase> = all_cases().into_iter().filter(is_wanted).collect();
    if list {
        cases.iter().for_each(|case| anstream::println!("{}", case.name));
        return Ok(ExitCode::SUCCESS);
    }
    let target = Arc::new(AttackTarget::start(&binary).await?);
    if measures {
        let wrong = measure(&target, &cases, update).await?;
        wrong.iter().for_each(|reason| anstream::println!("FAILS  {reason}"));
        anstream::println!("{} cases, {} failures", cases.len(), wrong.len());
        return Ok(if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let SuiteReport { verdicts, aftermath } = play_all(&target, &cases).await?;
    let mut failed = 0;
    for (case, verdict) in cases.iter().zip(verdicts) {
        match verdict {
            Ok(ending) if verbose => anstream::println!("{}: {ending}", case.name),
            Ok(_) => {}
            Err(reason) => {
                failed += 1;
                anstream::println!("FAILS  {}: {reason}", case.name);
            }
        }
    }
    aftermath.iter().for_each(|reason| anstream::println!("FAILS  afterwards: {reason}"));
    anstream::println!("{} passed, {} failed", cases.len() - failed, failed + aftermath.len());
    Ok(if failed + aftermath.len() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
