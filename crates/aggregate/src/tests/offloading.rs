//! Steps that take long run in the pool, even if the texts are short: `offload::work` counts values, too.

use futures_util::FutureExt;
use handler::HandlerRequest;
use http::Request;
use json::JsonTree;
use services::RequestCall;

use super::fixture::{AggregateFixture, TestServiceResponse};
use super::hostile::repeated_array;

/// Each of these takes long from some thousands of values on.
const VALUES: usize = 5_000;

/// Returns a list of different numbers.
fn numbers(count: usize) -> String {
    let numbers: Vec<String> = (0..count).map(|number| number.to_string()).collect();
    format!("[{}]", numbers.join(","))
}

/// Returns an object with many members.
fn object(prefix: &str, count: usize) -> String {
    let members: Vec<String> = (0..count).map(|number| format!("\"{prefix}{number}\":1")).collect();
    format!("{{{}}}", members.join(","))
}

/// Sends a request whose result does not matter, and returns how often it moved to the pool.
async fn offload_count(text: &str, target: &str, answers: &[(&str, u16, &str)]) -> u64 {
    let fixture = AggregateFixture::new(text, answers);
    let _ = fixture.send(Request::get(target).body("").unwrap()).await;
    fixture.job_count("aggregate")
}

#[tokio::test]
async fn short_responses_that_arrive_together_leave_the_serving_thread() {
    for (count, leaves) in [(1, false), (8, true)] {
        let parts: Vec<String> =
            (0..count).map(|part| format!("\"p{part}\": {{\"get\": \"profile/{part}\"}}")).collect();
        let fixture = AggregateFixture::new(&format!("{{\"parts\": {{{}}}}}", parts.join(",")), &[]);
        let mut senders: Vec<_> =
            (0..count).map(|part| fixture.open_response_channel(&format!("profile/{part}"))).collect();
        let request = Request::get("/here").body(services::body::empty()).unwrap();
        let mut handling = fixture.aggregate.handle(HandlerRequest::new(request, RequestCall::unlimited()));
        while fixture.test_service.recorded_calls.lock().unwrap().len() < count {
            assert!((&mut handling).now_or_never().is_none());
            tokio::task::yield_now().await;
        }
        for sender in &mut senders {
            sender.send_data(format!("\"{}\"", "x".repeat(100 << 10)).into()).await.unwrap();
        }
        drop(senders);
        assert!(handling.await.is_ok());
        assert_eq!(fixture.job_count("aggregate") > 0, leaves, "{count} responses");
    }
}

#[tokio::test]
async fn names_in_the_clients_body_are_checked_in_the_pool() {
    for (count, leaves) in [(10, false), (10_000, true)] {
        let text = r#"{"parts": {"a": {"post": "profile/a", "body": "{body}"}}}"#;
        let fixture = AggregateFixture::new(text, &[("POST profile/a", 200, "1")]);
        let body = repeated_array(r#"{"":1}"#, count);
        fixture.send(Request::post("/here").body(&*body).unwrap()).await.unwrap();
        assert_eq!(fixture.job_count("aggregate") > 0, leaves, "{count} objects");
    }
}

#[tokio::test]
async fn requests_with_many_values_are_rendered_in_the_pool() {
    let list = r#"{"parts": {"a": {"get": "profile/a"}, "b": {"get": "order/b?ids={$.a[*]}"}}}"#;
    for (count, leaves) in [(500, false), (VALUES, true)] {
        let answers = [("profile/a", 200, &*numbers(count)), ("*", 200, "[1]")];
        assert_eq!(offload_count(list, "/here", &answers).await > 0, leaves, "{count} values");
    }
    // Each of many requests contains a long value beside its own.
    let batches = r#"{"input": {"ids": {"type": "array"}}, "parts": {"t": {"get": "profile/t"},
        "a": {"get": "order/a?ids={ids}", "batch": 1, "headers": {"x-t": "{$.t}"}}}}"#;
    let text = format!("\"{}\"", "x".repeat(1_000));
    for (count, leaves) in [(2, false), (300, true)] {
        let ids: Vec<String> = (0..count).map(|id| id.to_string()).collect();
        let target = format!("/here?ids={}", ids.join(","));
        let answers = [("profile/t", 200, &*text), ("*", 200, "[1]")];
        assert_eq!(offload_count(batches, &target, &answers).await > 0, leaves, "{count} requests");
    }
}

#[tokio::test]
async fn items_of_an_each_are_listed_and_rendered_in_the_pool() {
    // The last item is an error, which ends the request before it would leave for another reason.
    let nested =
        r#"{"parts": {"a": {"get": "profile/a"}, "b": {"get": "order/b/{each}", "each": "$.a[*].x[*]"}}}"#;
    let lists = r#"{"parts": {"a": {"get": "profile/a"},
        "b": {"get": "order/b?ids={each.ids[*]}", "each": "a", "apart": true}}}"#;
    for (count, leaves) in [(10, false), (VALUES, true)] {
        let items = format!("[{}]", vec![r#"{"x":[]}"#; count].join(",") + r#",{"x":7}"#);
        let answers = [("profile/a", 200, &*items)];
        assert_eq!(offload_count(nested, "/here", &answers).await > 0, leaves, "{count} items");
        let items = format!("[{{\"ids\":{}}}]", repeated_array("7", count));
        let answers = [("profile/a", 200, &*items), ("*", 200, "[1]")];
        assert_eq!(offload_count(lists, "/here", &answers).await > 0, leaves, "an item of {count} values");
    }
}

#[tokio::test]
async fn a_list_of_repeated_responses_is_built_in_the_pool() {
    // The last part ends the request before it would leave for another reason.
    let text = r#"{"parts": {"a": {"get": "profile/a"}, "b": {"get": "order/{each}", "each": "a", "apart": true},
        "c": {"get": "catalog/c?id={$.b[0].id}"}}}"#;
    let long = format!("{{\"id\":1,\"text\":\"{}\"}}", "x".repeat(10_000));
    for (count, leaves) in [(2, false), (100, true)] {
        let items = repeated_array("7", count);
        let answers = [("profile/a", 200, &*items), ("order/7", 200, &*long), ("catalog/c?id=1", 500, "")];
        assert_eq!(offload_count(text, "/here", &answers).await > 0, leaves, "{count} items");
    }
}

#[tokio::test]
async fn many_values_are_composed_in_the_pool() {
    let fields = r#"{"parts": {"a": {"get": "profile/a", "fields": ["id"]}}}"#;
    let join = r#"{"parts": {"a": {"get": "profile/a"},
        "b": {"get": "order/b", "join": {"into": "a", "on": "id = id"}}}}"#;
    let keys = r#"{"parts": {"a": {"get": "profile/a"},
        "b": {"get": "order/b", "join": {"into": "a", "on": "ids[*] = id"}}}}"#;
    let merge = r#"{"parts": {"a": {"get": "profile/a"}, "b": {"get": "order/b"}}, "response": {"merge": ["a", "b"]}}"#;
    for (count, leaves) in [(10, false), (VALUES, true)] {
        let objects = repeated_array(r#"{"id":1}"#, count);
        let item = format!("[{{\"ids\":{}}}]", repeated_array("1", count / 10));
        let rows = repeated_array(r#"{"id":1}"#, count / 10);
        let (one, other) = (object("a", count), object("b", count));
        for (text, a, b) in [
            (fields, &*objects, ""),
            (join, &*objects, "[]"),
            (keys, &*item, &*rows),
            (merge, &*one, &*other),
        ] {
            let answers = [("profile/a", 200, a), ("order/b", 200, b)];
            assert_eq!(offload_count(text, "/here", &answers).await > 0, leaves, "{count} values: {text}");
        }
    }
}

#[tokio::test]
async fn a_tree_of_many_values_is_written_before_it_is_sent() {
    let text = r#"{"parts": {"a": {"get": "profile/a", "fields": ["id"]}}, "response": "a"}"#;
    for (count, is_written) in [(2_000, false), (10_000, true)] {
        let items = repeated_array("{}", count);
        let fixture = AggregateFixture::new(text, &[("profile/a", 200, &items)]);
        let response = fixture.start_request("/here").await;
        let is_text = matches!(response.json_tree, Some(JsonTree::Text(_)));
        assert_eq!(is_text, is_written, "{count} values");
        let held = response.held_bytes;
        assert_eq!(held == items.len() as u64, is_written, "{held} bytes");
        assert_eq!(fixture.get("/here").await.text, items);
    }
}

#[tokio::test]
async fn encoded_responses_of_parts_that_stream_are_decoded_in_the_pool() {
    let fixture = AggregateFixture::new(r#"{"parts": {"a": {"get": "profile/a"}}}"#, &[]);
    // An empty text.
    let encoded = TestServiceResponse::Encoded("br", &[0x06]);
    fixture.test_service.answers.lock().unwrap().insert("GET profile/a".to_owned(), encoded);
    assert_eq!(fixture.get_problem("/here").await.0, "part-not-json");
    assert_eq!(fixture.job_count("decompress"), 1);
}
