//! Memory of the gateway: after the start, a minute after a burst of a thousand concurrent requests, and the
//! growth of a second gateway over a million requests, which it gets during that minute after a burst of its
//! own.
//!
//! The programs of the burst wait for a slow upstream service, so that all instances are live at the same
//! time.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use benches::client::BenchClient;
use benches::programs;
use benches::scoreboard::{BetterDirection, HeadlineScore};
use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::net::TcpListener;

use crate::load::{SentProgram, run_round};
use crate::process::{ServerProcess, query_route};
use crate::{BenchTools, print_line};

const BURST: usize = 1000;
/// The latency of the upstream service.
const SERVICE_DELAY: Duration = Duration::from_millis(500);
const MINUTE: Duration = Duration::from_secs(60);
const MILLION: u64 = 1_000_000;
/// The maximum resident memory of the default pool: 256 slots of 0.5 MiB for C and 256 of 2 MiB for
/// JavaScript.
const POOL_MB: f64 = 256.0 * (0.5 + 2.0) * 1.048_576;

#[derive(Serialize)]
struct MemoryRow {
    after: String,
    rss_mb: f64,
}

pub(crate) fn run(tools: &BenchTools) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let module = programs::build_program(&tools.orfa, "constant.c", folder.path())?;
    let waiting = programs::build_program(&tools.orfa, "wait.c", folder.path())?;
    let javascript = programs::program_path("wait.js");
    let mut rows = Vec::new();
    let mut seen = |server: &ServerProcess, after: String| -> Result<f64> {
        let rss_mb = server.usage()?.rss as f64 / 1e6;
        print_line(&format!("  {rss_mb:>6.1} MB after {after}"));
        rows.push(MemoryRow { after, rss_mb });
        Ok(rss_mb)
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    // A thousand concurrent requests exceed the limits of load shedding, but here they have to be admitted.
    let yaml =
        format!("shed: {{ automatic: false }}\n{}", query_route(runtime.block_on(start_slow_service())?));
    let server = ServerProcess::start_gateway(&tools.orfa, "0,1", &yaml)?;
    let start = seen(&server, "start".into())?;
    runtime.block_on(send_burst(&server, "application/wasm", &std::fs::read(&waiting)?))?;
    runtime.block_on(send_burst(&server, "text/javascript", &std::fs::read(&javascript)?))?;
    seen(&server, "a burst of 1000 in C and one in JavaScript".into())?;
    let rested = Instant::now() + MINUTE;
    let other = ServerProcess::start_gateway(&tools.orfa, "0,1", &yaml)?;
    // After this all slots of its pool have been used once, so that any growth has another cause.
    runtime.block_on(send_burst(&other, "application/wasm", &std::fs::read(&waiting)?))?;
    let growth = measure_growth(
        &other,
        SentProgram { content_type: "application/wasm", program: &module },
        &mut seen,
    )?;
    std::thread::sleep(rested.saturating_duration_since(Instant::now()));
    let after_burst = seen(&server, "the burst and a minute of rest".into())?;
    tools.write_results(
        "memory",
        &rows,
        [
            ("gateway.start_rss_mb".to_owned(), score(start, 80.0, "resident after start")),
            (
                "gateway.after_burst_over_pool_mb".to_owned(),
                score(after_burst - POOL_MB, 80.0, "what the pool of the config may keep resident, 671 MB"),
            ),
            (
                "gateway.growth_mb_per_million".to_owned(),
                score(growth, 2.0, "resident after the first 100,000 requests"),
            ),
        ],
    )
}

fn score(value: f64, target: f64, against: &str) -> HeadlineScore {
    let (unit, against) = ("MB".to_owned(), against.to_owned());
    HeadlineScore { value, unit, better: BetterDirection::Lower, target: Some(target), against, spread: 0.0 }
}

/// A service with a delay.
async fn start_slow_service() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = service_fn(|_: Request<Incoming>| async {
                tokio::time::sleep(SERVICE_DELAY).await;
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"{}"))))
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
        }
    });
    Ok(address)
}

async fn send_burst(server: &ServerProcess, content_type: &str, program: &[u8]) -> Result<()> {
    let client = BenchClient::new(server.address);
    let ask = || async {
        let request = Request::post("/query").header("content-type", content_type);
        let request = request.body(Full::new(Bytes::copy_from_slice(program)))?;
        let answer = client.send(request).await?;
        ensure!(answer.status.is_success(), "{}", String::from_utf8_lossy(&answer.body));
        Ok(())
    };
    join_all((0..BURST).map(|_| ask())).await.into_iter().collect()
}

/// The megabytes that a million requests add, after a warm-up of a tenth of them.
fn measure_growth(
    server: &ServerProcess,
    sent: SentProgram<'_>,
    seen: &mut impl FnMut(&ServerProcess, String) -> Result<f64>,
) -> Result<f64> {
    let send = |at_least: u64| -> Result<u64> {
        let mut requests = 0;
        while requests < at_least {
            requests += run_round(server, sent, Duration::from_secs(5))?.requests;
        }
        Ok(requests)
    };
    let first = send(MILLION / 10)?;
    let before = seen(server, format!("{first} requests"))?;
    let more = send(MILLION)?;
    Ok((seen(server, format!("{more} more"))? - before) * MILLION as f64 / more as f64)
}
