//! The two workflows of the ORFA paper's table 4 that use Strapi: their latency and traffic, for every
//! variant of a client, at three distances (the paper's figures 7 to 9); and the throughput of the reading
//! one where Strapi shares a core with the servers in front of it (its table 5b).
//!
//! `workflow.rs` has the workflows, and how a client runs them with REST and GraphQL. `variant.rs` names the
//! variants, and `cell.rs` assigns them to cells. `program.rs` sends programs, to ORFA and to workerd.
//! `servers.rs` starts everything: the Strapi of `examples/strapi`, the two hosts next to it, and a simulated
//! distance in front of each. `figures.rs` produces the table and the headlines. Every request of every
//! variant carries the same credential, which reaches Strapi.
//!
//! The variants of a cell take turns in alternating order, so that none always follows the same one. All
//! responses have to be equal. After each run of the writing workflow the data in Strapi is checked and
//! reset. The savings of gzip are computed from the response bodies, for all variants alike, even if their
//! server does not compress.

mod cell;
mod figures;
mod program;
mod servers;
mod session;
mod variant;
mod workflow;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use benches::client::gzip_saves;
use benches::delay::ProxyTraffic;
use serde::Serialize;
use serde_json::Value;

use self::cell::WorkflowCell;
use self::figures::StrapiFigures;
use self::servers::{StrapiDistance, StrapiServers};
use self::session::StrapiSession;
use self::variant::{CallShape, StrapiVariant};
use self::workflow::PaperWorkflow;
use crate::progress::BenchProgress;
use crate::workflow_throughput::{self, ServiceSpeed};
use crate::{BenchTools, is_long, print_line};

const ROUND_TRIPS_MS: [u64; 3] = [35, 93, 170];
const SIZES: [usize; 4] = [2, 4, 8, 16];
const ROUNDS: usize = 3;
/// Additional rounds for the programs that are compared with each other: they differ by less than Strapi's
/// own response times vary.
const MORE_ROUNDS: usize = 4;
const EXPECTED_DURATION: Duration = Duration::from_secs(350);
/// The distance, and the size, that are fixed while the paper varies the other one.
const USUAL_MS: u64 = 93;
const USUAL_SIZE: usize = 4;

/// A row of the results.
#[derive(Serialize)]
#[serde(untagged)]
enum StrapiRow {
    Far(figures::StrapiFigureRow),
    Busy(workflow_throughput::BusyRow),
}

/// The results of one run of a variant.
struct StrapiRun {
    answer: Value,
    requests: usize,
    ms: f64,
    /// The time for which a host waited for Strapi.
    strapi_ms: f64,
    traffic: ProxyTraffic,
    /// The number of bytes that gzip would save.
    gzip_saves: u64,
}

pub(crate) fn run(tools: &BenchTools) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let Some(mut world) = runtime.block_on(StrapiServers::start(tools))? else {
        print_line("  no Strapi: `scripts/setup strapi` installs it; this bench is left out");
        return Ok(());
    };
    let progress = BenchProgress::new(tools, EXPECTED_DURATION);
    let figures = runtime.block_on(measure(tools, &progress, &mut world))?;
    figures.print_table();
    let orfa = world.start_on_shared_core(tools)?;
    let ways = runtime.block_on(world.read_calls(&orfa))?;
    let busy = workflow_throughput::run_rounds(
        tools,
        &progress,
        PaperWorkflow::Read.name(),
        &ways,
        ServiceSpeed::Slow,
    )?;
    let rows = figures.rows().into_iter().map(StrapiRow::Far).chain(busy.into_iter().map(StrapiRow::Busy));
    tools.write_results("strapi", &rows.collect::<Vec<_>>(), figures.scores())
}

async fn measure(
    tools: &BenchTools,
    progress: &BenchProgress,
    world: &mut StrapiServers,
) -> Result<StrapiFigures> {
    world.warm_up().await?;
    let mut figures = StrapiFigures::default();
    let (round_trips, sizes) =
        if tools.is_short { (&ROUND_TRIPS_MS[..1], &SIZES[..2]) } else { (&ROUND_TRIPS_MS[..], &SIZES[..]) };
    for &round_trip_ms in round_trips {
        let distance = world.at_distance(round_trip_ms).await?;
        for &size in sizes {
            for workflow in PaperWorkflow::ALL {
                let cell = WorkflowCell { workflow, size, round_trip_ms };
                run_rounds(tools, world, &distance, cell, &mut figures).await?;
                progress.report(&figures.summary_line(cell));
            }
        }
    }
    Ok(figures)
}

/// Runs rounds of every variant of a cell.
async fn run_rounds(
    tools: &BenchTools,
    world: &StrapiServers,
    distance: &StrapiDistance,
    cell: WorkflowCell,
    figures: &mut StrapiFigures,
) -> Result<()> {
    let (mut ways, mut expected) = (world.variants(cell), None);
    let rounds = tools.rounds(ROUNDS);
    for number in 0..rounds + MORE_ROUNDS {
        if number == rounds {
            ways.retain(|variant| matches!(variant, StrapiVariant::Program(_, CallShape::Bulk)));
        }
        let mut long = Vec::new();
        for &way in &ways {
            let run =
                run_once(world, distance, cell, way).await.with_context(|| format!("{way}, {cell:?}"))?;
            let expected = expected.get_or_insert_with(|| run.answer.clone());
            ensure!(run.answer == *expected, "{way} responds {} and not {expected}, {cell:?}", run.answer);
            figures.add(cell, way, &run);
            if is_long(run.ms) && !matches!(way, StrapiVariant::Program(..)) {
                long.push(way);
            }
            if cell.workflow == PaperWorkflow::Write {
                world
                    .remove_tag(cell.size)
                    .await
                    .with_context(|| format!("the effects of {way}, {cell:?}"))?;
            }
        }
        ways.retain(|strapi_variant| !long.contains(strapi_variant));
        ways.reverse();
    }
    Ok(())
}

async fn run_once(
    world: &StrapiServers,
    distance: &StrapiDistance,
    cell: WorkflowCell,
    variant: StrapiVariant,
) -> Result<StrapiRun> {
    let strapi = distance.server(variant)?;
    let (before, waited, began) = (strapi.delay.traffic(), world.waited_ms(), Instant::now());
    let ms = || began.elapsed().as_secs_f64() * 1e3;
    let (answer, requests, ms, gzip_saves) = match variant {
        StrapiVariant::Program(host, shape) => {
            let body = world.run_program(strapi, cell, host, shape).await?;
            let answer = serde_json::from_slice(&body).context("a program's response is not JSON")?;
            (answer, 1, ms(), gzip_saves(&body)?)
        }
        _ => {
            let mut session = StrapiSession::new(
                &strapi.client,
                world.authorization.clone(),
                variant != StrapiVariant::Sequential,
            );
            let answer = cell.workflow.run_variant(&mut session, variant, cell.size, &world.tag).await?;
            (answer, session.requests(), ms(), session.gzip_saves()?)
        }
    };
    let (strapi_ms, traffic) = (world.waited_ms() - waited, strapi.delay.traffic() - before);
    Ok(StrapiRun { answer, requests, ms, strapi_ms, traffic, gzip_saves })
}
