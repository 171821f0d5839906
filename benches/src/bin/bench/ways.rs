//! One job in all the ways that there are: the demo's three questions by plain REST, by ORFA's five ways, by Cap'n Web and by
//! programs on workerd, from three distances. Requests, round trips, bytes, latency; and from near by the CPU time of all
//! processes between the client and the services.
//!
//! `asks.rs` says how each way asks; `world.rs` runs what is asked. The ways of a job take turns. All answers have to be equal.

mod asks;
mod world;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use benches::delay::Traffic;
use benches::jobs::Job;
use benches::scoreboard::{Better, Score};
use benches::stats::{median, spread};
use serde::Serialize;
use serde_json::Value;

use self::asks::{Ask, BY_PROGRAM, Way};
use self::world::{Far, World};
use crate::progress::Progress;
use crate::{Tools, is_long, open};

const ROUND_TRIPS_MS: [u64; 3] = [35, 93, 170];
/// The demo's distance.
const USUAL_MS: u64 = 93;
const ROUNDS: usize = 3;
/// How long each way is asked from near by.
const NEAR: Duration = Duration::from_secs(1);
/// Before that, for those that compile what runs often.
const WARM_UP: Duration = Duration::from_millis(300);
const TAKES: Duration = Duration::from_secs(140);

/// A way of a job.
#[derive(Default, Serialize)]
struct Row {
    job: &'static str,
    title: &'static str,
    way: &'static str,
    requests: usize,
    round_trips: usize,
    bytes_up: u64,
    bytes_down: u64,
    /// `bytes_down` if the bodies of the answers were sent with gzip.
    gzip_down: u64,
    /// The latency by the round trip, both in milliseconds.
    ms: BTreeMap<String, f64>,
    spread_ms: BTreeMap<String, f64>,
    /// Without a distance.
    near_ms: f64,
    /// Calls to services that the gateway made for one request, where it tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream_calls: Option<f64>,
    cpu_us: f64,
}

/// Some runs of a way, one after the other.
#[derive(Default)]
struct Runs {
    answer: Value,
    /// Of one run.
    requests: usize,
    round_trips: usize,
    gzip_saves: u64,
    ms: Vec<f64>,
    /// How many requests were made in all, those before the measured ones included.
    all: usize,
}

pub(crate) fn run(tools: &Tools) -> Result<()> {
    let progress = Progress::new(tools, tools.time(TAKES));
    let rows = open::run(measure(tools, &progress))??;
    tools.results("ways", &rows, over_ideal(&rows))
}

async fn measure(tools: &Tools, progress: &Progress) -> Result<Vec<Row>> {
    let world = World::start(tools).await?;
    let mut rows = Vec::new();
    for job in Job::ALL {
        let ways = asks::of(job, &world).await?;
        let expected = near(tools, &world, job, &ways, &mut rows).await?;
        for round_trip_ms in if tools.is_short { &ROUND_TRIPS_MS[..1] } else { &ROUND_TRIPS_MS[..] } {
            let of_job = rows.iter_mut().filter(|row| row.job == job.name());
            for (row, way) in of_job.zip(&ways) {
                let far = world.far(way.host, *round_trip_ms).await?;
                distant(tools, &far, job, way, row, &expected).await.with_context(|| way.name)?;
                let name = place(*round_trip_ms);
                progress.say(&format!(
                    "{} {:<34} {name} ms: {:>8.1} ms",
                    job.name(),
                    way.name,
                    row.ms[&name]
                ));
            }
        }
    }
    Ok(rows)
}

/// Asks in all ways without a distance; what they answer.
async fn near(tools: &Tools, world: &World, job: Job, ways: &[Way], rows: &mut Vec<Row>) -> Result<Value> {
    let mut expected = None;
    for way in ways {
        let far = world.near(way.host)?;
        way.repeat(job, &far, tools.time(WARM_UP)).await.with_context(|| way.name)?;
        let (before, calls) = (world.server(way.host)?.usage()?, world.calls().await?);
        let runs = way.repeat(job, &far, tools.time(NEAR)).await.with_context(|| way.name)?;
        let cpu = world.server(way.host)?.usage()?.cpu.saturating_sub(before.cpu).as_secs_f64();
        let expected = expected.get_or_insert_with(|| runs.answer.clone());
        ensure!(runs.answer == *expected, "{} answers {} and not {expected}", way.name, runs.answer);
        let all = runs.all.max(1) as f64;
        let upstream_calls = way.is_told().then_some((world.calls().await? - calls) as f64 / all);
        rows.push(Row {
            job: job.name(),
            title: job.title(),
            way: way.name,
            near_ms: rounded(median(&runs.ms)),
            upstream_calls: upstream_calls.map(f64::round),
            cpu_us: rounded(cpu * 1e6 / all),
            ..Row::default()
        });
    }
    expected.context("a job can be done in no way")
}

/// Asks from far away.
async fn distant(
    tools: &Tools,
    far: &Far,
    job: Job,
    way: &Way,
    row: &mut Row,
    expected: &Value,
) -> Result<()> {
    let rounds = tools.rounds(ROUNDS);
    let (before, mut runs) = (far.traffic(), Runs::default());
    if matches!(way.ask, Ask::Capnweb) {
        runs = way.times(job, far, rounds).await?;
    }
    while runs.ms.len() < rounds && runs.ms.last().is_none_or(|ms| !is_long(*ms)) {
        let Runs { ms, all, .. } = std::mem::take(&mut runs);
        runs = way.times(job, far, 1).await?;
        ensure!(runs.answer == *expected, "another answer: {}", runs.answer);
        (runs.ms, runs.all) = ([ms, runs.ms].concat(), all + runs.all);
    }
    let Traffic { up, down } = far.traffic() - before;
    let all = runs.all.max(1) as u64;
    (row.requests, row.round_trips) = (runs.requests, runs.round_trips);
    (row.bytes_up, row.bytes_down) = (up / all, down / all);
    row.gzip_down = row.bytes_down - runs.gzip_saves;
    row.ms.insert(place(far.round_trip_ms), rounded(median(&runs.ms)));
    row.spread_ms.insert(place(far.round_trip_ms), rounded(spread(&runs.ms)));
    Ok(())
}

/// As the rows name it: in their order.
fn place(round_trip_ms: u64) -> String {
    format!("{round_trip_ms:03}")
}

/// What a query by program takes beyond the distance and what it takes without it, at worst.
fn over_ideal(rows: &[Row]) -> Option<(String, Score)> {
    let queries = rows.iter().filter(|row| BY_PROGRAM.contains(&row.way));
    let over = queries.filter_map(|row| Some(row.ms.get(&place(USUAL_MS))? - USUAL_MS as f64 - row.near_ms));
    let over: Vec<f64> = over.collect();
    let score = Score {
        value: over.iter().copied().fold(f64::MIN, f64::max),
        unit: "ms".into(),
        better: Better::Lower,
        target: Some(10.0),
        against: "93 ms + the same query on loopback".into(),
        spread: spread(&over),
    };
    (!over.is_empty()).then(|| ("demo.over_ideal_ms.worst".to_owned(), score))
}

/// To a tenth of a thousandth, which is more than can be measured.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// How long something took, in milliseconds.
fn millis(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e3
}
