//! Fuzzing of JSON texts: see `fuzz/src/lib.rs`.

use bytes::Bytes;

use super::{JsonDocument, JsonNode, block};

const WORDS: &[&str] =
    &["{", "}", "[", "]", ",", ":", "\"", "\"a\"", "\\u", "d83d", "null", "true", "-1", "e+", "0.", " "];

#[test]
fn agrees_with_serde_json_and_never_panics() {
    ::fuzz::run("json_documents", WORDS, |text: &[u8]| {
        let shallow = text.iter().filter(|byte| matches!(byte, b'[' | b'{')).count() < 100;
        let document = JsonDocument::new(Bytes::copy_from_slice(text));
        if shallow && !text.starts_with(b"\xef\xbb\xbf") {
            let known: Result<serde::de::IgnoredAny, _> = serde_json::from_slice(text);
            let known = known.is_ok() && std::str::from_utf8(text).is_ok();
            assert_eq!(document.is_ok(), known, "{}", String::from_utf8_lossy(text));
        }
        let pointer = String::from_utf8_lossy(text);
        let json_document = JsonDocument::new(Bytes::from_static(br#"{"a":[{"b":1}]}"#)).unwrap();
        let _ = json_document.root().pointer(&pointer);
        if let Ok(document) = document {
            for path in ["", "/a", "/0/a", "/~1/~0", "/a/18446744073709551616"] {
                let _ = document.root().pointer(path);
            }
            // Guests may pass any position.
            (0..text.len()).filter_map(|place| document.node_at(place)).for_each(exercise_node);
            let spots = ["", "/a", "/a/0", "/a/0/b"]
                .into_iter()
                .filter_map(|at| json_document.root().pointer(at).ok()?);
            spots.filter_map(|node| document.node_by_id(node.node_id())).for_each(exercise_node);
        }
    });
}

#[test]
fn all_implementations_find_the_same_tokens() {
    ::fuzz::run("json_tokens", WORDS, |text: &[u8]| {
        let long = [b"[".as_slice(), &[b' '; 80], text, b"]"].concat();
        assert_eq!(block::classify_text(&long), block::classify_text_with(&long, block::classify_portable));
    });
}

/// Calls all methods of a value.
fn exercise_node(node: JsonNode<'_>) {
    let _ = (node.kind(), node.text(), node.slice(), node.count(), node.string(), node.number());
    node.items().for_each(|item| assert!(item.start() >= node.start()));
    node.with_following_items().for_each(|item| assert!(item.start() >= node.start()));
    for (key, value) in node.members() {
        assert!(value.start() >= node.start());
        let _ = (key.equals(b"a"), key.node().string(), key.node().has_unpaired_surrogate());
    }
}
