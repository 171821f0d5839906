//! Shapes of responses, and the calls that are made for them.

use http::Request;
use serde_json::json;

use super::fixture::AggregateFixture;
use crate::AggregateLimitsConfig;

const BUYERS: (&str, u16, &str) =
    ("profile/buyers?limit=2", 200, r#"[{"id":1,"name":"Ann"},{"id":2.0,"name":"Bob"}]"#);

/// The declaration of TARGET-EXPERIENCE: rows of one call are joined, and a call for each item runs
/// concurrently.
const TARGET: &str = r#"{
    "input": {"limit": {"type": "integer", "default": 2, "maximum": 100}},
    "parts": {
        "buyers": {"get": "profile/buyers?limit={limit}"},
        "catalogs": {"get": "catalog/catalogs?buyers={$.buyers[*].id}&sort=-created",
                     "join": {"into": "buyers", "on": "id = buyer_id", "as": "catalogs"}, "fields": ["id", "title"]},
        "rating": {"get": "order/buyers/{each.id}/rating", "each": "buyers", "optional": true}
    },
    "response": "buyers"}"#;

#[tokio::test]
async fn joins_rows_and_puts_each_responses_into_items() {
    let fixture = AggregateFixture::new(
        TARGET,
        &[
            BUYERS,
            (
                "catalog/catalogs?buyers=1,2.0&sort=-created",
                200,
                r#"[{"id":9,"buyer_id":2,"title":"x","price":1},{"id":8,"buyer_id":1,"title":"y"},{"id":7,"buyer_id":2,"title":"z"}]"#,
            ),
            ("order/buyers/1/rating", 200, r#"{"stars":4.50}"#),
            ("order/buyers/2.0/rating", 404, r#"{"secret":"the body of an error"}"#),
        ],
    );
    let got = fixture.get("/here").await;
    assert_eq!(got.status, 200);
    assert_eq!(
        got.text,
        concat!(
            r#"[{"id":1,"name":"Ann","catalogs":[{"id":8,"title":"y"}],"rating":{"stars":4.50}},"#,
            r#"{"id":2.0,"name":"Bob","catalogs":[{"id":9,"title":"x"},{"id":7,"title":"z"}],"rating":null}]"#
        )
    );
    assert_eq!(got.headers["orfa-parts"], r#"rating;status=404;code="part-refused""#);
    assert_eq!(got.headers["content-length"], got.text.len().to_string().as_str());
    assert_eq!(fixture.call_lines().len(), 4);
    let mut written = Vec::new();
    got.tree.unwrap().write(&mut written);
    assert_eq!(written, got.text.as_bytes());
}

#[tokio::test]
async fn default_response_contains_all_parts_and_errors() {
    let fixture = AggregateFixture::new(
        r#"{"parts": {
            "n": {"get": "profile/n"}, "text": {"get": "catalog/t"}, "gone": {"get": "order/g", "optional": true},
            "usual": {"get": "order/u", "default": {"stars": 0}}}, "partial": 203}"#,
        &[
            ("profile/n", 200, "12345678901234567890.50"),
            ("catalog/t", 200, r#""\ud800""#),
            ("order/g", 401, "<html>"),
            ("order/u", 500, ""),
        ],
    );
    let got = fixture.get("/here").await;
    assert_eq!(got.status, 203);
    let start = r#"{"n":12345678901234567890.50,"text":"\ud800","gone":null,"usual":{"stars":0},"errors":["#;
    assert!(got.text.starts_with(start), "{}", got.text);
    let known = r#""part":"gone","service":"order","status":401,"code":"part-refused","detail":"the service answered 401 Unauthorized""#;
    assert!(got.text.contains(known) && got.text.contains(r#""status":500"#) && !got.text.contains("html"));
}

#[tokio::test]
async fn omits_errors_without_failures() {
    let fixture = AggregateFixture::new(
        r#"{"parts": {"a": {"get": "profile/a", "optional": true}}}"#,
        &[("profile/a", 200, " [ 1 ] ")],
    );
    let got = fixture.get("/here").await;
    assert_eq!((got.text.as_str(), got.headers.get("orfa-parts")), (r#"{"a":[ 1 ]}"#, None));
}

#[tokio::test]
async fn merges_parts_by_conflict_rule() {
    let merge = |conflict: &str| {
        let text = format!(
            r#"{{"parts": {{"a": {{"get": "profile/a"}}, "b": {{"get": "order/b"}}}},
            "response": {{"merge": ["a", "b"], "conflict": "{conflict}"}}}}"#
        );
        AggregateFixture::new(
            &text,
            &[("profile/a", 200, r#"{"id":1,"x":2}"#), ("order/b", 200, r#"{"\u0069d":3,"y":4}"#)],
        )
    };
    assert_eq!(merge("first").get("/here").await.text, r#"{"id":1,"x":2,"y":4}"#);
    assert_eq!(merge("last").get("/here").await.text, r#"{"\u0069d":3,"x":2,"y":4}"#);
    let (code, status, text) = merge("error").get_problem("/here").await;
    assert_eq!((code, status), ("merge-conflict", 502));
    assert!(text.contains("`a` and `b` both have `id`"), "{text}");
}

#[tokio::test]
async fn encodes_values_for_their_position() {
    let text = r#"{
        "input": {"id": {"type": "string"}, "q": {"type": "string"}, "tags": {"type": "array"}, "tenant": {"type": "string", "in": "header", "name": "x-tenant"}},
        "parts": {"a": {"get": "profile/p/{id}/x?q={q}&tag={tags*}&fixed=a%20b&flag", "headers": {"x-for": "t={tenant}"}}}}"#;
    let answers = [
        ("profile/p/a%3F%26%C3%A9/x?q=1%2B1%3D2&tag=x&tag=y%2Cz&fixed=a%20b&flag", 200, "1"),
        ("profile/p/7/x?fixed=a%20b&flag", 200, "1"),
    ];
    let fixture = AggregateFixture::with_limits("/a/{id}", text, AggregateLimitsConfig::default(), &answers);
    let request =
        Request::get("/a/a%3F%26%C3%A9?q=1%2B1%3D2&tags=x&tags=y%2Cz").header("x-tenant", "acme").body("");
    // A comma separates list items, encoded or not, so the second value becomes two.
    let rig_two = AggregateFixture::with_limits(
        "/a/{id}",
        text,
        AggregateLimitsConfig::default(),
        &[("profile/p/a%3F%26%C3%A9/x?q=1%2B1%3D2&tag=x&tag=y&tag=z&fixed=a%20b&flag", 200, "1")],
    );
    rig_two.send(request.unwrap()).await.unwrap();
    assert_eq!(rig_two.test_service.recorded_calls.lock().unwrap()[0].headers["x-for"], "t=acme");
    // Missing inputs are left out, lists too.
    fixture.get("/a/7").await;
    assert!(!fixture.test_service.recorded_calls.lock().unwrap()[0].headers.contains_key("x-for"));
}

#[tokio::test]
async fn dependent_calls_use_values_of_other_parts() {
    let fixture = AggregateFixture::new(
        r#"{"parts": {
            "order": {"get": "order/orders/1"},
            "posting": {"get": "catalog/catalogs/{$.order.posting.id}", "join": {"into": "order", "on": ".posting.id = id", "one": true}},
            "again": {"get": "catalog/catalogs/{$.order/posting/id}", "fields": {"t": "title", "town": ".at.town"}}},
            "response": ["order", "again"]}"#,
        &[
            ("order/orders/1", 200, r#"{"id":1,"posting":{"id":7}}"#),
            ("catalog/catalogs/7", 200, r#"{"id":7,"title":"x","at":{"town":"Ulm"}}"#),
        ],
    );
    // A single object is not an array of rows.
    let (code, _, text) = fixture.get_problem("/here").await;
    assert_eq!(code, "join-not-array", "{text}");
    assert_eq!(fixture.call_lines(), ["GET order/orders/1", "GET catalog/catalogs/7"]);
}

#[tokio::test]
async fn joins_into_nested_targets_keep_other_members() {
    let fixture = AggregateFixture::new(
        r#"{"parts": {
            "page": {"get": "order/orders"},
            "people": {"get": "profile/people?ids={$.page.items[*].who}", "at": "/rows",
                       "join": {"into": "$.page.items", "on": "who = id", "as": "who", "one": true}},
            "rating": {"get": "order/rating/{each.id}", "each": "$.page.items[*].lines"}},
            "response": "page"}"#,
        &[
            (
                "order/orders",
                200,
                r#"{"total": 2, "items": [{"who":1,"lines":[{"id":"a"},null]},{"who":3,"lines":[]}]}"#,
            ),
            ("profile/people?ids=1,3", 200, r#"{"rows":[{"id":1,"name":"Ann"}]}"#),
            ("order/rating/a", 200, "5"),
        ],
    );
    let got = fixture.get("/here").await;
    assert_eq!(
        got.text,
        r#"{"total":2,"items":[{"lines":[{"id":"a","rating":5},null],"who":{"id":1,"name":"Ann"}},{"lines":[],"who":null}]}"#
    );
}

#[tokio::test]
async fn makes_equal_safe_calls_once() {
    let fixture = AggregateFixture::new(
        r#"{"input": {"ids": {"type": "array", "items": "integer"}}, "parts": {
            "each": {"get": "profile/users/{each}", "each": "ids"}, "one": {"get": "profile/users/7"}}}"#,
        &[("profile/users/7", 200, r#"{"id":7}"#), ("profile/users/8", 200, "8")],
    );
    let got = fixture.get("/here?ids=7,8,7,7").await;
    assert_eq!(got.text, r#"{"each":[{"id":7},8,{"id":7},{"id":7}],"one":{"id":7}}"#);
    assert_eq!(fixture.call_lines().len(), 2);
}

#[tokio::test]
async fn skips_empty_lists_and_splits_long_ones() {
    let text = r#"{"input": {"ids": {"type": "array", "items": "integer"}},
        "parts": {"a": {"get": "profile/a?ids={ids}", "batch": 2}}, "response": "a"}"#;
    let fixture = AggregateFixture::new(
        text,
        &[
            ("profile/a?ids=1,2", 200, "[1, 2]"),
            ("profile/a?ids=3", 200, "[]"),
            ("profile/a?ids=3,4", 200, "[3]"),
            ("profile/a?ids=5", 200, "{}"),
        ],
    );
    assert_eq!(fixture.get("/here?ids=,").await.text, "[]");
    assert!(fixture.call_lines().is_empty());
    assert_eq!(fixture.get("/here?ids=1,2,3").await.text, "[1,2]");
    assert_eq!(fixture.get_problem("/here?ids=3,4,5").await.0, "join-not-array");
}

#[tokio::test]
async fn splits_long_lists_of_each_items() {
    let text = r#"{"parts": {"a": {"get": "profile/a"},
        "b": {"get": "order/b?ids={each.ids[*]}", "each": "a", "batch": 2, "WHEN": 0}}, "response": "a"}"#;
    let items = r#"[{"ids":[1,2,3]},{"ids":[1,2]},{"ids":[]},null,{"ids":[1,2,3]},{"ids":[3,4,5]}]"#;
    let answers = [
        ("profile/a", 200, items),
        ("order/b?ids=1,2", 200, "[1,2]"),
        ("order/b?ids=3", 200, "[3]"),
        ("order/b?ids=3,4", 200, "[3,4]"),
        ("order/b?ids=5", 200, "{}"),
    ];
    let fixture = AggregateFixture::new(&text.replace(r#""WHEN": 0"#, r#""optional": true"#), &answers);
    let got = fixture.get("/here").await;
    assert_eq!(
        got.text,
        r#"[{"ids":[1,2,3],"b":[1,2,3]},{"ids":[1,2],"b":[1,2]},{"ids":[],"b":[]},null,{"ids":[1,2,3],"b":[1,2,3]},{"ids":[3,4,5],"b":null}]"#
    );
    let told = got.headers["orfa-parts"].to_str().unwrap();
    assert_eq!(told, r#"b;status=502;code="join-not-array""#);
    assert_eq!(fixture.call_lines().len(), 5, "equal calls are made once: {:?}", fixture.call_lines());
    let aggregate_fixture = AggregateFixture::new(&text.replace(r#", "WHEN": 0"#, ""), &answers);
    assert_eq!(aggregate_fixture.get_problem("/here").await.0, "join-not-array");

    let ids: Vec<String> = (0..3000).map(|id| (1000 + id).to_string()).collect();
    let items = format!(r#"[{{"ids":[{}]}}]"#, ids.join(","));
    let rig = AggregateFixture::new(
        &text.replace(r#""batch": 2, "WHEN": 0"#, r#""apart": true"#),
        &[("profile/a", 200, &items), ("*", 200, "[1]")],
    );
    rig.get("/here").await;
    let lines = rig.call_lines();
    assert!(lines.len() == 3 && lines.iter().all(|line| line.len() < 8020), "{} calls", lines.len());
}

#[tokio::test]
async fn unsafe_calls_run_after_independent_calls() {
    let fixture = AggregateFixture::with_limits(
        "/b/{id}",
        r#"{"input": {"id": {"type": "integer"}}, "parts": {
            "saved": {"put": "profile/buyers/{id}", "body": {"id": "{id}", "name": "{body.name}", "note": "by {body.by}", "tags": ["{body.missing}"], "gone": "{body.missing}", "rate": 1.0}},
            "old": {"get": "profile/buyers/{id}"}, "after": {"get": "order/x/{$.saved.v}"}}}"#,
        AggregateLimitsConfig::default(),
        &[
            ("PUT profile/buyers/7", 200, r#"{"v":1}"#),
            ("profile/buyers/7", 200, "{}"),
            ("order/x/1", 200, "2"),
        ],
    );
    let put = |body: &'static str| Request::put("/b/7").body(body).unwrap();
    let got = fixture.send(put(r#"{"name": {"first": "A\u0042"}, "by": "me"}"#)).await.unwrap();
    assert_eq!(got.json(), json!({"saved": {"v": 1}, "old": {}, "after": 2}));
    assert_eq!(fixture.call_lines(), ["GET profile/buyers/7", "PUT profile/buyers/7", "GET order/x/1"]);
    let seen = fixture.test_service.recorded_calls.lock().unwrap();
    assert_eq!(
        seen[1].body,
        r#"{"id":7,"name":{"first": "A\u0042"},"note":"by me","tags":[null],"rate":1.0}"#
    );
    assert_eq!(seen[1].headers["content-type"], "application/json");
}

#[tokio::test]
async fn sequential_calls_follow_the_file_order() {
    let fixture = AggregateFixture::new(
        r#"{"sequential": true, "parts": {
            "first": {"post": "order/orders", "body": "{body}"}, "second": {"get": "order/orders"}, "third": {"delete": "order/orders/1"}}}"#,
        &[("POST order/orders", 201, "{}"), ("order/orders", 200, "[]"), ("DELETE order/orders/1", 204, "")],
    );
    let got = fixture.send(Request::post("/here").body("[1]").unwrap()).await.unwrap();
    assert_eq!(got.text, r#"{"first":{},"second":[],"third":null}"#);
    assert_eq!(fixture.call_lines(), ["POST order/orders", "GET order/orders", "DELETE order/orders/1"]);
}

#[tokio::test]
async fn makes_all_equal_unsafe_calls() {
    let fixture = AggregateFixture::new(
        r#"{"sequential": true, "input": {"ids": {"type": "array", "items": "integer"}},
            "parts": {"a": {"post": "order/x", "body": {"n": 1}, "each": "ids"}}}"#,
        &[("POST order/x", 200, "1")],
    );
    let got = fixture.send(Request::post("/here?ids=1,1").body("").unwrap()).await.unwrap();
    assert_eq!((got.text.as_str(), fixture.call_lines().len()), (r#"{"a":[1,1]}"#, 2));
}

#[tokio::test]
async fn head_makes_the_same_calls_and_sets_content_length() {
    let fixture = AggregateFixture::new(
        r#"{"parts": {"a": {"get": "profile/a"}, "there": {"head": "profile/b"}}}"#,
        &[("profile/a", 200, "1"), ("HEAD profile/b", 200, "")],
    );
    let got = fixture.send(Request::head("/here").body("").unwrap()).await.unwrap();
    assert_eq!((got.text.as_str(), &got.headers["content-length"]), ("", &"20".parse().unwrap()));
}
