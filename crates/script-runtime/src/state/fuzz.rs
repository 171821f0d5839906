//! Change sets come from workers, which run scripts: see `fuzz/src/lib.rs`.

use bytes::Bytes;

use super::changes::{Changes, tree};

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
fn a_change_set_that_is_taken_gives_a_value_and_one_that_is_refused_leaves_it_alone() {
    ::fuzz::check(WORDS, |text: &[u8]| {
        let value = Bytes::from_static(br#"{"a":[0,{"length":2}]}"#);
        let mut root = tree(Some(&value), std::iter::empty()).unwrap();
        let Ok(changes) = Changes::read(&Bytes::copy_from_slice(text)) else { return };
        let _ = changes.parts(2);
        let taken = changes.apply(&mut root).is_ok();
        let mut after = Vec::new();
        if let Some(root) = &root {
            root.write(&mut after);
            assert!(json::Document::new(after.clone().into()).is_ok());
        }
        assert!(taken || after == value);
    });
}
