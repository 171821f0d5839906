//! What modules hand in: lists of headers, paths of properties. See `fuzz/src/lib.rs`.

use http::HeaderMap;

use crate::host::parse_property;
use crate::message::{self, Head, MAX_PAIRS};

#[test]
fn a_list_of_headers_is_read_or_refused_and_reads_back_the_same() {
    let words = &["\0\0\0\0", "\u{1}\0\0\0", "\u{2}\0\0\0", "a", "a\0", "b\0", ":path\0", "/\0", "x-y\0"];
    ::fuzz::run("filter_headers", words, |bytes: &[u8]| {
        let Ok(pairs) = message::read(bytes) else { return };
        assert!(pairs.len() <= MAX_PAIRS);
        let mut headers = HeaderMap::new();
        let mut head = Head::Plain(&mut headers);
        if head.set_all(&pairs).is_err() {
            return;
        }
        let mut written = vec![0; message::size(&head)];
        message::write(&head, &mut written).expect("the place is as large as the head");
        let mut again = HeaderMap::new();
        let read = message::read(&written).expect("what was written can be read");
        Head::Plain(&mut again).set_all(&read).expect("what was a header is one");
        assert_eq!(headers, again);
    });
}

#[test]
fn a_damaged_list_is_refused_or_read_without_panic() {
    let mut headers = HeaderMap::new();
    for (name, value) in [("accept", "text/html"), ("cookie", "a=b"), ("x-empty", "")] {
        headers.insert(name, http::HeaderValue::from_static(value));
    }
    let head = Head::Plain(&mut headers);
    let mut good = vec![0; message::size(&head)];
    message::write(&head, &mut good).expect("the place is as large as the head");
    ::fuzz::check(&[], |bytes: &[u8]| {
        if let Ok(pairs) = message::read(&::fuzz::damaged(&good, bytes)) {
            let _ = Head::Plain(&mut HeaderMap::new()).set_all(&pairs);
        }
    });
}

#[test]
fn a_path_of_a_property_has_no_zeros_in_its_elements() {
    ::fuzz::check(&["request", "\0", "headers", "filter_state", "wasm."], |bytes: &[u8]| {
        let path = parse_property(bytes);
        assert!(!path.is_empty() && path.iter().all(|element| !element.contains(&0)));
    });
}
