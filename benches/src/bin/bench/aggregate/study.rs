//! The study's cases by aggregates. The services are the marketplace with its databases.

use anyhow::Result;
use http::Method;
use marketplace::{Data, Marketplace, Service};

use super::config;
use crate::process::{SERVER_CORE, Server};
use crate::progress::Progress;
use crate::ratios::Headline;
use crate::study::{self, BUYER, Query, Row, cases, writes};
use crate::{Tools, open};

const WAY: &str = "aggregate";

pub(super) fn run(tools: &Tools, progress: &Progress) -> Result<(Vec<Row>, Headline)> {
    let rows = open::run(rows(tools, progress))??;
    let errors = study::errors("aggregate.marketplace.errors", &rows);
    Ok((rows, errors))
}

async fn rows(tools: &Tools, progress: &Progress) -> Result<Vec<Row>> {
    let marketplace = Marketplace::start(Data::fresh()?).await?;
    let services = Service::ALL.map(|service| marketplace.address(service));
    let orfa = Server::gateway(&tools.orfa, SERVER_CORE, &config(services))?;
    let mut rows = Vec::new();
    for query in queries(&marketplace).await? {
        rows.extend(cases(orfa.address, &query, tools, progress).await?);
    }
    Ok(rows)
}

/// The five, as the study lists them.
pub(crate) async fn queries(marketplace: &Marketplace) -> Result<[Query; 5]> {
    let (login, buyer) = writes(marketplace).await?;
    let post = Query { name: "q1", way: WAY, method: Method::POST, path: "/q1".into(), body: login };
    let put = Query { name: "q2", way: WAY, method: Method::PUT, path: format!("/q2/{BUYER}"), body: buyer };
    let get = |name, path| Query::get(name, WAY, path);
    Ok([post, put, get("q3", "/q3"), get("q4", "/q4"), get("q5", "/q5?limit=2000")])
}
