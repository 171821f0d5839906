//! Aggregates: the marketplace's Q4 and Q5 next to handwritten versions in Rust and on Fastify, and the cost
//! of deduplication (`joins.rs`); responses of 10 MB (`large.rs`). The study that the marketplace comes from
//! is run with GraphQL (`graphql/study.rs`).

pub(crate) mod joins;
mod large;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use marketplace::MarketplaceService;
use serde::Serialize;

use crate::BenchTools;
use crate::progress::BenchProgress;

/// The approximate duration of the whole bench.
const EXPECTED_DURATION: Duration = Duration::from_secs(95);
/// The marketplace's aggregates with the paths of their routes here.
const ROUTES: [(&str, &str); 5] =
    [("q1", "/q1"), ("q2", "/q2/{id}"), ("q3", "/q3"), ("q4", "/q4"), ("q5", "/q5")];

#[derive(Serialize)]
#[serde(untagged)]
enum AggregateBenchRow {
    Join(joins::JoinsRow),
    Large(large::LargeAggregateRow),
}

pub(crate) fn run(tools: &BenchTools) -> Result<()> {
    let progress = BenchProgress::new(tools, tools.round_time(EXPECTED_DURATION));
    let (joins, mut scores) = joins::run(tools, &progress)?;
    let (large, memory) = large::run(tools, &progress)?;
    let rows =
        joins.into_iter().map(AggregateBenchRow::Join).chain(large.into_iter().map(AggregateBenchRow::Large));
    scores.push(memory);
    tools.write_results("aggregate", &rows.collect::<Vec<_>>(), scores)
}

/// The config of a gateway with the marketplace's aggregates, for services at these addresses in the order of
/// `BenchService::ALL`.
fn config(services: [SocketAddr; 3]) -> String {
    let service = |(service, at): (MarketplaceService, SocketAddr)| {
        format!("  {}: {{ url: 'http://{at}' }}\n", service.name())
    };
    let services = MarketplaceService::ALL.into_iter().zip(services).map(service).collect::<String>();
    format!("services:\n{services}routes:\n{}", routes())
}

/// The config of the aggregates' routes.
pub(crate) fn routes() -> String {
    let route = |(name, path)| {
        format!("  - {{ path: '{path}', aggregate: '{}' }}\n", declaration_file(name).display())
    };
    ROUTES.map(route).concat()
}

/// The file of a declaration.
fn declaration_file(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/marketplace/aggregates");
    folder.join(name).with_extension("yaml")
}
