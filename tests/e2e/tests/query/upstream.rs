//! Misbehaving services, clients that disconnect, and reports of runs that had already made calls.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{TestGateway, TestQuery, assert_problem, build_c_program, plain_module};

/// Builds a program that catches the failure of this call and returns its status and reason.
fn catch_failure(call: &str) -> TestQuery {
    let source = format!(
        "export default async (_, s) => {{ try {{ return ['came', (await s.{call}).length ?? 0] }} catch (e) {{ return [e.status, e.reason ?? null] }} }}"
    );
    TestQuery::javascript(&source)
}

#[tokio::test]
async fn a_program_sees_how_a_service_failed() {
    let gateway = TestGateway::shared().await;
    for (call, told) in [
        ("impatient.get('/hang')", "[0,\"timeout\"]"),
        ("impatient.get('/stall')", "[0,\"timeout\"]"),
        ("impatient.get('/slow', { ms: 60000 })", "[0,\"timeout\"]"),
        ("dead.get('/')", "[0,\"unreachable\"]"),
        ("up.get('/reset')", "[0,\"broken\"]"),
        ("up.get('/short')", "[0,\"broken\"]"),
        ("up.get('/garbage')", "[0,\"broken\"]"),
        ("up.get('/chunked-broken')", "[0,\"broken\"]"),
        ("up.get('/long')", "[\"came\",4]"),
        ("up.get('/status/503')", "[503,null]"),
        ("up.get('/encoded', { with: 'gzip' })", "[\"came\",100]"),
        ("up.get('/encoded', { with: 'br' })", "[\"came\",100]"),
        ("up.get('/encoded', { with: 'zstd' })", "[\"came\",100]"),
    ] {
        assert_eq!(gateway.expect_text(catch_failure(call)).await, told, "{call}");
        gateway.assert_responsive("/query").await;
    }
}

#[tokio::test]
async fn a_c_program_sees_how_a_service_failed() {
    let gateway = TestGateway::shared().await;
    let source = r#"#include <orfa.h>
        void orfa(const void *input, int len) {
            orfa_future calls[] = {orfa_get("http://impatient/hang"), orfa_get("http://dead/"), orfa_get("http://up/reset"),
                                   orfa_get("http://up/status/418")};
            orfa_wait_all(calls, 4);
            orfa_done_as("[%d,%d,%d,%d,%d]", orfa_error_of(calls[0]), orfa_error_of(calls[1]), orfa_error_of(calls[2]),
                         orfa_error_of(calls[3]), orfa_status_of(calls[3]));
        }"#;
    assert_eq!(
        gateway.expect_text(TestQuery::module(build_c_program(source).await)).await,
        "[-8,-7,-9,0,418]"
    );
    let careless = r#"#include <orfa.h>
        void orfa(const void *input, int len) { orfa_get_json("http://up/short"); }"#;
    let document = gateway
        .expect_problem(TestQuery::module(build_c_program(careless).await), 422, "program-refused")
        .await;
    assert!(document["detail"].as_str().is_some_and(|text| text.contains("up/short")), "{document}");
}

#[tokio::test]
async fn a_service_that_hangs_ends_the_run_at_its_deadline() {
    let house = TestGateway::shared().await;
    for path in ["/hang", "/stall", "/slow?ms=60000"] {
        let query = TestQuery::javascript(&format!("export default (_, {{ up }}) => up.get('{path}')"));
        let document = house.expect_problem(query.limit("deadline=1000"), 422, "limit-deadline").await;
        let call = &document["calls"][0];
        assert_eq!((&call["service"], &call["path"]), (&json!("up"), &json!(path)), "{document}");
    }
}

#[tokio::test]
async fn gigabyte_bodies_are_cut_off() {
    let house = TestGateway::shared().await;
    for path in ["/gigabyte", "/bomb"] {
        let query = TestQuery::javascript(&format!("export default (_, {{ up }}) => up.get('{path}')"));
        house.expect_problem(query, 422, "limit-received").await;
    }
}

#[tokio::test]
async fn a_body_above_the_limit_closes_its_connection() {
    let house = TestGateway::start(
        "  - { path: /query, query: { services: [up], limits: { upstream_bytes: 64KiB } } }",
    )
    .await;
    let query = TestQuery::javascript("export default (_, { up }) => up.get('/gigabyte')");
    house.expect_problem(query, 422, "limit-received").await;
    house.upstream.wait_for_close("/gigabyte").await;
}

#[tokio::test]
async fn a_disconnect_cancels_upstream_calls() {
    let house = TestGateway::start(
        "  - { path: /query, query: { services: [up], methods: [GET, POST], limits: { timeout: 60s } } }",
    )
    .await;
    let query = TestQuery::javascript("export default (_, { up }) => up.get('/hang')");
    tokio::select! {
        answer = query.send(&house) => panic!("{}", answer.text()),
        () = house.upstream.wait_for_request("/hang") => {}
    }
    house.upstream.wait_for_close("/hang").await;
    house.gateway.wait_for_log(|line| line.contains("499")).await.expect("a line for it in the access log");
    house.assert_responsive("/query").await;
}

#[tokio::test]
async fn a_disconnect_cancels_queued_calls() {
    let route = "  - { path: /query, query: { services: [up], methods: [GET, POST], limits: { concurrency: 1, timeout: 60s } } }";
    let house = TestGateway::start(route).await;
    let query = "export default (_, { up }) => Promise.all([up.post('/hang', 1), up.post('/hang', 2)])";
    let query = TestQuery::javascript(query);
    tokio::select! {
        answer = query.send(&house) => panic!("{}", answer.text()),
        () = house.upstream.wait_for_request("/hang") => {}
    }
    house.upstream.wait_for_close("/hang").await;
    house.gateway.wait_for_log(|line| line.contains("499")).await.expect("a line for it in the access log");
    house.assert_responsive("/query").await;
    assert_eq!(house.upstream.hits("/hang"), 1);
}

#[tokio::test]
async fn a_disconnect_stops_a_spinning_program() {
    let route = "  - { path: /query, query: { services: [up], limits: { cpu: 60s, timeout: 120s } } }";
    let house = TestGateway::start(route).await;
    let spin = "export default async (_, { up }) => { await up.get('/status/200'); for (;;); }";
    let spin = TestQuery::javascript(spin);
    tokio::select! {
        answer = spin.send(&house) => panic!("{}", answer.text()),
        () = house.upstream.wait_for_request("/status/200") => {}
    }
    house.gateway.wait_for_log(|line| line.contains("499")).await.expect("a line for it in the access log");
    house.assert_responsive("/query").await;
}

#[tokio::test]
async fn an_unfinished_request_ends_at_the_deadline() {
    let house =
        TestGateway::start("  - { path: /query, query: { services: [up], limits: { timeout: 1s } } }").await;
    let mut stream = begin_request(&house).await;
    let mut answer = String::new();
    // A reset may follow the answer.
    let _ = stream.read_to_string(&mut answer).await;
    assert!(answer.starts_with("HTTP/1.1 422 ") && answer.contains("\"limit-deadline\""), "{answer}");
}

#[tokio::test]
async fn a_disconnect_during_the_request_is_logged() {
    let gateway = TestGateway::start("  - { path: /query, query: { services: [up] } }").await;
    drop(begin_request(&gateway).await);
    gateway.gateway.wait_for_log(|line| line.contains("/query")).await.expect("a line in the access log");
    gateway.assert_responsive("/query").await;
}

/// Sends the head of a request and half of its body.
async fn begin_request(gateway: &TestGateway) -> TcpStream {
    let head = "POST /query HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: text/javascript\r\n";
    let mut stream = TcpStream::connect(gateway.gateway.address).await.expect("a connection");
    stream.write_all(format!("{head}content-length: 100\r\n\r\nhalf").as_bytes()).await.expect("sent");
    stream
}

/// Returns the calls in a problem: method, path and status.
fn problem_calls(document: &Value) -> Value {
    let calls = document["calls"].as_array().expect("calls").iter();
    calls.map(|call| json!([call["method"], call["path"], call["status"]])).collect()
}

#[tokio::test]
async fn a_failed_run_reports_its_unsafe_calls() {
    let gateway = TestGateway::shared().await;
    let source = "export default async (_, { up, dead }) => {
        await up.get('/json?n=1');
        await up.post('/status/201', { a: 1 });
        await up.post('/status/409').catch(() => {});
        await dead.delete('/x').catch(() => {});
        await up.post('/reset').catch(() => {});
        console.log('so far');
        throw new Error('half-way');
    }";
    let document =
        gateway.expect_problem(TestQuery::javascript(source).with_path("/write"), 422, "program-threw").await;
    assert_eq!(
        problem_calls(&document),
        json!([
            ["POST", "/status/201", 201],
            ["POST", "/status/409", 409],
            ["DELETE", "/x", "not sent"],
            ["POST", "/reset", "no answer"],
        ]),
        "all unsafe calls, and no successful safe ones"
    );
    assert_eq!(document["console"], "so far\n");
}

#[tokio::test]
async fn a_run_ended_by_a_limit_reports_pending_calls() {
    let gateway = TestGateway::shared().await;
    let source = "export default async (_, { up }) => {
        await up.post('/status/200');
        await Promise.all([up.get('/hang'), ...'abcde'.split('').map((name) => up.post('/hang?' + name))]);
    }";
    let query = TestQuery::javascript(source).with_path("/write").limit("deadline=2000");
    let document = gateway.expect_problem(query, 422, "limit-deadline").await;
    let value = problem_calls(&document);
    assert_eq!(value[0], json!(["POST", "/status/200", 200]));
    // Four calls may be in flight at once; the order of the six is not fixed.
    let told = value.as_array().expect("calls").iter().skip(1);
    let mut statuses: Vec<_> = told.filter_map(|call| call[2].as_str()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [&["no answer"; 4][..], &["not sent"; 2]].concat(), "{document}");
}

#[tokio::test]
async fn a_trapped_run_reports_its_unsafe_calls() {
    let gateway = TestGateway::shared().await;
    let source = r#"#include <orfa.h>
        void orfa(const void *input, int len) {
            orfa_wait_ok(orfa_post("http://up/status/201", "{a:1}"));
            orfa_log("written");
            __builtin_trap();
        }"#;
    let document = gateway
        .expect_problem(
            TestQuery::module(build_c_program(source).await).with_path("/write"),
            422,
            "program-trapped",
        )
        .await;
    assert_eq!(
        (problem_calls(&document), &document["console"]),
        (json!([["POST", "/status/201", 201]]), &json!("written\n"))
    );
}

#[tokio::test]
async fn unsafe_calls_are_awaited_and_reads_are_cancelled() {
    let house = TestGateway::start(
        "  - { path: /query, query: { services: [up], methods: [GET, POST], limits: { timeout: 60s } } }",
    )
    .await;
    let source = "export default (_, { up }) => { up.post('/echo?written'); up.get('/hang'); return 'done' }";
    assert_eq!(house.expect_text(TestQuery::javascript(source)).await, "done");
    assert_eq!(house.upstream.hits("/echo"), 1);
    let pending = TestQuery::javascript("export default (_, { up }) => { up.post('/hang'); return 'done' }")
        .limit("deadline=1000");
    let document = house.expect_problem(pending, 422, "limit-deadline").await;
    assert_eq!(problem_calls(&document), json!([["POST", "/hang", "no answer"]]));
}

#[tokio::test]
async fn a_failed_write_that_nothing_handles_ends_the_run() {
    let house = TestGateway::shared().await;
    for (statement, value) in [
        ("up.post('/status/409', 1)", "'stored'"),
        ("up.post('/status/409', 1)", "null"),
        ("up.post('/status/409', 1)", "({ stored: true })"),
        ("up.post('/status/409', 1)", "new Uint8Array(1)"),
        ("up.post('/status/409', 1)", "new Response('stored')"),
        ("up.post('/status/409', 1); await up.get('/json?n=1')", "'stored'"),
        ("const save = async () => { await up.post('/status/409', 1) }; save()", "'stored'"),
        ("Promise.all([up.post('/status/201', 1), up.post('/status/409', 1)])", "'stored'"),
        ("up.post('/status/409', 1).then(() => up.get('/json?n=1'))", "'stored'"),
    ] {
        let source = format!("export default async (_, {{ up }}) => {{ {statement}; return {value} }}");
        let document = house
            .expect_problem(TestQuery::javascript(&source).with_path("/write"), 422, "program-threw")
            .await;
        let detail = document["detail"].as_str().unwrap_or_default();
        let expected = "ServiceError: up answered 409 to POST /status/409";
        assert!(detail.starts_with(expected), "{statement}, {value}: {document}");
        assert_eq!(document["line"], 1, "{statement}, {value}: {document}");
    }
}

#[tokio::test]
async fn a_failed_call_that_the_program_handles_does_not_end_the_run() {
    let house = TestGateway::shared().await;
    for statement in [
        "up.post('/status/409', 1).catch(() => {})",
        "const p = up.post('/status/409', 1); await up.get('/json?n=1'); await p.catch(() => {})",
        "const save = async () => { try { await up.post('/status/409', 1) } catch {} }; save()",
        "Promise.allSettled([up.post('/status/409', 1)])",
        "up.fetch('/status/409', { method: 'POST' })",
        "up.post('/status/201', 1)",
        "up.get('/status/409')",
    ] {
        let source = format!("export default async (_, {{ up }}) => {{ {statement}; return 'stored' }}");
        assert_eq!(
            house.expect_text(TestQuery::javascript(&source).with_path("/write")).await,
            "stored",
            "{statement}"
        );
    }
}

#[tokio::test]
async fn a_program_goes_on_while_it_writes() {
    let house =
        TestGateway::start("  - { path: /query, query: { services: [up], methods: [GET, POST] } }").await;
    let source = "export default (_, { up }) => {
        const save = async () => { await up.post('/echo?first'); await up.post('/echo?second') };
        save();
        return 'done';
    }";
    assert_eq!(house.expect_text(TestQuery::javascript(source)).await, "done");
    assert_eq!(house.upstream.hits("/echo"), 2);
}

#[tokio::test]
async fn unsafe_calls_are_never_retried() {
    let house =
        TestGateway::start("  - { path: /query, query: { services: [up], methods: [GET, POST] } }").await;
    let source = "export default async (_, { up }) => {
        for (const path of ['/reset', '/short', '/garbage', '/stale']) { await up.post(path).catch(() => {}); await up.get('/status/200').catch(() => {}) }
        return 'done';
    }";
    assert_eq!(house.expect_text(TestQuery::javascript(source)).await, "done");
    for path in ["/reset", "/short", "/garbage", "/stale"] {
        assert_eq!(house.upstream.hits(path), 1, "{path}");
    }
}

#[tokio::test]
async fn many_clients_at_once() {
    let house = Arc::new(TestGateway::start("  - { path: /query, query: { services: [up] } }").await);
    let source = "export default async ({ n }, { up }) => (await up.get('/json', { n })).length";
    let queries: Vec<_> = (0..200)
        .map(|n| {
            let (house, query) =
                (house.clone(), TestQuery::javascript(source).input(&format!("{{\"n\":{n}}}")));
            tokio::spawn(async move { (n, house.expect_text(query).await) })
        })
        .collect();
    for query in queries {
        let (n, answer) = query.await.expect("an answer");
        assert_eq!(answer, n.to_string());
    }
}

#[tokio::test]
async fn runs_queue_for_a_full_pool_until_their_deadline() {
    let gateway = TestGateway::start(
        "  - { path: /query, query: { services: [up], limits: { timeout: 60s } } }
runtime: { instances: 1 }",
    )
    .await;
    let hanging = TestQuery::javascript("export default (_, { up }) => up.get('/hang')");
    let waiting = TestQuery::javascript("export default () => 1").limit("deadline=200");
    tokio::select! {
        answer = hanging.send(&gateway) => panic!("{}", answer.text()),
        () = async {
            gateway.upstream.wait_for_request("/hang").await;
            assert_problem(&waiting.send(&gateway).await, 503, "gateway-overloaded");
            let plain = plain_module("", "(call $done (i32.const 0) (i32.const 0))");
            assert_eq!(gateway.expect_text(TestQuery::module(plain)).await, "", "other classes of programs have their own pool");
        } => {}
    }
    gateway.assert_responsive("/query").await;
}

#[tokio::test]
async fn a_client_with_many_slow_runs_leaves_slots_to_others() {
    let gateway = TestGateway::start(
        "  - { path: /query, query: { services: [up], limits: { timeout: 60s } } }
callers: { shop: { key: 'sha256:2d7378043d70770b7914bc2cc4a1b9cd0354356ad77fa9475ccb602366608f5c' } }
rights: { anonymous: {}, shop: {} }
runtime: { instances: 2 }",
    )
    .await;
    let hanging = TestQuery::javascript("export default (_, { up }) => up.get('/hang')");
    let quick = TestQuery::javascript("export default () => 1");
    let by_shop = quick.clone().header("x-api-key", "a-long-and-random-key-of-the-shop");
    tokio::select! {
        _ = async { tokio::join!(hanging.send(&gateway), hanging.send(&gateway)) } => panic!("both ended"),
        () = async {
            gateway.upstream.wait_for_request("/hang").await;
            assert_problem(&quick.limit("deadline=200").send(&gateway).await, 503, "gateway-overloaded");
            assert_eq!(gateway.expect_text(by_shop).await, "1");
        } => {}
    }
    gateway.assert_responsive("/query").await;
}

#[tokio::test]
async fn a_small_program_cache_only_costs_time() {
    let route = "  - { path: /query, query: { services: [up] } }\nruntime: { cache: 40KiB }";
    let gateway = TestGateway::start(route).await;
    for round in 0..2 {
        for number in 0..20 {
            let answer = format!("(call $done (i32.const 0) (i32.const {number}))");
            let answer = gateway.expect_text(TestQuery::module(plain_module("", &answer))).await;
            assert_eq!(answer.len(), number, "round {round}");
        }
    }
}
