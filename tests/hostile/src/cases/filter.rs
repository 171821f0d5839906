//! Requests that are expensive for filters.

use anyhow::Result;

use crate::case::AttackCase;
use crate::ending::AttackEnding;
use crate::target::AttackTarget;

pub(super) const CASES: &[AttackCase] = &[
    case!(
        "filter/head of many fields",
        |it| many_fields(&it),
        [AttackEnding::problem(431, "head-too-large")]
    ),
    case!(
        "filter/body that stands still",
        |it| it.request_ending("POST", "/filtered/echo", &[("content-length", "5")], "x"),
        [AttackEnding::problem(408, "body-too-slow")],
        &[("body held by a filter", 2)]
    ),
    case!(
        "filter/body in pieces",
        |it| it.request_ending("POST", "/filtered/echo", &[], "x".repeat(1 << 20)),
        [AttackEnding::Answer(200), AttackEnding::problem(413, "body-too-large")],
        &[("body held by a filter", 2)]
    ),
    case!(
        "filter/long answer that a filter reads",
        |it| long_answer(&it),
        [AttackEnding::Answer(200)],
        &[("query body", 2), ("memory held for a program", 2), ("memory of a filter", 1)]
    ),
    case!(
        "filter/body of many lines that a filter logs",
        |it| it.request_ending("POST", "/read/echo", &[], "a\n".repeat(32 << 10)),
        [AttackEnding::Answer(200)],
        &[("memory of a filter", 1)]
    ),
];

/// Runs a program whose answer of four megabytes is a single frame.
async fn long_answer(target: &AttackTarget) -> Result<AttackEnding> {
    let source = "export default () => 'x'.repeat(4_000_000)";
    target.request_ending("POST", "/read", &[("content-type", "text/javascript")], source).await
}

async fn many_fields(target: &AttackTarget) -> Result<AttackEnding> {
    let names: Vec<String> = (0..200).map(|number| format!("x-{number}")).collect();
    let headers: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
    target.request_ending("GET", "/filtered/json?n=1", &headers, "").await
}
