//! The three test cases of the study that the marketplace comes from: a number of users who start one after
//! the other within five seconds, and send several requests each. A response counts as an error if its status
//! is not 200, or if it differs from the response to a single client.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use benches::call::PreparedCall;
use benches::client::BenchClient;
use benches::scoreboard::{BetterDirection, HeadlineScore};
use benches::stats::percentile;
use bytes::Bytes;
use futures_util::future::join_all;
use http::Method;
use marketplace::{Marketplace, MarketplaceService};
use serde::Serialize;
use serde_json::{Value, json};

use crate::BenchTools;
use crate::progress::BenchProgress;
use crate::ratios::NamedScore;

/// The time between the start of the first user and that of the last one.
const RAMP_UP: Duration = Duration::from_secs(5);
/// The number of users, and of requests per user.
pub(crate) const CASES: [(u32, u32); 3] = [(100, 5), (250, 2), (500, 1)];
/// The buyer that logs in and is changed.
pub(crate) const BUYER: u32 = 9;

/// The variant that the study calls REST.
const AGGREGATE: &str = "aggregate";

/// The results of a query in one of the cases.
#[derive(Serialize)]
pub(crate) struct StudyRow {
    pub(crate) query: &'static str,
    /// The variant.
    pub(crate) way: &'static str,
    pub(crate) users: u32,
    requests: usize,
    errors: usize,
    pub(crate) mean_ms: f64,
    p99_ms: f64,
    pub(crate) per_second: f64,
}

/// A query of the study.
pub(crate) struct StudyQuery {
    pub(crate) name: &'static str,
    pub(crate) way: &'static str,
    pub(crate) call: PreparedCall,
}

/// The outcome of a request.
struct StudyOutcome {
    is_expected: bool,
    ms: f64,
}

/// The request bodies for logging in and for changing a buyer.
pub(crate) async fn write_bodies(marketplace: &Marketplace) -> Result<(Value, Value)> {
    let profile = BenchClient::new(marketplace.address(MarketplaceService::Profile));
    let buyer = PreparedCall::get(format!("/buyers/{BUYER}")).send(&profile).await?;
    let mut buyer: Value = serde_json::from_slice(&buyer.body)?;
    let login = json!({ "email": buyer["email"], "password": format!("password-{BUYER}") });
    for field in ["id", "joined"] {
        buyer.as_object_mut().context("a buyer is an object")?.remove(field);
    }
    Ok((login, buyer))
}

/// The five queries by aggregate, in the study's order.
pub(crate) async fn queries(marketplace: &Marketplace) -> Result<[StudyQuery; 5]> {
    let (login, buyer) = write_bodies(marketplace).await?;
    let by_aggregate = |name, call| StudyQuery { name, way: AGGREGATE, call };
    Ok([
        by_aggregate("q1", PreparedCall::json(Method::POST, "/q1", &login)),
        by_aggregate("q2", PreparedCall::json(Method::PUT, format!("/q2/{BUYER}"), &buyer)),
        by_aggregate("q3", PreparedCall::get("/q3")),
        by_aggregate("q4", PreparedCall::get("/q4")),
        by_aggregate("q5", PreparedCall::get("/q5?limit=2000")),
    ])
}

/// Runs a query in all three cases.
pub(crate) async fn run_cases(
    address: SocketAddr,
    query: &StudyQuery,
    tools: &BenchTools,
    progress: &BenchProgress,
) -> Result<Vec<StudyRow>> {
    let expected = query.call.send(&BenchClient::new(address)).await.context(query.name)?.body;
    let mut rows = Vec::new();
    for (users, each) in CASES {
        let row = run_case(address, query, &expected, (users, each), tools.round_time(RAMP_UP)).await?;
        let StudyRow { query, way, errors, mean_ms, p99_ms, per_second, .. } = &row;
        progress.report(&format!(
            "{query} {way:<9} {users:>3} users  {errors} errors  {mean_ms:>6.1} ms  p99 {p99_ms:>6.1} ms  {per_second:>4.0}/s"
        ));
        rows.push(row);
    }
    Ok(rows)
}

async fn run_case(
    address: SocketAddr,
    query: &StudyQuery,
    expected: &Bytes,
    (users, each): (u32, u32),
    ramp_up: Duration,
) -> Result<StudyRow> {
    let began = Instant::now();
    let user = async |place: u32| {
        tokio::time::sleep(ramp_up * place / users).await;
        let (client, mut outcomes) = (BenchClient::new(address), Vec::new());
        for _ in 0..each {
            let asked = Instant::now();
            let is_right = query.call.send(&client).await.is_ok_and(|answer| answer.body == *expected);
            outcomes.push(StudyOutcome { is_expected: is_right, ms: asked.elapsed().as_secs_f64() * 1e3 });
        }
        outcomes
    };
    let study_outcomes: Vec<StudyOutcome> =
        join_all((0..users).map(user)).await.into_iter().flatten().collect();
    let requests = study_outcomes.len();
    let times: Vec<f64> = study_outcomes.iter().map(|outcome| outcome.ms).collect();
    Ok(StudyRow {
        query: query.name,
        way: query.way,
        users,
        requests,
        errors: study_outcomes.iter().filter(|study_outcome| !study_outcome.is_expected).count(),
        mean_ms: times.iter().sum::<f64>() / requests as f64,
        p99_ms: percentile(&times, 99),
        per_second: requests as f64 / began.elapsed().as_secs_f64(),
    })
}

/// The numbers of errors in all cases, of aggregates and of GraphQL. Both should be zero.
pub(crate) fn error_headlines(rows: &[StudyRow]) -> [NamedScore; 2] {
    let (aggregates, graphql): (Vec<&StudyRow>, Vec<&StudyRow>) =
        rows.iter().partition(|row| row.way == AGGREGATE);
    [("aggregate.marketplace.errors", aggregates), ("graphql.marketplace.errors", graphql)].map(
        |(name, rows)| {
            let requests: usize = rows.iter().map(|row| row.requests).sum();
            let score = HeadlineScore {
                value: rows.iter().map(|row| row.errors).sum::<usize>() as f64,
                unit: "requests".into(),
                better: BetterDirection::Lower,
                target: Some(0.0),
                against: format!("{requests} requests: five queries, each by 100, 250 and 500 users"),
                spread: 0.0,
            };
            (name.into(), score)
        },
    )
}
