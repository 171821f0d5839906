//! Tests of bodies that filters buffer, on every kind of route: within the limit, above it, and replaced.

use http_body_util::BodyExt;
use services::StreamedServiceBody;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// Buffers the request's body to its end.
const BUFFERS_REQUEST: &str = r#"(func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
    (i32.eqz (local.get 2)))"#;
/// Buffers the response's body to its end.
const BUFFERS_RESPONSE: &str = r#"(func (export "proxy_on_response_body") (param i32 i32 i32) (result i32)
    (i32.eqz (local.get 2)))"#;
/// Buffers the request's body to its end, and answers 418 if it starts with `0`.
const CHECKS_REQUEST_BODY: &str = r#"(func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
    (if (i32.eqz (local.get 2)) (then (return (i32.const 1))))
    (drop (call $buffer (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 136) (i32.const 140)))
    (if (i32.eq (i32.load8_u (i32.load (i32.const 136))) (i32.const 0x30)) (then
        (drop (call $respond (i32.const 418) (i32.const 0) (i32.const 0) (i32.const 32) (i32.const 3)
            (i32.const 0) (i32.const 0) (i32.const -1)))))
    (i32.const 0))"#;

fn chunked_request(path: &str, text: &str) -> http::Request<StreamedServiceBody> {
    post(path, text).map(|_| fixture::chunked_body(text))
}

#[tokio::test]
async fn refuses_request_bodies_above_the_buffer_limit_of_filters() {
    let modules = ModuleFolder::new(&[("holds", BUFFERS_REQUEST)]);
    let fixture =
        GatewayFixture::new(&modules.proxy_config(&[("holds", ", limits: { buffer: 1KiB }")])).await;
    // More than is read at once.
    let (small, large) = ("a".repeat(1000), "a".repeat(300_000));
    for make in [post, chunked_request] {
        let passed = fixture.send_request(make("/echo/a", &small)).await;
        assert_eq!((passed.status(), &passed.json()["body"]), (StatusCode::OK, &small.as_str().into()));
        for refused in [
            fixture.send_request(make("/echo/a", &large)).await,
            fixture.send_http2(make("/echo/a", &large)).await,
        ] {
            assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE);
            assert_eq!(refused.json()["code"], "filter-request-too-large");
        }
    }
    assert_eq!(fixture.stats("holds").failed_requests, 4);
    let log = fixture.end().await.log;
    assert_eq!(log.matches(r#""status":413,"code":"filter-request-too-large""#).count(), 4, "{log}");
}

#[tokio::test]
async fn reports_response_bodies_above_the_buffer_limit_of_filters() {
    let modules = ModuleFolder::new(&[("holds", BUFFERS_RESPONSE)]);
    let fixture =
        GatewayFixture::new(&modules.proxy_config(&[("holds", ", limits: { buffer: 1KiB }")])).await;
    for path in ["/echo/a", "/echo/pieces"] {
        let passed = fixture.send_request(post(path, "small")).await;
        assert_eq!((passed.status(), &passed.json()["body"]), (StatusCode::OK, &"small".into()));
        let large = "a".repeat(300_000);
        for refused in
            [fixture.send_request(post(path, &large)).await, fixture.send_http2(post(path, &large)).await]
        {
            assert_eq!(refused.status(), StatusCode::BAD_GATEWAY, "{path}");
            assert_eq!(refused.json()["code"], "filter-response-too-large");
        }
    }
    assert_eq!(fixture.stats("holds").failed_requests, 4);
    let log = fixture.end().await.log;
    assert_eq!(log.matches(r#""status":502,"code":"filter-response-too-large""#).count(), 4, "{log}");
}

#[tokio::test]
async fn answers_paused_requests_at_the_routes_deadline() {
    let holds = |callback: &str| {
        format!(r#"(func (export "{callback}") (param i32 i32 i32) (result i32) (i32.const 1))"#)
    };
    for callback in ["proxy_on_request_headers", "proxy_on_request_body", "proxy_on_response_headers"] {
        let modules = ModuleFolder::new(&[("holds", &holds(callback))]);
        let text = modules.proxy_config(&[("holds", "")]);
        let fixture =
            GatewayFixture::new(&text.replace("proxy: echo,", "proxy: echo, limits: { timeout: 50ms },"))
                .await;
        for request in [post("/echo/a", "body"), chunked_request("/echo/a", "body")] {
            let answer = fixture.send_request(request).await;
            assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE, "{callback}");
            assert_eq!(answer.json()["code"], "filter-paused", "{callback}");
        }
        assert_eq!(
            (fixture.stats("holds").failed_requests, fixture.stats("holds").traps),
            (2, 0),
            "{callback}"
        );
        let log = fixture.end().await.log;
        assert_eq!(log.matches(r#""status":503,"code":"filter-paused""#).count(), 2, "{log}");
    }
}

fn program_request(text: &str, chunked: bool) -> http::Request<StreamedServiceBody> {
    let mut request = post("/query", text);
    request.headers_mut().insert("content-type", "text/javascript".parse().unwrap());
    if chunked { request.map(|_| fixture::chunked_body(text)) } else { request }
}

#[tokio::test]
async fn queries_pass_through_filters_like_proxied_requests() {
    let modules =
        ModuleFolder::new(&[("reads", CHECKS_REQUEST_BODY), ("holds", BUFFERS_RESPONSE), ("one", ADDS_ONE)]);
    let fixture = GatewayFixture::new(&modules.config(&[("one", ""), ("reads", ""), ("holds", "")])).await;
    for chunked in [false, true] {
        let answer = fixture.send_request(program_request("export default () => 7", chunked)).await;
        assert_eq!((answer.status(), answer.text(), answer.header("x-filter")), (StatusCode::OK, "7", "one"));
        assert!(answer.header("server-timing").contains("cpu"), "{}", answer.header("server-timing"));
        let thrown = fixture
            .send_request(program_request("export default () => { throw new Error('no') }", chunked))
            .await;
        assert_eq!((thrown.status().as_u16(), thrown.header("x-filter")), (422, "one"));
        assert_eq!(thrown.json()["code"], "program-threw");
        let local = fixture.send_request(program_request("0; export default () => 7", chunked)).await;
        assert_eq!((local.status().as_u16(), local.text(), local.header("x-filter")), (418, "one", "one"));
        assert_eq!(local.header("content-type"), "", "nothing of the query's own");
    }
    let gateway_fixture =
        GatewayFixture::new(&modules.config(&[("reads", ", limits: { buffer: 1KiB }")])).await;
    let large = format!("//{}\nexport default () => 7", "a".repeat(300_000));
    for chunked in [false, true] {
        let refused = gateway_fixture.send_request(program_request(&large, chunked)).await;
        assert_eq!(
            (refused.status().as_u16(), &refused.json()["code"]),
            (413, &"filter-request-too-large".into())
        );
    }
    assert_eq!(gateway_fixture.stats("reads").requests, 2);
}

#[tokio::test]
async fn trailers_end_a_body_for_filters_in_both_protocols() {
    let gateway_fixture = GatewayFixture::new(
        &ModuleFolder::new(&[("reads", CHECKS_REQUEST_BODY)]).proxy_config(&[("reads", "")]),
    )
    .await;
    // The gateway removes a cookie, which leaves no trailers.
    for name in ["x-sum", "cookie"] {
        let mut stream = gateway_fixture.connect().await;
        let head =
            "POST /echo/a HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(format!("{head}3\r\n0ab\r\n0\r\n{name}: 1\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 418 "), "{name}: {answer}");
        let trailers = http::HeaderMap::from_iter([(name.parse().unwrap(), "1".parse().unwrap())]);
        let body = fixture::chunked_body("0ab").with_trailers(std::future::ready(Some(Ok(trailers))));
        let answer = gateway_fixture.send_http2(post("/echo/a", "").map(|_| body.boxed_unsync())).await;
        assert_eq!(answer.status(), StatusCode::IM_A_TEAPOT, "{name}");
    }
    assert_eq!(gateway_fixture.stats("reads").traps, 0);
}
