//! The admin listener.

use serde_json::{Value, json};
use testkit::misbehaving_upstream;
use testkit::{GatewayProcess, http};

use tokio::net::TcpListener;

use crate::support::{TestGateway, TestQuery, admin_url, fetch_metrics, metric_value, orfa_binary};

#[tokio::test]
async fn exposes_metrics_of_the_program_cache() {
    let routes =
        "  - { path: /query, query: { services: [up] } }\nadmin: 127.0.0.1:0\nruntime: { cache: 8KiB }";
    let gateway = TestGateway::start(routes).await;
    for _ in 0..2 {
        gateway.expect_text(TestQuery::javascript("export default () => 1")).await;
    }
    let text = fetch_metrics(&gateway.gateway).await;
    assert_eq!(metric_value(&text, "orfa_program_cache_misses_total"), 1, "{text}");
    assert_eq!(metric_value(&text, "orfa_program_cache_hits_total"), 1, "{text}");
    assert_eq!(metric_value(&text, "orfa_program_cache_items"), 1, "{text}");
    for number in 0..20 {
        gateway.expect_text(TestQuery::javascript(&format!("export default () => {number}"))).await;
    }
    let text = fetch_metrics(&gateway.gateway).await;
    assert!(metric_value(&text, "orfa_program_cache_evictions_total") > 0, "{text}");
    assert!(metric_value(&text, "orfa_program_cache_bytes") <= 8 << 10, "{text}");
}

const ROUTES: &str = "
  - { path: /query, query: { services: [up] } }
  - { path: /up/*, proxy: up }
  - { path: /dead, proxy: dead }
admin: 127.0.0.1:0
";

#[tokio::test]
async fn counts_requests_by_configured_route_and_never_by_client_data() {
    let gateway = TestGateway::start(ROUTES).await;
    gateway.expect_text(TestQuery::javascript("export default () => 1")).await;
    for (method, path) in [("GET", "/up/json"), ("BREW", "/up/echo"), ("GET", "/dead"), ("GET", "/no/such")] {
        let url = format!("{}{path}?secret=hush", gateway.gateway.url);
        http::request(method, &url, &[], "").await.expect("an answer");
    }
    let text = fetch_metrics(&gateway.gateway).await;
    for line in [
        r#"orfa_requests_total{route="/query",handler="query",method="POST",status="2xx"} 1"#,
        r#"orfa_requests_total{route="/up/*",handler="proxy",method="GET",status="2xx"} 1"#,
        r#"orfa_requests_total{route="/up/*",handler="proxy",method="other",status="2xx"} 1"#,
        r#"orfa_requests_total{route="/dead",handler="proxy",method="GET",status="5xx"} 1"#,
        r#"orfa_requests_total{route="none",handler="none",method="GET",status="4xx"} 1"#,
        r#"orfa_problems_total{code="upstream-unreachable"} 1"#,
        r#"orfa_problems_total{code="route-not-found"} 1"#,
        r#"orfa_program_runs_total{route="/query"} 1"#,
        r#"orfa_program_instances_used{class="javascript"} 0"#,
        "orfa_ready 1",
        r#"orfa_upstream_requests_total{service="up",result="ok"} 2"#,
        r#"orfa_upstream_requests_total{service="dead",result="failed"} 1"#,
        r#"orfa_upstream_request_duration_seconds_count{service="up"} 2"#,
        r#"orfa_upstream_request_duration_seconds_count{service="dead"} 0"#,
        "orfa_requests_shed_total 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    for strange in ["BREW", "/no/such", "hush", "json"] {
        assert!(!text.contains(strange), "{strange}\n{text}");
    }
    assert_well_formed(&text);
}

/// Asserts the rules of OpenMetrics 1.0 that scrapers depend on: families are announced and contiguous,
/// samples are unique, the last bucket equals the count, and the text ends with `# EOF`.
fn assert_well_formed(text: &str) {
    let (mut families, mut samples) = (Vec::new(), std::collections::BTreeMap::new());
    let body = text.strip_suffix("# EOF\n").expect("an end");
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            assert!(families.iter().all(|(other, _)| *other != name), "{name} twice");
            families.push((name, kind));
        } else if !line.starts_with("# HELP ") {
            let (sample, value) = line.rsplit_once(' ').expect("a value");
            let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
            let (family, kind) = families.last().expect("a family before its samples");
            let suffixes: &[&str] = match *kind {
                "counter" => &["_total"],
                "gauge" => &[""],
                "histogram" => &["_bucket", "_count", "_sum"],
                other => panic!("{other}"),
            };
            let name = sample.split('{').next().expect("a name");
            assert!(suffixes.iter().any(|suffix| *name == format!("{family}{suffix}")), "{line} in {family}");
            assert_eq!(samples.insert(sample, value), None, "{sample} twice");
        }
    }
    let last = |(name, _): &(&&str, &f64)| name.contains("_bucket{le=\"+Inf\",");
    for (name, value) in samples.iter().filter(last) {
        let count = name.replace("_bucket{le=\"+Inf\",", "_count{");
        assert_eq!(samples.get(&*count), Some(value), "{name}");
    }
}

#[tokio::test]
async fn readyz_reports_draining_while_a_request_is_in_flight() {
    let mut gateway = TestGateway::start(ROUTES).await;
    let admin = admin_url(&gateway.gateway).await;
    assert_eq!(get(&format!("{admin}/healthz")).await, (200, json!({ "status": "alive" })));
    assert_eq!(get(&format!("{admin}/readyz")).await, (200, json!({ "status": "ready" })));
    let url = format!("{}/up/hang", gateway.gateway.url);
    let waiting = tokio::spawn(async move { http::request("GET", &url, &[], "").await.map(drop) });
    gateway.upstream.wait_for_request("/hang").await;
    gateway.gateway.request_shutdown();
    gateway.gateway.wait_for_log(|line| line.contains("leaving")).await.expect("a log line about leaving");
    let (status, document) = get(&format!("{admin}/readyz")).await;
    assert_eq!((status, &document["status"]), (503, &json!("draining")), "{document}");
    assert_eq!(get(&format!("{admin}/healthz")).await.0, 200);
    waiting.abort();
    assert!(gateway.gateway.terminate().await.success());
}

#[tokio::test]
async fn the_admin_listener_is_read_only_and_rejects_foreign_hosts() {
    let gateway = TestGateway::start(ROUTES).await;
    let admin = admin_url(&gateway.gateway).await;
    let ask = async |method: &str, path: &str, host: &[(&str, &str)]| {
        http::request(method, &format!("{admin}{path}"), host, "").await.expect("an answer")
    };
    for path in ["/metrics", "/healthz", "/readyz"] {
        for method in ["POST", "DELETE", "OPTIONS"] {
            let answer = ask(method, path, &[]).await;
            assert_refused(&answer, 405, "method-not-allowed");
            assert_eq!(answer.header("allow"), "GET, HEAD");
        }
        assert_refused(&ask("GET", path, &[("host", "rebound.example.org")]).await, 421, "host-misdirected");
        assert_eq!(ask("GET", path, &[("host", "localhost:9090")]).await.status, 200);
        assert!(ask("HEAD", path, &[]).await.body.is_empty());
    }
    assert_refused(&ask("GET", "/", &[]).await, 404, "route-not-found");
    let address = admin.strip_prefix("http://").and_then(|text| text.parse().ok()).expect("an address");
    for bad in [
        "\0\u{1}\u{2}\r\n\r\n",
        "GET /metrics HTTP/9\r\n\r\n",
        &format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(1 << 17)),
    ] {
        // Any answer must be an error.
        let answer = http::send_raw(address, bad.as_bytes()).await.unwrap_or_default();
        assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    gateway.expect_text(TestQuery::javascript("export default () => 1")).await;
    assert_eq!(get(&format!("{admin}/healthz")).await.0, 200);
}

#[tokio::test]
async fn starts_without_an_admin_listener_when_the_default_address_is_taken() {
    let _taken = TcpListener::bind("127.0.0.1:9090").await; // either here or by another process
    let upstream = misbehaving_upstream::start().await;
    let config = |admin: &str| {
        format!(
            "listen: 127.0.0.1:0\n{admin}\nservices: {{ up: {{ url: '{}' }} }}\nroutes: [{{ path: /*, proxy: up }}]",
            upstream.url()
        )
    };
    let gateway = GatewayProcess::start(orfa_binary(), &config("# admin: the default")).await;
    assert!(gateway.wait_for_log(|line| line.contains("no admin listener")).await.is_some());
    assert_eq!(
        http::request("GET", &format!("{}/json", gateway.url), &[], "").await.expect("an answer").status,
        200
    );
    let gateway = GatewayProcess::start(orfa_binary(), &config("admin: off")).await;
    assert!(!gateway.log_lines().iter().any(|line| line.contains("admin")), "{:?}", gateway.log_lines());
}

async fn get(url: &str) -> (u16, Value) {
    let answer = http::request("GET", url, &[], "").await.expect("an answer");
    (answer.status.as_u16(), answer.json())
}

#[track_caller]
fn assert_refused(answer: &http::TestResponse, status: u16, code: &str) {
    assert_eq!((answer.status.as_u16(), &answer.json()["code"]), (status, &json!(code)), "{}", answer.text());
    assert_eq!(answer.header("content-type"), "application/problem+json");
}
