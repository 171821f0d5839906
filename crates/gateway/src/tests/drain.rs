//! Tests of shutdown from the clients' perspective.

use http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::fixture::{GatewayFixture, get, wait_until_closed};
use crate::{LifecycleState, ShutdownMode};

fn config(drain: &str) -> String {
    format!(
        "
services: {{ echo: {{ url: 'http://UPSTREAM' }} }}
routes: [{{ path: '/echo/*', proxy: echo }}]
drain: {drain}"
    )
}

async fn is_listening(fixture: &GatewayFixture) -> bool {
    TcpStream::connect(fixture.address).await.is_ok()
}

#[tokio::test]
async fn answers_requests_during_the_drain_delay() {
    let fixture = GatewayFixture::new(&config("{ delay: 1h }")).await;
    let mut kept = fixture.connect().await;
    let before = exchange(&mut kept, "/echo/a").await;
    assert!(!before.contains("connection: close"), "{before}");
    fixture.stop_and_wait(ShutdownMode::Gracefully).await;
    assert_eq!(fixture.gateway.readiness().state(), LifecycleState::Draining);
    let after = exchange(&mut kept, "/echo/b").await;
    assert!(after.starts_with("HTTP/1.1 200") && after.contains("connection: close"), "{after}");
    wait_until_closed(kept).await;
    assert_eq!(fixture.send_request(get("/echo/c")).await.status(), StatusCode::OK);
    assert_eq!(fixture.send_http2(get("/echo/d")).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn stops_listening_after_the_delay_and_exits() {
    let fixture = GatewayFixture::new(&config("{ delay: 1ms }")).await;
    let address = fixture.address;
    fixture.stop_and_wait(ShutdownMode::Gracefully).await;
    assert_eq!(fixture.end().await.drained.cut_off_connections, 0);
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn skips_the_delay_on_ctrl_c() {
    let fixture = GatewayFixture::new(&config("{ delay: 1h }")).await;
    fixture.stop_and_wait(ShutdownMode::Promptly).await;
    assert_eq!(fixture.end().await.drained.cut_off_connections, 0);
}

#[tokio::test]
async fn after_a_handover_accepts_nothing_and_lets_connections_end() {
    let fixture = GatewayFixture::new(&config("{ delay: 1h }")).await;
    let mut kept = fixture.connect().await;
    exchange(&mut kept, "/echo/a").await;
    fixture.stop_and_wait(ShutdownMode::HandedOver).await;
    while is_listening(&fixture).await {
        tokio::task::yield_now().await;
    }
    let answer = exchange(&mut kept, "/echo/b").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("connection: close"), "{answer}");
    drop(kept);
    assert_eq!(fixture.end().await.drained.cut_off_connections, 0);
}

#[tokio::test]
async fn answers_connections_that_were_just_opened() {
    let fixture = GatewayFixture::new(&config("{ delay: 0s }")).await;
    let mut newcomer = fixture.connect().await;
    fixture.stop_and_wait(ShutdownMode::Promptly).await;
    let answer = exchange(&mut newcomer, "/echo/a").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("connection: close"), "{answer}");
}

#[tokio::test]
async fn a_second_signal_cuts_off_requests() {
    let fixture = GatewayFixture::new(&config("{ delay: 1h }")).await;
    let slow = tokio::spawn(fixture.try_send_detached(get("/echo/wait")));
    fixture.upstream.wait_until_arrived().await;
    fixture.stop_and_wait(ShutdownMode::Gracefully).await;
    fixture.gateway.abort_requests();
    let end = fixture.end().await;
    assert_eq!(end.drained.cut_off_connections, 1);
    assert!(slow.await.unwrap().is_none());
    assert!(end.log.contains("\"status\":499"), "{}", end.log);
}

/// Sends a request over HTTP/1.1 and reads its response.
async fn exchange(stream: &mut TcpStream, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", stream.peer_addr().unwrap());
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"}") {
        assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0, "{}", String::from_utf8_lossy(&answer));
    }
    String::from_utf8(answer).unwrap()
}
