//! Values and change sets, with serde_json as the model.

use bytes::Bytes;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

use super::replica::apply_edit;
use crate::state::changes::{ChangeSet, build_tree};
use crate::state::tree::{EditUndo, SizeChange, StateValue, undo_edits};

/// Generates any small value.
pub(super) fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<i32>().prop_map(|quarters| Value::from(f64::from(quarters) / 4.0)),
        "[ -~\\u{e4}\\u{1f600}\\n\"]{0,24}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 20, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec(("[a-z]{1,2}", inner), 0..24)
                .prop_map(|all| Value::Object(all.into_iter().collect())),
        ]
    })
}

/// The parameters of an edit; the actual edit depends on the value that it is applied to.
#[derive(Clone, Debug)]
pub(super) struct EditParameters {
    depth: usize,
    place: Index,
    what: u8,
    name: String,
    value: Value,
}

pub(super) fn wish() -> impl Strategy<Value = EditParameters> {
    let parts = (0..4_usize, any::<Index>(), any::<u8>(), "[a-z]{1,2}", value());
    parts.prop_map(|(depth, place, what, name, value)| EditParameters { depth, place, what, name, value })
}

impl EditParameters {
    /// Returns an edit of a slot that is valid for its value.
    pub(super) fn to_edit(&self, slot: usize, root: Option<&Value>) -> Value {
        let mut path = Vec::new();
        let mut value = root;
        for _ in 0..self.depth {
            let (step, inner) = match value {
                Some(Value::Array(items)) if !items.is_empty() => {
                    let index = self.place.index(items.len());
                    (json!(index), &items[index])
                }
                Some(Value::Object(members)) if !members.is_empty() => {
                    let (name, inner) = members.iter().nth(self.place.index(members.len())).unwrap();
                    (json!(name), inner)
                }
                _ => break,
            };
            path.push(step);
            value = Some(inner);
        }
        match value {
            Some(Value::Array(items)) if self.what.is_multiple_of(5) => {
                let first = self.place.index(items.len() + 1);
                let count = usize::from(self.what) % (items.len() - first + 1);
                path.push(json!(first));
                let values = vec![&self.value; usize::from(self.what) % 3];
                return json!([slot, path, count, values]);
            }
            Some(Value::Array(items)) if self.what.is_multiple_of(3) => {
                path.push(json!("length"));
                return json!([slot, path, self.place.index(items.len() + 1)]);
            }
            Some(Value::Array(items)) => path.push(json!(items.len())),
            Some(Value::Object(members)) if self.what.is_multiple_of(3) && !members.is_empty() => {
                path.push(json!(members.keys().nth(self.place.index(members.len())).unwrap()));
                return json!([slot, path]);
            }
            Some(Value::Object(_)) => path.push(json!(self.name)),
            _ => {}
        }
        json!([slot, path, self.value])
    }
}

const INVALID_EDIT: &str =
    "edit 0 is not `[slot, path]`, `[slot, path, value]` or `[slot, path, count, values]`";

fn tree_text(root: Option<&StateValue>) -> Option<String> {
    let mut text = Vec::new();
    root?.write_json(&mut text);
    Some(String::from_utf8(text).unwrap())
}

fn parse_tree(value: &Value) -> Option<StateValue> {
    build_tree(Some(&Bytes::from(value.to_string())), std::iter::empty()).unwrap()
}

fn apply_edit_text(root: &mut Option<StateValue>, text: &str) -> Result<Vec<EditUndo>, String> {
    let changes =
        ChangeSet::parse(&Bytes::copy_from_slice(text.as_bytes())).map_err(|refused| refused.to_string())?;
    changes.apply(root).map_err(|refused| refused.to_string())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn edits_match_the_model_and_can_be_undone(start in value(), wishes in prop::collection::vec(wish(), 1..30)) {
        let mut root = parse_tree(&start);
        let mut size = start.to_string().len();
        let mut model = Some(start);
        let mut history = Vec::new();
        for wish in wishes {
            let edit = wish.to_edit(0, model.as_ref());
            let before = tree_text(root.as_ref());
            let undos = apply_edit_text(&mut root, &json!([edit]).to_string()).unwrap();
            apply_edit(&mut model, &edit);
            size = undos.iter().map(EditUndo::size_change).sum::<SizeChange>().apply(size);
            prop_assert_eq!(size, tree_text(root.as_ref()).map_or(0, |text| text.len()));
            let after = tree_text(root.as_ref()).map(|text| serde_json::from_str::<Value>(&text).unwrap());
            prop_assert_eq!(after.as_ref().map(Value::to_string), model.as_ref().map(Value::to_string));
            history.push((before, undos));
        }
        for (before, undos) in history.into_iter().rev() {
            size = undos.iter().map(EditUndo::size_change).sum::<SizeChange>().revert(size);
            prop_assert_eq!(size, before.as_ref().map_or(0, String::len));
            undo_edits(&mut root, undos);
            prop_assert_eq!(tree_text(root.as_ref()), before, "including the order of members");
        }
    }

    #[test]
    fn an_invalid_change_set_has_no_effect(start in value(), wishes in prop::collection::vec(wish(), 0..10)) {
        let mut root = parse_tree(&start);
        let before = tree_text(root.as_ref());
        let mut model = Some(start);
        let mut edits = Vec::new();
        for wish in wishes {
            let edit = wish.to_edit(0, model.as_ref());
            apply_edit(&mut model, &edit);
            edits.push(edit);
        }
        edits.push(json!([0, ["no", 1, "such", 2, "place"], 1]));
        prop_assert!(apply_edit_text(&mut root, &json!(edits).to_string()).is_err());
        prop_assert_eq!(tree_text(root.as_ref()), before);
    }

    #[test]
    fn arbitrary_bytes_never_make_a_change_set_panic(start in value(), bytes in prop::collection::vec(any::<u8>(), 0..60), text in "\\[(\\[[0-2]?,(\\[[0-9\",a-l]{0,6}\\])?,?[0-9\\[\\]{}\"a]{0,5}\\],?){0,3}\\]") {
        let mut root = parse_tree(&start);
        for bytes in [bytes, text.into_bytes()] {
            if let Ok(changes) = ChangeSet::parse(&Bytes::from(bytes)) {
                let _ = changes.split_by_slot(2);
                let _ = changes.apply(&mut root);
            }
        }
    }
}

#[test]
fn values_keep_the_worker_s_spelling() {
    let spelt = r#"{"big":123456789012345678901234567890,"tiny":1e-400,"half":"\ud83d","1":1,"0":-0.0}"#;
    let root = build_tree(Some(&Bytes::from(spelt)), std::iter::empty()).unwrap();
    assert_eq!(tree_text(root.as_ref()).unwrap(), spelt);
}

#[test]
fn invalid_edits_are_refused_with_a_reason() {
    let start = json!({"list": [1, 2], "text": "a"});
    let refused = |changes: &str| apply_edit_text(&mut parse_tree(&start), changes).map(|_| ()).unwrap_err();
    for (changes, reason) in [
        (
            r#"[[0,["list",3],1]]"#,
            "edit 0 does not fit: an item is set beyond the end of its array, which would leave a hole",
        ),
        (
            r#"[[0,["list",0]]]"#,
            "edit 0 does not fit: an item of an array is deleted, which would leave a hole",
        ),
        (
            r#"[[0,["list","length"],3]]"#,
            "edit 0 does not fit: an array gets an invalid `length`, or one that would make it grow",
        ),
        (r#"[[0,["list"],1],[0,["list",0],1]]"#, "edit 1 does not fit: there is nothing at its path"),
        (r#"[[0,["text","length"],0]]"#, "edit 0 does not fit: there is nothing at its path"),
        (
            r#"[[0,["list",1],2,[]]]"#,
            "edit 0 does not fit: more items are taken out of an array than there are",
        ),
        (
            r#"[[0,["list",18446744073709551615],1,[]]]"#,
            "edit 0 does not fit: more items are taken out of an array than there are",
        ),
        (r#"[[0,["text",0],0,[]]]"#, "edit 0 does not fit: there is nothing at its path"),
        (r#"[[0,[],0,[1]]]"#, "edit 0 does not fit: there is nothing at its path"),
        (r#"[[0,["list",-1],1]]"#, INVALID_EDIT),
        (r#"[[0,["list",0],1,2]]"#, INVALID_EDIT),
        (r#"[[0,["list",0],"1",[]]]"#, INVALID_EDIT),
        (r#"[[0,["list",0],1,[],0]]"#, INVALID_EDIT),
        (r#"[[0,["list"#, "byte 10: this is not JSON"),
    ] {
        assert_eq!(refused(changes), reason, "{changes}");
    }
    let deep = format!("[[0,[\"list\",0],{}{}]]", "[".repeat(1020), "]".repeat(1020));
    assert!(apply_edit_text(&mut parse_tree(&start), &deep).is_ok());
    let deeper = format!("[[0,[\"list\",0,0,0],{}{}]]", "[".repeat(1021), "]".repeat(1021));
    let mut root = parse_tree(&json!({"list": [[[0]]]}));
    assert_eq!(
        apply_edit_text(&mut root, &deeper).unwrap_err(),
        "edit 0 does not fit: a value would be nested more than 1024 levels deep"
    );
}
