//! HTTP/2 in clear text: many requests on one connection, trailers, and peers that go away.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use futures_util::future::join_all;
use http::{HeaderMap, Response, Version};
use http_body::Frame;
use http_body_util::StreamBody;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::{Barrier, Notify};

use super::target::Target;
use super::*;
use crate::body::{Error, full};

#[tokio::test]
async fn requests_share_a_connection() {
    let together = Arc::new(Barrier::new(20));
    let waiting = Arc::clone(&together);
    let target = Target::answering(None, move |request| {
        let waiting = Arc::clone(&waiting);
        async move {
            assert_eq!(request.version(), Version::HTTP_2);
            waiting.wait().await;
            Response::new(full(request.uri().authority().unwrap().to_string()))
        }
    })
    .await;
    let shop = Shop::new(at(target.url(), Protocol::Http2));
    // None is answered before all are there: they are under way at once.
    let answers = join_all((0..20).map(|_| shop.get("/"))).await;
    for answer in answers {
        assert_eq!(answer.unwrap(), target.address.to_string());
    }
    let pool = format!("{:?}", shop.0.get("shop").unwrap());
    assert!(pool.contains(", 0, 1)"), "one shared connection: {pool}");
}

#[tokio::test]
async fn trailers_travel_both_ways() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let target = Target::answering(None, |request| async move {
            let te = request.headers().get("te").cloned();
            let body = request.into_body().collect().await.unwrap();
            let mut trailers = body.trailers().cloned().unwrap_or_default();
            trailers.insert("grpc-status", "0".parse().unwrap());
            trailers.extend(te.map(|te| (http::header::HeaderName::from_static("x-te"), te)));
            let frames = vec![Ok::<_, Error>(Frame::data(body.to_bytes())), Ok(Frame::trailers(trailers))];
            Response::builder()
                .header("trailer", "x-sum, grpc-status, x-te")
                .body(StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync())
                .unwrap()
        })
        .await;
        let shop = Shop::new(at(target.url(), protocol));
        let sum = HeaderMap::from_iter([("x-sum".parse().unwrap(), "7".parse().unwrap())]);
        let frames = vec![Ok::<_, Error>(Frame::data(Bytes::from("spans"))), Ok(Frame::trailers(sum))];
        let request = http::Request::post("/")
            .header("te", "gzip, trailers")
            .header("trailer", "x-sum")
            .body(StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync())
            .unwrap();
        let answer = shop.send(request).await.unwrap().into_body().collect().await.unwrap();
        let trailers = answer.trailers().cloned().unwrap_or_default();
        assert_eq!(trailers.get("x-sum").map(|sum| sum.as_bytes()), Some(&b"7"[..]), "{protocol:?}");
        assert_eq!(
            (&trailers["grpc-status"], &trailers["x-te"]),
            (&"0".parse().unwrap(), &"trailers".parse().unwrap())
        );
        assert_eq!(answer.to_bytes(), "spans");
    }
}

#[tokio::test]
async fn a_peer_that_goes_away_is_followed_by_another_connection() {
    let connections: Arc<AtomicUsize> = Arc::default();
    let counting = Arc::clone(&connections);
    let target = Target::accepting(move |socket| {
        counting.fetch_add(1, SeqCst);
        async move {
            let asked = Arc::new(Notify::new());
            let asking = Arc::clone(&asked);
            let service = service_fn(move |_| {
                asking.notify_one();
                async { Ok::<_, Infallible>(Response::new(full("ok"))) }
            });
            let builder = http2::Builder::new(TokioExecutor::new());
            let mut serving = pin!(builder.serve_connection(TokioIo::new(socket), service));
            tokio::select! {
                _ = serving.as_mut() => return,
                () = asked.notified() => serving.as_mut().graceful_shutdown(),
            }
            let _ = serving.await;
        }
    })
    .await;
    let shop = Shop::new(at(target.url(), Protocol::Http2));
    for _ in 0..5 {
        assert_eq!(shop.get("/").await.unwrap(), "ok");
    }
    assert_eq!(connections.load(SeqCst), 5);
}
