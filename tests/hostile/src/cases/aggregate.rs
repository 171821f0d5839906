//! Aggregates with excessive requests or excessive responses from services.

use anyhow::{Result, ensure};

use super::HeldRows;
use super::http2::{BLOCKED_COMPOSED_ANSWERS, ENHANCE_YOUR_CALM};
use crate::case::AttackCase;
use crate::ending::AttackEnding;
use crate::http2::{END_HEADERS, END_STREAM, HEADERS, frame, get, reset_blocked_streams};
use crate::target::AttackTarget;
use crate::wire;

const INVALID_INPUT: AttackEnding = AttackEnding::problem(400, "input-invalid");

/// The items, and the data derived from them before the call that exceeds the limit.
const ITEMS: HeldRows = &[("bytes received by an aggregate", 1), ("memory of an aggregate", 1)];
const JOINED_ITEMS: HeldRows =
    &[("bytes received by an aggregate", 1), ("memory of an aggregate", 1), ("answer of an aggregate", 1)];
const POSTED_ITEMS: HeldRows =
    &[("aggregate body", 1), ("bytes received by an aggregate", 1), ("memory of an aggregate", 1)];
/// A head of up to 64 KiB.
const LONG_HEAD: HeldRows = &[("HTTP/1.1 request head", 2)];

pub(super) const CASES: &[AttackCase] = &[
    case!(
        "aggregate/input beyond its maximum",
        |it| it.request_ending("GET", "/items?n=100001", &[], ""),
        [INVALID_INPUT]
    ),
    case!(
        "aggregate/input that is no number",
        |it| it.request_ending("GET", "/items?n=1e999", &[], ""),
        [INVALID_INPUT]
    ),
    case!("aggregate/input twice", |it| it.request_ending("GET", "/items?n=1&n=2", &[], ""), [INVALID_INPUT]),
    case!(
        "aggregate/input that there is not",
        |it| it.request_ending("GET", "/items?m=1", &[], ""),
        [INVALID_INPUT, AttackEnding::Answer(200)]
    ),
    case!(
        "aggregate/more items than calls",
        |it| it.request_ending("GET", "/items?n=1000", &[], ""),
        [AttackEnding::problem(502, "each-too-many")],
        ITEMS
    ),
    case!(
        "aggregate/a hundred thousand items",
        |it| it.request_ending("GET", "/items?n=100000", &[], ""),
        [AttackEnding::problem(502, "each-too-many")],
        ITEMS
    ),
    case!(
        "aggregate/thousands of parameters",
        |it| repeat_parameter(&it, "/items?n=1", "&a", 30_000),
        [AttackEnding::Answer(200)],
        LONG_HEAD
    ),
    case!(
        "aggregate/list of thousands of values",
        |it| repeat_parameter(&it, "/joined?ids=1", ",1", 30_000),
        [INVALID_INPUT],
        LONG_HEAD
    ),
    case!(
        "aggregate/list of thousands of parameters",
        |it| repeat_parameter(&it, "/joined?ids=1", "&ids=1", 10_000),
        [INVALID_INPUT],
        LONG_HEAD
    ),
    case!(
        "aggregate/join of thousands of rows",
        |it| it.request_ending("GET", "/joined?n=5000", &[], ""),
        [AttackEnding::Answer(200)],
        JOINED_ITEMS
    ),
    case!(
        "aggregate/body of thousands of objects",
        |it| post_items(&it, r#"{"":1}"#, "]"),
        [AttackEnding::Answer(200)],
        POSTED_ITEMS
    ),
    case!(
        "aggregate/body of thousands of empty objects",
        |it| post_items(&it, "{}", "]"),
        [AttackEnding::Answer(200)],
        POSTED_ITEMS
    ),
    case!(
        "aggregate/body that is ambiguous at its end",
        |it| post_items(&it, r#"{"":1}"#, r#",{"a":1,"a":2}]"#),
        [AttackEnding::problem(400, "body-invalid")],
        POSTED_ITEMS
    ),
    case!(
        "aggregate/body that stands still",
        |it| it.request_ending("POST", "/posted", &[("content-length", "5")], "["),
        [AttackEnding::problem(422, "limit-deadline")]
    ),
    case!(
        "aggregate/document of all aggregates, asked for many times at once",
        |it| pipeline_requests(&it, "/openapi.json", 500),
        [AttackEnding::Answer(200)]
    ),
    case!(
        "aggregate/another method",
        |it| it.request_ending("DELETE", "/items", &[], ""),
        [AttackEnding::problem(405, "method-not-allowed")]
    ),
    case!(
        "aggregate/forty long answers that are not taken",
        |it| reset_blocked_streams(&it, long_texts),
        [AttackEnding::StreamReset(ENHANCE_YOUR_CALM)],
        BLOCKED_COMPOSED_ANSWERS
    ),
];

/// Requests a path that ends in many equal texts.
async fn repeat_parameter(
    target: &AttackTarget,
    path: &str,
    text: &str,
    count: usize,
) -> Result<AttackEnding> {
    target.request_ending("GET", &format!("{path}{}", text.repeat(count)), &[], "").await
}

/// Requests a path many times on one connection, without waiting for the responses.
async fn pipeline_requests(target: &AttackTarget, path: &str, count: usize) -> Result<AttackEnding> {
    let request = |more: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n");
    let requests = request("").repeat(count - 1) + &request("Connection: close\r\n");
    let (ending, text) = target.send_raw(requests.as_bytes()).await?;
    let answers = wire::count_responses(&text);
    ensure!(answers == count, "{answers} of {count} requests were answered");
    Ok(ending)
}

/// Sends a list of equal items of 120 KiB, with another end.
async fn post_items(target: &AttackTarget, item: &str, end: &str) -> Result<AttackEnding> {
    let items = vec![item; (120 << 10) / (item.len() + 1)].join(",");
    target
        .request_ending("POST", "/posted", &[("content-type", "application/json")], format!("[{items}{end}"))
        .await
}

/// Requests an answer of 1.6 MB that differs from those of other streams, because equal calls would share
/// their memory. The answer holds the service's texts and its own.
fn long_texts(stream: u32) -> Vec<u8> {
    let path = format!("/texts?text={}", 100_000 + stream);
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &get(&path, &[]))
}
