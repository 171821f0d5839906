//! Bodies: seen piece by piece, held back, changed, refused.

use super::*;

/// Holds a body back until its end, then puts something else in its place.
const REPLACES: &str = r#"
    (func (export "proxy_on_SIDE_body") (param $id i32) (param $size i32) (param $end i32) (result i32)
        (if (i32.eqz (local.get $end)) (then (return (i32.const 1))))
        (call $want (i32.const 0) (call $buffer (i32.const MAP) (i32.const 0) (i32.const 0x7fffffff)
            (i32.const 0) (i32.const 4)))
        (if (i32.ne (local.get $size) (i32.load (i32.const 4))) (then unreachable))
        (call $want (i32.const 0) (call $set_buffer (i32.const MAP) (i32.const 0) (i32.const 2) «<»))
        (call $want (i32.const 0) (call $set_buffer (i32.const MAP) (i32.const 0x7fffffff) (i32.const 0) «>»))
        (call $want (i32.const 0) (call $set_buffer (i32.const MAP) (i32.const 0) (i32.const 0) «!»))
        (i32.const 0))"#;

fn replaces(side: &str, map: &str) -> String {
    REPLACES.replace("SIDE", side).replace("MAP", map)
}

#[tokio::test]
async fn a_request_body_is_held_back_and_replaced() {
    let bench = Bench::new();
    let chain = bench.of(&replaces("request", "0"));
    let request = Request::post("/").body(pieces(&["one ", "two ", "three"])).unwrap();
    assert_eq!(send(&chain, request).await.unwrap().body, "!<e two three>");
}

#[tokio::test]
async fn an_answer_whose_body_has_changed_has_no_wrong_length() {
    let bench = Bench::new();
    let chain = bench.of(&replaces("response", "1"));
    let handle = async |_| Response::builder().header("content-length", 5).body(body::full("hello")).unwrap();
    let response = chain.around(get("/"), Call::unlimited(), facts(), handle).await.unwrap();
    assert_eq!(http_body::Body::size_hint(response.body()).exact(), Some(6));
    let answer = whole(response).await.unwrap();
    assert_eq!((answer.header("content-length"), &answer.body[..]), ("", &b"!<llo>"[..]));
}

#[tokio::test]
async fn a_body_that_nobody_changes_keeps_its_length() {
    let bench = Bench::new();
    let chain = bench.of(r#"
        (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32) (i32.const 0))
        (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32) (i32.const 0))"#);
    let handle = async |request: Request<Body>| {
        assert_eq!(http_body::Body::size_hint(request.body()).exact(), Some(4));
        Response::new(request.into_body())
    };
    let response = chain.around(post("four"), Call::unlimited(), facts(), handle).await.unwrap();
    assert_eq!(http_body::Body::size_hint(response.body()).exact(), Some(4));
    assert_eq!(whole(response).await.unwrap().body, "four");
}

#[tokio::test]
async fn too_large_a_body_to_hold_back_is_refused() {
    let bench = Bench::new();
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
            filter.limits.buffer = services::Bytes(10);
            let chain = bench.chain(&[filter]);
            let handle = async |request: Request<Body>| Response::new(request.into_body());
            let request = Request::post("/").body(pieces(&["0123456789", "0"])).unwrap();
            let result = chain.around(request, Call::unlimited(), facts(), handle).await;
            let failed = result.map(drop).unwrap_err();
            assert_eq!(
                (services::Problem::status(&failed).as_u16(), services::Problem::code(&failed)),
                (status, code)
            );
        }
    }
}

#[tokio::test]
async fn an_answer_of_any_length_can_wait_for_a_call() {
    let bench = Bench::new();
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
    filter.limits.buffer = services::Bytes(10);
    let handle = async |_| Response::new(pieces(&["0123456789", "0123456789", "0123456789"]));
    let (chain, call) = (bench.chain(&[filter]), call(Duration::from_secs(60)));
    let response = chain.around(get("/"), call.clone(), facts(), handle).await.unwrap();
    assert_eq!(whole(response).await.unwrap().body, "0123456789".repeat(3));
}

#[tokio::test]
async fn who_refuses_a_body_is_heard_though_another_holds_the_head() {
    let bench = Bench::new();
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
async fn an_answer_in_place_of_another_has_nothing_of_it() {
    let bench = Bench::new();
    let chain = bench.of(r#"
        (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32)
            (call $want (i32.const 0) (call $respond (i32.const 400) «» «no» ‹› (i32.const -1))) (i32.const 1))"#);
    let handle = async |_| {
        Response::builder().header("x-from", "it").extension(7_u8).body(body::full("hello")).unwrap()
    };
    let response = chain.around(get("/"), Call::unlimited(), facts(), handle).await.unwrap();
    assert_eq!((response.status().as_u16(), response.headers().len()), (400, 0));
    assert_eq!(response.extensions().get::<u8>(), None);
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_not_let_go_before_it_has_come() {
    let bench = Bench::new();
    let chain = bench.of(r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (call $want (i32.const 0) (call $continue (i32.const 1))) (i32.const 0))
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32) (i32.const 1))"#);
    assert_eq!(send(&chain, get("/")).await.unwrap_err(), Failed::Paused("test".into()));
}

#[tokio::test]
async fn a_held_back_head_still_lets_the_body_be_seen() {
    let bench = Bench::new();
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
        let chain = bench.of(&code.replace("SIDE", side).replace("MAP", map).replace("HEADS", heads));
        let request = Request::post("/").body(pieces(&["one ", "two"])).unwrap();
        let answer = send(&chain, request).await.unwrap();
        let name = if side == "request" { "got-x-body" } else { "x-body" };
        assert_eq!((answer.header(name), &answer.body[..]), ("one two", &b"one two"[..]), "{side}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_the_module_does_not_look_at_lets_no_head_go() {
    // It waits for something else, such as an answer: a callback that an SDK exports anyway must not be taken
    // for consent.
    let bench = Bench::new();
    let chain = bench.of(r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) (i32.const 1))
        (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32) (i32.const 0))"#);
    assert_eq!(send(&chain, post("body")).await.unwrap_err(), Failed::Paused("test".into()));
}

#[tokio::test]
async fn a_head_can_be_changed_when_the_body_has_come() {
    let bench = Bench::new();
    let chain = bench.of(r#"
        (func (export "proxy_on_request_body") (param $id i32) (param $size i32) (param $end i32) (result i32)
            (if (i32.eqz (local.get $end)) (then (return (i32.const 1))))
            (call $want (i32.const 0) (call $add (i32.const 0) «x-late» «1»))
            (i32.const 0))"#);
    let request = Request::post("/").body(pieces(&["one ", "two"])).unwrap();
    let answer = send(&chain, request).await.unwrap();
    assert_eq!((answer.header("got-x-late"), &answer.body[..]), ("1", &b"one two"[..]));
}

#[tokio::test]
async fn a_local_response_can_come_from_a_body() {
    let bench = Bench::new();
    for side in ["request", "response"] {
        let chain = bench.of(&format!(
            "(func (export \"proxy_on_{side}_body\") (param i32 i32 i32) (result i32)
                (call $want (i32.const 0) (call $respond (i32.const 400) «» «no» ‹› (i32.const -1))) (i32.const 1))"
        ));
        let answer = send(&chain, post("body")).await.unwrap();
        assert_eq!((answer.status.as_u16(), &answer.body[..]), (400, &b"no"[..]), "{side}");
    }
}

#[tokio::test]
async fn a_second_pause_counts_after_a_resumption() {
    // Each piece is held back once, and let go by a tick.
    let bench = Bench::new();
    let chain = bench.of(r#"
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
            (global.set $id (local.get $id)) (i32.const 1))"#);
    chain.start();
    let request = Request::post("/").body(pieces(&["one ", "two"])).unwrap();
    assert_eq!(send(&chain, request).await.unwrap().body, "one two");
}

#[tokio::test]
async fn trailers_are_seen_and_changed() {
    let bench = Bench::new();
    let chain = bench.of(r#"
        (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32) (i32.const 1))
        (func (export "proxy_on_request_trailers") (param i32 i32) (result i32)
            (call $want (i32.const 0) (call $get (i32.const 1) «x-sum» (i32.const 0) (i32.const 4)))
            (call $want (i32.const 0) (call $add (i32.const 1) «x-more» «1»))
            (i32.const 0))"#);
    let mut trailers = http::HeaderMap::new();
    trailers.insert("x-sum", "7".parse().unwrap());
    let body = pieces(&["one"]).with_trailers(std::future::ready(Some(Ok(trailers)))).boxed_unsync();
    let answer = send(&chain, Request::post("/").body(body).unwrap()).await.unwrap();
    assert_eq!((answer.header("trailer-x-sum"), answer.header("trailer-x-more")), ("7", "1"));
    assert_eq!(answer.body, "one");
}

#[tokio::test]
async fn a_stream_is_not_held_up_by_who_lets_it_pass() {
    let bench = Bench::new();
    let chain =
        bench.of("(func (export \"proxy_on_response_body\") (param i32 i32 i32) (result i32) (i32.const 0))");
    let (mut sender, streamed) = http_body_util::channel::Channel::<Bytes, services::body::Error>::new(4);
    let streamed = streamed.boxed_unsync();
    let handle = async |_| Response::new(streamed);
    let response = chain.around(get("/"), Call::unlimited(), facts(), handle).await.unwrap();
    let mut body = response.into_body();
    for piece in ["one", "two"] {
        sender.send_data(Bytes::from_static(piece.as_bytes())).await.unwrap();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), piece);
    }
    drop(sender);
    assert!(body.frame().await.is_none());
}

#[tokio::test]
async fn an_answer_that_a_filter_empties_while_it_holds_the_head_back_has_no_length() {
    let bench = Bench::new();
    let chain = bench.of(r#"
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32) (i32.const 1))
        (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32)
            (call $want (i32.const 0)
                (call $set_buffer (i32.const 1) (i32.const 0) (i32.const 99) (i32.const 0) (i32.const 0)))
            (i32.const 0))"#);
    let handle = async |_| Response::builder().header("content-length", 5).body(body::full("hello")).unwrap();
    let response = chain.around(get("/"), Call::unlimited(), facts(), handle).await.unwrap();
    let answer = whole(response).await.unwrap();
    assert_eq!((answer.header("content-length"), &answer.body[..]), ("", &b""[..]));
}
