//! Faulty modules. The client always gets a response, and other requests are unaffected.

use super::*;
use crate::OnTrap;

/// Every callback of an exchange, in order, as a correct module implements them.
const CALLBACKS: &[(&str, &str, &str)] = &[
    ("proxy_on_context_create", "(param i32 i32)", ""),
    ("proxy_on_request_headers", "(param i32 i32 i32) (result i32)", "(i32.const 0)"),
    ("proxy_on_request_body", "(param i32 i32 i32) (result i32)", "(i32.const 0)"),
    ("proxy_on_request_trailers", "(param i32 i32) (result i32)", "(i32.const 0)"),
    ("proxy_on_response_headers", "(param i32 i32 i32) (result i32)", "(i32.const 0)"),
    ("proxy_on_response_body", "(param i32 i32 i32) (result i32)", "(i32.const 0)"),
    ("proxy_on_response_trailers", "(param i32 i32) (result i32)", "(i32.const 0)"),
    ("proxy_on_done", "(param i32) (result i32)", "(i32.const 1)"),
    ("proxy_on_log", "(param i32)", ""),
    ("proxy_on_delete", "(param i32)", ""),
];

/// A module with all callbacks. One of them runs `deed` for requests with a path that begins with `/b`.
fn faulty_module(callback: &str, deed: &str) -> String {
    let mut code = "(global $bad (mut i32) (i32.const 0))".to_owned();
    for (name, signature, result) in CALLBACKS {
        let deed = if *name == callback {
            format!(
                "(if (i32.eqz (call $property «request\\0path» (i32.const 0) (i32.const 4))) (then
                    (if (i32.eq (i32.load8_u offset=1 (i32.load (i32.const 0))) (i32.const 0x62)) (then {deed}))))"
            )
        } else {
            String::new()
        };
        code.push_str(&format!("(func (export \"{name}\") {signature} {deed} {result})\n"));
    }
    code
}

fn request_with_trailers(path: &str) -> Request<StreamedServiceBody> {
    let mut trailers = http::HeaderMap::new();
    trailers.insert("x-sum", "7".parse().unwrap());
    let body =
        piecewise_body(&["one", "two"]).with_trailers(std::future::ready(Some(Ok(trailers)))).boxed_unsync();
    Request::post(path).header("host", "example.org").body(body).unwrap()
}

/// Responds with the request's body and trailers.
async fn mirror(request: Request<StreamedServiceBody>) -> Response<StreamedServiceBody> {
    Response::new(request.into_body())
}

async fn send_through(chain: &Arc<FilterChain>, path: &str) -> Result<Bytes, String> {
    let response = chain
        .run_http_exchange(request_with_trailers(path), RequestCall::unlimited(), exchange_info(), mirror)
        .await;
    let response = response.map_err(|failed| services::ToProblem::code(&failed).to_owned())?;
    collect_response(response).await.map(|answer| answer.body).map_err(|_| "broken".to_owned())
}

#[tokio::test]
async fn a_trap_in_any_callback_fails_at_most_one_request() {
    for (name, ..) in CALLBACKS {
        for on_trap in [OnTrap::Closed, OnTrap::Open] {
            let bench = FilterFixture::new();
            let mut filter = bench.filter("bad", &faulty_module(name, "unreachable"));
            filter.on_trap = on_trap;
            let chain = bench.chain(&[filter]);
            let result = send_through(&chain, "/bad").await;
            let ends = ["proxy_on_done", "proxy_on_log", "proxy_on_delete"].contains(name);
            match (on_trap, &result) {
                (OnTrap::Open, Ok(body)) => assert_eq!(body, "onetwo", "{name}"),
                (OnTrap::Closed, Ok(body)) if ends => assert_eq!(body, "onetwo", "{name}"),
                (OnTrap::Closed, Err(code)) if !ends => {
                    let late = name.contains("request_body")
                        || name.contains("_trailers")
                        || name.contains("response_body");
                    assert!(code == "filter-failed" || (late && code == "broken"), "{name}: {code}");
                }
                _ => panic!("{name} {on_trap:?}: {result:?}"),
            }
            // The end of a stream may come later than the response.
            bench.wait_until(|bench| bench.stats().traps == 1).await;
            // The next request finds a new instance.
            assert_eq!(send_through(&chain, "/good").await.as_deref(), Ok(&b"onetwo"[..]), "{name}");
        }
    }
}

#[tokio::test]
async fn limits_end_endless_loops_and_memory_growth() {
    let grows = "(loop $more (if (i32.eq (memory.grow (i32.const 16)) (i32.const -1)) (then unreachable)) (br $more))";
    for deed in ["(loop $for_ever (br $for_ever))", grows, "(call $want (i32.const 1) (i32.const 0))"] {
        let bench = FilterFixture::new();
        let mut filter = bench.filter("bad", &faulty_module("proxy_on_request_headers", deed));
        filter.limits.memory = services::BytesConfig(4 << 20);
        let chain = bench.chain(&[filter]);
        assert_eq!(send_through(&chain, "/bad").await, Err("filter-failed".to_owned()), "{deed}");
        assert_eq!(send_through(&chain, "/good").await.as_deref(), Ok(&b"onetwo"[..]), "{deed}");
    }
}

#[tokio::test]
async fn pointers_outside_of_memory_are_refused() {
    let bench = FilterFixture::new();
    let out = "(i32.const 0x7ffffff0) (i32.const 64)";
    let wrap = "(i32.const 0xffffffff) (i32.const 0xffffffff)";
    let places = [out, wrap].map(|span| {
        format!(
            "(call $want (i32.const 6) (call $add (i32.const 0) {span} «v»))
            (call $want (i32.const 6) (call $add (i32.const 0) «k» {span}))
            (call $want (i32.const 6) (call $get (i32.const 0) {span} (i32.const 0) (i32.const 4)))
            (call $want (i32.const 6) (call $get (i32.const 0) «:path» {span}))
            (call $want (i32.const 6) (call $pairs (i32.const 0) {span}))
            (call $want (i32.const 6) (call $set_pairs (i32.const 0) {span}))
            (call $want (i32.const 6) (call $log (i32.const 2) {span}))
            (call $want (i32.const 6) (call $property {span} (i32.const 0) (i32.const 4)))
            (call $want (i32.const 6) (call $set_property {span} «v»))
            (call $want (i32.const 6) (call $respond (i32.const 200) {span} «» ‹› (i32.const -1)))
            (call $want (i32.const 6) (call $respond (i32.const 200) «» {span} ‹› (i32.const -1)))
            (call $want (i32.const 6) (call $respond (i32.const 200) «» «» {span} (i32.const -1)))
            (call $want (i32.const 6) (call $set_data {span} «v» (i32.const 0)))
            (call $want (i32.const 6) (call $define (i32.const 0) {span} (i32.const 0)))
            (call $want (i32.const 6) (call $http_call {span} ‹› «» ‹› (i32.const 9) (i32.const 0)))
            (call $want (i32.const 6) (call $foreign {span} «» (i32.const 0) (i32.const 4)))"
        )
    });
    let code = format!(
        "(func (export \"proxy_on_request_headers\") (param i32 i32 i32) (result i32) {} {}
            (call $want (i32.const 2) (call $respond (i32.const 99) «» «» ‹› (i32.const -1)))
            (i32.const 0))",
        places[0], places[1]
    );
    let mut filter = bench.filter("test", &code);
    filter.on_refusal = crate::OnRefusal::Open;
    let chain = bench.chain(&[filter]);
    let answer = send(&chain, get("/")).await.unwrap();
    assert_eq!(answer.header("got-k"), "");
}

#[tokio::test]
async fn faulty_allocators_fail_their_module_only() {
    for (malloc, wanted) in [
        ("unreachable", Err("filter-failed")),
        ("(i32.const 0x7fffffff)", Ok(6)),
        ("(i32.const 0)", Ok(6)),
        // An allocator that calls a host function that allocates.
        (
            "(drop (call $get (i32.const 0) (i32.const 8) (i32.const 1) (i32.const 0) (i32.const 4))) (i32.const 64)",
            Ok(0),
        ),
    ] {
        let bench = FilterFixture::new();
        let status = wanted.unwrap_or(0);
        let text = format!(
            "(module
            (import \"env\" \"proxy_get_header_map_value\"
                (func $get (param i32 i32 i32 i32 i32) (result i32)))
            (memory (export \"memory\") 1)
            (data (i32.const 8) \"x-a\")
            (func (export \"proxy_abi_version_0_2_0\"))
            (func (export \"malloc\") (param i32) (result i32) {malloc})
            (func (export \"proxy_on_request_headers\") (param i32 i32 i32) (result i32)
                (if (i32.ne (i32.const {status})
                        (call $get (i32.const 0) (i32.const 8) (i32.const 3) (i32.const 0) (i32.const 4)))
                    (then unreachable))
                (i32.const 0)))"
        );
        bench.write_module("bad.wasm", &wat::parse_str(text).unwrap());
        let chain = bench.chain(&[FilterConfig::from_module("bad.wasm")]);
        let result = send(&chain, get("/")).await;
        let result = result.map(|_| status).map_err(|failed| services::ToProblem::code(&failed));
        assert_eq!(result, wanted, "{malloc}");
    }
}

#[tokio::test]
async fn a_trap_fails_waiting_requests_of_the_same_instance() {
    let bench = FilterFixture::new();
    let code = r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (drop (call $property «request\0path» (i32.const 0) (i32.const 4)))
            (if (i32.eq (i32.load8_u offset=1 (i32.load (i32.const 0))) (i32.const 0x62)) (then unreachable))
            (i32.const 1))"#;
    for on_trap in [OnTrap::Closed, OnTrap::Open] {
        let mut filter = bench.filter("shared", code);
        filter.on_trap = on_trap;
        let chain = bench.chain(&[filter]);
        let mut waiting = Box::pin(send(&chain, get("/waits")));
        assert!((&mut waiting).now_or_never().is_none());
        let bad = send(&chain, get("/bad")).await;
        let waited = waiting.await;
        match on_trap {
            OnTrap::Closed => assert_eq!(bad.unwrap_err(), FilterFailure::Trapped("shared".into())),
            OnTrap::Open => assert_eq!(bad.unwrap().status, StatusCode::OK),
        }
        assert_eq!(
            waited.unwrap_err(),
            FilterFailure::Trapped("shared".into()),
            "the request must not pass unfiltered"
        );
    }
}

#[tokio::test]
async fn a_trap_in_a_callback_for_a_waiting_request_fails_it() {
    let callbacks = [
        (
            "http_call_response",
            "(param i32 i32 i32 i32 i32)",
            "$http_call «auth» ‹:method GET|:path /yes|:authority a› «» ‹›
            (i32.const 5000)",
        ),
        ("grpc_receive", "(param i32 i32 i32)", "$grpc_call «auth» «s» «yes» ‹› «ping» (i32.const 5000)"),
        ("grpc_close", "(param i32 i32 i32)", "$grpc_call «auth» «s» «no» ‹› «ping» (i32.const 5000)"),
        ("grpc_receive_initial_metadata", "(param i32 i32 i32)", "$grpc_stream «auth» «s» «no» ‹›"),
        ("queue_ready", "(param i32 i32)", ""),
        ("tick", "(param i32)", ""),
    ];
    for (name, parameters, call) in callbacks {
        let bench = FilterFixture::new();
        let deed = match name {
            "tick" => "(call $want (i32.const 0) (call $tick (i32.const 1)))".to_owned(),
            "queue_ready" => "(call $want (i32.const 0) (call $register «q» (i32.const 16)))
                (call $want (i32.const 0) (call $enqueue (i32.load (i32.const 16)) «x»))"
                .to_owned(),
            _ => format!("(call $want (i32.const 0) (call {call} (i32.const 16)))"),
        };
        let name =
            if name == "grpc_receive_initial_metadata" { "grpc_receive_trailing_metadata" } else { name };
        let chain = bench.single_filter_chain(&format!(
            "(func (export \"proxy_on_{name}\") {parameters} unreachable)
            (func (export \"proxy_on_request_headers\") (param i32 i32 i32) (result i32) {deed} (i32.const 1))"
        ));
        chain.start();
        assert_eq!(
            send(&chain, get("/")).await.unwrap_err(),
            FilterFailure::Trapped("test".into()),
            "{name}"
        );
        assert_eq!(bench.stats().traps, 1, "{name}");
    }
}

#[tokio::test]
async fn responses_do_not_pass_callbacks_that_panic() {
    for callback in ["headers", "body"] {
        let bench = FilterFixture::new();
        let chain = bench.single_filter_chain(&format!(
            "(func (export \"proxy_on_response_{callback}\") (param i32 i32 i32) (result i32)
                (call $want (i32.const 0) (call $log (i32.const 2) «panic»)) (i32.const 0))"
        ));
        // A panic in a callback that waits for the instance ends the callback's task only.
        let occupied = Arc::clone(&chain);
        let handle = async move |_: Request<StreamedServiceBody>| {
            if callback == "headers" {
                occupy(&occupied);
                return Response::new(body::full("body"));
            }
            let frames = futures_util::stream::once(async move {
                occupy(&occupied);
                Ok::<_, services::body::BodyError>(http_body::Frame::data(Bytes::from_static(b"body")))
            });
            Response::new(http_body_util::StreamBody::new(frames).boxed_unsync())
        };
        let ended = chain
            .run_http_exchange(get("/"), call_with_timeout(Duration::from_secs(60)), exchange_info(), handle)
            .await;
        let failed = ended.map(|response| response.status()).unwrap_err();
        assert_eq!(failed, FilterFailure::Trapped("test".into()), "{callback}");
    }
}

#[tokio::test]
async fn held_bodies_keep_their_filter_across_reloads() {
    let bench = FilterFixture::new();
    let code = |mark: &str| {
        format!(
            "(func (export \"proxy_on_request_body\") (param i32 i32) (param $end i32) (result i32)
                (if (i32.eqz (local.get $end)) (then (return (i32.const 1))))
                (call $want (i32.const 0) (call $add (i32.const 0) «x-by» «{mark}»))
                (i32.const 0))"
        )
    };
    let (mut sender, body) = http_body_util::channel::Channel::<Bytes, services::body::BodyError>::new(4);
    let request = Request::post("/").body(body.boxed_unsync()).unwrap();
    let before = bench.single_filter_chain(&code("before"));
    let held = {
        let before = Arc::clone(&before);
        tokio::spawn(async move { send(&before, request).await.unwrap() })
    };
    sender.send_data(Bytes::from_static(b"one ")).await.unwrap();
    while bench.stats().requests == 0 {
        tokio::task::yield_now().await;
    }
    // The reload: new requests use another chain, and only a request in flight keeps the old one.
    let after = bench.single_filter_chain(&code("after"));
    drop(before);
    assert_eq!(send(&after, post("x")).await.unwrap().header("got-x-by"), "after");
    sender.send_data(Bytes::from_static(b"two")).await.unwrap();
    drop(sender);
    let answer = held.await.unwrap();
    assert_eq!((answer.header("got-x-by"), &answer.body[..]), ("before", &b"one two"[..]));
}

#[tokio::test(start_paused = true)]
async fn filters_that_fail_to_restart_are_not_retried_automatically() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(
        r#"
        (func (export "proxy_on_configure") (param i32 i32) (result i32)
            (call $want (i32.const 1) (call $get_data «k» (i32.const 0) (i32.const 4) (i32.const 8)))
            (call $want (i32.const 0) (call $set_data «k» «1» (i32.const 0)))
            (i32.const 1))
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) unreachable)"#,
    );
    chain.start();
    assert_eq!(send(&chain, get("/")).await.unwrap_err(), FilterFailure::Trapped("test".into()));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(bench.stats().traps, 2);
}

#[tokio::test]
async fn limits_properties_per_exchange() {
    let bench = FilterFixture::new();
    let code = r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (local $count i32) (local $status i32)
            (loop $more
                (i32.store8 (i32.const 65536) (i32.add (i32.const 0x61) (i32.and (local.get $count) (i32.const 15))))
                (i32.store8 (i32.const 65537) (i32.add (i32.const 0x61) (i32.shr_u (local.get $count) (i32.const 4))))
                (local.set $status (call $set_property (i32.const 65536) (i32.const 2) «value»))
                (local.set $count (i32.add (local.get $count) (i32.const 1)))
                (br_if $more (i32.eqz (local.get $status))))
            (call $want (i32.const 10) (local.get $status))
            (call $want (i32.const 257) (local.get $count))
            (i32.const 0))"#;
    // The observer receives every call, which takes time.
    let mut filter = bench.filter("test", code);
    filter.limits.cpu = services::DurationConfig::from_millis(10_000);
    assert_eq!(send(&bench.chain(&[filter]), get("/")).await.unwrap().status, 200);
}

#[tokio::test]
async fn limits_number_of_headers() {
    let bench = FilterFixture::new();
    let code = r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (local $status i32)
            (loop $more
                (local.set $status (call $add (i32.const 0) «x-more» (i32.const 65536) (i32.const 1000)))
                (br_if $more (i32.eqz (local.get $status))))
            (call $want (i32.const 2) (local.get $status))
            (i32.const 0))
        (func (export "proxy_on_vm_start") (param i32 i32) (result i32)
            (memory.fill (i32.const 65536) (i32.const 0x61) (i32.const 1000))
            (i32.const 1))"#;
    // The observer receives every call, which takes time.
    let mut filter = bench.filter("test", code);
    filter.limits.cpu = services::DurationConfig::from_millis(10_000);
    let chain = bench.chain(&[filter]);
    let answer = send(&chain, get("/")).await.unwrap();
    assert_eq!(answer.headers.get_all("got-x-more").iter().count(), 1022);
}

#[tokio::test]
async fn closes_stream_on_request_of_the_module() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(
        r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (call $want (i32.const 0) (call $close (i32.const 0)))
            (call $want (i32.const 0) (call $continue (i32.const 0)))
            (call $want (i32.const 0) (call $add (i32.const 0) «x-on» «1»))
            (i32.const 0))"#,
    );
    assert_eq!(send(&chain, get("/")).await.unwrap_err(), FilterFailure::Closed("test".into()));
}

#[tokio::test]
async fn cancelled_requests_end_their_streams() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) (i32.const 1))
        (func (export "proxy_on_log") (param i32) (call $want (i32.const 0) (call $log (i32.const 2) «logged»)))"#);
    let mut waiting = Box::pin(send(&chain, get("/")));
    assert!((&mut waiting).now_or_never().is_none());
    drop(waiting);
    bench.wait_until(|bench| bench.take_events().contains(&"log logged".to_owned())).await;
}

#[tokio::test]
async fn lingering_streams_end_before_their_root_context() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(r#"
        (func (export "proxy_on_done") (param i32) (result i32) (i32.const 0))
        (func (export "proxy_on_log") (param i32) (call $want (i32.const 0) (call $log (i32.const 2) «logged»)))
        (func (export "proxy_on_delete") (param i32))"#);
    send(&chain, get("/")).await.unwrap();
    bench.take_events();
    drop(chain);
    let ends = Mutex::new(Vec::new());
    let is_over = |bench: &FilterFixture| {
        let mut ends = ends.lock().unwrap();
        ends.extend(bench.take_events().into_iter().filter(|words| words.starts_with("proxy_on_")));
        ends.len() == 4
    };
    bench.wait_until(is_over).await;
    assert_eq!(
        *ends.lock().unwrap(),
        ["proxy_on_log", "proxy_on_delete", "proxy_on_done", "proxy_on_delete"]
    );
}

#[tokio::test]
async fn lingering_streams_end_on_proxy_done() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(r#"
        (global $last (mut i32) (i32.const 0))
        (func (export "proxy_on_done") (param $id i32) (result i32)
            (global.set $last (local.get $id)) (i32.const 0))
        (func (export "proxy_on_request_headers") (param $id i32) (param i32 i32) (result i32)
            (if (global.get $last) (then
                (call $want (i32.const 0) (call $effective (global.get $last)))
                (call $want (i32.const 0) (call $done))
                (call $want (i32.const 1) (call $done))))
            (i32.const 0))
        (func (export "proxy_on_delete") (param i32) (call $want (i32.const 0) (call $log (i32.const 2) «deleted»)))"#);
    let deleted = |bench: &FilterFixture| bench.take_events().contains(&"log deleted".to_owned());
    send(&chain, get("/")).await.unwrap();
    assert!(!deleted(&bench));
    send(&chain, get("/")).await.unwrap();
    bench.wait_until(deleted).await;
}

#[tokio::test]
async fn ends_the_oldest_of_too_many_lingering_streams() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(
        r#"
        (global $first (mut i32) (i32.const 0))
        (func (export "proxy_on_done") (param $id i32) (result i32)
            (if (i32.eqz (global.get $first)) (then (global.set $first (local.get $id))))
            (i32.const 0))
        (func (export "proxy_on_delete") (param $id i32)
            (call $want (global.get $first) (local.get $id))
            (call $want (i32.const 0) (call $log (i32.const 2) «oldest deleted»)))"#,
    );
    let seen = Mutex::new(Vec::new());
    let count = |bench: &FilterFixture, words: &str| {
        let mut seen = seen.lock().unwrap();
        seen.extend(bench.take_events());
        seen.iter().filter(|seen| *seen == words).count()
    };
    let most = crate::vm::MAX_LINGERING;
    for _ in 0..most {
        send(&chain, get("/")).await.unwrap();
    }
    bench.wait_until(|bench| count(bench, "proxy_on_done") == most).await;
    assert_eq!(count(&bench, "log oldest deleted"), 0);
    send(&chain, get("/")).await.unwrap();
    bench.wait_until(|bench| count(bench, "log oldest deleted") + count(bench, "trapped") > 0).await;
    assert_eq!((count(&bench, "log oldest deleted"), count(&bench, "trapped")), (1, 0));
}
