//! Requests of the gateway itself: responses, limits and errors.

use super::*;
use testkit::misbehaving_upstream;

const HOUR: Duration = Duration::from_secs(3600);

async fn get(url: &str, time: Duration, limit: u64) -> Result<Response<Bytes>, FetchError> {
    let request = Request::get(url).body(Bytes::new()).unwrap();
    GatewayClient::new().unwrap().send(request, time, limit).await
}

#[tokio::test]
async fn sends_a_request_and_returns_the_response() {
    let upstream = misbehaving_upstream::start().await;
    let request = Request::post(format!("{}/echo?a=b", upstream.url()))
        .header("content-type", "application/x-protobuf")
        .body(Bytes::from("spans"))
        .unwrap();
    let answer = GatewayClient::new().unwrap().send(request, HOUR, 1 << 20).await.unwrap();
    let value: serde_json::Value = serde_json::from_slice(answer.body()).unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!((&value["method"], &value["path"]), (&"POST".into(), &"/echo?a=b".into()));
    assert_eq!(value["body"], "spans");
    assert_eq!(value["headers"]["host"], upstream.address().to_string());
    assert_eq!(value["headers"]["content-type"], "application/x-protobuf");
    assert_eq!(value["headers"]["user-agent"], DEFAULT_USER_AGENT);
}

#[tokio::test]
async fn redirects_and_error_statuses_are_responses() {
    let upstream = misbehaving_upstream::start().await;
    for (path, status) in [("/redirect", 302), ("/status/500", 500)] {
        let answer = get(&format!("{}{path}", upstream.url()), HOUR, 1 << 20).await.unwrap();
        assert_eq!(answer.status(), status);
    }
    assert_eq!(upstream.hits("/echo"), 0);
}

#[tokio::test]
async fn limits_the_size_and_time_of_a_response() {
    let upstream = misbehaving_upstream::start().await;
    let large = get(&format!("{}/gigabyte", upstream.url()), HOUR, 1 << 16).await;
    assert!(matches!(large, Err(FetchError::TooLarge(65536))), "{large:?}");
    let short = Duration::from_millis(20);
    for path in ["/hang", "/stall"] {
        let late = get(&format!("{}{path}", upstream.url()), short, 1 << 16).await;
        assert!(matches!(late, Err(FetchError::Timeout(time)) if time == short), "{late:?}");
    }
}

#[tokio::test]
async fn reports_distinct_errors() {
    let upstream = misbehaving_upstream::start().await;
    let broken = get(&format!("{}/reset", upstream.url()), HOUR, 1 << 16).await;
    assert!(matches!(broken, Err(FetchError::Broken(_))), "{broken:?}");
    let nobody = get("http://127.0.0.1:1/", HOUR, 1 << 16).await;
    assert!(matches!(nobody, Err(FetchError::Unreachable(_))), "{nobody:?}");
    for url in ["/keys", "ftp://127.0.0.1/keys", "http://me:secret@127.0.0.1/keys"] {
        let refused = get(url, HOUR, 1 << 16).await;
        assert!(matches!(refused, Err(FetchError::Url(_))), "{url}: {refused:?}");
    }
}
