//! A hundred reloads by SIGHUP and ten replacements of the binary under load: no request may fail, and none
//! may be answered with a mixture of two configs.
//!
//! The two alternating configs differ in the service of the route and in a header that the gateway adds for
//! it. The service responds with its own name and the header: a response with two different names is mixed.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use benches::client::BenchClient;
use benches::scoreboard::{BetterDirection, HeadlineScore};
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use rustix::process::Signal;
use serde::Serialize;
use tokio::task::JoinSet;

use crate::process::{SERVER_CORE, ServerProcess};
use crate::progress::BenchProgress;
use crate::service::{BenchService, BenchServiceResponse, text_response};
use crate::{BenchTools, open_loop};

const RELOADS: usize = 100;
const CHANGES: usize = 10;
/// The number of clients with sequential requests.
const CLIENTS: usize = 16;
/// The latency of every hundredth request, so that some are always in flight.
const SLOW_LATENCY: Duration = Duration::from_millis(300);
const PAUSE: Duration = Duration::from_millis(100);
const RELOAD_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Serialize)]
struct ReloadRow {
    what: &'static str,
    times: usize,
    requests: u64,
    failed: u64,
    mixed: u64,
    longest_ms: f64,
}

#[derive(Default)]
struct ReloadCounts {
    is_over: AtomicBool,
    requests: AtomicU64,
    failed: AtomicU64,
    mixed: AtomicU64,
    longest_us: AtomicU64,
}

pub(crate) fn run(tools: &BenchTools) -> Result<()> {
    let (reloads, changes) = if tools.is_short { (10, 2) } else { (RELOADS, CHANGES) };
    let progress =
        BenchProgress::new(tools, PAUSE * 2 * reloads as u32 + Duration::from_secs(2) * changes as u32);
    let rows = open_loop::run(measure(tools, reloads, changes, &progress))??;
    let bad = rows.iter().map(|row| row.failed + row.mixed).sum::<u64>();
    let requests = rows.iter().map(|row| row.requests).sum::<u64>();
    let score = HeadlineScore {
        value: bad as f64,
        unit: "requests".into(),
        better: BetterDirection::Lower,
        target: Some(0.0),
        against: format!(
            "failed or mixed, of {requests}, over {reloads} reloads and {changes} changes of the binary"
        ),
        spread: 0.0,
    };
    tools.write_results("reload", &rows, [("gateway.reload.failed".to_owned(), score)])
}

/// The results of reloads that change a filter's configuration.
pub(crate) struct FilterReloads {
    pub(crate) times: usize,
    pub(crate) requests: u64,
    pub(crate) failed_or_mixed: u64,
    /// The memory that the second half of the reloads added to the gateway.
    pub(crate) growth_mb: f64,
}

/// Reloads where a filter with this module sets the header: `programs/name.wat`.
pub(crate) fn measure_filter_reloads(tools: &BenchTools, module: &Path) -> Result<FilterReloads> {
    let times = if tools.is_short { 10 } else { RELOADS };
    let progress = BenchProgress::new(tools, PAUSE * 2 * times as u32);
    open_loop::run(async {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (service, other) = (
            BenchService::start(any, |request| serve_request("one", request))?,
            BenchService::start(any, |request| serve_request("other", request))?,
        );
        let configs = [with_filter("one", &service, module), with_filter("other", &other, module)];
        let server = ServerProcess::start_gateway(&tools.orfa, SERVER_CORE, &configs[0])?;
        let tally = Arc::<ReloadCounts>::default();
        let load = spawn_clients(server.address, &tally);
        reload(&server, &configs, times / 2).await?;
        let before = server.usage()?.rss;
        reload(&server, &configs, times / 2).await?;
        let growth_mb = (server.usage()?.rss as f64 - before as f64) / 1e6;
        let row = summarize_tally("reloads of a filter", times, tally, load, &progress).await?;
        Ok(FilterReloads {
            times,
            requests: row.requests,
            failed_or_mixed: row.failed + row.mixed,
            growth_mb,
        })
    })?
}

/// Alternates between two configs.
async fn reload(server: &ServerProcess, configs: &[String; 2], times: usize) -> Result<()> {
    for number in 1..=times {
        let (name, yaml) = [("one", &configs[0]), ("other", &configs[1])][number % 2];
        server.rewrite(yaml)?;
        server.signal(Signal::HUP)?;
        wait_for_config(server.address, name).await?;
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

async fn measure(
    tools: &BenchTools,
    reloads: usize,
    changes: usize,
    progress: &BenchProgress,
) -> Result<Vec<ReloadRow>> {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let (service, other) = (
        BenchService::start(any, |request| serve_request("one", request))?,
        BenchService::start(any, |request| serve_request("other", request))?,
    );
    let configs = [config("one", &service), config("other", &other)];
    let mut server = ServerProcess::start_gateway(&tools.orfa, SERVER_CORE, &configs[0])?;
    let mut rows = Vec::new();
    let tally = Arc::<ReloadCounts>::default();
    let load = spawn_clients(server.address, &tally);
    reload(&server, &configs, reloads).await?;
    rows.push(summarize_tally("reloads", reloads, tally, load, progress).await?);
    let tally = Arc::<ReloadCounts>::default();
    let load = spawn_clients(server.address, &tally);
    for _ in 0..changes {
        server.start_successor().await?;
        tokio::time::sleep(PAUSE).await;
    }
    rows.push(summarize_tally("changes of the binary", changes, tally, load, progress).await?);
    Ok(rows)
}

/// A config of one route to one service, with the service's name as a header of every request.
fn config(name: &str, service: &BenchService) -> String {
    format!(
        "takeover: takeover.sock\ndrain: {{ delay: 500ms, timeout: 10s }}\n\
         services: {{ service: {{ url: 'http://{}', headers: {{ x-config: {name} }} }} }}\n\
         routes:\n  - path: /*\n    proxy: service\n",
        service.address
    )
}

/// Like `config`, with a filter that sets the header.
fn with_filter(name: &str, service: &BenchService, module: &Path) -> String {
    format!(
        "services: {{ service: {{ url: 'http://{}' }} }}\n\
         routes:\n  - path: /*\n    proxy: service\n    filters: [{{ wasm: '{}', config: {name} }}]\n",
        service.address,
        module.display()
    )
}

/// Responds with the service's own name, and the name that the gateway set.
async fn serve_request(name: &'static str, request: Request<Incoming>) -> BenchServiceResponse {
    if request.uri().path() == "/slow" {
        tokio::time::sleep(SLOW_LATENCY).await;
    }
    let configured =
        request.headers().get("x-config").and_then(|value| value.to_str().ok()).unwrap_or("nothing");
    text_response(format!("{name} {configured}"))
}

fn spawn_clients(address: SocketAddr, tally: &Arc<ReloadCounts>) -> JoinSet<Result<()>> {
    let client = Arc::new(BenchClient::new(address));
    let mut clients = JoinSet::new();
    (0..CLIENTS).for_each(|_| _ = clients.spawn(send_requests(Arc::clone(&client), Arc::clone(tally))));
    clients
}

async fn send_requests(client: Arc<BenchClient>, tally: Arc<ReloadCounts>) -> Result<()> {
    while !tally.is_over.load(Relaxed) {
        let number = tally.requests.fetch_add(1, Relaxed);
        let path = if number.is_multiple_of(100) { "/slow" } else { "/" };
        let began = Instant::now();
        let answer = client.send(Request::get(path).body(Full::default())?).await;
        tally.longest_us.fetch_max(began.elapsed().as_micros() as u64, Relaxed);
        match answer {
            Ok(answer) if answer.status == StatusCode::OK => {
                let is_whole = answer.body == "one one" || answer.body == "other other";
                tally.mixed.fetch_add(u64::from(!is_whole), Relaxed);
            }
            _ => _ = tally.failed.fetch_add(1, Relaxed),
        }
    }
    Ok(())
}

async fn summarize_tally(
    what: &'static str,
    times: usize,
    tally: Arc<ReloadCounts>,
    load: JoinSet<Result<()>>,
    progress: &BenchProgress,
) -> Result<ReloadRow> {
    tally.is_over.store(true, Relaxed);
    load.join_all().await.into_iter().collect::<Result<()>>()?;
    let read = |count: &AtomicU64| count.load(Relaxed);
    let row = ReloadRow {
        what,
        times,
        requests: read(&tally.requests),
        failed: read(&tally.failed),
        mixed: read(&tally.mixed),
        longest_ms: read(&tally.longest_us) as f64 / 1e3,
    };
    progress.report(&format!(
        "{times} {what}: {} requests, {} failed, {} mixed, the longest took {:.0} ms",
        row.requests, row.failed, row.mixed, row.longest_ms
    ));
    Ok(row)
}

/// Waits until the gateway uses this config.
async fn wait_for_config(address: SocketAddr, name: &str) -> Result<()> {
    let (client, end) = (BenchClient::new(address), Instant::now() + RELOAD_TIMEOUT);
    while Instant::now() < end {
        let answer = client.send(Request::get("/").body(Full::<Bytes>::default())?).await;
        if answer.is_ok_and(|answer| answer.body.starts_with(name.as_bytes())) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    bail!("{} s after SIGHUP the gateway still had its old config", RELOAD_TIMEOUT.as_secs())
}
