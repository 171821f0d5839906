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

use crate::measure::{self, millis};
use crate::terminal;
use crate::world::{DemoLanguage, DemoServers};

/// The program of the abusive client.
pub(crate) const SPIN: &str = "export default () => { while (true) {} }";
const LOADED: Duration = Duration::from_secs(6);
const EVERY: Duration = Duration::from_millis(10);

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
pub(crate) async fn meet(world: &DemoServers) -> Result<StrangerResults> {
    terminal::progress("the other clients alone");
    let client = Arc::new(BenchClient::new(world.near.address()));
    let _warm = neighbours(world, &client, Duration::from_millis(500)).await?;
    let alone = neighbours(world, &client, LOADED).await?;
    terminal::progress("the other clients next to an abusive one");
    let (meanwhile, stopped) = tokio::try_join!(neighbours(world, &client, LOADED), stranger(world))?;
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
async fn neighbours(world: &DemoServers, client: &Arc<BenchClient>, time: Duration) -> Result<Vec<f64>> {
    let (began, mut under_way, mut took) = (Instant::now(), JoinSet::new(), Vec::new());
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    while began.elapsed() < time {
        let due = ticks.tick().await.into_std();
        under_way.spawn(neighbour(
            Arc::clone(client),
            measure::request(world, BenchJob::Second, DemoLanguage::C)?,
            due,
        ));
    }
    while let Some(one) = under_way.join_next().await {
        took.push(one??);
    }
    Ok(took)
}

async fn neighbour(client: Arc<BenchClient>, request: Request<Full<Bytes>>, due: Instant) -> Result<f64> {
    let answer = client.send(request).await?;
    if !answer.status.is_success() {
        bail!("another client got {} {}", answer.status, String::from_utf8_lossy(&answer.body));
    }
    Ok(millis(due.elapsed()))
}

/// Sends endless programs one after the other.
async fn stranger(world: &DemoServers) -> Result<Vec<StoppedProgram>> {
    let (client, mut stopped) = (BenchClient::new(world.near.address()), Vec::new());
    let end = Instant::now() + LOADED;
    while Instant::now() < end {
        let request = Request::post("/query").header("content-type", "text/javascript");
        let began = Instant::now();
        let answer = client.send(request.body(Full::new(Bytes::from_static(SPIN.as_bytes())))?).await?;
        stopped.push(read(&answer, millis(began.elapsed()))?);
    }
    Ok(stopped)
}

fn read(answer: &BenchResponse, ms: f64) -> Result<StoppedProgram> {
    let problem: Value = serde_json::from_slice(&answer.body)
        .context("the response to the abusive client is not a problem document")?;
    let code = problem["code"].as_str().unwrap_or("no code").to_owned();
    Ok(StoppedProgram { status: answer.status.as_u16(), code, ms })
}
