//! Services that answer more than anybody asked for: requests stay within their limits, and what they refuse they refuse before it is
//! built.

use services::body::HeldBytes;

use super::rig::Rig;
use crate::LimitsConfig;

/// The text of an array that has an item so often.
fn many(item: &str, count: usize) -> String {
    format!("[{}]", vec![item; count].join(","))
}

/// Arrays within arrays, of which the index is longer than the text.
fn deep(texts: usize) -> String {
    many(&format!("{}\"{}\"{}", "[".repeat(1000), "x".repeat(64), "]".repeat(1000)), texts)
}

fn within(memory: u64, response_body: u64) -> LimitsConfig {
    let (memory, response_body) = (services::Bytes(memory), services::Bytes(response_body));
    LimitsConfig { memory, response_body, ..LimitsConfig::default() }
}

async fn code(text: &str, limits: LimitsConfig, answers: &[(&str, u16, &str)]) -> String {
    let rig = Rig::at("/here", text, limits, answers);
    let request = http::Request::get("/here").body("").unwrap();
    match rig.send(request).await {
        Ok(got) => format!("{} of {} bytes", got.status, got.text.len()),
        Err(problem) => problem.code().to_owned(),
    }
}

#[tokio::test]
async fn tells_how_much_memory_an_answer_holds() {
    let item = format!(r#"{{"id":1,"name":"{}","more":"{}"}}"#, "n".repeat(100), "m".repeat(1_000));
    let fields = r#"{"parts": {"a": {"get": "profile/a", "fields": ["id", "name"]}}, "answer": "a"}"#;
    let held = async |text: &str, count: usize| {
        let items = many(&item, count);
        let rig = Rig::new(text, &[("profile/a", 200, &items)]);
        let held = rig.begin("/here").await.extensions().get::<HeldBytes>().map(|held| held.0);
        (held, items.len() as u64)
    };
    let (shaped, text) = held(fields, 1_000).await;
    let tree = 1_000 * size_of::<json::Tree>() as u64;
    assert!(shaped.is_some_and(|held| held >= text + tree), "{shaped:?} of {text} bytes");
    assert_eq!(held(fields, 1).await.0, None, "a short answer is copied");
    let long = r#"{"parts": {"a": {"get": "profile/a"}}, "answer": "a"}"#;
    assert_eq!(held(long, 1_000).await.0, None, "a long part is handed on");
}

#[tokio::test]
async fn items_may_be_nested_as_deeply_as_json_may_be() {
    let each = r#"{"parts": {"a": {"get": "profile/a"},
        "b": {"get": "order/b/{each.id}", "each": "a", "optional": true}}, "answer": "a"}"#;
    let nested = "[".repeat(json::DEPTH) + &"]".repeat(json::DEPTH);
    let rig = Rig::new(each, &[("profile/a", 200, &nested)]);
    assert_eq!(rig.get("/here").await.text, nested);
}

#[tokio::test]
async fn an_each_renders_nothing_behind_the_first_call_too_many() {
    let text =
        r#"{"parts": {"a": {"get": "profile/a"}, "b": {"get": "order/{each}", "each": "a", "apart": true}}}"#;
    let ids: Vec<String> = (0..201).map(|id| id.to_string()).chain([r#""..""#.to_owned()]).collect();
    let rig = Rig::at(
        "/here",
        text,
        LimitsConfig::default(),
        &[("profile/a", 200, &format!("[{}]", ids.join(",")))],
    );
    assert_eq!(rig.fails("/here").await.0, "each-too-many", "the last item was not looked at");
    assert_eq!(rig.stage.seen.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn items_that_are_alike_are_rendered_once() {
    let text = r#"{"parts": {"a": {"get": "profile/a"}, "b": {"get": "order/{each}", "each": "a", "apart": true}}, "answer": "b"}"#;
    let answers = [("profile/a", 200, &*many("7", 100_000)), ("order/7", 200, "1")];
    assert_eq!(code(text, LimitsConfig::default(), &answers).await, "200 of 200001 bytes");
}

#[tokio::test]
async fn objects_of_a_hundred_thousand_members_are_merged_in_one_go() {
    let members =
        |from: usize| (from..from + 50_000).map(|n| format!("\"m{n}\":1")).collect::<Vec<_>>().join(",");
    let text = r#"{"parts": {"a": {"get": "profile/a"}, "b": {"get": "order/b"}}, "answer": {"merge": ["a", "b"], "conflict": "first"}}"#;
    let (one, other) = (format!("{{{}}}", members(0)), format!("{{{}}}", members(25_000)));
    let rig = Rig::new(text, &[("profile/a", 200, &one), ("order/b", 200, &other)]);
    assert_eq!(rig.get("/here").await.json().as_object().unwrap().len(), 75_000);
}

#[tokio::test]
async fn lists_of_many_small_items_take_no_more_memory_than_a_request_may() {
    let joined = r#"{"parts": {"a": {"get": "profile/a"}, "b": {"get": "order/b", "join": {"into": "a", "on": "id = id"}}}}"#;
    let each = r#"{"parts": {"a": {"get": "profile/a"}, "b": {"get": "order/{each.id}", "each": "a", "apart": true}}, "answer": "b"}"#;
    let fields = r#"{"parts": {"a": {"get": "profile/a", "fields": ["id"]}}}"#;
    let merged =
        r#"{"parts": {"a": {"get": "profile/a"}, "b": {"get": "order/b"}}, "answer": {"merge": ["a", "b"]}}"#;
    let (empty, nulls) = (many("{}", 20_000), many("null", 20_000));
    let object = format!("{{{}}}", (0..20_000).map(|n| format!("\"{n}\":1")).collect::<Vec<_>>().join(","));
    for (text, a, refused) in [
        (joined, &empty, "aggregate-memory"),
        (each, &nulls, "part-memory"),
        (fields, &empty, "aggregate-memory"),
        (merged, &object, "aggregate-memory"),
    ] {
        let answers = [("profile/a", 200, &**a), ("order/b", 200, "[]")];
        let answers = if text == merged { [answers[0], ("order/b", 200, "{}")] } else { answers };
        let with = |memory| code(text, within(memory, 64 << 20), &answers);
        assert_eq!(with(300_000).await, refused, "{text}");
        assert!(with(64 << 20).await.starts_with("200"), "{text}");
    }
}

#[tokio::test]
async fn an_index_that_is_longer_than_its_text_is_part_of_a_requests_memory() {
    let text = r#"{"parts": {"a": {"get": "profile/a"}}}"#;
    let (nested, optional) = (deep(20), r#"{"parts": {"a": {"get": "profile/a", "optional": true}}}"#);
    let answers = [("profile/a", 200, &*nested)];
    assert_eq!(code(text, within(200_000, 64 << 20), &answers).await, "part-memory");
    assert!(code(text, within(1 << 20, 64 << 20), &answers).await.starts_with("200"));
    assert!(code(optional, within(200_000, 64 << 20), &answers).await.starts_with("200"));
}

#[tokio::test]
async fn an_answer_that_many_items_have_is_written_no_more_often_than_there_is_memory_for() {
    let text = r#"{"parts": {"a": {"get": "profile/a"}, "b": {"get": "order/{each}", "each": "a", "apart": true},
        "c": {"get": "catalog/c?ids={$.b[*].id}"}}}"#;
    let long = format!("{{\"id\":1,\"text\":\"{}\"}}", "x".repeat(10_000));
    let answers =
        [("profile/a", 200, &*many("7", 1000)), ("order/7", 200, &*long), ("catalog/c?ids=1", 200, "1")];
    assert_eq!(code(text, within(1 << 20, 64 << 20), &answers).await, "part-memory");
    assert_eq!(code(text, within(64 << 20, 1 << 20), &answers).await, "aggregate-answer-too-large");
}

#[tokio::test]
async fn rows_that_many_items_share_make_no_answer_longer_than_answers_may_be() {
    let text = r#"{"parts": {"a": {"get": "profile/a"}, "b": {"get": "order/b", "join": {"into": "a", "on": "id = id"}}}}"#;
    let row = format!("{{\"id\":1,\"text\":\"{}\"}}", "x".repeat(1000));
    let answers = [("profile/a", 200, &*many(r#"{"id":1}"#, 10_000)), ("order/b", 200, &*many(&row, 1000))];
    assert_eq!(code(text, LimitsConfig::default(), &answers).await, "aggregate-answer-too-large");
}

#[tokio::test]
async fn items_with_many_keys_of_many_rows_do_not_multiply() {
    let text = r#"{"parts": {"a": {"get": "profile/a"}, "b": {"get": "order/b", "join": {"into": "a", "on": "ids[*] = id"}}}}"#;
    let items = many(&format!(r#"{{"ids":{}}}"#, many("1", 1000)), 100);
    let answers = [("profile/a", 200, &*items), ("order/b", 200, &*many(r#"{"id":1}"#, 1000))];
    assert_eq!(code(text, LimitsConfig::default(), &answers).await, "part-memory");
}

#[tokio::test]
async fn odd_values_are_keys_or_none() {
    let text = r#"{"parts": {"a": {"get": "profile/a"}, "b": {"get": "order/b", "join": {"into": "a", "on": "id = id", "one": "first"}}}}"#;
    let (number, nested) = ("1".repeat(1 << 20), "[".repeat(500) + &"]".repeat(500));
    for id in [&number, &nested, r#""\ud800""#, "1e999999999999", "null", r#"1,"id":2"#] {
        let items = format!(r#"[{{"id":{id}}}]"#);
        let answers = [("profile/a", 200, &*items), ("order/b", 200, &*items)];
        assert!(code(text, LimitsConfig::default(), &answers).await.starts_with("200"), "{:.20}", id);
    }
}
