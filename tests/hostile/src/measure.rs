//! What the attacks do to others: each case is played again and again beside a light load of a neighbour's requests.
//!
//! The neighbour's requests are sent when they are due, answered or not, and their time counts from there. Its thread goes
//! before all others and the attackers' behind them, as if each stood on machines of their own: what is measured is the
//! gateway.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::http::{Request, StatusCode};
use anyhow::{Context, Result};
use benches::open::{Answered, go_first, offer};
use benches::scoreboard::{self, Better, Score};
use benches::stats::{median, percentile, spread};
use bytes::Bytes;
use http_body_util::Full;
use serde::Serialize;
use testkit::http;
use tokio::sync::oneshot;

use crate::bounds::BOUNDS;
use crate::case::{Case, Ending};
use crate::counters::sum;
use crate::target::{NEIGHBOUR, Target};

/// How long a case is played in a round, and how many rounds there are.
const ROUND: Duration = Duration::from_millis(1500);
const ROUNDS: usize = 3;
/// The neighbour's requests a second.
const PER_SECOND: f64 = 300.0;
/// By how much the heap may exceed the rows of a case.
const SLACK: f64 = 1.1;
/// So many long polls of a case, and one more for a thousand times that it is played, are the machine's: where it
/// stands still for others, the thread that stood is charged.
const LONG_POLLS: u64 = 2;
/// What the target of every p99 is, in milliseconds.
const ADDED_MS: f64 = 3.0;

/// A case, measured.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The case's name.
    pub case: &'static str,
    /// How often it was played in all rounds, and how often it ended as it must not.
    pub played: usize,
    /// Likewise.
    pub failed: usize,
    /// The neighbour's p99 alone and meanwhile, in milliseconds, a round each.
    pub alone_p99_ms: Vec<f64>,
    /// Likewise.
    pub meanwhile_p99_ms: Vec<f64>,
    /// How many of the neighbour's requests were not answered with 200.
    pub refused: usize,
    /// The most bytes of the heap beyond those before, where the binary counts them, and what the case's rows allow.
    pub heap_bytes: Option<u64>,
    /// Likewise.
    pub allowed_bytes: u64,
    /// Polls that took too long.
    pub long_polls: u64,
}

/// Plays every case beside the neighbour, and writes `hostile.json` and the scoreboard; what is wrong.
///
/// # Errors
/// When the gateway can't be asked.
pub async fn measure(target: &Arc<Target>, cases: &[Case], writes: bool) -> Result<Vec<String>> {
    let started = Instant::now();
    let before = resident(target).await?;
    let (mut rows, mut wrong, mut highest) = (Vec::new(), Vec::new(), before);
    for case in cases {
        let row = one(target, case).await.with_context(|| case.name)?;
        highest = highest.max(resident(target).await?);
        let added = added_ms(&row);
        anstream::println!(
            "{:<70} p99 {:>6.2} ms, {:+.2} ms; heap {:>9} of {:>9} bytes; {} long polls",
            row.case,
            median(&row.meanwhile_p99_ms),
            median(&added),
            row.heap_bytes.unwrap_or_default(),
            row.allowed_bytes,
            row.long_polls
        );
        wrong.extend(complaints(&row));
        rows.push(row);
    }
    if writes {
        scoreboard::rows("hostile", &rows)?;
        let mut scores = scores(&rows, wrong.len(), highest.saturating_sub(before));
        scores.push(minutes(started.elapsed()));
        scoreboard::record(scores)?;
    }
    Ok(wrong)
}

/// What of a row breaks a rule that is not one of time.
fn complaints(row: &Row) -> Vec<String> {
    let mut complaints = Vec::new();
    if row.failed > 0 {
        complaints
            .push(format!("{}: {} of {} did not end as they have to", row.case, row.failed, row.played));
    }
    if row.heap_bytes.is_some_and(|bytes| bytes as f64 > row.allowed_bytes as f64 * SLACK) {
        let bytes = row.heap_bytes.unwrap_or_default();
        complaints.push(format!("{}: {bytes} bytes of heap, and {} allowed", row.case, row.allowed_bytes));
    }
    if row.long_polls > LONG_POLLS + row.played as u64 / 1000 {
        complaints.push(format!("{}: {} polls took too long", row.case, row.long_polls));
    }
    complaints
}

async fn one(target: &Arc<Target>, case: &Case) -> Result<Row> {
    let rows = case.holds.iter().chain(&[("request", 16)]);
    let allowed = rows.map(|(row, times)| {
        let bound = BOUNDS.iter().find(|bound| bound.name == *row).map_or(0, |bound| bound.bytes);
        bound.saturating_mul(*times)
    });
    let mut row = Row {
        case: case.name,
        played: 0,
        failed: 0,
        alone_p99_ms: Vec::new(),
        meanwhile_p99_ms: Vec::new(),
        refused: 0,
        heap_bytes: None,
        allowed_bytes: allowed.sum(),
        long_polls: 0,
    };
    for _ in 0..ROUNDS {
        let (alone, refused) = neighbour(target, ROUND / 3).await?;
        row.refused += refused;
        let before = page(target).await?;
        let meanwhile = tokio::spawn({
            let target = Arc::clone(target);
            async move { neighbour(&target, ROUND).await }
        });
        let end = Instant::now() + ROUND;
        while Instant::now() < end {
            row.played += 1;
            // This thread, which started the gateway, goes before the attackers' as the gateway does.
            let ending = tokio::spawn((case.attack)(Arc::clone(target))).await??;
            row.failed += usize::from(!is_right(case, &ending));
        }
        let (p99, refused) = meanwhile.await??;
        row.refused += refused;
        let after = page(target).await?;
        if after.contains("orfa_heap_bytes") {
            let (live, peak) = (sum(&before, "orfa_heap_bytes"), sum(&after, "orfa_heap_peak_bytes"));
            row.heap_bytes = row.heap_bytes.max(Some(peak.saturating_sub(live)));
        }
        row.long_polls += long_polls(&after).saturating_sub(long_polls(&before));
        row.alone_p99_ms.push(alone);
        row.meanwhile_p99_ms.push(p99);
    }
    Ok(row)
}

/// Whether a case ended as it has to. One that is played again and again may be refused for its rate.
fn is_right(case: &Case, ending: &Ending) -> bool {
    case.endings.contains(ending) || matches!(ending, Ending::Problem(429, _))
}

/// The long polls so far, without those of TLS handshakes, which are bounded by their number.
fn long_polls(page: &str) -> u64 {
    sum(page, "orfa_long_polls_total").saturating_sub(sum(page, "orfa_long_polls_total{where=\"handshake\"}"))
}

/// The neighbour's p99 in milliseconds, and how many of its requests were not answered with 200.
async fn neighbour(target: &Target, time: Duration) -> Result<(f64, usize)> {
    let address = target.gateway.address;
    let (tell, told) = oneshot::channel();
    std::thread::spawn(move || {
        go_first();
        let _ = tell.send(measured(address, time));
    });
    let answered = told.await.context("the neighbour's thread ended")??;
    let times: Vec<f64> = answered.iter().map(|one| one.ms).collect();
    let refused = answered.iter().filter(|one| one.status != Some(StatusCode::OK)).count();
    Ok((percentile(&times, 99), refused))
}

/// What became of the neighbour's requests.
fn measured(address: SocketAddr, time: Duration) -> Result<Vec<Answered>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let turn = Cell::new(0_usize);
    runtime.block_on(offer(address, PER_SECOND, time, || {
        turn.set(turn.get() + 1);
        request(turn.get())
    }))
}

/// The neighbour's requests in turn: a kept program, a proxied call, a kept document.
fn request(turn: usize) -> Result<Request<Full<Bytes>>> {
    let (method, path, media_type, body) = match turn % 3 {
        0 => ("POST", "/query", "text/javascript", "export default () => 1"),
        1 => ("GET", "/calm/json?n=1", "", ""),
        _ => ("POST", "/calm-graphql", "application/json", r#"{"query":"{ items(n: 1) { id } }"}"#),
    };
    let request = Request::builder().method(method).uri(path).header(NEIGHBOUR.0, NEIGHBOUR.1);
    let request = if media_type.is_empty() { request } else { request.header("content-type", media_type) };
    Ok(request.body(Full::from(body))?)
}

async fn page(target: &Target) -> Result<String> {
    let page = http::request("GET", &format!("{}/metrics", target.admin), &[], "").await;
    Ok(page.map_err(anyhow::Error::from_boxed)?.text())
}

async fn resident(target: &Target) -> Result<u64> {
    Ok(sum(&page(target).await?, "process_resident_memory_bytes"))
}

fn added_ms(row: &Row) -> Vec<f64> {
    row.meanwhile_p99_ms.iter().zip(&row.alone_p99_ms).map(|(with, without)| with - without).collect()
}

fn scores(rows: &[Row], wrong: usize, growth: u64) -> Vec<(String, Score)> {
    let of = |area: &str| rows.iter().filter(|row| row.case.contains(area)).collect::<Vec<_>>();
    let plain = |name: &str, value: f64, unit: &str, better, target, against: &str| {
        let (unit, against) = (unit.to_owned(), against.to_owned());
        (name.to_owned(), Score { value, unit, better, target: Some(target), against, spread: 0.0 })
    };
    let growth = growth as f64 / 1e6;
    vec![
        worst("graphql.hostile_p99_added_ms", &of("graphql/")),
        worst("http2.zero_window_p99_added_ms", &of("not taken")),
        worst("hostile.p99_added_ms.worst", &of("")),
        plain(
            "gateway.hostile_rss_growth_mb",
            growth,
            "MB",
            Better::Lower,
            200.0,
            "the gateway before the suite",
        ),
        plain("hostile.cases", rows.len() as f64, "cases", Better::Higher, 120.0, "none"),
        plain("hostile.failed", wrong as f64, "cases", Better::Lower, 0.0, "none"),
    ]
}

/// How long all of them took.
fn minutes(took: Duration) -> (String, Score) {
    let score = Score {
        value: took.as_secs_f64() / 60.0,
        unit: "min".to_owned(),
        better: Better::Lower,
        target: Some(90.0),
        against: "none".to_owned(),
        spread: 0.0,
    };
    ("ci.hostile.minutes".to_owned(), score)
}

/// The worst of some cases, each by the median of its rounds.
fn worst(name: &str, rows: &[&Row]) -> (String, Score) {
    let worst = rows.iter().map(|row| added_ms(row)).max_by(|a, b| median(a).total_cmp(&median(b)));
    let added = worst.unwrap_or_default();
    let against =
        format!("p99 of a neighbour alone, {PER_SECOND} requests a second, median of {ROUNDS} rounds");
    let (value, spread) = (median(&added), spread(&added));
    let score =
        Score { value, unit: "ms".into(), better: Better::Lower, target: Some(ADDED_MS), against, spread };
    (name.to_owned(), score)
}
