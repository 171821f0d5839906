//! Pages in a real browser: the effect of `cors:`, and the client library on a page of another origin.

use serde_json::{Value, json};

use super::page::BrowserPage;
use crate::support::TestGateway;

/// A script that sends every kind of request that a page can send without the library.
const PAGE_SCRIPT: &str = include_str!("page.js");

/// Starts a gateway that permits pages of this origin.
async fn start_gateway(origin: &str) -> TestGateway {
    let routes = format!(
        "
  - {{ path: /query, query: {{ services: [up] }} }}
  - {{ path: /echo, proxy: up }}
  - {{ path: /anonymous, proxy: up, cors: {{ origins: ['{origin}'], credentials: false }} }}
  - {{ path: /dead, proxy: dead }}
cors: {{ origins: ['{origin}'], headers: [x-shop], max_age: 1h }}
"
    );
    TestGateway::start(&routes).await
}

fn parse_document(answer: &Value) -> Value {
    serde_json::from_str(answer["text"].as_str().unwrap_or_default()).unwrap_or_default()
}

#[tokio::test]
async fn pages_of_a_listed_origin_read_answers_timings_and_errors() {
    let page = BrowserPage::new().await;
    let gateway = start_gateway(&page.origin()).await;
    let report = page.open(PAGE_SCRIPT, gateway.gateway.address).await;

    for case in ["query", "method"] {
        let answer = &report[case];
        assert_eq!((&answer["status"], &answer["text"]), (&json!(200), &json!("3")), "{case}: {report:#}");
        assert!(answer["timing"].as_str().is_some_and(|timing| timing.contains("total;dur=")), "{answer}");
    }
    for (case, status, code) in [
        ("threw", 422, "program-threw"),
        ("nowhere", 404, "route-not-found"),
        ("dead", 502, "upstream-unreachable"),
    ] {
        let answer = &report[case];
        assert_eq!(
            (&answer["status"], &parse_document(answer)["code"]),
            (&json!(status), &json!(code)),
            "{answer}"
        );
    }
    assert!(
        report["threw"]["timing"].as_str().is_some_and(|timing| timing.contains("total;dur=")),
        "{report:#}"
    );

    let cookie = |case: &str| parse_document(&report[case])["headers"]["cookie"].clone();
    assert_eq!(cookie("cookies"), "visitor=seven", "{report:#}");
    assert_eq!((&report["plain"]["status"], cookie("plain")), (&json!(200), Value::Null));
    assert_eq!(report["cookiesUnwanted"], json!({ "refused": "TypeError" }));
    assert_eq!(report["anonymous"]["status"], 404, "the service's own answer");
    assert_eq!(parse_document(&report["header"])["headers"]["x-shop"], "7");
    assert_eq!(report["headerUnlisted"], json!({ "refused": "TypeError" }));
}

#[tokio::test]
async fn pages_of_other_origins_read_and_run_nothing() {
    let (browser_page, page) = (BrowserPage::new().await, BrowserPage::new().await);
    let gateway = start_gateway(&browser_page.origin()).await;
    let report = page.open(PAGE_SCRIPT, gateway.gateway.address).await;
    let cases = report.as_object().expect("a report");
    assert_eq!(cases.len(), 11, "{report:#}");
    for (case, answer) in cases {
        assert_eq!(answer, &json!({ "refused": "TypeError" }), "{case}");
    }
    assert_eq!(gateway.upstream.hits("/json"), 0, "a program ran");
}

/// Starts a gateway for programs that pages of this origin send with the library.
async fn start_program_gateway(origin: &str) -> TestGateway {
    let routes = format!(
        "
  - path: /query
    query: {{ services: [up], methods: [GET, POST], limits: {{ timeout: 60s }} }}
    cors: {{ origins: ['{origin}'] }}
  - {{ path: /closed, query: {{ services: [up] }}, cors: {{ origins: ['https://other.example.org'] }} }}
"
    );
    TestGateway::start(&routes).await
}

#[tokio::test]
async fn the_client_library_returns_answers_and_errors_across_origins() {
    let page = BrowserPage::new().await;
    let gateway = start_program_gateway(&page.origin()).await;
    let script = include_str!("client.js");
    let report =
        page.open_until(script, gateway.gateway.address, gateway.upstream.wait_for_request("/hang")).await;

    for (case, answer) in [
        ("called", json!(3)),
        ("typed", json!("Hi, Zoë")),
        ("bytes", json!([1, 2])),
        ("nothing", Value::Null),
    ] {
        assert_eq!(report[case], answer, "{case}: {report:#}");
    }
    assert!(report["headers"].as_str().is_some_and(|timing| timing.contains("total;dur=")), "{report:#}");

    for (case, code, status) in [
        ("threw", "program-threw", 422),
        ("limit", "limit-cpu", 422),
        ("unsafe", "program-threw", 422),
        ("away", "answer-status", 429),
        ("kept", "unreachable", 0),
    ] {
        let error = &report[case];
        let seen = (&error["ours"], &error["name"], &error["code"], &error["status"]);
        assert_eq!(
            seen,
            (&json!(true), &json!("OrfaError"), &json!(code), &json!(status)),
            "{case}: {error:#}"
        );
    }
    let threw = &report["threw"];
    assert_eq!((&threw["line"], &threw["console"]), (&json!(3), &json!("here\n")), "{threw:#}");
    let call = json!({ "service": "up", "method": "POST", "path": "/echo", "status": 200 });
    assert_eq!(report["unsafe"]["calls"], json!([call]));
    assert_eq!((&report["away"]["retryAfter"], &report["away"]["body"]), (&json!(3000), &json!("later")));

    let cancelled = &report["cancelled"];
    assert_eq!(
        (&cancelled["name"], &cancelled["ours"]),
        (&json!("AbortError"), &json!(false)),
        "{cancelled:#}"
    );
    gateway.upstream.wait_for_close("/hang").await;
}

#[tokio::test]
async fn pages_read_deduplicated_and_compressed_answers() {
    let page = BrowserPage::new().await;
    let gateway = start_program_gateway(&page.origin()).await;
    let report = page.open(include_str!("encoded.js"), gateway.gateway.address).await;
    let person = json!({ "name": "Grace Hopper", "of": "Yale" });
    assert_eq!(report, json!({ "length": 300, "last": person, "isOne": true }));
    let line = gateway.gateway.wait_for_log(|line| line.contains(r#""method":"POST","path":"/query""#)).await;
    let line: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
    // The 300 references take eight bytes each.
    assert!(line["bytes_sent"].as_u64().is_some_and(|sent| sent < 1000), "{line}");
}

#[tokio::test]
async fn the_client_library_sends_a_program_again_only_on_request() {
    let page = BrowserPage::new().await;
    let gateway = start_program_gateway(&page.origin()).await;
    let report = page.open(include_str!("tokens.js"), gateway.gateway.address).await;
    assert_eq!(report["answers"], json!([3, 7, 11, 15, 10, 1, 2]), "{report:#}");

    let input = r#"{"a":1,"b":2}"#.len();
    let whole = input + "export default ({ a, b }) => a + b".len();
    let values: Vec<_> = report["sent"].as_array().into_iter().flatten().collect();
    let expected = [
        ("code", whole),
        ("code;token=", input),
        ("code;token=", input), // from another page, by the store
        ("code;token=", input), // outdated: the program is requested
        ("code", whole),
        ("code;token=", input),
        ("code;hash=", input), // unknown: the program is requested
        ("code", whole),
        ("code;token=", input),
    ];
    assert_eq!(values, expected.map(|(cache, length)| json!([cache, length])).iter().collect::<Vec<_>>());
}

#[tokio::test]
async fn the_client_library_calls_stored_programs_by_name_and_version() {
    let page = BrowserPage::new().await;
    let routes = format!(
        "
  - path: /query
    query: {{ services: [up], stored: ['queries/*'] }}
    cors: {{ origins: ['{}'] }}
",
        page.origin()
    );
    let files = &[("queries/next.js", "export default ({ n }) => Number(n) + 1")];
    let gateway = TestGateway::start_with_files(&routes, files).await;
    let report = page.open(include_str!("stored.js"), gateway.gateway.address).await;
    let value = json!({ "ours": true, "status": 404 });
    assert_eq!(report, json!({ "post": 2, "get": 3, "query": 4, "version": 5, "gone": value }));
}
