//! Requests to S scripts: state that grows, keys with a meaning in JavaScript, nested bodies, paths that
//! are taken.

use anyhow::Result;

use crate::case::AttackCase;
use crate::ending::AttackEnding;
use crate::target::AttackTarget;

const JSON: (&str, &str) = ("content-type", "application/json");

pub(super) const CASES: &[AttackCase] = &[
    case!(
        "script/key that is a prototype",
        |it| it.request_ending("PUT", "/s/words?key=__proto__&value=1", &[], ""),
        [AttackEnding::Answer(200), AttackEnding::problem(500, "script-state")]
    ),
    case!(
        "script/keys that lead to an object of all requests",
        |it| it.request_ending("PUT", "/s/tree?a=constructor&b=constructor&c=foo&value=1", &[], ""),
        [AttackEnding::problem(500, "script-threw")]
    ),
    case!(
        "script/keys that lead to the prototype of all objects",
        |it| it.request_ending("PUT", "/s/tree?a=prototype&b=__proto__&c=constructor&value=1", &[], ""),
        [AttackEnding::problem(500, "script-threw")]
    ),
    case!(
        "script/key that is half of a character",
        |it| it.request_ending("PUT", "/s/words", &[JSON], r#"{"key":"\ud800","value":1}"#),
        [AttackEnding::Answer(200)]
    ),
    case!(
        "script/key of no characters",
        |it| it.request_ending("PUT", "/s/words?key=&value=1", &[], ""),
        [AttackEnding::Answer(200)]
    ),
    case!(
        "script/JSON that is not valid UTF-8",
        |it| it.request_ending("PUT", "/s/words", &[JSON], &b"{\"key\":\"\xff\",\"value\":1}"[..]),
        [AttackEnding::problem(400, "body-not-json")]
    ),
    case!(
        "script/body that nests",
        |it| post_echo(&it, "[".repeat(50_000)),
        [AttackEnding::problem(400, "body-not-json")],
        &[("S body", 8)]
    ),
    case!(
        "script/body that nests and closes",
        |it| post_echo(&it, "[".repeat(50_000) + &"]".repeat(50_000)),
        [AttackEnding::problem(400, "body-not-json"), AttackEnding::Answer(200)],
        &[("S body", 8)]
    ),
    case!(
        "script/body of many names",
        |it| post_echo(&it, many_names(100_000)),
        [AttackEnding::Answer(200), AttackEnding::problem(413, "body-too-large")],
        &[("S body", 8)]
    ),
    case!(
        "script/body that sets a prototype",
        |it| post_echo(&it, r#"{"__proto__":{"polluted":1}}"#.into()),
        [AttackEnding::Answer(200)],
        &[("S body", 8)]
    ),
    case!(
        "script/body of many tiny values",
        |it| post_echo(&it, format!("{{\"list\":{}}}", tiny_values(500_000))),
        [AttackEnding::Answer(200), AttackEnding::problem(503, "gateway-overloaded")],
        &[("S body", 32)]
    ),
    case!(
        "script/text that is not valid in its charset",
        |it| it.request_ending("POST", "/s/echo", &[("content-type", "text/csv")], vec![0xff; 1_000_000]),
        [AttackEnding::problem(400, "body-not-text")],
        &[("S body", 8)]
    ),
    case!(
        "script/query of many parameters",
        |it| it.request_ending("GET", &format!("/s/words?{}", "a&b&".repeat(15_000)), &[], ""),
        [AttackEnding::Answer(200), AttackEnding::problem(503, "gateway-overloaded")],
        &[("HTTP/1.1 request head", 2)]
    ),
    case!(
        "script/redirect to a long path of escaped letters",
        |it| it.request_ending("GET", &format!("/s/go?to=/{}", "+/".repeat(29_000)), &[], ""),
        [
            AttackEnding::Answer(302),
            AttackEnding::problem(503, "gateway-overloaded"),
            AttackEnding::problem(503, "answer-unfinished"),
        ],
        &[("HTTP/1.1 request head", 2)]
    ),
    case!(
        "script/write and removal of many tiny values",
        |it| write_value(&it, tiny_values(250_000)),
        [
            AttackEnding::Answer(200),
            AttackEnding::problem(503, "gateway-overloaded"),
            AttackEnding::problem(503, "answer-unfinished"),
        ],
        &[("S body", 32), ("state of an S service", 1)]
    ),
    case!(
        "script/new resource at the path of a literal one",
        |it| it.request_ending("POST", "/s/lists?name=total", &[], ""),
        [AttackEnding::problem(500, "state-path-taken")]
    ),
    case!(
        "script/method that no handler has",
        |it| it.request_ending("PATCH", "/s/words", &[], ""),
        [AttackEnding::problem(405, "resource-method")]
    ),
    case!(
        "script/path of no resource",
        |it| it.request_ending("GET", "/s/nothing", &[], ""),
        [AttackEnding::problem(404, "resource-not-found")]
    ),
];

async fn post_echo(target: &AttackTarget, body: String) -> Result<AttackEnding> {
    target.request_ending("POST", "/s/echo", &[JSON], body).await
}

/// Writes a value, reads it, and removes it. Returns the first unsuccessful ending, or the last one.
async fn write_value(target: &AttackTarget, value: String) -> Result<AttackEnding> {
    let put = format!("{{\"key\":\"tiny\",\"value\":{value}}}");
    let mut last = target.request_ending("PUT", "/s/words", &[JSON], put).await?;
    for (method, path) in [("GET", "/s/words"), ("DELETE", "/s/words?key=tiny")] {
        let ending = target.request_ending(method, path, &[], "").await?;
        if last == AttackEnding::Answer(200) {
            last = ending;
        }
    }
    Ok(last)
}

/// Returns the text of a list.
fn tiny_values(count: usize) -> String {
    format!("[{}]", vec!["1"; count].join(","))
}

fn many_names(count: usize) -> String {
    let members: Vec<String> = (0..count).map(|number| format!("\"n{number}\":{number}")).collect();
    format!("{{{}}}", members.join(","))
}
