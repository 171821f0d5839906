//! Calls to services: from every phase, concurrent, refused, cancelled.

use super::*;

const CALL: &str = r#"(call $want (i32.const STATUS) (call $http_call «UPSTREAM»
    ‹:method GET|:path PATH|:authority any› «» ‹› (i32.const TIME) (i32.const 16)))"#;

fn call_to(upstream: &str, path: &str) -> String {
    CALL.replace("STATUS", "0").replace("UPSTREAM", upstream).replace("PATH", path).replace("TIME", "5000")
}

#[tokio::test]
async fn call_responses_resume_or_refuse_paused_requests() {
    let bench = FilterFixture::new();
    let code = r#"
        (global $id (mut i32) (i32.const 0))
        (func (export "proxy_on_request_headers") (param $id i32) (param i32 i32) (result i32)
            (global.set $id (local.get $id)) CALL (i32.const 1))
        (func (export "proxy_on_http_call_response") (param i32 i32) (param $headers i32) (param $body i32) (param i32)
            (call $want (i32.const 0) (call $effective (global.get $id)))
            (call $want (i32.const 0) (call $get (i32.const 6) «:status» (i32.const 0) (i32.const 4)))
            (if (i32.eq (i32.load8_u (i32.load (i32.const 0))) (i32.const 0x34)) (then
                (call $want (i32.const 0) (call $respond (i32.const 401) «» «denied» ‹› (i32.const -1)))
                (return)))
            (call $want (i32.const 0)
                (call $buffer (i32.const 4) (i32.const 0) (i32.const 99) (i32.const 0) (i32.const 4)))
            (call $text (i32.const 0) «x-called»)
            (call $want (i32.const 0) (call $continue (i32.const 0))))"#;
    for (upstream, path, status, called) in [
        ("auth", "/yes", 200, "/yes"),
        ("auth", "/no", 401, ""),
        ("127.0.0.1:1980", "/yes", 200, "/yes"),
        ("http://127.0.0.1:1980", "/yes", 200, "/yes"),
        ("outbound|80||auth", "/yes", 200, "/yes"),
    ] {
        let chain = bench.single_filter_chain(&code.replace("CALL", &call_to(upstream, path)));
        let answer = send(&chain, get("/")).await.unwrap();
        assert_eq!((answer.status.as_u16(), answer.header("got-x-called")), (status, called), "{upstream}");
    }
}

#[tokio::test]
async fn calls_only_hosts_that_match_a_pattern() {
    let bench = FilterFixture::new();
    let code = r#"
        (global $id (mut i32) (i32.const 0))
        (func (export "proxy_on_request_headers") (param $id i32) (param i32 i32) (result i32)
            (global.set $id (local.get $id)) CALL (i32.const 1))
        (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
            (call $want (i32.const 0) (call $effective (global.get $id)))
            (call $want (i32.const 0) (call $continue (i32.const 0))))"#;
    for (upstream, asked) in [
        ("10.0.0.7:8080", "GET 10.0.0.7:8080 /yes"),
        ("http://10.0.0.7/", "GET 10.0.0.7:80 /yes"),
        ("https://10.0.0.7", "GET 10.0.0.7:443 /yes"),
    ] {
        let mut filter = bench.filter("test", &code.replace("CALL", &call_to(upstream, "/yes")));
        filter.hosts = vec!["*.example.org".to_owned(), "10.0.0.0/8".to_owned()];
        assert_eq!(send(&bench.chain(&[filter]), get("/")).await.unwrap().status, 200);
        assert_eq!(bench.test_service.requests.lock().unwrap().pop().as_deref(), Some(asked));
    }
    let refused = call_to("11.0.0.7:8080", "/yes").replacen("0", "2", 1);
    let mut filter =
        bench.filter("test", &code.replace("CALL", &refused).replace("(i32.const 1))", "(i32.const 0))"));
    filter.hosts = vec!["10.0.0.0/8".to_owned()];
    filter.on_refusal = crate::OnRefusal::Open;
    assert_eq!(send(&bench.chain(&[filter]), get("/")).await.unwrap().status, 200);
}

#[tokio::test]
async fn requests_wait_for_calls_even_after_continue() {
    let bench = FilterFixture::new();
    let code = r#"
        (global $id (mut i32) (i32.const 0))
        (func (export "proxy_on_request_headers") (param $id i32) (param i32 i32) (result i32)
            (global.set $id (local.get $id)) ONE TWO (i32.const 0))
        (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
            (call $want (i32.const 0) (call $effective (global.get $id)))
            (call $want (i32.const 0) (call $add (i32.const 0) «x-called» «1»)))"#;
    let chain = bench.single_filter_chain(
        &code.replace("ONE", &call_to("auth", "/1")).replace("TWO", &call_to("auth", "/2")),
    );
    let answer = send(&chain, get("/")).await.unwrap();
    assert_eq!(answer.headers.get_all("got-x-called").iter().count(), 2);
}

#[tokio::test]
async fn calls_carry_the_hop_count_and_no_upgrade() {
    let bench = FilterFixture::new();
    let code = r#"
        (global $id (mut i32) (i32.const 0))
        (func (export "proxy_on_request_headers") (param $id i32) (param i32 i32) (result i32)
            (global.set $id (local.get $id))
            (call $want (i32.const 0) (call $http_call «auth»
                ‹:method GET|:path /yes|:authority any|connection upgrade|upgrade websocket|cdn-loop orfa›
                «» ‹› (i32.const 5000) (i32.const 16)))
            (i32.const 1))
        (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
            (call $want (i32.const 0) (call $effective (global.get $id)))
            (call $want (i32.const 0) (call $get (i32.const 6) «x-hops» (i32.const 0) (i32.const 4)))
            (call $text (i32.const 0) «x-hops»)
            (call $want (i32.const 0) (call $get (i32.const 6) «x-upgrades» (i32.const 0) (i32.const 4)))
            (call $text (i32.const 0) «x-upgrades»)
            (call $want (i32.const 0) (call $continue (i32.const 0))))"#;
    let call = RequestCall { hops: 3, ..call_with_timeout(Duration::from_secs(60)) };
    let response = bench
        .single_filter_chain(code)
        .run_http_exchange(get("/"), call.clone(), exchange_info(), echo)
        .await
        .unwrap();
    let answer = collect_response(response).await.unwrap();
    assert_eq!((answer.header("got-x-hops"), answer.header("got-x-upgrades")), ("4", "false"));
}

#[tokio::test(start_paused = true)]
async fn resume_continues_a_request_with_calls_in_flight() {
    let bench = FilterFixture::new();
    let code = r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            CALL (call $want (i32.const 0) (call $continue (i32.const 0))) (i32.const 0))"#;
    let chain = bench.single_filter_chain(&code.replace("CALL", &call_to("auth", "/wait")));
    let began = tokio::time::Instant::now();
    assert_eq!(send(&chain, get("/")).await.unwrap().status, 200);
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn late_responses_do_not_count_for_calls_made_after_a_resume() {
    // The first response resumes the request and makes another call; the second belongs to an earlier call.
    let bench = FilterFixture::new();
    let code = r#"
        (global $id (mut i32) (i32.const 0))
        (global $answers (mut i32) (i32.const 0))
        (func (export "proxy_on_request_headers") (param $id i32) (param i32 i32) (result i32)
            (global.set $id (local.get $id)) ONE TWO (i32.const 1))
        (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
            (global.set $answers (i32.add (global.get $answers) (i32.const 1)))
            (call $want (i32.const 0) (call $effective (global.get $id)))
            (if (i32.eq (global.get $answers) (i32.const 1)) (then
                (call $want (i32.const 0) (call $continue (i32.const 0))) WAIT))
            (if (i32.eq (global.get $answers) (i32.const 3)) (then
                (call $want (i32.const 0) (call $add (i32.const 0) «x-third» «in time»)))))"#;
    let code = code.replace("ONE", &call_to("auth", "/1")).replace("TWO", &call_to("auth", "/2"));
    let chain = bench.single_filter_chain(&code.replace("WAIT", &call_to("auth", "/wait")));
    assert_eq!(send(&chain, get("/")).await.unwrap().header("got-x-third"), "in time");
}

#[tokio::test]
async fn calls_use_the_authority_that_the_module_sets() {
    let bench = FilterFixture::new();
    let code = r#"
        (global $id (mut i32) (i32.const 0))
        (func (export "proxy_on_request_headers") (param $id i32) (param i32 i32) (result i32)
            (global.set $id (local.get $id))
            (call $want (i32.const 2) (call $replace (i32.const 0) «:authority» «me@other.example»))
            (call $want (i32.const 0) (call $replace (i32.const 0) «:authority» «other.example»))
            CALL (i32.const 1))
        (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
            (call $want (i32.const 0) (call $effective (global.get $id)))
            (call $want (i32.const 0) (call $get (i32.const 6) «x-called» (i32.const 0) (i32.const 4)))
            (call $text (i32.const 0) «x-called»)
            (call $want (i32.const 0) (call $continue (i32.const 0))))"#;
    let chain = bench.single_filter_chain(&code.replace("CALL", &call_to("auth", "/yes")));
    let named = Arc::new(Mutex::new(None));
    let note = Arc::clone(&named);
    let handle = async move |request: HandlerRequest| {
        *note.lock().unwrap() = request.authority;
        HandlerResponse::from(echo(Request::from_parts(request.head, request.body)).await)
    };
    let request = HandlerRequest::new(get("/"), call_with_timeout(Duration::from_secs(60)));
    let response = chain.run_exchange(request, exchange_info(), handle).await.unwrap().response;
    let answer = collect_response(response).await.unwrap();
    assert_eq!((answer.header("got-x-called"), answer.header("got-host")), ("any", "example.org"));
    assert_eq!(named.lock().unwrap().as_ref().unwrap(), "other.example");
}

#[tokio::test]
async fn trailers_can_wait_for_a_call_in_both_directions() {
    let bench = FilterFixture::new();
    for (side, number) in [("request", "0"), ("response", "1")] {
        let code = r#"
            (global $id (mut i32) (i32.const 0))
            (func (export "proxy_on_SIDE_trailers") (param $id i32) (param i32) (result i32)
                (global.set $id (local.get $id)) CALL (i32.const 1))
            (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
                (call $want (i32.const 0) (call $effective (global.get $id)))
                (call $want (i32.const 0) (call $add (i32.const MAP) «x-called» «1»))
                (call $want (i32.const 0) (call $continue (i32.const NUMBER))))"#;
        let map = if side == "request" { "1" } else { "3" };
        let code = code.replace("SIDE", side).replace("MAP", map).replace("NUMBER", number);
        let chain = bench.single_filter_chain(&code.replace("CALL", &call_to("auth", "/yes")));
        let trailers = http::HeaderMap::from_iter([("x-sum".parse().unwrap(), "7".parse().unwrap())]);
        let body =
            piecewise_body(&["one"]).with_trailers(std::future::ready(Some(Ok(trailers)))).boxed_unsync();
        let request = Request::post("/").body(body).unwrap();
        let mirror = async |request: Request<StreamedServiceBody>| Response::new(request.into_body());
        let response = chain
            .run_http_exchange(request, call_with_timeout(Duration::from_secs(60)), exchange_info(), mirror)
            .await
            .unwrap();
        let whole = response.into_body().collect().await.unwrap();
        let trailers = whole.trailers().cloned().unwrap();
        assert_eq!(
            (&trailers["x-sum"], &trailers["x-called"]),
            (&"7".parse().unwrap(), &"1".parse().unwrap())
        );
        assert_eq!(whole.to_bytes(), "one", "{side}");
    }
}

#[tokio::test]
async fn requests_do_not_wait_for_grpc_streams() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(
        r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (call $want (i32.const 0) (call $grpc_stream «auth» «s» «chat» ‹› (i32.const 16)))
            (i32.const 0))"#,
    );
    assert_eq!(send(&chain, get("/")).await.unwrap().status, 200);
}

#[tokio::test]
async fn responses_can_wait_for_a_call() {
    let bench = FilterFixture::new();
    let code = r#"
        (global $id (mut i32) (i32.const 0))
        (func (export "proxy_on_response_headers") (param $id i32) (param i32 i32) (result i32)
            (global.set $id (local.get $id)) CALL (i32.const 1))
        (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
            (call $want (i32.const 0) (call $effective (global.get $id)))
            (call $want (i32.const 0) (call $add (i32.const 2) «x-called» «1»))
            (call $want (i32.const 0) (call $continue (i32.const 1))))"#;
    let chain = bench.single_filter_chain(&code.replace("CALL", &call_to("auth", "/yes")));
    assert_eq!(send(&chain, get("/")).await.unwrap().header("x-called"), "1");
}

#[tokio::test]
async fn refuses_invalid_calls() {
    let bench = FilterFixture::new();
    let refused = |upstream: &str, pairs: &str| {
        format!(
            "(call $want (i32.const 2) (call $http_call «{upstream}» ‹{pairs}› «» ‹› (i32.const 9) (i32.const 16)))"
        )
    };
    let code = format!(
        "(func (export \"proxy_on_request_headers\") (param i32 i32 i32) (result i32) {} {} (i32.const 0))",
        refused("nobody", ":method GET|:path /|:authority a"),
        refused("auth", ":method G T")
    );
    let mut filter = bench.filter("refused", &code);
    filter.on_refusal = crate::OnRefusal::Open;
    assert_eq!(send(&bench.chain(&[filter]), get("/")).await.unwrap().status, 200);
    let one = call_to("auth", "/1");
    let code = format!(
        "(func (export \"proxy_on_request_headers\") (param i32 i32 i32) (result i32) {one} {} (i32.const 0))",
        one.replace("(call $want (i32.const 0)", "(call $want (i32.const 10)")
    );
    let mut filter = bench.filter("limited", &code);
    filter.limits.calls = 1;
    filter.on_refusal = crate::OnRefusal::Open;
    assert_eq!(send(&bench.chain(&[filter.clone()]), get("/")).await.unwrap().status, 200);
    filter.limits.calls = 2;
    assert_eq!(
        send(&bench.chain(&[filter]), get("/")).await.unwrap_err(),
        FilterFailure::Trapped("limited".into())
    );
}

#[tokio::test(start_paused = true)]
async fn calls_time_out() {
    let bench = FilterFixture::new();
    let code = r#"
        (global $id (mut i32) (i32.const 0))
        (func (export "proxy_on_request_headers") (param $id i32) (param i32 i32) (result i32)
            (global.set $id (local.get $id)) CALL (i32.const 1))
        (func (export "proxy_on_http_call_response") (param i32 i32) (param $headers i32) (param i32 i32)
            (call $want (i32.const 0) (local.get $headers))
            (call $want (i32.const 0) (call $effective (global.get $id)))
            (call $want (i32.const 0) (call $respond (i32.const 504) «» «» ‹› (i32.const -1))))"#;
    let chain = bench.single_filter_chain(&code.replace("CALL", &call_to("auth", "/wait")));
    assert_eq!(send(&chain, get("/")).await.unwrap().status, 504);
}

#[tokio::test(start_paused = true)]
async fn modules_that_deny_by_the_status_deny_if_their_service_fails() {
    // Like APISIX's `forward-auth`, the module returns CONTINUE, ignores the number of headers, and lets a
    // request pass if it finds no status.
    let code = r#"
        (global $id (mut i32) (i32.const 0))
        (func (export "proxy_on_request_headers") (param $id i32) (param i32 i32) (result i32)
            (global.set $id (local.get $id)) CALL (i32.const 0))
        (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
            (call $want (i32.const 0) (call $effective (global.get $id)))
            (if (i32.eqz (call $get (i32.const 6) «:status» (i32.const 0) (i32.const 4))) (then
                (if (i32.ge_u (i32.load8_u (i32.load (i32.const 0))) (i32.const 0x33)) (then
                    (call $want (i32.const 0)
                        (call $respond (i32.const 403) «» (i32.load (i32.const 0)) (i32.load (i32.const 4))
                            ‹› (i32.const -1))))))))"#;
    for (path, buffer, status, seen) in
        [("/yes", 1000, 200, ""), ("/wait", 1000, 403, "504"), ("/longer", 5, 403, "503")]
    {
        let bench = FilterFixture::new();
        let mut filter = bench.filter("test", &code.replace("CALL", &call_to("auth", path)));
        filter.limits.buffer = services::BytesConfig(buffer);
        let answer = send(&bench.chain(&[filter]), get("/")).await.unwrap();
        assert_eq!((answer.status.as_u16(), &answer.body[..]), (status, seen.as_bytes()), "{path}");
    }
}

#[tokio::test]
async fn cancelled_requests_cancel_their_calls() {
    let bench = FilterFixture::new();
    let code = r#"
        (func (export "proxy_on_request_headers") (param $id i32) (param i32 i32) (result i32) CALL (i32.const 1))
        (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32) unreachable)"#;
    let chain = bench.single_filter_chain(&code.replace("CALL", &call_to("auth", "/wait")));
    let mut waiting = Box::pin(send(&chain, get("/")));
    assert!((&mut waiting).now_or_never().is_none());
    bench.test_service.request_received.notified().await;
    drop(waiting);
    bench.test_service.request_dropped.notified().await;
    assert_eq!(bench.stats().traps, 0);
}

#[tokio::test]
async fn calls_from_proxy_on_done_deliver_only_to_lingering_streams() {
    let bench = FilterFixture::new();
    let code = r#"
        (func (export "proxy_on_done") (param $id i32) (result i32) CALL (i32.const DONE))
        (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
            (call $want (i32.const 0) (call $log (i32.const 2) «answered»)))"#;
    for done in ["0", "1"] {
        let chain =
            bench.single_filter_chain(&code.replace("CALL", &call_to("auth", "/end")).replace("DONE", done));
        send(&chain, get("/")).await.unwrap();
        bench.test_service.request_received.notified().await;
        assert_eq!(bench.test_service.requests.lock().unwrap().pop().as_deref(), Some("GET auth /end"));
        bench.test_service.request_dropped.notified().await;
        // Deliveries run in tasks that are scheduled before this one.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!(bench.take_events().contains(&"log answered".to_owned()), done == "0", "{done}");
        assert_eq!(bench.stats().traps, 0);
    }
}

const GRPC: &str = r#"
    (global $id (mut i32) (i32.const 0))
    (func (export "proxy_on_request_headers") (param $id i32) (param i32 i32) (result i32)
        (global.set $id (local.get $id))
        MAKE
        (i32.const 1))
    (func (export "proxy_on_grpc_receive_initial_metadata") (param i32 i32 i32)
        (call $want (i32.const 0) (call $get (i32.const 4) «x-from» (i32.const 0) (i32.const 4)))
        (call $want (i32.const 0) (call $effective (global.get $id)))
        (call $text (i32.const 0) «x-initial»))
    (func (export "proxy_on_grpc_receive") (param i32 i32) (param $size i32)
        (call $want (i32.const 0)
            (call $buffer (i32.const 5) (i32.const 0) (local.get $size) (i32.const 0) (i32.const 4)))
        (call $want (i32.const 0) (call $effective (global.get $id)))
        (call $text (i32.const 0) «x-message»)
        RECEIVED)
    (func (export "proxy_on_grpc_receive_trailing_metadata") (param i32 i32 i32)
        (call $want (i32.const 0) (call $get (i32.const 5) «grpc-status» (i32.const 0) (i32.const 4)))
        (call $want (i32.const 0) (call $effective (global.get $id)))
        (call $text (i32.const 0) «x-trailing»))
    (func (export "proxy_on_grpc_close") (param i32 i32) (param $status i32)
        (call $want (local.get $status) (i32.const CLOSED))
        (call $want (i32.const 0) (call $status (i32.const 8) (i32.const 0) (i32.const 4)))
        (call $want (local.get $status) (i32.load (i32.const 8)))
        (call $want (i32.const 0) (call $effective (global.get $id)))
        (call $text (i32.const 0) «x-closed»)
        (call $want (i32.const 0) (call $continue (i32.const 0))))"#;

#[tokio::test]
async fn a_grpc_call_ends_with_its_message_or_its_failure() {
    let bench = FilterFixture::new();
    let make = |method: &str| {
        format!(
            "(call $want (i32.const 0) (call $grpc_call «auth» «s» «{method}» ‹x-meta 1› «ping»
                (i32.const 5000) (i32.const 16)))"
        )
    };
    let code = GRPC.replace("RECEIVED", "(call $want (i32.const 0) (call $continue (i32.const 0)))");
    let chain = bench.single_filter_chain(&code.replace("MAKE", &make("yes")).replace("CLOSED", "99"));
    let answer = send(&chain, get("/")).await.unwrap();
    assert_eq!((answer.header("got-x-message"), answer.header("got-x-initial")), ("ping", ""));
    let chain = bench.single_filter_chain(&code.replace("MAKE", &make("no")).replace("CLOSED", "7"));
    let answer = send(&chain, get("/")).await.unwrap();
    assert_eq!((answer.header("got-x-message"), answer.header("got-x-closed")), ("", "denied"));
}

#[tokio::test]
async fn a_grpc_stream_sends_and_receives_until_its_trailers() {
    let bench = FilterFixture::new();
    let make = r#"
        (call $want (i32.const 0) (call $grpc_stream «auth» «s» «chat» ‹› (i32.const 16)))
        (call $want (i32.const 0) (call $grpc_send (i32.load (i32.const 16)) «one» (i32.const 0)))
        (call $want (i32.const 0) (call $grpc_send (i32.load (i32.const 16)) «two» (i32.const 0)))
        (call $want (i32.const 2) (call $grpc_send (i32.const 99) «two» (i32.const 0)))
        (call $want (i32.const 0) (call $grpc_close (i32.load (i32.const 16))))"#;
    let code = GRPC.replace("RECEIVED", "").replace("MAKE", make).replace("CLOSED", "0");
    let answer = send(&bench.single_filter_chain(&code), get("/")).await.unwrap();
    let messages: Vec<_> = answer.headers.get_all("got-x-message").iter().collect();
    assert_eq!(messages, ["one", "two"]);
    assert_eq!((answer.header("got-x-initial"), answer.header("got-x-trailing")), ("service", "0"));
}

#[tokio::test]
async fn requests_do_not_wait_for_cancelled_grpc_calls() {
    let bench = FilterFixture::new();
    let make = r#"
        (call $want (i32.const 0) (call $grpc_stream «auth» «s» «chat» ‹› (i32.const 16)))
        (call $want (i32.const 0) (call $grpc_cancel (i32.load (i32.const 16))))
        (call $want (i32.const 2) (call $grpc_cancel (i32.load (i32.const 16))))
        (call $want (i32.const 0) (call $continue (i32.const 0)))"#;
    let code = GRPC.replace("RECEIVED", "unreachable").replace("MAKE", make).replace("CLOSED", "0");
    assert_eq!(send(&bench.single_filter_chain(&code), get("/")).await.unwrap().status, 200);
}

#[tokio::test]
async fn limits_calls_in_flight_after_their_requests() {
    let bench = FilterFixture::new();
    let code = r#"
        (func (export "proxy_on_log") (param i32)
            (if (call $http_call «auth» ‹:method GET|:path /wait|:authority any› «» ‹› (i32.const 60000) (i32.const 16))
                (then (call $want (i32.const 0) (call $log (i32.const 2) «refused»)))
                (else (call $want (i32.const 0) (call $log (i32.const 2) «called»)))))"#;
    let chain = bench.single_filter_chain(code);
    let seen = Mutex::new(Vec::new());
    let count = |bench: &FilterFixture, words: &str| {
        let mut seen = seen.lock().unwrap();
        seen.extend(bench.take_events());
        seen.iter().filter(|seen| *seen == words).count()
    };
    let most = crate::host::MAX_DETACHED;
    for _ in 0..most {
        send(&chain, get("/")).await.unwrap();
    }
    bench.wait_until(|bench| count(bench, "log called") + count(bench, "log refused") == most).await;
    assert_eq!(count(&bench, "log refused"), 0);
    send(&chain, get("/")).await.unwrap();
    bench.wait_until(|bench| count(bench, "log called") + count(bench, "log refused") > most).await;
    assert_eq!((count(&bench, "log called"), count(&bench, "log refused")), (most, 1));
}
