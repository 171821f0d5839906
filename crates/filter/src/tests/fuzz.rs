//! Fuzz targets for data that modules pass to the host: header lists and property paths. See
//! `fuzz/src/lib.rs`.

use http::HeaderMap;

use crate::exchange::message::{self, MAX_PAIRS, MessageHead};
use crate::host::parse_property;

#[test]
fn parsed_header_lists_round_trip() {
    let words = &["\0\0\0\0", "\u{1}\0\0\0", "\u{2}\0\0\0", "a", "a\0", "b\0", ":path\0", "/\0", "x-y\0"];
    ::fuzz::run("filter_headers", words, |bytes: &[u8]| {
        let Ok(pairs) = message::decode_pairs(bytes) else { return };
        assert!(pairs.len() <= MAX_PAIRS);
        let mut headers = HeaderMap::new();
        let mut head = MessageHead::Plain(&mut headers);
        if head.set_all(&pairs).is_err() {
            return;
        }
        let mut written = vec![0; message::encoded_size(&head)];
        message::encode_head(&head, &mut written).expect("the buffer has the head's size");
        let mut again = HeaderMap::new();
        let read = message::decode_pairs(&written).expect("a written list can be read");
        MessageHead::Plain(&mut again).set_all(&read).expect("a header stays valid");
        assert_eq!(headers, again);
    });
}

#[test]
fn damaged_header_lists_never_panic() {
    let mut headers = HeaderMap::new();
    for (name, value) in [("accept", "text/html"), ("cookie", "a=b"), ("x-empty", "")] {
        headers.insert(name, http::HeaderValue::from_static(value));
    }
    let head = MessageHead::Plain(&mut headers);
    let mut good = vec![0; message::encoded_size(&head)];
    message::encode_head(&head, &mut good).expect("the buffer has the head's size");
    ::fuzz::check(&[], |bytes: &[u8]| {
        if let Ok(pairs) = message::decode_pairs(&::fuzz::damage_input(&good, bytes)) {
            let _ = MessageHead::Plain(&mut HeaderMap::new()).set_all(&pairs);
        }
    });
}

#[test]
fn property_paths_have_no_zeros_in_elements() {
    ::fuzz::check(&["request", "\0", "headers", "filter_state", "wasm."], |bytes: &[u8]| {
        let path = parse_property(bytes);
        assert!((1..=4).contains(&path.len()) && path.iter().all(|element| !element.contains(&0)));
    });
}
