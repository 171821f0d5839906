//! The three test cases of the study that the marketplace comes from, for each of its five queries: so many users, who
//! begin one after the other within five seconds, and ask so often each. The services are the marketplace with its
//! databases. An error is an answer that is not 200, or not that of one who asks alone.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use benches::client::Client;
use benches::scoreboard::{Better, Score};
use benches::stats::percentile;
use bytes::Bytes;
use futures_util::future::join_all;
use http::{Method, Request};
use http_body_util::Full;
use marketplace::{Data, Marketplace, Service};
use serde::Serialize;
use serde_json::{Value, json};

use super::config;
use crate::process::{SERVER_CORE, Server};
use crate::progress::Progress;
use crate::ratios::Headline;
use crate::{Tools, open};

/// The first user begins now, the last one after this.
const RAMP_UP: Duration = Duration::from_secs(5);
/// Users, and requests of each.
const CASES: [(u32, u32); 3] = [(100, 5), (250, 2), (500, 1)];
/// Who logs in, and is changed.
const BUYER: u32 = 9;

#[derive(Serialize)]
pub(super) struct Row {
    query: &'static str,
    users: u32,
    requests: usize,
    errors: usize,
    mean_ms: f64,
    p99_ms: f64,
    per_second: f64,
}

/// A query of the study.
struct Query {
    name: &'static str,
    method: Method,
    path: String,
    body: Value,
}

/// What became of a request.
struct Answered {
    is_right: bool,
    ms: f64,
}

pub(super) fn run(tools: &Tools, progress: &Progress) -> Result<(Vec<Row>, Headline)> {
    let rows = open::run(cells(tools, progress))??;
    let errors: usize = rows.iter().map(|row| row.errors).sum();
    let requests: usize = rows.iter().map(|row| row.requests).sum();
    let score = Score {
        value: errors as f64,
        unit: "requests".into(),
        better: Better::Lower,
        target: Some(0.0),
        against: format!("{requests} requests: five queries, each by 100, 250 and 500 users"),
        spread: 0.0,
    };
    Ok((rows, ("aggregate.marketplace.errors".into(), score)))
}

async fn cells(tools: &Tools, progress: &Progress) -> Result<Vec<Row>> {
    let marketplace = Marketplace::start(Data::fresh()?).await?;
    let services = Service::ALL.map(|service| marketplace.address(service));
    let orfa = Server::gateway(&tools.orfa, SERVER_CORE, &config(services))?;
    let mut rows = Vec::new();
    for query in queries(&marketplace).await? {
        let expected = query.ask(&Client::new(orfa.address)).await.context(query.name)?;
        for (users, each) in CASES {
            let row = cell(orfa.address, &query, &expected, (users, each), tools.time(RAMP_UP)).await?;
            let Row { query: name, errors, mean_ms, p99_ms, per_second, .. } = &row;
            progress.say(&format!(
                "{name} {users:>3} users  {errors} errors  {mean_ms:>7.1} ms  p99 {p99_ms:>7.1} ms  {per_second:>5.0} requests/s"
            ));
            rows.push(row);
        }
    }
    Ok(rows)
}

/// The five, as the study lists them.
async fn queries(marketplace: &Marketplace) -> Result<Vec<Query>> {
    let profile = Client::new(marketplace.address(Service::Profile));
    let buyer = Query::get("buyer", &format!("/buyers/{BUYER}")).ask(&profile).await?;
    let mut buyer: Value = serde_json::from_slice(&buyer)?;
    let login = json!({ "email": buyer["email"], "password": format!("password-{BUYER}") });
    for field in ["id", "joined"] {
        buyer.as_object_mut().context("a buyer is an object")?.remove(field);
    }
    let post = Query { name: "q1", method: Method::POST, path: "/q1".into(), body: login };
    let put = Query { name: "q2", method: Method::PUT, path: format!("/q2/{BUYER}"), body: buyer };
    Ok(vec![post, put, Query::get("q3", "/q3"), Query::get("q4", "/q4"), Query::get("q5", "/q5?limit=2000")])
}

async fn cell(
    address: SocketAddr,
    query: &Query,
    expected: &Bytes,
    (users, each): (u32, u32),
    ramp_up: Duration,
) -> Result<Row> {
    let began = Instant::now();
    let user = async |place: u32| {
        tokio::time::sleep(ramp_up * place / users).await;
        let (client, mut answered) = (Client::new(address), Vec::new());
        for _ in 0..each {
            let asked = Instant::now();
            let is_right = query.ask(&client).await.is_ok_and(|answer| answer == *expected);
            answered.push(Answered { is_right, ms: asked.elapsed().as_secs_f64() * 1e3 });
        }
        answered
    };
    let answered: Vec<Answered> = join_all((0..users).map(user)).await.into_iter().flatten().collect();
    let requests = answered.len();
    let times: Vec<f64> = answered.iter().map(|answered| answered.ms).collect();
    Ok(Row {
        query: query.name,
        users,
        requests,
        errors: answered.iter().filter(|answered| !answered.is_right).count(),
        mean_ms: times.iter().sum::<f64>() / requests as f64,
        p99_ms: percentile(&times, 99),
        per_second: requests as f64 / began.elapsed().as_secs_f64(),
    })
}

impl Query {
    fn get(name: &'static str, path: &str) -> Self {
        Self { name, method: Method::GET, path: path.into(), body: Value::Null }
    }

    /// The body of the answer, which is to be 200.
    async fn ask(&self, client: &Client) -> Result<Bytes> {
        let Self { method, path, body, .. } = self;
        let mut request = Request::builder().method(method).uri(path);
        let mut text = String::new();
        if !body.is_null() {
            request = request.header("content-type", "application/json");
            text = body.to_string();
        }
        let answer = client.send(request.body(Full::new(text.into()))?).await?;
        let text = || String::from_utf8_lossy(&answer.body).into_owned();
        ensure!(answer.status == 200, "{method} {path}: {} {}", answer.status, text());
        Ok(answer.body)
    }
}
