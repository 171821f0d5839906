//! Modules that ignore statuses: a refused call must not let a request pass, and is logged.

use std::cell::RefCell;
use std::sync::Once;

use super::*;
use crate::{HostDialect, OnRefusal};

/// Calls that the host refuses for various reasons; the module ignores the status.
const REFUSED_CALLS: &[(&str, &str)] = &[
    ("target", "$http_call «nobody» ‹:method GET|:path /|:authority a› «» ‹› (i32.const 9) (i32.const 16)"),
    ("no target", "$http_call «» ‹:method GET|:path /|:authority a› «» ‹› (i32.const 9) (i32.const 16)"),
    ("method", "$http_call «auth» ‹:method G T|:path /|:authority a› «» ‹› (i32.const 9) (i32.const 16)"),
    ("path", "$http_call «auth» ‹:method GET|:path /a b|:authority a› «» ‹› (i32.const 9) (i32.const 16)"),
    (
        "authority",
        "$http_call «auth» ‹:method GET|:path /|:authority a@b› «» ‹› (i32.const 9) (i32.const 16)",
    ),
    ("header", "$http_call «auth» ‹:method GET|:path /|x y z› «» ‹bad\nname 1› (i32.const 9) (i32.const 16)"),
    ("timeout", "$http_call «auth» ‹:method GET|:path /|:authority a› «» ‹› (i32.const -1) (i32.const 16)"),
    ("list", "$http_call «auth» «\u{1}\u{1}\u{1}\u{1}\u{1}» «» ‹› (i32.const 9) (i32.const 16)"),
    ("upstream", "$http_call (i32.const -9) (i32.const 64) ‹› «» ‹› (i32.const 9) (i32.const 16)"),
    ("headers", "$http_call «auth» (i32.const -9) (i32.const 64) «» ‹› (i32.const 9) (i32.const 16)"),
    ("body", "$http_call «auth» ‹› (i32.const 0) (i32.const 200000) ‹› (i32.const 9) (i32.const 16)"),
    ("trailers", "$http_call «auth» ‹› «» (i32.const -9) (i32.const 64) (i32.const 9) (i32.const 16)"),
    ("number", "$http_call «auth» ‹› «» ‹› (i32.const 9) (i32.const -2)"),
    ("grpc target", "$grpc_call «nobody» «s» «yes» ‹› «ping» (i32.const 9) (i32.const 16)"),
    ("grpc method", "$grpc_call «auth» «s» «y s» ‹› «ping» (i32.const 9) (i32.const 16)"),
    (
        "grpc message",
        "$grpc_call «auth» «s» «yes» ‹› (i32.const 0) (i32.const 200000) (i32.const 9) (i32.const 16)",
    ),
    ("grpc metadata", "$grpc_call «auth» «s» «yes» ‹bad\nname 1› «ping» (i32.const 9) (i32.const 16)"),
    ("grpc stream", "$grpc_stream «nobody» «s» «chat» ‹› (i32.const 16)"),
    // A local response that denies the request.
    ("status", "$respond (i32.const 99) «» «no» ‹› (i32.const -1)"),
    ("answer's header", "$respond (i32.const 403) «» «no» ‹x-why a\nb› (i32.const -1)"),
    ("answer's body", "$respond (i32.const 403) «» (i32.const -9) (i32.const 64) ‹› (i32.const -1)"),
];

fn careless_module(call: &str) -> String {
    format!(
        "(func (export \"proxy_on_request_headers\") (param i32 i32 i32) (result i32)
            (drop (call {call})) (i32.const 0))"
    )
}

#[tokio::test]
async fn refused_calls_and_local_responses_block_the_request() {
    for dialect in [HostDialect::Lenient, HostDialect::Strict] {
        for (name, call) in REFUSED_CALLS {
            let bench = FilterFixture::new();
            let mut filter = bench.filter("auth", &careless_module(call));
            filter.dialect = dialect;
            filter.limits.buffer = services::BytesConfig(100_000);
            let chain = bench.chain(&[filter.clone()]);
            assert_eq!(
                send(&chain, get("/")).await.unwrap_err(),
                FilterFailure::Refused("auth".into()),
                "{name}"
            );
            assert!(bench.test_service.requests.lock().unwrap().is_empty(), "{name}");
            filter.on_refusal = OnRefusal::Open;
            assert_eq!(send(&bench.chain(&[filter]), get("/")).await.unwrap().status, 200, "{name}");
        }
    }
}

#[tokio::test]
async fn exhausted_calls_block_the_request() {
    let bench = FilterFixture::new();
    let call = "(drop (call $http_call «auth» ‹:path /yes› «» ‹› (i32.const 5000) (i32.const 16)))";
    let code = format!(
        "(func (export \"proxy_on_request_headers\") (param i32 i32 i32) (result i32) {call} {call} (i32.const 0))"
    );
    let mut filter = bench.filter("auth", &code);
    filter.limits.calls = 1;
    assert_eq!(
        send(&bench.chain(&[filter]), get("/")).await.unwrap_err(),
        FilterFailure::Refused("auth".into())
    );
}

/// A call that the host permits.
const ALLOWED: &str = "(call $want (i32.const 0) (call $http_call «auth»
    ‹:method GET|:path /yes|:authority a› «» ‹› (i32.const 5000) (i32.const 16)))";
/// A call that the host refuses.
const REFUSED: &str = "(drop (call $http_call «nobody» ‹:method GET|:path /|:authority a› «» ‹›
    (i32.const 9) (i32.const 16)))";
const DENIES: &str = "(drop (call $respond (i32.const 401) «» «» ‹› (i32.const -1)))";
/// Makes the context of the request the effective one.
const EFFECTIVE: &str = "(call $want (i32.const 0) (call $effective (global.get $id)))";
const RESUMES: &str = "(drop (call $continue (i32.const 0)))";

/// A module that makes calls in a callback of the request, returns `action`, and runs `then` in the callback
/// of each call. `$answers` is the number of these callbacks.
fn calling_module(part: &str, calls: &str, action: u32, then: &str) -> String {
    format!(
        "(global $id (mut i32) (i32.const 0))
        (global $answers (mut i32) (i32.const 0))
        (func (export \"proxy_on_request_{part}\") (param $id i32) (param i32 i32) (result i32)
            (global.set $id (local.get $id)) {calls} (i32.const {action}))
        (func (export \"proxy_on_http_call_response\") (param i32 i32 i32 i32 i32)
            (global.set $answers (i32.add (global.get $answers) (i32.const 1)))
            {then})"
    )
}

fn refused_result<T>() -> Result<T, FilterFailure> {
    Err(FilterFailure::Refused("auth".into()))
}

/// Sends a request with a body through a filter, and returns the status of its response.
async fn status_through(bench: &FilterFixture, filter: &FilterConfig) -> Result<u16, FilterFailure> {
    let answer = send(&bench.chain(std::slice::from_ref(filter)), post("x")).await;
    answer.map(|answer| answer.status.as_u16())
}

#[tokio::test]
async fn refusals_in_the_callback_of_a_call_block_the_request_that_waits_for_it() {
    // Like modules of APISIX, the module returns CONTINUE, and the request waits for its call.
    for part in ["headers", "body"] {
        for (name, call) in REFUSED_CALLS {
            let bench = FilterFixture::new();
            let then = format!("{EFFECTIVE} (drop (call {call}))");
            let mut filter = bench.filter("auth", &calling_module(part, ALLOWED, 0, &then));
            filter.limits.buffer = services::BytesConfig(100_000);
            assert_eq!(status_through(&bench, &filter).await, refused_result(), "{part} {name}");
            assert_eq!(*bench.test_service.requests.lock().unwrap(), ["GET auth /yes"], "{part} {name}");
            filter.on_refusal = OnRefusal::Open;
            assert_eq!(status_through(&bench, &filter).await, Ok(200), "{part} {name}");
        }
    }
}

#[tokio::test]
async fn calls_that_are_used_up_in_the_callback_of_a_call_block_the_request() {
    let again = ALLOWED.replacen("(call $want (i32.const 0) ", "(drop ", 1);
    for part in ["headers", "body"] {
        let bench = FilterFixture::new();
        let mut filter =
            bench.filter("auth", &calling_module(part, ALLOWED, 0, &format!("{EFFECTIVE} {again}")));
        filter.limits.calls = 1;
        assert_eq!(status_through(&bench, &filter).await, refused_result(), "{part}");
    }
}

#[tokio::test]
async fn refusals_outlast_the_callbacks_of_other_calls() {
    let calls = format!("{ALLOWED} {ALLOWED}");
    let first = format!("{EFFECTIVE} (if (i32.eq (global.get $answers) (i32.const 1)) (then {REFUSED}))");
    let both = format!("{first} (if (i32.eq (global.get $answers) (i32.const 2)) (then {RESUMES}))");
    for (dialect, action, then) in [
        (HostDialect::Lenient, 0, &first),
        (HostDialect::Lenient, 0, &both),
        (HostDialect::Lenient, 1, &both),
        (HostDialect::Strict, 1, &both),
    ] {
        for part in ["headers", "body"] {
            let bench = FilterFixture::new();
            let mut filter = bench.filter("auth", &calling_module(part, &calls, action, then));
            filter.dialect = dialect;
            let status = status_through(&bench, &filter).await;
            assert_eq!(status, refused_result(), "{dialect:?} {action} {part} {then}");
        }
    }
}

#[tokio::test]
async fn calls_made_later_do_not_settle_a_refusal() {
    let calls = format!("{REFUSED} {ALLOWED}");
    let resumes = format!("{EFFECTIVE} {RESUMES}");
    for dialect in [HostDialect::Lenient, HostDialect::Strict] {
        for (action, then) in [(0, ""), (1, &*resumes)] {
            let bench = FilterFixture::new();
            let mut filter = bench.filter("auth", &calling_module("headers", &calls, action, then));
            filter.dialect = dialect;
            assert_eq!(status_through(&bench, &filter).await, refused_result(), "{dialect:?} {action}");
        }
    }
}

#[tokio::test]
async fn modules_can_answer_a_request_after_a_refusal() {
    let later = format!("{EFFECTIVE} {DENIES}");
    for (calls, action, then) in [
        (format!("{REFUSED} {DENIES}"), 0, ""),
        (format!("{REFUSED} {DENIES}"), 1, ""),
        // The request is held back until the callback of another call.
        (format!("{REFUSED} {ALLOWED}"), 1, &*later),
    ] {
        let bench = FilterFixture::new();
        let filter = bench.filter("auth", &calling_module("headers", &calls, action, then));
        assert_eq!(status_through(&bench, &filter).await, Ok(401), "{calls} {action}");
    }
}

#[tokio::test]
async fn refusals_in_response_callbacks_do_not_stop_the_rest_of_the_request() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(&format!(
        "(func (export \"proxy_on_request_body\") (param i32 i32 i32) (result i32) (i32.const 0))
        (func (export \"proxy_on_response_headers\") (param i32 i32 i32) (result i32) {REFUSED} (i32.const 0))"
    ));
    let request = Request::post("/").body(delayed_pieces_body("x", 3)).unwrap();
    let mirror = async |request: Request<StreamedServiceBody>| Response::new(request.into_body());
    let response = chain
        .run_http_exchange(request, call_with_timeout(Duration::from_secs(60)), exchange_info(), mirror)
        .await
        .unwrap();
    assert_eq!(collect_response(response).await.unwrap().body, "xxx");
    assert_eq!(bench.stats().refused_calls, 1);
}

#[tokio::test]
async fn local_responses_from_the_root_context_answer_the_request_that_made_the_call() {
    for (dialect, action) in [(HostDialect::Lenient, 0), (HostDialect::Lenient, 1), (HostDialect::Strict, 1)]
    {
        for (status, expected) in [("401", Ok(401)), ("99", refused_result())] {
            let bench = FilterFixture::new();
            // The callback of a call begins in the root context.
            let then = format!("{} {EFFECTIVE} {RESUMES}", DENIES.replace("401", status));
            let mut filter = bench.filter("auth", &calling_module("headers", ALLOWED, action, &then));
            filter.dialect = dialect;
            assert_eq!(status_through(&bench, &filter).await, expected, "{dialect:?} {action} {status}");
        }
    }
}

#[tokio::test]
async fn refused_calls_from_the_root_context_block_the_request_that_made_the_call() {
    let bench = FilterFixture::new();
    let filter = bench.filter("auth", &calling_module("headers", ALLOWED, 0, REFUSED));
    assert_eq!(status_through(&bench, &filter).await, refused_result());
}

#[tokio::test]
async fn local_responses_outside_of_every_request_are_refused() {
    let bench = FilterFixture::new();
    // The module accepts its configuration only if the status is BAD_ARGUMENT.
    let filter = bench.filter(
        "auth",
        r#"(func (export "proxy_on_configure") (param i32 i32) (result i32)
            (i32.eq (i32.const 2) (call $respond (i32.const 401) «» «» ‹› (i32.const -1))))"#,
    );
    assert_eq!(status_through(&bench, &filter).await, Ok(200));
}

#[tokio::test]
async fn refusals_block_every_way_of_resuming() {
    let refused = "(drop (call $http_call «nobody» ‹:path /› «» ‹› (i32.const 9) (i32.const 16)))";
    let resumes = "(drop (call $continue (i32.const 0)))";
    let cases = [
        format!(
            "(func (export \"proxy_on_request_headers\") (param i32 i32 i32) (result i32) {refused} {resumes} (i32.const 1))"
        ),
        format!(
            "(func (export \"proxy_on_request_headers\") (param i32 i32 i32) (result i32) (i32.const 0))
            (func (export \"proxy_on_request_body\") (param i32 i32 i32) (result i32) {refused} (i32.const 0))"
        ),
        // In the callback for the response of an earlier call.
        format!(
            "(global $id (mut i32) (i32.const 0))
            (func (export \"proxy_on_request_headers\") (param $id i32) (param i32 i32) (result i32)
                (global.set $id (local.get $id))
                (drop (call $http_call «auth» ‹:path /yes› «» ‹› (i32.const 5000) (i32.const 16))) (i32.const 1))
            (func (export \"proxy_on_http_call_response\") (param i32 i32 i32 i32 i32)
                (drop (call $effective (global.get $id))) {refused} {resumes})"
        ),
    ];
    for code in cases {
        let bench = FilterFixture::new();
        assert_eq!(
            send(&bench.single_filter_chain(&code), post("x")).await.unwrap_err(),
            FilterFailure::Refused("test".into()),
            "{code}"
        );
    }
}

#[tokio::test]
async fn lenient_calls_use_the_defaults_of_nginx() {
    let bench = FilterFixture::new();
    let code = r#"
        (global $id (mut i32) (i32.const 0))
        (func (export "proxy_on_request_headers") (param $id i32) (param i32 i32) (result i32)
            (global.set $id (local.get $id))
            (drop (call $http_call «UPSTREAM» ‹HEADERS› «» ‹› (i32.const 0) (i32.const 16)))
            (i32.const 0))
        (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
            (call $want (i32.const 0) (call $effective (global.get $id)))
            (call $want (i32.const 0) (call $get (i32.const 6) «x-called» (i32.const 0) (i32.const 4)))
            (call $text (i32.const 0) «x-called»)
            (call $want (i32.const 0) (call $get (i32.const 6) «:status» (i32.const 0) (i32.const 4)))
            (if (i32.eq (i32.load8_u (i32.load (i32.const 0))) (i32.const 0x34)) (then
                (drop (call $respond (i32.const 401) «» «denied» ‹› (i32.const -1))))))"#;
    for (upstream, headers, asked, called, status) in [
        // The headers that APISIX's forward-auth sends.
        ("127.0.0.1:1980", ":path /no|:scheme http|x-forwarded-uri /a", "GET auth /no", "", 401),
        ("auth", "", "GET auth /", "auth", 200),
        ("auth", "accept */*", "GET auth /", "auth", 200),
        ("auth", ":method |:path |:authority ", "GET auth /", "auth", 200),
        ("auth", ":method POST|:path yes?a=1", "POST auth /yes", "auth", 200),
        ("127.0.0.1:1980", ":path /yes", "GET auth /yes", "127.0.0.1:1980", 200),
        ("outbound|80||auth", ":path /yes", "GET auth /yes", "auth", 200),
        ("auth", ":path /yes|:authority other.example", "GET auth /yes", "other.example", 200),
    ] {
        let chain =
            bench.single_filter_chain(&code.replace("UPSTREAM", upstream).replace("HEADERS", headers));
        let answer = send(&chain, get("/")).await.unwrap();
        assert_eq!(answer.status, status, "{upstream} {headers}");
        assert_eq!(
            bench.test_service.requests.lock().unwrap().pop().as_deref(),
            Some(asked),
            "{upstream} {headers}"
        );
        if status == 200 {
            assert_eq!(answer.header("got-x-called"), called, "{upstream} {headers}");
        }
    }
}

#[tokio::test]
async fn strict_calls_require_a_complete_head() {
    for headers in [":path /yes|:authority a", ":method GET|:authority a", ":method GET|:path /yes"] {
        let bench = FilterFixture::new();
        let call = format!("$http_call «auth» ‹{headers}› «» ‹› (i32.const 9) (i32.const 16)");
        let mut filter = bench.filter("auth", &careless_module(&call));
        filter.dialect = HostDialect::Strict;
        assert_eq!(
            send(&bench.chain(&[filter]), get("/")).await.unwrap_err(),
            FilterFailure::Refused("auth".into())
        );
    }
}

thread_local! {
    static WARNINGS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// A subscriber that records lines at `warn` per test thread. It is installed once for all tests, since
/// callsites cache their interest for the whole process.
struct WarningRecorder;

/// A line under construction.
struct WarningLine(String);

/// Installs the subscriber, once for all tests.
pub(super) fn install_recorder() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| tracing::subscriber::set_global_default(WarningRecorder).unwrap());
}

fn warnings() -> Vec<String> {
    WARNINGS.take()
}

impl tracing::field::Visit for WarningLine {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!("{field}={value:?} "));
    }
}

impl tracing::Subscriber for WarningRecorder {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN && metadata.target() == "filter"
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = WarningLine(String::new());
        event.record(&mut line);
        WARNINGS.with_borrow_mut(|lines| lines.push(line.0));
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test]
async fn a_refused_call_is_counted_and_logged_at_intervals() {
    let bench = FilterFixture::new();
    let call = "$http_call «nobody:80» ‹:path /› «» ‹› (i32.const 9) (i32.const 16)";
    let chain = bench.chain(&[bench.filter("auth", &careless_module(call))]);
    let began = std::time::Instant::now();
    for _ in 0..100 {
        assert_eq!(send(&chain, get("/")).await.unwrap_err(), FilterFailure::Refused("auth".into()));
    }
    let lines = warnings();
    // One line per interval that the test took.
    let most = 1 + began.elapsed().as_secs() / 10;
    assert!((1..=most).contains(&(lines.len() as u64)), "{lines:?}");
    for part in ["filter=\"auth\"", "upstream=\"nobody:80\"", "neither a service nor a host"] {
        assert!(lines[0].contains(part), "{part}: {lines:?}");
    }
    assert_eq!((bench.stats().refused_calls, bench.stats().failed_requests), (100, 100));
}

#[tokio::test(start_paused = true)]
async fn calls_that_fail_are_logged_with_their_target_and_reason() {
    for (path, buffer, reason) in [
        ("/wait", 1000, "a call failed: it took longer than its timeout of 50ms"),
        ("/longer", 5, "a call failed: its response is larger than the filter's `limits.buffer`"),
    ] {
        let bench = FilterFixture::new();
        let call = ALLOWED.replace("/yes", path).replace("5000", "50");
        let mut filter = bench.filter("auth", &calling_module("headers", &call, 0, ""));
        filter.limits.buffer = services::BytesConfig(buffer);
        assert_eq!(status_through(&bench, &filter).await, Ok(200));
        let lines = warnings();
        assert_eq!(lines.len(), 1, "{lines:?}");
        for part in ["filter=\"auth\"", "upstream=\"auth\"", reason] {
            assert!(lines[0].contains(part), "{part}: {lines:?}");
        }
    }
}

#[tokio::test]
async fn other_refusals_are_logged_once_for_each_function_and_status() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(
        r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (drop (call $add (i32.const 0) «bad name» «1»))
            (drop (call $add (i32.const 0) «bad again» «1»))
            (drop (call $replace (i32.const 9) «a» «1»))
            (drop (call $pairs (i32.const 0) (i32.const -9) (i32.const -9)))
            (drop (call $property «node\0id» (i32.const 0) (i32.const 4)))
            (drop (call $set_data «k» «1» (i32.const 0)))
            (drop (call $set_data «k» «2» (i32.const 77)))
            (drop (call $define (i32.const 9) «m» (i32.const 0)))
            (drop (call $set_buffer (i32.const 0) (i32.const 0) (i32.const 0) «x»))
            (drop (call $get (i32.const 0) «x-none» (i32.const 0) (i32.const 4)))
            (i32.const 0))"#,
    );
    for _ in 0..3 {
        assert_eq!(send(&chain, get("/")).await.unwrap().status, 200);
    }
    let mut lines: Vec<_> = warnings()
        .iter()
        .filter_map(|line| {
            let function = line.split("function=\"proxy_").nth(1)?.split('"').next()?;
            Some(format!("{function} {}", line.split("status=\"").nth(1)?.split('"').next()?))
        })
        .collect();
    lines.sort();
    assert_eq!(
        lines,
        [
            "add_header_map_value BAD_ARGUMENT",
            "define_metric BAD_ARGUMENT",
            "get_header_map_pairs INVALID_MEMORY_ACCESS",
            "get_property NOT_FOUND",
            "replace_header_map_value BAD_ARGUMENT",
            "set_buffer_bytes BAD_ARGUMENT",
            "set_shared_data CAS_MISMATCH",
        ]
    );
    assert_eq!(bench.stats().hostcall_errors, 3 * 8);
}
