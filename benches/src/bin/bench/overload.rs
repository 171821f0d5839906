//! An overload of four times the capacity for a minute: the latency of admitted requests, and of refusals.
//!
//! The load uses a query route and a program that computes for a millisecond: one core of load can offer four
//! times that with time left, so that the load itself does not queue. The limits are the defaults.
//!
//! Also measures loads that must not count as an overload: half of the capacity, and a client with sequential
//! requests while other processes spin on each core.

use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use benches::client::BenchClient;
use benches::programs;
use benches::scoreboard::{BetterDirection, HeadlineScore};
use benches::stats::percentile;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use serde::Serialize;

use crate::BenchTools;
use crate::open_loop::{self, MAX_IN_FLIGHT, OpenLoopOutcome};
use crate::process::{SERVER_CORE, ServerProcess, UNUSED_ADDRESS, allow_open_files};
use crate::progress::BenchProgress;

/// The factor between offered load and capacity.
const OVERLOAD_FACTOR: f64 = 4.0;
/// The share of the capacity that counts as unloaded.
const CALM_SHARE: f64 = 0.1;
const MINUTE: Duration = Duration::from_secs(60);
const CALIBRATION_TIME: Duration = Duration::from_secs(5);
const UNLOADED: Duration = Duration::from_secs(20);
/// The number of clients that saturate the gateway while its capacity is measured: enough for one core, too
/// few for load shedding.
const CLIENTS: usize = 4;
/// Connections that are opened in advance: an overload comes from clients that are connected already. Opening
/// them would take the load's core longer than the measurement, and each waiting request needs one.
const OPEN_CONNECTIONS: usize = MAX_IN_FLIGHT;
/// The share of the capacity that must not be shed.
const MIN_ADMITTED: f64 = 0.5;
/// The processes that spin on each core next to a sequential client, and the number of its requests.
const SPINNERS: usize = 2;
const SEQUENTIAL_REQUESTS: usize = 1_000;
/// The time within which a 503 has to arrive.
const SOON_MS: f64 = 10.0;
const SAMPLE: Duration = Duration::from_millis(200);

#[derive(Serialize)]
struct OverloadRow {
    load: &'static str,
    offered_per_second: f64,
    answered: usize,
    admitted: usize,
    admitted_p50_ms: f64,
    admitted_p99_ms: f64,
    shed: usize,
    shed_p50_ms: f64,
    shed_p99_ms: f64,
    shed_within_10_ms_percent: f64,
    /// Requests with another outcome: an unexpected status, or no response.
    others: usize,
    rss_before_mb: f64,
    rss_highest_mb: f64,
}

pub(crate) fn run(tools: &BenchTools) -> Result<()> {
    let find = tools.round_time(CALIBRATION_TIME);
    let (unloaded, minute) =
        if tools.is_short { (CALIBRATION_TIME, CALIBRATION_TIME) } else { (UNLOADED, MINUTE) };
    let progress = BenchProgress::new(tools, find * 2 + unloaded + minute);
    allow_open_files(MAX_IN_FLIGHT as u64 + 1_000)?;
    let program = Bytes::from(std::fs::read(programs::program_path("work.js"))?);
    let server = ServerProcess::start_orfa(&tools.orfa, SERVER_CORE, UNUSED_ADDRESS)?;
    let ask = || {
        let request = Request::post("/query").header("content-type", "text/javascript");
        Ok(request.body(Full::new(program.clone()))?)
    };
    open_loop::run(open_loop::keep_busy(server.address, CLIENTS, find, ask))??;
    let busy = open_loop::run(open_loop::keep_busy(server.address, CLIENTS, find, ask))??;
    let capacity =
        busy.iter().filter(|outcome| has_status(outcome, StatusCode::OK)).count() as f64 / find.as_secs_f64();
    progress.report(&format!("capacity {capacity:.0} a second"));
    ensure!(capacity > 0.0, "no query was answered: {:?}", busy.first());
    let mut rows = Vec::new();
    for (load, per_second, time) in [
        ("unloaded", capacity * CALM_SHARE, unloaded),
        ("half", capacity * MIN_ADMITTED, minute),
        ("overload", capacity * OVERLOAD_FACTOR, minute),
    ] {
        let before = server.usage()?.rss;
        let offered = async {
            let (client, bench_client) = (BenchClient::new(server.address), BenchClient::new(server.address));
            // Idle connections are closed after a minute, which is the duration of this load, so a request
            // could meet the end of its connection.
            let many = if load == "overload" { &client } else { &bench_client };
            many.open(OPEN_CONNECTIONS).await?;
            let outcomes = open_loop::offer_over(client, per_second, time, ask).await;
            drop(bench_client);
            outcomes
        };
        let (loop_outcomes, highest) =
            open_loop::run(open_loop::with_peak_memory(&server, SAMPLE, offered))??;
        let row = summarize_outcomes(load, per_second, &loop_outcomes?, (before, highest));
        progress.report(&format!(
            "{load}: {:.0} a second offered, {:.1} % admitted, p50 {:.2} ms, p99 {:.2} ms, at most {:.0} MB",
            row.offered_per_second,
            row.admitted as f64 * 100.0 / row.answered.max(1) as f64,
            row.admitted_p50_ms,
            row.admitted_p99_ms,
            row.rss_highest_mb
        ));
        if row.shed + row.others > 0 {
            progress.report(&format!(
                "  {} shed, p50 {:.2} ms, p99 {:.2} ms, {:.2} % within {SOON_MS} ms; {} others",
                row.shed, row.shed_p50_ms, row.shed_p99_ms, row.shed_within_10_ms_percent, row.others
            ));
        }
        rows.push(row);
    }
    rows.push(measure_beside_spinners(
        &server,
        &ask,
        if tools.is_short { SEQUENTIAL_REQUESTS / 20 } else { SEQUENTIAL_REQUESTS },
    )?);
    let shed = |load| rows.iter().find(|row| row.load == load).map_or(0, |row| row.shed + row.others);
    let none = |name: &str, load, against: &str| {
        let score = HeadlineScore {
            value: shed(load) as f64,
            unit: "requests".into(),
            better: BetterDirection::Lower,
            target: Some(0.0),
            against: against.to_owned(),
            spread: 0.0,
        };
        (name.to_owned(), score)
    };
    let scores = [
        none("gateway.shed.half_load", "half", "half of the capacity for a minute"),
        none("gateway.shed.beside_spinners", "beside spinners", "1,000 requests of a sequential client"),
    ];
    let p99 = |load| rows.iter().find(|row| row.load == load).map_or(0.0, |row| row.admitted_p99_ms);
    let score = HeadlineScore {
        value: p99("overload") / p99("unloaded"),
        unit: "ratio".into(),
        better: BetterDirection::Lower,
        target: Some(2.0),
        against: format!(
            "{:.2} ms, p99 at a tenth of the capacity of {capacity:.0} queries a second",
            p99("unloaded")
        ),
        spread: 0.0,
    };
    let scores = scores.into_iter().chain([("gateway.overload.p99_ratio".to_owned(), score)]);
    tools.write_results("overload", &rows, scores)
}

/// A process that spins on a core until it is dropped.
struct SpinnerProcess(Child);

impl SpinnerProcess {
    fn start(core: usize) -> Result<Self> {
        let mut command = Command::new("taskset");
        command.args(["-c", &core.to_string(), "sh", "-c", "while :; do :; done"]);
        Ok(Self(command.spawn().context("`taskset` does not start")?))
    }
}

impl Drop for SpinnerProcess {
    fn drop(&mut self) {
        // A process that has ended already needs no kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The outcomes of sequential requests while other processes occupy the cores.
fn measure_beside_spinners(
    server: &ServerProcess,
    ask: &impl Fn() -> Result<Request<Full<Bytes>>>,
    requests: usize,
) -> Result<OverloadRow> {
    let cores = std::thread::available_parallelism()?.get();
    let before = server.usage()?.rss;
    let spinners: Vec<SpinnerProcess> =
        (0..cores).flat_map(|core| [core; SPINNERS]).map(SpinnerProcess::start).collect::<Result<_>>()?;
    let started = Instant::now();
    let outcomes = open_loop::run(async {
        let client = Arc::new(BenchClient::new(server.address));
        let mut loop_outcomes = Vec::with_capacity(requests);
        for _ in 0..requests {
            loop_outcomes.push(open_loop::send_request(Arc::clone(&client), ask()?, Instant::now()).await);
        }
        anyhow::Ok(loop_outcomes)
    })??;
    let per_second = requests as f64 / started.elapsed().as_secs_f64();
    drop(spinners);
    Ok(summarize_outcomes("beside spinners", per_second, &outcomes, (before, server.usage()?.rss)))
}

fn has_status(outcome: &OpenLoopOutcome, status: StatusCode) -> bool {
    outcome.status == Some(status)
}

fn summarize_outcomes(
    load: &'static str,
    offered_per_second: f64,
    outcomes: &[OpenLoopOutcome],
    (before, highest): (u64, u64),
) -> OverloadRow {
    let times = |status: StatusCode| -> Vec<f64> {
        outcomes
            .iter()
            .filter(|outcome| has_status(outcome, status))
            .map(|loop_outcome| loop_outcome.ms)
            .collect()
    };
    let (admitted, shed) = (times(StatusCode::OK), times(StatusCode::SERVICE_UNAVAILABLE));
    let soon = shed.iter().filter(|ms| **ms <= SOON_MS).count();
    OverloadRow {
        load,
        offered_per_second,
        answered: outcomes.len(),
        admitted: admitted.len(),
        admitted_p50_ms: percentile(&admitted, 50),
        admitted_p99_ms: percentile(&admitted, 99),
        shed: shed.len(),
        shed_p50_ms: percentile(&shed, 50),
        shed_p99_ms: percentile(&shed, 99),
        shed_within_10_ms_percent: soon as f64 * 100.0 / shed.len().max(1) as f64,
        others: outcomes.len() - admitted.len() - shed.len(),
        rss_before_mb: before as f64 / 1e6,
        rss_highest_mb: highest as f64 / 1e6,
    }
}
