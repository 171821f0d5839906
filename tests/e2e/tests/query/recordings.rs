//! Recordings and their replays: a replay produces the same bytes or ends at the same host call, and a
//! recording contains nothing that was invisible to the program.

use std::path::Path;

use serde_json::{Value, json};
use testkit::GatewayProcess;
use testkit::http::TestResponse;
use testkit::misbehaving_upstream;
use tokio::process::Command;

use crate::support::{
    RecordedRun, TestGateway, TestQuery, assert_problem, build_c_program, c_environment_module, lossy_text,
    orfa_binary, plain_module, replay, request_segment, write_file,
};

/// A program with overlapping calls, a failing call, time and randomness.
pub(super) const JAVASCRIPT: &str = "
export default async function ({ n }, { up, dead }) {
  const [slow, list, echo] = await Promise.all([
    up.get('/slow', { ms: 30 }), up.get('/json', { n }), up.fetch('/echo', { method: 'POST', body: 'hi' }),
  ]);
  const error = await dead.get('/').catch((error) => [error.name, error.reason, error.status]);
  console.log('so far', list.length);
  return { slow, list, echo: (await echo.json()).body, error, at: [Date.now(), new Date()],
           chance: [Math.random(), crypto.randomUUID(), [...crypto.getRandomValues(new Uint8Array(5))]] };
}";

/// Records and replays a query, and asserts that the answer has the recorded hash.
async fn reaches_the_same_bytes(query: TestQuery, file: &str, program: &[u8]) -> Vec<u8> {
    let recorded = RecordedRun::record(query).await;
    let output = recorded.assert_replays(file, program).await;
    assert!(recorded.matches_answer(&output.stdout), "{}", lossy_text(&output.stdout));
    output.stdout
}

#[tokio::test]
async fn replays_javascript_with_overlapping_calls_clock_and_randomness() {
    let query = TestQuery::javascript(JAVASCRIPT).input(r#"{"n":3}"#);
    let answer = reaches_the_same_bytes(query.clone(), "q.js", JAVASCRIPT.as_bytes()).await;
    let again = reaches_the_same_bytes(query, "q.js", JAVASCRIPT.as_bytes()).await;
    assert_ne!(answer, again, "each run has its own randomness");
}

#[tokio::test]
async fn replays_long_bodies_and_answers() {
    let routes = "  - path: /query
    query:
      services: [up]
      methods: [GET, POST]
      recordings: { callers: [anyone], size: 8MiB }
      limits: { cpu: 5s, timeout: 30s }";
    let gateway = TestGateway::start(routes).await;
    let program = "export default async (_, { up }) => {
  const answer = await up.fetch('/body', { method: 'POST', body: 'é\\n'.repeat(100000) });
  return (await answer.text()).length + 'x'.repeat(300000);
}";
    let recorded = TestQuery::javascript(program).header("orfa-debug", "?1").send(&gateway).await;
    assert_eq!(recorded.status, 200, "{}", recorded.text().chars().take(300).collect::<String>());
    let output = replay(&recorded.body, "q.js", program.as_bytes()).await;
    assert_eq!(output.stdout.len(), "200000".len() + 300_000, "{}", lossy_text(&output.stderr));
}

#[tokio::test]
async fn replays_typescript() {
    let program =
        "export default async ({ n }: { n: number }, { up }): Promise<unknown> => up.get('/json', { n });";
    let query = TestQuery::typescript(program).input(r#"{"n":2}"#);
    reaches_the_same_bytes(query, "q.ts", program.as_bytes()).await;
}

#[tokio::test]
async fn replays_c_programs() {
    let source = r#"#include <orfa.h>
void orfa(const void *input, int len) {
    orfa_future slow = orfa_get("http://up/slow?ms=20"), quick = orfa_get("http://up/json?n=%d", len);
    orfa_future both[] = {slow, quick};
    int first = orfa_wait_any(both, 2);
    long long random;
    orfa_random(&random, sizeof random);
    orfa_log("first came %d", first);
    orfa_done_as("{list:%v,first:%d,at:%lld,random:%lld}", orfa_wait_json(quick), first, orfa_clock(), random);
}"#;
    let module = build_c_program(source).await;
    let query = TestQuery::module(module.clone()).input("four");
    reaches_the_same_bytes(query, "q.wasm", &module).await;
}

#[tokio::test]
async fn replays_plain_modules() {
    let fields = request_segment(1024, "GET", "http://up/json?n=1", &[("accept", "*/*")], "");
    let body = "(local $h i32) (local.set $h (call $http (i32.const 1024))) (i32.store (i32.const 8) (local.get $h))
        (drop (call $Future_wait (i32.const 8) (i32.const 1) (i32.const 1)))
        (i32.store16 (i32.const 2048) (i32.const 0x302f))
        (drop (call $Response_json (local.get $h) (i32.const 2048) (i32.const 2) (i32.const 4096) (i32.const 100)))
        (call $random (i32.const 5000) (i32.const 100)) (i64.store (i32.const 5200) (call $clock))
        (call $Handle_del (local.get $h)) (call $done (i32.const 4096) (i32.const 2000))";
    let module = plain_module(&fields, body);
    reaches_the_same_bytes(TestQuery::module(module.clone()), "q.wasm", &module).await;
}

#[tokio::test]
async fn replays_runs_that_a_limit_ended_to_the_same_host_call() {
    let json = request_segment(1024, "GET", "http://up/json?n=9", &[], "");
    let hang = request_segment(1024, "GET", "http://up/hang", &[], "");
    let large = request_segment(1024, "GET", "http://up/json?n=200", &[], "");
    let call = "(drop (call $http (i32.const 1024)))";
    let wait = "(i32.store (i32.const 8) (call $http (i32.const 1024)))
        (drop (call $Future_wait (i32.const 8) (i32.const 1) (i32.const 1)))";
    let some = "(drop (call $clock)) (drop (call $status (i32.const 201)))";
    for (limit, code, fields, body) in [
        ("cpu=20", "limit-cpu", "", format!("{some} (loop (br 0))")),
        ("deadline=200", "limit-deadline", &hang, format!("{some} {wait}")),
        ("memory=262144", "limit-memory", "", format!("{some} (drop (memory.grow (i32.const 4)))")),
        ("memory=135000", "limit-memory", &large, format!("{some} {wait} {call}")),
        ("calls=2", "limit-calls", &json, format!("{some} {call} {call} {call}")),
        ("received=100", "limit-received", &large, format!("{some} {wait}")),
        ("output=10", "limit-output", "", format!("{some} (call $done (i32.const 0) (i32.const 11))")),
    ] {
        let module = plain_module(fields, &body);
        let recorded = RecordedRun::record(TestQuery::module(module.clone()).limit(limit)).await;
        assert_eq!(recorded.outcome(), code, "{}", lossy_text(&recorded.bytes));
        let output = recorded.assert_replays("q.wasm", &module).await;
        assert!(
            lossy_text(&output.stderr).contains(code) && output.stdout.is_empty(),
            "{}",
            lossy_text(&output.stderr)
        );
        assert_eq!(output.status.code(), Some(1));
    }
}

#[tokio::test]
async fn replays_failed_runs_to_the_same_place() {
    for (program, code, place) in [
        (
            "export default async (_, { up }) => {\n  (await up.get('/json', { n: 1 })).x.y;\n}",
            "program-threw",
            "2:",
        ),
        ("export default () => new Promise(() => {})", "program-stalled", ""),
        ("export default async (_, { up }) => { await up.post('/status/500', {}); }", "program-threw", "1:"),
        ("export default () => new Response('', { headers: { 'x-a': 'b' } })", "answer-header", ""),
    ] {
        let recorded = RecordedRun::record(TestQuery::javascript(program)).await;
        assert_eq!(recorded.outcome(), code);
        let output = recorded.assert_replays("q.js", program.as_bytes()).await;
        assert!(
            lossy_text(&output.stderr).contains(place) && lossy_text(&output.stderr).contains(code),
            "{}",
            lossy_text(&output.stderr)
        );
    }
    for body in ["unreachable", "(call $Handle_del (i32.const 7))", "(drop (call $http (i32.const -4)))", ""]
    {
        let module = plain_module("", &format!("(drop (call $clock)) {body}"));
        let recorded = RecordedRun::record(TestQuery::module(module.clone())).await;
        assert!(recorded.outcome().as_str().is_some_and(|code| code.starts_with("program-")));
        recorded.assert_replays("q.wasm", &module).await;
    }
}

#[tokio::test]
async fn replays_writes_that_were_not_awaited() {
    let fields = request_segment(1024, "POST", "http://up/slow?ms=40", &[], "");
    let body = "(drop (call $http (i32.const 1024))) (call $done (i32.const 0) (i32.const 0))";
    let module = plain_module(&fields, body);
    let recorded = RecordedRun::record(TestQuery::module(module.clone())).await;
    let last = recorded.json["calls"].as_array().and_then(|calls| calls.last()).expect("a call");
    assert_eq!(last, &json!({ "function": "return", "ended": [1] }));
    recorded.assert_replays("q.wasm", &module).await;
    let beside_c = c_environment_module("", "(call $done (i32.const 0) (i32.const 3))");
    reaches_the_same_bytes(TestQuery::module(beside_c.clone()), "q.wasm", &beside_c).await;
}

#[tokio::test]
async fn changed_programs_may_answer_differently_but_not_call_differently() {
    let program = "export default async (_, { up }) => (await up.get('/json', { n: 3 })).length";
    let recorded = RecordedRun::record(TestQuery::javascript(program)).await;
    let fixed = "export default async (_, { up }) => { console.log('so'); return (await up.get('/json', { n: 3 })).length * 2 }";
    let output = recorded.replay("q.js", fixed.as_bytes()).await;
    assert_eq!(lossy_text(&output.stdout), "6", "{}", lossy_text(&output.stderr));
    assert!(
        lossy_text(&output.stderr).contains("otherwise than the recorded run"),
        "{}",
        lossy_text(&output.stderr)
    );
    for (asks, recorded_there) in [
        ("(await up.get('/json', { n: 4 })).length", "n=3"),
        ("Date.now() + (await up.get('/json', { n: 3 })).length", "`http`"),
        ("(await up.get('/json', { n: 3 })).length + (await up.get('/json', { n: 1 })).length", "`return`"),
    ] {
        let output =
            recorded.replay("q.js", format!("export default async (_, {{ up }}) => {asks}").as_bytes()).await;
        let told = lossy_text(&output.stderr);
        assert!(told.contains("(replay-diverged)") && told.contains("host call"), "{told}");
        assert!(told.contains(recorded_there), "{told}");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    }
}

#[tokio::test]
async fn a_modified_recording_diverges_at_the_modified_call() {
    let module =
        plain_module("", "(drop (call $status (i32.const 201))) (call $done (i32.const 0) (i32.const 4))");
    let recorded = RecordedRun::record(TestQuery::module(module.clone())).await;
    for (pointer, value, told) in [
        ("/calls/0/with/code", json!(202), "host call 1: the program calls `status` {\"code\":201}"),
        (
            "/calls/0/result",
            json!(-3),
            "host call 1: `status` {\"code\":201} gives 0, where the recording has -3",
        ),
        ("/end/answer/status", json!(200), "the run ended with an answer of status 201"),
    ] {
        let mut changed = recorded.json.clone();
        *changed.pointer_mut(pointer).expect("a place") = value;
        let output = replay(changed.to_string().as_bytes(), "q.wasm", &module).await;
        let said = lossy_text(&output.stderr);
        assert!(said.contains(told) && said.contains("(replay-diverged)"), "{said}");
    }
}

#[tokio::test]
async fn reports_a_wait_that_the_recording_never_ends() {
    let fields = request_segment(1024, "GET", "http://up/json?n=1", &[], "");
    let body = "(i32.store (i32.const 8) (call $http (i32.const 1024)))
        (drop (call $Future_wait (i32.const 8) (i32.const 1) (i32.const 1))) (call $done (i32.const 0) (i32.const 1))";
    let module = plain_module(&fields, body);
    let recorded = RecordedRun::record(TestQuery::module(module.clone())).await;
    let mut changed = recorded.json.clone();
    changed["calls"][1]["ended"] = json!([]);
    let output = replay(changed.to_string().as_bytes(), "q.wasm", &module).await;
    let told =
        "host call 2: the program waits for a call that did not end in the recording (replay-diverged)";
    assert!(lossy_text(&output.stderr).contains(told), "{}", lossy_text(&output.stderr));
}

#[tokio::test]
async fn distinguishes_invalid_recordings() {
    let module = plain_module("", "(call $done (i32.const 0) (i32.const 4))");
    let good = RecordedRun::record(TestQuery::module(module.clone())).await;
    let with = |pointer: &str, value: Value| {
        let mut changed = good.json.clone();
        *changed.pointer_mut(pointer).expect("a place") = value;
        changed.to_string().into_bytes()
    };
    for (bytes, code) in [
        (good.bytes[..good.bytes.len() - 1].to_vec(), "recording-short"),
        (good.bytes[..20].to_vec(), "recording-short"),
        (Vec::new(), "recording-short"),
        (with("/version", json!(2)), "recording-version"),
        (with("/version", json!("one")), "recording-version"),
        (with("/calls", json!([{ "function": "return", "ended": [7] }])), "recording-malformed"),
        (with("/calls", json!([{ "function": "http", "with": 7, "why": 8 }])), "recording-malformed"),
        (with("/services", json!(["a b"])), "recording-malformed"),
        (with("/limits", json!({})), "recording-malformed"),
        (b"{}".to_vec(), "recording-malformed"),
        (b"no".to_vec(), "recording-malformed"),
        (module.clone(), "recording-malformed"),
    ] {
        let output = replay(&bytes, "q.wasm", &module).await;
        let told = lossy_text(&output.stderr);
        assert!(told.contains(&format!("({code})")), "{code}: {told}");
        assert_eq!(output.status.code(), Some(1));
    }
}

#[tokio::test]
async fn recordings_are_limited_in_size() {
    let gateway = TestGateway::shared().await;
    let large = "export default async (_, { up }) => (await up.get('/json', { n: 1500 })).length";
    let many = "export default () => { for (let i = 0; i < 100000; i++) Date.now(); return 1 }";
    let said = "export default () => { for (;;) console.log('x'.repeat(10000)); }";
    for program in [large, many, said] {
        let query = TestQuery::javascript(program).with_path("/recorded").header("orfa-debug", "?1");
        let document = gateway.expect_problem(query, 422, "recording-too-large").await;
        assert!(
            document["detail"].as_str().is_some_and(|detail| detail.contains("32768 bytes")),
            "{document}"
        );
    }
    let input =
        TestQuery::javascript("export default () => 1").input(&format!("\"{}\"", "x".repeat(32 << 10)));
    gateway
        .expect_problem(input.with_path("/recorded").header("orfa-debug", "?1"), 422, "recording-too-large")
        .await;
    let handles = "(drop (call $Future_wait (i32.const 0) (i32.const 30000) (i32.const 0)))";
    let module =
        TestQuery::module(plain_module("", handles)).with_path("/recorded").header("orfa-debug", "?1");
    let recording = module.send(&gateway).await.text();
    assert!(recording.contains("program-bad-pointer") && recording.len() < 1000, "{recording}");
}

#[tokio::test]
async fn recording_is_off_by_default() {
    let gateway = TestGateway::shared().await;
    let query = TestQuery::javascript("export default () => 'hello'");
    gateway.expect_problem(query.clone().header("orfa-debug", "?1"), 403, "recording-off").await;
    assert_eq!(gateway.expect_text(query.clone().header("orfa-debug", "?0")).await, "hello");
    assert_eq!(gateway.expect_text(query.clone().with_path("/recorded")).await, "hello");
    for malformed in ["1", "yes", "?1, ?1", ""] {
        gateway.expect_problem(query.clone().header("orfa-debug", malformed), 400, "header-malformed").await;
    }
}

#[tokio::test]
async fn only_listed_callers_may_record() {
    let config = "
listen: 127.0.0.1:0
services: { up: { url: 'http://127.0.0.1:1' } }
callers: { tester: { key: '${file:tester.key}' }, shop: { key: '${file:shop.key}' } }
rights: { anonymous: {}, others: {} }
routes:
  - { path: /query, query: { services: [up], recordings: { callers: [tester] } } }
";
    let keys = [
        ("tester.key", "the-long-and-random-key-of-tester"),
        ("shop.key", "the-long-and-random-key-of-the-shop"),
    ];
    let gateway = GatewayProcess::start_with(orfa_binary(), config, &keys).await;
    let ask = async |key: Option<&str>| -> TestResponse {
        let mut headers = vec![("content-type", "text/javascript"), ("orfa-debug", "?1")];
        headers.extend(key.map(|key| ("x-api-key", key)));
        let url = format!("{}/query", gateway.url);
        testkit::http::request("POST", &url, &headers, "export default () => 1").await.expect("an answer")
    };
    assert_eq!(ask(Some(keys[0].1)).await.status, 200);
    assert_problem(&ask(Some(keys[1].1)).await, 403, "recording-forbidden");
    assert_problem(&ask(None).await, 403, "recording-forbidden");
}

/// Runs `orfa`, asserts success and returns its output.
async fn run_orfa(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new(orfa_binary()).args(arguments).current_dir(folder).output().await;
    let output = output.expect("orfa runs");
    assert!(output.status.success(), "{}", lossy_text(&output.stderr));
    lossy_text(&output.stdout)
}

#[tokio::test]
async fn programs_of_other_owners_are_not_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    write_file(folder.path(), "q.js", b"export default () => 1");
    let mut keys = String::new();
    for name in ["open", "closed"] {
        let printed = run_orfa(folder.path(), &["keys", "new", name]).await;
        keys.push_str(printed.strip_prefix("trust:\n").expect("a key"));
    }
    let config = format!(
        "
listen: 127.0.0.1:0
services: {{ up: {{ url: 'http://127.0.0.1:1' }} }}
trust:
{keys}
routes:
  - path: /query
    query: {{ services: [up], stored: [q.js], recordings: {{ callers: [anyone], keys: [open] }} }}
"
    );
    let gateway =
        GatewayProcess::start_with(orfa_binary(), &config, &[("q.js", "export default () => 1")]).await;
    let ask = async |path: &str, trust: Option<&str>| -> TestResponse {
        let mut headers = vec![("content-type", "text/javascript"), ("orfa-debug", "?1")];
        headers.extend(trust.map(|trust| ("orfa-trust", trust)));
        let url = format!("{}{path}", gateway.url);
        testkit::http::request("POST", &url, &headers, "export default () => 1").await.expect("an answer")
    };
    assert_eq!(ask("/query", None).await.status, 200);
    assert_problem(&ask("/query/q", None).await, 403, "recording-not-yours");
    for (key, status) in [("open", 200), ("closed", 403)] {
        let trust = run_orfa(folder.path(), &["query", "sign", "q.js", "--key", &format!("{key}.pem")]).await;
        let response = ask("/query", Some(trust.trim())).await;
        assert_eq!(response.status, status, "{}", response.text());
        if status == 403 {
            assert_problem(&response, 403, "recording-not-yours");
        }
    }
}

#[tokio::test]
async fn recorded_runs_use_a_fresh_instance() {
    let config = "
listen: 127.0.0.1:0
services: { up: { url: 'http://127.0.0.1:1' } }
routes:
  - { path: /query, query: { services: [up], modes: [instance], recordings: { callers: [anyone] } } }
";
    let gateway = GatewayProcess::start(orfa_binary(), config).await;
    let program = "let count = 0; export default () => String(++count)";
    let ask = async |headers: &[(&str, &str)], body: &'static str| -> TestResponse {
        let headers = [&[("content-type", "text/javascript")], headers].concat();
        let url = format!("{}/query", gateway.url);
        testkit::http::request("POST", &url, &headers, body).await.expect("an answer")
    };
    let first = ask(&[("orfa-cache", "instance")], program).await;
    let token = first.header("orfa-cache").to_owned();
    assert_eq!((&*first.text(), &*ask(&[("orfa-cache", &token)], "").await.text()), ("1", "2"), "{token}");
    let recorded = ask(&[("orfa-cache", &token), ("orfa-debug", "?1")], "").await;
    let replayed = replay(&recorded.body, "q.js", program.as_bytes()).await;
    assert_eq!(lossy_text(&replayed.stdout), "1", "{}", lossy_text(&replayed.stderr));
    assert_eq!(ask(&[("orfa-cache", &token)], "").await.text(), "3");
}

#[tokio::test]
async fn recordings_contain_only_the_programs_own_credentials() {
    let gateway = TestGateway::shared().await;
    let program = "export default async (_, { guarded }) => {
        const echo = await guarded.fetch('/echo', { headers: { 'x-mine': 'of-the-program' } });
        return { seen: (await echo.json()).path, cookie: echo.headers.get('set-cookie') };
    }";
    let query = TestQuery::javascript(program).with_path("/recorded").header("orfa-debug", "?1");
    let query =
        query.header("authorization", "Bearer of-the-client").header("cookie", "session=of-the-client");
    let response = query.send(&gateway).await;
    let recording: Value = response.json();
    let calls = recording["calls"].as_array().expect("calls");
    let call = calls.iter().find(|call| call["function"] == "http").expect("a call");
    assert_eq!(call["with"]["headers"], json!([["x-mine", "of-the-program"]]));
    // The service echoes its request headers, so they are in the recorded response; the rest must not contain
    // them.
    let mut without_echo = recording.clone();
    without_echo["responses"] = Value::Null;
    assert!(
        !without_echo.to_string().contains("hush") && !without_echo.to_string().contains("of-the-client")
    );
}

#[tokio::test]
async fn call_writes_a_recording() {
    let upstream = misbehaving_upstream::start().await;
    let config = format!(
        "listen: 127.0.0.1:0\nservices: {{ up: {{ url: '{}' }} }}\nroutes:\n  - {{ path: /query, query: {{ services: [up], recordings: {{ callers: [anyone] }} }} }}\n  - {{ path: /off, query: {{ services: [up] }} }}\n",
        upstream.url()
    );
    let gateway = GatewayProcess::start(orfa_binary(), &config).await;
    let folder = tempfile::tempdir().expect("a folder");
    write_file(
        folder.path(),
        "q.js",
        b"export default async (_, { up }) => (await up.get('/json', { n: 2 })).length",
    );
    let call = async |path: &str| {
        let url = format!("{}{path}", gateway.url);
        let arguments = ["call", "q.js", "--url", &url, "--record", "run.json"];
        Command::new(orfa_binary())
            .args(arguments)
            .current_dir(folder.path())
            .output()
            .await
            .expect("orfa runs")
    };
    let refused = call("/off").await;
    assert!(lossy_text(&refused.stderr).contains("recording-off"), "{}", lossy_text(&refused.stderr));
    assert!(!folder.path().join("run.json").exists() && refused.status.code() == Some(1));
    let output = call("/query").await;
    let told = lossy_text(&output.stderr);
    assert!(
        told.starts_with("run.json: ") && told.ends_with("ended with an answer of status 200 and 1 bytes\n"),
        "{told}"
    );
    assert!(output.stdout.is_empty() && output.status.success());
    let recording = std::fs::read(folder.path().join("run.json")).expect("a recording");
    let program = std::fs::read(folder.path().join("q.js")).expect("a program");
    assert_eq!(lossy_text(&replay(&recording, "q.js", &program).await.stdout), "2");
}
