//! The effect of bad input from one client on others: a light, steady load of queries is measured alone, and
//! again while an abusive client sends one kind of bad input after the other.
//!
//! The other clients' requests are sent when they are due, whether earlier ones are answered or not, and
//! their time counts from then, so that a gateway that stalls can't hide it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use benches::client::BenchClient;
use benches::programs;
use benches::scoreboard::{BetterDirection, HeadlineScore};
use benches::stats::{median, percentile, spread};
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use serde::Serialize;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;

use crate::process::{ServerProcess, UNUSED_ADDRESS};
use crate::{BenchTools, print_line};

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(1200);
const QUERY_INTERVAL: Duration = Duration::from_millis(4);
/// The other clients have the highest priority, as if they had machines of their own (only as root), and the
/// abusive client the lowest, so that the gateway alone is measured.
const HIGHEST_PRIORITY: i32 = -20;
const LOWEST_PRIORITY: i32 = 19;

/// A kind of bad input: its name, its content type, its bytes.
#[derive(Clone)]
struct BadInput {
    name: &'static str,
    content_type: &'static str,
    body: Bytes,
}

#[derive(Serialize)]
struct NeighboursRow {
    stranger: &'static str,
    round: usize,
    sent: usize,
    alone_p99_ms: f64,
    meanwhile_p99_ms: f64,
}

pub(crate) fn run(tools: &BenchTools) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let good =
        Bytes::from(std::fs::read(programs::build_program(&tools.orfa, "constant.c", folder.path())?)?);
    let server = ServerProcess::start_orfa(&tools.orfa, "0,1", UNUSED_ADDRESS)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .on_thread_start(|| _ = rustix::process::setpriority_process(None, HIGHEST_PRIORITY))
        .enable_all()
        .build()?;
    let rows = runtime.block_on(measure(&server, &good))?;
    let added: Vec<(&str, f64)> = input_names(&rows).map(|name| (name, added_p99(&rows, name))).collect();
    added
        .iter()
        .for_each(|(name, added)| print_line(&format!("  {name:<18} p99 of others {added:>+6.2} ms")));
    let worst = added.iter().map(|(_, added)| *added).fold(f64::MIN, f64::max);
    let all: Vec<f64> = added.iter().map(|(_, added)| *added).collect();
    let against = format!("the same load without the stranger, median of {ROUNDS} rounds, worst kind");
    let score = HeadlineScore {
        value: worst,
        unit: "ms".into(),
        better: BetterDirection::Lower,
        target: Some(3.0),
        against,
        spread: spread(&all),
    };
    tools.write_results("neighbours", &rows, [("query.bad_input_p99_added_ms.worst".to_owned(), score)])
}

fn input_names(rows: &[NeighboursRow]) -> impl Iterator<Item = &'static str> + '_ {
    rows.iter().filter(|row| row.round == 0).map(|row| row.stranger)
}

fn added_p99(rows: &[NeighboursRow], name: &str) -> f64 {
    let of = rows.iter().filter(|row| row.stranger == name);
    median(&of.map(|row| row.meanwhile_p99_ms - row.alone_p99_ms).collect::<Vec<_>>())
}

/// The kinds of bad input.
fn bad_inputs(good: &Bytes) -> Vec<BadInput> {
    let program = |name, text: &'static str| BadInput {
        name,
        content_type: "text/javascript",
        body: Bytes::from_static(text.as_bytes()),
    };
    vec![
        program("spins", "export default () => { while (true) {} }"),
        program("loops in promises", "export default async () => { for (;;) await null; }"),
        program("recurses", "function f() { return f() + 1 } export default f"),
        program(
            "allocates",
            "export default () => { const a = []; for (;;) a.push(new Uint8Array(1 << 16).fill(1)) }",
        ),
        program("does not parse", "export default ((("),
        BadInput {
            name: "is truncated",
            content_type: "application/wasm",
            body: good.slice(..good.len() / 2),
        },
        BadInput { name: "is too large", content_type: "application/wasm", body: vec![0; 8 << 20].into() },
    ]
}

async fn measure(server: &ServerProcess, good: &Bytes) -> Result<Vec<NeighboursRow>> {
    let client = Arc::new(BenchClient::new(server.address));
    let strangers = bad_inputs(good);
    measure_neighbours(&client, good, Duration::from_millis(500)).await?;
    let mut rows = Vec::new();
    for round in 0..ROUNDS {
        for stranger in &strangers {
            let alone = measure_neighbours(&client, good, ROUND).await?;
            let pest = spawn_abuser(server.address, stranger.clone());
            let meanwhile = measure_neighbours(&client, good, ROUND).await?;
            let sent = pest.join().map_err(|_| anyhow!("the abusive client panicked"))??;
            let (alone_p99_ms, meanwhile_p99_ms) = (percentile(&alone, 99), percentile(&meanwhile, 99));
            rows.push(NeighboursRow { stranger: stranger.name, round, sent, alone_p99_ms, meanwhile_p99_ms });
        }
    }
    Ok(rows)
}

/// Sends a query every few milliseconds. Returns the time of each since it was due.
async fn measure_neighbours(client: &Arc<BenchClient>, program: &Bytes, time: Duration) -> Result<Vec<f64>> {
    let (mut due, mut under_way, mut took) = (query_times(time), JoinSet::new(), Vec::new());
    while let Some(due) = due.recv().await {
        let (client, request) = (Arc::clone(client), query_request("application/wasm", program.clone())?);
        under_way.spawn(async move {
            let answer = client.send(request).await?;
            ensure!(answer.status.is_success(), "{}", String::from_utf8_lossy(&answer.body));
            Ok(due.elapsed().as_secs_f64() * 1e3)
        });
    }
    while let Some(one) = under_way.join_next().await {
        took.push(one??);
    }
    Ok(took)
}

/// Sends the times at which queries are due. A thread's sleep has a resolution of a tenth of a millisecond,
/// whereas tokio's timer rounds up to whole ones, which would distort the measurement.
fn query_times(time: Duration) -> UnboundedReceiver<Instant> {
    let (say, due) = unbounded_channel();
    std::thread::spawn(move || {
        let _ = rustix::process::setpriority_process(None, HIGHEST_PRIORITY);
        let (mut next, end) = (Instant::now(), Instant::now() + time);
        while next < end && say.send(next).is_ok() {
            next += QUERY_INTERVAL;
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    });
    due
}

/// Sends bad input repeatedly, on a thread of its own, so that the cost of the abusive client itself is not
/// attributed to the gateway. Returns the number of requests.
fn spawn_abuser(address: SocketAddr, stranger: BadInput) -> JoinHandle<Result<usize>> {
    std::thread::spawn(move || {
        rustix::process::setpriority_process(None, LOWEST_PRIORITY)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(send_bad_input(&BenchClient::new(address), &stranger))
    })
}

async fn send_bad_input(client: &BenchClient, stranger: &BadInput) -> Result<usize> {
    let (end, mut sent) = (Instant::now() + ROUND, 0);
    while Instant::now() < end {
        // A body that is too large may be refused before it is sent completely.
        if let Ok(answer) = client.send(query_request(stranger.content_type, stranger.body.clone())?).await {
            let refused = answer.status.is_client_error() && answer.status != StatusCode::NOT_FOUND;
            ensure!(refused, "{} was answered {}", stranger.name, answer.status);
        }
        sent += 1;
    }
    Ok(sent)
}

/// A request that sends a query.
pub(crate) fn query_request(content_type: &str, body: Bytes) -> Result<Request<Full<Bytes>>> {
    Ok(Request::post("/query").header("content-type", content_type).body(Full::new(body))?)
}
