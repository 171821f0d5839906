//! Cached programs: by token, by hash, across restarts and as live instances; and that callers learn nothing
//! about each other's programs.

use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use testkit::http::TestResponse;
use tokio::task::JoinSet;

use crate::support::{TestGateway, TestQuery, assert_problem, build_c_program, orfa_binary, plain_module};

const ADD: &str = "export default ({ a, b }) => a + b";
const COUNT: &str = "let runs = 0\nexport default ({ fail, grow }) => { runs++; if (fail) throw new Error('on purpose'); \
                     if (grow) globalThis.kept = new Uint8Array(grow); return runs }";

/// Returns the mode, the token (empty if absent) and the `did` of an answer's `ORFA-Cache`.
fn parse_cache_header(answer: &TestResponse) -> (String, String, String) {
    assert!(answer.status.is_success(), "{}", answer.text());
    let field = answer.header("orfa-cache").to_owned();
    let part = |name: &str| {
        let found = field.split(';').find_map(|part| part.strip_prefix(name));
        found.unwrap_or_default().to_owned()
    };
    (field.split(';').next().unwrap_or_default().to_owned(), part("token="), part("did="))
}

/// Builds a request that names a program and sends only input.
fn cached_query(content_type: &str, cache: &str, input: &str) -> TestQuery {
    TestQuery::new(content_type, input).header("orfa-cache", cache)
}

fn program_hash(program: impl AsRef<[u8]>) -> String {
    use base64::Engine as _;
    format!(":{}:", base64::engine::general_purpose::STANDARD.encode(Sha256::digest(program)))
}

fn cached_javascript(cache: &str, input: &str) -> TestQuery {
    cached_query("text/javascript", cache, input)
}

/// Asserts that the answer is a problem with this code that asks for the program to be sent again.
async fn assert_resend_requested(house: &TestGateway, query: TestQuery, code: &str) {
    let document = assert_problem(&query.send(house).await, 409, code);
    assert_eq!(document["send_program"], true, "{document}");
}

#[tokio::test]
async fn a_program_is_sent_once_and_then_named_by_its_token() {
    let house = TestGateway::shared().await;
    let c = build_c_program(
        "#include <orfa.h>\nvoid orfa(const void *input, int len) { orfa_done(input, len); }",
    )
    .await;
    for (content_type, program, input, output) in [
        ("text/javascript", ADD.as_bytes(), r#"{"a":1,"b":2}"#, "3"),
        ("text/typescript", b"export default (n: number) => n * 2", "4", "8"),
        ("application/wasm", &c, "abc", "abc"),
    ] {
        let whole = TestQuery::new(content_type, program).input(input).header("orfa-cache", "code");
        let first = whole.clone().send(&house).await;
        let (mode, token, did) = parse_cache_header(&first);
        assert_eq!(
            (&*mode, first.text().as_str(), token.is_empty()),
            ("code", output, false),
            "{content_type}"
        );
        assert!(["compiled", "found"].contains(&&*did), "{did}");
        for _ in 0..2 {
            let again = cached_query(content_type, &format!("code;token={token}"), input).send(&house).await;
            assert_eq!(
                parse_cache_header(&again),
                ("code".into(), String::new(), "found".into()),
                "{content_type}"
            );
            assert_eq!(again.text(), output);
        }
    }
    let base = TestQuery::javascript(ADD).input(r#"{"a":1,"b":2}"#).send(&house).await;
    assert_eq!(
        (base.text().as_str(), base.header("orfa-cache")),
        ("3", ""),
        "ORFA-Cache without a request for it"
    );
}

#[tokio::test]
async fn a_hash_names_programs_the_same_caller_has_sent() {
    let house = TestGateway::start(ROUTES).await;
    let program = "export default () => 'by hash'";
    let by_hash = cached_javascript(&format!("code;hash={}", program_hash(program)), "");
    assert_resend_requested(&house, by_hash.clone(), "program-unknown").await;
    house.expect_text(TestQuery::javascript(program)).await;
    let answer = by_hash.send(&house).await;
    assert_eq!(answer.text(), "by hash");
    assert!(!parse_cache_header(&answer).1.is_empty(), "a token comes with the first answer");
    assert_resend_requested(
        &house,
        cached_javascript(&format!("code;hash={}", program_hash("another")), ""),
        "program-unknown",
    )
    .await;
    let other = cached_query("text/typescript", &format!("code;hash={}", program_hash(program)), "");
    assert_resend_requested(&house, other, "program-unknown").await;
}

const ROUTES: &str = "
  - path: /query
    query: { services: [up], methods: [GET, POST], modes: [code, instance], limits: { cpu: 1s, timeout: 30s } }
callers:
  shop: { key: 'sha256:2d7378043d70770b7914bc2cc4a1b9cd0354356ad77fa9475ccb602366608f5c' }
  other: { key: 'sha256:22cfe0361107c0d46ccfbdd706d01fff4127b8fcc0bad4a2d9b9685b81d5f63d' }
rights: { anonymous: {}, shop: {}, other: {} }
";

#[tokio::test]
async fn tokens_and_hashes_do_not_reveal_other_callers_programs() {
    let house = TestGateway::start(ROUTES).await;
    let by = |query: TestQuery, key: &str| query.header("x-api-key", key);
    let (shop, other) = ("a-long-and-random-key-of-the-shop", "a-long-and-random-key-of-another");
    let first = by(TestQuery::javascript("export default () => 1").header("orfa-cache", "code"), shop);
    let (_, token, _) = parse_cache_header(&first.send(&house).await);
    let named = cached_javascript(&format!("code;token={token}"), "");
    assert_eq!(by(named.clone(), shop).send(&house).await.text(), "1");
    assert_resend_requested(&house, by(named.clone(), other), "program-token-caller").await;
    assert_resend_requested(&house, named, "program-token-caller").await;
    let hash = cached_javascript(&format!("code;hash={}", program_hash("export default () => 1")), "");
    assert_resend_requested(&house, by(hash.clone(), other), "program-unknown").await;
    assert_resend_requested(&house, hash, "program-unknown").await;
    let sent = by(TestQuery::javascript("export default () => 1").header("orfa-cache", "code"), other);
    assert_eq!(
        parse_cache_header(&sent.send(&house).await).2,
        "compiled",
        "another caller must not learn that it was cached"
    );
}

#[tokio::test]
async fn unknown_tokens_request_the_program_again() {
    let house = TestGateway::shared().await;
    let (_, token, _) = parse_cache_header(
        &TestQuery::javascript(ADD).input("{}").header("orfa-cache", "code").send(&house).await,
    );
    let forged = token.replacen(&token[10..11], if &token[10..11] == "A" { "B" } else { "A" }, 1);
    for cache in [&forged, ":AA==:", "::"] {
        assert_resend_requested(
            &house,
            cached_javascript(&format!("code;token={cache}"), "{}"),
            "program-token-unknown",
        )
        .await;
    }
    let typed = cached_query("text/typescript", &format!("code;token={token}"), "{}");
    assert_resend_requested(&house, typed, "program-token-unknown").await;
    let both = format!("code;token={token};hash={}", program_hash(ADD));
    for wrong in ["base", "code;token=abc", "code;hash=:YWJj:", &both] {
        house.expect_problem(cached_javascript(wrong, "{}"), 400, "header-malformed").await;
    }
    // A program in the body takes precedence over any token.
    let whole = TestQuery::javascript(ADD)
        .input(r#"{"a":1,"b":1}"#)
        .header("orfa-cache", &format!("code;token={forged}"));
    assert_eq!(whole.send(&house).await.text(), "2");
}

#[tokio::test]
async fn a_restart_is_warm_with_a_cache_folder() {
    let house = TestGateway::start(&format!("{ROUTES}runtime: {{ cache_dir: kept }}\n")).await;
    let counted = plain_module("", "(call $done (local.get $at) (local.get $len))");
    let c = build_c_program(
        "#include <orfa.h>\nvoid orfa(const void *input, int len) { orfa_done(input, len); }",
    )
    .await;
    let programs: [(&str, &[u8]); 3] = [
        ("application/wasm", &c),
        ("application/wasm", &counted),
        ("text/javascript", b"export default (i) => i.x"),
    ];
    let mut tokens = Vec::new();
    for (content_type, program) in programs {
        let query = TestQuery::new(content_type, program).input(r#"{"x":1}"#).header("orfa-cache", "code");
        tokens.push(parse_cache_header(&query.send(&house).await).1);
    }
    let next = house.gateway.start_successor(orfa_binary()).await;
    for ((content_type, _), token) in programs.iter().zip(&tokens) {
        let headers = [("content-type", *content_type), ("orfa-cache", &*format!("code;token={token}"))];
        let url = format!("{}/query", next.url);
        let answer = testkit::http::request("POST", &url, &headers, r#"{"x":1}"#).await.expect("an answer");
        assert_eq!(parse_cache_header(&answer).2, "found");
        assert!(!answer.header("server-timing").contains("compile"), "{}", answer.header("server-timing"));
    }
    let folder = house.gateway.directory().join("kept");
    for entry in std::fs::read_dir(&folder).expect("a folder").flatten() {
        let mut bytes = std::fs::read(entry.path()).expect("a file");
        if entry.path().extension().is_some() {
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            std::fs::write(entry.path(), bytes).expect("written");
        }
    }
    let last = house.gateway.start_successor(orfa_binary()).await;
    let headers =
        [("content-type", "application/wasm"), ("orfa-cache", &*format!("code;token={}", tokens[0]))];
    let url = format!("{}/query", last.url);
    let answer = testkit::http::request("POST", &url, &headers, "").await.expect("an answer");
    assert_problem(&answer, 409, "program-unknown");
}

#[tokio::test]
async fn programs_sent_before_caching_was_requested_survive_a_restart() {
    let house = TestGateway::start(&format!("{ROUTES}runtime: {{ cache_dir: kept }}\n")).await;
    let program = TestQuery::javascript(ADD).input(r#"{"a":1,"b":1}"#);
    assert_eq!(house.expect_text(program.clone()).await, "2");
    let (_, token, did) = parse_cache_header(&program.header("orfa-cache", "code").send(&house).await);
    assert_eq!(did, "found");
    let next = house.gateway.start_successor(orfa_binary()).await;
    let headers = [("content-type", "text/javascript"), ("orfa-cache", &*format!("code;token={token}"))];
    let url = format!("{}/query", next.url);
    let answer = testkit::http::request("POST", &url, &headers, r#"{"a":2,"b":2}"#).await.expect("an answer");
    assert_eq!((&*parse_cache_header(&answer).2, &*answer.text()), ("found", "4"));
}

/// Regression: the size limit covered only programs in request bodies.
#[tokio::test]
async fn cached_programs_obey_the_size_limit_of_each_route() {
    let small = "  - { path: /small, query: { services: [up], limits: { program_bytes: 40 } } }\n";
    let house = TestGateway::start(&format!(
        "\n{small}{}runtime: {{ cache_dir: kept }}\n",
        ROUTES.trim_start_matches('\n')
    ))
    .await;
    let program = format!("{ADD} // {}", "long ".repeat(20));
    let sent = TestQuery::javascript(&program).input(r#"{"a":1,"b":1}"#).header("orfa-cache", "code");
    let (_, token, _) = parse_cache_header(&sent.send(&house).await);
    let named = [format!("code;token={token}"), format!("code;hash={}", program_hash(&program))];
    for cache in &named {
        let query = cached_javascript(cache, r#"{"a":1,"b":2}"#);
        assert_eq!(house.expect_text(query.clone()).await, "3");
        assert_problem(&query.with_path("/small").send(&house).await, 413, "program-too-large");
    }
    let next = house.gateway.start_successor(orfa_binary()).await;
    let headers = [("content-type", "text/javascript"), ("orfa-cache", &*named[0])];
    let answer = testkit::http::request("POST", &format!("{}/small", next.url), &headers, "{}").await;
    assert_problem(&answer.expect("an answer"), 413, "program-too-large");
}

#[tokio::test]
async fn a_restart_forgets_programs_without_a_cache_folder() {
    let gateway = TestGateway::start(ROUTES).await;
    let (_, token, _) = parse_cache_header(
        &TestQuery::javascript(ADD).input("{}").header("orfa-cache", "code").send(&gateway).await,
    );
    let next = gateway.gateway.start_successor(orfa_binary()).await;
    let headers = [("content-type", "text/javascript"), ("orfa-cache", &*format!("code;token={token}"))];
    let answer = testkit::http::request("POST", &format!("{}/query", next.url), &headers, "").await;
    assert_problem(&answer.expect("an answer"), 409, "program-token-unknown");
}

#[tokio::test]
async fn gateways_with_the_same_secret_accept_each_others_tokens() {
    let gateway = TestGateway::start(&format!(
        "{ROUTES}runtime: {{ secret: a-long-secret-that-two-gateways-share }}\n"
    ))
    .await;
    let next = gateway.gateway.start_successor(orfa_binary()).await;
    let (_, token, _) = parse_cache_header(
        &TestQuery::javascript(ADD).input("{}").header("orfa-cache", "code").send(&gateway).await,
    );
    let headers = [("content-type", "text/javascript"), ("orfa-cache", &*format!("code;token={token}"))];
    let answer = testkit::http::request("POST", &format!("{}/query", next.url), &headers, "").await;
    // The other gateway does not have the program, but it accepts the token.
    assert_problem(&answer.expect("an answer"), 409, "program-unknown");
}

#[tokio::test]
async fn state_survives_a_run_only_in_instance_mode() {
    let gateway = TestGateway::start(ROUTES).await;
    for (mode, expected) in [("", ["1", "1", "1"]), ("code", ["1", "1", "1"]), ("instance", ["1", "2", "3"])]
    {
        let mut cache = mode.to_owned();
        let mut runs = Vec::new();
        for run in 0..3 {
            let query = match (mode, run) {
                ("", _) => TestQuery::javascript(COUNT).input("{}"),
                (_, 0) => TestQuery::javascript(COUNT).input("{}").header("orfa-cache", &cache),
                _ => cached_javascript(&cache, "{}"),
            };
            let answer = query.send(&gateway).await;
            if run == 0 && !mode.is_empty() {
                cache = format!("{mode};token={}", parse_cache_header(&answer).1);
            }
            if run > 0 && mode == "instance" {
                assert_eq!(parse_cache_header(&answer).2, "reused");
            }
            runs.push(answer.text());
        }
        assert_eq!(runs, expected, "{mode}");
    }
}

/// Starts a session with its own instance. Returns the `ORFA-Cache` value that names it.
async fn start_session(
    gateway: &TestGateway,
    content_type: &str,
    program: impl Into<Vec<u8>>,
    input: &str,
) -> String {
    let query = TestQuery::new(content_type, program).input(input).header("orfa-cache", "instance");
    let answer = query.send(gateway).await;
    assert_eq!(parse_cache_header(&answer).0, "instance");
    format!("instance;token={}", parse_cache_header(&answer).1)
}

#[tokio::test]
async fn an_instance_serves_one_session() {
    let gateway = TestGateway::start(ROUTES).await;
    let one = start_session(&gateway, "text/javascript", COUNT, "{}").await;
    let two = start_session(&gateway, "text/javascript", COUNT, "{}").await;
    assert_eq!(cached_javascript(&one, "{}").send(&gateway).await.text(), "2");
    assert_eq!(cached_javascript(&one, "{}").send(&gateway).await.text(), "3");
    assert_eq!(cached_javascript(&two, "{}").send(&gateway).await.text(), "2");
}

#[tokio::test]
async fn queued_runs_reuse_released_instances() {
    let gateway = Arc::new(TestGateway::start(ROUTES).await);
    let works = "let runs = 0\nexport default () => { for (let i = 0; i < 20000; i++) runs += i % 2; return ++runs % 10000 }";
    let named = start_session(&gateway, "text/javascript", works, "").await;
    let mut asked = JoinSet::new();
    for _ in 0..60 {
        let (test_gateway, query) = (Arc::clone(&gateway), cached_javascript(&named, ""));
        asked.spawn(async move { query.send(&test_gateway).await });
    }
    let answers = asked.join_all().await;
    let fresh = answers.iter().filter(|answer| parse_cache_header(answer).2 == "found").count();
    assert!(fresh < 20, "{fresh} of 60 ran in a new instance");
}

#[tokio::test]
async fn instances_that_fail_exceed_a_limit_or_grow_are_discarded() {
    let gateway = TestGateway::start(ROUTES).await;
    let named = start_session(&gateway, "text/javascript", COUNT, "{}").await;
    assert_eq!(cached_javascript(&named, "{}").send(&gateway).await.text(), "2");
    assert_problem(&cached_javascript(&named, r#"{"fail":1}"#).send(&gateway).await, 422, "program-threw");
    assert_eq!(cached_javascript(&named, "{}").send(&gateway).await.text(), "1", "after it threw");
    let spins = cached_javascript(&named, r#"{"fail":0}"#).limit("memory=700000");
    assert_problem(&spins.send(&gateway).await, 422, "limit-memory");
    assert_eq!(cached_javascript(&named, "{}").send(&gateway).await.text(), "1", "after it exceeded a limit");
    assert_eq!(cached_javascript(&named, r#"{"grow":2000000}"#).send(&gateway).await.text(), "2");
    assert_eq!(cached_javascript(&named, "{}").send(&gateway).await.text(), "1", "after it grew");
}

#[tokio::test]
async fn runs_without_an_answer_discard_their_instance() {
    let gateway = TestGateway::start(ROUTES).await;
    let counts = plain_module(
        "(global $runs (mut i32) (i32.const 48))",
        "(global.set $runs (i32.add (global.get $runs) (i32.const 1)))
        (i32.store8 (i32.const 64) (global.get $runs))
        (if (i32.eqz (local.get $len)) (then (call $done (i32.const 64) (i32.const 1))))",
    );
    let named = start_session(&gateway, "application/wasm", counts, "").await;
    let again = |input: &str| TestQuery::new("application/wasm", input).header("orfa-cache", &named);
    assert_eq!(again("").send(&gateway).await.text(), "2");
    assert_problem(&again("x").send(&gateway).await, 422, "program-no-answer");
    assert_eq!(again("").send(&gateway).await.text(), "1");
}

#[tokio::test]
async fn lazy_values_of_a_run_are_not_readable_in_the_next() {
    let gateway = TestGateway::start(ROUTES).await;
    let program = "let kept\nexport default async ({ n, looks }, { up }) => {
        const now = await up.post('/body', Array.from({ length: 900 }, (_, i) => ({ i, n })))
        const before = kept
        kept = now[7]
        return looks ? [before.n, now[7].n] : now[7].n
    }";
    let named = start_session(&gateway, "text/javascript", program, r#"{"n":1}"#).await;
    for n in 2..5 {
        let answer = cached_javascript(&named, &format!(r#"{{"n":{n}}}"#)).send(&gateway).await;
        assert_eq!(answer.text(), n.to_string());
    }
    // A value that was not read in its own run cannot be read in the next one.
    assert_problem(
        &cached_javascript(&named, r#"{"n":5,"looks":1}"#).send(&gateway).await,
        422,
        "program-bad-handle",
    );
}

#[tokio::test]
async fn modules_are_cached_as_instances_too() {
    let gateway = TestGateway::start(ROUTES).await;
    let body = "(global.set $runs (i32.add (global.get $runs) (i32.const 1)))
        (i32.store8 (i32.const 64) (i32.add (global.get $runs) (i32.const 48)))
        (call $done (i32.const 64) (i32.const 1))";
    let counts = plain_module("(global $runs (mut i32) (i32.const 0))", body);
    let named = start_session(&gateway, "application/wasm", counts, "").await;
    for run in ["2", "3"] {
        let query = TestQuery::new("application/wasm", "").header("orfa-cache", &named);
        assert_eq!(query.send(&gateway).await.text(), run);
    }
    let source = "#include <orfa.h>\nstatic char runs[] = \"0\";\nvoid orfa(const void *input, int len) { ++*runs; orfa_done_text(runs); }";
    let named = start_session(&gateway, "application/wasm", build_c_program(source).await, "").await;
    for run in ["2", "3"] {
        let response =
            TestQuery::new("application/wasm", "").header("orfa-cache", &named).send(&gateway).await;
        assert_eq!(response.text(), run);
        assert_eq!(response.header("content-type"), "text/plain; charset=utf-8", "each run sets it again");
    }
}

#[tokio::test]
async fn instance_mode_requires_the_routes_permission() {
    let gateway = TestGateway::shared().await;
    let answer =
        TestQuery::javascript(COUNT).input("{}").header("orfa-cache", "instance").send(&gateway).await;
    let (mode, token, _) = parse_cache_header(&answer);
    assert_eq!(mode, "code", "the next permitted mode");
    assert_eq!(cached_javascript(&format!("instance;token={token}"), "{}").send(&gateway).await.text(), "1");
}

#[tokio::test]
async fn type_stripping_counts_against_the_compile_rate() {
    let gateway = TestGateway::start(&format!("{ROUTES}runtime: {{ compile_time: 20ms }}\n")).await;
    let large = |number: usize| {
        TestQuery::typescript(&format!("export default (): number => {number} // {}", "x".repeat(60_000)))
    };
    let mut served = 0;
    while large(served).send(&gateway).await.status != 429 {
        served += 1;
        assert!(served < 10, "each program should cost at least 6 ms of 20 ms");
    }
}

#[tokio::test]
async fn new_programs_are_rate_limited_and_cached_ones_still_run() {
    let gateway = TestGateway::start(&format!("{ROUTES}runtime: {{ compile_time: 20ms }}\n")).await;
    let query = TestQuery::javascript(ADD).input(r#"{"a":1,"b":1}"#);
    assert_eq!(gateway.expect_text(query.clone()).await, "2");
    let mut refused: Option<Value> = None;
    for number in 0..200 {
        let answer = TestQuery::javascript(&format!("export default () => {number}")).send(&gateway).await;
        if answer.status == 429 {
            assert!(answer.header("retry-after").parse::<u32>().is_ok_and(|seconds| seconds > 0));
            refused = Some(assert_problem(&answer, 429, "compile-rate"));
            break;
        }
        assert_eq!(answer.json(), json!(number));
    }
    assert!(refused.is_some(), "200 programs");
    assert_eq!(gateway.expect_text(query).await, "2");
    let other = TestQuery::javascript("export default () => 'new'")
        .header("x-api-key", "a-long-and-random-key-of-the-shop");
    assert_eq!(gateway.expect_text(other).await, "new", "another caller has its own budget");
}
