//! Callers, rights and rates: answers to requests with a valid key, a wrong key and no key, and the headers
//! that services receive.

use std::time::Duration;

use serde_json::Value;
use testkit::GatewayProcess;
use testkit::http::{HeldConnection, TestResponse, request};
use testkit::misbehaving_upstream::{self, MisbehavingUpstream};

use crate::support::orfa_binary;

const KEY: &str = "a-long-and-random-key-of-the-shop";
const SLOW_KEY: &str = "a-long-and-random-key-of-the-slow";
const JAVASCRIPT_TYPE: (&str, &str) = ("content-type", "text/javascript");

const CONFIG: &str = "
listen: 127.0.0.1:0
services:
  up: { url: 'UPSTREAM' }
  told: { url: 'UPSTREAM', forward: [x-api-key] }
  secret: { url: 'UPSTREAM' }
callers:
  shop: { key: '${file:shop.key}', groups: [partners] }
  slow: { key: '${file:slow.key}' }
rights:
  anonymous: { routes: [/open/*], rate: { requests: 3/h, burst: 3 } }
  partners: { services: [up, told], methods: [GET, HEAD], limits: { calls: 2 } }
  slow: { rate: { cpu: 1ms/h, max_in_flight: 1 } }
routes:
  - { path: '/open/*', proxy: up }
  - { path: '/told/*', proxy: told }
  - { path: '/up/*', proxy: up, cors: { origins: ['https://shop.example'], headers: [x-api-key] } }
  - { path: '/secret/*', proxy: secret }
  - { path: /query, query: { services: [up, secret], methods: [GET, POST], limits: { cpu: 2s, timeout: 30s } } }
";

struct IdentityGateway {
    gateway: GatewayProcess,
    upstream: MisbehavingUpstream,
}

impl IdentityGateway {
    async fn new() -> Self {
        let upstream = misbehaving_upstream::start().await;
        let files = [("shop.key", KEY), ("slow.key", SLOW_KEY)];
        let yaml = CONFIG.replace("UPSTREAM", &upstream.url());
        Self { gateway: GatewayProcess::start_with(orfa_binary(), &yaml, &files).await, upstream }
    }

    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> TestResponse {
        let url = format!("{}{path}", self.gateway.url);
        request(method, &url, headers, body.to_owned()).await.expect("an answer")
    }

    async fn get(&self, path: &str, key: &str) -> TestResponse {
        self.send("GET", path, &[("x-api-key", key)], "").await
    }

    async fn run_program(&self, key: &str, program: &str) -> TestResponse {
        self.send("POST", "/query", &[("x-api-key", key), JAVASCRIPT_TYPE], program).await
    }
}

/// Asserts that the answer is a problem document with this code.
#[track_caller]
fn assert_refused(response: &TestResponse, status: u16, code: &str) {
    let document = response.json();
    assert_eq!((response.status.as_u16(), document["code"].as_str()), (status, Some(code)), "{document}");
    assert_eq!(response.header("content-type"), "application/problem+json");
}

#[tokio::test]
async fn a_key_grants_only_its_rights_and_is_forwarded_only_if_configured() {
    let gateway = IdentityGateway::new().await;
    let response = gateway.get("/up/echo", KEY).await;
    assert_eq!(response.status, 200);
    assert!(!response.text().contains(KEY), "the service saw the key: {}", response.text());
    assert_eq!(gateway.get("/told/echo", KEY).await.json()["headers"]["x-api-key"], KEY);
    assert_refused(&gateway.get("/secret/echo", KEY).await, 403, "service-forbidden");
    let posted = gateway.send("POST", "/up/echo", &[("x-api-key", KEY)], "x").await;
    assert_refused(&posted, 403, "service-method-forbidden");
    assert_eq!(gateway.upstream.hits("/echo"), 2);
}

#[tokio::test]
async fn programs_run_with_their_callers_rights() {
    let gateway = IdentityGateway::new().await;
    let good = "export default async (_, { up }) => (await up.get('/json', { n: 3 })).length";
    assert_eq!(gateway.run_program(KEY, good).await.text(), "3");
    let forbidden = "export default async (_, { secret }) => secret.get('/json')";
    assert_refused(&gateway.run_program(KEY, forbidden).await, 403, "service-forbidden");
    let method = "export default async (_, { up }) => up.post('/echo', {})";
    assert_refused(&gateway.run_program(KEY, method).await, 403, "service-method-forbidden");
    let calls =
        "export default async (_, { up }) => { for (const n of [1, 2, 3]) await up.get('/json', { n }) }";
    assert_refused(&gateway.run_program(KEY, calls).await, 422, "limit-calls");
}

#[tokio::test]
async fn rejects_bad_credentials_with_cors_headers() {
    let gateway = IdentityGateway::new().await;
    assert_refused(&gateway.get("/up/echo", "wrong").await, 401, "key-unknown");
    assert_refused(&gateway.get("/open/echo", "wrong").await, 401, "key-unknown");
    let missing = gateway.send("GET", "/up/echo", &[("origin", "https://shop.example")], "").await;
    assert_refused(&missing, 401, "credentials-missing");
    assert!(missing.header("www-authenticate").starts_with("ApiKey"));
    assert_eq!(missing.header("access-control-allow-origin"), "https://shop.example");
    let two = gateway.send("GET", "/up/echo", &[("x-api-key", KEY), ("x-api-key", KEY)], "").await;
    assert_refused(&two, 400, "credentials-several");
    let asking = [
        ("origin", "https://shop.example"),
        ("access-control-request-method", "GET"),
        ("access-control-request-headers", "x-api-key"),
    ];
    assert_eq!(
        gateway.send("OPTIONS", "/up/echo", &asking, "").await.status,
        204,
        "a preflight has no credentials"
    );
    assert_eq!(gateway.upstream.hits("/echo"), 0);
}

#[tokio::test]
async fn limits_requests_per_caller_and_sends_retry_after() {
    let gateway = IdentityGateway::new().await;
    for _ in 0..3 {
        assert_eq!(gateway.send("GET", "/open/echo", &[], "").await.status, 200);
    }
    let answer = gateway.send("GET", "/open/echo", &[], "").await;
    assert_refused(&answer, 429, "rate-requests");
    let wait: u64 = answer.header("retry-after").parse().expect("seconds");
    assert!((1..=1200).contains(&wait), "{wait}");
    assert_eq!(gateway.get("/open/echo", KEY).await.status, 200, "other callers are not affected");
}

#[tokio::test]
async fn limits_cpu_time_per_caller() {
    let gateway = IdentityGateway::new().await;
    let busy = "export default () => { for (let i = 0; i < 3e5; i++); return 1 }";
    assert_eq!(gateway.run_program(SLOW_KEY, busy).await.text(), "1");
    let answer = gateway.run_program(SLOW_KEY, busy).await;
    assert_refused(&answer, 429, "rate-cpu");
    assert!(answer.header("retry-after").parse::<u64>().is_ok_and(|wait| wait > 1));
    assert_eq!(gateway.run_program(KEY, busy).await.text(), "1");
}

#[tokio::test]
async fn concurrency_counts_until_the_last_byte() {
    let gateway = IdentityGateway::new().await;
    let mut first = HeldConnection::open(&gateway.gateway.url).await.expect("a connection");
    let under_way =
        tokio::spawn(async move { first.request("GET", "/up/hang", &[("x-api-key", SLOW_KEY)], "").await });
    gateway.upstream.wait_for_request("/hang").await;
    assert_refused(&gateway.get("/up/echo", SLOW_KEY).await, 429, "rate-at-once");
    under_way.abort();
    let again = async {
        while gateway.get("/up/echo", SLOW_KEY).await.status != 200 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    testkit::with_timeout("the slot of the disconnected client", again).await;
}

#[tokio::test]
async fn the_log_contains_callers_but_no_keys() {
    let gateway = IdentityGateway::new().await;
    gateway.get("/up/echo", KEY).await;
    gateway.get("/up/echo", "a-wrong-key-that-somebody-sends").await;
    let line = gateway.gateway.wait_for_log(|line| line.contains("\"status\":401")).await.expect("a line");
    let log = gateway.gateway.log_lines();
    let passed = log.iter().find(|line| line.contains("\"status\":200")).expect("a line");
    let passed: Value = serde_json::from_str(passed).expect("JSON");
    assert_eq!(passed["caller"], "shop");
    assert!(!line.contains("\"caller\""));
    assert!(log.iter().all(|line| !line.contains(KEY) && !line.contains("a-wrong-key")), "{log:?}");
}
