//! The two workflows of the ORFA paper's table 4 that ask a Strapi: how long they take and what crosses
//! the wire, for every way that a client has, at three distances (the paper's figures 7 to 9); and how many
//! of the one that only reads are done a second where Strapi shares a core with what stands before it (its table 5b).
//!
//! `workflow.rs` has what is asked, and how a client asks it by REST and by GraphQL; `way.rs` names the
//! ways, `cell.rs` says which of them are asked where; `program.rs` sends programs, to ORFA and to workerd; `world.rs` runs all of it: the Strapi of
//! `examples/strapi`, the two hosts beside it, and a distance before each; `figures.rs` makes the table
//! and the headlines. Every request of every way carries the same credential, which ends up at Strapi.
//!
//! The ways of a cell take turns, to and fro, so that none always follows the same one. All answers have to
//! be equal, and after each run of the writing workflow Strapi has to have what it should, and loses it
//! again. What gzip would save is counted on the bodies of the answers, for all ways alike, whether or not
//! their server compresses.

mod cell;
mod figures;
mod program;
mod session;
mod way;
mod workflow;
mod world;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use benches::client::gzip_saves;
use benches::delay::Traffic;
use serde::Serialize;
use serde_json::Value;

use self::cell::Cell;
use self::figures::Figures;
use self::session::Session;
use self::way::{Shape, Way};
use self::workflow::Workflow;
use self::world::{Place, World};
use crate::busy::{self, Pace};
use crate::progress::Progress;
use crate::{Tools, is_long, say};

const ROUND_TRIPS_MS: [u64; 3] = [35, 93, 170];
const SIZES: [usize; 4] = [2, 4, 8, 16];
const ROUNDS: usize = 3;
/// Further ones of the programs that are compared with each other: they differ by less than a Strapi's own answers do.
const MORE_ROUNDS: usize = 4;
const TAKES: Duration = Duration::from_secs(350);
/// The distance and the size that the paper varies the other one at.
const USUAL_MS: u64 = 93;
const USUAL_SIZE: usize = 4;

/// A line of the results.
#[derive(Serialize)]
#[serde(untagged)]
enum Row {
    Far(figures::Row),
    Busy(busy::Row),
}

/// What one run of a way took.
struct Run {
    answer: Value,
    requests: usize,
    ms: f64,
    /// How long a host waited for Strapi meanwhile.
    strapi_ms: f64,
    traffic: Traffic,
    /// Bytes by which gzip would have made the answers smaller.
    gzip_saves: u64,
}

pub(crate) fn run(tools: &Tools) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let Some(mut world) = runtime.block_on(World::start(tools))? else {
        say("  no Strapi: `scripts/setup strapi` installs it; this bench is left out");
        return Ok(());
    };
    let progress = Progress::new(tools, TAKES);
    let figures = runtime.block_on(measure(tools, &progress, &mut world))?;
    figures.print();
    let orfa = world.share_a_core(tools)?;
    let ways = runtime.block_on(world.read_calls(&orfa))?;
    let busy = busy::rounds(tools, &progress, Workflow::Read.name(), &ways, Pace::Slow)?;
    let rows = figures.rows().into_iter().map(Row::Far).chain(busy.into_iter().map(Row::Busy));
    tools.results("strapi", &rows.collect::<Vec<_>>(), figures.scores())
}

async fn measure(tools: &Tools, progress: &Progress, world: &mut World) -> Result<Figures> {
    world.warm_up().await?;
    let mut figures = Figures::default();
    let (round_trips, sizes) =
        if tools.is_short { (&ROUND_TRIPS_MS[..1], &SIZES[..2]) } else { (&ROUND_TRIPS_MS[..], &SIZES[..]) };
    for &round_trip_ms in round_trips {
        let place = world.place(round_trip_ms).await?;
        for &size in sizes {
            for workflow in Workflow::ALL {
                let cell = Cell { workflow, size, round_trip_ms };
                rounds_of(tools, world, &place, cell, &mut figures).await?;
                progress.say(&figures.line(cell));
            }
        }
    }
    Ok(figures)
}

/// Rounds of every way of a cell.
async fn rounds_of(
    tools: &Tools,
    world: &World,
    place: &Place,
    cell: Cell,
    figures: &mut Figures,
) -> Result<()> {
    let (mut ways, mut expected) = (world.ways(cell), None);
    let rounds = tools.rounds(ROUNDS);
    for number in 0..rounds + MORE_ROUNDS {
        if number == rounds {
            ways.retain(|way| matches!(way, Way::Program(_, Shape::Bulk)));
        }
        let mut long = Vec::new();
        for &way in &ways {
            let run = once(world, place, cell, way).await.with_context(|| format!("{way}, {cell:?}"))?;
            let expected = expected.get_or_insert_with(|| run.answer.clone());
            ensure!(run.answer == *expected, "{way} answers {} and not {expected}, {cell:?}", run.answer);
            figures.add(cell, way, &run);
            if is_long(run.ms) && !matches!(way, Way::Program(..)) {
                long.push(way);
            }
            if cell.workflow == Workflow::Write {
                world.undo(cell.size).await.with_context(|| format!("what {way} has written, {cell:?}"))?;
            }
        }
        ways.retain(|way| !long.contains(way));
        ways.reverse();
    }
    Ok(())
}

async fn once(world: &World, place: &Place, cell: Cell, way: Way) -> Result<Run> {
    let far = place.far(way)?;
    let (before, waited, began) = (far.delay.traffic(), world.waited_ms(), Instant::now());
    let ms = || began.elapsed().as_secs_f64() * 1e3;
    let (answer, requests, ms, gzip_saves) = match way {
        Way::Program(host, shape) => {
            let body = world.program(far, cell, host, shape).await?;
            let answer = serde_json::from_slice(&body).context("a program answered no JSON")?;
            (answer, 1, ms(), gzip_saves(&body)?)
        }
        _ => {
            let mut session = Session::new(&far.client, world.authorization.clone(), way != Way::OneByOne);
            let answer = cell.workflow.ask(&mut session, way, cell.size, &world.tag).await?;
            (answer, session.requests(), ms(), session.gzip_saves()?)
        }
    };
    let (strapi_ms, traffic) = (world.waited_ms() - waited, far.delay.traffic() - before);
    Ok(Run { answer, requests, ms, strapi_ms, traffic, gzip_saves })
}
