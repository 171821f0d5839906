//! Tests that a client's errors in its own request are answered and logged as such, and are not counted
//! against any service.

use std::sync::atomic::Ordering::Relaxed;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::fixture::{GatewayFixture, get};
use super::frames::{DATA, END_HEADERS, END_STREAM, HEADERS, RESET, RawFrameConnection, frame, request_head};
use super::wire::CONFIG;

/// The number of repetitions that would eject an endpoint.
const REPEATS: usize = 5;

/// Malformed bodies over HTTP/1.1, each with the code that the client receives.
fn malformed_bodies() -> [(&'static str, &'static str); 5] {
    [
        ("Content-Length: 100\r\n\r\nhello", "body-broken"),
        ("Transfer-Encoding: chunked\r\n\r\n5\r\nhel", "body-broken"),
        ("Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "body-broken"),
        ("Transfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n", "body-malformed"),
        ("Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nno field\r\n\r\n", "body-malformed"),
    ]
}

/// Returns the log of a gateway whose service must have no failures.
async fn end_and_read_log(fixture: GatewayFixture) -> Vec<Value> {
    let service = fixture.gateway.active_config.pipeline().services.stats();
    for service in service {
        assert_eq!(service.failures, 0, "{service:?}");
        for endpoint in &service.endpoints {
            assert_eq!((endpoint.failures, endpoint.ejections), (0, 0), "{service:?}");
            assert!(endpoint.healthy, "{service:?}");
        }
    }
    let log = fixture.end().await.log;
    log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn answers_a_spoilt_body_as_the_clients_fault() {
    for (body, code) in malformed_bodies() {
        let fixture = GatewayFixture::new(CONFIG).await;
        for _ in 0..REPEATS {
            let mut stream = fixture.connect().await;
            stream.write_all(format!("POST /echo/x HTTP/1.1\r\nHost: a\r\n{body}").as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains(code), "{body:?}: {answer}");
        }
        let log = end_and_read_log(fixture).await;
        assert_eq!(log.len(), REPEATS);
        for line in log {
            assert_eq!((&line["status"], &line["code"]), (&400.into(), &code.into()), "{body:?}: {line}");
        }
    }
}

#[tokio::test]
async fn answers_a_stalled_upload_as_the_clients_fault() {
    let config = CONFIG
        .replacen("'http://UPSTREAM'", "'http://UPSTREAM', idle_timeout: 1s", 1)
        // Deadlines follow the system's clock, which does not advance with the other.
        .replace("proxy: echo }", "proxy: echo, limits: { timeout: 10m } }");
    let fixture = GatewayFixture::new(&config).await;
    for _ in 0..REPEATS {
        let mut stream = fixture.connect().await;
        let half = b"POST /echo/x HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhello";
        stream.write_all(half).await.unwrap();
        fixture.wait_for_upstream_request().await;
        // From here on, the clock advances whenever nothing is left to do.
        tokio::time::pause();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        tokio::time::resume();
        assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("body-timeout"), "{answer}");
    }
    let log = end_and_read_log(fixture).await;
    assert_eq!(log.len(), REPEATS);
    for line in log {
        assert_eq!((&line["status"], &line["code"]), (&408.into(), &"body-timeout".into()), "{line}");
    }
}

#[tokio::test]
async fn logs_a_client_that_leaves_its_upload_as_gone() {
    let fixture = GatewayFixture::new(CONFIG).await;
    for _ in 0..REPEATS {
        let mut stream = fixture.connect().await;
        stream
            .write_all(b"POST /echo/x HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhello")
            .await
            .unwrap();
        fixture.wait_for_upstream_request().await;
        drop(stream);
    }
    assert_eq!(fixture.send_request(get("/echo/x")).await.status(), 200);
    for line in end_and_read_log(fixture).await {
        let status = line["status"].as_u64().unwrap();
        assert!(matches!(status, 200 | 400 | 499), "{line}");
    }
}

#[tokio::test]
async fn logs_a_reset_upload_as_the_clients_fault() {
    let fixture = GatewayFixture::new(CONFIG).await;
    let upload = request_head("POST", "/echo/x", &[("content-length", "100")]);
    // CANCEL, and a body that is longer than its head announces, which is a PROTOCOL_ERROR.
    for end in [frame(RESET, 0, 1, &8_u32.to_be_bytes()), frame(DATA, 0, 1, &[0; 200])] {
        for _ in 0..REPEATS {
            let mut connection = RawFrameConnection::open(&fixture, &[]).await;
            connection.send(&frame(HEADERS, END_HEADERS, 1, &upload)).await;
            connection.send(&frame(DATA, 0, 1, b"hello")).await;
            fixture.wait_for_upstream_request().await;
            connection.send(&end).await;
        }
    }
    assert_eq!(fixture.send_request(get("/echo/x")).await.status(), 200);
    for line in end_and_read_log(fixture).await {
        let status = line["status"].as_u64().unwrap();
        assert!(matches!(status, 200 | 400 | 499), "{line}");
    }
}

#[tokio::test]
async fn never_forwards_a_cancelled_upload_as_complete() {
    let fixture = GatewayFixture::new(CONFIG).await;
    // NO_ERROR, CANCEL and INTERNAL_ERROR (RFC 9113, section 7). Without a length, an incomplete body can't
    // be recognised otherwise.
    for reason in [0_u32, 8, 2] {
        for _ in 0..REPEATS {
            let mut connection = RawFrameConnection::open(&fixture, &[]).await;
            let upload = request_head("POST", "/echo/x", &[]);
            connection.send(&frame(HEADERS, END_HEADERS, 1, &upload)).await;
            connection.send(&frame(DATA, 0, 1, b"half of it")).await;
            fixture.wait_for_upstream_request().await;
            connection.send(&frame(RESET, 0, 1, &reason.to_be_bytes())).await;
            // The next request of the same connection follows the reset.
            connection
                .send(&frame(HEADERS, END_HEADERS | END_STREAM, 3, &request_head("GET", "/echo/y", &[])))
                .await;
            fixture.wait_for_upstream_request().await;
            assert_eq!(connection.stream_outcome(3).await, HEADERS);
        }
    }
    assert_eq!(
        fixture.upstream.completed_requests.load(Relaxed),
        3 * REPEATS,
        "only those without a body are whole"
    );
}
