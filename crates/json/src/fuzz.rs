//! JSON text from anywhere: see `fuzz/src/lib.rs`.

use super::{pointer, valid};

const WORDS: &[&str] =
    &["{", "}", "[", "]", ",", ":", "\"", "\"a\"", "\\u", "d83d", "null", "true", "-1", "e+", "0.", " "];

#[test]
fn json_is_judged_as_by_another_reader_and_walked_without_panic() {
    ::fuzz::check(WORDS, |text: &[u8]| {
        let shallow = text.iter().filter(|byte| matches!(byte, b'[' | b'{')).count() < 100;
        if let Some(text) = std::str::from_utf8(text).ok().filter(|_| shallow) {
            let known: Result<serde::de::IgnoredAny, _> = serde_json::from_str(text);
            assert_eq!(valid(text.as_bytes()), known.is_ok(), "{text}");
        }
        for path in ["", "/a", "/0/a", "/~1/~0", "/a/18446744073709551616"] {
            let _ = pointer(text, path);
        }
        if let Ok(path) = std::str::from_utf8(text) {
            let _ = pointer(br#"{"a":[{"b":1}]}"#, path);
        }
    });
}
