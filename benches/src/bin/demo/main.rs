//! `make demo`: the same questions asked in five ways, or up to nine, over a distance of 93 ms.
//!
//! `world.rs` starts what is asked: the marketplace, the gateway as its release binary, and the distance.
//! `jobs.rs` has the questions and how a REST client answers them, `measure.rs` runs the ways and checks
//! that their answers are equal, `picture.rs` draws what came out, `stranger.rs` shows what a program
//! without end does to its neighbours. The figures go to `target/demo.json`.

mod jobs;
mod measure;
mod picture;
mod stranger;
mod terminal;
mod timing;
mod world;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use benches::scoreboard::{self, Better, Score};
use benches::{process, stats};
use clap::{Parser, ValueEnum};

use crate::jobs::Job;
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
    /// Write the rows and `demo.over_ideal_ms.worst` to `benches/results/`.
    #[arg(long, conflicts_with = "only")]
    scoreboard: bool,
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
    if arguments.scoreboard {
        record(&measured)?;
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

fn record(measured: &[Measured]) -> Result<()> {
    scoreboard::rows("demo", &measured.iter().map(|way| &way.row).collect::<Vec<_>>())?;
    let over: Vec<f64> = measured.iter().filter_map(Measured::over_ideal_ms).collect();
    let score = Score {
        value: measure::rounded(over.iter().copied().fold(f64::MIN, f64::max)),
        unit: "ms".into(),
        better: Better::Lower,
        target: Some(10.0),
        against: "93 ms + the same query on loopback".into(),
        spread: measure::rounded(stats::spread(&over)),
    };
    scoreboard::record([("demo.over_ideal_ms.worst".into(), score)])
}
