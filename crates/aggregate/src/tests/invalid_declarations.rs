//! Mistakes in declarations: their positions and codes.

use super::fixture::{declaration, declaration_mistakes};

fn mistake_tuples(text: &str) -> Vec<(String, &'static str, String)> {
    declaration_mistakes("/here", text)
        .into_iter()
        .map(|mistake| (mistake.location.pointer().to_owned(), mistake.code.unwrap(), mistake.message))
        .collect()
}

#[test]
fn mistakes_have_positions_and_codes() {
    for (text, place, code, message) in [
        (
            r#"{"parts":{"a":{"get":"profile/a"},"b":{"get":"order/{$.c.id}"}}}"#,
            "/parts/b/get",
            "declared-placeholder",
            "`c.id` does not begin",
        ),
        (
            r#"{"parts":{"a":{"get":"nobody/a"}}}"#,
            "/parts/a/get",
            "declared-call",
            "there is no service `nobody`",
        ),
        (r#"{"parts":{"a":{"get":"profile"}}}"#, "/parts/a/get", "declared-call", "has no path"),
        (r#"{"parts":{"a":{"get":"profile/../x"}}}"#, "/parts/a/get", "declared-call", "`.` or `..`"),
        (
            r#"{"parts":{"a":{"get":"profile/x?a=b c"}}}"#,
            "/parts/a/get",
            "declared-call",
            "is not allowed in a URL",
        ),
        (
            r#"{"parts":{"a":{"get":"profile/a","put":"profile/a"}}}"#,
            "/parts/a",
            "declared-call",
            "exactly one of",
        ),
        (
            r#"{"parts":{"a":{"get":"profile/a","body":1}}}"#,
            "/parts/a/body",
            "declared-call",
            "request has no body",
        ),
        (
            r#"{"parts":{"a":{"get":"profile/a","headers":{"host":"x"}}}}"#,
            "/parts/a/headers/host",
            "declared-call",
            "`host`",
        ),
        (
            r#"{"parts":{"a":{"get":"profile/{$.b.x}"},"b":{"get":"order/{$.a.x}"}}}"#,
            "/parts/a",
            "declared-cycle",
            "`a` needs `b` needs `a`",
        ),
        (
            r#"{"parts":{"a":{"get":"profile/a","join":{"into":"b","on":"x=y"}},"b":{"get":"order/b","join":{"into":"a","on":"x=y"}}}}"#,
            "/parts/a",
            "declared-cycle",
            "`a` gets `b` gets `a`",
        ),
        (
            r#"{"parts":{"a":{"get":"profile/a","join":{"into":"a","on":"x=y"}}}}"#,
            "/parts/a/join",
            "declared-cycle",
            "into itself",
        ),
        (
            r#"{"parts":{"a":{"get":"profile/{each.id}"}}}"#,
            "/parts/a/get",
            "declared-placeholder",
            "has no `each`",
        ),
        (
            r#"{"parts":{"a":{"get":"profile/a","join":{"into":"b","on":"x"}},"b":{"get":"order/b"}}}"#,
            "/parts/a/join/on",
            "declared-join",
            "`=`",
        ),
        (
            r#"{"parts":{"a":{"get":"profile/a"},"b":{"get":"order/b?x={$.a[*].x}&y={$.a[*].y}"}}}"#,
            "/parts/b/get",
            "declared-placeholder",
            "one list",
        ),
        (
            r#"{"parts":{"a":{"get":"profile/a"},"b":{"get":"order/b?x=1{$.a[*].x*}"}}}"#,
            "/parts/b/get",
            "declared-placeholder",
            "whole query parameter",
        ),
        (
            r#"{"parts":{"a":{"post":"profile/a"},"b":{"put":"order/b"}}}"#,
            "/parts/b/put",
            "declared-unsafe",
            "both change something",
        ),
        (
            r#"{"parts":{"a":{"get":"profile/a"},"b":{"post":"order/b","each":"a"}}}"#,
            "/parts/b/each",
            "declared-unsafe",
            "several POST requests",
        ),
        (
            r#"{"parts":{"a":{"get":"profile/a"}},"response":"b"}"#,
            "/response",
            "declared-answer",
            "there is no part `b`",
        ),
        (
            r#"{"parts":{"a":{"get":"profile/a"}},"response":["a","a"]}"#,
            "/response/1",
            "declared-answer",
            "twice",
        ),
        (
            r#"{"parts":{"errors":{"get":"profile/a"}}}"#,
            "/parts/errors",
            "declared-answer",
            "can't be called `errors`",
        ),
        (
            r#"{"parts":{"a":{"get":"profile/a","fields":{"x":"[*]"}}}}"#,
            "/parts/a/fields",
            "declared-fields",
            "several values",
        ),
        (
            r#"{"input":{"n":{"type":"integer"}},"parts":{"a":{"get":"profile/a","each":"n"}}}"#,
            "/parts/a/each",
            "declared-each",
            "is not an array",
        ),
        (
            r#"{"input":{"n":{"type":"integer"}},"parts":{"a":{"get":"profile/{n}"}}}"#,
            "/parts/a/get",
            "declared-placeholder",
            "may be missing",
        ),
        (
            r#"{"parts":{"a":{"get":"profile/a/{body.x}"}}}"#,
            "/parts",
            "declared-placeholder",
            "all calls are safe",
        ),
        (
            r#"{"sequential":true,"parts":{"a":{"get":"profile/{$.b.x}"},"b":{"get":"order/b"}}}"#,
            "/parts/a",
            "declared-cycle",
            "`a` needs `b` needs `a`",
        ),
        (
            r#"{"parts":{"a":{"get":"profile/a"},"b":{"get":"order/{each.x}","each":"a"},"c":{"get":"order/c","join":{"into":"b","on":"x=y"}}}}"#,
            "/parts/b/each",
            "declared-each",
            "put into items",
        ),
        (
            r#"{"parts":{"a":{"get":"profile/a","headers":{"x-a":"b\r\nhost: c"}}}}"#,
            "/parts/a/headers/x-a",
            "declared-call",
            "is not allowed in a header",
        ),
        (
            r#"{"parts":{"a":{"get":"profile/a","timeout":"0s"}}}"#,
            "/parts/a/timeout",
            "declared-call",
            "greater than zero",
        ),
        (
            r#"{"input":{"ids":{"type":"array"}},"parts":{"a":{"get":"profile/{each.id}","each":"ids"}}}"#,
            "/parts/a/get",
            "declared-placeholder",
            "the items of an input",
        ),
        (r#"{"parts":{"a":{"get":"profile/a"}},"partial":204}"#, "/partial", "declared-answer", "no body"),
        (
            r#"{"parts":{"a":{"get":"profile/a"}},"response":[]}"#,
            "/response",
            "declared-answer",
            "no part is named",
        ),
    ] {
        let found = mistake_tuples(text);
        let fits = |mistake: &(String, &str, String)| {
            mistake.0 == place && mistake.1 == code && mistake.2.contains(message)
        };
        assert!(found.iter().any(fits), "{text}\n{found:?}");
    }
}

#[test]
fn reports_all_mistakes_at_once() {
    let found = mistake_tuples(
        r#"{"input":{"each":{"type":"integer"}},"parts":{"a":{"get":"nobody/a"},"b":{"get":"profile/{x}"},"c":{"get":"order/c","body":1}}}"#,
    );
    assert_eq!(found.len(), 4, "{found:?}");
}

#[test]
fn null_is_a_valid_default() {
    let aggregate_declaration = declaration(r#"{"parts":{"a":{"get":"profile/a","default":null}}}"#);
    assert_eq!(aggregate_declaration.parts["a"].default, Some(serde_json::Value::Null));
}

#[test]
fn unsafe_calls_require_all_query_parameters() {
    let declared = |input: &str, call: &str| {
        mistake_tuples(&format!(r#"{{"input":{{"ids":{{{input}}}}},"parts":{{"a":{{{call}}}}}}}"#))
    };
    let (text, list) = (r#""type":"string""#, r#""type":"array","items":"integer""#);
    for method in ["delete", "put", "patch", "post"] {
        let place = format!("/parts/a/{method}");
        for input in [text, list] {
            for query in ["ids={ids}", "all=1&ids=a{ids}"] {
                let call = format!(r#""{method}":"profile/items?{query}""#);
                let found = declared(input, &call);
                assert!(
                    found.len() == 1 && found[0].2.contains("the input `ids` may be missing"),
                    "{found:?}"
                );
                assert_eq!((&*found[0].0, found[0].1), (&*place, "declared-unsafe"), "{call}");
                assert!(declared(&format!(r#"{input},"required":true"#), &call).is_empty(), "{call}");
            }
        }
        let default = format!(r#"{text},"default":"1""#);
        assert!(declared(&default, &format!(r#""{method}":"profile/items?ids={{ids}}""#)).is_empty());
        // A header does not select the affected items.
        let header = format!(r#""{method}":"profile/items","headers":{{"x-ids":"{{ids}}"}}"#);
        assert!(declared(text, &header).is_empty());
    }
    assert!(declared(list, r#""get":"profile/items?ids={ids}""#).is_empty());
}
