//! Joins in complete responses, compared with a naive implementation.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::fixture::AggregateFixture;

fn join_fixture(join: &str, items: &str, rows: &str) -> AggregateFixture {
    let text = format!(
        r#"{{"parts": {{"items": {{"get": "profile/items"}},
        "rows": {{"get": "order/rows", "join": {{"into": "items", "on": "k = key", {join}}}}}}}, "response": "items"}}"#
    );
    AggregateFixture::new(&text, &[("profile/items", 200, items), ("order/rows", 200, rows)])
}

#[tokio::test]
async fn items_without_a_key_or_a_row_get_null_or_an_empty_list() {
    let items = r#"[{"k":1},{"k":null},{},{"k":3},null]"#;
    let rows = r#"[{"key":1},{"key":null},{}]"#;
    let list = join_fixture(r#""as": "r""#, items, rows).get("/here").await.text;
    assert_eq!(list, r#"[{"k":1,"r":[{"key":1}]},{"k":null,"r":[]},{"r":[]},{"k":3,"r":[]},null]"#);
    let one = join_fixture(r#""as": "r", "one": true"#, items, rows).get("/here").await.text;
    assert_eq!(one, r#"[{"k":1,"r":{"key":1}},{"k":null,"r":null},{"r":null},{"k":3,"r":null},null]"#);
}

#[tokio::test]
async fn joined_values_replace_members_of_the_same_name() {
    let got =
        join_fixture(r#""as": "k", "one": true"#, r#"[{"k":1,"x":2}]"#, r#"[{"key":1}]"#).get("/here").await;
    assert_eq!(got.text, r#"[{"x":2,"k":{"key":1}}]"#);
    let fixture = AggregateFixture::new(
        r#"{"parts": {"items": {"get": "profile/items", "fields": ["k", "x"]},
        "rows": {"get": "order/rows", "join": {"into": "items", "on": "k = key", "as": "k", "one": true}}}, "response": "items"}"#,
        &[("profile/items", 200, r#"[{"k":1,"x":2}]"#), ("order/rows", 200, r#"[{"key":1}]"#)],
    );
    assert_eq!(fixture.get("/here").await.text, r#"[{"x":2,"k":{"key":1}}]"#);
}

#[tokio::test]
async fn join_errors_have_distinct_codes() {
    let ok = r#"[{"k":1}]"#;
    for (join, items, rows, known) in [
        (r#""one": true"#, ok, r#"[{"key":1},{"key":1.0}]"#, "join-duplicate"),
        (r#""missing": "error""#, ok, "[]", "join-missing"),
        (r#""one": false"#, ok, r#"[{"key":"1"}]"#, "join-kinds"),
        (r#""one": false"#, "[7]", "[]", "join-not-object"),
        (r#""one": false"#, ok, r#"{"key":1}"#, "join-not-array"),
    ] {
        let (code, status, text) = join_fixture(join, items, rows).get_problem("/here").await;
        assert_eq!((code, status), (known, 502), "{text}");
    }
    let first =
        join_fixture(r#""one": "first""#, ok, r#"[{"key":1,"n":1},{"key":1,"n":2}]"#).get("/here").await;
    assert_eq!(first.text, r#"[{"k":1,"rows":{"key":1,"n":1}}]"#);
    let text = join_fixture(r#""text": true, "one": true"#, ok, r#"[{"key":"1"}]"#).get("/here").await;
    assert_eq!(text.text, r#"[{"k":1,"rows":{"key":"1"}}]"#);
}

#[tokio::test]
async fn join_errors_do_not_contain_keys() {
    for (join, rows) in
        [(r#""one": true"#, r#"[{"key":"secret"},{"key":"secret"}]"#), (r#""missing": "error""#, "[]")]
    {
        let (_, _, text) = join_fixture(join, r#"[{"k":"secret"}]"#, rows).get_problem("/here").await;
        assert!(!text.contains("secret"), "{text}");
    }
}

#[tokio::test]
async fn optional_part_with_a_join_error_is_null() {
    let fixture = AggregateFixture::new(
        r#"{"parts": {"items": {"get": "profile/items"},
        "rows": {"get": "order/rows", "optional": true, "join": {"into": "items", "on": "k = key", "one": true}}}}"#,
        &[("profile/items", 200, r#"[{"k":1}]"#), ("order/rows", 200, r#"[{"key":1},{"key":1}]"#)],
    );
    let got = fixture.get("/here").await.json();
    assert_eq!(got["items"], json!([{"k": 1, "rows": null}]));
    assert_eq!(got["errors"][0]["code"], "join-duplicate");
}

#[tokio::test]
async fn joins_nested_rows_and_shares_them_between_items() {
    let fixture = AggregateFixture::new(
        r#"{"parts": {
            "orders": {"get": "order/orders"},
            "catalogs": {"get": "catalog/catalogs", "fields": ["id", "t"], "join": {"into": "orders", "on": "c = id", "as": "catalog", "one": true}},
            "buyers": {"get": "profile/buyers", "join": {"into": "catalogs", "on": "b = id", "as": "buyer", "one": true}},
            "tags": {"get": "catalog/tags", "join": {"into": "orders", "on": "tags[*] = id", "as": "tags"}}},
            "response": "orders"}"#,
        &[
            ("order/orders", 200, r#"[{"c":1,"tags":[2,1]},{"c":1}]"#),
            ("catalog/catalogs", 200, r#"[{"id":1,"t":"x","b":5,"more":0}]"#),
            ("profile/buyers", 200, r#"[{"id":5}]"#),
            ("catalog/tags", 200, r#"[{"id":1},{"id":2}]"#),
        ],
    );
    let got = fixture.get("/here").await;
    let catalog = r#"{"id":1,"t":"x","buyer":{"id":5}}"#;
    assert_eq!(
        got.text,
        format!(
            r#"[{{"c":1,"catalog":{catalog},"tags":[{{"id":2}},{{"id":1}}]}},{{"c":1,"catalog":{catalog},"tags":[]}}]"#
        )
    );
    let Some(json::JsonTree::Array(items)) = got.tree else { panic!("an array") };
    let catalog = |place: usize| match &items[place] {
        json::JsonTree::Object(members) => {
            members.iter().find(|(name, _)| &name[..] == b"\"catalog\"").unwrap().1.clone()
        }
        json::JsonTree::Extended(_, more) => more[0].1.clone(),
        other => panic!("{other:?}"),
    };
    assert!(catalog(0).ptr_eq(&catalog(1)));
}

fn any_items(name: &'static str) -> impl Strategy<Value = Vec<Value>> {
    let key = prop_oneof![(0..5_u64).prop_map(Value::from), "[ab]".prop_map(Value::from), Just(Value::Null)];
    let member = (prop::option::of(key), 0..100_u64).prop_map(move |(key, n)| match key {
        Some(key) => json!({ "n": n, name: key, "s": "a,]}\"" }),
        None => json!({ "n": n }),
    });
    prop::collection::vec(member, 0..12)
}

/// A naive implementation of the join.
fn naive_join(items: &[Value], rows: &[Value], one: bool) -> Value {
    let joined = items.iter().map(|item| {
        let is_key = !item["k"].is_null();
        let values: Vec<Value> =
            rows.iter().filter(|row| is_key && row["key"] == item["k"]).cloned().collect();
        let mut item = item.clone();
        item["rows"] = if one { values.into_iter().next().unwrap_or_default() } else { values.into() };
        item
    });
    joined.collect()
}

proptest! {
    #[test]
    fn joins_match_a_naive_implementation(items in any_items("k"), mut rows in any_items("key"), one: bool) {
        // Kinds of keys that can never be equal are a separate error.
        rows.push(json!({"key": 0}));
        rows.push(json!({"key": "a"}));
        let join = if one { r#""one": "first""# } else { r#""one": false"# };
        let (items_text, rows_text) = (Value::from(items.clone()).to_string(), Value::from(rows.clone()).to_string());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let got = runtime.block_on(async { join_fixture(join, &items_text, &rows_text).get("/here").await });
        prop_assert_eq!(got.json(), naive_join(&items, &rows, one));
    }
}
