//! Long upstream responses are parsed and serialized in the offload pool, not on the serving threads.

use std::fmt::Write;

use testkit::http::{self, TestResponse};
use testkit::{GatewayProcess, misbehaving_upstream};

use crate::support::{ITEMS_OPENAPI, fetch_metrics, orfa_binary};

/// A number of items that takes about 800 KB.
const MANY: usize = 20_000;
const CONFIG: &str = "
listen: 127.0.0.1:0
admin: 127.0.0.1:0
services: { up: { url: '{up}', openapi: up.yaml } }
routes:
  - { path: '/up/*', proxy: up, dedup: true }
  - { path: /query, query: { services: [up], methods: [GET], limits: { cpu: 1s } } }
  - { path: /items, aggregate: { file: items.yaml } }
  - { path: /graphql, graphql: { services: [up] } }
";
const AGGREGATE: &str = "
input: { n: { type: integer, default: 2 } }
parts: { items: { get: 'up/json?n={n}', fields: [id] } }
response: items
";

async fn send_request(
    gateway: &GatewayProcess,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: String,
) -> TestResponse {
    let answer = http::request(method, &format!("{}{path}", gateway.url), headers, body).await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.status, 200, "{path}: {}", answer.text().chars().take(300).collect::<String>());
    answer
}

/// Returns how many jobs of this kind the offload pool has received.
async fn offload_jobs(gateway: &GatewayProcess, kind: &str) -> u64 {
    let page = fetch_metrics(gateway).await;
    let mut sample = String::new();
    write!(sample, "orfa_offload_jobs_total{{kind=\"{kind}\"}} ").expect("a write to a string");
    let line = page.lines().find_map(|line| line.strip_prefix(&sample));
    line.map_or(0, |count| count.parse().expect("a whole number"))
}

#[tokio::test]
async fn processes_long_responses_in_the_offload_pool() {
    let up = misbehaving_upstream::start().await;
    let files = [("up.yaml", ITEMS_OPENAPI), ("items.yaml", AGGREGATE)];
    let gateway = GatewayProcess::start_with(orfa_binary(), &CONFIG.replace("{up}", &up.url()), &files).await;
    let program = format!(
        "export default async (_, {{ up }}) => (await up.get('/json', {{ n: {MANY} }}))[{}].id",
        MANY - 1
    );
    let document = format!(r#"{{"query":"{{ items(n: {MANY}) {{ id }} }}"}}"#);
    let (script, json) = (("content-type", "text/javascript"), ("content-type", "application/json"));
    let dedup = ("accept", "application/vnd.orfa.dedup+json");
    for (kind, method, path, headers, body) in [
        ("json-index", "POST", "/query".to_owned(), vec![script], program),
        ("aggregate", "GET", format!("/items?n={MANY}"), vec![], String::new()),
        ("graphql-answer", "POST", "/graphql".to_owned(), vec![json], document),
        ("dedup", "GET", format!("/up/json?n={MANY}"), vec![dedup], String::new()),
    ] {
        assert_eq!(offload_jobs(&gateway, kind).await, 0, "{kind}, before");
        let answer = send_request(&gateway, method, &path, &headers, body).await;
        assert!(kind == "json-index" || answer.body.len() > 10 * MANY, "{kind}: {} bytes", answer.body.len());
        assert!(offload_jobs(&gateway, kind).await > 0, "{kind}: no job in the pool");
    }
}
