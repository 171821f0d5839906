//! Tests of malicious or malformed HTTP/1.1 requests, byte by byte: each is refused, and the next good
//! request is answered normally. `frames.rs` has those for HTTP/2.

use http::{StatusCode, Version};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::fixture::{GatewayFixture, get};
use crate::server::refused_chunks;

pub(super) const CONFIG: &str = "
shed: { automatic: false } # Where the machine is busy with other tests, it would be what is tested.
services: { echo: { url: 'http://UPSTREAM' }, secret: { url: 'http://UPSTREAM' } }
routes:
  - { path: '/echo/*', proxy: echo }
  - { path: '/admin/*', proxy: { service: secret, keep_prefix: true } }
  - { path: '/*', proxy: { service: secret, keep_prefix: true } }
";

/// Sends bytes and reads until the gateway closes. Returns the bytes received before an error, if there is
/// one.
async fn exchange_raw(fixture: &GatewayFixture, bytes: &[u8]) -> String {
    let mut stream = fixture.connect().await;
    let mut answer = Vec::new();
    // A gateway that refuses early may close while the client writes, so write errors are ignored.
    let _ = stream.write_all(bytes).await;
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// The status of the first response, or 0 if there is none.
fn response_status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default()
}

/// Asserts that each request is refused with its status, and with its code if the gateway itself refuses it.
async fn assert_refused(cases: &[(&str, u16, &str)]) {
    let fixture = GatewayFixture::new(CONFIG).await;
    for (request, expected, code) in cases {
        let answer = exchange_raw(&fixture, request.as_bytes()).await;
        assert_eq!(response_status(&answer), *expected, "{request:?}: {answer}");
        assert!(answer.contains(code), "{request:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.").count(), 1, "one answer and the end: {request:?}: {answer}");
        assert_eq!(fixture.send_request(get("/echo/x")).await.status(), StatusCode::OK, "after {request:?}");
    }
}

#[tokio::test]
async fn no_request_is_smuggled_inside_another() {
    let hidden = "0\r\n\r\nGET /admin/x HTTP/1.1\r\nHost: a\r\n\r\n";
    let post = |head: &str| format!("POST /echo/x HTTP/1.1\r\nHost: a\r\n{head}\r\n\r\n{hidden}");
    let cases = [
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", "framing-doubtful"),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5", "framing-doubtful"),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "framing-doubtful"),
        ("Transfer-Encoding: gzip, chunked", "framing-doubtful"),
        ("A: b\nTransfer-Encoding: chunked", "framing-doubtful"),
        ("Content-Length: 5\r\nContent-Length: 6", ""),
        ("Content-Length: +5", ""),
        ("Transfer-Encoding: chunked, identity", ""),
        ("Transfer-Encoding: xchunked", ""),
        ("Transfer-Encoding : chunked", ""),
        ("Transfer-Encoding:\r\n chunked", ""),
        ("A: b\rTransfer-Encoding: chunked", ""),
        (" Transfer-Encoding: chunked", ""),
    ];
    let cases: Vec<_> = cases.iter().map(|(head, code)| (post(head), *code)).collect();
    let cases: Vec<_> = cases.iter().map(|(request, code)| (request.as_str(), 400, *code)).collect();
    assert_refused(&cases).await;
}

#[tokio::test]
async fn no_request_is_smuggled_after_a_refused_chunked_body() {
    let hidden = "GET /admin/x HTTP/1.1\r\nHost: a\r\n\r\n";
    let head = "POST /echo/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let requests = refused_chunks().into_iter().map(|body| format!("{head}{body}{hidden}"));
    let requests: Vec<_> = requests.collect();
    let cases: Vec<_> = requests.iter().map(|request| (request.as_str(), 400, "body-malformed")).collect();
    assert_refused(&cases).await;
}

#[tokio::test]
async fn refuses_an_ambiguous_request_after_a_good_one() {
    let fixture = GatewayFixture::new(CONFIG).await;
    let good = "GET /echo/x HTTP/1.1\r\nHost: a\r\n\r\n";
    let bad = "POST /echo/x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    let answer = exchange_raw(&fixture, format!("{good}{bad}{good}").as_bytes()).await;
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 1, "{answer}");
    assert_eq!(answer.matches("HTTP/1.1 400").count(), 1, "{answer}");
}

#[tokio::test]
async fn requires_one_host_and_an_http_target() {
    assert_refused(&[
        ("GET /echo/x HTTP/1.1\r\nConnection: close\r\n\r\n", 400, "host-invalid"),
        ("GET /echo/x HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n", 400, "host-invalid"),
        ("GET /echo/x HTTP/1.1\r\nHost: a\r\nHost: a\r\nConnection: close\r\n\r\n", 400, "host-invalid"),
        ("GET /echo/x HTTP/1.1\r\nHost: a/b\r\nConnection: close\r\n\r\n", 400, "host-invalid"),
        ("GET /echo/x HTTP/1.1\r\nHost: a b\r\nConnection: close\r\n\r\n", 400, "host-invalid"),
        ("GET /echo/x HTTP/1.1\r\nHost: u@a\r\nConnection: close\r\n\r\n", 400, "host-invalid"),
        ("GET /echo/x HTTP/1.1\r\nHost: a:b\r\nConnection: close\r\n\r\n", 400, "host-invalid"),
        ("GET /echo/x HTTP/1.1\r\nHost:\r\nConnection: close\r\n\r\n", 400, "host-invalid"),
        ("GET ftp://a/echo/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 400, "target-invalid"),
        ("GET http://u@a/echo/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 400, "target-invalid"),
        ("GET https://a/echo/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 421, "scheme-misdirected"),
        ("GET HTTPS://a/nowhere HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 421, "scheme-misdirected"),
        ("CONNECT a:80 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 405, "method-not-allowed"),
        ("GET echo/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 400, ""),
        ("GET /echo/x#/../y HTTP/1.1\r\nHost: a\r\n\r\n", 400, "request-malformed"),
        ("GET /echo/x?y# HTTP/1.1\r\nHost: a\r\n\r\n", 400, "request-malformed"),
        ("GET http://a/echo/x#y HTTP/1.1\r\nHost: a\r\n\r\n", 400, "request-malformed"),
        (
            "GET /echo/x HTTP/1.1\r\nHost: a\r\nExpect: tea\r\nConnection: close\r\n\r\n",
            417,
            "expectation-failed",
        ),
    ])
    .await;
}

#[tokio::test]
async fn ends_connections_that_are_not_http() {
    let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(70_000));
    let large = format!("GET / HTTP/1.1\r\nHost: a\r\nA: {}\r\n\r\n", "a".repeat(70_000));
    let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(200));
    assert_refused(&[
        ("GET /echo/x\r\n\r\n", 400, ""),
        ("GET /echo/x HTTP/9.9\r\nHost: a\r\n\r\n", 400, ""),
        ("\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n", 400, ""),
        ("G\0T / HTTP/1.1\r\nHost: a\r\n\r\n", 400, ""),
        (&large, 431, ""),
        (&many, 431, ""),
    ])
    .await;
    let fixture = GatewayFixture::new(CONFIG).await;
    let answer = exchange_raw(&fixture, long.as_bytes()).await;
    assert!(matches!(response_status(&answer), 414 | 431), "{answer}");
    assert_eq!(fixture.send_request(get("/echo/x")).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn answers_unusual_but_valid_requests() {
    let fixture = GatewayFixture::new(CONFIG).await;
    let two =
        "GET /echo/1 HTTP/1.1\r\nHost: a\r\n\r\nGET /echo/2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let answer = exchange_raw(&fixture, two.as_bytes()).await;
    let (first, second) = (answer.find("\"/1\""), answer.find("\"/2\""));
    assert!(first.is_some() && first < second, "pipelined requests are answered in their order: {answer}");
    for request in [
        "GET /echo/x HTTP/1.0\r\n\r\n",
        "\r\nGET /echo/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "GET http://other.example/echo/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "POST /echo/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nab",
        "POST /echo/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nab",
    ] {
        let answer = exchange_raw(&fixture, request.as_bytes()).await;
        assert_eq!(response_status(&answer), 200, "{request:?}: {answer}");
    }
}

#[tokio::test]
async fn no_path_bypasses_another_routes_rules() {
    let fixture = GatewayFixture::new(CONFIG).await;
    for (path, code) in [
        ("//admin/x", "path-ambiguous"),
        ("/;/admin/x", "path-ambiguous"),
        ("/admin;v=1/x", "path-ambiguous"),
        ("/admin%2fx", "path-ambiguous"),
        ("/echo/../admin/x", "path-dot-segment"),
        ("/echo/%2e%2e/admin/x", "path-dot-segment"),
        ("/echo/..%2fadmin/x", "path-dot-segment"),
        ("/echo/%252e%252e/admin/x", "path-dot-segment"),
        ("/echo/..;/admin/x", "path-dot-segment"),
        ("/echo/..%5cadmin/x", "path-dot-segment"),
        ("/echo/a%5cb", "path-backslash"),
        ("/echo/x%00", "path-control-character"),
        ("/echo/x%0d%0aHost:b", "path-control-character"),
        ("/echo/%zz", "path-bad-escape"),
        ("/echo/%%32e%%32e/admin/x", "path-bad-escape"),
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let answer = exchange_raw(&fixture, request.as_bytes()).await;
        assert_eq!(response_status(&answer), 400, "{path}: {answer}");
        assert!(answer.contains(code), "{path}: {answer}");
    }
    for path in ["/echo/a%20b", "/echo/a//b", "/echo/a;v=1", "/echo/a%2fb", "/echo/%25", "/admin/%61"] {
        assert_eq!(fixture.send_request(get(path)).await.status(), StatusCode::OK, "{path}");
    }
}

#[tokio::test]
async fn routes_services_and_log_use_the_same_form_of_a_target() {
    let fixture = GatewayFixture::new(CONFIG).await;
    for (path, service, route) in [
        ("/%61dmin/%7Eann", "/admin/~ann", "/admin/*"),
        ("/echo/caf\u{e9}?q=\u{9b}", "/caf%C3%A9?q=%C2%9B", "/echo/*"),
        ("/%65cho/a%2eb?c=%61", "/a.b?c=%61", "/echo/*"),
        ("/echo/\u{85}\u{202e}", "/%C2%85%E2%80%AE", "/echo/*"),
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let answer = exchange_raw(&fixture, request.as_bytes()).await;
        assert!(answer.contains(&format!("\"path\":\"{service}\"")), "{route} {path}: {answer}");
        let answer = fixture.send_http2(get(path)).await;
        assert_eq!(answer.json()["path"], service, "{route} {path}");
    }
    let log = fixture.end().await.log;
    assert_eq!(log.matches("\"route\":\"/admin/*\"").count(), 2, "{log}");
    assert_eq!(log.matches("\"path\":\"/echo/caf%C3%A9\"").count(), 2, "{log}");
    assert!(log.is_ascii(), "{log}");
}

#[tokio::test]
async fn routes_outside_of_ascii_match_any_encoding_of_their_path() {
    let config = CONFIG.replace("/echo/*", "/caf\u{e9}/*");
    let fixture = GatewayFixture::new(&config).await;
    for path in ["/caf\u{e9}/x", "/caf%C3%A9/x", "/%63af%C3%A9/x"] {
        let answer = fixture.send_request(get(path)).await;
        assert_eq!(answer.json()["path"], "/x", "{path}");
    }
}

#[tokio::test]
async fn a_tls_port_answers_clear_text_with_an_error() {
    let (fixture, certificate) = GatewayFixture::with_tls(CONFIG).await;
    let answer = exchange_raw(&fixture, b"GET /echo/x HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(response_status(&answer), 400, "{answer}");
    assert!(answer.contains("tls-required"), "{answer}");
    for (protocol, version) in [("h2", Version::HTTP_2), ("http/1.1", Version::HTTP_11)] {
        let answer = fixture.send_tls(&certificate, protocol, get("/echo/x")).await;
        assert_eq!((answer.status(), answer.version()), (StatusCode::OK, version));
    }
}
