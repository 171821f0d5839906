//! The config of a gateway in front of the marketplace, with a route for each handler.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Result;
use http::Request;
use http_body_util::Full;
use marketplace::{Marketplace, MarketplaceService};

use super::CPU_LIMIT_MS;
use crate::client::BenchClient;

/// The number of calls to services that a gateway has made so far, from its metrics.
///
/// # Errors
/// Fails if the metrics can't be read.
pub async fn upstream_calls(admin: &BenchClient) -> Result<u64> {
    let metrics = admin.send(Request::get("/metrics").body(Full::default())?).await?.body;
    let metrics = String::from_utf8_lossy(&metrics);
    let counts = metrics.lines().filter(|line| line.starts_with("orfa_upstream_requests_total"));
    Ok(counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum())
}

/// `examples/marketplace/orfa.yaml` with the ports of this run and a proxy route for each service, without
/// `listen`.
#[must_use]
pub fn gateway_config(marketplace: &Marketplace, admin: SocketAddr) -> String {
    let [services, routes] = [service_entry, route_entry]
        .map(|line| MarketplaceService::ALL.map(|of| line(of, marketplace)).concat());
    format!(
        "admin: {admin}
services:
{services}routes:
  - path: /query
    query:
      services: [profile, catalog, order]
      methods: [GET, POST]
      modes: [code, instance]
      limits: {{ cpu: {CPU_LIMIT_MS}ms, timeout: 2s, memory: 16MiB, calls: 200, concurrency: 32, response_body: 4MiB }}
  - {{ path: \"/shop/*\", script: '{}' }}
  - {{ path: \"/market/orders\", aggregate: '{}' }}
  - {{ path: /graphql, graphql: {{ services: [profile, catalog, order], links: '{}', mutations: true }} }}
  - path: /stitched
    graphql: {{ services: [profile-graphql, catalog-graphql, order-graphql], links: '{}' }}
{routes}",
        example_path("scripts/orders.sjs").display(),
        example_path("aggregates/q5.yaml").display(),
        example_path("links.yaml").display(),
        example_path("stitched.yaml").display(),
    )
}

/// The entries of a service for REST and for its own GraphQL.
fn service_entry(service: MarketplaceService, marketplace: &Marketplace) -> String {
    let (name, url) = (service.name(), marketplace.url(service));
    let [openapi, schema] = ["openapi", "graphql"].map(|folder| example_path(folder).join(name));
    let [openapi, schema] = [openapi.with_extension("yaml"), schema.with_extension("graphql")];
    format!(
        "  {name}: {{ url: '{url}', openapi: '{}' }}\n  \
           {name}-graphql: {{ url: '{url}', graphql: {{ schema: '{}' }} }}\n",
        openapi.display(),
        schema.display(),
    )
}

/// A file or folder of the marketplace example.
fn example_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/marketplace").join(name)
}

fn route_entry(service: MarketplaceService, _: &Marketplace) -> String {
    format!("  - {{ path: \"/{0}/*\", proxy: {0} }}\n", service.name())
}
