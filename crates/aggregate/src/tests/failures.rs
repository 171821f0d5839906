//! Faulty services and invalid requests.

use std::time::Duration;

use handler::HandlerRequest;
use http::Request;
use http_body_util::BodyExt;
use services::RequestCall;

use super::fixture::AggregateFixture;
use crate::AggregateLimitsConfig;

const TWO_PARTS: &str = r#"{"parts": {"a": {"get": "profile/a"}, "b": {"get": "order/b", "each": "a"}}}"#;

#[tokio::test]
async fn failed_required_part_fails_the_request_without_leaking_its_body() {
    for (status, body, code, answered) in [
        (401, "secret", "part-refused", 401),
        (404, "secret", "part-refused", 404),
        (500, "secret", "part-status", 502),
        (503, "secret", "part-status", 502),
        (302, "secret", "part-status", 502),
        (200, "<html>secret</html>", "part-not-json", 502),
        (200, r#"[{"secret": 1}"#, "part-not-json", 502),
        (200, "", "part-not-json", 502),
    ] {
        let fixture = AggregateFixture::new(
            r#"{"parts": {"a": {"get": "profile/a"}}}"#,
            &[("profile/a", status, body)],
        );
        let (found, sent, text) = fixture.get_problem("/here").await;
        assert_eq!((found, sent), (code, answered), "{text}");
        assert!(text.contains("the part `a` of service `profile`") && !text.contains("secret"), "{text}");
    }
}

#[tokio::test]
async fn no_content_is_null() {
    let fixture = AggregateFixture::new(
        r#"{"parts": {"a": {"get": "profile/a"}}, "response": "a"}"#,
        &[("profile/a", 204, "")],
    );
    assert_eq!(fixture.get("/here").await.text, "null");
}

#[tokio::test]
async fn each_over_a_non_array_reports_its_kind() {
    for (text, known) in [("{}", "an object"), ("7", "a number"), (r#""x""#, "a string")] {
        let (code, status, told) =
            AggregateFixture::new(TWO_PARTS, &[("profile/a", 200, text)]).get_problem("/here").await;
        assert_eq!((code, status), ("each-not-array", 502));
        assert!(told.contains(known), "{told}");
    }
    let deep = r#"{"parts": {"a": {"get": "profile/a"}, "b": {"get": "order/b?x={$.a.list[*].id}"}}}"#;
    assert_eq!(
        AggregateFixture::new(deep, &[("profile/a", 200, "{}")]).get_problem("/here").await.0,
        "each-not-array"
    );
}

#[tokio::test]
async fn reports_missing_and_invalid_placeholder_values() {
    let text = r#"{"parts": {"a": {"get": "profile/a"}, "b": {"get": "order/b/{$.a.id}"}}}"#;
    for (answer, code) in [
        ("{}", "value-missing"),
        (r#"{"id":null}"#, "value-missing"),
        (r#"{"id":[1]}"#, "value-kind"),
        (r#"{"id":".."}"#, "value-path"),
        (r#"{"id":"..;x"}"#, "value-path"),
        (r#"{"id":"a/b"}"#, "value-path"),
        (r#"{"id":""}"#, "value-path"),
    ] {
        let (found, status, told) =
            AggregateFixture::new(text, &[("profile/a", 200, answer)]).get_problem("/here").await;
        assert_eq!((found, status), (code, 502), "{answer}: {told}");
    }
}

#[tokio::test]
async fn rejects_path_traversal_in_inputs() {
    let text = r#"{"input": {"id": {"type": "string", "required": true}}, "parts": {"a": {"get": "profile/a/{id}"}}}"#;
    for id in ["..", ".", "", "%2e%2e", "a%2Fb", "a%5Cb", "a%0Ab", "..;x", ".%3B", "%252e%252e", "a%252f.."] {
        let (code, status, told) =
            AggregateFixture::new(text, &[]).get_problem(&format!("/here?id={id}")).await;
        assert_eq!((code, status), ("input-invalid", 400), "{id}: {told}");
    }
    assert_eq!(AggregateFixture::new(text, &[]).get_problem("/here").await.0, "input-missing");
    let list = r#"{"input": {"ids": {"type": "array", "required": true}}, "parts": {"a": {"get": "profile/a/{ids}"}}}"#;
    let each = r#"{"input": {"ids": {"type": "array"}}, "parts": {"a": {"get": "profile/a/{each}", "each": "ids"}}}"#;
    for ids in ["..", "a,..", "a,a%2Fb", "%2e", "a%5Cb", "a%0Ab", "a,..;x"] {
        for text in [list, each] {
            let (code, status, told) =
                AggregateFixture::new(text, &[]).get_problem(&format!("/here?ids={ids}")).await;
            assert_eq!((code, status), ("input-invalid", 400), "{ids}: {told}");
        }
    }
}

#[tokio::test]
async fn rejects_values_that_cannot_begin_a_path() {
    let text = r#"{"input": {"id": {"type": "string", "required": true}}, "parts": {"a": {"get": "profile/{id}/a"}}}"#;
    for id in [";x", "%20", "%253b"] {
        let (code, status, told) =
            AggregateFixture::new(text, &[]).get_problem(&format!("/here?id={id}")).await;
        assert_eq!((code, status), ("input-invalid", 400), "{id}: {told}");
    }
    let text = r#"{"parts": {"a": {"get": "profile/a"}, "b": {"get": "order/{$.a.id}/b"}}}"#;
    let (code, status, _) =
        AggregateFixture::new(text, &[("profile/a", 200, r#"{"id":";x"}"#)]).get_problem("/here").await;
    assert_eq!((code, status), ("value-path", 502));
}

#[tokio::test]
async fn rejects_invalid_list_values_as_path_segments() {
    let text = r#"{"parts": {"a": {"get": "profile/a"}, "b": {"delete": "order/b/{$.a[*].id}"}}}"#;
    for id in ["", "..", "a/b"] {
        let fixture = AggregateFixture::new(text, &[("profile/a", 200, &format!(r#"[{{"id":"{id}"}}]"#))]);
        let request = Request::delete("/here").body("").unwrap();
        assert_eq!(fixture.send(request).await.err().unwrap().code(), "value-path", "{id}");
        assert_eq!(fixture.call_lines(), ["GET profile/a"]);
    }
}

#[tokio::test]
async fn unsendable_client_values_are_client_errors() {
    let text = r#"{"input": {"t": {"type": "string"}, "h": {"type": "string", "in": "header", "required": true}}, "parts": {"a": {
        "post": "profile/{body.path}?x={body.x}&h={h}", "headers": {"x-t": "{t}", "x-u": "a{body.u}"}, "body": {"n": "a{body.x}b"}}}}"#;
    for (target, header, body, code, parameter) in [
        ("/here?t=a%0d%0aHost:%20b", "a", r#"{"path":"p","x":1}"#, "input-invalid", "`t`"),
        ("/here?t=%00", "a", r#"{"path":"p","x":1}"#, "input-invalid", "`t`"),
        ("/here?t=%ff", "a", r#"{"path":"p","x":1}"#, "input-invalid", "`t`"),
        ("/here", "caf\u{e9}", r#"{"path":"p","x":1}"#, "input-invalid", "`h`"),
        ("/here", "a", r#"{"path":"..","x":1}"#, "body-invalid", "`body.path`"),
        ("/here", "a", r#"{"path":"..;x","x":1}"#, "body-invalid", "`body.path`"),
        ("/here", "a", r#"{"path":["p"],"x":1}"#, "body-invalid", "`body.path`"),
        ("/here", "a", r#"{"path":"p","x":{}}"#, "body-invalid", "`body.x`"),
        ("/here", "a", r#"{"path":"p","x":"\ud800"}"#, "body-invalid", "`body.x`"),
        ("/here", "a", r#"{"path":"p","x":1,"u":"a\r\nb"}"#, "body-invalid", "`body.u`"),
    ] {
        let fixture = AggregateFixture::new(text, &[]);
        let header: Vec<u8> = header.chars().map(|letter| letter as u8).collect();
        let request = Request::post(target).header("h", header).body(body).unwrap();
        let problem = fixture.send(request).await.err().unwrap();
        assert_eq!((problem.code(), problem.status().as_u16()), (code, 400), "{body}: {problem}");
        assert!(problem.to_string().contains(parameter) && fixture.call_lines().is_empty(), "{problem}");
    }
    let path = r#"{"input": {"id": {"type": "string"}}, "parts": {"a": {"get": "profile/{id}"}}}"#;
    let aggregate_fixture = AggregateFixture::with_limits(
        "/here/{id}",
        path,
        AggregateLimitsConfig::default(),
        &[("profile/caf%C3%A9", 200, "1")],
    );
    let (code, status, _) = aggregate_fixture.get_problem("/here/%ff").await;
    assert_eq!((code, status), ("input-invalid", 400));
    assert_eq!(aggregate_fixture.get("/here/caf%c3%a9").await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_arrive_is_refused_at_the_deadline() {
    let fixture =
        AggregateFixture::new(r#"{"parts": {"a": {"post": "profile/a", "body": {"n": "{body.n}"}}}}"#, &[]);
    let (mut sender, body) =
        http_body_util::channel::Channel::<bytes::Bytes, services::body::BodyError>::new(1);
    sender.send_data(r#"{"n":"#.into()).await.unwrap();
    let request = Request::post("/here").body(body.boxed_unsync()).unwrap();
    let answer = fixture.aggregate.handle(HandlerRequest::new(request, RequestCall::unlimited()));
    let answer = tokio::time::timeout(Duration::from_secs(60), answer).await.expect("a response");
    let problem = answer.err().unwrap();
    assert_eq!((problem.code(), problem.status().as_u16()), ("limit-deadline", 422));
    assert!(fixture.call_lines().is_empty());
}

#[tokio::test]
async fn never_replaces_unpaired_surrogates() {
    let text = r#"{"parts": {"a": {"get": "profile/a"}, "b": {"get": "order/b?ids={$.a[*].id}", "headers": {"x-one": "{$.a[0].h}"}}}}"#;
    for answer in
        [r#"[{"id":"\ud800"},{"id":"\ud801"}]"#, r#"[{"id":1,"h":"\udc00"}]"#, r#"[{"id":1,"h":"a\nb"}]"#]
    {
        let (code, status, told) =
            AggregateFixture::new(text, &[("profile/a", 200, answer)]).get_problem("/here").await;
        assert_eq!((code, status), ("value-kind", 502), "{told}");
    }
}

#[tokio::test(start_paused = true)]
async fn parts_time_out() {
    let fixture = AggregateFixture::new(
        r#"{"parts": {"a": {"get": "profile/a", "timeout": "50ms", "optional": true}}}"#,
        &[("profile/a", 0, "never")],
    );
    assert_eq!(fixture.get("/here").await.json()["errors"][0]["code"], "part-timeout");
    let aggregate_fixture = AggregateFixture::new(
        r#"{"parts": {"a": {"get": "profile/a", "timeout": "50ms"}}}"#,
        &[("profile/a", 0, "never")],
    );
    let (code, status, _) = aggregate_fixture.get_problem("/here").await;
    assert_eq!((code, status), ("part-timeout", 504));
}

#[tokio::test]
async fn enforces_limits_on_calls_fan_out_and_bytes() {
    let limits = AggregateLimitsConfig {
        fan_out: 2,
        calls: 2,
        upstream_bytes: services::BytesConfig(100),
        ..AggregateLimitsConfig::default()
    };
    let each = r#"{"input": {"ids": {"type": "array", "items": "integer"}}, "parts": {"a": {"get": "profile/{each}", "each": "ids"}, "b": {"get": "order/b"}}}"#;
    let long = "1".repeat(101);
    let answers = [("profile/1", 200, "1"), ("profile/2", 200, "2"), ("order/b", 200, "3")];
    let rig = |answers: &[(&str, u16, &str)]| AggregateFixture::with_limits("/here", each, limits, answers);
    assert_eq!(rig(&answers).get("/here?ids=1,1").await.text, r#"{"a":[1,1],"b":3}"#);
    assert_eq!(rig(&answers).get_problem("/here?ids=1,2,3").await.0, "each-too-many");
    assert_eq!(rig(&answers).get_problem("/here?ids=1,2").await.0, "part-calls");
    assert_eq!(
        rig(&[("profile/1", 200, "1"), ("order/b", 200, &long)]).get_problem("/here?ids=1").await.0,
        "part-received"
    );
}

#[tokio::test]
async fn partial_each_failures_list_their_items() {
    let text = r#"{"parts": {"a": {"get": "profile/a"}, "b": {"get": "order/{each.id}", "each": "a", "default": {"none": true}}}}"#;
    let fixture = AggregateFixture::new(
        text,
        &[
            ("profile/a", 200, r#"[{"id":1},{},{"id":2},null,{"id":2}]"#),
            ("order/1", 200, "1"),
            ("order/2", 404, ""),
        ],
    );
    let got = fixture.get("/here").await;
    assert!(
        got.text.starts_with(
            r#"{"a":[{"id":1,"b":1},{"b":null},{"id":2,"b":{"none":true}},null,{"id":2,"b":{"none":true}}]"#
        ),
        "{}",
        got.text
    );
    assert_eq!(got.json()["errors"][0]["items"], serde_json::json!([1, 2, 4]));
}

#[tokio::test]
async fn dependents_of_a_failed_part_fail_or_use_its_default() {
    let text = r#"{"parts": {"a": {"get": "profile/a", "DEFAULT": 0}, "b": {"get": "order/{$.a.id}", "optional": true}}}"#;
    let text = |with: &str| text.replace(r#""DEFAULT": 0"#, with);
    let answers = [("profile/a", 500, ""), ("order/7", 200, "7")];
    let got = AggregateFixture::new(&text(r#""optional": true"#), &answers).get("/here").await.json();
    assert_eq!(got["errors"][1]["code"], "value-missing");
    let got = AggregateFixture::new(&text(r#""default": {"id": 7}"#), &answers).get("/here").await.json();
    assert_eq!((&got["b"], got["errors"].as_array().unwrap().len()), (&7.into(), 1));
}

#[tokio::test]
async fn rejects_invalid_methods_and_bodies_before_any_call() {
    let fixture = AggregateFixture::with_limits(
        "/here",
        r#"{"parts": {"a": {"post": "profile/a/{body.id}", "body": "{body}"}}}"#,
        AggregateLimitsConfig { request_body: services::BytesConfig(20), ..AggregateLimitsConfig::default() },
        &[],
    );
    let post = |body: &'static str| Request::post("/here").body(body).unwrap();
    for (request, code, status) in [
        (Request::get("/here").body("").unwrap(), "method-not-allowed", 405),
        (post(""), "body-not-json", 400),
        (post("{\"id\":"), "body-not-json", 400),
        (post("{}"), "body-lacks", 400),
        (post(r#"{"id":"0123456789012345"}"#), "body-too-large", 413),
    ] {
        let problem = fixture.send(request).await.err().unwrap();
        assert_eq!((problem.code(), problem.status().as_u16()), (code, status));
    }
    assert!(fixture.call_lines().is_empty());
}

#[tokio::test]
async fn rejects_ambiguous_json_bodies_before_any_call() {
    let text = r#"{"sequential": true, "parts": {"may": {"get": "profile/auth/{body.account}"},
        "done": {"post": "order/x", "body": "{body}"}}}"#;
    let fixture =
        AggregateFixture::new(text, &[("profile/auth/mine", 200, "{}"), ("POST order/x", 200, "{}")]);
    for (body, known) in [
        (
            r#"{"account":"mine","account":"victim"}"#,
            "`body` must have each name once, and not `account` twice",
        ),
        (r#"{"account":"mine","acc\u006funt":"victim"}"#, "not `account` twice"),
        (r#"{"account":"mine","of":[{"a":1,"b":2,"a":3}]}"#, "`body.of[0]` must have each name once"),
        (r#"{"account":"mine","note":"\ud800"}"#, "`body.note` must have no half of a surrogate pair"),
    ] {
        let problem = fixture.send(Request::post("/here").body(body).unwrap()).await.err().unwrap();
        assert_eq!((problem.code(), problem.status().as_u16()), ("body-invalid", 400), "{body}");
        assert!(problem.to_string().contains(known), "{problem}");
    }
    assert!(fixture.call_lines().is_empty());
    let body = r#"{"account":"mine","of":[{"account":1},{"account":2}]}"#;
    assert_eq!(fixture.send(Request::post("/here").body(body).unwrap()).await.unwrap().status, 200);
}

#[tokio::test]
async fn preserves_numbers_names_and_surrogates() {
    let text = r#"{"a":9007199254740993,"a":1e400,"__proto__":{"s":"\udc00"}}"#;
    let fixture = AggregateFixture::new(
        r#"{"parts": {"x": {"get": "profile/a"}, "y": {"get": "profile/a", "fields": ["a", "__proto__"]}}}"#,
        &[("profile/a", 200, text)],
    );
    let got = fixture.get("/here").await;
    assert_eq!(
        got.text,
        format!(r#"{{"x":{text},"y":{{"a":9007199254740993,"__proto__":{{"s":"\udc00"}}}}}}"#)
    );
}
