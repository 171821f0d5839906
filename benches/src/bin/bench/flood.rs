//! The effect of abusive clients on others: ten thousand distinct programs in a row; a program that spins;
//! and one that allocates 2.5 GB. Meanwhile others send a cached program with one call of 20 ms to a service,
//! at about 30 % of a core. During the flood the gateway has one core. With a program that never ends it has
//! two, as it reserves one of its threads.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use benches::client::BenchClient;
use benches::programs;
use benches::scoreboard::{BetterDirection, HeadlineScore};
use benches::stats::{median, percentile, spread};
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use serde::Serialize;

use crate::cold_programs::distinct_module;
use crate::neighbours::query_request;
use crate::open_loop::{OpenLoopOutcome, offer, run as beside};
use crate::process::{SERVER_CORE, ServerProcess, query_route};
use crate::service::{BenchService, text_response};
use crate::{BenchTools, print_line};

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(2);
/// The maximum rate of the other clients, and the rate at which their cost is measured first.
const MAX_RATE: f64 = 3_000.0;
const INITIAL_RATE: f64 = 500.0;
/// The share of a core that the other clients use.
const LOAD_SHARE: f64 = 0.3;
const SERVICE_DELAY: Duration = Duration::from_millis(20);
/// The number of programs of a flood.
const FLOOD_PROGRAMS: usize = 10_000;
const SPINNING_PROGRAM: &str = "export default () => { for (;;); }";
const GROWING_PROGRAM: &str = "export default () => { const all = []; for (let i = 0; i < 2500; i++) all.push(new Uint8Array(1 << 20).fill(1)) }";

#[derive(Serialize)]
struct FloodRow {
    stranger: &'static str,
    round: usize,
    /// The number of requests of the abusive client, and of those that were refused with 429.
    sent: usize,
    waited: usize,
    alone_p99_ms: f64,
    meanwhile_p99_ms: f64,
    /// The share of a core that the other clients used alone, and their rate.
    load_percent: f64,
    per_second: f64,
}

/// An abusive client: its Nth request, and the allowed statuses.
#[derive(Clone)]
struct AbusiveClient {
    name: &'static str,
    max_requests: usize,
    request: Arc<dyn Fn(usize) -> Result<Request<Full<Bytes>>> + Send + Sync>,
    answers: &'static [u16],
    cores: &'static str,
}

pub(crate) fn run(tools: &BenchTools) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let waits = Bytes::from(std::fs::read(programs::build_program(&tools.orfa, "wait.c", folder.path())?)?);
    let constant = std::fs::read(programs::build_program(&tools.orfa, "constant.c", folder.path())?)?;
    let rows = beside(measure(tools, waits, constant))??;
    tools.write_results(
        "flood",
        &rows,
        [
            score(&rows, &["flood"], "query.flood_p99_added_ms"),
            score(&rows, &["spins", "grows"], "query.spin_p99_added_ms"),
        ],
    )
}

/// The headline for the worst of several abusive clients.
fn score(rows: &[FloodRow], strangers: &[&str], name: &str) -> (String, HeadlineScore) {
    let added = |stranger: &&str| -> Vec<f64> {
        let of = rows.iter().filter(|row| row.stranger == *stranger);
        of.map(|row| row.meanwhile_p99_ms - row.alone_p99_ms).collect()
    };
    let worst =
        strangers.iter().map(added).max_by(|a, b| median(a).total_cmp(&median(b))).unwrap_or_default();
    let per_second = median(&rows.iter().map(|row| row.per_second).collect::<Vec<_>>());
    let against = format!(
        "p99 of others without the stranger, median of five rounds, {per_second:.0} requests a second"
    );
    let (value, spread) = (median(&worst), spread(&worst));
    (
        name.to_owned(),
        HeadlineScore {
            value,
            unit: "ms".into(),
            better: BetterDirection::Lower,
            target: Some(3.0),
            against,
            spread,
        },
    )
}

async fn measure(tools: &BenchTools, waits: Bytes, constant: Vec<u8>) -> Result<Vec<FloodRow>> {
    let service = BenchService::start(SocketAddr::from(([127, 0, 0, 1], 0)), |_| async {
        tokio::time::sleep(SERVICE_DELAY).await;
        text_response("{}")
    })?;
    let strangers = [
        AbusiveClient {
            name: "flood",
            max_requests: FLOOD_PROGRAMS,
            request: Arc::new(move |number| {
                query_request("application/wasm", distinct_module(&constant, number as u64))
            }),
            answers: &[200, 429],
            cores: SERVER_CORE,
        },
        endless_client("spins", SPINNING_PROGRAM),
        endless_client("grows", GROWING_PROGRAM),
    ];
    let mut rows = Vec::new();
    for round in 0..ROUNDS {
        for stranger in &strangers {
            // A fresh gateway per round: an earlier flood must not have used up the quota.
            let server =
                ServerProcess::start_gateway(&tools.orfa, stranger.cores, &query_route(service.address))?;
            let per_second = calibrate_rate(&server, &waits).await?;
            let before = server.usage()?;
            let alone = others_p99(&server, &waits, per_second, ROUND).await?;
            let load_percent = (server.usage()?.cpu - before.cpu).as_secs_f64() / ROUND.as_secs_f64() * 100.0;
            let (stop, sent, waited) = (Arc::new(AtomicBool::new(false)), Arc::default(), Arc::default());
            let pest = spawn_abuser(server.address, stranger.clone(), &stop, &sent, &waited);
            let meanwhile = others_p99(&server, &waits, per_second, ROUND).await?;
            stop.store(true, Relaxed);
            pest.join().map_err(|_| anyhow!("the abusive client panicked"))??;
            let row = FloodRow {
                stranger: stranger.name,
                round,
                sent: sent.load(Relaxed),
                waited: waited.load(Relaxed),
                alone_p99_ms: alone,
                meanwhile_p99_ms: meanwhile,
                load_percent,
                per_second,
            };
            print_line(&format!(
                "  {:<6} p99 {:>6.2} ms alone ({:.0} % load, {:.0} a second), {:>6.2} ms beside {} requests, {} of them refused with 429",
                row.stranger,
                row.alone_p99_ms,
                row.load_percent,
                row.per_second,
                row.meanwhile_p99_ms,
                row.sent,
                row.waited
            ));
            rows.push(row);
        }
    }
    Ok(rows)
}

/// A client that repeatedly sends a program that ends at a limit.
fn endless_client(name: &'static str, source: &'static str) -> AbusiveClient {
    let request = move |_: usize| query_request("text/javascript", Bytes::from_static(source.as_bytes()));
    AbusiveClient {
        name,
        max_requests: usize::MAX,
        request: Arc::new(request),
        answers: &[422],
        cores: "0,1",
    }
}

/// Warms a server up, and returns the rate of the other clients that causes the intended load on this
/// machine.
async fn calibrate_rate(server: &ServerProcess, program: &Bytes) -> Result<f64> {
    const WARM_UP: Duration = Duration::from_secs(1);
    others_p99(server, program, INITIAL_RATE, WARM_UP / 2).await?;
    let before = server.usage()?.cpu;
    others_p99(server, program, INITIAL_RATE, WARM_UP).await?;
    let share = (server.usage()?.cpu - before).as_secs_f64() / WARM_UP.as_secs_f64();
    Ok((INITIAL_RATE * LOAD_SHARE / share.max(f64::EPSILON)).min(MAX_RATE))
}

/// The p99 of the other clients in ms. Fails unless practically all requests are answered.
async fn others_p99(server: &ServerProcess, program: &Bytes, per_second: f64, time: Duration) -> Result<f64> {
    let request = || query_request("application/wasm", program.clone());
    let outcomes = offer(server.address, per_second, time, request).await?;
    let is_good = |outcome: &&OpenLoopOutcome| outcome.status == Some(StatusCode::OK);
    let good: Vec<f64> = outcomes.iter().filter(is_good).map(|loop_outcome| loop_outcome.ms).collect();
    let refused = outcomes.len() - good.len();
    ensure!(refused * 1000 <= outcomes.len(), "{refused} of {} were not answered", outcomes.len());
    Ok(percentile(&good, 99))
}

/// Sends the requests of an abusive client one after the other until it is stopped, on a thread of its own.
fn spawn_abuser(
    address: SocketAddr,
    stranger: AbusiveClient,
    stop: &Arc<AtomicBool>,
    sent: &Arc<AtomicUsize>,
    waited: &Arc<AtomicUsize>,
) -> std::thread::JoinHandle<Result<()>> {
    let (stop, sent, waited) = (Arc::clone(stop), Arc::clone(sent), Arc::clone(waited));
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let client = BenchClient::new(address);
            for number in 0..stranger.max_requests {
                if stop.load(Relaxed) {
                    break;
                }
                let answer = client.send((stranger.request)(number)?).await?;
                let status = answer.status.as_u16();
                ensure!(stranger.answers.contains(&status), "{} was answered {status}", stranger.name);
                sent.fetch_add(1, Relaxed);
                waited.fetch_add(usize::from(status == 429), Relaxed);
            }
            Ok(())
        })
    })
}
