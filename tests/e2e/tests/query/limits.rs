//! Limits of a run. Each limit exists as the client's grant and as the operator's cap, and its problem names
//! the one that was exceeded.

use crate::support::{TestGateway, TestQuery, build_c_program, plain_module, request_segment};

/// Sends a query that exceeds a limit, with the route's cap and with a smaller grant.
async fn expect_limit_problem(
    gateway: &TestGateway,
    query: TestQuery,
    code: &str,
    cap: &str,
    grant: &str,
    granted: &str,
) {
    let text = |document: serde_json::Value| document["detail"].as_str().unwrap_or_default().to_owned();
    let capped = text(gateway.expect_problem(query.clone(), 422, code).await);
    assert!(capped.contains(&format!(" {cap}")) && capped.contains("cap of this route"), "{capped}");
    let less = text(gateway.expect_problem(query.limit(grant), 422, code).await);
    assert!(less.contains(&format!(" {granted}")) && less.contains("ORFA-Limit"), "{less}");
}

#[tokio::test]
async fn limits_cpu_time() {
    let gateway = TestGateway::shared().await;
    for module in [plain_module("", "(loop (br 0))"), plain_module("", "(loop (drop (call $clock)) (br 0))")]
    {
        expect_limit_problem(&gateway, TestQuery::module(module), "limit-cpu", "300 ms", "cpu=20", "20 ms")
            .await;
    }
}

#[tokio::test]
async fn cpu_of_host_functions_counts() {
    let gateway = TestGateway::shared().await;
    let log = "(loop (call $log (i32.const 0) (i32.const 131072)) (br 0))";
    gateway.expect_problem(TestQuery::module(plain_module("", log)), 422, "limit-cpu").await;
    let random = "(loop (call $random (i32.const 0) (i32.const 65536)) (br 0))";
    gateway.expect_problem(TestQuery::module(plain_module("", random)), 422, "limit-cpu").await;
}

#[tokio::test]
async fn memory_of_a_plain_module() {
    let gateway = TestGateway::shared().await;
    let grow = "(loop (drop (memory.grow (i32.const 1))) (br 0))";
    let query = TestQuery::module(plain_module("", grow));
    expect_limit_problem(
        &gateway,
        query,
        "limit-memory",
        "16777216 bytes",
        "memory=1048576",
        "1048576 bytes",
    )
    .await;
    let at_once = "(drop (memory.grow (i32.const 60000)))";
    gateway.expect_problem(TestQuery::module(plain_module("", at_once)), 422, "limit-memory").await;
}

#[tokio::test]
async fn initial_memory_of_a_module() {
    let gateway = TestGateway::shared().await;
    let large = r#"(module (memory (export "memory") 1000) (func (export "orfa") (param i32 i32)))"#;
    gateway.expect_problem(TestQuery::module(crate::support::compile_wat(large)), 422, "limit-memory").await;
}

#[tokio::test]
async fn memory_of_a_c_program() {
    let gateway = TestGateway::shared().await;
    let source = "#include <orfa.h>
        void orfa(const void *input, int len) { for (char *volatile last;;) last = memset(malloc(1 << 16), 1, 1 << 16); }";
    let query = TestQuery::module(
        build_c_program(&format!("#include <stdlib.h>\n#include <string.h>\n{source}")).await,
    );
    expect_limit_problem(
        &gateway,
        query,
        "limit-memory",
        "16777216 bytes",
        "memory=2000000",
        "2000000 bytes",
    )
    .await;
}

#[tokio::test]
async fn memory_held_by_the_host() {
    let gateway = TestGateway::start(
        "  - path: /query
    query:
      services: [up]
      methods: [GET, POST]
      limits: { memory: 4MiB, upstream_bytes: 1GiB, cpu: 10s, timeout: 60s, response_body: 1GiB }",
    )
    .await;
    let received = "export default async (_, { up }) => { const all = []; for (;;) all.push(await up.fetch('/json?n=9000')) }";
    gateway.expect_problem(TestQuery::javascript(received), 422, "limit-memory").await;
    let sent =
        "export default (_, { up }) => { const body = 'x'.repeat(300000); for (;;) up.post('/hang', body) }";
    gateway.expect_problem(TestQuery::javascript(sent), 422, "limit-memory").await;
    let answer = "(drop (memory.grow (i32.const 40))) (call $done (i32.const 0) (i32.const 2000000))";
    gateway.expect_problem(TestQuery::module(plain_module("", answer)), 422, "limit-memory").await;
}

#[tokio::test]
async fn table_growth_is_limited() {
    let gateway = TestGateway::shared().await;
    let grow = "(loop (br_if 0 (i32.ge_s (table.grow $t (ref.null func) (i32.const 1000)) (i32.const 0))))
        (call $done (i32.const 0) (i32.const 0))";
    let query = TestQuery::module(plain_module("(table $t 1 funcref)", grow));
    assert_eq!(gateway.expect_text(query).await, "", "growth is refused, and the program continues");
    gateway.assert_responsive("/query").await;
}

#[tokio::test]
async fn limits_number_of_calls() {
    let gateway = TestGateway::shared().await;
    let program = "export default async (_, { up }) => { for (;;) await up.get('/json?n=1') }";
    expect_limit_problem(
        &gateway,
        TestQuery::javascript(program),
        "limit-calls",
        "20 upstream calls",
        "calls=3",
        "3 upstream calls",
    )
    .await;
}

#[tokio::test]
async fn a_million_handles() {
    let gateway = TestGateway::shared().await;
    let call = request_segment(1024, "GET", "http://up/json?n=1", &[], "");
    let hoard = "(local $i i32)
        (loop (drop (call $http (i32.const 1024)))
          (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 1000000))))";
    gateway.expect_problem(TestQuery::module(plain_module(&call, hoard)), 422, "limit-calls").await;
    let delete = "(local $i i32)
        (loop (call $Handle_del (call $http (i32.const 1024)))
          (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 1000000))))";
    gateway.expect_problem(TestQuery::module(plain_module(&call, delete)), 422, "limit-calls").await;
}

#[tokio::test]
async fn received() {
    let gateway = TestGateway::shared().await;
    let program = "export default (_, { up }) => up.get('/json?n=4000')";
    let query = TestQuery::javascript(program);
    expect_limit_problem(&gateway, query, "limit-received", "65536 bytes", "received=1000", "1000 bytes")
        .await;
}

#[tokio::test]
async fn output() {
    let gateway = TestGateway::shared().await;
    let query = TestQuery::javascript("export default () => 'x'.repeat(40000)");
    expect_limit_problem(&gateway, query, "limit-output", "32768 bytes", "output=100", "100 bytes").await;
    assert_eq!(
        gateway.expect_text(TestQuery::javascript("export default () => 'x'.repeat(32768)")).await.len(),
        32768
    );
}

#[tokio::test]
async fn enforces_the_deadline() {
    let gateway =
        TestGateway::start("  - { path: /query, query: { services: [up], limits: { timeout: 2s } } }").await;
    let query = TestQuery::javascript("export default (_, { up }) => up.get('/hang')");
    expect_limit_problem(&gateway, query, "limit-deadline", "2000 ms", "deadline=50", "50 ms").await;
}

#[tokio::test]
async fn parallel_calls_above_the_limit_are_queued() {
    let route = "  - { path: /query, query: { services: [up], limits: { concurrency: 4, timeout: 30s } } }";
    let gateway = TestGateway::start(route).await;
    let program = "export default ({ n }, { up }) => Promise.all(Array.from({ length: n }, (_, i) => up.get('/hang', { i })))";
    let query = |n, more| {
        TestQuery::javascript(program).input(&format!("{{\"n\":{n}}}")).limit(&format!("deadline=1000{more}"))
    };
    let document = gateway.expect_problem(query(6, ""), 422, "limit-deadline").await;
    assert_eq!(gateway.upstream.hits("/hang"), 4, "{document}");
    let mut statuses = call_statuses(&document);
    statuses.sort_unstable();
    assert_eq!(statuses, [&["no answer"; 4][..], &["not sent"; 2]].concat());
    gateway.expect_problem(query(6, ", parallel=1"), 422, "limit-deadline").await;
    assert_eq!(gateway.upstream.hits("/hang"), 5);
}

fn call_statuses(document: &serde_json::Value) -> Vec<&str> {
    let calls = document["calls"].as_array().expect("calls");
    calls.iter().filter_map(|call| call["status"].as_str()).collect()
}

#[tokio::test]
async fn a_grant_above_the_cap_is_the_cap() {
    let gateway = TestGateway::shared().await;
    let query = TestQuery::module(plain_module("", "(loop (br 0))")).limit("cpu=100000, memory=999999999999");
    let document = gateway.expect_problem(query, 422, "limit-cpu").await;
    assert!(document["detail"].as_str().is_some_and(|text| text.contains("cap of this route")), "{document}");
}

#[tokio::test]
async fn other_queries_are_answered_while_programs_spin_and_hoard() {
    let route = "  - path: /query
    query: { services: [up], limits: { cpu: 2s, timeout: 60s, memory: 64MiB } }";
    let gateway = std::sync::Arc::new(TestGateway::start(route).await);
    let spin = "export default async (_, { up }) => { await up.get('/status/200'); for (;;); }";
    let hoard = "export default async (_, { up }) => {
        await up.get('/status/200');
        const all = [];
        while (all.length < 40) all.push(new Uint8Array(1 << 20).fill(1));
        for (;;) all.forEach((bytes) => bytes.fill(2));
    }";
    let spinners: Vec<_> = [spin, spin, hoard, hoard]
        .map(|program| {
            let test_gateway = gateway.clone();
            tokio::spawn(async move { TestQuery::javascript(program).send(&test_gateway).await })
        })
        .into();
    gateway.upstream.wait_for_requests("/status/200", 4).await;
    for _ in 0..20 {
        gateway.assert_responsive("/query").await;
    }
    assert!(
        spinners.iter().all(|spinner| !spinner.is_finished()),
        "other queries waited for the spinning programs"
    );
    for spinner in spinners {
        crate::support::assert_problem(&spinner.await.expect("an answer"), 422, "limit-cpu");
    }
}
