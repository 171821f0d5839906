//! `make demo`: the same questions asked in five ways, or up to nine, over a distance of 93 ms.
//!
//! `world.rs` starts what is asked: the marketplace, the gateway as its release binary, and the distance.
//! The questions, and how a REST client answers them, are `benches::jobs`; `measure.rs` runs the ways and checks
//! that their answers are equal, `picture.rs` draws what came out, `stranger.rs` shows what a program
//! without end does to its neighbours. The figures go to `target/demo.json`.

mod measure;
mod picture;
mod stranger;
mod terminal;
mod timing;
mod world;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use benches::jobs::Job;
use benches::process;
use benches::scoreboard;
use clap::{Parser, ValueEnum};

use crate::measure::Measured;
use crate::world::World;

/// Asks a marketplace the same questions by REST and by query, from 93 ms away.
#[derive(Parser)]
struct Arguments {
    /// The gateway's binary [default: `orfa` beside this program].
    #[arg(long, value_name = "FILE")]
    orfa: Option<PathBuf>,
    /// Only this part of it.
    #[arg(long)]
    only: Option<Part>,
}

/// A part of the demo.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Jobs,
    Stranger,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(&Arguments::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            terminal::complain("The answers are not equal: see the rows above.\n");
            ExitCode::FAILURE
        }
        Err(error) => {
            terminal::complain(&format!("The demo can't be shown: {error:#}\n"));
            ExitCode::FAILURE
        }
    }
}

/// Shows all of it; whether every way gave the same answer.
async fn run(arguments: &Arguments) -> Result<bool> {
    terminal::progress("starting the marketplace and the gateway");
    let world = World::start(&process::find(arguments.orfa.clone())?).await?;
    terminal::say(&picture::heading());
    let measured = if arguments.only == Some(Part::Stranger) { Vec::new() } else { jobs(&world).await? };
    if arguments.only != Some(Part::Jobs) {
        terminal::say(&picture::stranger(&stranger::meet(&world).await?));
    }
    terminal::say(&picture::now_you());
    if !measured.is_empty() {
        write(&measured)?;
    }
    Ok(measured.iter().all(|way| way.row.equal))
}

async fn jobs(world: &World) -> Result<Vec<Measured>> {
    let mut measured = Vec::new();
    for job in Job::ALL {
        let ways = measure::measure(world, job).await?;
        terminal::say(&picture::bars(job, &ways));
        if job == Job::Second {
            terminal::say(&picture::inside(world, job).await?);
        }
        measured.extend(ways);
    }
    Ok(measured)
}

fn write(measured: &[Measured]) -> Result<()> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/demo.json");
    let rows: Vec<_> = measured.iter().map(|way| &way.row).collect();
    scoreboard::write(&target, &rows)
}
