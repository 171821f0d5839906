//! A crawl from a client's point of view.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use benches::client::BenchClient;
use bytes::Bytes;
use http::Request;
use http_body_util::Full;

/// Crawls a tree of this depth from its root. Returns the number of its pages.
pub(in super::super) async fn crawl(server: SocketAddr, service: SocketAddr, depth: u32) -> Result<u64> {
    let path = format!("/crawl?startFrom=http%3A%2F%2F{service}%2Ftree%3Fn%3D1&depth={depth}");
    let answer = BenchClient::new(server).send(Request::put(path).body(Full::<Bytes>::default())?).await?;
    let text = String::from_utf8_lossy(&answer.body);
    ensure!(answer.status == 204, "the crawl was answered {}: {text}", answer.status);
    Ok((1 << depth) - 1)
}

/// Checks that the crawls have found each page below the root once per crawl, and nothing else.
pub(in super::super) async fn check(server: SocketAddr, depth: u32, crawls: usize) -> Result<()> {
    let request = Request::get("/urlsDiscovered").body(Full::<Bytes>::default())?;
    let answer = BenchClient::new(server).send(request).await?;
    let urls: Vec<String> = serde_json::from_slice(&answer.body)?;
    let pages: Option<BTreeSet<u64>> = urls.iter().map(|url| url.rsplit_once('=')?.1.parse().ok()).collect();
    let pages = pages.context("a URL has no number")?;
    let expected = (1 << depth) - 2;
    ensure!(
        urls.len() == expected * crawls && pages.into_iter().eq(2..1 << depth),
        "{crawls} crawls found {} URLs, and not {expected} each",
        urls.len()
    );
    Ok(())
}
