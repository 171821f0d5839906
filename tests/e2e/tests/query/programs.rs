//! The environment of JavaScript programs (input, services, time, randomness), and the conversion of return
//! values into answers.

use serde_json::{Value, json};
use testkit::http::HeldConnection;

use crate::support::{TestGateway, TestQuery, plain_module};

/// Sends a JavaScript program and asserts that it is refused with this code.
async fn expect_problem(gateway: &TestGateway, source: &str, code: &str) {
    gateway.expect_problem(TestQuery::javascript(source), 422, code).await;
}

#[tokio::test]
async fn each_run_has_its_own_randomness_and_the_current_time() {
    let gateway = TestGateway::shared().await;
    let source = "export default () => [Math.random(), crypto.randomUUID(), [...crypto.getRandomValues(new Uint8Array(8))], Date.now()]";
    let mut runs = Vec::new();
    for _ in 0..2 {
        let run: Value =
            serde_json::from_str(&gateway.expect_text(TestQuery::javascript(source)).await).expect("JSON");
        runs.push(run);
    }
    for what in ["/0", "/1", "/2"] {
        assert_ne!(runs[0].pointer(what), runs[1].pointer(what), "{what}");
    }
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_millis();
    let told = u128::from(runs[1][3].as_u64().expect("milliseconds"));
    assert!(told <= now && now - told < 3_600_000, "{told} is not {now}");
}

#[tokio::test]
async fn return_values_become_answers() {
    let gateway = TestGateway::shared().await;
    for (value, status, content_type, body) in [
        ("'text'", 200, "text/plain; charset=utf-8", "text"),
        ("({ a: 1 })", 200, "application/json", r#"{"a":1}"#),
        ("[]", 200, "application/json", "[]"),
        ("0", 200, "application/json", "0"),
        ("false", 200, "application/json", "false"),
        ("NaN", 200, "application/json", "null"),
        ("new Date(0)", 200, "application/json", "\"1970-01-01T00:00:00.000Z\""),
        ("new Uint8Array([104, 105])", 200, "application/octet-stream", "hi"),
        ("new TextEncoder().encode('hi').buffer", 200, "application/octet-stream", "hi"),
        ("undefined", 204, "", ""),
        ("null", 204, "", ""),
        (
            "new Response('no', { status: 404, headers: { 'content-type': 'text/html', etag: '\"1\"' } })",
            404,
            "text/html",
            "no",
        ),
        ("Response.json([1], { status: 201 })", 201, "application/json", "[1]"),
        ("new Response(null, { status: 204 })", 204, "", ""),
        ("'a\\u{1F600}b\\uD800c'", 200, "text/plain; charset=utf-8", "a\u{1F600}b\u{FFFD}c"),
    ] {
        let answer =
            TestQuery::javascript(&format!("export default async () => {value}")).send(&gateway).await;
        assert_eq!((answer.status.as_u16(), &*answer.text()), (status, body), "{value}");
        if !content_type.is_empty() {
            assert_eq!(answer.header("content-type"), content_type, "{value}");
        }
    }
}

#[tokio::test]
async fn rejects_unusable_return_values() {
    let gateway = TestGateway::shared().await;
    for value in [
        "() => 1",
        "Symbol()",
        "10n",
        "({ n: 10n })",
        "(() => { const a = {}; a.a = a; return a })()",
        "({ toJSON() {} })",
        "new Response('', { headers: { 'set-cookie': 'a=b' } })",
    ] {
        let source = format!("export default () => ({value})");
        let document = TestQuery::javascript(&source).send(&gateway).await.json();
        let code = document["code"].as_str().unwrap_or("none");
        assert!(["program-bad-answer", "answer-header"].contains(&code), "{value}: {document}");
    }
    expect_problem(&gateway, "export default () => new Response('', { status: 99 })", "program-threw").await;
    expect_problem(&gateway, "export default 5", "program-bad-answer").await;
    expect_problem(&gateway, "export const main = () => 1", "program-bad-answer").await;
}

/// Values that `JSON.stringify` writes as `{}`, without their data, and the beginning of the error for them.
const LOSSY_VALUES: &[(&str, &str)] = &[
    ("[1, { deep: up.get('/json?n=1') }]", "a Promise has no JSON form"),
    ("new Map([[1, 2]])", "a Map has no JSON form"),
    ("{ deep: [new (class extends Map {})()] }", "a Map has no JSON form"),
    ("new Set([1])", "a Set has no JSON form"),
    ("[new Set([1])]", "a Set has no JSON form"),
    ("new RangeError('lost')", "an Error has no JSON form"),
    ("new Headers({ a: 'b' })", "Headers have no JSON form"),
    ("new Map([[1, 2]]).values()", "an iterable object has no JSON form"),
    ("[...Array(70)].reduce((inner) => [inner], new Map([[1, 2]]))", "a Map has no JSON form"),
    ("{ a: { toJSON: () => ({ deep: new Set([1]) }) } }", "a Set has no JSON form"),
    ("{ toJSON: () => up.get('/json?n=1') }", "a Promise has no JSON form"),
];

#[tokio::test]
async fn return_values_that_would_lose_their_data_are_rejected() {
    let gateway = TestGateway::shared().await;
    let params = ("new URLSearchParams('a=1')", "URLSearchParams have no JSON form");
    for (value, expected) in LOSSY_VALUES.iter().chain([&params]) {
        let source = format!("export default async (_, {{ up }}) => ({value})");
        let document =
            gateway.expect_problem(TestQuery::javascript(&source), 422, "program-bad-answer").await;
        let detail = document["detail"].as_str().unwrap_or_default();
        assert!(detail.starts_with(&format!("TypeError: {expected}")), "{value}: {document}");
    }
}

#[tokio::test]
async fn response_json_rejects_values_that_would_lose_their_data() {
    let gateway = TestGateway::shared().await;
    let promise = ("up.get('/json?n=1')", "a Promise has no JSON form");
    let params = ("new URLSearchParams('a=1')", "URLSearchParams have no JSON form");
    for (value, expected) in LOSSY_VALUES.iter().chain([&promise, &params]) {
        let source = format!(
            "export default (_, {{ up }}) => {{
                try {{ return Response.json({value}) }} catch (e) {{ return `${{e.name}}: ${{e.message}}` }}
            }}"
        );
        let answer = gateway.expect_text(TestQuery::javascript(&source)).await;
        assert!(answer.starts_with(&format!("TypeError: {expected}")), "{value}: {answer}");
    }
}

#[tokio::test]
async fn bodies_that_would_lose_their_data_are_not_sent() {
    let gateway = TestGateway::start(
        "  - { path: /write, query: { services: [up], methods: [GET, POST, PUT, PATCH] } }",
    )
    .await;
    let promise = ("up.get('/json?n=1')", "a Promise has no JSON form");
    let response = ("new Response('lost')", "a Response has no JSON form");
    for (value, expected) in LOSSY_VALUES.iter().chain([&promise, &response]) {
        for method in ["post", "put", "patch"] {
            let source = format!(
                "export default async (_, {{ up }}) => {{
                    try {{ await up.{method}('/echo', {value}); return 'sent' }} catch (e) {{ return `${{e.name}}: ${{e.message}}` }}
                }}"
            );
            let answer = gateway.expect_text(TestQuery::javascript(&source).with_path("/write")).await;
            assert!(answer.starts_with(&format!("TypeError: {expected}")), "{method} {value}: {answer}");
        }
    }
    assert_eq!(gateway.upstream.hits("/echo"), 0, "a body was sent");
}

#[tokio::test]
async fn objects_without_data_of_their_own_are_sent_as_json() {
    let gateway = TestGateway::shared().await;
    for (value, json) in [
        ("{}", "{}"),
        ("Object.create(null)", "{}"),
        ("new (class A { #a = 1 })()", "{}"),
        ("new Proxy({}, {})", "{}"),
        ("Object.assign(new Map(), { toJSON: () => ({}) })", "{}"),
        ("Object.assign(new Set(), { toJSON: () => 1 })", "1"),
        ("Object.assign(new Error('e'), { code: 7 })", r#"{"code":7}"#),
        ("[new Error('e'), new Headers()]", "[{},{}]"),
    ] {
        let returned = format!("export default () => ({value})");
        assert_eq!(gateway.expect_text(TestQuery::javascript(&returned)).await, json, "{value}");
        let sent = format!("export default async (_, {{ up }}) => (await up.post('/echo', {value})).body");
        assert_eq!(
            gateway.expect_text(TestQuery::javascript(&sent).with_path("/write")).await,
            json,
            "{value}, as a body"
        );
    }
}

#[tokio::test]
async fn responses_of_statuses_without_a_body_reject_one() {
    let gateway = TestGateway::shared().await;
    for status in [204, 205, 304] {
        for body in ["'lost'", "''", "new Uint8Array(1)", "new URLSearchParams('a=1')"] {
            let source = format!("export default () => new Response({body}, {{ status: {status} }})");
            let document = gateway.expect_problem(TestQuery::javascript(&source), 422, "program-threw").await;
            let detail = document["detail"].as_str().unwrap_or_default();
            assert!(detail.starts_with("TypeError: a Response of status"), "{status}, {body}: {document}");
        }
        expect_problem(
            &gateway,
            &format!("export default () => Response.json(1, {{ status: {status} }})"),
            "program-threw",
        )
        .await;
        for body in ["null", "undefined"] {
            let source = format!("export default () => new Response({body}, {{ status: {status} }})");
            assert_eq!(TestQuery::javascript(&source).send(&gateway).await.status.as_u16(), status, "{body}");
        }
    }
}

#[tokio::test]
async fn input_of_every_kind() {
    let gateway = TestGateway::shared().await;
    let echo = "export default (input) => ({ input })";
    for (input, told) in [
        ("", "{}"),
        ("null", "null"),
        ("[1,\"ä\"]", "[1,\"ä\"]"),
        ("7", "7"),
        ("{\"__proto__\":1}", "{\"__proto__\":1}"),
    ] {
        assert_eq!(
            gateway.expect_text(TestQuery::javascript(echo).input(input)).await,
            format!("{{\"input\":{told}}}")
        );
    }
    let bytes = "export const input = 'bytes'; export default (input) => [input instanceof Uint8Array, input.length, input[0]]";
    assert_eq!(
        gateway.expect_text(TestQuery::javascript(bytes).input("\u{0}{not json")).await,
        "[true,10,0]"
    );
    let text = "export const input = 'text'; export default (input) => input.toUpperCase()";
    assert_eq!(gateway.expect_text(TestQuery::javascript(text).input("{not json")).await, "{NOT JSON");
    gateway.expect_problem(TestQuery::javascript(echo).input("{not json"), 422, "program-refused").await;
    expect_problem(&gateway, "export const input = 5; export default () => 1", "program-bad-answer").await;
}

#[tokio::test]
async fn service_errors_describe_the_failure() {
    let gateway = TestGateway::shared().await;
    let source = "export default async (_, { up, dead, impatient }) => {
        const told = async (call) => {
            try { return await call() } catch (e) {
                return [e instanceof ServiceError, e.name, e.service, e.method, e.path, e.status, e.body, e.reason ?? null];
            }
        };
        return [
            await told(() => up.get('/status/{code}', { code: 418, q: 'a b' })),
            await told(() => dead.get('/x')),
            await told(() => impatient.get('/hang')),
            await told(() => up.get('/reset')),
            await told(() => up.get('/echo').then(() => 'well')),
        ];
    }";
    let value: Value =
        serde_json::from_str(&gateway.expect_text(TestQuery::javascript(source)).await).expect("JSON");
    let expected = json!([
        [true, "ServiceError", "up", "GET", "/status/418?q=a%20b", 418, "as you wish\n", null],
        [true, "ServiceError", "dead", "GET", "/x", 0, null, "unreachable"],
        [true, "ServiceError", "impatient", "GET", "/hang", 0, null, "timeout"],
        [true, "ServiceError", "up", "GET", "/reset", 0, null, "broken"],
        "well"
    ]);
    assert_eq!(value, expected);
}

#[tokio::test]
async fn path_placeholders_are_filled_in_safely() {
    let gateway = TestGateway::shared().await;
    let path = |call: &str| {
        TestQuery::javascript(&format!("export default async (_, {{ up }}) => (await {call}).path"))
    };
    assert_eq!(
        gateway.expect_text(path("up.get('/echo', { a: 'b&c=d', e: [1, 2], f: null })")).await,
        "/echo?a=b%26c%3Dd&e=1,2"
    );
    for id in ["'..'", "'.'", "''", "'../secret'"] {
        let query = TestQuery::javascript(&format!(
            "export default async (_, {{ up }}) => (await up.get('/{{id}}', {{ id: {id} }}))"
        ));
        let document = query.send(&gateway).await.json();
        let code = document["code"].as_str().unwrap_or("none");
        assert!(
            ["program-threw", "path-dot-segment", "path-encoded-slash"].contains(&code),
            "{id}: {document}"
        );
    }
    gateway.assert_responsive("/query").await;
}

#[tokio::test]
async fn parameters_are_sent_or_refused_and_never_lost() {
    let gateway = TestGateway::shared().await;
    let path = |call: &str| {
        TestQuery::javascript(&format!("export default async (_, {{ up }}) => (await {call}).path"))
    };
    for (params, expected) in [
        ("new URLSearchParams({ a: 'b c&', d: '1' })", "/echo?a=b+c%26&d=1"),
        ("new URLSearchParams()", "/echo"),
        ("Object.assign(Object.create(null), { a: 1 })", "/echo?a=1"),
        ("{ get a() { return 1 } }", "/echo?a=1"),
        ("{ a: [] }", "/echo?a="),
        ("{ a: ['', ''] }", "/echo?a=,"),
        ("{ a: undefined, b: null }", "/echo"),
    ] {
        assert_eq!(
            gateway.expect_text(path(&format!("up.get('/echo', {params})"))).await,
            expected,
            "{params}"
        );
    }
    for (call, told) in [
        ("up.get('/echo', new Map([['a', 1]]))", "plain object"),
        ("up.get('/echo', new Headers({ a: '1' }))", "plain object"),
        ("up.get('/echo', new Date())", "plain object"),
        ("up.get('/echo', () => 1)", "plain object"),
        ("up.get('/echo', new (class { get a() { return 1 } })())", "plain object"),
        ("up.get('/echo', Object.create({ a: 1 }))", "plain object"),
        ("up.get('/{a}', new URLSearchParams({ a: 'echo' }))", "params has no 'a'"),
        ("up.get('/{a}', { a: ['echo', ''] })", "can't be filled with ''"),
        ("up.get('/{a}', { a: ['echo', '..'] })", "can't be filled with '..'"),
        ("up.get('/{a}', { a: [] })", "can't be filled with ''"),
        ("up.delete('/echo', { a: [] })", "'a' is an empty list"),
        ("up.post('/echo', 1, { a: [''] })", "'a' is an empty list"),
        ("up.put('/echo', 1, { a: ['', ''] })", "'a' is a list with an empty text in it"),
        ("up.delete('/echo', { a: ['b', '', 'c'] })", "'a' is a list with an empty text in it"),
        ("up.delete('/echo', { a: undefined })", "'a' is undefined"),
        ("up.patch('/echo', 1, { a: null })", "'a' is null"),
    ] {
        let document = gateway.expect_problem(path(call), 422, "program-threw").await;
        assert!(document["detail"].as_str().is_some_and(|text| text.contains(told)), "{call}: {document}");
    }
}

#[tokio::test]
async fn fetch_follows_the_standard() {
    let gateway = TestGateway::shared().await;
    let source = "export default async (_, { up }) => {
        const answer = await up.fetch('/status/404');
        const echo = await up.fetch('/echo', { method: 'POST', headers: { 'X-A': 'b' }, body: new URLSearchParams({ a: '1' }) });
        const { method, headers, body } = await echo.json();
        return [answer.ok, answer.status, await answer.text(), method, headers['x-a'], headers['content-type'], body];
    }";
    let value: Value =
        serde_json::from_str(&gateway.expect_text(TestQuery::javascript(source).with_path("/write")).await)
            .expect("JSON");
    let form = "application/x-www-form-urlencoded";
    assert!(value[5].as_str().is_some_and(|text| text.starts_with(form)), "{value}");
    assert_eq!((&value[0], &value[1], &value[2]), (&json!(false), &json!(404), &json!("as you wish\n")));
    assert_eq!((&value[3], &value[4], &value[6]), (&json!("POST"), &json!("b"), &json!("a=1")));
    let passed =
        TestQuery::javascript("export default (_, { up }) => up.fetch('/status/418')").send(&gateway).await;
    assert_eq!((passed.status.as_u16(), &*passed.text()), (418, "as you wish\n"));
}

#[tokio::test]
async fn statuses_without_a_body_keep_the_connection_in_sync() {
    let gateway = TestGateway::shared().await;
    let mut connection = HeldConnection::open(&gateway.gateway.url).await.expect("a connection");
    let headers = [("content-type", "application/wasm")];
    for (status, body) in [(204, ""), (205, ""), (304, ""), (200, "body")] {
        let program =
            format!("(drop (call $status (i32.const {status}))) (call $done (i32.const 0) (i32.const 4))");
        let module = plain_module("(data (i32.const 0) \"body\")", &program);
        let answer = connection.request("POST", "/query", &headers, module).await.expect("HTTP");
        assert_eq!((answer.status.as_u16(), &*answer.text()), (status, body));
    }
}

#[tokio::test]
async fn answers_made_with_the_callers_credentials_are_private() {
    let gateway = TestGateway::shared().await;
    let cached = |call: &str| {
        let source = format!(
            "export default async (_, s) => {{
                await {call};
                return new Response('', {{ headers: {{ 'cache-control': 'public, max-age=60' }} }});
            }}"
        );
        TestQuery::javascript(&source)
    };
    let response = cached("s.guarded.get('/json')").send(&gateway).await;
    assert_eq!(
        (response.header("cache-control"), response.header("vary")),
        ("private, max-age=60", "authorization")
    );
    let everybodys = cached("s.up.get('/json')").send(&gateway).await;
    assert_eq!((everybodys.header("cache-control"), everybodys.header("vary")), ("public, max-age=60", ""));
}
