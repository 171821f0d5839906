//! Compression of complete and streamed bodies.

mod dedup;

use std::time::{Duration, Instant};

use offload::{OffloadConfig, OffloadPool, QuotaKey};
use std::io::Read;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::Frame;
use http_body_util::{Channel, StreamBody};
use proptest::prelude::*;
use services::headers::MAX_MEMBERS;

use super::*;

const CODINGS: [ContentCodingKind; 3] =
    [ContentCodingKind::Zstd, ContentCodingKind::Brotli, ContentCodingKind::Gzip];

/// Decodes the readable part of an incomplete encoded text.
fn decode_body(coding: &str, encoded: &[u8]) -> Vec<u8> {
    let mut decoder: Box<dyn Read> = match coding {
        "zstd" => Box::new(zstd::Decoder::new(encoded).unwrap()),
        "br" => Box::new(brotli::Decompressor::new(encoded, 4096)),
        "gzip" => Box::new(flate2::read::GzDecoder::new(encoded)),
        other => panic!("{other} is not a coding"),
    };
    let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(length @ 1..) = decoder.read(&mut buffer) {
        text.extend_from_slice(&buffer[..length]);
    }
    text
}

/// A compressible text.
fn long_text() -> String {
    (0..200).map(|n| format!("{{\"id\":{n},\"title\":\"item\"}}")).collect()
}

fn response_of(kind: &str, text: impl Into<Bytes>) -> Response<StreamedServiceBody> {
    Response::builder().header("content-type", kind).body(body::full(text)).unwrap()
}

fn pool() -> OffloadPool {
    OffloadPool::start(OffloadConfig::default()).unwrap()
}

/// The payer, with this deadline.
fn account(pool: &OffloadPool, time: Option<Duration>) -> DedupAccount<'_> {
    DedupAccount { pool, quota_key: QuotaKey::new(&1), deadline: time.map(|time| Instant::now() + time) }
}

/// The response to a client that accepts these codings.
fn encode_for(accept: &str, response: Response<StreamedServiceBody>) -> Response<StreamedServiceBody> {
    encode_request(Request::get("/").header("accept-encoding", accept), response)
}

fn encode_request(
    request: http::request::Builder,
    response: Response<StreamedServiceBody>,
) -> Response<StreamedServiceBody> {
    encode_with(&EncodingConfigState::without_dedup(None, true), request, response)
}

fn encode_with(
    encoding: &EncodingConfigState,
    request: http::request::Builder,
    response: impl Into<HandlerResponse>,
) -> Response<StreamedServiceBody> {
    let encodings = encoding.accepted_encodings(&request.body(()).unwrap());
    let pool = pool();
    let account = || account(&pool, None);
    poll_to_end(encoding.encode(encodings, account, response.into(), &ClientInfo::for_tests()))
}

/// Polls a future that never waits but may yield.
fn poll_to_end<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    (0..100).find_map(|_| future.as_mut().now_or_never()).unwrap()
}

fn read_body(response: Response<StreamedServiceBody>) -> Bytes {
    poll_to_end(response.into_body().collect()).unwrap().to_bytes()
}

fn header(response: &Response<StreamedServiceBody>, name: &str) -> String {
    let values = response.headers().get_all(name).iter().map(|value| value.to_str().unwrap());
    values.collect::<Vec<_>>().join("; ")
}

#[test]
fn decodes_to_the_same_text_in_every_coding() {
    for (accept, coding) in [("zstd", "zstd"), ("br", "br"), ("x-gzip", "gzip")] {
        let response = encode_for(accept, response_of("application/json", long_text()));
        assert_eq!(
            (header(&response, "content-encoding"), header(&response, "vary")),
            (coding.into(), "accept-encoding".into())
        );
        let encoded = read_body(response);
        assert!(encoded.len() * 4 < long_text().len(), "{coding}: {}", encoded.len());
        assert_eq!(decode_body(coding, &encoded), long_text().as_bytes());
    }
}

#[test]
fn sends_plain_text_with_vary_to_clients_without_codings() {
    let response = encode_request(Request::get("/"), response_of("application/json", long_text()));
    assert_eq!(
        (header(&response, "content-encoding"), header(&response, "vary")),
        (String::new(), "accept-encoding".into())
    );
    assert_eq!(read_body(response), long_text());
}

#[test]
fn leaves_settled_and_incompressible_responses_unchanged() {
    let with = |name: &str, value: &str| {
        let mut response = response_of("application/json", long_text());
        response.headers_mut().insert(http::HeaderName::try_from(name).unwrap(), value.parse().unwrap());
        response
    };
    let status = |status: u16| {
        let mut response = response_of("application/json", long_text());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        response
    };
    for response in [
        with("content-encoding", "gzip"),
        with("content-range", "bytes 0-1/2"),
        with("cache-control", "max-age=1, No-Transform"),
        with("cache-control", &("max-age=1,".repeat(MAX_MEMBERS) + "no-transform")),
        with("repr-digest", "sha-256=:AA==:"),
        with("content-type", "text/event-stream; charset=utf-8"),
        with("content-type", "image/png"),
        with("content-type", "multipart/mixed"),
        status(206),
        status(204),
        response_of("application/json", "{}"),
        response_of("application/json", ""),
        Response::new(body::full(long_text())),
    ] {
        let before = response.headers().clone();
        let response = encode_for("gzip", response);
        assert_eq!(*response.headers(), before);
        let text = read_body(response);
        assert!(text.len() < 3 || text == long_text());
    }
}

#[test]
fn compresses_every_textual_media_type() {
    for kind in [
        "text/html; charset=utf-8",
        "TEXT/css",
        "Application/JSON",
        "application/problem+json",
        "application/vnd.github.v3+JSON ; q",
        "image/svg+xml",
        "application/wasm",
        "application/javascript",
    ] {
        assert_eq!(
            header(&encode_for("br", response_of(kind, long_text())), "content-encoding"),
            "br",
            "{kind}"
        );
    }
}

#[test]
fn sends_incompressible_bodies_plain() {
    let noise: Vec<u8> = (0..4096).map(|_| fastrand::u8(..)).collect();
    for accept in ["zstd", "br", "gzip"] {
        let response = encode_for(accept, response_of("text/plain", noise.clone()));
        assert_eq!(header(&response, "content-encoding"), "");
        assert_eq!(read_body(response), noise);
    }
}

#[test]
fn encoded_response_drops_headers_of_the_plain_bytes() {
    let plain = |kind: &str| {
        let mut response = response_of(kind, long_text());
        for (name, value) in [
            ("etag", "\"v1\""),
            ("accept-ranges", "bytes"),
            ("content-length", "4690"),
            ("vary", "Accept-Encoding"),
        ] {
            response.headers_mut().insert(name, value.parse().unwrap());
        }
        response
    };
    let get = encode_for("gzip", plain("text/html"));
    for (name, expected) in
        [("etag", "W/\"v1\""), ("accept-ranges", ""), ("content-length", ""), ("vary", "Accept-Encoding")]
    {
        assert_eq!(header(&get, name), expected);
    }
    let head = encode_request(Request::head("/").header("accept-encoding", "gzip"), plain("text/html"));
    assert_eq!(head.headers(), get.headers(), "HEAD has the headers of GET");
    assert_eq!(read_body(head), "");
    let untouched = encode_for("gzip", plain("image/png"));
    assert_eq!(header(&untouched, "etag"), "\"v1\"");
}

#[test]
fn not_modified_response_has_the_clients_entity_tag() {
    for (known, named) in
        [("W/\"v1\"", "W/\"v1\""), ("\"v0\", W/\"v1\"", "W/\"v1\""), ("\"v1\"", "\"v1\""), ("*", "\"v1\"")]
    {
        let mut response =
            Response::builder().status(304).header("etag", "\"v1\"").body(body::empty()).unwrap();
        response = encode_request(Request::get("/").header("if-none-match", known), response);
        assert_eq!(header(&response, "etag"), named, "{known}");
    }
}

#[test]
fn not_modified_response_has_the_vary_header() {
    let encoding =
        EncodingConfigState { dedup_enabled: true, ..EncodingConfigState::without_dedup(None, true) };
    let response = Response::builder().status(304).header("vary", "origin").body(body::empty()).unwrap();
    let response = encode_with(&encoding, Request::get("/"), response);
    let said: Vec<&HeaderValue> = response.headers().get_all("vary").iter().collect();
    assert_eq!(said, ["origin", "accept", "accept-encoding"]);
}

#[test]
fn flushes_slow_bodies_as_they_arrive() {
    for coding in CODINGS {
        let (mut send, body) = Channel::<Bytes, services::body::BodyError>::new(4);
        let response = Response::builder().header("content-type", "application/x-ndjson");
        let response = encode_for(coding.name(), response.body(body.boxed_unsync()).unwrap());
        let mut body = pin!(response.into_body());
        let mut context = Context::from_waker(Waker::noop());
        let mut encoded = Vec::new();
        for (index, line) in ["{\"n\":1}\n", "{\"n\":2}\n", "{\"n\":3}\n"].into_iter().enumerate() {
            send.send_data(line.into()).now_or_never().unwrap().unwrap();
            while let Poll::Ready(frame) = body.as_mut().poll_frame(&mut context) {
                encoded.extend_from_slice(&frame.unwrap().unwrap().into_data().unwrap());
            }
            assert_eq!(decode_body(coding.name(), &encoded).len(), 8 * (index + 1), "{}", coding.name());
        }
        drop(send);
    }
}

#[test]
fn yields_while_compressing_long_bodies() {
    let long = vec![b'x'; 4 << 20];
    for coding in CODINGS {
        let mut body = pin!(encode_for(coding.name(), response_of("text/plain", long.clone())).into_body());
        let (mut turns, mut encoded) = (0, Vec::new());
        loop {
            match body.as_mut().poll_frame(&mut Context::from_waker(Waker::noop())) {
                Poll::Pending => turns += 1,
                Poll::Ready(Some(frame)) => encoded.extend_from_slice(&frame.unwrap().into_data().unwrap()),
                Poll::Ready(None) => break,
            }
        }
        assert!(turns >= long.len() / coding.yield_interval() - 1, "{turns}");
        assert_eq!(decode_body(coding.name(), &encoded), long);
    }
}

#[test]
fn turns_end_within_pieces() {
    for coding in CODINGS {
        let pieces: Vec<Bytes> = vec![vec![b'x'; coding.yield_interval() - 1].into(); 16];
        let text = pieces.concat();
        let frames = pieces.into_iter().map(|piece| Ok(Frame::data(piece)));
        let body = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
        let mut collected = pin!(CompressedBody::new(coding, None, None, body, None).collect());
        let mut turns = 1;
        let encoded = loop {
            match collected.as_mut().now_or_never() {
                Some(collected) => break collected.unwrap().to_bytes(),
                None => turns += 1,
            }
        };
        assert_eq!(turns, text.len().div_ceil(coding.yield_interval()), "{}", coding.name());
        assert_eq!(decode_body(coding.name(), &encoded), text);
    }
}

#[test]
fn compression_of_a_long_text_begins_in_a_poll_of_its_own() {
    for coding in CODINGS {
        let long = vec![b'x'; coding.yield_interval() + 1];
        let mut body = pin!(encode_for(coding.name(), response_of("text/plain", long)).into_body());
        let mut poll = || body.as_mut().poll_frame(&mut Context::from_waker(Waker::noop()));
        // The second turn has the last byte.
        assert_eq!([poll(), poll(), poll()].map(|polled| polled.is_ready()), [false, false, true]);
    }
}

#[test]
fn brotli_window_fits_the_text() {
    // The window is at the beginning of the stream (RFC 7932, section 9.1), in up to seven bits.
    for (length, bits, of_window) in [((16 << 10) + 1, 0x71, 15), (1 << 20, 0x01, 17)] {
        let encoded = read_body(encode_for("br", response_of("text/plain", vec![b'x'; length])));
        assert_eq!(encoded[0] & 0x7f, bits, "{length} bytes, 2^{of_window} expected");
    }
}

#[test]
fn compresses_a_short_text_at_once_and_a_longer_one_in_turns() {
    for coding in CODINGS {
        let is_whole = |length: usize| {
            let response = encode_for(coding.name(), response_of("text/plain", vec![b'x'; length]));
            assert_eq!(header(&response, "content-encoding"), coding.name());
            response.body().size_hint().exact().is_some()
        };
        assert!(
            is_whole(coding.yield_interval()) && !is_whole(coding.yield_interval() + 1),
            "{}",
            coding.name()
        );
    }
}

#[test]
fn propagates_errors_of_truncated_bodies() {
    for size in [None, Some(2000)] {
        let frames = [Ok(Frame::data(Bytes::from("x".repeat(1000)))), Err("gone".into())];
        let body = CompressedBody::new(
            ContentCodingKind::Gzip,
            size,
            None,
            StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync(),
            None,
        );
        let read = body.collect().now_or_never().unwrap();
        assert_eq!(read.err().map(|error| error.to_string()).as_deref(), Some("gone"));
    }
}

#[test]
fn sends_trailers_after_the_encoded_body() {
    let trailers =
        http::HeaderMap::from_iter([(http::HeaderName::from_static("x-sum"), "7".parse().unwrap())]);
    let frames = [Ok(Frame::data(Bytes::from("text"))), Ok(Frame::trailers(trailers.clone()))];
    let body = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
    let read = CompressedBody::new(ContentCodingKind::Zstd, None, None, body, None)
        .collect()
        .now_or_never()
        .unwrap()
        .unwrap();
    assert_eq!(read.trailers(), Some(&trailers));
    assert_eq!(decode_body("zstd", &read.to_bytes()), b"text");
}

proptest! {
    #[test]
    fn roundtrips_any_body_in_any_chunks(
        pieces in prop::collection::vec((0..100_000_usize, any::<u8>(), any::<bool>()), 0..8),
        knows in any::<bool>(),
    ) {
        let piece = |(length, byte, random): &(usize, u8, bool)| -> Bytes {
            let mut dice = fastrand::Rng::with_seed(u64::from(*byte));
            (0..*length).map(|_| if *random { dice.u8(..) } else { *byte }).collect()
        };
        let pieces: Vec<Bytes> = pieces.iter().map(piece).collect();
        let text = pieces.concat();
        for coding in CODINGS {
            let frames = pieces.clone().into_iter().map(|piece| Ok(Frame::data(piece)));
            let body = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
            let compressed = CompressedBody::new(coding, knows.then_some(text.len() as u64), None, body, None);
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let encoded = runtime.block_on(compressed.collect()).unwrap().to_bytes();
            prop_assert_eq!(&decode_body(coding.name(), &encoded), &text);
            if let Some(encoded) = coding.encode_whole(&text) {
                prop_assert_eq!(&decode_body(coding.name(), &encoded), &text);
            }
        }
    }
}

#[test]
fn sends_plain_text_above_the_encoder_limit_of_a_connection() {
    // Besides two encoders there is space for the chunk of a plain response.
    let text = Bytes::from(vec![b' '; ContentCodingKind::Gzip.yield_interval() + 1]);
    let client = ClientInfo::with_unsent_limit(2 * ENCODER_MEMORY + 2 * text.len() as u64);
    let (encoding, pool) = (EncodingConfigState::without_dedup(None, true), pool());
    let encode = || {
        let request = Request::get("/").header("accept-encoding", "gzip").body(()).unwrap();
        let response = response_of("application/json", text.clone());
        let account = || account(&pool, None);
        encoding
            .encode(encoding.accepted_encodings(&request), account, response.into(), &client)
            .now_or_never()
            .unwrap()
    };
    let (first, second) = (encode(), encode());
    assert_eq!([&first, &second].map(|answer| header(answer, "content-encoding")), ["gzip", "gzip"]);
    let third = encode();
    assert_eq!(header(&third, "content-encoding"), "");
    assert_eq!(read_body(third), text);
    drop(first);
    assert_eq!(header(&encode(), "content-encoding"), "gzip");
    drop(second);
}
