//! The admin listener against slow clients and requests that try to change state.

use std::cell::Cell;
use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::*;
use crate::config;

fn gateway() -> Gateway {
    gateway_of("admin: 127.0.0.1:0\nroutes: []")
}

fn gateway_of(text: &str) -> Gateway {
    Gateway::build(config::read_text(text, Path::new("orfa.yaml")).unwrap()).unwrap()
}

/// A connection without a network, so that time can be paused.
fn connect(gateway: &Gateway) -> DuplexStream {
    let hosts = gateway.admin_hosts();
    let state = AdminState { gateway: gateway.clone(), process: Arc::new(ProcessStats::new()), hosts };
    let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    let (ours, theirs) = duplex(1 << 20);
    tokio::spawn(serve_connection(theirs, Arc::new(state), place));
    ours
}

async fn read_to_close(mut stream: impl AsyncRead + Unpin) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test(start_paused = true)]
async fn cuts_off_slow_request_heads() {
    let (began, gateway) = (Instant::now(), gateway());
    let (reading, mut writing) = tokio::io::split(connect(&gateway));
    let head = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    tokio::spawn(async move {
        for byte in head.bytes() {
            sleep(Duration::from_secs(1)).await;
            let _ = writing.write_all(&[byte]).await;
        }
    });
    let answer = read_to_close(reading).await;
    assert!(!answer.contains("200"), "{answer}");
    assert_eq!(began.elapsed().as_secs(), HEAD_TIMEOUT.as_secs());
}

#[tokio::test(start_paused = true)]
async fn cuts_off_silent_connections() {
    let (began, gateway) = (Instant::now(), gateway());
    assert_eq!(read_to_close(connect(&gateway)).await, "");
    assert_eq!(began.elapsed().as_secs(), HEAD_TIMEOUT.as_secs());
}

#[tokio::test(start_paused = true)]
async fn cuts_off_long_lived_connections() {
    let (began, gateway) = (Instant::now(), gateway());
    let mut stream = connect(&gateway);
    while stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.is_ok() {
        sleep(Duration::from_secs(5)).await;
    }
    let lived = began.elapsed();
    assert!((MAX_CONNECTION_AGE..MAX_CONNECTION_AGE + Duration::from_secs(10)).contains(&lived), "{lived:?}");
}

#[tokio::test(start_paused = true)]
async fn excess_connection_waits_for_a_free_slot() {
    let gateway = gateway();
    let admin = gateway.admin(gateway.adopt_admin(&mut Vec::new()).unwrap().unwrap()).unwrap();
    let address = admin.address().unwrap();
    tokio::spawn(admin.serve());
    let ask = async || {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        stream
    };
    let is_answered = async |stream: &mut TcpStream| {
        let read = timeout(Duration::from_secs(1), stream.read(&mut [0; 1024])).await;
        read.is_ok_and(|read| read.unwrap() > 0)
    };
    let mut holding = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        let mut stream = ask().await;
        assert!(is_answered(&mut stream).await);
        holding.push(stream);
    }
    let mut late = ask().await;
    assert!(!is_answered(&mut late).await);
    holding.pop();
    assert!(is_answered(&mut late).await);
}

#[tokio::test]
async fn admin_listener_is_read_only() {
    let gateway = gateway();
    let state = || {
        (gateway.readiness().state(), gateway.reloads().state().succeeded, gateway.active_config.pipeline())
    };
    let before = state();
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY", "TRACE", "RELOAD"] {
        for path in
            ["/", "/healthz", "/readyz", "/metrics", "/reload", "/-/reload", "/quit", "/drain", "/config"]
        {
            let mut stream = connect(&gateway);
            let request = format!(
                "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            );
            stream.write_all(request.as_bytes()).await.unwrap();
            let answer = read_to_close(stream).await;
            let is_page = method == "GET" && ["/healthz", "/metrics"].contains(&path);
            assert_eq!(answer.starts_with("HTTP/1.1 200"), is_page, "{method} {path}: {answer}");
        }
    }
    let after = state();
    assert_eq!((before.0, before.1), (after.0, after.1));
    assert!(Arc::ptr_eq(&before.2, &after.2), "another config is in force");
}

#[tokio::test]
async fn writes_metrics_outside_of_the_serving_threads() {
    thread_local! {
        static HAS_WRITTEN: Cell<bool> = const { Cell::new(false) };
    }
    crate::observe_heap(|| {
        HAS_WRITTEN.set(true);
        (7, 7)
    });
    let mut stream = connect(&gateway());
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    let page = read_to_close(stream).await;
    assert!(page.contains("orfa_heap_bytes 7\n"), "{page}");
    assert!(!HAS_WRITTEN.get(), "this thread serves the connection");
}

#[tokio::test]
async fn serves_only_ip_addresses_and_configured_names() {
    let names = "listen: { address: 127.0.0.1:0, hosts: [shop.example] }
admin: { address: 0.0.0.0:0, hosts: ['*.shop.svc', orfa-admin] }
routes: []";
    let plain = "admin: 0.0.0.0:0\nroutes: []";
    let status = async |gateway: &Gateway, head: &str| {
        let mut stream = connect(gateway);
        stream.write_all(format!("GET /healthz {head}\r\n\r\n").as_bytes()).await.unwrap();
        read_to_close(stream).await.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok())
    };
    for (gateway, is_named) in [(gateway_of(plain), false), (gateway_of(names), true), (gateway(), false)] {
        for host in ["10.1.2.3:9090", "[fd00::7]:9090", "127.0.0.1", "localhost:9090", "app.localhost"] {
            let head = format!("HTTP/1.1\r\nhost: {host}\r\nconnection: close");
            assert_eq!(status(&gateway, &head).await, Some(200), "{host}");
        }
        let by_name = if is_named { 200 } else { 421 };
        for host in ["shop.example", "shop.example:9090", "orfa.shop.svc:9090", "orfa-admin"] {
            let head = format!("HTTP/1.1\r\nhost: {host}\r\nconnection: close");
            assert_eq!(status(&gateway, &head).await, Some(by_name), "{host}");
        }
        for host in ["rebound.example", "10.1.2.3.rebound.example:9090", "shop.svc", ""] {
            let head = format!("HTTP/1.1\r\nhost: {host}\r\nconnection: close");
            assert_eq!(status(&gateway, &head).await, Some(421), "{host}");
        }
        assert_eq!(status(&gateway, "HTTP/1.0").await, Some(200), "a health check that names no host");
    }
}
