//! Connections that are held open, with a request on each at the same time.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use benches::client::{Answer, Client, Error};
use benches::programs::program;
use benches::scoreboard::{Better, Score};
use bytes::Bytes;
use futures_util::future::join_all;
use http::Request;
use http_body_util::Full;
use serde::Serialize;

use super::servers::{ALL_CORES, Scripted};
use crate::process::allow_open_files;
use crate::progress::Progress;
use crate::ratios::Headline;
use crate::{Tools, open};

const CONNECTIONS: usize = 2_000;
/// Requests on each of them.
const TURNS: usize = 10;
/// Before each of them.
const BREATH: Duration = Duration::from_millis(500);
const SAMPLE: Duration = Duration::from_millis(20);

#[derive(Serialize)]
pub(super) struct Row {
    connections: usize,
    requests: usize,
    errors: usize,
    start_rss_mb: f64,
    highest_rss_mb: f64,
}

pub(super) fn run(tools: &Tools, service: SocketAddr, progress: &Progress) -> Result<(Row, Vec<Headline>)> {
    allow_open_files(CONNECTIONS as u64 + 1_000)?;
    // Those who ask have the same cores as the gateway, whose threads so wait for longer than its 50 ms: it would be right
    // to refuse some. What is asked here is whether all are held and answered, as servers do that refuse nobody.
    let scripted =
        Scripted { cores: ALL_CORES, sheds: false, ..Scripted::by(program("handlers.sjs"), service) };
    let server = scripted.start(tools)?;
    let start = server.usage()?.rss;
    let work = open::with_highest(&server, SAMPLE, ask(server.address));
    let (answered, highest) = open::run_anywhere(work)??;
    let bad = answered?;
    if let Some(first) = bad.first() {
        progress.say(&format!("the first error: {first}"));
    }
    let errors = bad.len();
    let (start_rss_mb, highest_rss_mb) = (start as f64 / 1e6, highest as f64 / 1e6);
    progress.say(&format!("{CONNECTIONS} connections: {errors} errors, {highest_rss_mb:.0} MB at most"));
    let row =
        Row { connections: CONNECTIONS, requests: CONNECTIONS * TURNS, errors, start_rss_mb, highest_rss_mb };
    let score = |value, unit: &str, target, against| Score {
        value,
        unit: unit.into(),
        better: Better::Lower,
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

/// Asks on all connections at once, turn by turn; what came in place of a good answer.
async fn ask(server: SocketAddr) -> Result<Vec<String>> {
    let client = Client::new(server);
    client.open(CONNECTIONS).await?;
    let mut bad = Vec::new();
    for _ in 0..TURNS {
        // So that each turn is a burst, and all of them no load that would have to be shed.
        tokio::time::sleep(BREATH).await;
        let request = || Request::get("/hello").body(Full::<Bytes>::default());
        let requests = (0..CONNECTIONS).map(|_| request()).collect::<Result<Vec<_>, _>>()?;
        let answers = join_all(requests.into_iter().map(|request| client.send(request))).await;
        bad.extend(answers.into_iter().filter_map(problem));
    }
    Ok(bad)
}

/// What is wrong with an answer.
fn problem(answer: Result<Answer, Error>) -> Option<String> {
    match answer {
        Ok(answer) if answer.status == 200 => None,
        Ok(answer) => Some(format!("{} {}", answer.status, String::from_utf8_lossy(&answer.body))),
        Err(error) => Some(error.to_string()),
    }
}
