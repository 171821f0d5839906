//! Tests of the limits of clients (`connections:`), and that other clients are served beside those that
//! exceed them.

use http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::fixture::{GatewayFixture, get, post};
use super::frames::{DATA, END_HEADERS, END_STREAM, HEADERS, RESET, RawFrameConnection, frame, request_head};

/// SETTINGS_INITIAL_WINDOW_SIZE with the value 0 (RFC 9113, section 6.5.2).
const NO_WINDOW: [u8; 6] = [0, 4, 0, 0, 0, 0];
/// ENHANCE_YOUR_CALM (RFC 9113, section 7).
const ENHANCE_YOUR_CALM: [u8; 4] = 11_u32.to_be_bytes();

async fn fixture_with(connections: &str) -> GatewayFixture {
    GatewayFixture::new(&limits_config(connections)).await
}

fn limits_config(connections: &str) -> String {
    format!(
        "shed: {{ automatic: false, max_in_flight: 10 }}
connections: {connections}
services: {{ echo: {{ url: 'http://UPSTREAM' }} }}
routes: [{{ path: '/echo/*', proxy: echo }}]
"
    )
}

/// Whether the gateway closes the connection instead of waiting for more input.
async fn is_refused(stream: &mut TcpStream) -> bool {
    // A good connection answers this request, a refused one ends.
    let _ = stream.write_all(b"GET /nowhere HTTP/1.1\r\nhost: a\r\n\r\n").await;
    !matches!(stream.read(&mut [0; 4096]).await, Ok(1..))
}

fn get_frame(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &request_head("GET", path, &[]))
}

#[tokio::test]
async fn refuses_connections_above_the_limit_of_an_address() {
    let fixture = fixture_with("{ per_address: 2 }").await;
    let mut first = [fixture.connect().await, fixture.connect().await];
    for stream in &mut first {
        assert!(!is_refused(stream).await);
    }
    assert!(is_refused(&mut fixture.connect().await).await);
    for stream in &mut first {
        assert!(!is_refused(stream).await, "open connections remain");
    }
    drop(first);
    // The gateway notices their end after some time.
    while is_refused(&mut fixture.connect().await).await {}
}

#[tokio::test]
async fn refuses_new_connections_above_the_rate_of_an_address() {
    let limits = limits_config("{ per_address: 2, new_per_address: 1/h }");
    let fixture = GatewayFixture::new(&limits).await;
    let mut first = fixture.connect().await;
    assert!(!is_refused(&mut first).await);
    assert!(!is_refused(&mut fixture.connect().await).await);
    // The second one has left, so that the other limit is no longer reached.
    for _ in 0..20 {
        assert!(is_refused(&mut fixture.connect().await).await);
    }
    assert!(!is_refused(&mut first).await, "open connections remain");
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    assert!(!is_refused(&mut socket.connect(fixture.address).await.unwrap()).await, "another network");
    let proxied = GatewayFixture::new(&format!("{limits}trusted_proxies: [127.0.0.1]\n")).await;
    for _ in 0..5 {
        assert!(!is_refused(&mut proxied.connect().await).await, "a trusted proxy");
    }
}

#[tokio::test]
async fn refuses_connections_above_the_limit_of_all() {
    let fixture = fixture_with("{ max: 1 }").await;
    let mut first = fixture.connect().await;
    assert!(!is_refused(&mut first).await);
    assert!(is_refused(&mut fixture.connect().await).await);
}

#[tokio::test]
async fn refuses_half_open_handshakes_above_the_limit_of_an_address() {
    let (fixture, certificate) =
        GatewayFixture::with_tls(&limits_config("{ handshakes_per_address: 1 }")).await;
    let (mut first, mut second) = (fixture.connect().await, fixture.connect().await);
    // The first byte of a handshake, and nothing more.
    first.write_all(&[22]).await.unwrap();
    second.write_all(&[22]).await.unwrap();
    let (mut one, mut other) = ([0; 1], [0; 1]);
    let is_first = tokio::select! {
        read = first.read(&mut one) => { assert!(!matches!(read, Ok(1..))); true }
        read = second.read(&mut other) => { assert!(!matches!(read, Ok(1..))); false }
    };
    drop(if is_first { second } else { first });
    // Once the half-open one has ended, others are admitted. A handshake that fails has no response.
    let address = fixture.address;
    while TcpStream::connect(address).await.is_err() {}
    for _ in 0..1_000 {
        if fixture.can_handshake(&certificate).await {
            return;
        }
    }
    panic!("no connection is admitted any more");
}

#[tokio::test]
async fn limits_http2_requests_of_an_address() {
    let fixture = fixture_with("{ requests_per_address: 2 }").await;
    let mut connection = RawFrameConnection::open(&fixture, &[]).await;
    connection.send(&[get_frame(1, "/echo/wait"), get_frame(3, "/echo/wait")].concat()).await;
    fixture.wait_for_upstream_request().await;
    let mut other = RawFrameConnection::open(&fixture, &[]).await;
    loop {
        // Both may not have started yet.
        other.send(&get_frame(1, "/echo/x")).await;
        let body = loop {
            match other.next_frame().await {
                Some((DATA, 1, payload)) => break String::from_utf8(payload).unwrap(),
                Some(_) => {}
                None => panic!("no answer"),
            }
        };
        if body.contains("gateway-overloaded") {
            break;
        }
        other = RawFrameConnection::open(&fixture, &[]).await;
    }
    // Over HTTP/1.1 a connection has one request, and connections are limited.
    assert_eq!(fixture.send_request(get("/echo/x")).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn completed_responses_that_are_not_read_use_no_admission_slot() {
    // As many responses as the gateway admits at once are complete, and are not read.
    let fixture = fixture_with("{ unsent_per_connection: 100MB, unsent_per_address: 100MB }").await;
    for path in ["/nowhere", "/echo/x"] {
        let mut connection = RawFrameConnection::open(&fixture, &NO_WINDOW).await;
        for stream in (1..20).step_by(2) {
            connection.send(&get_frame(stream, path)).await;
            assert_eq!(connection.stream_outcome(stream).await, HEADERS);
        }
        // The last of the responses may still be on its way from the service.
        let shed = std::sync::Arc::clone(&fixture.gateway.active_config.pipeline().load_shedder);
        while shed.in_flight() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(fixture.send_request(get("/echo/x")).await.status(), StatusCode::OK, "{path}");
    }
}

#[tokio::test]
async fn resets_responses_above_the_limit_of_unsent_bytes() {
    for limits in
        ["{ unsent_per_connection: 150KiB }", "{ unsent_per_address: 150KiB }", "{ unsent: 150KiB }"]
    {
        let fixture = fixture_with(limits).await;
        let mut connection = RawFrameConnection::open(&fixture, &NO_WINDOW).await;
        for stream in (1..20).step_by(2) {
            connection.send(&get_frame(stream, "/echo/large")).await;
        }
        let mut reset = 0;
        while reset < 8 {
            match connection.next_frame().await {
                Some((RESET, _, reason)) => {
                    assert_eq!(reason, ENHANCE_YOUR_CALM, "{limits}");
                    reset += 1;
                }
                Some(_) => {}
                None => panic!("{limits}: the connection ended after {reset} resets"),
            }
        }
        // Small responses are not counted, and those that are read may have any size.
        let mut other = RawFrameConnection::open(&fixture, &[]).await;
        other.send(&get_frame(1, "/echo/x")).await;
        assert_eq!(other.stream_outcome(1).await, HEADERS, "{limits}");
    }
}

#[tokio::test]
async fn refuses_bodies_above_the_limit_of_held_bytes() {
    let of_address = "{ request_bodies_per_address: 100KiB }";
    let client = "x-forwarded-for: 203.0.113.9\r\n";
    for (limits, proxies, reported) in [
        (of_address, "[]", client),
        (of_address, "[127.0.0.1]", client),
        (of_address, "[127.0.0.1]", ""),
        ("{ request_bodies: 100KiB }", "[]", client),
    ] {
        let query = "routes: [{ path: /query, query: { services: [echo] } }, ";
        let config = limits_config(limits).replace("routes: [", query) + "runtime: { instances: 1 }\n";
        let fixture = GatewayFixture::new(&format!("{config}trusted_proxies: {proxies}\n")).await;
        let head = format!(
            "POST /query HTTP/1.1\r\nhost: a\r\n{reported}content-type: text/javascript\r\ncontent-length: 90000\r\n\r\n"
        );
        let begun = [head.as_bytes(), " ".repeat(80_000).as_bytes()].concat();
        let (mut first, mut second) = (fixture.connect().await, fixture.connect().await);
        first.write_all(&begun).await.unwrap();
        second.write_all(&begun).await.unwrap();
        let (mut one, mut other) = (vec![0; 4096], vec![0; 4096]);
        let refusal = tokio::select! {
            read = first.read(&mut one) => { one.truncate(read.unwrap()); one }
            read = second.read(&mut other) => { other.truncate(read.unwrap()); other }
        };
        let refusal = String::from_utf8_lossy(&refusal);
        assert!(refusal.starts_with("HTTP/1.1 503 "), "{limits}: {refusal}");
        assert!(refusal.contains("gateway-overloaded"), "{limits}: {refusal}");
        // A service receives a body piece by piece, so that none of it is held.
        let sent = fixture.send_request(post("/echo/x", &"x".repeat(200_000))).await;
        assert_eq!(sent.status(), StatusCode::OK, "{limits}");
    }
}

#[tokio::test]
async fn responses_that_are_read_may_have_any_size() {
    let fixture =
        fixture_with("{ unsent_per_connection: 150KiB, unsent_per_address: 150KiB, unsent: 150KiB }").await;
    for _ in 0..5 {
        assert!(fixture.send_request(get("/echo/large")).await.text().len() > 100_000);
        assert!(fixture.send_http2(get("/echo/large")).await.text().len() > 100_000);
    }
}

#[tokio::test]
async fn a_flood_of_pipelined_requests_does_not_affect_others() {
    let fixture = fixture_with("{}").await;
    let mut stream = fixture.connect().await;
    let flood = b"GET /nowhere HTTP/1.1\r\nhost: a\r\n\r\n".repeat(20_000);
    // The gateway may stop reading, since its responses are not read; others must not notice.
    tokio::select! {
        _ = stream.write_all(&flood) => {}
        answer = fixture.send_request(get("/echo/x")) => assert_eq!(answer.status(), StatusCode::OK),
    }
    assert_eq!(fixture.send_request(get("/echo/x")).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn the_catalogue_counts_towards_the_callers_rate() {
    let fixture = GatewayFixture::new(
        "
services: { echo: { url: 'http://UPSTREAM' } }
rights: { anonymous: { rate: { requests: 3/h, burst: 3 } } }
routes: [{ path: /query, query: { services: [echo] } }]
runtime: { instances: 1 }
",
    )
    .await;
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(fixture.send_request(get("/.well-known/api-catalog")).await.status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 200, 429]);
}
