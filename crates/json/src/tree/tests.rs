//! Tests of trees, with examples and with generated trees.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn text_tree(text: &str) -> JsonTree {
    JsonTree::Text(Bytes::copy_from_slice(text.as_bytes()))
}

fn tree_member(name: &str, value: JsonTree) -> TreeMember {
    (Bytes::from(format!("{name:?}")), value)
}

fn tree_text(tree: &JsonTree) -> String {
    let mut out = Vec::new();
    tree.write(&mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn writes_trees_with_original_texts() {
    let tree = JsonTree::Array(
        [text_tree("1.0e0"), JsonTree::NULL, JsonTree::Object([tree_member("a", text_tree("[ ]"))].into())]
            .into(),
    );
    assert_eq!(tree_text(&tree), r#"[1.0e0,null,{"a":[ ]}]"#);
    assert_eq!(tree_text(&JsonTree::Array([].into())), "[]");
    assert_eq!(tree_text(&JsonTree::Object([].into())), "{}");
}

#[test]
fn extended_objects_begin_with_their_own_members() {
    let extended =
        |own: &'static str, more: &[TreeMember]| tree_text(&JsonTree::Extended(own.into(), more.into()));
    let more = [tree_member("b", text_tree("2")), tree_member("c", text_tree("3"))];
    assert_eq!(extended(r#"{ "a": 1 }"#, &more), r#"{ "a": 1 ,"b":2,"c":3}"#);
    assert_eq!(extended("{ }", &more), r#"{ "b":2,"c":3}"#);
    assert_eq!(extended(r#"{"a":1}"#, &[]), r#"{"a":1}"#);
}

#[test]
fn long_texts_become_separate_pieces_without_copying() {
    let long = Bytes::from(format!("\"{}\"", "x".repeat(MIN_LONG_TEXT)));
    let tree = JsonTree::Array([text_tree("1"), JsonTree::Text(long.clone()), text_tree("2")].into());
    let pieces: Vec<Bytes> = tree.pieces().collect();
    assert_eq!(pieces.iter().map(Bytes::len).collect::<Vec<_>>(), [3, long.len(), 3]);
    assert_eq!(pieces[1].as_ptr(), long.as_ptr());
}

#[test]
fn only_shared_memory_is_the_same_value() {
    let tree = text_tree("[1,2,3]");
    assert!(tree.ptr_eq(&tree.clone()) && !tree.ptr_eq(&text_tree("[1,2,3]")));
    let object = JsonTree::Object([tree_member("a", tree.clone())].into());
    assert!(
        object.ptr_eq(&object.clone()) && !object.ptr_eq(&JsonTree::Object([tree_member("a", tree)].into()))
    );
    let extended = JsonTree::Extended("{}".into(), [].into());
    assert!(extended.ptr_eq(&extended.clone()) && !extended.ptr_eq(&object));
}

#[test]
fn measures_highly_repetitive_trees_without_writing_them() {
    let mut tree = text_tree("1");
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
    let row = || JsonTree::Extended("{}".into(), [tree_member("a", text_tree("1"))].into());
    let rows = JsonTree::Array([row(), row(), row()].into());
    let tree = JsonTree::Object([tree_member("x", rows.clone()), tree_member("y", rows)].into());
    assert!(tree.has_more_than(8) && !tree.has_more_than(9));
    assert!(text_tree("1").has_more_than(0) && !text_tree("1").has_more_than(1));
}

#[test]
fn gathers_a_piece_in_a_limited_number_of_steps() {
    let rows = JsonTree::Array(vec![text_tree("1"); 1_000].into());
    let tree = JsonTree::Array(vec![rows; 10].into());
    let pieces: Vec<Bytes> = tree.clone().pieces().collect();
    assert!(pieces.len() >= 10_000 / MAX_PIECE_STEPS, "{} pieces", pieces.len());
    assert_eq!(pieces.concat(), tree_text(&tree).into_bytes());
}

fn any_tree() -> impl Strategy<Value = JsonTree> {
    let leaf = prop_oneof![
        Just(JsonTree::NULL),
        any::<i64>().prop_map(|number| text_tree(&number.to_string())),
        "[a-z ]{0,20}".prop_map(|string| text_tree(&format!("{string:?}"))),
        (MIN_LONG_TEXT - 10..MIN_LONG_TEXT + 10)
            .prop_map(|len| text_tree(&format!("\"{}\"", "y".repeat(len)))),
    ];
    leaf.prop_recursive(4, 60, 8, |inner| {
        let members = prop::collection::btree_map("[a-z]{0,4}", inner.clone(), 0..6).prop_map(|map| {
            map.iter().map(|(name, value)| tree_member(name, value.clone())).collect::<Arc<[_]>>()
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
        let whole = tree_text(&tree);
        prop_assert!(serde_json::from_str::<Value>(&whole).is_ok(), "{}", whole);
        prop_assert_eq!(tree.len(), whole.len());
        prop_assert_eq!(tree.clone().len_within(whole.len()), Some(whole.len()));
        prop_assert_eq!(tree.len_within(whole.len() - 1), None);
        let pieces: Vec<Bytes> = tree.pieces().collect();
        prop_assert!(pieces.iter().all(|piece| !piece.is_empty()));
        prop_assert_eq!(pieces.concat(), whole.into_bytes());
    }
}
