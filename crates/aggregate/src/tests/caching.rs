//! Caching headers of composed responses (RFC 9111; RFC 9110, 12.5.5).

use handler::HandlerRequest;
use http::Request;
use services::{CallerId, RequestCall};

use super::fixture::{AggregateFixture, ReceivedResponse};

const TEXT: &str = r#"{"input": {"tone": {"type": "string", "in": "header", "name": "x-tone"}}, "parts": {"a": {"get": "profile/a"},
    "b": {"get": "catalog/b?tone={tone}", "optional": true}}}"#;

fn cache_headers(got: &ReceivedResponse) -> (String, Vec<String>) {
    let control = got.headers.get("cache-control").map_or("", |value| value.to_str().unwrap()).to_owned();
    let vary = got.headers.get_all("vary").iter().flat_map(|value| value.to_str().unwrap().split(','));
    (control, vary.map(|name| name.trim().to_owned()).collect())
}

#[tokio::test]
async fn responses_with_a_non_public_part_are_private() {
    for (one, other, expected) in [
        ("public, max-age=60", "public, max-age=30", "public, max-age=30"),
        ("public, max-age=60", "private", "private"),
        ("public, max-age=60", "no-store", "no-store"),
        ("public, max-age=60", "max-age=60", "private"),
        ("no-cache", "public", "private, no-cache"),
    ] {
        let fixture = AggregateFixture::new(TEXT, &[]);
        fixture.set_cacheable_response("profile/a", one, "1");
        fixture.set_cacheable_response("catalog/b", other, "2");
        let (control, vary) = cache_headers(&fixture.get("/here").await);
        assert_eq!(control, expected, "{one}; {other}");
        assert_eq!(vary, ["cookie", "accept-language", "x-tone"]);
    }
}

#[tokio::test]
async fn responses_to_identified_callers_are_private() {
    let fixture = AggregateFixture::new(TEXT, &[]);
    fixture.set_cacheable_response("profile/a", "public, max-age=60", "1");
    fixture.set_cacheable_response("catalog/b", "public, max-age=30", "2");
    for (caller, expected) in [
        (CallerId::Anonymous, "public, max-age=30"),
        (CallerId::Named("ann".into()), "private"),
        (CallerId::Subject("ann".into()), "private"),
    ] {
        let request = Request::get("/here").body(services::body::empty()).unwrap();
        let call = RequestCall { caller: caller.clone(), ..RequestCall::unlimited() };
        let answer = fixture.aggregate.handle(HandlerRequest::new(request, call)).await;
        let answer = answer.unwrap_or_else(|problem| panic!("{problem}"));
        assert_eq!(answer.response.headers()["cache-control"], expected, "{caller:?}");
    }
}

#[tokio::test]
async fn parts_without_caching_headers_or_failed_parts_are_not_shared() {
    let fixture = AggregateFixture::new(TEXT, &[("profile/a", 200, "1"), ("catalog/b", 200, "2")]);
    assert_eq!(cache_headers(&fixture.get("/here").await).0, "private");
    let aggregate_fixture = AggregateFixture::new(
        &TEXT.replace("\"optional\": true", "\"optional\": true, \"timeout\": \"20ms\""),
        &[("profile/a", 200, "1"), ("catalog/b", 0, "never")],
    );
    aggregate_fixture.set_cacheable_response("profile/a", "public, max-age=60", "1");
    assert_eq!(cache_headers(&aggregate_fixture.get("/here").await).0, "no-store");
}

#[tokio::test]
async fn streamed_parts_set_caching_headers() {
    let fixture = AggregateFixture::new(r#"{"parts": {"a": {"get": "profile/a"}}, "response": "a"}"#, &[]);
    fixture.set_cacheable_response("profile/a", "private", &format!("[{}1]", "1,".repeat(200_000)));
    assert_eq!(cache_headers(&fixture.get("/here").await).0, "private");
}
