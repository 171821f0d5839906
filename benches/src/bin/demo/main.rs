//! `make demo`: the same questions in five to nine variants, over a distance of 93 ms.
//!
//! `world.rs` starts the marketplace, the gateway as its release binary, and the simulated distance. The
//! questions, and the way a REST client answers them, are in `benches::jobs`. `measure.rs` runs the variants
//! and checks that their answers are equal, `picture.rs` formats the results, and `stranger.rs` shows the
//! effect of an endless program on other clients. The figures are written to `target/demo.json`.

mod measure;
mod picture;
mod stranger;
mod terminal;
mod timing;
mod world;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use benches::jobs::BenchJob;
use benches::process;
use benches::scoreboard;
use clap::{Parser, ValueEnum};

use crate::measure::VariantFigures;
use crate::world::DemoServers;

/// Asks a marketplace the same questions with REST and with queries, from 93 ms away.
#[derive(Parser)]
struct DemoArguments {
    /// The gateway's binary [default: `orfa` next to this executable].
    #[arg(long, value_name = "FILE")]
    orfa: Option<PathBuf>,
    /// Only this part of the demo.
    #[arg(long)]
    only: Option<DemoPart>,
}

/// A part of the demo.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DemoPart {
    Jobs,
    Stranger,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(&DemoArguments::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            terminal::complain("The answers differ: see the rows above.\n");
            ExitCode::FAILURE
        }
        Err(error) => {
            terminal::complain(&format!("The demo failed: {error:#}\n"));
            ExitCode::FAILURE
        }
    }
}

/// Shows the demo. Returns whether all variants gave the same answers.
async fn run(arguments: &DemoArguments) -> Result<bool> {
    terminal::progress("starting the marketplace and the gateway");
    let world = DemoServers::start(&process::find(arguments.orfa.clone())?).await?;
    terminal::say(&picture::heading());
    let measured = if arguments.only == Some(DemoPart::Stranger) { Vec::new() } else { jobs(&world).await? };
    if arguments.only != Some(DemoPart::Jobs) {
        terminal::say(&picture::stranger(&stranger::meet(&world).await?));
    }
    terminal::say(&picture::now_you());
    if !measured.is_empty() {
        write(&measured)?;
    }
    Ok(measured.iter().all(|way| way.row.equal))
}

async fn jobs(world: &DemoServers) -> Result<Vec<VariantFigures>> {
    let mut measured = Vec::new();
    for job in BenchJob::ALL {
        let ways = measure::measure(world, job).await?;
        terminal::say(&picture::bars(job, &ways));
        if job == BenchJob::Second {
            terminal::say(&picture::inside(world, job).await?);
        }
        measured.extend(ways);
    }
    Ok(measured)
}

fn write(measured: &[VariantFigures]) -> Result<()> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/demo.json");
    let rows: Vec<_> = measured.iter().map(|way| &way.row).collect();
    scoreboard::write(&target, &rows)
}
