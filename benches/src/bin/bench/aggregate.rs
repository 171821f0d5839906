//! Aggregates: the marketplace's Q4 and Q5 beside the same written by hand in Rust and on Fastify, and what it costs to
//! leave out duplicates (`joins.rs`); answers of 10 MB (`large.rs`). The study that the marketplace comes from is asked with GraphQL
//! (`graphql/study.rs`).

pub(crate) mod joins;
mod large;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use marketplace::Service;
use serde::Serialize;

use crate::Tools;
use crate::progress::Progress;

/// About as long as all of it takes.
const TAKES: Duration = Duration::from_secs(95);
/// The aggregates of the marketplace, and where their routes are here.
const ROUTES: [(&str, &str); 5] =
    [("q1", "/q1"), ("q2", "/q2/{id}"), ("q3", "/q3"), ("q4", "/q4"), ("q5", "/q5")];

#[derive(Serialize)]
#[serde(untagged)]
enum Row {
    Join(joins::Row),
    Large(large::Row),
}

pub(crate) fn run(tools: &Tools) -> Result<()> {
    let progress = Progress::new(tools, tools.time(TAKES));
    let (joins, mut scores) = joins::run(tools, &progress)?;
    let (large, memory) = large::run(tools, &progress)?;
    let rows = joins.into_iter().map(Row::Join).chain(large.into_iter().map(Row::Large));
    scores.push(memory);
    tools.results("aggregate", &rows.collect::<Vec<_>>(), scores)
}

/// The config of a gateway with the marketplace's aggregates, in the order of [`Service::ALL`] before services there.
fn config(services: [SocketAddr; 3]) -> String {
    let service =
        |(service, at): (Service, SocketAddr)| format!("  {}: {{ url: 'http://{at}' }}\n", service.name());
    let services = Service::ALL.into_iter().zip(services).map(service).collect::<String>();
    format!("services:\n{services}routes:\n{}", routes())
}

/// The routes of the marketplace's aggregates, as a config has them.
pub(crate) fn routes() -> String {
    let route = |(name, path)| format!("  - {{ path: '{path}', aggregate: '{}' }}\n", file(name).display());
    ROUTES.map(route).concat()
}

/// The declaration of this name.
fn file(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/marketplace/aggregates");
    folder.join(name).with_extension("yaml")
}
