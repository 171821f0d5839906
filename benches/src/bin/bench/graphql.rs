//! GraphQL: posts and their users next to tailcall and Hive Gateway (`posts.rs`), the marketplace's Q4 and Q5
//! next to the corresponding aggregates (`market.rs`), the three test cases of the study that the marketplace
//! comes from, as in its figures 6 and 7 (`study.rs`), and the cost of schemas and plans (`schemas.rs`).

mod market;
mod posts;
mod schemas;
mod study;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use marketplace::MarketplaceService;
use serde::Serialize;
use serde_json::{Value, json};

use crate::progress::BenchProgress;
use crate::{BenchTools, aggregate};

/// The approximate duration of the whole bench.
const EXPECTED_DURATION: Duration = Duration::from_secs(345);

#[derive(Serialize)]
#[serde(untagged)]
enum GraphqlRow {
    Posts(posts::PostsRow),
    Market(market::MarketRow),
    Case(crate::study::StudyRow),
    Schema(schemas::SchemasRow),
}

pub(crate) fn run(tools: &BenchTools) -> Result<()> {
    let progress = BenchProgress::new(tools, tools.round_time(EXPECTED_DURATION));
    let (posts, mut scores) = posts::run(tools, &progress)?;
    let (market, more) = market::run(tools, &progress)?;
    scores.extend(more);
    let (schemas, more) = schemas::run(tools, &progress)?;
    scores.extend(more);
    let (cases, errors) = study::run(tools, &progress)?;
    scores.extend(errors);
    let rows = posts.into_iter().map(GraphqlRow::Posts).chain(market.into_iter().map(GraphqlRow::Market));
    let rows = rows
        .chain(schemas.into_iter().map(GraphqlRow::Schema))
        .chain(cases.into_iter().map(GraphqlRow::Case));
    tools.write_results("graphql", &rows.collect::<Vec<_>>(), scores)
}

/// The config of a gateway in front of the marketplace, for services in the order of `BenchService::ALL`:
/// the aggregates, `/graphql` over the REST services, and `/stitched` over their own GraphQL.
fn config(services: [SocketAddr; 3]) -> String {
    let service = |(service, at): (MarketplaceService, SocketAddr)| {
        let (name, openapi, schema) = (service.name(), example_path("openapi"), example_path("graphql"));
        format!(
            "  {name}: {{ url: 'http://{at}', openapi: '{}/{name}.yaml' }}\n  \
               {name}-graphql: {{ url: 'http://{at}', graphql: {{ schema: '{}/{name}.graphql' }} }}\n",
            openapi.display(),
            schema.display(),
        )
    };
    let route = |path: &str, suffix: &str, links: &str| {
        let services =
            MarketplaceService::ALL.map(|service| format!("{}{suffix}", service.name())).join(", ");
        let links = example_path(links);
        format!(
            "  - {{ path: {path}, graphql: {{ services: [{services}], links: '{}', mutations: true }} }}\n",
            links.display()
        )
    };
    let services = MarketplaceService::ALL.into_iter().zip(services).map(service).collect::<String>();
    let (rest, stitched) =
        (route("/graphql", "", "links.yaml"), route("/stitched", "-graphql", "stitched.yaml"));
    format!("services:\n{services}routes:\n{}{rest}{stitched}", aggregate::routes())
}

/// The request body for one of the five questions.
fn question_body(query: &str, variables: Value) -> Result<Value> {
    let file = example_path("documents").join(query).with_extension("graphql");
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    Ok(json!({ "query": text, "variables": variables }))
}

/// A file or folder of the marketplace example.
fn example_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/marketplace").join(name)
}
