//! The ORFA paper's workflows on Memos and Gitea, with stand-ins: services that answer the same calls, with
//! responses of realistic length. Measures latency and bytes with REST, with GraphQL as in the paper
//! (openapi-to-graphql), and with ORFA, in the cells of the paper's figures 7 to 9; and for its table 5b,
//! workflows per second where all servers share a core.
//!
//! Two more workflows of the same kind use the marketplace with its databases.
//!
//! `workflow.rs` has the workflows, `implementations.rs` the variants, `servers.rs` the servers, and
//! `standins.rs` implements Memos and Gitea.

mod implementations;
mod servers;
mod standins;
mod workflow;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use benches::client::{BenchClient, gzip_saves};
use benches::delay::DelayProxy;
use benches::stats::{median, spread};
use serde::Serialize;

use self::implementations::{ProgramVariant, WorkflowOutcome};
use self::servers::WorkflowServers;
use self::workflow::{BenchWorkflow, MARKET_WORKFLOWS, PAPER_WORKFLOWS};
use crate::process::{SERVER_CORE, ServerProcess, pinned_command};
use crate::progress::BenchProgress;
use crate::workflow_throughput::{self, ServiceSpeed, WorkflowVariant};
use crate::{BenchTools, is_long, open_loop};

/// The cells of the paper's figures: round trips in milliseconds, and N.
const CELLS: [(u64, usize); 6] = [(93, 2), (93, 4), (93, 8), (93, 16), (35, 4), (170, 4)];
const USUAL_SIZE: usize = 4;
const ROUNDS: usize = 3;
const WARM_UPS: usize = 10;
const EXPECTED_DURATION: Duration = Duration::from_secs(125);
const MARKET_DURATION: Duration = Duration::from_secs(65);

#[derive(Serialize)]
#[serde(untagged)]
enum WorkflowRow {
    Far(Box<DistantResults>),
    Busy(workflow_throughput::BusyRow),
}

/// The results of a variant of a workflow from a distance.
#[derive(Default, Serialize)]
struct DistantResults {
    workflow: &'static str,
    n: usize,
    way: &'static str,
    requests: usize,
    bytes_up: u64,
    bytes_down: u64,
    gzip_down: u64,
    ms: BTreeMap<String, f64>,
    spread_ms: BTreeMap<String, f64>,
}

pub(crate) fn run(tools: &BenchTools) -> Result<()> {
    let progress = BenchProgress::new(tools, tools.round_time(EXPECTED_DURATION));
    let mut rows: Vec<WorkflowRow> = Vec::new();
    rows.extend(
        open_loop::run(measure_standins(tools, &progress))??
            .into_iter()
            .map(|row| WorkflowRow::Far(Box::new(row))),
    );
    rows.extend(measure_standin_throughput(tools, &progress)?.into_iter().map(WorkflowRow::Busy));
    tools.write_results("workflows", &rows, [])
}

/// The workflows on the marketplace, with GraphQL by ORFA itself.
pub(crate) fn run_market(tools: &BenchTools) -> Result<()> {
    let progress = BenchProgress::new(tools, tools.round_time(MARKET_DURATION));
    // The services run in this process while another one generates the load.
    let _core = open_loop::PinnedThread::to_load_core();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let world = runtime.block_on(WorkflowServers::start_market(tools, &MARKET_WORKFLOWS))?;
    let rows = runtime.block_on(measure_distant(tools, &progress, &world, &MARKET_WORKFLOWS))?;
    let mut rows: Vec<WorkflowRow> = rows.into_iter().map(|row| WorkflowRow::Far(Box::new(row))).collect();
    rows.extend(
        measure_throughput(tools, &progress, &world, None, &MARKET_WORKFLOWS)?
            .into_iter()
            .map(WorkflowRow::Busy),
    );
    tools.write_results("market", &rows, [])
}

async fn measure_standins(tools: &BenchTools, progress: &BenchProgress) -> Result<Vec<DistantResults>> {
    let service = standins::start()?;
    let world = WorkflowServers::start(tools, service.address, &PAPER_WORKFLOWS).await?;
    measure_distant(tools, progress, &world, &PAPER_WORKFLOWS).await
}

async fn measure_distant(
    tools: &BenchTools,
    progress: &BenchProgress,
    world: &WorkflowServers,
    workflows: &[BenchWorkflow],
) -> Result<Vec<DistantResults>> {
    let mut rows: Vec<DistantResults> = Vec::new();
    for workflow in workflows {
        for variant in world.variants() {
            let client = world.client(variant)?;
            for _ in 0..WARM_UPS {
                world
                    .run_once(workflow, variant, USUAL_SIZE, &client)
                    .await
                    .with_context(|| variant.name())?;
            }
        }
        for (round_trip_ms, size) in if tools.is_short { &CELLS[4..5] } else { &CELLS[..] } {
            measure_cell(tools, world, workflow, (*round_trip_ms, *size), &mut rows).await?;
            progress.report(&format!("{} N={size} from {round_trip_ms} ms", workflow.name));
        }
    }
    Ok(rows)
}

/// Runs rounds of all variants in turn, in alternating order, so that none always follows the same one.
async fn measure_cell(
    tools: &BenchTools,
    world: &WorkflowServers,
    workflow: &BenchWorkflow,
    (round_trip_ms, size): (u64, usize),
    rows: &mut Vec<DistantResults>,
) -> Result<()> {
    let (place, mut expected) = (format!("{round_trip_ms:03}"), None);
    let mut asked = Vec::new();
    for variant in
        world.variants().filter(|program_variant| size == USUAL_SIZE || program_variant.is_in_figure_9())
    {
        let delay = DelayProxy::start(world.address(variant)?, Duration::from_millis(round_trip_ms)).await?;
        let client = BenchClient::new(delay.address());
        delay.open(&client, size).await?;
        asked.push((variant, delay, client, Vec::<f64>::new(), WorkflowOutcome::default()));
    }
    for _ in 0..tools.rounds(ROUNDS) {
        for (way, _, client, ms, last) in &mut asked {
            if ms.last().is_some_and(|ms| is_long(*ms)) {
                continue;
            }
            let began = Instant::now();
            *last = world.run_once(workflow, *way, size, client).await.with_context(|| way.name())?;
            ms.push(began.elapsed().as_secs_f64() * 1e3);
            let expected = expected.get_or_insert_with(|| last.answer.clone());
            ensure!(last.answer == *expected, "{}: {} and not {expected}", way.name(), last.answer);
        }
        asked.reverse();
    }
    asked.sort_by_key(|(way, ..)| world.variants().position(|known| known == *way));
    for (way, delay, _, ms, last) in asked {
        let (traffic, all) = (delay.traffic(), ms.len() as u64);
        let found =
            rows.iter().position(|row| (row.workflow, row.n, row.way) == (workflow.name, size, way.name()));
        let found = found.unwrap_or_else(|| {
            rows.push(DistantResults {
                workflow: workflow.name,
                n: size,
                way: way.name(),
                ..DistantResults::default()
            });
            rows.len() - 1
        });
        let saved = last.bodies.iter().map(|body| gzip_saves(body)).sum::<std::io::Result<u64>>()?;
        let Some(row) = rows.get_mut(found) else { continue };
        (row.requests, row.bytes_up, row.bytes_down) = (last.requests, traffic.up / all, traffic.down / all);
        row.gzip_down = row.bytes_down - saved;
        row.ms.insert(place.clone(), (median(&ms) * 10.0).round() / 10.0);
        if ms.len() > 1 {
            row.spread_ms.insert(place.clone(), (spread(&ms) * 10.0).round() / 10.0);
        }
    }
    Ok(())
}

/// Measures workflows per second with the service as a separate process on the servers' core.
fn measure_standin_throughput(
    tools: &BenchTools,
    progress: &BenchProgress,
) -> Result<Vec<workflow_throughput::BusyRow>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("answers.json");
    std::fs::write(&file, serde_json::to_vec(&standins::read_responses(USUAL_SIZE))?)?;
    let service = ServerProcess::start(|address, _| {
        let mut command = pinned_command(SERVER_CORE, &tools.upstream);
        command.arg(address.to_string()).arg(&file);
        Ok(command)
    })?;
    let reading: Vec<BenchWorkflow> =
        PAPER_WORKFLOWS.into_iter().filter(BenchWorkflow::is_read_only).collect();
    let world = open_loop::run(WorkflowServers::start(tools, service.address, &reading))??;
    measure_throughput(tools, progress, &world, Some(&service), &reading)
}

/// Measures workflows per second, for those that only read.
fn measure_throughput(
    tools: &BenchTools,
    progress: &BenchProgress,
    world: &WorkflowServers,
    service: Option<&ServerProcess>,
    workflows: &[BenchWorkflow],
) -> Result<Vec<workflow_throughput::BusyRow>> {
    let mut rows = Vec::new();
    for workflow in workflows.iter().filter(|workflow| workflow.is_read_only()) {
        let mut ways = Vec::new();
        for variant in world.variants().filter(|program_variant| program_variant.is_in_table_5b()) {
            let client = world.client(ProgramVariant::Parallel)?;
            let calls = open_loop::run(workflow.build_calls(&client, variant, USUAL_SIZE, &world.programs))??;
            ways.push(WorkflowVariant {
                way: variant.name().to_owned(),
                server: world.server(variant, service),
                calls,
            });
        }
        rows.extend(workflow_throughput::run_rounds(
            tools,
            progress,
            workflow.name,
            &ways,
            ServiceSpeed::Fast,
        )?);
    }
    Ok(rows)
}
