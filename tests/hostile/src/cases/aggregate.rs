//! Aggregates with excessive requests or excessive responses from services.

use super::Holds;
use super::http2::{ENHANCE_YOUR_CALM, UNTAKEN_COMPOSED};
use crate::case::{Case, Ending};
use crate::http2::{END_HEADERS, END_STREAM, HEADERS, frame, get, reset_untaken};

const INPUT: Ending = Ending::problem(400, "input-invalid");

/// The items, and the data derived from them before the call that exceeds the limit.
const ITEMS: Holds = &[("bytes received by an aggregate", 1), ("memory of an aggregate", 1)];

pub(super) const CASES: &[Case] = &[
    case!("aggregate/input beyond its maximum", |it| it.ending("GET", "/items?n=100001", &[], ""), [INPUT]),
    case!("aggregate/input that is no number", |it| it.ending("GET", "/items?n=1e999", &[], ""), [INPUT]),
    case!("aggregate/input twice", |it| it.ending("GET", "/items?n=1&n=2", &[], ""), [INPUT]),
    case!(
        "aggregate/input that there is not",
        |it| it.ending("GET", "/items?m=1", &[], ""),
        [INPUT, Ending::Answer(200)]
    ),
    case!(
        "aggregate/more items than calls",
        |it| it.ending("GET", "/items?n=1000", &[], ""),
        [Ending::problem(502, "each-too-many")],
        ITEMS
    ),
    case!(
        "aggregate/a hundred thousand items",
        |it| it.ending("GET", "/items?n=100000", &[], ""),
        [Ending::problem(502, "each-too-many")],
        ITEMS
    ),
    case!(
        "aggregate/another method",
        |it| it.ending("DELETE", "/items", &[], ""),
        [Ending::problem(405, "method-not-allowed")]
    ),
    case!(
        "aggregate/forty long answers that are not taken",
        |it| reset_untaken(&it, long_texts),
        [Ending::StreamReset(ENHANCE_YOUR_CALM)],
        UNTAKEN_COMPOSED
    ),
];

/// Requests an answer of 1.6 MB that differs from those of other streams, because equal calls would share their
/// memory. The answer holds the service's texts and its own.
fn long_texts(stream: u32) -> Vec<u8> {
    let path = format!("/texts?text={}", 100_000 + stream);
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &get(&path, &[]))
}
