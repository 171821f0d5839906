//! Four times what the gateway can do, for a minute: what becomes of those that are let in, and how soon
//! the others are told.
//!
//! A query route, with a program that computes for a millisecond: one core of load can offer four times
//! of that and has time left, so that what is measured is not how the load itself stands in line. The limits are the config's defaults.

use std::time::Duration;

use anyhow::{Result, ensure};
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
    for (load, per_second, time) in
        [("unloaded", capacity * CALM, unloaded), ("overload", capacity * TIMES, minute)]
    {
        let before = server.usage()?.rss;
        let offered = async {
            let client = Client::new(server.address);
            client.open(CONNECTED).await?;
            open::offer_over(client, per_second, time, ask).await
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
    tools.results("overload", &rows, [("gateway.overload.p99_ratio".to_owned(), score)])
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
