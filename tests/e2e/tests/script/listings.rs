//! The paper's listings as printed, except for the names of the services they call.

use super::ScriptTestGateway;
use super::pages::PageTree;
use crate::support::orfa_binary;

const LISTING_1: &str = include_str!("../../../../crates/script/tests/listings/1.sjs");
const LISTING_2: &str = include_str!("../../../../crates/script/tests/listings/2.sjs");
const LISTING_3: &str = include_str!("../../../../crates/script/tests/listings/3.sjs");
const LISTING_4: &str = include_str!("../../../../crates/script/tests/listings/4.sjs");
const LISTING_6: &str = include_str!("../../../../crates/script/tests/listings/6.sjs");
const LISTING_7: &str = include_str!("../../../../crates/script/tests/listings/7.sjs");

/// Replaces the search engines of a listing by a service that returns as many items as it is asked for.
fn localize_listing(listing: &str) -> String {
    let listing = listing.replace("http://google.ch/search?q=@", "http://up/json?n=@");
    listing.replace("http://bing.com/search?q=@", "http://up/json?n=@")
}

/// Serves a listing with the pages as the service `pages`.
async fn start_with_pages(listing: &str) -> (ScriptTestGateway, PageTree) {
    let pages = PageTree::start().await;
    let more = format!("services: {{ pages: {{ url: 'http://{}' }} }}", pages.address);
    let config = format!("listen: 127.0.0.1:0\n{more}\nroutes:\n  - {{ path: '/s/*', script: shop.sjs }}\n");
    let gateway = testkit::GatewayProcess::start_with(orfa_binary(), &config, &[("shop.sjs", listing)]).await;
    let upstream = testkit::misbehaving_upstream::start().await;
    (ScriptTestGateway { gateway, upstream }, pages)
}

#[tokio::test]
async fn listing_1_shares_state_between_its_handlers() {
    let gateway = ScriptTestGateway::start(LISTING_1).await;
    assert_eq!(gateway.get("/data").await, "Hello World");
    assert_eq!(gateway.request("PUT", "/data?value=S").await.status, 204);
    assert_eq!(gateway.get("/data").await, "Hello S");
}

#[tokio::test]
async fn listing_2_passes_on_a_services_response() {
    let gateway = ScriptTestGateway::start(&localize_listing(LISTING_2)).await;
    assert_eq!(gateway.get("/search").await, "Invalid query");
    let passed = gateway.request("GET", "/search?q=2").await;
    assert_eq!(passed.status, 200);
    assert_eq!(passed.json().as_array().map(Vec::len), Some(2));
    assert_eq!(gateway.upstream.hits("/json"), 1);
}

#[tokio::test]
async fn listing_3_makes_a_resource_for_each_answer() {
    let gateway = ScriptTestGateway::start(&localize_listing(LISTING_3)).await;
    for id in ["1", "2"] {
        let response = gateway.request("POST", "/search?q=1").await;
        assert_eq!(response.status, 302, "{}", response.text());
        assert_eq!(response.header("location"), format!("/s/total/{id}"), "below the mount path");
        gateway.get(&format!("/total/{id}")).await;
    }
    assert_eq!(gateway.problem_code("GET", "/total/3").await, (404, "resource-not-found".into()));
}

#[tokio::test]
async fn listing_4_asks_both_services_at_once() {
    let listing = LISTING_4
        .replace("http://google.ch/search?q=@", "http://up/slow?ms=@")
        .replace("http://bing.com/search?q=@", "http://up/status/200?q=@");
    let gateway = ScriptTestGateway::start(&listing).await;
    gateway.get("/search?q=1").await;
    assert_eq!((gateway.upstream.hits("/slow"), gateway.upstream.hits("/status/200")), (1, 1));
}

#[tokio::test]
async fn listing_6_crawls_a_tree_of_pages_by_calling_itself() {
    let (gateway, _pages) = start_with_pages(LISTING_6).await;
    let crawled = gateway.request("PUT", "/crawl?startFrom=http%3A%2F%2Fpages%2F1&depth=4").await;
    assert_eq!(crawled.status, 204, "{}", crawled.text());
    let value = gateway.request("GET", "/urlsDiscovered").await.json();
    let mut found: Vec<u64> = value
        .as_array()
        .expect("a list")
        .iter()
        .map(|url| url.as_str().expect("a text").trim_start_matches("http://pages/").parse().expect("a page"))
        .collect();
    found.sort_unstable();
    assert_eq!(found, (2..16).collect::<Vec<_>>());
}

#[tokio::test]
async fn listing_7_counts_words_after_it_has_answered() {
    let (gateway, _pages) = start_with_pages(LISTING_7).await;
    let urls: Vec<String> = (1..16).map(|page| format!("http://pages/{page}")).collect();
    let body = serde_json::json!({ "urls": urls, "key": "leaf" }).to_string();
    let started = gateway.send("POST", "/start", &[("content-type", "application/json")], body).await;
    assert_eq!(
        (started.status.as_u16(), started.header("location")),
        (302, "/s/red/1"),
        "{}",
        started.text()
    );
    let words: u32 = (1..16_u32).map(u32::count_ones).sum();
    gateway.wait_for_text("/red/1", &words.to_string()).await;
}

#[tokio::test]
async fn rule_1_states_of_the_same_name_at_two_levels_are_separate() {
    let script = r"service s {
  state n = 1
  res '/outer' on GET { respond n }
  res '/make' on POST {
    res '/made/' + query.id {
      state n = 5
      on GET { respond n }
      on POST { n++ }
    }
  }
}
";
    let served = ScriptTestGateway::start(script).await;
    assert_eq!(served.request("POST", "/make?id=a").await.status, 204);
    assert_eq!(served.get("/made/a").await, "5");
    assert_eq!(served.request("POST", "/made/a").await.status, 204);
    assert_eq!((&*served.get("/made/a").await, &*served.get("/outer").await), ("6", "1"));
}
