//! The same jobs with all approaches: the demo's three questions with plain REST, with ORFA's five handlers,
//! with Cap'n Web and with programs on workerd, from three distances. Measures requests, round trips, bytes
//! and latency, and without a distance the CPU time of all processes between the client and the services.
//!
//! `implementations.rs` implements the variants, and `servers.rs` starts the servers. The variants of a job
//! take turns. All responses have to be equal.

mod implementations;
mod servers;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use benches::jobs::BenchJob;
use benches::scoreboard::{BetterDirection, HeadlineScore};
use benches::stats::{median, spread};
use serde::Serialize;
use serde_json::Value;

use self::implementations::{BY_PROGRAM, BenchJobRequest, HostedVariant};
use self::servers::JobServers;
use crate::progress::BenchProgress;
use crate::{BenchTools, is_long, open_loop};

const ROUND_TRIPS_MS: [u64; 3] = [35, 93, 170];
/// The distance of the demo.
const USUAL_MS: u64 = 93;
const ROUNDS: usize = 3;
/// The time for which each variant runs without a distance in a round.
const LOCAL_TIME: Duration = Duration::from_millis(400);
/// The warm-up before that, for JIT compilers.
const WARM_UP: Duration = Duration::from_millis(300);
const EXPECTED_DURATION: Duration = Duration::from_secs(200);

/// The results of a variant of a job.
#[derive(Default, Serialize)]
struct JobVariantRow {
    job: &'static str,
    title: &'static str,
    way: &'static str,
    requests: usize,
    round_trips: usize,
    bytes_up: u64,
    bytes_down: u64,
    /// The value of `bytes_down` with gzipped response bodies.
    gzip_down: u64,
    /// The latency in milliseconds by the round trip in milliseconds.
    ms: BTreeMap<String, f64>,
    spread_ms: BTreeMap<String, f64>,
    /// The latency from 93 ms away over new connections; `None` if it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    cold_ms: Option<f64>,
    /// The latency without a distance.
    near_ms: f64,
    /// The number of calls to services for one request, if the gateway counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream_calls: Option<f64>,
    cpu_us: f64,
    spread_cpu_us: f64,
}

/// The rounds of a variant without a distance.
#[derive(Default)]
struct LocalRounds {
    ms: Vec<f64>,
    cpu_us: Vec<f64>,
    /// The number of calls to services for one request.
    calls: f64,
}

/// The rounds of a variant from a distance.
#[derive(Default)]
struct DistantRounds {
    ms: Vec<f64>,
    cold_ms: Vec<f64>,
    /// The bytes of a run.
    up: u64,
    down: u64,
    last: SequentialRuns,
}

/// Sequential runs of a variant.
#[derive(Default)]
struct SequentialRuns {
    answer: Value,
    /// The requests of one run.
    requests: usize,
    round_trips: usize,
    gzip_saves: u64,
    ms: Vec<f64>,
    /// The number of all runs, including warm-ups.
    run_count: usize,
}

pub(crate) fn run(tools: &BenchTools) -> Result<()> {
    let progress = BenchProgress::new(tools, tools.round_time(EXPECTED_DURATION));
    let rows = open_loop::run(measure(tools, &progress))??;
    tools.write_results("ways", &rows, over_ideal(&rows))
}

async fn measure(tools: &BenchTools, progress: &BenchProgress) -> Result<Vec<JobVariantRow>> {
    let world = JobServers::start(tools).await?;
    let mut rows = Vec::new();
    for job in BenchJob::ALL {
        let ways = implementations::job_variants(job, &world).await?;
        let new = |variant: &HostedVariant| JobVariantRow {
            job: job.name(),
            title: job.title(),
            way: variant.name,
            ..JobVariantRow::default()
        };
        let mut of_job: Vec<JobVariantRow> = ways.iter().map(new).collect();
        let expected = measure_local(tools, &world, job, &ways, &mut of_job).await?;
        for round_trip_ms in if tools.is_short { &ROUND_TRIPS_MS[..1] } else { &ROUND_TRIPS_MS[..] } {
            measure_distant(tools, &world, *round_trip_ms, job, &ways, &mut of_job, &expected).await?;
            progress.report(&format!("{} from {round_trip_ms} ms", job.name()));
        }
        rows.extend(of_job);
    }
    Ok(rows)
}

/// The variants with the positions of their rows, in alternating order, so that none always follows the same
/// one.
fn alternate_variants(ways: &[HostedVariant], round: usize) -> Vec<(usize, &HostedVariant)> {
    let mut ways: Vec<(usize, &HostedVariant)> = ways.iter().enumerate().collect();
    if round % 2 == 1 {
        ways.reverse();
    }
    ways
}

/// Runs all variants without a distance. Returns the response.
async fn measure_local(
    tools: &BenchTools,
    world: &JobServers,
    job: BenchJob,
    ways: &[HostedVariant],
    rows: &mut [JobVariantRow],
) -> Result<Value> {
    let mut expected = None;
    let mut measured: Vec<LocalRounds> = ways.iter().map(|_| LocalRounds::default()).collect();
    for round in 0..=tools.rounds(ROUNDS) {
        for (place, variant) in alternate_variants(ways, round) {
            let server = world.local_server(variant.host)?;
            let (before, calls) = (world.server(variant.host)?.usage()?, world.upstream_calls().await?);
            let time = tools.round_time(if round == 0 { WARM_UP } else { LOCAL_TIME });
            let runs = variant.run_for(job, &server, time).await.with_context(|| variant.name)?;
            let cpu = world.server(variant.host)?.usage()?.cpu.saturating_sub(before.cpu).as_secs_f64();
            let expected = expected.get_or_insert_with(|| runs.answer.clone());
            ensure!(runs.answer == *expected, "{} responds {} and not {expected}", variant.name, runs.answer);
            let (all, calls) = (runs.run_count.max(1) as f64, (world.upstream_calls().await? - calls) as f64);
            if let Some(rounds) = measured.get_mut(place).filter(|_| round > 0) {
                rounds.ms.extend(runs.ms);
                rounds.cpu_us.push(cpu * 1e6 / all);
                rounds.calls = calls / all;
            }
        }
    }
    for ((row, near), way) in rows.iter_mut().zip(measured).zip(ways) {
        row.near_ms = round_to_thousandth(median(&near.ms));
        row.upstream_calls = way.counts_upstream_calls().then_some(near.calls.round());
        (row.cpu_us, row.spread_cpu_us) =
            (round_to_thousandth(median(&near.cpu_us)), round_to_thousandth(spread(&near.cpu_us)));
    }
    expected.context("a job has no variants")
}

/// Runs all variants from a distance over existing connections, and at the usual distance, if they are fast
/// enough, over new ones.
async fn measure_distant(
    tools: &BenchTools,
    world: &JobServers,
    round_trip_ms: u64,
    job: BenchJob,
    ways: &[HostedVariant],
    rows: &mut [JobVariantRow],
    expected: &Value,
) -> Result<()> {
    let hosts = world.distant_servers(round_trip_ms).await?;
    let mut measured: Vec<DistantRounds> = ways.iter().map(|_| DistantRounds::default()).collect();
    for round in 0..tools.rounds(ROUNDS) {
        for (place, variant) in alternate_variants(ways, round) {
            let server = hosts.get(&variant.host).context("a way without a host")?;
            let Some(all) =
                measured.get_mut(place).filter(|all| !all.ms.last().is_some_and(|ms| is_long(*ms)))
            else {
                continue;
            };
            let before = server.traffic();
            let runs = variant.run_times(job, server, 1).await.with_context(|| variant.name)?;
            ensure!(runs.answer == *expected, "{}: a different response: {}", variant.name, runs.answer);
            let traffic = server.traffic() - before;
            all.ms.extend_from_slice(&runs.ms);
            (all.up, all.down) =
                (traffic.up / runs.run_count.max(1) as u64, traffic.down / runs.run_count.max(1) as u64);
            let is_long = runs.ms.last().is_some_and(|ms| is_long(*ms));
            if round_trip_ms == USUAL_MS && !is_long && !matches!(variant.request, BenchJobRequest::Capnweb) {
                all.cold_ms.extend(
                    variant
                        .run_times(job, &server.without_connections(), 1)
                        .await
                        .with_context(|| variant.name)?
                        .ms,
                );
            }
            all.last = runs;
        }
    }
    for (row, DistantRounds { ms, cold_ms, up, down, last }) in rows.iter_mut().zip(measured) {
        (row.requests, row.round_trips) = (last.requests, last.round_trips);
        (row.bytes_up, row.bytes_down, row.gzip_down) = (up, down, down - last.gzip_saves);
        row.ms.insert(distance_key(round_trip_ms), round_to_thousandth(median(&ms)));
        if ms.len() > 1 {
            row.spread_ms.insert(distance_key(round_trip_ms), round_to_thousandth(spread(&ms)));
        }
        row.cold_ms = row.cold_ms.or((!cold_ms.is_empty()).then(|| round_to_thousandth(median(&cold_ms))));
    }
    Ok(())
}

/// The name of a distance in the rows, which sorts correctly.
fn distance_key(round_trip_ms: u64) -> String {
    format!("{round_trip_ms:03}")
}

/// The headline: the latency of a query by program beyond the distance and its latency without a distance, at
/// worst.
fn over_ideal(rows: &[JobVariantRow]) -> Option<(String, HeadlineScore)> {
    let queries = rows.iter().filter(|row| BY_PROGRAM.contains(&row.way));
    let over =
        queries.filter_map(|row| Some(row.ms.get(&distance_key(USUAL_MS))? - USUAL_MS as f64 - row.near_ms));
    let over: Vec<f64> = over.collect();
    let score = HeadlineScore {
        value: over.iter().copied().fold(f64::MIN, f64::max),
        unit: "ms".into(),
        better: BetterDirection::Lower,
        target: Some(10.0),
        against: "93 ms + the same query on loopback".into(),
        spread: spread(&over),
    };
    (!over.is_empty()).then(|| ("demo.over_ideal_ms.worst".to_owned(), score))
}

/// Rounds to a thousandth.
fn round_to_thousandth(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// The elapsed time in milliseconds.
fn elapsed_ms(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e3
}
