//! Four times what the gateway can do, for a minute: what becomes of those that are let in, and how soon
//! the others are told.
//!
//! A query route, with a program that computes for a millisecond: one core of load can offer four times
//! of that and has time left, so that what is measured is not how the load itself stands in line. The limits are the config's defaults.
//!
//! And what must not be taken for an overload: half of what it can do, and a client that asks one thing after the other
//! while other processes spin on each core.

use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use benches::client::Client;
use benches::programs;
use benches::scoreboard::{Better, Score};
use benches::stats::percentile;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use serde::Serialize;

use crate::Tools;
use crate::open::{self, Answered, MOST_UNDER_WAY};
use crate::process::{NOBODY, SERVER_CORE, Server, allow_open_files};
use crate::progress::Progress;

/// How much more is offered than can be done.
const TIMES: f64 = 4.0;
/// How much of it is offered for "unloaded".
const CALM: f64 = 0.1;
const MINUTE: Duration = Duration::from_secs(60);
const FIND: Duration = Duration::from_secs(5);
const UNLOADED: Duration = Duration::from_secs(20);
/// Clients that keep the gateway busy while its capacity is found: enough for one core, too few to be shed.
const CLIENTS: usize = 4;
/// Connections that stand before: an overload comes from clients that were there already. To connect them
/// takes the load's one core longer than anything that is measured, and each request that waits needs one.
const CONNECTED: usize = MOST_UNDER_WAY;
/// How much is offered that must not be shed.
const HALF: f64 = 0.5;
/// Processes that spin on each core beside a sequential client, and its requests.
const SPINNERS: usize = 2;
const SEQUENTIAL: usize = 1_000;
/// How soon a 503 has to come.
const SOON_MS: f64 = 10.0;
const SAMPLE: Duration = Duration::from_millis(200);

#[derive(Serialize)]
struct Row {
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
    /// Neither answered well nor 503, or not answered at all.
    others: usize,
    rss_before_mb: f64,
    rss_highest_mb: f64,
}

pub(crate) fn run(tools: &Tools) -> Result<()> {
    let find = tools.time(FIND);
    let (unloaded, minute) = if tools.is_short { (FIND, FIND) } else { (UNLOADED, MINUTE) };
    let progress = Progress::new(tools, find * 2 + unloaded + minute);
    allow_open_files(MOST_UNDER_WAY as u64 + 1_000)?;
    let program = Bytes::from(std::fs::read(programs::program("work.js"))?);
    let server = Server::orfa(&tools.orfa, SERVER_CORE, NOBODY)?;
    let ask = || {
        let request = Request::post("/query").header("content-type", "text/javascript");
        Ok(request.body(Full::new(program.clone()))?)
    };
    open::run(open::keep_busy(server.address, CLIENTS, find, ask))??;
    let busy = open::run(open::keep_busy(server.address, CLIENTS, find, ask))??;
    let capacity =
        busy.iter().filter(|answered| is(answered, StatusCode::OK)).count() as f64 / find.as_secs_f64();
    progress.say(&format!("capacity {capacity:.0} a second"));
    ensure!(capacity > 0.0, "no query was answered: {:?}", busy.first());
    let mut rows = Vec::new();
    for (load, per_second, time) in [
        ("unloaded", capacity * CALM, unloaded),
        ("half", capacity * HALF, minute),
        ("overload", capacity * TIMES, minute),
    ] {
        let before = server.usage()?.rss;
        let offered = async {
            let (client, beside) = (Client::new(server.address), Client::new(server.address));
            // An idle connection ends after a minute, as this load does: a request would meet the end of its own.
            let many = if load == "overload" { &client } else { &beside };
            many.open(CONNECTED).await?;
            let answered = open::offer_over(client, per_second, time, ask).await;
            drop(beside);
            answered
        };
        let (answered, highest) = open::run(open::with_highest(&server, SAMPLE, offered))??;
        let row = row(load, per_second, &answered?, (before, highest));
        progress.say(&format!(
            "{load}: {:.0} a second offered, {:.1} % admitted, p50 {:.2} ms, p99 {:.2} ms, at most {:.0} MB",
            row.offered_per_second,
            row.admitted as f64 * 100.0 / row.answered.max(1) as f64,
            row.admitted_p50_ms,
            row.admitted_p99_ms,
            row.rss_highest_mb
        ));
        if row.shed + row.others > 0 {
            progress.say(&format!(
                "  {} shed, p50 {:.2} ms, p99 {:.2} ms, {:.2} % within {SOON_MS} ms; {} others",
                row.shed, row.shed_p50_ms, row.shed_p99_ms, row.shed_within_10_ms_percent, row.others
            ));
        }
        rows.push(row);
    }
    rows.push(beside_spinners(&server, &ask, if tools.is_short { SEQUENTIAL / 20 } else { SEQUENTIAL })?);
    let shed = |load| rows.iter().find(|row| row.load == load).map_or(0, |row| row.shed + row.others);
    let none = |name: &str, load, against: &str| {
        let score = Score {
            value: shed(load) as f64,
            unit: "requests".into(),
            better: Better::Lower,
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
    let score = Score {
        value: p99("overload") / p99("unloaded"),
        unit: "ratio".into(),
        better: Better::Lower,
        target: Some(2.0),
        against: format!(
            "{:.2} ms, p99 at a tenth of the capacity of {capacity:.0} queries a second",
            p99("unloaded")
        ),
        spread: 0.0,
    };
    let scores = scores.into_iter().chain([("gateway.overload.p99_ratio".to_owned(), score)]);
    tools.results("overload", &rows, scores)
}

/// A process that spins on a core until this is dropped.
struct Spinner(Child);

impl Spinner {
    fn start(core: usize) -> Result<Self> {
        let mut command = Command::new("taskset");
        command.args(["-c", &core.to_string(), "sh", "-c", "while :; do :; done"]);
        Ok(Self(command.spawn().context("`taskset` does not start")?))
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        // One that has ended by itself needs no end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What becomes of so many requests, one after the other, while others have the cores.
fn beside_spinners(
    server: &Server,
    ask: &impl Fn() -> Result<Request<Full<Bytes>>>,
    requests: usize,
) -> Result<Row> {
    let cores = std::thread::available_parallelism()?.get();
    let before = server.usage()?.rss;
    let spinners: Vec<Spinner> =
        (0..cores).flat_map(|core| [core; SPINNERS]).map(Spinner::start).collect::<Result<_>>()?;
    let started = Instant::now();
    let answered = open::run(async {
        let client = Arc::new(Client::new(server.address));
        let mut answered = Vec::with_capacity(requests);
        for _ in 0..requests {
            answered.push(open::ask(Arc::clone(&client), ask()?, Instant::now()).await);
        }
        anyhow::Ok(answered)
    })??;
    let per_second = requests as f64 / started.elapsed().as_secs_f64();
    drop(spinners);
    Ok(row("beside spinners", per_second, &answered, (before, server.usage()?.rss)))
}

fn is(answered: &Answered, status: StatusCode) -> bool {
    answered.status == Some(status)
}

fn row(
    load: &'static str,
    offered_per_second: f64,
    answered: &[Answered],
    (before, highest): (u64, u64),
) -> Row {
    let times = |status: StatusCode| -> Vec<f64> {
        answered.iter().filter(|answered| is(answered, status)).map(|answered| answered.ms).collect()
    };
    let (admitted, shed) = (times(StatusCode::OK), times(StatusCode::SERVICE_UNAVAILABLE));
    let soon = shed.iter().filter(|ms| **ms <= SOON_MS).count();
    Row {
        load,
        offered_per_second,
        answered: answered.len(),
        admitted: admitted.len(),
        admitted_p50_ms: percentile(&admitted, 50),
        admitted_p99_ms: percentile(&admitted, 99),
        shed: shed.len(),
        shed_p50_ms: percentile(&shed, 50),
        shed_p99_ms: percentile(&shed, 99),
        shed_within_10_ms_percent: soon as f64 * 100.0 / shed.len().max(1) as f64,
        others: answered.len() - admitted.len() - shed.len(),
        rss_before_mb: before as f64 / 1e6,
        rss_highest_mb: highest as f64 / 1e6,
    }
}
