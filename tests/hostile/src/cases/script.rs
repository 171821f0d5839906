//! Requests to S scripts: state that grows, keys with a meaning in JavaScript, nested bodies.

use anyhow::Result;

use crate::case::{Case, Ending};
use crate::target::Target;

const JSON: (&str, &str) = ("content-type", "application/json");

pub(super) const CASES: &[Case] = &[
    case!(
        "script/key that is a prototype",
        |it| it.ending("PUT", "/s/words?key=__proto__&value=1", &[], ""),
        [Ending::Answer(200), Ending::problem(500, "script-state")]
    ),
    case!(
        "script/key of no characters",
        |it| it.ending("PUT", "/s/words?key=&value=1", &[], ""),
        [Ending::Answer(200)]
    ),
    case!(
        "script/body that nests",
        |it| body(&it, "[".repeat(50_000)),
        [Ending::problem(400, "body-not-json")],
        &[("S body", 8)]
    ),
    case!(
        "script/body that nests and closes",
        |it| body(&it, "[".repeat(50_000) + &"]".repeat(50_000)),
        [Ending::problem(400, "body-not-json"), Ending::Answer(200)],
        &[("S body", 8)]
    ),
    case!(
        "script/body of many names",
        |it| body(&it, many_names(100_000)),
        [Ending::Answer(200), Ending::problem(413, "body-too-large")],
        &[("S body", 8)]
    ),
    case!(
        "script/body that sets a prototype",
        |it| body(&it, r#"{"__proto__":{"polluted":1}}"#.into()),
        [Ending::Answer(200)],
        &[("S body", 8)]
    ),
    case!(
        "script/method that no handler has",
        |it| it.ending("PATCH", "/s/words", &[], ""),
        [Ending::problem(405, "resource-method")]
    ),
    case!(
        "script/path of no resource",
        |it| it.ending("GET", "/s/nothing", &[], ""),
        [Ending::problem(404, "resource-not-found")]
    ),
];

async fn body(target: &Target, body: String) -> Result<Ending> {
    target.ending("POST", "/s/echo", &[JSON], body).await
}

fn many_names(count: usize) -> String {
    let members: Vec<String> = (0..count).map(|number| format!("\"n{number}\":{number}")).collect();
    format!("{{{}}}", members.join(","))
}
