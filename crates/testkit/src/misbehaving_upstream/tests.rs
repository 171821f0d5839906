//! Tests of each kind of misbehaviour with the raw client.

use crate::http::{HeldConnection, request, send_raw};

async fn get(path: &str) -> String {
    let upstream = super::start().await;
    send_raw(upstream.address(), format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap()
}

#[tokio::test]
async fn answers_correctly_on_well_behaved_paths() {
    let upstream = super::start().await;
    let mut connection = HeldConnection::open(&upstream.url()).await.unwrap();
    let echo = connection.request("POST", "/echo?a=1", &[("x-a", "b")], "hello").await.unwrap().json();
    assert_eq!((&echo["method"], &echo["path"]), (&"POST".into(), &"/echo?a=1".into()));
    assert_eq!((&echo["headers"]["x-a"], &echo["body"]), (&"b".into(), &"hello".into()));
    let list = connection.request("GET", "/json?n=3", &[], "").await.unwrap().json();
    assert_eq!(list.as_array().map(Vec::len), Some(3));
    assert!(list[0].get("text").is_none());
    let texts = connection.request("GET", "/json?n=1&text=5", &[], "").await.unwrap().json();
    assert_eq!(texts[0]["text"], "xxxxx");
    let teapot = connection.request("GET", "/status/418", &[], "").await.unwrap();
    assert_eq!(teapot.status, 418);
    assert_eq!((upstream.connections(), upstream.hits("/echo")), (1, 1));
}

#[tokio::test]
async fn sends_malformed_responses() {
    assert!(get("/short").await.contains("content-length: 100"));
    assert!(get("/chunked-broken").await.ends_with("XYZ\r\n"));
    assert!(!get("/garbage").await.starts_with("HTTP"));
    assert_eq!(get("/reset").await, "");
}

#[tokio::test]
async fn notices_a_peer_that_disconnects() {
    let upstream = super::start().await;
    for path in ["/hang", "/stall", "/gigabyte"] {
        let url = format!("{}{path}", upstream.url());
        let call =
            tokio::spawn(async move { request("GET", &url, &[], "").await.map(|answer| answer.status) });
        upstream.wait_for_request(path).await;
        call.abort();
        upstream.wait_for_close(path).await;
    }
}
