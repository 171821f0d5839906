//! HTTP/1.1: the format of requests, and responses that arrive before the end of the request.

use std::future::poll_fn;
use std::pin::pin;

use http::{HeaderMap, Method};
use http_body::Frame;
use http_body_util::{StreamBody, channel::Channel};
use tokio::io::AsyncReadExt;

use super::target::{TargetServer, read_head, write_text};
use super::*;
use crate::body::{BodyError, full};

const SHORT_RESPONSE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// Returns the request as a target receives it, up to the end of its body.
async fn sent_request(request: http::Request<StreamedServiceBody>) -> String {
    let (tell, told) = tokio::sync::oneshot::channel();
    let tell = std::sync::Arc::new(std::sync::Mutex::new(Some(tell)));
    let target = TargetServer::start_acceptor(move |mut socket| {
        let tell = std::sync::Arc::clone(&tell);
        async move {
            let mut all = read_head(&mut socket).await.unwrap_or_default();
            let end = if all.contains("chunked") { "\r\n\r\n" } else { "" };
            let length = all.split_once("content-length: ").and_then(|(_, rest)| rest.split_once('\r'));
            let length: usize = length.map_or(0, |(length, _)| length.parse().unwrap());
            let mut body = vec![0; length];
            socket.read_exact(&mut body).await.unwrap();
            all.push_str(std::str::from_utf8(&body).unwrap());
            while !end.is_empty() && !all[all.find(end).unwrap() + 4..].ends_with(end) {
                all.push(char::from(socket.read_u8().await.unwrap()));
            }
            write_text(&mut socket, SHORT_RESPONSE).await;
            tell.lock().unwrap().take().map(|tell| tell.send(all));
        }
    })
    .await;
    let shop = ShopClient::new(config_with_protocol(target.url(), ServiceProtocol::Auto));
    assert_eq!(read_body(shop.send(request).await.unwrap()).await, "ok");
    told.await.unwrap().replace(&target.address.to_string(), "ADDRESS")
}

fn ours(headers: &str) -> String {
    format!("{headers}forwarded: for=unknown;proto=http\r\nvia: 1.1 orfa\r\ncdn-loop: orfa\r\n")
}

#[tokio::test]
async fn sends_the_content_length() {
    let request = |method, body| http::Request::builder().method(method).uri("/a?b=c").body(body).unwrap();
    for (request, line, length) in [
        (request(Method::GET, empty()), "GET", ""),
        (request(Method::POST, empty()), "POST", "content-length: 0\r\n"),
        (request(Method::PUT, full("hello")), "PUT", "content-length: 5\r\n"),
        (request(Method::DELETE, full("hello")), "DELETE", "content-length: 5\r\n"),
    ] {
        let body = if length.contains('5') { "hello" } else { "" };
        let headers = ours("");
        let expected = format!("{line} /a?b=c HTTP/1.1\r\nhost: ADDRESS\r\n{headers}{length}\r\n{body}");
        assert_eq!(sent_request(request).await, expected);
    }
}

#[tokio::test]
async fn sends_chunked_bodies_with_announced_trailers() {
    let trailers = [("x-sum", "7"), ("x-other", "8"), ("host", "evil")];
    let trailers = trailers.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    let frames = vec![
        Ok::<_, BodyError>(Frame::data(Bytes::from("span"))),
        Ok(Frame::data(Bytes::new())),
        Ok(Frame::data(Bytes::from("s and more spans"))),
        Ok(Frame::trailers(HeaderMap::from_iter(trailers))),
    ];
    let request = http::Request::post("/")
        .header("trailer", "x-sum, host")
        .body(StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync());
    let headers = ours("trailer: x-sum, host\r\n");
    let expected = format!(
        "POST / HTTP/1.1\r\nhost: ADDRESS\r\n{headers}transfer-encoding: chunked\r\n\r\n\
         4\r\nspan\r\n10\r\ns and more spans\r\n0\r\nx-sum: 7\r\n\r\n"
    );
    assert_eq!(sent_request(request.unwrap()).await, expected);
}

#[tokio::test]
async fn accepts_a_response_before_the_end_of_the_request() {
    let target = TargetServer::start_acceptor(|mut socket| async move {
        if read_head(&mut socket).await.is_some() {
            write_text(&mut socket, "HTTP/1.1 413 Too Large\r\ncontent-length: 5\r\n\r\nlarge").await;
            // Closing with unread input would reset the connection and discard the response.
            let _ = tokio::io::copy(&mut socket, &mut tokio::io::sink()).await;
        }
    })
    .await;
    let shop = ShopClient::new(config_with_protocol(target.url(), ServiceProtocol::Auto));
    for _ in 0..3 {
        let (mut sender, body) = Channel::<Bytes, BodyError>::new(1);
        let upload =
            tokio::spawn(
                async move { while sender.send_data(Bytes::from_static(&[0; 65536])).await.is_ok() {} },
            );
        let response = shop.send(http::Request::post("/").body(body.boxed_unsync()).unwrap()).await.unwrap();
        assert_eq!(response.status(), 413);
        assert_eq!(read_body(response).await, "large");
        upload.await.unwrap();
    }
}

#[tokio::test]
async fn yields_after_each_interim_response_and_accepts_a_bounded_number() {
    const MOST: usize = 64;
    let target = TargetServer::start_acceptor(|mut socket| async move {
        while let Some(asked) = read_head(&mut socket).await {
            let count = if asked.contains("/endless") { MOST + 1 } else { MOST };
            write_text(&mut socket, "HTTP/1.1 102 Processing\r\n\r\n".repeat(count) + SHORT_RESPONSE).await;
        }
    })
    .await;
    let shop = ShopClient::new(config_with_protocol(target.url(), ServiceProtocol::Http1));
    let (mut asking, mut polls) = (pin!(shop.start_get("/slow")), 0);
    let response = poll_fn(|context| {
        polls += 1;
        asking.as_mut().poll(context)
    });
    assert_eq!(read_body(response.await.unwrap()).await, "ok");
    assert!(polls > MOST, "{polls} polls");
    assert_eq!(shop.get_error_code("/endless").await, "upstream-broken");
}

#[tokio::test]
async fn an_incomplete_request_body_does_not_look_complete() {
    let target = TargetServer::start_acceptor(|mut socket| async move {
        let mut all = Vec::new();
        let _ = socket.read_to_end(&mut all).await;
        assert!(!all.ends_with(b"0\r\n\r\n"), "the request looks complete");
    })
    .await;
    let shop = ShopClient::new(config_with_protocol(target.url(), ServiceProtocol::Auto));
    let frames = vec![Ok(Frame::data(Bytes::from("half"))), Err(BodyError::from("gone"))];
    let body = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
    let error = shop.send(http::Request::post("/").body(body).unwrap()).await.unwrap_err();
    assert_eq!(error.code(), "upstream-broken");
}

/// Returns the result of the target's read after a request that is no longer waited for: `Ok(0)` if the
/// gateway closed the connection.
async fn cancelled_read_result(path: &str) -> Result<usize, std::io::ErrorKind> {
    let (tell, mut told) = tokio::sync::mpsc::channel(1);
    let target = TargetServer::start_acceptor(move |mut socket| {
        let tell = tell.clone();
        async move {
            let asked = read_head(&mut socket).await.unwrap_or_default();
            if asked.contains("/answered") {
                write_text(&mut socket, SHORT_RESPONSE).await;
            } else {
                tell.send(Ok(1)).await.unwrap();
            }
            let read = socket.read(&mut [0; 1]).await.map_err(|error| error.kind());
            tell.send(read).await.unwrap();
        }
    })
    .await;
    let shop = ShopClient::new(config_with_protocol(target.url(), ServiceProtocol::Http1));
    tokio::select! {
        answer = shop.get(path) => assert_eq!(answer.unwrap(), "ok"),
        // The request has arrived, and is never answered.
        _ = told.recv() => {}
    }
    drop(shop);
    told.recv().await.unwrap()
}

#[tokio::test]
async fn resets_the_connection_of_a_cancelled_exchange() {
    assert_eq!(cancelled_read_result("/hang").await, Err(std::io::ErrorKind::ConnectionReset));
}

#[tokio::test]
async fn closes_idle_connections_without_a_reset() {
    assert_eq!(cancelled_read_result("/answered").await, Ok(0));
}
