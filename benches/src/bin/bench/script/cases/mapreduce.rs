//! Jobs of the map-reduce service from a client's point of view: each polls its sum until it is complete.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use benches::client::BenchClient;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use http::Request;
use http::header::{CONTENT_TYPE, LOCATION};
use http_body_util::Full;

/// The number of pages of a job, as in the paper.
const PAGES: usize = 5;
/// The number of concurrent jobs.
const CONCURRENCY: usize = 32;
/// The polling interval, long enough that most jobs are complete at the first poll.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Runs jobs. Returns the number of their pages.
pub(in super::super) async fn count(server: SocketAddr, service: SocketAddr, jobs: usize) -> Result<u64> {
    let client = BenchClient::new(server);
    let jobs = stream::iter(0..jobs).map(|number| run_job(&client, service, number));
    let sums: Vec<()> = jobs.buffer_unordered(CONCURRENCY).try_collect().await?;
    Ok((PAGES * sums.len()) as u64)
}

/// Counts a word in five pages.
async fn run_job(client: &BenchClient, service: SocketAddr, number: usize) -> Result<()> {
    let words = |page| 1 + (number + page) % 9;
    let urls: Vec<String> =
        (0..PAGES).map(|page| format!("http://{service}/words?n={}", words(page))).collect();
    let expected: usize = (0..PAGES).map(words).sum();
    let body = serde_json::json!({ "urls": urls, "key": "keyword" }).to_string();
    let request =
        Request::post("/start").header(CONTENT_TYPE, "application/json").body(Full::new(body.into()))?;
    let started = client.send(request).await?;
    let place = started.headers.get(LOCATION).with_context(|| format!("{started:?}"))?.to_str()?;
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let response = client.send(Request::get(place).body(Full::<Bytes>::default())?).await?;
        let sum: usize = serde_json::from_slice(&response.body).with_context(|| format!("{response:?}"))?;
        ensure!(sum <= expected, "{sum} of {expected} words were counted");
        if sum == expected {
            return Ok(());
        }
    }
}
