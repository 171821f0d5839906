//! Fuzzing of change sets, which come from workers and thus from scripts: see `fuzz/src/lib.rs`.

use ::fuzz::ByteChoices;
use ::fuzz::generate::worker;
use bytes::Bytes;

use super::changes::{ChangeSet, build_tree};
use super::tree::undo_edits;

const WORDS: &[&str] = &[
    "[[0,[",
    "],",
    "]]",
    "[1,[]]",
    "\"a\"",
    "\"length\"",
    "0",
    "1",
    ",",
    "{\"a\":[0,1]}",
    "[0]",
    "null",
    "-1",
    "1e9",
];

#[test]
fn an_accepted_change_set_yields_a_value_and_a_refused_one_has_no_effect() {
    ::fuzz::run("state_changes", WORDS, |text: &[u8]| {
        check_change_set(&Bytes::copy_from_slice(text));
        check_change_set(&worker::change_set(&mut ByteChoices::new(text)).into());
    });
}

/// Applies a change set to a missing value; returns the error if it is refused.
pub(crate) fn apply_change_set(text: &str) -> Result<(), String> {
    let changes =
        ChangeSet::parse(&Bytes::copy_from_slice(text.as_bytes())).map_err(|refused| refused.to_string())?;
    changes.apply(&mut None).map(drop).map_err(|refused| refused.to_string())
}

/// Checks that a change set yields a valid value or has no effect.
pub(crate) fn check_change_set(text: &Bytes) {
    let value = Bytes::from_static(br#"{"a":[0,{"length":2}]}"#);
    let mut root = build_tree(Some(&value), std::iter::empty()).unwrap();
    let Ok(changes) = ChangeSet::parse(text) else { return };
    let parts = changes.split_by_slot(2);
    let edit_undos = changes.apply(&mut root);
    let mut after = Vec::new();
    if let Some(root) = &root {
        root.write_json(&mut after);
        assert!(json::JsonDocument::new(after.clone().into()).is_ok());
    }
    match edit_undos {
        Err(_) => assert_eq!(after, value),
        Ok(undos) => {
            // The text for other workers and the disk must have the same effect.
            if let Ok(parts) = parts
                && let [part] = &parts[..]
            {
                let state_value =
                    build_tree(Some(&value), std::iter::once(&part.text)).expect("it was accepted before");
                let mut same = Vec::new();
                state_value.iter().for_each(|root| root.write_json(&mut same));
                assert_eq!(same, after, "{}", String::from_utf8_lossy(text));
            }
            undo_edits(&mut root, undos);
            let mut before = Vec::new();
            root.iter().for_each(|root| root.write_json(&mut before));
            assert_eq!(before, value, "{}", String::from_utf8_lossy(text));
        }
    }
}
