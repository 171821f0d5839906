//! Bodies: shown in pieces, held back, changed, refused.

use handler::LoggedProblem;

use super::*;
use crate::HostDialect;

/// Holds a body back until its end, then replaces parts of it.
const REPLACING_MODULE: &str = r#"
    (func (export "proxy_on_SIDE_body") (param $id i32) (param $size i32) (param $end i32) (result i32)
        (if (i32.eqz (local.get $end)) (then (return (i32.const 1))))
        (call $want (i32.const 0) (call $buffer (i32.const MAP) (i32.const 0) (i32.const 0x7fffffff)
            (i32.const 0) (i32.const 4)))
        (if (i32.ne (local.get $size) (i32.load (i32.const 4))) (then unreachable))
        (call $want (i32.const 0) (call $set_buffer (i32.const MAP) (i32.const 0) (i32.const 2) «<»))
        (call $want (i32.const 0) (call $set_buffer (i32.const MAP) (i32.const 0x7fffffff) (i32.const 0) «>»))
        (call $want (i32.const 0) (call $set_buffer (i32.const MAP) (i32.const 0) (i32.const 0) «!»))
        (i32.const 0))"#;

fn replacing_module(side: &str, map: &str) -> String {
    REPLACING_MODULE.replace("SIDE", side).replace("MAP", map)
}

#[tokio::test]
async fn holds_back_and_replaces_request_body() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(&replacing_module("request", "0"));
    let request = Request::post("/").body(piecewise_body(&["one ", "two ", "three"])).unwrap();
    assert_eq!(send(&chain, request).await.unwrap().body, "!<e two three>");
}

#[tokio::test]
async fn changed_response_bodies_lose_their_content_length() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(&replacing_module("response", "1"));
    let handle = async |_| Response::builder().header("content-length", 5).body(body::full("hello")).unwrap();
    let response =
        chain.run_http_exchange(get("/"), RequestCall::unlimited(), exchange_info(), handle).await.unwrap();
    assert_eq!(http_body::Body::size_hint(response.body()).exact(), Some(6));
    let answer = collect_response(response).await.unwrap();
    assert_eq!((answer.header("content-length"), &answer.body[..]), ("", &b"!<llo>"[..]));
}

#[tokio::test]
async fn unchanged_bodies_keep_their_length() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(
        r#"
        (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32) (i32.const 0))
        (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32) (i32.const 0))"#,
    );
    let handle = async |request: Request<StreamedServiceBody>| {
        assert_eq!(http_body::Body::size_hint(request.body()).exact(), Some(4));
        Response::new(request.into_body())
    };
    let response = chain
        .run_http_exchange(post("four"), RequestCall::unlimited(), exchange_info(), handle)
        .await
        .unwrap();
    assert_eq!(http_body::Body::size_hint(response.body()).exact(), Some(4));
    assert_eq!(collect_response(response).await.unwrap().body, "four");
}

#[tokio::test]
async fn refuses_held_bodies_above_the_buffer_limit() {
    let bench = FilterFixture::new();
    for (side, status, code) in
        [("request", 413, "filter-request-too-large"), ("response", 502, "filter-response-too-large")]
    {
        for head in
            ["", "(func (export \"proxy_on_SIDE_headers\") (param i32 i32 i32) (result i32) (i32.const 1))"]
        {
            let short = if side == "request" { "req" } else { "resp" };
            let code_text = format!(
                "{} (func (export \"proxy_on_{side}_body\") (param i32 i32 i32) (result i32)
                    (call $want (i32.const 0) (call $set_property «wasm_process_{short}_body» «true»)) (i32.const 1))",
                head.replace("SIDE", side)
            );
            let mut filter = bench.filter("large", &code_text);
            filter.limits.buffer = services::BytesConfig(10);
            let chain = bench.chain(&[filter]);
            let handle = async |request: Request<StreamedServiceBody>| Response::new(request.into_body());
            let request = Request::post("/").body(piecewise_body(&["0123456789", "0"])).unwrap();
            let result =
                chain.run_http_exchange(request, RequestCall::unlimited(), exchange_info(), handle).await;
            let failed = result.map(drop).unwrap_err();
            assert_eq!(
                (services::ToProblem::status(&failed).as_u16(), services::ToProblem::code(&failed)),
                (status, code)
            );
        }
    }
}

#[tokio::test]
async fn responses_of_any_length_can_wait_for_a_call() {
    let bench = FilterFixture::new();
    let mut filter = bench.filter(
        "waits",
        r#"
        (global $id (mut i32) (i32.const 0))
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (call $want (i32.const 0) (call $set_property «wasm_process_req_body» «true»)) (i32.const 0))
        (func (export "proxy_on_response_headers") (param $id i32) (param i32 i32) (result i32)
            (global.set $id (local.get $id))
            (call $want (i32.const 0) (call $http_call «auth» ‹:method GET|:path /yes|:authority any›
                «» ‹› (i32.const 5000) (i32.const 16)))
            (i32.const 1))
        (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32) (i32.const 0))
        (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
            (call $want (i32.const 0) (call $effective (global.get $id)))
            (call $want (i32.const 0) (call $continue (i32.const 1))))"#,
    );
    filter.limits.buffer = services::BytesConfig(10);
    let handle = async |_| Response::new(piecewise_body(&["0123456789", "0123456789", "0123456789"]));
    let (chain, call) = (bench.chain(&[filter]), call_with_timeout(Duration::from_secs(60)));
    let response = chain.run_http_exchange(get("/"), call.clone(), exchange_info(), handle).await.unwrap();
    assert_eq!(collect_response(response).await.unwrap().body, "0123456789".repeat(3));
}

#[tokio::test]
async fn a_filter_can_refuse_a_body_while_another_holds_the_head() {
    let bench = FilterFixture::new();
    let refuses = bench.filter(
        "refuses",
        r#"
        (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
            (call $want (i32.const 0) (call $respond (i32.const 401) «» «no» ‹› (i32.const -1))) (i32.const 1))"#,
    );
    let holds = bench.filter(
        "holds",
        r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) (i32.const 1))
        (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32) (i32.const 1))"#,
    );
    let chain = bench.chain(&[refuses, holds]);
    assert_eq!(send(&chain, post("body")).await.unwrap().status, 401);
}

#[tokio::test]
async fn local_responses_keep_nothing_of_the_replaced_response() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(r#"
        (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32)
            (call $want (i32.const 0) (call $respond (i32.const 400) «» «no» ‹› (i32.const -1))) (i32.const 1))"#);
    let handle = async |_| HandlerResponse {
        held_bytes: 5,
        problem: Some(LoggedProblem::new("replaced")),
        ..Response::builder().header("x-from", "it").body(body::full("hello")).unwrap().into()
    };
    let request = HandlerRequest::new(get("/"), RequestCall::unlimited());
    let HandlerResponse { response, held_bytes, problem, .. } =
        chain.run_exchange(request, exchange_info(), handle).await.unwrap();
    assert_eq!((response.status().as_u16(), response.headers().len()), (400, 0));
    assert_eq!((held_bytes, problem), (0, None));
}

#[tokio::test(start_paused = true)]
async fn early_resume_does_not_release_a_later_response() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(
        r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (call $want (i32.const 0) (call $continue (i32.const 1))) (i32.const 0))
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32) (i32.const 1))"#,
    );
    assert_eq!(send(&chain, get("/")).await.unwrap_err(), FilterFailure::Paused("test".into()));
}

#[tokio::test]
async fn bodies_are_shown_while_the_head_is_held_back() {
    let bench = FilterFixture::new();
    for side in ["request", "response"] {
        let map = if side == "request" { "0" } else { "1" };
        let heads = if side == "request" { "0" } else { "2" };
        let code = r#"
            (func (export "proxy_on_SIDE_headers") (param i32 i32 i32) (result i32) (i32.const 1))
            (func (export "proxy_on_SIDE_body") (param $id i32) (param $size i32) (param $end i32) (result i32)
                (if (i32.eqz (local.get $end)) (then (return (i32.const 1))))
                (call $want (i32.const 0) (call $buffer (i32.const MAP) (i32.const 0) (i32.const 99)
                    (i32.const 0) (i32.const 4)))
                (call $text (i32.const HEADS) «x-body»)
                (i32.const 0))"#;
        let chain = bench
            .single_filter_chain(&code.replace("SIDE", side).replace("MAP", map).replace("HEADS", heads));
        let request = Request::post("/").body(piecewise_body(&["one ", "two"])).unwrap();
        let answer = send(&chain, request).await.unwrap();
        let name = if side == "request" { "got-x-body" } else { "x-body" };
        assert_eq!((answer.header(name), &answer.body[..]), ("one two", &b"one two"[..]), "{side}");
    }
}

#[tokio::test(start_paused = true)]
async fn body_callbacks_that_ignore_the_body_do_not_release_the_head() {
    // The module waits for something else, such as the response of a call. A callback that an SDK exports by
    // default must not count as consent.
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(
        r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) (i32.const 1))
        (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32) (i32.const 0))"#,
    );
    assert_eq!(send(&chain, post("body")).await.unwrap_err(), FilterFailure::Paused("test".into()));
}

#[tokio::test]
async fn heads_can_be_changed_after_the_body_has_arrived() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(
        r#"
        (func (export "proxy_on_request_body") (param $id i32) (param $size i32) (param $end i32) (result i32)
            (if (i32.eqz (local.get $end)) (then (return (i32.const 1))))
            (call $want (i32.const 0) (call $add (i32.const 0) «x-late» «1»))
            (i32.const 0))"#,
    );
    let request = Request::post("/").body(piecewise_body(&["one ", "two"])).unwrap();
    let answer = send(&chain, request).await.unwrap();
    assert_eq!((answer.header("got-x-late"), &answer.body[..]), ("1", &b"one two"[..]));
}

#[tokio::test]
async fn body_callbacks_can_send_local_responses() {
    let bench = FilterFixture::new();
    for side in ["request", "response"] {
        let chain = bench.single_filter_chain(&format!(
            "(func (export \"proxy_on_{side}_body\") (param i32 i32 i32) (result i32)
                (call $want (i32.const 0) (call $respond (i32.const 400) «» «no» ‹› (i32.const -1))) (i32.const 1))"
        ));
        let answer = send(&chain, post("body")).await.unwrap();
        assert_eq!((answer.status.as_u16(), &answer.body[..]), (400, &b"no"[..]), "{side}");
    }
}

#[tokio::test]
async fn pausing_again_after_a_resume_holds_the_body() {
    // Each piece is held back once and released by a tick.
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(
        r#"
        (global $id (mut i32) (i32.const 0))
        (func (export "proxy_on_configure") (param i32 i32) (result i32)
            (call $want (i32.const 0) (call $tick (i32.const 1))) (i32.const 1))
        (func (export "proxy_on_tick") (param i32)
            (if (global.get $id) (then
                (call $want (i32.const 0) (call $effective (global.get $id)))
                (call $want (i32.const 0) (call $continue (i32.const 0)))
                (call $want (i32.const 0) (call $continue (i32.const 0)))
                (global.set $id (i32.const 0)))))
        (func (export "proxy_on_request_headers") (param $id i32) (param i32 i32) (result i32)
            (global.set $id (local.get $id)) (i32.const 1))
        (func (export "proxy_on_request_body") (param $id i32) (param i32 i32) (result i32)
            (global.set $id (local.get $id)) (i32.const 1))"#,
    );
    chain.start();
    let request = Request::post("/").body(piecewise_body(&["one ", "two"])).unwrap();
    assert_eq!(send(&chain, request).await.unwrap().body, "one two");
}

/// Holds a body back until its end, then refuses it.
const REFUSES: &str = r#"
    (func (export "proxy_on_SIDE_body") (param i32 i32) (param $end i32) (result i32)
        (if (i32.eqz (local.get $end)) (then (return (i32.const 1))))
        (call $want (i32.const 0) (call $respond (i32.const 403) «» «no» ‹› (i32.const -1)))
        (i32.const 1))"#;
/// Holds a body back, even at its end.
const HOLDS: &str = r#"
    (func (export "proxy_on_SIDE_body") (param i32 i32 i32) (result i32) (i32.const 1))"#;
/// A trailers callback as SDKs export it by default.
const DEFAULT_TRAILERS: &str = r#"
    (func (export "proxy_on_SIDE_trailers") (param i32 i32) (result i32) (i32.const 0))"#;

/// Sends a body of `one` and these trailers through one filter in both directions.
async fn exchange_with_trailers(
    code: &str,
    dialect: HostDialect,
    trailers: &[(&'static str, &'static str)],
) -> (StatusCode, http_body_util::Collected<Bytes>) {
    let bench = FilterFixture::new();
    let mut filter = bench.filter("test", code);
    filter.dialect = dialect;
    let request = Request::post("/").body(with_trailers(piecewise_body(&["one"]), trailers)).unwrap();
    let mirror = async |request: Request<StreamedServiceBody>| Response::new(request.into_body());
    let response = bench.chain(&[filter]).run_http_exchange(
        request,
        call_with_timeout(Duration::from_secs(60)),
        exchange_info(),
        mirror,
    );
    let (head, body) = response.await.unwrap().into_parts();
    (head.status, body.collect().await.unwrap())
}

#[tokio::test]
async fn bodies_with_trailers_end_for_filters_without_trailers_callback() {
    for side in ["request", "response"] {
        for dialect in [HostDialect::Lenient, HostDialect::Strict] {
            for trailers in [&[("x-sum", "7")][..], &[]] {
                let code = REFUSES.replace("SIDE", side);
                let (status, _) = exchange_with_trailers(&code, dialect, trailers).await;
                assert_eq!(status, 403, "{side} {dialect:?} {trailers:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_default_callback_for_trailers_releases_a_held_body_in_the_strict_dialect_only() {
    for side in ["request", "response"] {
        for (dialect, expected) in [(HostDialect::Lenient, 403), (HostDialect::Strict, 200)] {
            let code = format!("{REFUSES}{DEFAULT_TRAILERS}").replace("SIDE", side);
            let (status, _) = exchange_with_trailers(&code, dialect, &[("x-sum", "7")]).await;
            assert_eq!(status, expected, "{side} {dialect:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn trailers_do_not_release_a_body_held_back_at_its_end() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(&format!("{HOLDS}{DEFAULT_TRAILERS}").replace("SIDE", "request"));
    let request =
        Request::post("/").body(with_trailers(piecewise_body(&["one"]), &[("x-sum", "7")])).unwrap();
    assert_eq!(send(&chain, request).await.unwrap_err(), FilterFailure::Paused("test".into()));
}

#[tokio::test]
async fn trailers_pass_filters_without_trailers_callback() {
    for side in ["request", "response"] {
        for dialect in [HostDialect::Lenient, HostDialect::Strict] {
            let code = r#"
                (func (export "proxy_on_SIDE_body") (param i32 i32) (param $end i32) (result i32)
                    (i32.eqz (local.get $end)))"#;
            let code = code.replace("SIDE", side);
            let (status, body) = exchange_with_trailers(&code, dialect, &[("x-sum", "7")]).await;
            let trailers = body.trailers().cloned().unwrap_or_default();
            assert_eq!(
                (status.as_u16(), trailers.get("x-sum").unwrap()),
                (200, &"7".parse().unwrap()),
                "{side}"
            );
            assert_eq!(body.to_bytes(), "one", "{side} {dialect:?}");
        }
    }
}

#[tokio::test]
async fn ignores_empty_trailers() {
    for side in ["request", "response"] {
        for dialect in [HostDialect::Lenient, HostDialect::Strict] {
            let code = r#"
                (func (export "proxy_on_SIDE_body") (param i32 i32) (param $end i32) (result i32)
                    (i32.eqz (local.get $end)))
                (func (export "proxy_on_SIDE_trailers") (param i32 i32) (result i32) unreachable)"#;
            let (status, body) = exchange_with_trailers(&code.replace("SIDE", side), dialect, &[]).await;
            assert_eq!((status.as_u16(), body.to_bytes()), (200, "one".into()), "{side} {dialect:?}");
        }
    }
}

#[tokio::test]
async fn trailers_are_seen_and_changed() {
    // In the lenient dialect, the body's end is shown before its trailers.
    for (dialect, holds) in
        [(HostDialect::Lenient, "(i32.eqz (local.get $end))"), (HostDialect::Strict, "(i32.const 1)")]
    {
        let bench = FilterFixture::new();
        let code = r#"
            (func (export "proxy_on_request_body") (param i32 i32) (param $end i32) (result i32) HOLDS)
            (func (export "proxy_on_request_trailers") (param i32 i32) (result i32)
                (call $want (i32.const 0) (call $get (i32.const 1) «x-sum» (i32.const 0) (i32.const 4)))
                (call $want (i32.const 0) (call $add (i32.const 1) «x-more» «1»))
                (i32.const 0))"#;
        let mut filter = bench.filter("test", &code.replace("HOLDS", holds));
        filter.dialect = dialect;
        let request =
            Request::post("/").body(with_trailers(piecewise_body(&["one"]), &[("x-sum", "7")])).unwrap();
        let answer = send(&bench.chain(&[filter]), request).await.unwrap();
        assert_eq!((answer.header("trailer-x-sum"), answer.header("trailer-x-more")), ("7", "1"));
        assert_eq!(answer.body, "one", "{dialect:?}");
        let callbacks = body_callbacks(&bench);
        assert_eq!(callbacks, if dialect == HostDialect::Lenient { 2 } else { 1 }, "{dialect:?}");
    }
}

/// The number of callbacks for the request's body.
fn body_callbacks(bench: &FilterFixture) -> usize {
    bench.take_events().iter().filter(|words| *words == "proxy_on_request_body").count()
}

#[tokio::test(start_paused = true)]
async fn small_pieces_are_shown_together() {
    let holds = r#"
        (func (export "proxy_on_request_body") (param i32 i32) (param $end i32) (result i32)
            (i32.eqz (local.get $end)))"#;
    let passes = r#"(func (export "proxy_on_request_body") (param i32 i32 i32) (result i32) (i32.const 0))"#;
    let ready: &'static [&'static str] = &["a"; 10_000];
    let hundred: &'static str = "0123456789".repeat(10).leak();
    for (code, body, length, most) in [
        (holds, piecewise_body(ready), 10_000, 1),
        (passes, piecewise_body(ready), 10_000, 1),
        // The first piece, and everything at the end.
        (holds, delayed_pieces_body("a", 10_000), 10_000, 2),
        // Once per growth by an eighth.
        (holds, delayed_pieces_body(hundred, 10_000), 1_000_000, 40),
    ] {
        let bench = FilterFixture::new();
        let answer =
            send(&bench.single_filter_chain(code), Request::post("/").body(body).unwrap()).await.unwrap();
        assert_eq!(answer.body.len(), length);
        let callbacks = body_callbacks(&bench);
        assert!((1..=most).contains(&callbacks), "{callbacks} callbacks for {length} bytes");
    }
}

#[tokio::test(start_paused = true)]
async fn shows_held_bodies_after_a_delay_despite_little_growth() {
    // The client waits for a response to its first six bytes.
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(
        r#"
        (func (export "proxy_on_request_body") (param $id i32) (param $size i32) (param $end i32) (result i32)
            (i32.and (i32.eqz (local.get $end)) (i32.lt_u (local.get $size) (i32.const 6))))"#,
    );
    let (mut sender, body) = http_body_util::channel::Channel::<Bytes, services::body::BodyError>::new(4);
    let request = Request::post("/").body(body.boxed_unsync()).unwrap();
    let mirror = async |request: Request<StreamedServiceBody>| Response::new(request.into_body());
    let asked =
        chain.run_http_exchange(request, call_with_timeout(Duration::from_secs(60)), exchange_info(), mirror);
    let sent = async {
        for piece in ["one", "two"] {
            sender.send_data(Bytes::from_static(piece.as_bytes())).await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    let (response, ()) = tokio::join!(asked, sent);
    let mut body = response.unwrap().into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "onetwo");
    drop(sender);
    assert!(body.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn resume_releases_only_pieces_that_were_shown() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(r#"
        (global $id (mut i32) (i32.const 0))
        (func (export "proxy_on_request_body") (param $id i32) (param i32 i32) (result i32)
            (if (global.get $id) (then
                (call $want (i32.const 0) (call $respond (i32.const 403) «» «no» ‹› (i32.const -1)))
                (return (i32.const 1))))
            (global.set $id (local.get $id))
            (call $want (i32.const 0) (call $http_call «auth» ‹:path /gate› «» ‹› (i32.const 50000) (i32.const 16)))
            (i32.const 1))
        (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
            (call $want (i32.const 0) (call $effective (global.get $id)))
            (call $want (i32.const 0) (call $continue (i32.const 0))))"#);
    let (mut sender, body) = http_body_util::channel::Channel::<Bytes, services::body::BodyError>::new(4);
    let request = Request::post("/").body(body.boxed_unsync()).unwrap();
    let asked = tokio::spawn(async move { send(&chain, request).await });
    sender.send_data(Bytes::from_static(b"one")).await.unwrap();
    bench.test_service.request_received.notified().await;
    sender.send_data(Bytes::from_static(b"two")).await.unwrap();
    // The piece is received, but not shown before the clock advances.
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
    bench.test_service.gate.notify_one();
    assert_eq!(asked.await.unwrap().unwrap().status, 403);
}

#[tokio::test]
async fn forwards_pieces_before_an_error_of_the_body() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(
        "(func (export \"proxy_on_response_body\") (param i32 i32 i32) (result i32) (i32.const 0))",
    );
    let frames: [Result<_, services::body::BodyError>; 2] =
        [Ok(http_body::Frame::data(Bytes::from_static(b"one"))), Err("broken".into())];
    let body = http_body_util::StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
    let handle = async |_| Response::new(body);
    let response =
        chain.run_http_exchange(get("/"), RequestCall::unlimited(), exchange_info(), handle).await.unwrap();
    let mut body = response.into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "one");
    assert!(body.frame().await.unwrap().is_err());
}

#[tokio::test]
async fn streamed_bodies_pass_without_delay() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(
        "(func (export \"proxy_on_response_body\") (param i32 i32 i32) (result i32) (i32.const 0))",
    );
    let (mut sender, streamed) = http_body_util::channel::Channel::<Bytes, services::body::BodyError>::new(4);
    let streamed = streamed.boxed_unsync();
    let handle = async |_| Response::new(streamed);
    let response =
        chain.run_http_exchange(get("/"), RequestCall::unlimited(), exchange_info(), handle).await.unwrap();
    let mut body = response.into_body();
    for piece in ["one", "two"] {
        sender.send_data(Bytes::from_static(piece.as_bytes())).await.unwrap();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), piece);
    }
    drop(sender);
    assert!(body.frame().await.is_none());
}

#[tokio::test]
async fn emptied_response_bodies_lose_their_content_length() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(
        r#"
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32) (i32.const 1))
        (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32)
            (call $want (i32.const 0)
                (call $set_buffer (i32.const 1) (i32.const 0) (i32.const 99) (i32.const 0) (i32.const 0)))
            (i32.const 0))"#,
    );
    let handle = async |_| Response::builder().header("content-length", 5).body(body::full("hello")).unwrap();
    let response =
        chain.run_http_exchange(get("/"), RequestCall::unlimited(), exchange_info(), handle).await.unwrap();
    let answer = collect_response(response).await.unwrap();
    assert_eq!((answer.header("content-length"), &answer.body[..]), ("", &b""[..]));
}

/// A request whose body begins with `one`, and the sender of the rest.
async fn started_post()
-> (http_body_util::channel::Sender<Bytes, services::body::BodyError>, Request<StreamedServiceBody>) {
    let (mut sender, body) = http_body_util::channel::Channel::<Bytes, services::body::BodyError>::new(4);
    sender.send_data(Bytes::from_static(b"one")).await.unwrap();
    (sender, Request::post("/").body(body.boxed_unsync()).unwrap())
}

#[tokio::test]
async fn request_bodies_end_with_their_exchange() {
    for end in ["", "(func (export \"proxy_on_delete\") (param i32))"] {
        let bench = FilterFixture::new();
        let chain = bench.single_filter_chain(&format!(
            "(func (export \"proxy_on_request_body\") (param i32 i32 i32) (result i32) (i32.const 0)) {end}"
        ));
        let (mut sender, request) = started_post().await;
        // A service over HTTP/2 may respond before it has read the request's body.
        let (reader, reading) = tokio::sync::oneshot::channel();
        let handle = async move |request: Request<StreamedServiceBody>| {
            assert!(reader.send(request.into_body()).is_ok());
            Response::new(body::empty())
        };
        let response = chain
            .run_http_exchange(request, call_with_timeout(Duration::from_secs(60)), exchange_info(), handle)
            .await
            .unwrap();
        let mut read = reading.await.unwrap();
        assert_eq!(read.frame().await.unwrap().unwrap().into_data().unwrap(), "one");
        collect_response(response).await.unwrap();
        sender.send_data(Bytes::from_static(b"two")).await.unwrap();
        assert!(read.frame().await.unwrap().is_err(), "the filter no longer sees the body");
        assert_eq!(bench.stats().failed_requests, 0);
    }
}

#[tokio::test]
async fn request_bodies_end_when_their_filter_answers() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(
        r#"
        (global $pieces (mut i32) (i32.const 0))
        (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
            (global.set $pieces (i32.add (global.get $pieces) (i32.const 1)))
            (if (i32.eq (global.get $pieces) (i32.const 2)) (then
                (call $want (i32.const 0) (call $respond (i32.const 403) «» «no» ‹› (i32.const -1)))))
            (i32.const 0))"#,
    );
    let (mut sender, request) = started_post().await;
    let (reader, reading) = tokio::sync::oneshot::channel();
    let handle = async move |request: Request<StreamedServiceBody>| -> Response<StreamedServiceBody> {
        assert!(reader.send(request.into_body()).is_ok());
        std::future::pending().await
    };
    let asked = tokio::spawn(chain.run_http_exchange(
        request,
        call_with_timeout(Duration::from_secs(60)),
        exchange_info(),
        handle,
    ));
    let mut read = reading.await.unwrap();
    assert_eq!(read.frame().await.unwrap().unwrap().into_data().unwrap(), "one");
    // The callback runs in a task, and the exchange takes the filter's response before the body is read on.
    occupy(&chain);
    sender.send_data(Bytes::from_static(b"two")).await.unwrap();
    assert!(read.frame().now_or_never().is_none());
    let response = asked.await.unwrap().unwrap();
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    assert!(read.frame().await.unwrap().is_err(), "the filter has refused the piece");
}
