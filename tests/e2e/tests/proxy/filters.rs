//! Failing filters in the log and in the metrics.

use testkit::{GatewayProcess, http, misbehaving_upstream};

use crate::support::{fetch_metrics, metric_value, orfa_binary};

/// A filter that loops forever on requests.
const LOOPING_FILTER: &str = r#"(module
    (memory (export "memory") 1)
    (func (export "proxy_abi_version_0_2_1"))
    (func (export "malloc") (param i32) (result i32) (i32.const 1024))
    (func (export "proxy_on_context_create") (param i32 i32))
    (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (loop $for_ever (br $for_ever)) (i32.const 0)))"#;
/// A filter that calls a host that is not permitted.
const CALLING_FILTER: &str = r#"(module
    (import "env" "proxy_http_call"
        (func $http_call (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (data (i32.const 16) "auth.example.org:80")
    (data (i32.const 64) "\03\00\00\00\07\00\00\00\03\00\00\00\05\00\00\00\01\00\00\00\0a\00\00\00\01\00\00\00:method\00GET\00:path\00/\00:authority\00a\00")
    (func (export "proxy_abi_version_0_2_1"))
    (func (export "malloc") (param i32) (result i32) (i32.const 1024))
    (func (export "proxy_on_context_create") (param i32 i32))
    (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (drop (call $http_call (i32.const 16) (i32.const 19) (i32.const 64) (i32.const 61) (i32.const 0)
            (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 1000) (i32.const 8)))
        (i32.const 0)))"#;

/// A filter that calls a service, and in the callback of that call a host that is not permitted.
const CALLBACK_FILTER: &str = r#"(module
    (import "env" "proxy_http_call"
        (func $http_call (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
    (import "env" "proxy_set_effective_context" (func $effective (param i32) (result i32)))
    (memory (export "memory") 1)
    (global $id (mut i32) (i32.const 0))
    (data (i32.const 12) "up")
    (data (i32.const 16) "auth.example.org:80")
    (data (i32.const 64) "\03\00\00\00\07\00\00\00\03\00\00\00\05\00\00\00\01\00\00\00\0a\00\00\00\01\00\00\00:method\00GET\00:path\00/\00:authority\00a\00")
    (func (export "proxy_abi_version_0_2_1"))
    (func (export "malloc") (param i32) (result i32) (i32.const 1024))
    (func (export "proxy_on_context_create") (param i32 i32))
    (func $call (param $upstream i32) (param $length i32)
        (drop (call $http_call (local.get $upstream) (local.get $length) (i32.const 64) (i32.const 61)
            (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 60000) (i32.const 8))))
    (func (export "proxy_on_request_headers") (param $id i32) (param i32 i32) (result i32)
        (global.set $id (local.get $id))
        (call $call (i32.const 12) (i32.const 2))
        (i32.const 0))
    (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
        (drop (call $effective (global.get $id)))
        (call $call (i32.const 16) (i32.const 19))))"#;

/// A filter that lets an answer begin and holds back the rest.
const STALLING_FILTER: &str = r#"(module
    (memory (export "memory") 1)
    (global $begun (mut i32) (i32.const 0))
    (func (export "proxy_abi_version_0_2_1"))
    (func (export "malloc") (param i32) (result i32) (i32.const 1024))
    (func (export "proxy_on_context_create") (param i32 i32))
    (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32)
        (global.get $begun) (global.set $begun (i32.const 1))))"#;

/// A filter that traps on answers.
const TRAPPING_FILTER: &str = r#"(module
    (memory (export "memory") 1)
    (func (export "proxy_abi_version_0_2_1"))
    (func (export "malloc") (param i32) (result i32) (i32.const 1024))
    (func (export "proxy_on_context_create") (param i32 i32))
    (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32) (unreachable)))"#;

#[tokio::test]
async fn failing_filters_have_a_problem_a_log_line_and_metrics() {
    let upstream = misbehaving_upstream::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    for (name, code) in
        [("loops.wasm", LOOPING_FILTER), ("calls.wasm", CALLING_FILTER), ("holds.wasm", STALLING_FILTER)]
    {
        std::fs::write(folder.path().join(name), wat::parse_str(code).expect("a module")).expect("written");
    }
    let (service, folder) = (upstream.url(), folder.path().display().to_string());
    let gateway = GatewayProcess::start(
        orfa_binary(),
        &format!(
            "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nservices: {{ up: {{ url: '{service}' }} }}\nroutes:\n  \
             - {{ path: '/loops/*', proxy: up, filters: [{{ wasm: '{folder}/loops.wasm' }}] }}\n  \
             - {{ path: '/calls/*', proxy: up, filters: [{{ wasm: '{folder}/calls.wasm' }}] }}\n  \
             - {{ path: '/holds/*', proxy: up, filters: [{{ wasm: '{folder}/holds.wasm' }}] }}\n"
        ),
    )
    .await;
    let get = async |path: &str| {
        http::request("GET", &format!("{}{path}", gateway.url), &[], "").await.expect("an answer")
    };
    let looped = get("/loops/json").await;
    assert_eq!((looped.status.as_u16(), &looped.json()["code"]), (503, &"filter-failed".into()));
    let line = gateway.wait_for_log(|line| line.contains("trapped")).await.expect("a line");
    assert!(line.contains(r#""filter":"loops""#) && line.contains("more CPU time than 5ms"), "{line}");
    // The refused call fails the request: a filter must not pass a request it could not check.
    let unasked = get("/calls/json").await;
    assert_eq!((unasked.status.as_u16(), &unasked.json()["code"]), (503, &"filter-refused".into()));
    let line =
        gateway.wait_for_log(|line| line.contains("neither a service nor a host")).await.expect("a line");
    assert!(line.contains(r#""upstream":"auth.example.org:80""#), "{line}");
    let cut = http::request("GET", &format!("{}/holds/gigabyte", gateway.url), &[], "").await;
    assert!(cut.is_err(), "an answer that has begun can only break off");
    let line = gateway.wait_for_log(|line| line.contains("cut short")).await.expect("a line");
    assert!(line.contains(r#""filter":"holds""#) && line.contains("filter-response-too-large"), "{line}");
    let page = fetch_metrics(&gateway).await;
    assert_eq!(metric_value(&page, "orfa_filter_traps_total{filter=\"loops\"}"), 1);
    assert_eq!(metric_value(&page, "orfa_filter_traps_total{filter=\"calls\"}"), 0);
    assert_eq!(metric_value(&page, "orfa_filter_failed_total{filter=\"holds\"}"), 1);
}

#[tokio::test]
async fn requests_do_not_pass_if_their_filter_can_not_ask_in_the_callback_of_a_call() {
    let upstream = misbehaving_upstream::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let filter = folder.path().join("later.wasm");
    std::fs::write(&filter, wat::parse_str(CALLBACK_FILTER).expect("a module")).expect("written");
    let (service, filter) = (upstream.url(), filter.display());
    let yaml = format!(
        "listen: 127.0.0.1:0\nservices: {{ up: {{ url: '{service}' }} }}\nroutes:\n  \
         - {{ path: '/later/*', proxy: up, filters: [{{ wasm: '{filter}' }}] }}\n  \
         - {{ path: '/open/*', proxy: up, filters: [{{ wasm: '{filter}', name: open, on_refusal: open }}] }}\n"
    );
    let gateway = GatewayProcess::start(orfa_binary(), &yaml).await;
    let get = async |path: &str| {
        http::request("GET", &format!("{}{path}", gateway.url), &[], "").await.expect("an answer")
    };
    let unasked = get("/later/json").await;
    assert_eq!((unasked.status.as_u16(), &unasked.json()["code"]), (503, &"filter-refused".into()));
    let line =
        gateway.wait_for_log(|line| line.contains("neither a service nor a host")).await.expect("a line");
    for part in [r#""level":"WARN""#, r#""filter":"later""#, r#""upstream":"auth.example.org:80""#] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert_eq!(get("/open/json").await.status.as_u16(), 200);
}

#[tokio::test]
async fn the_cost_of_a_program_is_logged_even_if_a_filter_fails() {
    let folder = tempfile::tempdir().expect("a folder");
    let filter = folder.path().join("breaks.wasm");
    std::fs::write(&filter, wat::parse_str(TRAPPING_FILTER).expect("a module")).expect("written");
    let filter = filter.display();
    let yaml = format!(
        "listen: 127.0.0.1:0\nservices: {{ up: {{ url: 'http://127.0.0.1:9' }} }}\nroutes:\n  \
         - {{ path: /query, query: {{ services: [up] }}, filters: [{{ wasm: '{filter}' }}] }}\n"
    );
    let gateway = GatewayProcess::start(orfa_binary(), &yaml).await;
    let (url, typed) = (format!("{}/query", gateway.url), [("content-type", "text/javascript")]);
    let answer = http::request("POST", &url, &typed, "export default () => 1").await.expect("an answer");
    assert_eq!((answer.status.as_u16(), &answer.json()["code"]), (503, &"filter-failed".into()));
    let line = gateway.wait_for_log(|line| line.contains("\"route\":\"/query\"")).await.expect("a line");
    assert!(line.contains("\"status\":503") && line.contains("\"cpu_ms\":"), "{line}");
}
