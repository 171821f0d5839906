//! The study's cases with GraphQL, over the REST services and stitched, next to the aggregates, which
//! correspond to the study's REST. The services are the marketplace with its databases.

use anyhow::{Context, Result, ensure};
use benches::call::Call;
use benches::client::Client;
use http::Method;
use marketplace::{Data, Marketplace, Service};
use serde_json::{Value, json};

use super::{asked, config};
use crate::process::{SERVER_CORE, Server};
use crate::progress::Progress;
use crate::ratios::Headline;
use crate::study::{self, BUYER, Query, Row, cases, queries, writes};
use crate::{Tools, open};

/// The GraphQL variants with their paths.
const WAYS: [(&str, &str); 2] = [("graphql", "/graphql"), ("stitched", "/stitched")];
/// The field of `Query` or `Mutation` for each of the five questions.
const ROOTS: [&str; 5] = ["login", "updateBuyer", "freelancers", "buyers", "orders"];

pub(super) fn run(tools: &Tools, progress: &Progress) -> Result<(Vec<Row>, [Headline; 2])> {
    let rows = open::run(rows(tools, progress))??;
    let errors = study::errors(&rows);
    Ok((rows, errors))
}

async fn rows(tools: &Tools, progress: &Progress) -> Result<Vec<Row>> {
    let marketplace = Marketplace::start(Data::fresh()?).await?;
    let services = Service::ALL.map(|service| marketplace.address(service));
    let orfa = Server::gateway(&tools.orfa, SERVER_CORE, &config(services))?;
    let (mut login, mut buyer) = writes(&marketplace).await?;
    buyer["id"] = BUYER.into();
    let variables = [login.take(), buyer, Value::Null, Value::Null, json!({ "limit": 2000 })];
    let mut rows = Vec::new();
    for ((aggregate, variables), root) in queries(&marketplace).await?.into_iter().zip(variables).zip(ROOTS) {
        let expected = value(&aggregate, orfa.address, "").await?;
        let body = asked(aggregate.name, variables)?;
        rows.extend(cases(orfa.address, &aggregate, tools, progress).await?);
        // Writes are not repeated for stitching: they differ only in the gateway, which is the same.
        let ways = if *aggregate.call.method() == Method::GET { &WAYS[..] } else { &WAYS[..1] };
        for (way, path) in ways.iter().copied() {
            let query = Query { name: aggregate.name, way, call: Call::json(Method::POST, path, &body) };
            let answer = value(&query, orfa.address, &format!("/data/{root}")).await?;
            ensure!(answer == expected, "{} has a different response with {way}", aggregate.name);
            rows.extend(cases(orfa.address, &query, tools, progress).await?);
        }
    }
    Ok(rows)
}

/// A part of the response to a single request.
async fn value(query: &Query, address: std::net::SocketAddr, pointer: &str) -> Result<Value> {
    let answer: Value = serde_json::from_slice(&query.call.send(&Client::new(address)).await?.body)?;
    answer.pointer(pointer).cloned().with_context(|| format!("{} answers {answer:.300}", query.name))
}
