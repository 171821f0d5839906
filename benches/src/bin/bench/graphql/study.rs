//! The study's cases with GraphQL, over the REST services and stitched, next to the aggregates, which
//! correspond to the study's REST. The services are the marketplace with its databases.

use anyhow::{Context, Result, ensure};
use benches::call::PreparedCall;
use benches::client::BenchClient;
use http::Method;
use marketplace::{DatabaseFolder, Marketplace, MarketplaceService};
use serde_json::{Value, json};

use super::{config, question_body};
use crate::process::{SERVER_CORE, ServerProcess};
use crate::progress::BenchProgress;
use crate::ratios::NamedScore;
use crate::study::{self, BUYER, StudyQuery, StudyRow, queries, run_cases, write_bodies};
use crate::{BenchTools, open_loop};

/// The GraphQL variants with their paths.
const VARIANTS: [(&str, &str); 2] = [("graphql", "/graphql"), ("stitched", "/stitched")];
/// The field of `StudyQuery` or `Mutation` for each of the five questions.
const ROOTS: [&str; 5] = ["login", "updateBuyer", "freelancers", "buyers", "orders"];

pub(super) fn run(tools: &BenchTools, progress: &BenchProgress) -> Result<(Vec<StudyRow>, [NamedScore; 2])> {
    let rows = open_loop::run(measure_rows(tools, progress))??;
    let errors = study::error_headlines(&rows);
    Ok((rows, errors))
}

async fn measure_rows(tools: &BenchTools, progress: &BenchProgress) -> Result<Vec<StudyRow>> {
    let marketplace = Marketplace::start(DatabaseFolder::fresh()?).await?;
    let services = MarketplaceService::ALL.map(|service| marketplace.address(service));
    let orfa = ServerProcess::start_gateway(&tools.orfa, SERVER_CORE, &config(services))?;
    let (mut login, mut buyer) = write_bodies(&marketplace).await?;
    buyer["id"] = BUYER.into();
    let variables = [login.take(), buyer, Value::Null, Value::Null, json!({ "limit": 2000 })];
    let mut rows = Vec::new();
    for ((aggregate, variables), root) in queries(&marketplace).await?.into_iter().zip(variables).zip(ROOTS) {
        let expected = fetch_value(&aggregate, orfa.address, "").await?;
        let body = question_body(aggregate.name, variables)?;
        rows.extend(run_cases(orfa.address, &aggregate, tools, progress).await?);
        // Writes are not repeated for stitching: they differ only in the gateway, which is the same.
        let ways = if *aggregate.call.method() == Method::GET { &VARIANTS[..] } else { &VARIANTS[..1] };
        for (way, path) in ways.iter().copied() {
            let query =
                StudyQuery { name: aggregate.name, way, call: PreparedCall::json(Method::POST, path, &body) };
            let answer = fetch_value(&query, orfa.address, &format!("/data/{root}")).await?;
            ensure!(answer == expected, "{} has a different response with {way}", aggregate.name);
            rows.extend(run_cases(orfa.address, &query, tools, progress).await?);
        }
    }
    Ok(rows)
}

/// A part of the response to a single request.
async fn fetch_value(query: &StudyQuery, address: std::net::SocketAddr, pointer: &str) -> Result<Value> {
    let answer: Value = serde_json::from_slice(&query.call.send(&BenchClient::new(address)).await?.body)?;
    answer.pointer(pointer).cloned().with_context(|| format!("{} answers {answer:.300}", query.name))
}
