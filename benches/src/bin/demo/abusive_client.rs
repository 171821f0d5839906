//! The effect of an endless program on other clients: a light, steady load of queries is measured alone, and
//! again while an abusive client sends `while (true) {}` repeatedly, so that one instance is always running.
//!
//! The other clients' requests are sent when they are due, whether earlier ones were answered or not, so that
//! a gateway that stalls does not receive fewer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use benches::client::{BenchClient, BenchResponse};
use benches::jobs::BenchJob;
use benches::stats;
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::measure::{self, to_millis};
use crate::servers::{DemoLanguage, DemoServers};
use crate::terminal;

/// The program of the abusive client.
pub(crate) const SPINNING_PROGRAM: &str = "export default () => { while (true) {} }";
const LOAD_TIME: Duration = Duration::from_secs(6);
const QUERY_INTERVAL: Duration = Duration::from_millis(10);

/// The results.
#[derive(Debug)]
pub(crate) struct StrangerResults {
    /// The status of the response to the abusive client.
    pub(crate) status: u16,
    pub(crate) code: String,
    pub(crate) after_ms: f64,
    /// The number of endless programs.
    pub(crate) spun: usize,
    /// The other clients' 99th percentile, alone and meanwhile.
    pub(crate) alone_ms: f64,
    pub(crate) meanwhile_ms: f64,
    pub(crate) neighbours: usize,
}

/// The response to an endless program that was stopped.
struct StoppedProgram {
    status: u16,
    code: String,
    ms: f64,
}

/// Measures the other clients alone, and together with the abusive client.
pub(crate) async fn measure_abuse(world: &DemoServers) -> Result<StrangerResults> {
    terminal::show_progress("the other clients alone");
    let client = Arc::new(BenchClient::new(world.local_client.address()));
    let _warm = measure_neighbours(world, &client, Duration::from_millis(500)).await?;
    let alone = measure_neighbours(world, &client, LOAD_TIME).await?;
    terminal::show_progress("the other clients next to an abusive one");
    let (meanwhile, stopped) =
        tokio::try_join!(measure_neighbours(world, &client, LOAD_TIME), send_endless_programs(world))?;
    let after: Vec<f64> = stopped.iter().map(|stopped| stopped.ms).collect();
    let spun = stopped.len();
    let StoppedProgram { status, code, .. } =
        stopped.into_iter().next().context("the abusive client got no response")?;
    Ok(StrangerResults {
        status,
        code,
        after_ms: stats::median(&after),
        spun,
        alone_ms: stats::percentile(&alone, 99),
        meanwhile_ms: stats::percentile(&meanwhile, 99),
        neighbours: meanwhile.len(),
    })
}

/// Sends a query every 10 ms. Returns the time of each.
async fn measure_neighbours(
    world: &DemoServers,
    client: &Arc<BenchClient>,
    time: Duration,
) -> Result<Vec<f64>> {
    let (began, mut under_way, mut took) = (Instant::now(), JoinSet::new(), Vec::new());
    let mut ticks = interval(QUERY_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    while began.elapsed() < time {
        let due = ticks.tick().await.into_std();
        under_way.spawn(time_query(
            Arc::clone(client),
            measure::program_request(world, BenchJob::Second, DemoLanguage::C)?,
            due,
        ));
    }
    while let Some(one) = under_way.join_next().await {
        took.push(one??);
    }
    Ok(took)
}

async fn time_query(client: Arc<BenchClient>, request: Request<Full<Bytes>>, due: Instant) -> Result<f64> {
    let answer = client.send(request).await?;
    if !answer.status.is_success() {
        bail!("another client got {} {}", answer.status, String::from_utf8_lossy(&answer.body));
    }
    Ok(to_millis(due.elapsed()))
}

/// Sends endless programs one after the other.
async fn send_endless_programs(world: &DemoServers) -> Result<Vec<StoppedProgram>> {
    let (client, mut stopped) = (BenchClient::new(world.local_client.address()), Vec::new());
    let end = Instant::now() + LOAD_TIME;
    while Instant::now() < end {
        let request = Request::post("/query").header("content-type", "text/javascript");
        let began = Instant::now();
        let answer =
            client.send(request.body(Full::new(Bytes::from_static(SPINNING_PROGRAM.as_bytes())))?).await?;
        stopped.push(read_problem(&answer, to_millis(began.elapsed()))?);
    }
    Ok(stopped)
}

fn read_problem(answer: &BenchResponse, ms: f64) -> Result<StoppedProgram> {
    let problem: Value = serde_json::from_slice(&answer.body)
        .context("the response to the abusive client is not a problem document")?;
    let code = problem["code"].as_str().unwrap_or("no code").to_owned();
    Ok(StoppedProgram { status: answer.status.as_u16(), code, ms })
}
