//! Tests of the cache headers of responses to GET requests (RFC 9111; RFC 9110, 12.5.5).

use http::header::{CACHE_CONTROL, VARY};

use super::*;

/// Returns `Cache-Control` and `Vary` of the response to a query by GET.
async fn query_cache_headers(route: &GraphqlRoute, caller: services::CallerId) -> (String, Vec<String>) {
    get_cache_headers(route, "/?query=%7Bitem%7Bname%7D%7D", caller).await
}

/// Returns `Cache-Control` and `Vary` of the response to a GET of this URL.
async fn get_cache_headers(
    route: &GraphqlRoute,
    uri: &str,
    caller: services::CallerId,
) -> (String, Vec<String>) {
    let request = Request::get(uri).header(ACCEPT, "application/json").body(services::body::empty());
    let call = RequestCall { caller, ..RequestCall::unlimited() };
    let answer = route.handle(HandlerRequest::new(request.expect("a request"), call)).await;
    let answer = answer.unwrap_or_else(|_| panic!("no answer")).response;
    let control = answer.headers().get(CACHE_CONTROL).map_or("", |value| value.to_str().unwrap()).to_owned();
    let vary = answer.headers().get_all(VARY).iter().map(|value| value.to_str().unwrap().to_owned());
    (control, vary.collect())
}

#[tokio::test]
async fn responses_are_private_unless_the_services_declare_them_public() {
    let forward = r#","forward":["cookie"]"#;
    let fixture = ShopFixture::with_config(&[("POST /graphql", 200, ITEM_RESPONSE)], forward, false).await;
    for config in [r#"{"services":["shop"]}"#, r#"{"services":["shop"],"coalesce":{"operations":true}}"#] {
        let route = new_route(&fixture, config);
        for (said, expected) in [
            ("", "private"),
            ("private, max-age=60", "private"),
            ("no-store", "no-store"),
            ("public, max-age=60", "public, max-age=60"),
        ] {
            *fixture.responses.cache_control.lock().unwrap() = said;
            let (control, vary) = query_cache_headers(&route, services::CallerId::Anonymous).await;
            assert_eq!((control.as_str(), vary), (expected, vec!["accept".to_owned(), "cookie".to_owned()]));
        }
        assert_eq!(query_cache_headers(&route, services::CallerId::Named("ann".into())).await.0, "private");
    }
}

#[tokio::test]
async fn coalesced_responses_have_the_same_cache_control() {
    let fixture = ShopFixture::new(&[("POST /graphql", 200, ITEM_RESPONSE)]).await;
    *fixture.responses.cache_control.lock().unwrap() = "no-store";
    let route = new_route(&fixture, r#"{"services":["shop"],"coalesce":{"operations":true}}"#);
    fixture.responses.gate.forget_permits(usize::MAX);
    let mut first = query_cache_headers(&route, services::CallerId::Anonymous).boxed();
    while fixture.request_lines().is_empty() {
        assert!((&mut first).now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    let mut second = query_cache_headers(&route, services::CallerId::Anonymous).boxed();
    assert!((&mut second).now_or_never().is_none());
    fixture.responses.gate.add_permits(1);
    let (first, second) = tokio::join!(first, second);
    assert_eq!((first.0.as_str(), second.0.as_str()), ("no-store", "no-store"));
}

#[tokio::test]
async fn responses_with_errors_are_not_stored_by_caches() {
    let fixture = ShopFixture::new(&[("POST /graphql", 200, r#"{"data":{"item":{"name":[1]}}}"#)]).await;
    *fixture.responses.cache_control.lock().unwrap() = "public, max-age=60";
    let route = new_route(&fixture, r#"{"services":["shop"],"introspection":"off"}"#);
    let persisted = format!("%7B%22version%22:1,%22sha256Hash%22:%22{}%22%7D", "0".repeat(64));
    for uri in [
        "/?operationName=a".to_owned(),
        "/?documentId=a".to_owned(),
        format!("/?extensions=%7B%22persistedQuery%22:{persisted}%7D"),
        "/?query=%7B".to_owned(),
        "/?query=%7Bnothing%7D".to_owned(),
        "/?query=%7B__schema%7BqueryType%7Bname%7D%7D%7D".to_owned(),
        "/?query=query($a:Boolean!)%7Bitem%7Bname@include(if:$a)%7D%7D&variables=%7B%22a%22:1%7D".to_owned(),
        "/?query=%7Bitem%7Bname%7D%7D".to_owned(),
    ] {
        for caller in [services::CallerId::Anonymous, services::CallerId::Named("ann".into())] {
            assert_eq!(get_cache_headers(&route, &uri, caller).await.0, "no-store", "{uri}");
        }
    }
    let (control, _) =
        get_cache_headers(&route, "/?query=%7B__typename%7D", services::CallerId::Anonymous).await;
    assert_eq!(control, "");
}
