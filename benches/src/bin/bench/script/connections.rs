//! Open connections with a concurrent request on each.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use benches::client::{BenchClient, BenchResponse, ClientError};
use benches::programs::program_path;
use benches::scoreboard::{BetterDirection, HeadlineScore};
use bytes::Bytes;
use futures_util::future::join_all;
use http::Request;
use http_body_util::Full;
use serde::Serialize;

use super::servers::{ALL_CORES, ScriptGateway};
use crate::process::allow_open_files;
use crate::progress::BenchProgress;
use crate::ratios::NamedScore;
use crate::{BenchTools, open_loop};

const CONNECTIONS: usize = 2_000;
/// The number of requests on each connection.
const TURNS: usize = 10;
/// The pause before each request.
const REQUEST_PAUSE: Duration = Duration::from_millis(500);
const SAMPLE: Duration = Duration::from_millis(20);

#[derive(Serialize)]
pub(super) struct ConnectionsRow {
    connections: usize,
    requests: usize,
    errors: usize,
    start_rss_mb: f64,
    highest_rss_mb: f64,
}

pub(super) fn run(
    tools: &BenchTools,
    service: SocketAddr,
    progress: &BenchProgress,
) -> Result<(ConnectionsRow, Vec<NamedScore>)> {
    allow_open_files(CONNECTIONS as u64 + 1_000)?;
    // The clients share the cores with the gateway, so its threads wait longer than its limit of 50 ms, and
    // load shedding would be justified. This bench measures whether all connections are served, as by servers
    // without load shedding.
    let scripted = ScriptGateway {
        cores: ALL_CORES,
        sheds_load: false,
        ..ScriptGateway::new(program_path("handlers.sjs"), service)
    };
    let server = scripted.start(tools)?;
    let start = server.usage()?.rss;
    let work = open_loop::with_peak_memory(&server, SAMPLE, send_requests(server.address));
    let (answered, highest) = open_loop::run_anywhere(work)??;
    let bad = answered?;
    if let Some(first) = bad.first() {
        progress.report(&format!("the first error: {first}"));
    }
    let errors = bad.len();
    let (start_rss_mb, highest_rss_mb) = (start as f64 / 1e6, highest as f64 / 1e6);
    progress.report(&format!("{CONNECTIONS} connections: {errors} errors, {highest_rss_mb:.0} MB at most"));
    let row = ConnectionsRow {
        connections: CONNECTIONS,
        requests: CONNECTIONS * TURNS,
        errors,
        start_rss_mb,
        highest_rss_mb,
    };
    let score = |value, unit: &str, target, against| HeadlineScore {
        value,
        unit: unit.into(),
        better: BetterDirection::Lower,
        target: Some(target),
        against,
        spread: 0.0,
    };
    let against = format!("all processes, {CONNECTIONS} busy connections; {start_rss_mb:.0} MB after start");
    let memory = score(highest_rss_mb, "MB", 400.0, against);
    let errors =
        score(errors as f64, "requests", 0.0, format!("{} on {CONNECTIONS} connections", row.requests));
    let headlines = [("script.connections.rss_mb", memory), ("script.connections.errors", errors)];
    Ok((row, headlines.map(|(name, score)| (name.to_owned(), score)).into()))
}

/// Sends a request on all connections at once, several times. Returns descriptions of unsuccessful responses.
async fn send_requests(server: SocketAddr) -> Result<Vec<String>> {
    let client = BenchClient::new(server);
    client.open(CONNECTIONS).await?;
    let mut bad = Vec::new();
    for _ in 0..TURNS {
        // The pauses make each round a burst, without an average load that has to be shed.
        tokio::time::sleep(REQUEST_PAUSE).await;
        let request = || Request::get("/hello").body(Full::<Bytes>::default());
        let requests = (0..CONNECTIONS).map(|_| request()).collect::<Result<Vec<_>, _>>()?;
        let answers = join_all(requests.into_iter().map(|request| client.send(request))).await;
        bad.extend(answers.into_iter().filter_map(describe_failure));
    }
    Ok(bad)
}

/// A description of an unsuccessful response.
fn describe_failure(answer: Result<BenchResponse, ClientError>) -> Option<String> {
    match answer {
        Ok(answer) if answer.status == 200 => None,
        Ok(answer) => Some(format!("{} {}", answer.status, String::from_utf8_lossy(&answer.body))),
        Err(error) => Some(error.to_string()),
    }
}
