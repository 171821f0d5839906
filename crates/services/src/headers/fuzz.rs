//! Fuzz test of untrusted headers: see `fuzz/src/lib.rs`.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{check_program_headers, count_hops, mark_forwarded, strip_hop_by_hop};

#[test]
fn headers_from_outside_are_checked_and_stripped() {
    let words = &[
        "connection",
        "te",
        "cdn-loop",
        "forwarded",
        "via",
        "host",
        "orfa-input",
        "x-forwarded-for",
        "keep-alive",
        "\n",
        ":",
        ", ",
        "for=",
        "\"",
        "_",
        "orfa;v=1",
        "close",
    ];
    ::fuzz::run("request_headers", words, |text: &[u8]| {
        let mut map = HeaderMap::new();
        for line in text.split(|byte| *byte == b'\n') {
            let mut halves = line.splitn(2, |byte| *byte == b':');
            let name = halves.next().and_then(|name| HeaderName::from_bytes(name).ok());
            let value = halves.next().and_then(|value| HeaderValue::from_bytes(value).ok());
            if let (Some(name), Some(value)) = (name, value) {
                map.append(name, value);
            }
        }
        let _ = (check_program_headers(&map), count_hops(&map));
        strip_hop_by_hop(&mut map);
        assert!(!map.contains_key(http::header::CONNECTION));
        let mut head = http::Request::new(()).into_parts().0;
        head.headers = map;
        mark_forwarded(&mut head, None);
    });
}
