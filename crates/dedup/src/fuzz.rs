//! Fuzz tests of arbitrary texts: see `fuzz/src/lib.rs`.

use bytes::Bytes;
use json::JsonDocument;

use super::{DedupForm, DedupLimits, decode, encode_text, flatten};

const WORDS: &[&str] = &[
    "{\"t\":[",
    "],\"r\":",
    "{\"$\":0}",
    "{\"$\":1}",
    "{\"$$\":",
    "\\u0024",
    "{\"a\":\"a long enough value\"}",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\"a\"",
    "1",
    " ",
];
const CAP: usize = 1 << 16;

#[test]
fn decodes_arbitrary_input_to_json_within_the_cap_without_panics() {
    ::fuzz::run("dedup_decoder", WORDS, |text: &[u8]| {
        let whole = [b"{\"t\":[", text, b"],\"r\":[{\"$\":0}]}"].concat();
        for text in [text, &whole] {
            if let Ok(plain) = decode(text, CAP) {
                assert!(plain.len() <= CAP && JsonDocument::new(Bytes::from(plain)).is_ok());
            }
        }
    });
}

#[test]
fn encoded_text_decodes_to_the_original() {
    ::fuzz::run("dedup_round_trip", WORDS, |text: &[u8]| {
        let text = Bytes::from([b"[", text, b",", text, b",", text, b"]"].concat());
        let limits = DedupLimits { min: 0, max: 1 << 20 };
        if let Ok(Some(wire)) = encode_text(&text, DedupForm::Json, &limits) {
            let plain = flatten::strip_whitespace(&JsonDocument::new(text).unwrap());
            assert_eq!(decode(&wire, plain.len()).unwrap(), plain);
        }
    });
}
