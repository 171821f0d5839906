//! Tests of trees, with examples and with generated trees.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn text(text: &str) -> JsonTree {
    JsonTree::Text(Bytes::copy_from_slice(text.as_bytes()))
}

fn member(name: &str, value: JsonTree) -> TreeMember {
    (Bytes::from(format!("{name:?}")), value)
}

fn written(tree: &JsonTree) -> String {
    let mut out = Vec::new();
    tree.write(&mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn writes_trees_with_original_texts() {
    let tree = JsonTree::Array(
        [text("1.0e0"), JsonTree::NULL, JsonTree::Object([member("a", text("[ ]"))].into())].into(),
    );
    assert_eq!(written(&tree), r#"[1.0e0,null,{"a":[ ]}]"#);
    assert_eq!(written(&JsonTree::Array([].into())), "[]");
    assert_eq!(written(&JsonTree::Object([].into())), "{}");
}

#[test]
fn extended_objects_begin_with_their_own_members() {
    let extended =
        |own: &'static str, more: &[TreeMember]| written(&JsonTree::Extended(own.into(), more.into()));
    let more = [member("b", text("2")), member("c", text("3"))];
    assert_eq!(extended(r#"{ "a": 1 }"#, &more), r#"{ "a": 1 ,"b":2,"c":3}"#);
    assert_eq!(extended("{ }", &more), r#"{ "b":2,"c":3}"#);
    assert_eq!(extended(r#"{"a":1}"#, &[]), r#"{"a":1}"#);
}

#[test]
fn long_texts_become_separate_pieces_without_copying() {
    let long = Bytes::from(format!("\"{}\"", "x".repeat(LONG)));
    let tree = JsonTree::Array([text("1"), JsonTree::Text(long.clone()), text("2")].into());
    let pieces: Vec<Bytes> = tree.pieces().collect();
    assert_eq!(pieces.iter().map(Bytes::len).collect::<Vec<_>>(), [3, long.len(), 3]);
    assert_eq!(pieces[1].as_ptr(), long.as_ptr());
}

#[test]
fn only_shared_memory_is_the_same_value() {
    let one = text("[1,2,3]");
    assert!(one.same(&one.clone()) && !one.same(&text("[1,2,3]")));
    let object = JsonTree::Object([member("a", one.clone())].into());
    assert!(object.same(&object.clone()) && !object.same(&JsonTree::Object([member("a", one)].into())));
    let extended = JsonTree::Extended("{}".into(), [].into());
    assert!(extended.same(&extended.clone()) && !extended.same(&object));
}

#[test]
fn measures_highly_repetitive_trees_without_writing_them() {
    let mut tree = text("1");
    let mut length = 1;
    for _ in 0..15 {
        tree = JsonTree::Array(vec![tree; 10].into());
        length = 10 * length + 11;
    }
    assert_eq!(tree.len_within(usize::MAX), Some(length));
    assert_eq!(tree.len_within(1 << 30), None);
}

#[test]
fn counts_the_children_of_shared_values_once() {
    let row = || JsonTree::Extended("{}".into(), [member("a", text("1"))].into());
    let rows = JsonTree::Array([row(), row(), row()].into());
    let tree = JsonTree::Object([member("x", rows.clone()), member("y", rows)].into());
    assert!(tree.has_more_than(8) && !tree.has_more_than(9));
    assert!(text("1").has_more_than(0) && !text("1").has_more_than(1));
}

#[test]
fn gathers_a_piece_in_a_limited_number_of_steps() {
    let rows = JsonTree::Array(vec![text("1"); 1_000].into());
    let tree = JsonTree::Array(vec![rows; 10].into());
    let pieces: Vec<Bytes> = tree.clone().pieces().collect();
    assert!(pieces.len() >= 10_000 / STEPS, "{} pieces", pieces.len());
    assert_eq!(pieces.concat(), written(&tree).into_bytes());
}

fn any_tree() -> impl Strategy<Value = JsonTree> {
    let leaf = prop_oneof![
        Just(JsonTree::NULL),
        any::<i64>().prop_map(|number| text(&number.to_string())),
        "[a-z ]{0,20}".prop_map(|string| text(&format!("{string:?}"))),
        (LONG - 10..LONG + 10).prop_map(|len| text(&format!("\"{}\"", "y".repeat(len)))),
    ];
    leaf.prop_recursive(4, 60, 8, |inner| {
        let members = prop::collection::btree_map("[a-z]{0,4}", inner.clone(), 0..6).prop_map(|map| {
            map.iter().map(|(name, value)| member(name, value.clone())).collect::<Arc<[_]>>()
        });
        prop_oneof![
            prop::collection::vec(inner, 0..8).prop_map(|items| JsonTree::Array(items.into())),
            members.clone().prop_map(JsonTree::Object),
            (members, any::<bool>()).prop_map(|(more, own)| JsonTree::Extended(
                if own { r#"{"A":1}"# } else { "{}" }.into(),
                more
            )),
        ]
    })
}

proptest! {
    #[test]
    fn pieces_and_length_match_the_written_text(tree in any_tree()) {
        let whole = written(&tree);
        prop_assert!(serde_json::from_str::<Value>(&whole).is_ok(), "{}", whole);
        prop_assert_eq!(tree.len(), whole.len());
        prop_assert_eq!(tree.clone().len_within(whole.len()), Some(whole.len()));
        prop_assert_eq!(tree.len_within(whole.len() - 1), None);
        let pieces: Vec<Bytes> = tree.pieces().collect();
        prop_assert!(pieces.iter().all(|piece| !piece.is_empty()));
        prop_assert_eq!(pieces.concat(), whole.into_bytes());
    }
}
