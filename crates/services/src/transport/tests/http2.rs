//! HTTP/2 in clear text: concurrent requests, trailers, and requests that peers refuse.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use futures_util::future::join_all;
use http::{HeaderMap, Response, Version};
use http_body::Frame;
use http_body_util::StreamBody;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::{Barrier, Notify, Semaphore, mpsc};

use super::target::{TargetServer, write_text};
use super::*;
use crate::body::{BodyError, empty, full};
use crate::config::RetriesConfig;
use crate::transport::MAX_HEAD;
use crate::transport::http2::{MAX_STREAMS, STREAM_WINDOW};
use crate::transport::pool::MAX_SHARED;

#[tokio::test]
async fn requests_share_a_connection() {
    let together = Arc::new(Barrier::new(20));
    let waiting = Arc::clone(&together);
    let target = TargetServer::start_server(None, move |request| {
        let waiting = Arc::clone(&waiting);
        async move {
            assert_eq!(request.version(), Version::HTTP_2);
            waiting.wait().await;
            Response::new(full(request.uri().authority().unwrap().to_string()))
        }
    })
    .await;
    let shop = ShopClient::new(config_with_protocol(target.url(), ServiceProtocol::Http2));
    // All requests are in flight at once, since none is answered before all have arrived.
    let answers = join_all((0..20).map(|_| shop.get("/"))).await;
    for answer in answers {
        assert_eq!(answer.unwrap(), target.address.to_string());
    }
    let pool = format!("{:?}", shop.0.get("shop").unwrap());
    assert!(pool.contains(", 0, 1)"), "one shared connection: {pool}");
}

#[tokio::test]
async fn requests_open_another_connection_whatever_number_of_streams_the_service_permits() {
    let together = Arc::new(Barrier::new(MAX_STREAMS + 1));
    let target = TargetServer::start_acceptor(move |socket| {
        let together = Arc::clone(&together);
        async move {
            let service = service_fn(move |request: http::Request<Incoming>| {
                let together = Arc::clone(&together);
                async move {
                    if request.uri().path() != "/first" {
                        together.wait().await;
                    }
                    Ok::<_, Infallible>(Response::new(full("ok")))
                }
            });
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder.max_concurrent_streams(10_000);
            let _ = builder.serve_connection(TokioIo::new(socket), service).await;
        }
    })
    .await;
    let shop = ShopClient::new(config_with_protocol(target.url(), ServiceProtocol::Http2));
    // The first response arrives behind the settings of the service, and the second request makes hyper read
    // them.
    for _ in 0..2 {
        assert_eq!(shop.get("/first").await.unwrap(), "ok");
    }
    // All requests are in flight at once, since none is answered before all have arrived.
    for answer in join_all((0..=MAX_STREAMS).map(|_| shop.get("/"))).await {
        assert_eq!(answer.unwrap(), "ok");
    }
    let pool = format!("{:?}", shop.0.get("shop").unwrap());
    assert!(pool.contains(", 0, 2)"), "two shared connections: {pool}");
}

#[tokio::test]
async fn requests_wait_at_the_limit_of_shared_connections() {
    // The limit that a client assumes until it has received the peer's settings.
    const REQUESTS_PER_CONNECTION: u32 = 100;
    // Requests are answered once this is closed.
    let gate = Arc::new(Semaphore::new(0));
    let [connections, requests]: [Arc<AtomicUsize>; 2] = Default::default();
    let (closed, opened, begun) = (Arc::clone(&gate), Arc::clone(&connections), Arc::clone(&requests));
    let target = TargetServer::start_acceptor(move |socket| {
        opened.fetch_add(1, SeqCst);
        let (gate, begun) = (Arc::clone(&closed), Arc::clone(&begun));
        async move {
            let service = service_fn(move |_| {
                begun.fetch_add(1, SeqCst);
                let gate = Arc::clone(&gate);
                async move {
                    let _ = gate.acquire().await;
                    Ok::<_, Infallible>(Response::new(full("ok")))
                }
            });
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder.max_concurrent_streams(REQUESTS_PER_CONNECTION);
            let _ = builder.serve_connection(TokioIo::new(socket), service).await;
        }
    })
    .await;
    let shop = ShopClient::new(config_with_protocol(target.url(), ServiceProtocol::Http2));
    let most = MAX_SHARED * REQUESTS_PER_CONNECTION as usize;
    let watch = async {
        while requests.load(SeqCst) < most {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        // Long enough for one more request to arrive, if it could.
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        assert_eq!((connections.load(SeqCst), requests.load(SeqCst)), (MAX_SHARED, most));
        gate.close();
    };
    let (answers, ()) = tokio::join!(join_all((0..=most).map(|_| shop.get("/"))), watch);
    for answer in answers {
        assert_eq!(answer.unwrap(), "ok");
    }
    assert_eq!((connections.load(SeqCst), requests.load(SeqCst)), (MAX_SHARED, most + 1));
    let pool = format!("{:?}", shop.0.get("shop").unwrap());
    assert!(pool.contains(&format!(", 0, {MAX_SHARED})")), "{pool}");
}

#[tokio::test]
async fn forwards_trailers_in_both_directions() {
    for protocol in [ServiceProtocol::Http1, ServiceProtocol::Http2] {
        let target = TargetServer::start_server(None, |request| async move {
            let te = request.headers().get("te").cloned();
            let body = request.into_body().collect().await.unwrap();
            let mut trailers = body.trailers().cloned().unwrap_or_default();
            trailers.insert("grpc-status", "0".parse().unwrap());
            trailers.extend(te.map(|te| (http::header::HeaderName::from_static("x-te"), te)));
            let frames =
                vec![Ok::<_, BodyError>(Frame::data(body.to_bytes())), Ok(Frame::trailers(trailers))];
            Response::builder()
                .header("trailer", "x-sum, grpc-status, x-te")
                .body(StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync())
                .unwrap()
        })
        .await;
        let shop = ShopClient::new(config_with_protocol(target.url(), protocol));
        let sum = HeaderMap::from_iter([("x-sum".parse().unwrap(), "7".parse().unwrap())]);
        let frames = vec![Ok::<_, BodyError>(Frame::data(Bytes::from("spans"))), Ok(Frame::trailers(sum))];
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

/// Starts a target that responds with half a body, and resets the stream with this reason.
async fn start_resetting_target(reason: h2::Reason, length: Option<u64>) -> TargetServer {
    TargetServer::start_acceptor(move |socket| async move {
        let mut connection = h2::server::handshake(socket).await.unwrap();
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            let mut head = Response::new(());
            if let Some(length) = length {
                head.headers_mut().insert("content-length", length.into());
            }
            let mut stream = respond.send_response(head, false).unwrap();
            stream.send_data(Bytes::from("half"), false).unwrap();
            tokio::spawn(async move {
                // The data must leave before the reset, which would overtake it.
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                stream.send_reset(reason);
            });
        }
    })
    .await
}

#[tokio::test]
async fn a_reset_response_does_not_look_complete() {
    for reason in [h2::Reason::CANCEL, h2::Reason::NO_ERROR, h2::Reason::INTERNAL_ERROR] {
        for length in [None, Some(8)] {
            let target = start_resetting_target(reason, length).await;
            let shop = ShopClient::new(config_with_protocol(target.url(), ServiceProtocol::Http2));
            let answer = shop.send(http::Request::get("/").body(empty()).unwrap()).await.unwrap();
            assert!(answer.into_body().collect().await.is_err(), "{reason:?} {length:?}");
        }
    }
}

#[tokio::test]
async fn reconnects_after_goaway() {
    let connections: Arc<AtomicUsize> = Arc::default();
    let counting = Arc::clone(&connections);
    let target = TargetServer::start_acceptor(move |socket| {
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
    let shop = ShopClient::new(config_with_protocol(target.url(), ServiceProtocol::Http2));
    for _ in 0..5 {
        assert_eq!(shop.get("/").await.unwrap(), "ok");
    }
    assert_eq!(connections.load(SeqCst), 5);
}

/// Returns a frame with this header and payload (RFC 9113, section 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const FLOW_CONTROL_ERROR: u32 = 3;
const REFUSED_STREAM: u32 = 7;
const CANCEL: u32 = 8;

/// The frames that a peer sends in response to the request on a stream.
type PeerFrames = fn(u32) -> Vec<u8>;

fn reset_frame(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &code.to_be_bytes())
}

/// Returns a GOAWAY frame with the last stream that the peer has processed.
fn goaway_frame(last: u32) -> Vec<u8> {
    frame(GOAWAY, 0, 0, &[last.to_be_bytes(), [0; 4]].concat())
}

/// Reads the client's preface, and sends the server's.
async fn exchange_prefaces(socket: &mut TcpStream) {
    let _ = socket.read_exact(&mut [0; 24]).await;
    write_text(socket, frame(SETTINGS, 0, 0, &[])).await;
}

/// Reads the next frame: its type, its stream and its payload.
async fn next_frame(socket: &mut TcpStream) -> Option<(u8, u32, Vec<u8>)> {
    let mut head = [0; 9];
    socket.read_exact(&mut head).await.ok()?;
    let [_, high, low, kind, _, stream @ ..] = head;
    let mut payload = vec![0; usize::from(u16::from_be_bytes([high, low]))];
    socket.read_exact(&mut payload).await.ok()?;
    Some((kind, u32::from_be_bytes(stream), payload))
}

/// Starts a target that sends these frames to the first two requests, answers all others, and counts
/// requests.
async fn start_scripted_target(says: PeerFrames) -> (TargetServer, Arc<AtomicUsize>) {
    let seen: Arc<AtomicUsize> = Arc::default();
    let counting = Arc::clone(&seen);
    let target = TargetServer::start_acceptor(move |mut socket| {
        let seen = Arc::clone(&counting);
        async move {
            exchange_prefaces(&mut socket).await;
            while let Some((kind, stream, _)) = next_frame(&mut socket).await {
                if kind == HEADERS {
                    // Index 8 of the static table is status 200 (RFC 7541, appendix A). The flags end the
                    // head and the stream.
                    let answer = || frame(HEADERS, 0b101, stream, &[0x88]);
                    let said = if seen.fetch_add(1, SeqCst) < 2 { says(stream) } else { answer() };
                    write_text(&mut socket, said).await;
                }
            }
        }
    })
    .await;
    (target, seen)
}

/// Returns the status of a POST with this number of retries, or the code of its error.
async fn post(target: &TargetServer, attempts: u32) -> Result<u16, &'static str> {
    let retries = RetriesConfig { attempts, ..RetriesConfig::default() };
    let shop = ShopClient::new(ServiceConfig {
        retries,
        ..config_with_protocol(target.url(), ServiceProtocol::Http2)
    });
    let request = http::Request::post("/").body(empty()).unwrap();
    shop.send(request).await.map(|answer| answer.status().as_u16()).map_err(|error| error.code())
}

#[tokio::test]
async fn retries_refused_requests_even_unsafe_ones_on_the_only_target() {
    let given_back: [PeerFrames; 2] =
        [|stream| reset_frame(stream, REFUSED_STREAM), |stream| goaway_frame(stream - 1)];
    for says in given_back {
        let (target, seen) = start_scripted_target(says).await;
        assert_eq!((post(&target, 2).await, seen.load(SeqCst)), (Ok(200), 3));
        let (target, seen) = start_scripted_target(says).await;
        assert_eq!((post(&target, 1).await, seen.load(SeqCst)), (Err("upstream-unreachable"), 2));
    }
}

#[tokio::test]
async fn does_not_retry_requests_that_may_have_been_processed() {
    let begun: [PeerFrames; 2] = [
        |stream| reset_frame(stream, CANCEL),
        |stream| [goaway_frame(stream), reset_frame(stream, CANCEL)].concat(),
    ];
    for says in begun {
        let (target, seen) = start_scripted_target(says).await;
        assert_eq!((post(&target, 2).await, seen.load(SeqCst)), (Err("upstream-broken"), 1));
    }
}

/// Starts a target that responds with a head of `size` bytes, as counted by HTTP/2 (RFC 9113, section 6.5.2),
/// in a short frame: one header in the client's dynamic table, and references to it.
async fn start_target_with_head(size: usize) -> TargetServer {
    // Name, value and 32 bytes per entry.
    const ENTRY: usize = 1024;
    const STATUS: usize = ":status".len() + "200".len() + 32;
    let last = (size - STATUS) % ENTRY;
    assert!(last >= 33 + 127, "a length of two bytes or more");
    let literal = |prefix: u8, value: usize| {
        // A name of one letter; a length of 127 or more continues in groups of seven bits (RFC 7541, section
        // 5.1).
        let rest = value - 127;
        let length = [0x7f, u8::try_from(rest % 128).unwrap() | 0x80, u8::try_from(rest / 128).unwrap()];
        [&[prefix, 1, b'a'][..], &length, &vec![b'x'; value][..]].concat()
    };
    let repeated = (size - STATUS) / ENTRY;
    // Status 200; a header that enters the table at index 62; references to it; a header that does not enter
    // it.
    let mut block = vec![0x88];
    block.extend(literal(0x40, ENTRY - 33));
    block.extend(vec![0xbe; repeated - 1]);
    block.extend(literal(0, last - 33));
    TargetServer::start_acceptor(move |mut socket| {
        let block = block.clone();
        async move {
            exchange_prefaces(&mut socket).await;
            while let Some((kind, stream, _)) = next_frame(&mut socket).await {
                if kind == HEADERS {
                    write_text(&mut socket, frame(HEADERS, 0b101, stream, &block)).await;
                }
            }
        }
    })
    .await
}

#[tokio::test]
async fn refuses_a_response_with_a_too_large_head() {
    let most = usize::try_from(MAX_HEAD).unwrap() - 1;
    let target = start_target_with_head(most).await;
    let answer = ShopClient::new(config_with_protocol(target.url(), ServiceProtocol::Http2))
        .start_get("/")
        .await
        .unwrap();
    assert_eq!(answer.headers().get_all("a").iter().count(), 64);
    let target = start_target_with_head(most + 1).await;
    assert_eq!(
        ShopClient::new(config_with_protocol(target.url(), ServiceProtocol::Http2)).get_error_code("/").await,
        "upstream-broken"
    );
}

/// Starts a target that sends a body of `size` bytes at once, whatever the client's window. Returns the codes
/// of the client's resets.
async fn start_flooding_target(size: usize) -> (TargetServer, mpsc::UnboundedReceiver<u32>) {
    let (codes, resets) = mpsc::unbounded_channel();
    let target = TargetServer::start_acceptor(move |mut socket| {
        let codes = codes.clone();
        async move {
            exchange_prefaces(&mut socket).await;
            while let Some((kind, stream, payload)) = next_frame(&mut socket).await {
                match (kind, &payload[..]) {
                    // The client's window is in force once its settings are acknowledged.
                    (SETTINGS, [_, ..]) => write_text(&mut socket, frame(SETTINGS, 1, 0, &[])).await,
                    (HEADERS, _) => {
                        write_text(&mut socket, frame(HEADERS, 0b100, stream, &[0x88])).await;
                        let body = vec![b'x'; size];
                        for piece in body.chunks(16 << 10) {
                            write_text(&mut socket, frame(DATA, 0, stream, piece)).await;
                        }
                        write_text(&mut socket, frame(DATA, 1, stream, b"")).await;
                    }
                    (RST_STREAM, code) => {
                        let _ = codes.send(u32::from_be_bytes(code.try_into().unwrap()));
                    }
                    _ => {}
                }
            }
        }
    })
    .await;
    (target, resets)
}

#[tokio::test]
async fn refuses_an_unread_body_beyond_the_window() {
    let window = usize::try_from(STREAM_WINDOW).unwrap();
    let (target, _resets) = start_flooding_target(window).await;
    let shop = ShopClient::new(config_with_protocol(target.url(), ServiceProtocol::Http2));
    assert_eq!(shop.get("/").await.unwrap().len(), window);
    let (target, mut resets) = start_flooding_target(window + 1).await;
    let shop = ShopClient::new(config_with_protocol(target.url(), ServiceProtocol::Http2));
    let answer = shop.start_get("/").await.unwrap();
    assert_eq!(resets.recv().await, Some(FLOW_CONTROL_ERROR));
    assert!(answer.into_body().collect().await.is_err());
}
