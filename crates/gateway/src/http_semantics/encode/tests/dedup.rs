//! Deduplication by content negotiation.

use std::time::Duration;

use ::dedup::decode;
use json::JsonTree;

use super::*;
use crate::http_semantics::client::ClientInfo;

const JSON: &str = "application/vnd.orfa.dedup+json";
const GRAPHQL: &str = "application/graphql-dedup+json;v=1";

fn encoding(dedups: bool) -> EncodingConfigState {
    EncodingConfigState { dedup_enabled: dedups, ..EncodingConfigState::without_dedup(None, true) }
}

/// A list in which every value occurs twenty times.
fn repeated_list() -> String {
    let item = r#"{"id":7,"author":{"login":"grace","name":"Grace Hopper"}}"#;
    format!("[{}]", [item; 20].join(","))
}

fn graphql_data() -> String {
    format!(r#"{{"data":{{"all":{}}}}}"#, repeated_list())
}

fn encode_for(accept: &str, response: impl Into<HandlerResponse>) -> Response<StreamedServiceBody> {
    encode_with(&encoding(true), Request::get("/").header("accept", accept), response)
}

#[track_caller]
fn assert_plain(response: Response<StreamedServiceBody>, text: &str) {
    assert!(!header(&response, "content-type").contains("dedup"));
    assert_eq!(read_body(response), text);
}

#[test]
fn deduplicates_json_on_request() {
    for (accept, kind, text) in [
        (JSON, JSON, repeated_list()),
        ("Application/Vnd.Orfa.Dedup+JSON, application/json;q=0.9", JSON, repeated_list()),
        ("application/vnd.orfa.dedup+json;q=0.5, */*", JSON, repeated_list()),
        (GRAPHQL, GRAPHQL, graphql_data()),
        (
            "application/graphql-dedup+json;v=1, application/graphql-response+json;q=0.9",
            GRAPHQL,
            graphql_data(),
        ),
        ("application/graphql-dedup+json;v=1, application/vnd.orfa.dedup+json", JSON, graphql_data()),
    ] {
        let response = encode_for(accept, response_of("application/json; charset=utf-8", text.clone()));
        assert_eq!(header(&response, "content-type"), kind, "{accept}");
        assert_eq!(header(&response, "vary"), "accept", "it is too short now to be compressed");
        let encoded = read_body(response);
        assert!(encoded.len() * 2 < text.len(), "{accept}: {}", encoded.len());
        assert_eq!(decode(&encoded, 1 << 20).unwrap(), text.as_bytes(), "{accept}");
    }
}

#[test]
fn head_response_has_vary_accept() {
    let head = |length: usize| {
        let response = Response::builder().header("content-type", "application/json");
        let response = response.header("content-length", length).body(body::empty()).unwrap();
        let response = encode_with(&encoding(true), Request::head("/"), response);
        header(&response, "vary").contains("accept")
    };
    assert!(head(1000));
    assert!(!head(100));
}

#[test]
fn prefers_the_graphql_form_for_graphql_responses() {
    let both = format!("{JSON}, {GRAPHQL}");
    let response = encode_for(&both, response_of("application/graphql-response+json", graphql_data()));
    assert_eq!(header(&response, "content-type"), GRAPHQL);
    let mut refused = response_of("application/graphql-response+json", graphql_data());
    *refused.status_mut() = StatusCode::ACCEPTED;
    assert_plain(encode_for(GRAPHQL, refused), &graphql_data());
}

#[test]
fn sends_plain_json_unless_dedup_is_preferred() {
    for accept in [
        "*/*",
        "application/*",
        "application/json, application/vnd.orfa.dedup+json;q=0.9",
        "application/vnd.orfa.dedup+json;q=0",
        "text/x-dedup",
    ] {
        let response = encode_for(accept, response_of("application/json", repeated_list()));
        assert_eq!(header(&response, "vary"), "accept; accept-encoding", "caches have to know");
        assert_plain(response, &repeated_list());
    }
    let off = encode_with(
        &encoding(false),
        Request::get("/").header("accept", JSON),
        response_of("application/json", repeated_list()),
    );
    assert_eq!(header(&off, "vary"), "accept-encoding");
    assert_plain(off, &repeated_list());
}

#[test]
fn leaves_errors_and_other_media_types_unchanged() {
    let status = |status: u16| {
        let mut response = response_of("application/json", repeated_list());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        response
    };
    let mut encoded = response_of("application/json", repeated_list());
    encoded.headers_mut().insert("content-encoding", "br".parse().unwrap());
    for response in [
        response_of("text/plain", repeated_list()),
        response_of("application/vnd.orfa.dedup+json", repeated_list()),
        status(404),
        status(206),
        encoded,
    ] {
        let before = header(&response, "content-type");
        let response = encode_for(JSON, response);
        assert_eq!(header(&response, "content-type"), before);
        assert!(!header(&response, "vary").starts_with("accept;"));
        assert_eq!(read_body(response), repeated_list());
    }
}

#[test]
fn passes_invalid_json_through() {
    let text = repeated_list().replace(']', "");
    assert_plain(encode_for(JSON, response_of("application/json", text.clone())), &text);
    let once = (0..100).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let once = format!("[{once}, [{once}1]]");
    assert_plain(encode_for(JSON, response_of("application/json", once.clone())), &once);
}

#[test]
fn uses_the_attached_tree_without_reading_the_body() {
    let item = JsonTree::Text(r#"{"id":7,"author":{"login":"grace","name":"Grace Hopper"}}"#.into());
    let tree = JsonTree::Array(vec![item; 20].into());
    let never =
        StreamBody::new(futures_util::stream::poll_fn(|_| panic!("the body was polled"))).boxed_unsync();
    let response = Response::builder().header("content-type", "application/json").body(never).unwrap();
    let response = encode_for(JSON, HandlerResponse { json_tree: Some(tree), ..response.into() });
    assert_eq!(header(&response, "content-type"), JSON);
    assert_eq!(decode(&read_body(response), 1 << 20).unwrap(), repeated_list().as_bytes());
}

#[tokio::test]
async fn deduplicated_tree_counts_as_unsent_until_it_is_read() {
    let client = ClientInfo::with_unsent_limit(50 << 10);
    let item = JsonTree::Text(format!(r#"{{"id":7,"text":"{}"}}"#, "x".repeat(30 << 10)).into());
    let tree = JsonTree::Array(vec![item; 2].into());
    let (encoding, pool) = (encoding(true), pool());
    let answer = async || {
        let encodings =
            encoding.accepted_encodings(&Request::get("/").header("accept", JSON).body(()).unwrap());
        let response = Response::builder().header("content-type", "application/json");
        let response = response.body(body::from_pieces(tree.len(), tree.clone().pieces())).unwrap();
        let response = HandlerResponse { json_tree: Some(tree.clone()), ..response.into() };
        let response = encoding.encode(encodings, || account(&pool, None), response, &client).await;
        assert_eq!(header(&response, "content-type"), JSON);
        response.into_body()
    };
    let first = answer().await;
    assert!(answer().await.collect().await.is_err(), "nothing of the first was taken");
    drop(first);
    assert!(answer().await.collect().await.is_ok());
}

#[test]
fn compresses_deduplicated_responses() {
    let request = Request::get("/").header("accept", JSON).header("accept-encoding", "gzip");
    let text: String =
        (0..200).map(|n| format!(r#"{{"n":{n},"of":{}}},"#, &repeated_list()[1..58])).collect();
    let text = format!("[{}]", text.trim_end_matches(','));
    let mut response = response_of("application/json", text.clone());
    response.headers_mut().insert("etag", "\"v1\"".parse().unwrap());
    let response = encode_with(&encoding(true), request, response);
    assert_eq!(header(&response, "content-type"), JSON);
    assert_eq!((&*header(&response, "content-encoding"), &*header(&response, "etag")), ("gzip", "W/\"v1\""));
    let encoded = decode_body("gzip", &read_body(response));
    assert_eq!(decode(&encoded, 1 << 20).unwrap(), text.as_bytes());
}

#[test]
fn offloads_long_responses() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let text = format!("[{}]", [repeated_list().as_str(); 40].join(","));
    let encoding = encoding(true);
    let encodings = encoding.accepted_encodings(&Request::get("/").header("accept", JSON).body(()).unwrap());
    let pool = pool();
    let account = || account(&pool, None);
    let answer = response_of("application/json", text.clone());
    let response =
        runtime.block_on(encoding.encode(encodings, account, answer.into(), &ClientInfo::for_tests()));
    assert_eq!(pool.stats().kinds["dedup"].jobs, 1);
    assert_eq!(decode(&read_body(response), 1 << 20).unwrap(), text.as_bytes());
}

/// The first chunk of a response whose rest follows later.
fn started_response(
    first: String,
) -> (http_body_util::channel::Sender<Bytes, services::body::BodyError>, Response<StreamedServiceBody>) {
    let (mut send, body) = Channel::new(4);
    send.send_data(first.into()).now_or_never().unwrap().unwrap();
    let response = Response::builder().header("content-type", "application/json");
    (send, response.body(body.boxed_unsync()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn passes_slow_responses_through() {
    let (mut send, response) = started_response(repeated_list());
    let encoding = encoding(true);
    let encodings = encoding.accepted_encodings(&Request::get("/").header("accept", JSON).body(()).unwrap());
    let pool = pool();
    let account = || account(&pool, Some(Duration::from_secs(1)));
    let response = encoding.encode(encodings, account, response.into(), &ClientInfo::for_tests()).await;
    send.send_data(" ".into()).await.unwrap();
    drop(send);
    assert_plain(response, &format!("{} ", repeated_list()));
}

#[test]
fn passes_long_responses_through() {
    let text = " ".repeat(9 << 20);
    let (send, response) = started_response(text.clone());
    drop(send);
    let response = encode_for(JSON, response);
    assert_eq!(header(&response, "content-type"), "application/json");
    assert_eq!(read_body(response).len(), text.len());
}

/// Encodes a JSON response of two frames for this client.
async fn encode_in_two_frames(text: &str, client: &ClientInfo) -> Response<StreamedServiceBody> {
    let (first, second) = text.split_at(text.len() / 2);
    let frames = [first, second].map(|part| Ok(Frame::data(Bytes::copy_from_slice(part.as_bytes()))));
    let body = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
    let response = Response::builder().header("content-type", "application/json").body(body).unwrap();
    let (encoding, pool) = (encoding(true), pool());
    let encodings = encoding.accepted_encodings(&Request::get("/").header("accept", JSON).body(()).unwrap());
    encoding.encode(encodings, || account(&pool, None), response.into(), client).await
}

#[tokio::test]
async fn passes_responses_through_above_half_of_the_limit_of_unsent_bytes() {
    let text = format!("[{}]", [repeated_list().as_str(); 40].join(","));
    for (half, kind) in [(text.len(), JSON), (text.len() - 1, "application/json")] {
        let client = ClientInfo::with_unsent_limit(2 * half as u64);
        let response = encode_in_two_frames(&text, &client).await;
        assert_eq!(header(&response, "content-type"), kind);
        let body = read_body(response);
        let plain = if kind == JSON { decode(&body, 1 << 20).unwrap() } else { body.to_vec() };
        assert!(plain == text.as_bytes(), "{kind}");
    }
}

#[tokio::test]
async fn text_that_was_read_counts_as_unsent_until_it_is_dropped() {
    let numbers: Vec<_> = (0..10_000).map(|number| number.to_string()).collect();
    let unrepeated = format!("[{}]", numbers.join(","));
    let repeated = format!("[{}]", [repeated_list().as_str(); 40].join(","));
    let client = ClientInfo::with_unsent_limit(2 * unrepeated.len() as u64);
    let first = encode_in_two_frames(&unrepeated, &client).await;
    assert_eq!(header(&first, "content-type"), "application/json");
    let second = encode_in_two_frames(&repeated, &client).await;
    assert_plain(second, &repeated);
    let mut body = first.into_body();
    let mut last = Bytes::new();
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        last = frame.unwrap().into_data().unwrap();
        length += last.len();
    }
    assert_eq!(length, unrepeated.len());
    drop(body);
    assert_plain(encode_in_two_frames(&repeated, &client).await, &repeated);
    drop(last);
    let third = encode_in_two_frames(&repeated, &client).await;
    assert_eq!(header(&third, "content-type"), JSON);
}

#[test]
fn merges_single_byte_chunks() {
    let text = repeated_list();
    let frames: Vec<_> = text.bytes().map(|byte| Ok(Frame::data(Bytes::from(vec![byte])))).collect();
    let body = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
    let response = Response::builder().header("content-type", "application/json").body(body).unwrap();
    let response = encode_for(JSON, response);
    assert_eq!(header(&response, "content-type"), JSON);
    assert_eq!(decode(&read_body(response), 1 << 20).unwrap(), text.as_bytes());
}

#[test]
fn propagates_errors_of_truncated_responses() {
    let frames = [Ok(Frame::data(Bytes::from(repeated_list()))), Err("gone".into())];
    let body = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
    let response = Response::builder().header("content-type", "application/json").body(body).unwrap();
    let read = encode_for(JSON, response).into_body().collect().now_or_never().unwrap();
    assert_eq!(read.err().map(|error| error.to_string()).as_deref(), Some("gone"));
}
