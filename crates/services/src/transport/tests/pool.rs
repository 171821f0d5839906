//! Connection pooling over HTTP/1.1: reuse of connections, and no repeated requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use http::Response;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_util::either::Either;

use super::target::{TargetServer, read_head, write_text};
use super::*;
use crate::body::full;
use crate::coop::CooperativeStream;
use crate::transport::connect::TransportStream;
use crate::transport::pool::{ConnectionPool, MAX_IDLE, MAX_SHARED};
use crate::transport::{http1, http2};

const SHORT_RESPONSE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// Starts a target that sends the same text after every request, and counts connections and requests.
async fn start_repeating_target(text: &'static str) -> (TargetServer, ShopClient, Arc<[AtomicUsize; 2]>) {
    let counts: Arc<[AtomicUsize; 2]> = Arc::default();
    let counting = Arc::clone(&counts);
    let target = TargetServer::start_acceptor(move |mut socket| {
        let counts = Arc::clone(&counting);
        async move {
            counts[0].fetch_add(1, SeqCst);
            while read_head(&mut socket).await.is_some() {
                counts[1].fetch_add(1, SeqCst);
                write_text(&mut socket, text).await;
            }
        }
    })
    .await;
    let shop = ShopClient::new(config_with_protocol(target.url(), ServiceProtocol::Auto));
    (target, shop, counts)
}

fn stream(socket: TcpStream) -> TransportStream {
    Either::Left(CooperativeStream::new(socket))
}

fn read_counts(counts: &[AtomicUsize; 2]) -> (usize, usize) {
    (counts[0].load(SeqCst), counts[1].load(SeqCst))
}

#[tokio::test]
async fn reuses_connections() {
    let (_target, shop, counts) = start_repeating_target(SHORT_RESPONSE).await;
    for _ in 0..5 {
        assert_eq!(shop.get("/").await.unwrap(), "ok");
    }
    assert_eq!(read_counts(&counts), (1, 5));
    let (_target, shop, counts) = start_repeating_target("HTTP/1.1 204 No Content\r\n\r\n").await;
    for _ in 0..5 {
        assert_eq!(shop.get("/").await.unwrap(), "");
    }
    assert_eq!(read_counts(&counts), (1, 5));
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-sum: 1\r\n\r\n";
    let (_target, shop, counts) = start_repeating_target(chunked).await;
    for _ in 0..5 {
        assert_eq!(shop.get("/").await.unwrap(), "ok");
    }
    assert_eq!(read_counts(&counts), (1, 5));
}

#[tokio::test]
async fn skips_interim_responses() {
    let hints = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n\
                 HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let (_target, shop, counts) = start_repeating_target(hints).await;
    for _ in 0..3 {
        assert_eq!(shop.get("/").await.unwrap(), "ok");
    }
    assert_eq!(read_counts(&counts), (1, 3));
}

#[tokio::test]
async fn data_after_a_response_closes_its_connection() {
    // An unrequested second response must not answer another request.
    let double =
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil";
    let (_target, shop, counts) = start_repeating_target(double).await;
    for _ in 0..5 {
        assert_eq!(shop.get("/").await.unwrap(), "ok");
    }
    assert_eq!(read_counts(&counts), (5, 5));
}

#[tokio::test]
async fn an_unread_response_closes_its_connection() {
    let large = TargetServer::start_acceptor(move |mut socket| async move {
        while let Some(head) = read_head(&mut socket).await {
            write_text(&mut socket, "HTTP/1.1 200 OK\r\ncontent-length: 9000000\r\n\r\n").await;
            write_text(&mut socket, vec![b'x'; if head.contains("/all") { 9_000_000 } else { 5_000_000 }])
                .await;
        }
    })
    .await;
    let shop = ShopClient::new(config_with_protocol(large.url(), ServiceProtocol::Auto));
    for _ in 0..3 {
        let mut half = shop.start_get("/half").await.unwrap();
        assert!(half.body_mut().frame().await.unwrap().is_ok());
        drop(half);
        assert_eq!(shop.get("/all").await.unwrap().len(), 9_000_000);
    }
}

#[tokio::test]
async fn recovers_from_unannounced_closes() {
    let served: Arc<AtomicUsize> = Arc::default();
    let counting = Arc::clone(&served);
    let target = TargetServer::start_acceptor(move |mut socket| {
        let served = Arc::clone(&counting);
        async move {
            if read_head(&mut socket).await.is_some() {
                served.fetch_add(1, SeqCst);
                write_text(&mut socket, SHORT_RESPONSE).await;
            }
        }
    })
    .await;
    let shop = ShopClient::new(config_with_protocol(target.url(), ServiceProtocol::Auto));
    for _ in 0..20 {
        let request = http::Request::post("/").body(full("once")).unwrap();
        assert_eq!(read_body(shop.send(request).await.unwrap()).await, "ok");
    }
    assert_eq!(served.load(SeqCst), 20);
}

#[tokio::test]
async fn supports_http_1_0_targets() {
    let old = TargetServer::start_acceptor(|mut socket| async move {
        if read_head(&mut socket).await.is_some() {
            write_text(&mut socket, "HTTP/1.0 200 OK\r\n\r\nuntil the end").await;
        }
    })
    .await;
    let shop = ShopClient::new(config_with_protocol(old.url(), ServiceProtocol::Auto));
    for _ in 0..3 {
        let response = shop.start_get("/").await.unwrap();
        assert_eq!(response.headers()["via"], "1.0 orfa");
        assert_eq!(read_body(response).await, "until the end");
    }
}

#[tokio::test]
async fn does_not_retry_a_request_that_was_sent() {
    let (_target, shop, counts) = start_repeating_target("").await;
    let target = TargetServer::start_acceptor(|mut socket| async move {
        let _ = read_head(&mut socket).await;
    })
    .await;
    drop((shop, counts));
    let requests: Arc<AtomicUsize> = Arc::default();
    let counting = Arc::clone(&requests);
    let first_only = TargetServer::start_acceptor(move |mut socket| {
        let requests = Arc::clone(&counting);
        async move {
            // Responds once, then takes a request and closes the connection.
            for answer in [SHORT_RESPONSE, ""] {
                if read_head(&mut socket).await.is_some() {
                    requests.fetch_add(1, SeqCst);
                    write_text(&mut socket, answer).await;
                }
            }
        }
    })
    .await;
    drop(target);
    let shop = ShopClient::new(config_with_protocol(first_only.url(), ServiceProtocol::Auto));
    assert_eq!(shop.get("/").await.unwrap(), "ok");
    let post = http::Request::post("/").body(full("once")).unwrap();
    assert_eq!(shop.send(post).await.err().map(|error| error.code()), Some("upstream-broken"));
    assert_eq!(requests.load(SeqCst), 2);
}

#[tokio::test]
async fn prefers_the_most_recently_used_connection() {
    let gate = Arc::new(Notify::new());
    let connections: Arc<AtomicUsize> = Arc::default();
    let (opened, counting) = (Arc::clone(&gate), Arc::clone(&connections));
    let target = TargetServer::start_acceptor(move |mut socket| {
        let (gate, number) = (Arc::clone(&opened), counting.fetch_add(1, SeqCst));
        async move {
            while let Some(head) = read_head(&mut socket).await {
                if head.starts_with("GET /wait") {
                    gate.notified().await;
                }
                write_text(&mut socket, format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{number}"))
                    .await;
            }
        }
    })
    .await;
    let shop = Arc::new(ShopClient::new(config_with_protocol(target.url(), ServiceProtocol::Auto)));
    let waiting = tokio::spawn({
        let shop = Arc::clone(&shop);
        async move { shop.get("/wait").await.unwrap() }
    });
    while connections.load(SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(shop.get("/").await.unwrap(), "1");
    gate.notify_one();
    assert_eq!(waiting.await.unwrap(), "0");
    for _ in 0..3 {
        assert_eq!(shop.get("/").await.unwrap(), "0", "the most recently used connection");
    }
    assert_eq!(connections.load(SeqCst), 2);
}

#[tokio::test]
async fn limits_idle_connections_per_address() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let pool = ConnectionPool::default();
    let mut last = None;
    for _ in 0..=MAX_IDLE {
        let (socket, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        pool.put_idle(Some(address), http1::ClientHttp1Connection::new(stream(socket.unwrap())));
        last = Some(accepted.unwrap().0);
    }
    assert_eq!(format!("{pool:?}"), format!("[(Some({address}), {MAX_IDLE}, 0)]"));
    let mut last = last.unwrap();
    let closed = last.read(&mut [0; 1]).await.unwrap_err();
    assert_eq!(closed.kind(), std::io::ErrorKind::ConnectionReset, "the pool was full");
}

#[tokio::test]
async fn limits_shared_connections_per_address() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let pool = ConnectionPool::default();
    let mut peers = Vec::new();
    for _ in 0..=MAX_SHARED {
        let (socket, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        peers.push(accepted.unwrap());
        let connection = http2::ClientHttp2Connection::new(stream(socket.unwrap())).await.unwrap();
        pool.put_shared(Some(address), connection);
    }
    assert_eq!(format!("{pool:?}"), format!("[(Some({address}), 0, {MAX_SHARED})]"));
}

#[tokio::test]
async fn sends_bodies_of_unknown_length_with_any_method() {
    let target = TargetServer::start_server(None, |request| async move {
        Response::new(full(request.into_body().collect().await.unwrap().to_bytes()))
    })
    .await;
    let shop = ShopClient::new(config_with_protocol(target.url(), ServiceProtocol::Auto));
    let (mut sender, body) = http_body_util::channel::Channel::<Bytes, crate::body::BodyError>::new(1);
    tokio::spawn(async move { sender.send_data("a search".into()).await });
    let request = http::Request::get("/").body(body.boxed_unsync()).unwrap();
    assert_eq!(read_body(shop.send(request).await.unwrap()).await, "a search");
}
