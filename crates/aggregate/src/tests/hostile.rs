//! Services with excessive responses: requests stay within their limits, and fail before the response is
//! built.

use super::fixture::AggregateFixture;
use crate::AggregateLimitsConfig;

/// Returns the text of an array that repeats an item.
pub(super) fn repeated_array(item: &str, count: usize) -> String {
    format!("[{}]", vec![item; count].join(","))
}

/// Returns the text of nested arrays whose index is longer than the text.
fn nested_arrays(texts: usize) -> String {
    repeated_array(&format!("{}\"{}\"{}", "[".repeat(1000), "x".repeat(64), "]".repeat(1000)), texts)
}

fn memory_limits(memory: u64, response_body: u64) -> AggregateLimitsConfig {
    let (memory, response_body) = (services::BytesConfig(memory), services::BytesConfig(response_body));
    AggregateLimitsConfig { memory, response_body, ..AggregateLimitsConfig::default() }
}

async fn response_code(text: &str, limits: AggregateLimitsConfig, answers: &[(&str, u16, &str)]) -> String {
    let fixture = AggregateFixture::with_limits("/here", text, limits, answers);
    let request = http::Request::get("/here").body("").unwrap();
    match fixture.send(request).await {
        Ok(got) => format!("{} of {} bytes", got.status, got.text.len()),
        Err(problem) => problem.code().to_owned(),
    }
}

#[tokio::test]
async fn reports_memory_held_by_a_response() {
    let item = format!(r#"{{"id":1,"name":"{}","more":"{}"}}"#, "n".repeat(100), "m".repeat(1_000));
    let fields = r#"{"parts": {"a": {"get": "profile/a", "fields": ["id", "name"]}}, "response": "a"}"#;
    let held = async |text: &str, count: usize| {
        let items = repeated_array(&item, count);
        let fixture = AggregateFixture::new(text, &[("profile/a", 200, &items)]);
        let held = fixture.start_request("/here").await.held_bytes;
        (held, items.len() as u64)
    };
    let (shaped, text) = held(fields, 1_000).await;
    let tree = 1_000 * size_of::<json::JsonTree>() as u64;
    assert!(shaped >= text + tree, "{shaped} of {text} bytes");
    assert_eq!(held(fields, 1).await.0, 0, "a short answer is copied");
    let long = r#"{"parts": {"a": {"get": "profile/a"}}, "response": "a"}"#;
    assert_eq!(held(long, 1_000).await.0, 0, "a long part is handed on");
}

#[tokio::test]
async fn allows_items_at_the_maximum_json_depth() {
    let each = r#"{"parts": {"a": {"get": "profile/a"},
        "b": {"get": "order/b/{each.id}", "each": "a", "optional": true}}, "response": "a"}"#;
    let nested = "[".repeat(json::DEPTH) + &"]".repeat(json::DEPTH);
    let fixture = AggregateFixture::new(each, &[("profile/a", 200, &nested)]);
    assert_eq!(fixture.get("/here").await.text, nested);
}

#[tokio::test]
async fn each_stops_rendering_at_the_fan_out_limit() {
    let text =
        r#"{"parts": {"a": {"get": "profile/a"}, "b": {"get": "order/{each}", "each": "a", "apart": true}}}"#;
    let ids: Vec<String> = (0..201).map(|id| id.to_string()).chain([r#""..""#.to_owned()]).collect();
    let fixture = AggregateFixture::with_limits(
        "/here",
        text,
        AggregateLimitsConfig::default(),
        &[("profile/a", 200, &format!("[{}]", ids.join(",")))],
    );
    assert_eq!(fixture.get_problem("/here").await.0, "each-too-many", "the last item must not be rendered");
    assert_eq!(fixture.test_service.recorded_calls.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn renders_equal_items_once() {
    let text = r#"{"parts": {"a": {"get": "profile/a"}, "b": {"get": "order/{each}", "each": "a", "apart": true}}, "response": "b"}"#;
    let answers = [("profile/a", 200, &*repeated_array("7", 100_000)), ("order/7", 200, "1")];
    assert_eq!(response_code(text, AggregateLimitsConfig::default(), &answers).await, "200 of 200001 bytes");
}

/// Returns the lowest memory limit, within 4 KiB, with which a request succeeds.
async fn least_memory(text: &str, answers: &[(&str, u16, &str)]) -> u64 {
    let (mut refused, mut allowed) = (0, 4 << 20);
    while allowed - refused > 4 << 10 {
        let memory = u64::midpoint(refused, allowed);
        match response_code(text, memory_limits(memory, 64 << 20), answers).await.starts_with("200") {
            true => allowed = memory,
            false => refused = memory,
        }
    }
    allowed
}

#[tokio::test]
async fn keys_of_items_are_freed_before_the_responses_arrive() {
    let declared = |headers: &str| {
        format!(
            r#"{{"parts": {{"a": {{"get": "profile/a"}},
                "b": {{"get": "order/b?id={{each}}", "each": "a", "apart": true{headers}}},
                "c": {{"get": "catalog/c?id={{$.b[0].id}}"}}}}, "response": "c"}}"#
        )
    };
    let items: Vec<String> = (0..100).map(|number| format!("\"{number:0>2000}\"")).collect();
    let (items, key_bytes) = (format!("[{}]", items.join(",")), 100 * 2_000);
    let response = format!("{{\"id\":1,\"text\":\"{}\"}}", "x".repeat(3_000));
    let answers = [("profile/a", 200, &*items), ("*", 200, &*response)];
    // Requests that differ in more than the URL need no keys.
    let without_keys = least_memory(&declared(r#", "headers": {"x-id": "{each}"}"#), &answers).await;
    let with_keys = least_memory(&declared(""), &answers).await;
    assert!(without_keys > key_bytes && with_keys < 4 << 20, "{without_keys} and {with_keys} bytes");
    assert!(with_keys < without_keys + key_bytes / 2, "{without_keys} and {with_keys} bytes");
}

#[tokio::test]
async fn merges_objects_with_many_members() {
    // Comparing all names with each other would take many times as long as the deadline.
    const MEMBERS: usize = 100_000;
    let members =
        |from: usize| (from..from + MEMBERS).map(|n| format!("\"m{n}\":1")).collect::<Vec<_>>().join(",");
    let text = r#"{"parts": {"a": {"get": "profile/a"}, "b": {"get": "order/b"}}, "response": {"merge": ["a", "b"], "conflict": "first"}}"#;
    let (one, other) = (format!("{{{}}}", members(0)), format!("{{{}}}", members(MEMBERS / 2)));
    let limits = AggregateLimitsConfig {
        timeout: services::DurationConfig::from_secs(30),
        ..memory_limits(1 << 30, 64 << 20)
    };
    let fixture = AggregateFixture::with_limits(
        "/here",
        text,
        limits,
        &[("profile/a", 200, &one), ("order/b", 200, &other)],
    );
    let merged = fixture.get("/here").await;
    assert!(fixture.job_count("aggregate") > 0, "serving threads do not merge");
    assert_eq!(merged.json().as_object().unwrap().len(), MEMBERS + MEMBERS / 2);
}

#[tokio::test]
async fn enforces_the_memory_limit_on_lists_of_small_items() {
    let joined = r#"{"parts": {"a": {"get": "profile/a"}, "b": {"get": "order/b", "join": {"into": "a", "on": "id = id"}}}}"#;
    let each = r#"{"parts": {"a": {"get": "profile/a"}, "b": {"get": "order/{each.id}", "each": "a", "apart": true}}, "response": "b"}"#;
    let fields = r#"{"parts": {"a": {"get": "profile/a", "fields": ["id"]}}}"#;
    let merged = r#"{"parts": {"a": {"get": "profile/a"}, "b": {"get": "order/b"}}, "response": {"merge": ["a", "b"]}}"#;
    let (empty, nulls) = (repeated_array("{}", 20_000), repeated_array("null", 20_000));
    let object = format!("{{{}}}", (0..20_000).map(|n| format!("\"{n}\":1")).collect::<Vec<_>>().join(","));
    for (text, a, refused) in [
        (joined, &empty, "aggregate-memory"),
        (each, &nulls, "part-memory"),
        (fields, &empty, "aggregate-memory"),
        (merged, &object, "aggregate-memory"),
    ] {
        let answers = [("profile/a", 200, &**a), ("order/b", 200, "[]")];
        let answers = if text == merged { [answers[0], ("order/b", 200, "{}")] } else { answers };
        let with = |memory| response_code(text, memory_limits(memory, 64 << 20), &answers);
        assert_eq!(with(300_000).await, refused, "{text}");
        assert!(with(64 << 20).await.starts_with("200"), "{text}");
    }
}

#[tokio::test]
async fn charges_json_indexes_to_the_memory_limit() {
    let text = r#"{"parts": {"a": {"get": "profile/a"}}}"#;
    let (nested, optional) =
        (nested_arrays(20), r#"{"parts": {"a": {"get": "profile/a", "optional": true}}}"#);
    let answers = [("profile/a", 200, &*nested)];
    assert_eq!(response_code(text, memory_limits(200_000, 64 << 20), &answers).await, "part-memory");
    assert!(response_code(text, memory_limits(1 << 20, 64 << 20), &answers).await.starts_with("200"));
    assert!(response_code(optional, memory_limits(200_000, 64 << 20), &answers).await.starts_with("200"));
}

#[tokio::test]
async fn repeated_each_responses_are_bounded_by_the_limits() {
    let text = r#"{"parts": {"a": {"get": "profile/a"}, "b": {"get": "order/{each}", "each": "a", "apart": true},
        "c": {"get": "catalog/c?ids={$.b[*].id}"}}}"#;
    let long = format!("{{\"id\":1,\"text\":\"{}\"}}", "x".repeat(10_000));
    let answers = [
        ("profile/a", 200, &*repeated_array("7", 1000)),
        ("order/7", 200, &*long),
        ("catalog/c?ids=1", 200, "1"),
    ];
    assert_eq!(response_code(text, memory_limits(1 << 20, 64 << 20), &answers).await, "part-memory");
    assert_eq!(
        response_code(text, memory_limits(64 << 20, 1 << 20), &answers).await,
        "aggregate-answer-too-large"
    );
}

#[tokio::test]
async fn shared_rows_are_bounded_by_the_response_limit() {
    let text = r#"{"parts": {"a": {"get": "profile/a"}, "b": {"get": "order/b", "join": {"into": "a", "on": "id = id"}}}}"#;
    let row = format!("{{\"id\":1,\"text\":\"{}\"}}", "x".repeat(1000));
    let answers = [
        ("profile/a", 200, &*repeated_array(r#"{"id":1}"#, 10_000)),
        ("order/b", 200, &*repeated_array(&row, 1000)),
    ];
    assert_eq!(
        response_code(text, AggregateLimitsConfig::default(), &answers).await,
        "aggregate-answer-too-large"
    );
}

#[tokio::test]
async fn joins_with_many_keys_are_bounded_by_the_memory_limit() {
    let text = r#"{"parts": {"a": {"get": "profile/a"}, "b": {"get": "order/b", "join": {"into": "a", "on": "ids[*] = id"}}}}"#;
    let items = repeated_array(&format!(r#"{{"ids":{}}}"#, repeated_array("1", 1000)), 100);
    let answers = [("profile/a", 200, &*items), ("order/b", 200, &*repeated_array(r#"{"id":1}"#, 1000))];
    assert_eq!(response_code(text, AggregateLimitsConfig::default(), &answers).await, "part-memory");
}

#[tokio::test]
async fn joins_accept_unusual_key_values() {
    let text = r#"{"parts": {"a": {"get": "profile/a"}, "b": {"get": "order/b", "join": {"into": "a", "on": "id = id", "one": "first"}}}}"#;
    let (number, nested) = ("1".repeat(1 << 20), "[".repeat(500) + &"]".repeat(500));
    for id in [&number, &nested, r#""\ud800""#, "1e999999999999", "null", r#"1,"id":2"#] {
        let items = format!(r#"[{{"id":{id}}}]"#);
        let answers = [("profile/a", 200, &*items), ("order/b", 200, &*items)];
        assert!(
            response_code(text, AggregateLimitsConfig::default(), &answers).await.starts_with("200"),
            "{:.20}",
            id
        );
    }
}
