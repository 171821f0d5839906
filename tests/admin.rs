//! The operator's own listener.

use serde_json::Value;
use testkit::http;

use crate::support::{House, Query};

/// The value of a metric in the text that Prometheus reads.
fn metric(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().expect("a whole number")
}

async fn metrics(house: &House) -> String {
    let line =
        house.gateway.logged(|line| line.contains("admin listening")).await.expect("an admin listener");
    let line: Value = serde_json::from_str(&line).expect("JSON");
    let address = line["address"].as_str().or(line["fields"]["address"].as_str()).expect("an address");
    let url = format!("http://{address}/metrics");
    let answer = http::request("GET", &url, &[], "").await.expect("an answer");
    assert_eq!(answer.status, 200);
    answer.text()
}

#[tokio::test]
async fn the_cache_of_programs_is_seen_in_the_metrics() {
    let routes =
        "  - { path: /query, query: { services: [up] } }\nadmin: 127.0.0.1:0\nruntime: { cache: 8KiB }";
    let house = House::own(routes).await;
    for _ in 0..2 {
        house.answer(Query::javascript("export default () => 1")).await;
    }
    let text = metrics(&house).await;
    assert_eq!(metric(&text, "orfa_program_cache_misses_total"), 1, "{text}");
    assert_eq!(metric(&text, "orfa_program_cache_hits_total"), 1, "{text}");
    assert_eq!(metric(&text, "orfa_program_cache_items"), 1, "{text}");
    for number in 0..20 {
        house.answer(Query::javascript(&format!("export default () => {number}"))).await;
    }
    let text = metrics(&house).await;
    assert!(metric(&text, "orfa_program_cache_evictions_total") > 0, "{text}");
    assert!(metric(&text, "orfa_program_cache_bytes") <= 8 << 10, "{text}");
}
