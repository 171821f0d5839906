//! The examples as described in their READMEs: the paper's two case studies over pages served by the same
//! gateway, and the marketplace's orders.

use std::collections::BTreeSet;

use marketplace::{DatabaseFolder, Marketplace, MarketplaceService};
use serde_json::{Value, json};
use testkit::{GatewayProcess, http, with_timeout};

use crate::support::orfa_binary;

macro_rules! example {
    ($file:literal) => {
        include_str!(concat!("../../../../examples/", $file))
    };
}

/// Starts a gateway with an example's config on a free port.
async fn start_example(config: &str, files: &[(&str, &str)]) -> GatewayProcess {
    let config = config.replace("127.0.0.1:8080", "127.0.0.1:0");
    GatewayProcess::start_with(orfa_binary(), &config, files).await
}

/// Returns the gateway's URL as the READMEs write it.
fn localhost_url(gateway: &GatewayProcess) -> String {
    gateway.url.replace("127.0.0.1", "localhost")
}

async fn get(url: &str) -> Value {
    let answer = http::request("GET", url, &[], "").await.expect("an answer");
    assert_eq!(answer.status, 200, "{url}: {}", answer.text());
    answer.json()
}

#[tokio::test]
async fn the_crawler_finds_each_page_below_the_first_once() {
    let files =
        [("crawler.sjs", example!("crawler/crawler.sjs")), ("pages.sjs", example!("crawler/pages.sjs"))];
    let gateway = start_example(example!("crawler/orfa.yaml"), &files).await;
    let url = localhost_url(&gateway);
    let crawl = format!("{url}/crawler/crawl?startFrom={url}/pages/tree%3Fn%3D1&depth=4");
    let crawled = http::request("PUT", &crawl, &[], "").await.expect("an answer");
    assert_eq!(crawled.status, 204, "{}", crawled.text());
    let value = get(&format!("{url}/crawler/urlsDiscovered")).await;
    let found: Vec<&str> = value.as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    let pages: BTreeSet<String> = (2..16).map(|page| format!("{url}/pages/tree?n={page}")).collect();
    assert_eq!((found.len(), found.into_iter().map(str::to_owned).collect()), (14, pages));
}

#[tokio::test]
async fn map_reduce_sums_the_words_of_each_clients_pages() {
    let files = [
        ("mapreduce.sjs", example!("mapreduce/mapreduce.sjs")),
        ("pages.sjs", example!("mapreduce/pages.sjs")),
    ];
    let gateway = start_example(example!("mapreduce/orfa.yaml"), &files).await;
    let url = localhost_url(&gateway);
    for (key, place, sum) in [("three", "/mapreduce/red/1", 13), ("one", "/mapreduce/red/2", 13)] {
        let urls = [9, 30].map(|words| format!("{url}/pages/words?n={words}"));
        let body = json!({ "key": key, "urls": urls }).to_string();
        let json = [("content-type", "application/json")];
        let started =
            http::request("POST", &format!("{url}/mapreduce/start"), &json, body).await.expect("an answer");
        assert_eq!((started.status.as_u16(), started.header("location")), (302, place), "{}", started.text());
        let whole = async { while get(&format!("{url}{place}")).await != sum {} };
        with_timeout(format_args!("{place} answers {sum}"), whole).await;
    }
}

#[tokio::test]
async fn the_marketplace_answers_orders_with_their_postings_and_freelancers() {
    let data = DatabaseFolder::fresh().expect("a folder");
    let marketplace = Marketplace::start(data).await.expect("a marketplace");
    let services = MarketplaceService::ALL
        .map(|service| format!("  {}: {{ url: '{}' }}\n", service.name(), marketplace.url(service)));
    let services = services.concat();
    let config = format!(
        "listen: 127.0.0.1:0\nservices:\n{services}routes:\n  - {{ path: '/shop/*', script: orders.sjs }}\n"
    );
    let gateway = start_example(&config, &[("orders.sjs", example!("marketplace/scripts/orders.sjs"))]).await;
    let orders = get(&format!("{}/shop/orders?limit=3", gateway.url)).await;
    assert_eq!(orders.as_array().map(Vec::len), Some(3));
    for order in orders.as_array().expect("a list") {
        assert_eq!(order["catalog"]["id"], order["catalog_id"], "{order}");
        assert_eq!(order["freelancer"]["id"], order["freelancer_id"], "{order}");
        assert!(order["catalog"]["title"].is_string() && order["freelancer"]["name"].is_string(), "{order}");
    }
}
