//! Forwarding of a client's own requests.

use super::*;
use crate::body::{StreamedServiceBody, empty, full};
use crate::headers;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

fn message(
    method: &str,
    uri: &str,
    headers: &[(&str, &str)],
    body: StreamedServiceBody,
) -> http::Request<StreamedServiceBody> {
    let mut builder = http::Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    builder.body(body).unwrap()
}

async fn forward(
    bench: &MisbehavingShop,
    message: http::Request<StreamedServiceBody>,
) -> Result<http::Response<StreamedServiceBody>, CallError> {
    bench.services.forward(&RequestCall::unlimited(), &bench.shop, message, None).await
}

async fn received_request(response: http::Response<StreamedServiceBody>) -> Value {
    serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap()
}

#[tokio::test]
async fn adds_the_headers_of_an_intermediary() {
    let bench =
        start_shop_with(|config| config.headers = BTreeMap::from([("x-api-key".into(), "secret".into())]))
            .await;
    let headers = [
        ("host", "shop.example"),
        ("cookie", "a=b"),
        ("connection", "x-private"),
        ("x-private", "1"),
        ("x-api-key", "guess"),
    ];
    let response = forward(&bench, message("PUT", "/echo?x=1", &headers, full("hello"))).await.unwrap();
    assert_eq!(response.headers()["via"], "1.1 orfa");
    let value = received_request(response).await;
    assert_eq!(
        (&value["method"], &value["path"], &value["body"]),
        (&"PUT".into(), &"/echo?x=1".into(), &"hello".into())
    );
    let headers = &value["headers"];
    assert_eq!(headers["forwarded"], "for=unknown;host=\"shop.example\";proto=http");
    assert_eq!((&headers["via"], &headers["cdn-loop"]), (&"1.1 orfa".into(), &"orfa".into()));
    assert_eq!((&headers["cookie"], &headers["x-api-key"]), (&"a=b".into(), &"secret".into()));
    assert!(headers.get("x-private").is_none());
}

#[tokio::test]
async fn sends_the_services_own_host_unless_another_is_set() {
    let bench = start_shop().await;
    let value = received_request(forward(&bench, message("GET", "/echo", &[], empty())).await.unwrap()).await;
    let (call, renamed) =
        (RequestCall::unlimited(), message("GET", "/echo", &[("host", "shop.example")], empty()));
    let name = "other.example:81".parse().ok();
    let other = bench.services.forward(&call, &bench.shop, renamed, name).await.unwrap();
    let other = received_request(other).await;
    assert!(value["headers"]["host"].as_str().unwrap().starts_with("127.0.0.1:"), "{value}");
    assert_eq!(other["headers"]["host"], "other.example:81");
    assert_eq!(other["headers"]["forwarded"], "for=unknown;host=\"shop.example\";proto=http");
}

#[tokio::test]
async fn bodies_stream_both_ways() {
    let bench = start_shop().await;
    let (mut sender, body) = http_body_util::channel::Channel::<bytes::Bytes, crate::body::BodyError>::new(1);
    let sending = tokio::spawn(async move {
        for part in ["one, ", "two"] {
            sender.send_data(part.into()).await.unwrap();
        }
    });
    let response = forward(&bench, message("POST", "/echo", &[], body.boxed_unsync())).await.unwrap();
    sending.await.unwrap();
    let value = received_request(response).await;
    assert_eq!(
        (&value["body"], &value["headers"]["transfer-encoding"]),
        (&"one, two".into(), &"chunked".into())
    );
    // A streamed gigabyte is never held in memory; dropping the response closes the connection.
    let mut response = forward(&bench, message("GET", "/gigabyte", &[], empty())).await.unwrap();
    assert!(response.body_mut().frame().await.unwrap().is_ok());
    drop(response);
    bench.upstream.wait_for_close("/gigabyte").await;
}

/// Reads a chunked request with its trailers, as the service.
async fn chunked_request(listener: TcpListener) -> String {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") || !text.windows(5).any(|part| part == b"\r\n0\r\n") {
        text.push(stream.read_u8().await.unwrap());
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    String::from_utf8(text).unwrap().to_ascii_lowercase()
}

#[tokio::test]
async fn drops_trailers_that_repeat_the_operators_header() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let bench = start_shop_with(|config| {
        config.url = OneOrMany::One(url);
        config.headers = BTreeMap::from([("x-internal-token".into(), "secret".into())]);
    })
    .await;
    let service = tokio::spawn(chunked_request(listener));
    let trailers = [("x-sum", "7"), ("x-internal-token", "forged"), ("x_internal_token", "forged")];
    let trailers = trailers.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    let frames = vec![
        Ok::<_, crate::body::BodyError>(Frame::data(bytes::Bytes::from("hello"))),
        Ok(Frame::trailers(HeaderMap::from_iter(trailers))),
    ];
    let body = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
    let announced = [("trailer", "X-Internal-Token, x_internal_token, x-sum")];
    forward(&bench, message("POST", "/x", &announced, body)).await.unwrap();
    let seen = service.await.unwrap();
    assert!(seen.contains("x-internal-token: secret\r\n") && seen.ends_with("x-sum: 7\r\n\r\n"), "{seen}");
    assert!(!seen.contains("forged"), "{seen}");
}

#[tokio::test]
async fn passes_on_encoded_responses_unchanged() {
    let bench = start_shop().await;
    let response = forward(&bench, message("GET", "/encoded", &[], empty())).await.unwrap();
    assert_eq!(response.headers()["content-encoding"], "gzip");
}

#[tokio::test]
async fn passes_on_the_failure_of_an_incomplete_response() {
    let bench = start_shop().await;
    let response = forward(&bench, message("GET", "/short", &[], empty())).await.unwrap();
    assert!(response.into_body().collect().await.is_err());
    let error = forward(&bench, message("GET", "/reset", &[], empty())).await.unwrap_err();
    assert_eq!(error.code(), "upstream-broken");
}

#[tokio::test]
async fn permits_encoded_slashes_without_path_rules() {
    let shop = start_shop().await;
    assert!(forward(&shop, message("GET", "/a%2Fb", &[], empty())).await.is_ok());
    let error = forward(&shop, message("GET", "/a%2F..%2Fb", &[], empty())).await.unwrap_err();
    assert_eq!(error.code(), "path-dot-segment");
    let ruled = start_shop_with(|config| config.paths = vec!["/*".into()]).await;
    let error = forward(&ruled, message("GET", "/a%2Fb", &[], empty())).await.unwrap_err();
    assert_eq!(error.code(), "path-encoded-slash");
}

#[tokio::test]
async fn paths_have_to_be_open_without_their_parameters_too() {
    let open = ["/files/*.public", "/tenants/*/public", "/echo/*"].map(str::to_owned);
    let bench = start_shop_with(|config| config.paths = open.into()).await;
    for path in ["/files/secret;.public", "/files/secret%3B.public", "/tenants/;/public"] {
        let sent = bench.services.send(&RequestCall::unlimited(), &bench.shop, request("GET", path)).await;
        assert_eq!(sent.unwrap_err().code(), "path-forbidden", "a program's {path}");
        let error = forward(&bench, message("GET", path, &[], empty())).await.unwrap_err();
        assert_eq!(error.code(), "path-forbidden", "{path}");
    }
    assert_eq!(bench.upstream.connections(), 0);
    for path in ["/files/a.public", "/tenants/a;b/public", "/echo/a;v=1", "/echo/%7b"] {
        assert!(forward(&bench, message("GET", path, &[], empty())).await.is_ok(), "{path}");
    }
}

#[tokio::test]
async fn rejects_a_switch_of_protocols_that_was_not_offered() {
    let bench = start_shop().await;
    let error = forward(&bench, message("GET", "/status/101", &[], empty())).await.unwrap_err();
    assert_eq!(error.code(), "upstream-broken");
}

#[test]
fn forwards_the_largest_head_that_clients_may_send() {
    // As many fields as a client may send, without optional white space: 64 KiB in total.
    let line = "GET / HTTP/1.1\r\n".len();
    let field = (headers::MAX_CALL_HEAD - line) / 100 - "x-a:\r\n".len();
    let mut fields = HeaderMap::new();
    for _ in 0..100 {
        fields.append("x-a", "x".repeat(field).parse().unwrap());
    }
    let check = |fields: &HeaderMap| headers::check_head_size(&http::Method::GET, "/", fields);
    assert_eq!(check(&fields), Ok(()));
    fields.append("x-a", "x".repeat(100).parse().unwrap());
    assert_eq!(check(&fields), Err(headers::HeaderError::TooLarge));
}
