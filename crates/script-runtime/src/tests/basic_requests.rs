//! Requests and responses without state.

use http::Request;
use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use http_body_util::BodyExt;
use script::HandlerMethod::{Get, Post, Put};
use services::body;

use super::fixture::{FixtureSettings, ScriptFixture, default_settings, handwritten_service};

async fn start_service() -> ScriptFixture {
    handwritten_service()
        .resource("/hello")
        .stateless(Get, "function (query, response, $r) { $r.respond('hello ' + query.name); }")
        .stateless(Put, "function (query, response, $r) { }")
        .resource("/json")
        .stateless(Get, "function (query, response, $r) { $r.respond({query, method: query.$method, path: query.$path}); }")
        .stateless(Post, "function (query, response, $r) { $r.respond({query, agent: query.$headers['user-agent']}); }")
        .resource("/go")
        .stateless(Get, "function (query, response, $r) { $r.answer(302, {Location: '/hello?name=you'}); }")
        .start()
        .await
}

#[tokio::test]
async fn a_handler_responds_to_a_request() {
    let fixture = start_service().await;
    assert_eq!(fixture.get("/hello?name=w%C3%B6rld").await, "hello wörld");
    assert_eq!(
        fixture.request("PUT", "/hello").await,
        (204, String::new()),
        "rule 12: no response was given"
    );
}

#[tokio::test]
async fn rule_14_a_handler_gets_parameters_headers_and_the_members_of_a_json_body() {
    let fixture = start_service().await;
    let value = fixture.json("/json?a=1&b=2&b=3").await;
    assert_eq!(value["query"], serde_json::json!({"a": "1", "b": ["2", "3"]}));
    assert_eq!((value["method"].as_str(), value["path"].as_str()), (Some("GET"), Some("/json")));
    let (status, text) = fixture.request_with_json("POST", "/json?a=1", r#"{"a": 2, "n": 3}"#).await;
    assert_eq!((status, text.contains(r#""n":3"#), text.contains(r#""a":"1""#)), (200, true, true), "{text}");
    assert_eq!(fixture.request_with_json("POST", "/json", "{").await, (400, "body-not-json".into()));
}

#[tokio::test]
async fn rule_22_unknown_paths_are_404_and_other_methods_are_405_with_the_allowed_ones() {
    let fixture = start_service().await;
    assert_eq!(fixture.request("GET", "/nothing").await, (404, "resource-not-found".into()));
    for method in ["DELETE", "TRACE", "PROPFIND"] {
        let request = Request::builder().method(method).uri("/hello").body(body::empty()).expect("a request");
        let problem = fixture.send(request).await.expect_err("a problem");
        assert_eq!((problem.status().as_u16(), problem.code()), (405, "resource-method"));
        assert_eq!(problem.headers()[ALLOW], "GET, HEAD, PUT, OPTIONS");
    }
    let request = Request::options("/hello").body(body::empty()).expect("a request");
    let response = fixture.send(request).await.expect("an answer");
    assert_eq!(
        (response.status().as_u16(), &response.headers()[ALLOW]),
        (204, &"GET, HEAD, PUT, OPTIONS".parse().expect("a value"))
    );
}

#[tokio::test]
async fn rule_22_head_is_get_without_a_body() {
    let fixture = start_service().await;
    let request = Request::head("/hello?name=you").body(body::empty()).expect("a request");
    let response = fixture.send(request).await.expect("an answer");
    assert_eq!(response.headers()[CONTENT_LENGTH], "9");
    assert_eq!(response.headers()[CONTENT_TYPE], "text/plain; charset=utf-8");
}

#[tokio::test]
async fn rule_22_paths_and_locations_are_relative_to_the_mount_path() {
    let go = "function (query, response, $r) { $r.answer(302, {Location: query.$path}); }";
    let fixture = handwritten_service()
        .resource("/go")
        .stateless(Get, go)
        .start_with(FixtureSettings { path: "/shop/*", ..default_settings() })
        .await;
    let request = Request::get("/shop/go").body(body::empty()).expect("a request");
    let response = fixture.send(request).await.expect("an answer");
    assert_eq!(
        (response.status().as_u16(), &response.headers()[LOCATION]),
        (302, &"/shop/go".parse().expect("a value"))
    );
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_refused_at_the_deadline() {
    let mut wish = default_settings();
    wish.options.limits.timeout = services::DurationConfig::from_millis(500);
    let fixture =
        handwritten_service().resource("/").stateless(Put, "function () { }").start_with(wish).await;
    fixture.wait_ready().await;
    let (_sender, body) = http_body_util::channel::Channel::<bytes::Bytes, body::BodyError>::new(1);
    let request = Request::put("/").body(body.boxed_unsync()).expect("a request");
    let problem = fixture.send(request).await.expect_err("a problem");
    assert_eq!((problem.status().as_u16(), problem.code()), (422, "limit-deadline"));
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let mut wish = default_settings();
    wish.options.limits.request_body = services::BytesConfig(8);
    let fixture =
        handwritten_service().resource("/").stateless(Put, "function () { }").start_with(wish).await;
    assert_eq!(fixture.request_with_json("PUT", "/", "\"12345\"").await.0, 204);
    assert_eq!(fixture.request_with_json("PUT", "/", "\"1234567\"").await, (413, "body-too-large".into()));
}
