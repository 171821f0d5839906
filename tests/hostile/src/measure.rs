//! The effect of attacks on others: each case is played repeatedly beside a light load of a neighbour's
//! requests.
//!
//! The load is open: the neighbour's requests are sent on schedule, whether or not earlier ones were
//! answered, and their latency counts from the scheduled time. Its thread has priority over all others and
//! the attackers' threads have the lowest, as if each ran on a machine of its own, so that only the gateway
//! is measured. Rounds in which the host of a virtual machine took the processors away are repeated: that
//! time counts for the thread that was running.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::http::{Request, StatusCode};
use anyhow::{Context, Result};
use benches::machine::ProcessorMoment;
use benches::open_loop::{OpenLoopOutcome, offer, raise_priority};
use benches::scoreboard::{self, BetterDirection, HeadlineScore};
use benches::stats::{median, percentile, spread};
use bytes::Bytes;
use http_body_util::Full;
use serde::{Deserialize, Serialize};
use testkit::http;
use tokio::sync::oneshot;

use crate::bounds::BOUNDS;
use crate::case::AttackCase;
use crate::cases::all_cases;
use crate::counters::sum_family;
use crate::ending::AttackEnding;
use crate::target::{AttackTarget, NEIGHBOUR};

/// The duration of a round for each case, and the number of rounds.
const ROUND: Duration = Duration::from_millis(1500);
const ROUNDS: usize = 3;
/// The time taken by the host from which a round is disturbed, and the maximum number of such rounds of a
/// case that are repeated.
const DISTURBANCE: Duration = Duration::from_millis(20);
const MAX_REPEATED: usize = 3;
/// The neighbour's requests per second.
const PER_SECOND: f64 = 300.0;
/// The factor by which the heap may exceed the rows of a case.
const SLACK: f64 = 1.1;
/// The number of long polls per case, plus one for every thousand times it is played, that is attributed to
/// the machine: when the machine pauses, the running thread is charged.
const LONG_POLLS: u64 = 2;
/// The target for every added p99, in milliseconds.
const ADDED_MS: f64 = 3.0;

/// The measurement of a case.
#[derive(Debug, Serialize, Deserialize)]
pub struct CaseMeasurement {
    /// The case's name.
    pub case: String,
    /// The number of times that it was played in the rounds that count.
    pub played: usize,
    /// The number of times that it ended in an unexpected way.
    pub failed: usize,
    /// The neighbour's p99 without the attack, in milliseconds, one per round.
    pub alone_p99_ms: Vec<f64>,
    /// The neighbour's p99 during the attack, in milliseconds, one per round.
    pub meanwhile_p99_ms: Vec<f64>,
    /// The number of the neighbour's requests without an answer of status 200.
    pub refused: usize,
    /// The growth of the heap in bytes, if the binary counts them.
    pub heap_bytes: Option<u64>,
    /// The bytes that the case's rows allow.
    pub allowed_bytes: u64,
    /// The number of polls that took too long.
    pub long_polls: u64,
    /// The number of rounds that were repeated because the host disturbed them. They count for nothing else,
    /// except for cases that ended in an unexpected way.
    #[serde(default)]
    pub repeated: usize,
    /// The number of long polls in these rounds.
    #[serde(default)]
    pub long_polls_in_repeated: u64,
}

/// Plays every case beside the neighbour. If `writes`, updates their rows in `hostile.json` and the
/// scoreboard. Returns the failures.
///
/// # Errors
/// When the gateway's metrics cannot be read, an attack cannot be played, or the results cannot be read or
/// written.
pub async fn measure(target: &Arc<AttackTarget>, cases: &[AttackCase], writes: bool) -> Result<Vec<String>> {
    let started = Instant::now();
    let before = resident_bytes(target).await?;
    let (mut rows, mut highest) = (Vec::new(), before);
    for case in cases {
        let row = measure_case(target, case).await.with_context(|| case.name)?;
        highest = highest.max(resident_bytes(target).await?);
        let added = added_ms(&row);
        anstream::println!(
            "{:<70} p99 {:>6.2} ms, {:+.2} ms; heap {:>9} of {:>9} bytes; {} long polls; {} rounds repeated",
            row.case,
            median(&row.meanwhile_p99_ms),
            median(&added),
            row.heap_bytes.unwrap_or_default(),
            row.allowed_bytes,
            row.long_polls,
            row.repeated
        );
        rows.push(row);
    }
    let wrong = rows.iter().flat_map(row_violations).collect();
    if writes {
        let is_whole = rows.len() == all_cases().len();
        let rows = if is_whole { rows } else { merge_rows(scoreboard::earlier_rows("hostile")?, rows) };
        scoreboard::write_rows("hostile", &rows)?;
        scoreboard::record(scores(&rows))?;
        // Only a run of all cases has these.
        if is_whole {
            scoreboard::record([
                growth_score(highest.saturating_sub(before)),
                minutes_score(started.elapsed()),
            ])?;
        }
    }
    Ok(wrong)
}

/// Replaces rows of earlier runs by those of the same cases.
fn merge_rows(mut earlier: Vec<CaseMeasurement>, rows: Vec<CaseMeasurement>) -> Vec<CaseMeasurement> {
    for row in rows {
        match earlier.iter_mut().find(|other| other.case == row.case) {
            Some(other) => *other = row,
            None => earlier.push(row),
        }
    }
    earlier
}

/// Returns the violated rules of a row, except those about time.
fn row_violations(row: &CaseMeasurement) -> Vec<String> {
    let mut complaints = Vec::new();
    if row.failed > 0 {
        complaints.push(format!("{}: ended in an unexpected way {} times", row.case, row.failed));
    }
    if row.heap_bytes.is_some_and(|bytes| bytes as f64 > row.allowed_bytes as f64 * SLACK) {
        let bytes = row.heap_bytes.unwrap_or_default();
        complaints.push(format!("{}: {bytes} bytes of heap, {} allowed", row.case, row.allowed_bytes));
    }
    if row.long_polls > LONG_POLLS + row.played as u64 / 1000 {
        complaints.push(format!("{}: {} polls took too long", row.case, row.long_polls));
    }
    complaints
}

async fn measure_case(target: &Arc<AttackTarget>, case: &AttackCase) -> Result<CaseMeasurement> {
    let rows = case.holds.iter().chain(&[("request", 16)]);
    let allowed = rows.map(|(row, times)| {
        let bound = BOUNDS.iter().find(|bound| bound.name == *row).map_or(0, |bound| bound.bytes);
        bound.saturating_mul(*times)
    });
    let mut row = CaseMeasurement {
        case: case.name.to_owned(),
        played: 0,
        failed: 0,
        alone_p99_ms: Vec::new(),
        meanwhile_p99_ms: Vec::new(),
        refused: 0,
        heap_bytes: None,
        allowed_bytes: allowed.sum(),
        long_polls: 0,
        repeated: 0,
        long_polls_in_repeated: 0,
    };
    while row.meanwhile_p99_ms.len() < ROUNDS {
        let start = ProcessorMoment::now()?;
        let (alone, refused) = neighbour_p99(target, ROUND / 3).await?;
        row.refused += refused;
        let before = metrics_page(target).await?;
        let meanwhile = tokio::spawn({
            let target = Arc::clone(target);
            async move { neighbour_p99(&target, ROUND).await }
        });
        let (end, mut played) = (Instant::now() + ROUND, 0);
        while Instant::now() < end {
            played += 1;
            // The attack runs on a worker thread, because this thread started the gateway and has the same
            // priority as it.
            let ending = tokio::spawn((case.attack)(Arc::clone(target))).await??;
            row.failed += usize::from(!is_allowed(case, &ending));
        }
        let (p99, refused) = meanwhile.await??;
        row.refused += refused;
        let after = metrics_page(target).await?;
        if after.contains("orfa_heap_bytes") {
            let (live, peak) =
                (sum_family(&before, "orfa_heap_bytes"), sum_family(&after, "orfa_heap_peak_bytes"));
            row.heap_bytes = row.heap_bytes.max(Some(peak.saturating_sub(live)));
        }
        let long = long_polls(&after).saturating_sub(long_polls(&before));
        if start.stolen_time_until_now()? >= DISTURBANCE && row.repeated < MAX_REPEATED {
            row.repeated += 1;
            row.long_polls_in_repeated += long;
            continue;
        }
        row.played += played;
        row.long_polls += long;
        row.alone_p99_ms.push(alone);
        row.meanwhile_p99_ms.push(p99);
    }
    Ok(row)
}

/// Whether a case ended as allowed. Repeated cases may also be refused for their rate.
fn is_allowed(case: &AttackCase, ending: &AttackEnding) -> bool {
    case.endings.contains(ending) || matches!(ending, AttackEnding::Problem(429, _))
}

/// Returns the number of long polls so far, without TLS handshakes, whose number is limited.
fn long_polls(page: &str) -> u64 {
    sum_family(page, "orfa_long_polls_total")
        .saturating_sub(sum_family(page, "orfa_long_polls_total{where=\"handshake\"}"))
}

/// Returns the neighbour's p99 in milliseconds, and the number of its requests without an answer of status
/// 200.
async fn neighbour_p99(target: &AttackTarget, time: Duration) -> Result<(f64, usize)> {
    let address = target.gateway.address;
    let (tell, told) = oneshot::channel();
    std::thread::spawn(move || {
        raise_priority();
        let _ = tell.send(offer_neighbour_load(address, time));
    });
    let outcomes = told.await.context("the neighbour's thread ended")??;
    let times: Vec<f64> = outcomes.iter().map(|outcome| outcome.ms).collect();
    let refused = outcomes.iter().filter(|loop_outcome| loop_outcome.status != Some(StatusCode::OK)).count();
    Ok((percentile(&times, 99), refused))
}

/// Sends the neighbour's load and returns the results.
fn offer_neighbour_load(address: SocketAddr, time: Duration) -> Result<Vec<OpenLoopOutcome>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let turn = Cell::new(0_usize);
    runtime.block_on(offer(address, PER_SECOND, time, || {
        turn.set(turn.get() + 1);
        neighbour_request(turn.get())
    }))
}

/// Returns the neighbour's requests in turn: a cached program, a proxied call and a document with a cached
/// plan.
fn neighbour_request(turn: usize) -> Result<Request<Full<Bytes>>> {
    let (method, path, media_type, body) = match turn % 3 {
        0 => ("POST", "/query", "text/javascript", "export default () => 1"),
        1 => ("GET", "/calm/json?n=1", "", ""),
        _ => ("POST", "/calm-graphql", "application/json", r#"{"query":"{ items(n: 1) { id } }"}"#),
    };
    let request = Request::builder().method(method).uri(path).header(NEIGHBOUR.0, NEIGHBOUR.1);
    let request = if media_type.is_empty() { request } else { request.header("content-type", media_type) };
    Ok(request.body(Full::from(body))?)
}

async fn metrics_page(target: &AttackTarget) -> Result<String> {
    let page = http::request("GET", &format!("{}/metrics", target.admin_url), &[], "").await;
    Ok(page.map_err(anyhow::Error::from_boxed)?.text())
}

async fn resident_bytes(target: &AttackTarget) -> Result<u64> {
    Ok(sum_family(&metrics_page(target).await?, "process_resident_memory_bytes"))
}

fn added_ms(row: &CaseMeasurement) -> Vec<f64> {
    row.meanwhile_p99_ms.iter().zip(&row.alone_p99_ms).map(|(with, without)| with - without).collect()
}

fn scores(rows: &[CaseMeasurement]) -> Vec<(String, HeadlineScore)> {
    let of = |area: &str| rows.iter().filter(|row| row.case.contains(area)).collect::<Vec<_>>();
    let wrong = rows.iter().flat_map(row_violations).count();
    vec![
        worst_score("graphql.hostile_p99_added_ms", &of("graphql/")),
        worst_score("http2.zero_window_p99_added_ms", &of("not taken")),
        worst_score("hostile.p99_added_ms.worst", &of("")),
        build_score("hostile.cases", rows.len() as f64, "cases", BetterDirection::Higher, 120.0, "none"),
        build_score("hostile.failed", wrong as f64, "cases", BetterDirection::Lower, 0.0, "none"),
    ]
}

fn build_score(
    name: &str,
    value: f64,
    unit: &str,
    better: BetterDirection,
    target: f64,
    against: &str,
) -> (String, HeadlineScore) {
    let (unit, against) = (unit.to_owned(), against.to_owned());
    (name.to_owned(), HeadlineScore { value, unit, better, target: Some(target), against, spread: 0.0 })
}

/// Returns the score for the growth of the resident memory in bytes.
fn growth_score(bytes: u64) -> (String, HeadlineScore) {
    let against = "the gateway before the suite";
    build_score(
        "gateway.hostile_rss_growth_mb",
        bytes as f64 / 1e6,
        "MB",
        BetterDirection::Lower,
        200.0,
        against,
    )
}

/// Returns the score for the total time.
fn minutes_score(took: Duration) -> (String, HeadlineScore) {
    build_score("ci.hostile.minutes", took.as_secs_f64() / 60.0, "min", BetterDirection::Lower, 90.0, "none")
}

/// Returns the worst result of some cases, each by the median of its rounds.
fn worst_score(name: &str, rows: &[&CaseMeasurement]) -> (String, HeadlineScore) {
    let worst = rows.iter().map(|row| added_ms(row)).max_by(|a, b| median(a).total_cmp(&median(b)));
    let added = worst.unwrap_or_default();
    let against =
        format!("p99 of a neighbour alone, {PER_SECOND} requests a second, median of {ROUNDS} rounds");
    let (value, spread) = (median(&added), spread(&added));
    let score = HeadlineScore {
        value,
        unit: "ms".into(),
        better: BetterDirection::Lower,
        target: Some(ADDED_MS),
        against,
        spread,
    };
    (name.to_owned(), score)
}
