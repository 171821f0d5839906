//! Tests of key equality, and of joins against a naive implementation.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::document::JsonDocument;

fn parse_document(text: &str) -> JsonDocument {
    JsonDocument::new(Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

fn keys_equal(one: &str, other: &str) -> bool {
    let (document, other) = (parse_document(one), parse_document(other));
    JoinKey::from_node(document.root()) == JoinKey::from_node(other.root())
}

#[test]
fn compares_keys_as_json_values() {
    for (one, other) in [("7", "7.0"), ("7", "70e-1"), ("0", "-0.0e9"), ("1e2", "100"), ("-1.50", "-15E-1")] {
        assert!(keys_equal(one, other), "{one} {other}");
    }
    assert!(keys_equal(r#""a""#, r#""\u0061""#) && keys_equal("true", "true"));
}

#[test]
fn distinguishes_numbers_from_texts_and_large_numbers_exactly() {
    for (one, other) in [
        ("7", r#""7""#),
        ("true", r#""true""#),
        ("9007199254740993", "9007199254740992"),
        ("18446744073709551617", "18446744073709551616"),
        ("1e400", "1e401"),
        ("1", "-1"),
        (r#""\ud800""#, r#""\ud801""#),
        (r#""\ud800""#, r#""\ufffd""#),
        ("1e99999999999999999999", "1e99999999999999999998"),
    ] {
        assert!(!keys_equal(one, other), "{one} {other}");
    }
    assert!(keys_equal("18446744073709551617", "18446744073709551617.0"));
}

#[test]
fn text_keys_compare_numbers_by_their_text() {
    let (number, text) = (parse_document("7"), parse_document(r#""7""#));
    assert_eq!(JoinKey::from_node_text(number.root()), JoinKey::from_node_text(text.root()));
}

#[test]
fn detects_disjoint_key_kinds() {
    let kinds = |text: &str| JoinKey::from_node(parse_document(text).root()).unwrap().kind();
    assert!(kinds("1").are_disjoint(kinds(r#""1""#)));
    assert!(!kinds("1").are_disjoint(kinds("2.5")));
    assert!(!kinds("1").are_disjoint(JoinKeyKinds::default()));
    assert_eq!((kinds("1") | kinds("true")).kind_names(), "numbers and booleans");
}

fn any_key() -> impl Strategy<Value = Value> {
    prop_oneof![
        (0..6_u64).prop_map(Value::from),
        (0..6_u64).prop_map(|number| Value::from(number.to_string())),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
        Just(json!([1])),
        (-3..3_i64).prop_map(Value::from),
    ]
}

proptest! {
    #[test]
    fn joins_agree_with_a_linear_search(
        left in prop::collection::vec(any_key(), 0..20),
        right in prop::collection::vec(any_key(), 0..40),
    ) {
        let (left_text, right_text) = (Value::from(left.clone()).to_string(), Value::from(right.clone()).to_string());
        let (left_side, right_side) = (parse_document(&left_text), parse_document(&right_text));
        let mut grouped = GroupedItems::with_capacity(right.len());
        for item in right_side.root().items() {
            grouped.add(JoinKey::from_node(item));
        }
        for (node, key) in left_side.root().items().zip(&left) {
            let is_key = !key.is_null() && !key.is_array();
            let known: Vec<usize> = (0..right.len()).filter(|place| is_key && right[*place] == *key).collect();
            let group = JoinKey::from_node(node).and_then(|key| grouped.find_group(&key));
            let found: Vec<usize> = group.map(|group| grouped.items(group).collect()).unwrap_or_default();
            prop_assert_eq!(found, known);
        }
    }
}
