//! `make demo`: the same questions in five to nine variants, over a distance of 93 ms.
//!
//! `servers.rs` starts the marketplace, the gateway as its release binary, and the simulated distance. The
//! questions, and the way a REST client answers them, are in `benches::jobs`. `measure.rs` runs the variants
//! and checks that their answers are equal, `rendering.rs` formats the results, and `abusive_client.rs` shows
//! the effect of an endless program on other clients. The figures are written to `target/demo.json`.

mod abusive_client;
mod measure;
mod rendering;
mod servers;
mod terminal;
mod timing;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use benches::jobs::BenchJob;
use benches::process;
use benches::scoreboard;
use clap::{Parser, ValueEnum};

use crate::measure::VariantFigures;
use crate::servers::DemoServers;

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
            terminal::write_error("The answers differ: see the rows above.\n");
            ExitCode::FAILURE
        }
        Err(error) => {
            terminal::write_error(&format!("The demo failed: {error:#}\n"));
            ExitCode::FAILURE
        }
    }
}

/// Shows the demo. Returns whether all variants gave the same answers.
async fn run(arguments: &DemoArguments) -> Result<bool> {
    terminal::show_progress("starting the marketplace and the gateway");
    let world = DemoServers::start(&process::find_gateway(arguments.orfa.clone())?).await?;
    terminal::write_result(&rendering::heading());
    let measured =
        if arguments.only == Some(DemoPart::Stranger) { Vec::new() } else { measure_jobs(&world).await? };
    if arguments.only != Some(DemoPart::Jobs) {
        terminal::write_result(&rendering::abuse_section(&abusive_client::measure_abuse(&world).await?));
    }
    terminal::write_result(&rendering::suggestions());
    if !measured.is_empty() {
        write_rows(&measured)?;
    }
    Ok(measured.iter().all(|figures| figures.row.equal))
}

async fn measure_jobs(world: &DemoServers) -> Result<Vec<VariantFigures>> {
    let mut measured = Vec::new();
    for job in BenchJob::ALL {
        let ways = measure::measure(world, job).await?;
        terminal::write_result(&rendering::job_section(job, &ways));
        if job == BenchJob::Second {
            terminal::write_result(&rendering::program_section(world, job).await?);
        }
        measured.extend(ways);
    }
    Ok(measured)
}

fn write_rows(measured: &[VariantFigures]) -> Result<()> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/demo.json");
    let rows: Vec<_> = measured.iter().map(|figures| &figures.row).collect();
    scoreboard::write_json(&target, &rows)
}
