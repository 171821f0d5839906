//! Failover with one of three targets failing: it responds 500 to everything, and is then stopped. Measures
//! the share of failed GET requests, and of retries in the traffic.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::Result;
use benches::scoreboard::{BetterDirection, HeadlineScore};
use benches::stats::percentile;
use http::{Request, StatusCode};
use serde::Serialize;

use crate::process::{SERVER_CORE, ServerProcess};
use crate::progress::BenchProgress;
use crate::service::{BenchService, text_response};
use crate::{BenchTools, open_loop};

/// Requests per second, at which no core is saturated.
const RATE: f64 = 2_000.0;
const PHASE: Duration = Duration::from_secs(10);

#[derive(Serialize)]
struct FailoverRow {
    phase: &'static str,
    asked: usize,
    failed: usize,
    failed_percent: f64,
    /// The share of the requests at the targets that exceed those of the clients. A stopped target receives
    /// none.
    retries_percent: f64,
    p50_ms: f64,
    p99_ms: f64,
}

/// The requests that the targets received, and whether the third target fails.
#[derive(Default)]
struct TargetCounts {
    requests: AtomicU64,
    third_fails: AtomicBool,
}

pub(crate) fn run(tools: &BenchTools) -> Result<()> {
    let progress = BenchProgress::new(tools, tools.round_time(PHASE) * 3);
    let rows = open_loop::run(measure(tools, &progress))??;
    let worst = rows.iter().map(|row| row.failed_percent).fold(0.0, f64::max);
    let score = HeadlineScore {
        value: worst,
        unit: "percent".into(),
        better: BetterDirection::Lower,
        target: Some(0.1),
        against: format!("GETs at {RATE:.0} a second, the worse of a dead target and one that answers 500"),
        spread: 0.0,
    };
    tools.write_results("dead", &rows, [("proxy.one_dead_of_three.failed_percent".to_owned(), score)])
}

async fn measure(tools: &BenchTools, progress: &BenchProgress) -> Result<Vec<FailoverRow>> {
    let counts = Arc::<TargetCounts>::default();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let (first, second, third) = (
        start_target(any, false, &counts)?,
        start_target(any, false, &counts)?,
        start_target(any, true, &counts)?,
    );
    let yaml = format!(
        "services: {{ service: {{ url: ['http://{}', 'http://{}', 'http://{}'] }} }}\n\
         routes:\n  - path: /*\n    proxy: service\n",
        first.address, second.address, third.address
    );
    let server = ServerProcess::start_gateway(&tools.orfa, SERVER_CORE, &yaml)?;
    let time = tools.round_time(PHASE);
    let mut rows = vec![run_phase(&server, "all well", time, &counts, progress).await?];
    counts.third_fails.store(true, Relaxed);
    rows.push(run_phase(&server, "one answers 500", time, &counts, progress).await?);
    drop(third);
    rows.push(run_phase(&server, "one dead", time, &counts, progress).await?);
    Ok(rows)
}

fn start_target(at: SocketAddr, is_third: bool, seen: &Arc<TargetCounts>) -> Result<BenchService> {
    let seen = Arc::clone(seen);
    BenchService::start(at, move |_| {
        seen.requests.fetch_add(1, Relaxed);
        let mut answer = text_response("well");
        if is_third && seen.third_fails.load(Relaxed) {
            *answer.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        }
        std::future::ready(answer)
    })
}

async fn run_phase(
    server: &ServerProcess,
    phase: &'static str,
    time: Duration,
    seen: &TargetCounts,
    progress: &BenchProgress,
) -> Result<FailoverRow> {
    let before = seen.requests.load(Relaxed);
    let ask = || Ok(Request::get("/").body(http_body_util::Full::default())?);
    let answered = open_loop::offer(server.address, RATE, time, ask).await?;
    let seen = (seen.requests.load(Relaxed) - before) as f64;
    let asked = answered.len();
    let failed = answered.iter().filter(|answered| answered.status != Some(StatusCode::OK)).count();
    let failed_percent = failed as f64 * 100.0 / asked.max(1) as f64;
    let retries_percent = (seen - asked as f64).max(0.0) * 100.0 / seen.max(1.0);
    let times: Vec<f64> = answered.iter().map(|answered| answered.ms).collect();
    let (p50_ms, p99_ms) = (percentile(&times, 50), percentile(&times, 99));
    progress.report(&format!(
        "{phase:<15} {failed} of {asked} failed ({failed_percent:.3} %), {retries_percent:.3} % retries, p99 {p99_ms:.2} ms"
    ));
    Ok(FailoverRow { phase, asked, failed, failed_percent, retries_percent, p50_ms, p99_ms })
}
