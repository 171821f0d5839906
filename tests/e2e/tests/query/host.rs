//! Host functions called in every invalid way: each has its own problem, and none panics.

use std::collections::BTreeSet;

use query_abi::HOST_FUNCTIONS;

use crate::support::{TestGateway, TestQuery, build_c_program, plain_module, request_segment};

/// The address of the tests' requests in guest memory.
const AT: u32 = 1024;

/// Sends a plain module with this body, asserts that it is refused with this code, and returns the problem.
async fn expect_problem(fields: &str, body: &str, code: &str) -> serde_json::Value {
    let gateway = TestGateway::shared().await;
    gateway.expect_problem(TestQuery::module(plain_module(fields, body)), 422, code).await
}

/// Returns code that calls `http://up/json`, waits for the response (handle `$h`) and runs `then`.
fn after_response(then: &str) -> String {
    format!(
        "(local $h i32) (local.set $h (call $http (i32.const {AT}))) (i32.store (i32.const 8) (local.get $h))
        (drop (call $Future_wait (i32.const 8) (i32.const 1) (i32.const 1))) {then}"
    )
}

#[tokio::test]
async fn rejects_wild_pointers() {
    let good = request_segment(AT, "GET", "http://up/json?n=1", &[("accept", "*/*")], "body");
    let mut tried = BTreeSet::new();
    for call in [
        "$done (i32.const -16) (i32.const 64)",
        "$done (i32.const 131072) (i32.const 1)",
        "$done (i32.const 0) (i32.const -1)",
        "$done (i32.const 131073) (i32.const 0)",
        "$http (i32.const -4)",
        "$http (i32.const 131060)",
        "$Response_get (local.get $h) (i32.const -8)",
        "$Response_read (local.get $h) (i32.const 0) (i32.const 131070) (i32.const 64)",
        "$Response_read (local.get $h) (i32.const 1) (i32.const -1) (i32.const 64)",
        "$Response_json (local.get $h) (i32.const -1) (i32.const 2) (i32.const 0) (i32.const 8)",
        "$Response_json (local.get $h) (i32.const 0) (i32.const 0) (i32.const 131071) (i32.const 8)",
        "$Json_root (local.get $h) (i32.const -8) (i32.const 0) (i32.const 0)",
        "$Json_root (local.get $h) (i32.const 0) (i32.const 131071) (i32.const 8)",
        "$Json_member (local.get $h) (i32.const 0) (i32.const -1) (i32.const 2) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)",
        "$Json_member (local.get $h) (i32.const 0) (i32.const 0) (i32.const 2) (i32.const 0) (i32.const 131064) (i32.const 0) (i32.const 0)",
        "$Json_member (local.get $h) (i32.const 0) (i32.const 0) (i32.const 2) (i32.const 1) (i32.const 0) (i32.const -1) (i32.const 9)",
        "$Json_column (local.get $h) (i32.const 0) (i32.const -1) (i32.const 2) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)",
        "$Json_column (local.get $h) (i32.const 0) (i32.const 0) (i32.const 2) (i32.const 0) (i32.const 131056) (i32.const 2) (i32.const 0) (i32.const 0)",
        "$Json_column (local.get $h) (i32.const 0) (i32.const 0) (i32.const 2) (i32.const 0) (i32.const 0) (i32.const 268435457) (i32.const 0) (i32.const 0)",
        "$Json_column (local.get $h) (i32.const 0) (i32.const 0) (i32.const 2) (i32.const 1) (i32.const 0) (i32.const 1) (i32.const -1) (i32.const 9)",
        "$Json_children (local.get $h) (i32.const 0) (i32.const 131071) (i32.const 64)",
        "$Json_text (local.get $h) (i32.const 0) (i32.const -1) (i32.const 1)",
        "$Future_wait (i32.const -4) (i32.const 1) (i32.const 1)",
        "$Future_wait (i32.const 0) (i32.const -1) (i32.const 1)",
        "$Future_wait (i32.const 131068) (i32.const 2) (i32.const 0)",
        "$header (i32.const -1) (i32.const 4) (i32.const 0) (i32.const 0)",
        "$header (i32.const 16) (i32.const 4) (i32.const -1) (i32.const 4)",
        "$random (i32.const 131071) (i32.const 2)",
        "$random (i32.const 0) (i32.const 131072)",
        "$log (i32.const -1) (i32.const 100)",
        "$fail (i32.const 0) (i32.const -1) (i32.const 100) (i32.const 0) (i32.const 0)",
    ] {
        let name = call.split(' ').next().expect("a name").trim_start_matches('$');
        let function = HOST_FUNCTIONS.iter().find(|function| function.name == name).expect("a host function");
        let call = if function.result.is_some() {
            format!("(drop (call {call}))")
        } else {
            format!("(call {call})")
        };
        let etag = "(data (i32.const 16) \"etag\")";
        let document =
            expect_problem(&format!("{good} {etag}"), &after_response(&call), "program-bad-pointer").await;
        assert!(
            document["detail"].as_str().is_some_and(|text| text.contains(&format!("`{name}`"))),
            "{call}: {document}"
        );
        tried.insert(name);
    }
    let takes_pointers =
        HOST_FUNCTIONS.iter().filter(|function| function.params.iter().any(|(_, c, _)| c.contains('*')));
    assert_eq!(
        tried,
        takes_pointers.map(|function| function.name).collect(),
        "every function that takes a pointer"
    );
}

#[tokio::test]
async fn wild_pointers_inside_a_request() {
    let good = request_segment(AT, "GET", "http://up/json", &[("accept", "*/*")], "body");
    for word in [0, 2, 4, 6, 8, 10] {
        let body = format!(
            "(i32.store (i32.const {}) (i32.const -2)) (drop (call $http (i32.const {AT})))",
            AT + word * 4
        );
        expect_problem(&good, &body, "program-bad-pointer").await;
    }
    for length in [1, 3, 7, 9, 11] {
        let body = format!(
            "(i32.store (i32.const {}) (i32.const -1)) (drop (call $http (i32.const {AT})))",
            AT + length * 4
        );
        expect_problem(&good, &body, "program-bad-pointer").await;
    }
}

#[tokio::test]
async fn handles_that_do_not_exist() {
    let call = request_segment(AT, "GET", "http://up/json?n=1", &[], "");
    for handle in ["0", "-1", "2", "2147483647", "-2147483648"] {
        for function in [
            "(call $Handle_del (i32.const #))",
            "(drop (call $Future_ready (i32.const #)))",
            "(drop (call $Response_get (i32.const #) (i32.const 0)))",
            "(drop (call $Response_read (i32.const #) (i32.const 0) (i32.const 0) (i32.const 0)))",
            "(drop (call $Response_json (i32.const #) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)))",
            "(drop (call $Json_root (i32.const #) (i32.const 0) (i32.const 0) (i32.const 0)))",
            "(drop (call $Json_member (i32.const #) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)))",
            "(drop (call $Json_column (i32.const #) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)))",
            "(drop (call $Json_children (i32.const #) (i32.const 0) (i32.const 0) (i32.const 0)))",
            "(drop (call $Json_text (i32.const #) (i32.const 0) (i32.const 0) (i32.const 0)))",
            "(i32.store (i32.const 8) (i32.const #)) (drop (call $Future_wait (i32.const 8) (i32.const 1) (i32.const 0)))",
        ] {
            let gateway = TestGateway::shared().await;
            let module = plain_module(&call, &after_response(&function.replace('#', handle)));
            let document = TestQuery::module(module).send(&gateway).await.json();
            assert_eq!(document["code"], "program-bad-handle", "{function}: {document}");
        }
    }
    let deleted =
        after_response("(call $Handle_del (local.get $h)) (drop (call $Future_ready (local.get $h)))");
    expect_problem(&call, &deleted, "program-bad-handle").await;
}

#[tokio::test]
async fn rejects_invalid_text() {
    let good = request_segment(AT, "GET", "http://up/json", &[("accept", "*/*")], "");
    let broken = |at: u32| {
        format!("(i32.store8 (i32.const {at}) (i32.const 255)) (drop (call $http (i32.const {AT})))")
    };
    let name = AT + 256;
    for at in [name, name + 9, name + 12] {
        expect_problem(&good, &broken(at), "program-bad-text").await;
    }
    let pointer = "(i32.store (i32.const 0) (i32.const -1)) (drop (call $Response_json (local.get $h) (i32.const 0) (i32.const 4) (i32.const 0) (i32.const 0)))";
    expect_problem(&good, &after_response(pointer), "program-bad-text").await;
    let newline = request_segment(AT, "GET", "http://up/json", &[("x-a", "b\r\nx-c: d")], "");
    expect_problem(&newline, &format!("(drop (call $http (i32.const {AT})))"), "program-bad-text").await;
}

#[tokio::test]
async fn done_twice_or_never() {
    let done = "(call $done (i32.const 0) (i32.const 1))";
    expect_problem("", &format!("{done} {done}"), "program-done-twice").await;
    expect_problem("", "", "program-no-answer").await;
    expect_problem("", "(drop (call $status (i32.const 404)))", "program-no-answer").await;
    expect_problem("", &format!("{done} unreachable"), "program-trapped").await;
}

#[tokio::test]
async fn accepts_statuses_from_200_to_599() {
    let gateway = TestGateway::shared().await;
    for (status, code) in [
        ("100", "-3"),
        ("199", "-3"),
        ("600", "-3"),
        ("-1", "-3"),
        ("70000", "-3"),
        ("418", "0"),
        ("200", "0"),
    ] {
        let body = format!(
            "(if (i32.ne (call $status (i32.const {status})) (i32.const {code})) (then unreachable))
            (call $done (i32.const 0) (i32.const 0))"
        );
        let answer = TestQuery::module(plain_module("", &body)).send(&gateway).await;
        assert_eq!(answer.status, if status == "418" { 418 } else { 200 }, "{status}: {}", answer.text());
    }
}

#[tokio::test]
async fn rejects_forbidden_answer_headers() {
    let gateway = TestGateway::shared().await;
    for name in [
        "Set-Cookie",
        "Access-Control-Allow-Origin",
        "Strict-Transport-Security",
        "Content-Security-Policy",
        "X-Content-Type-Options",
        "Content-Length",
        "Transfer-Encoding",
        "Connection",
        "Server-Timing",
        "Vary",
        "Refresh",
        "X-Anything",
        "",
        "bad name",
        "content-type\r\nset-cookie",
    ] {
        let document =
            gateway.expect_problem(TestQuery::module(header_setter(name, "x")), 422, "answer-header").await;
        let told = format!("`{}`", name.to_ascii_lowercase());
        assert!(document["detail"].as_str().is_some_and(|text| text.contains(&told)), "{document}");
        let script = format!("export default () => new Response('', {{ headers: {{ {name:?}: 'x' }} }})");
        let code = TestQuery::javascript(&script).send(&gateway).await.json()["code"].clone();
        // An invalid name throws where it is set, so that the program can catch it.
        let is_name = !name.is_empty() && !name.contains([' ', '\r']);
        assert_eq!(code, if is_name { "answer-header" } else { "program-threw" }, "{name:?}");
    }
    gateway.assert_responsive("/query").await;
}

/// Builds a module that sets a header and answers with the negated result of `header` as a digit.
fn header_setter(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| text.bytes().fold(String::new(), |all, byte| all + &format!("\\{byte:02x}"));
    let fields =
        format!("(data (i32.const 0) \"{}\") (data (i32.const 512) \"{}\")", text(name), text(value));
    let body = format!(
        "(i32.store8 (i32.const 900) (i32.add (i32.const 48) (i32.sub (i32.const 0)
            (call $header (i32.const 0) (i32.const {}) (i32.const 512) (i32.const {})))))
        (call $done (i32.const 900) (i32.const 1))",
        name.len(),
        value.len()
    );
    plain_module(&fields, &body)
}

#[tokio::test]
async fn accepts_permitted_answer_headers() {
    let gateway = TestGateway::shared().await;
    for (name, value) in
        [("Content-Type", "text/css"), ("etag", "\"1\""), ("Location", "/x"), ("Link", "<a>; rel=next")]
    {
        let answer = TestQuery::module(header_setter(name, value)).send(&gateway).await;
        assert_eq!((answer.header(name), &*answer.text()), (value, "0"));
    }
    let split = TestQuery::module(header_setter("etag", "a\r\nset-cookie: b")).send(&gateway).await;
    assert_eq!((split.header("etag"), split.header("set-cookie"), &*split.text()), ("", "", "3"));
}

#[tokio::test]
async fn rejects_forbidden_request_headers() {
    let gateway = TestGateway::shared().await;
    for name in [
        "Host",
        "Connection",
        "Keep-Alive",
        "Transfer-Encoding",
        "Content-Length",
        "Upgrade",
        "Forwarded",
        "X-Forwarded-For",
        "x_forwarded_for",
        "X-Real-IP",
        "ORFA-Trust",
        "CDN-Loop",
        "Via",
        "Proxy-Authorization",
        "X-HTTP-Method-Override",
        "traceparent",
        "TraceState",
    ] {
        let module = plain_module(
            &request_segment(AT, "GET", "http://up/echo", &[(name, "x")], ""),
            &format!("(drop (call $http (i32.const {AT})))"),
        );
        let document = gateway.expect_problem(TestQuery::module(module), 422, "header-forbidden").await;
        assert!(
            document["detail"].as_str().is_some_and(|text| text.contains(&name.to_ascii_lowercase())),
            "{document}"
        );
    }
}

#[tokio::test]
async fn the_operators_credentials_are_added_and_cannot_be_set() {
    let gateway = TestGateway::shared().await;
    let echo = "export default async (_, { guarded }) => guarded.fetch('/echo')";
    let told = gateway
        .expect_text(TestQuery::javascript(echo).header("authorization", "me").header("cookie", "a=b"))
        .await;
    assert!(told.contains(r#""x-api-key":"hush""#) && told.contains(r#""authorization":"me""#), "{told}");
    assert!(!told.contains("a=b"), "only the headers in `forward` are passed on: {told}");
    let write =
        "export default (_, { guarded }) => guarded.fetch('/echo', { headers: { 'x_api_key': 'mine' } })";
    gateway.expect_problem(TestQuery::javascript(write), 422, "header-reserved").await;
}

/// Asserts that a call of this URL with this method is refused, and that the problem does not contain the
/// service's address.
async fn expect_refused_call(method: &str, url: &str, code: &str) {
    let gateway = TestGateway::shared().await;
    let module = plain_module(
        &request_segment(AT, method, url, &[], ""),
        &format!("(drop (call $http (i32.const {AT})))"),
    );
    let document = gateway.expect_problem(TestQuery::module(module), 422, code).await;
    let address = gateway.upstream.address().to_string();
    assert!(document["detail"].as_str().is_some_and(|text| !text.contains(&address)), "{document}");
}

#[tokio::test]
async fn rejects_unknown_services() {
    for host in ["catalog", "localhost", "169.254.169.254", "127.0.0.1", "up.example.org", "xn--up"] {
        let code = if host.contains('.') { "url-invalid" } else { "call-unknown-service" };
        expect_refused_call("GET", &format!("http://{host}/json"), code).await;
    }
}

#[tokio::test]
async fn rejects_invalid_urls() {
    for (url, code) in [
        ("", "url-invalid"),
        ("/json", "url-invalid"),
        ("up/json", "url-invalid"),
        ("http://", "url-invalid"),
        ("http:///json", "url-invalid"),
        ("http://up/a b", "url-invalid"),
        ("http://up/a\r\nx: y", "url-invalid"),
        ("http://[::1]/json", "url-port"),
        ("https://up/json", "url-scheme"),
        ("file:///etc/passwd", "url-scheme"),
        ("http://me@up/json", "url-userinfo"),
        ("http://up@evil/json", "url-userinfo"),
        ("http://up:81/json", "url-port"),
        ("http://up/json#there", "url-fragment"),
    ] {
        expect_refused_call("GET", url, code).await;
    }
}

#[tokio::test]
async fn rejects_ambiguous_paths() {
    for (path, code) in [
        ("/a/../b", "path-dot-segment"),
        ("/./a", "path-dot-segment"),
        ("/a/%2e%2e/b", "path-dot-segment"),
        ("/a/.%2E", "path-dot-segment"),
        ("/a/..;x=1/b", "path-dot-segment"),
        ("/a/..%2Fb", "path-dot-segment"),
        ("/a%2Fb", "path-encoded-slash"),
        ("/a%2fb", "path-encoded-slash"),
        ("/a%5Cb", "path-backslash"),
        ("\\a", "path-backslash"),
        ("/a%00", "path-control-character"),
        ("/a%0d%0ab", "path-control-character"),
        ("/a%zz", "path-bad-escape"),
        ("/a%2", "path-bad-escape"),
    ] {
        expect_refused_call("GET", &format!("http://up{path}"), code).await;
    }
    expect_refused_call("GET", "http://guarded/secret", "path-forbidden").await;
    expect_refused_call("GET", "http://guarded//secret/../json", "path-dot-segment").await;
}

#[tokio::test]
async fn methods_not_permitted_by_the_route() {
    for method in ["POST", "DELETE", "PUT", "PATCH", "get", "OPTIONS", "CONNECT", "TRACE", "PROPFIND"] {
        expect_refused_call(method, "http://up/json", "call-method").await;
    }
    expect_refused_call("", "http://up/json", "program-bad-text").await;
    expect_refused_call("GET /evil HTTP/1.1\r\nx:", "http://up/json", "program-bad-text").await;
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let gateway = TestGateway::shared().await;
    let program = "export default async (_, { up }) => { const r = await up.fetch('/redirect'); return [r.status, r.headers.get('location')] }";
    assert_eq!(gateway.expect_text(TestQuery::javascript(program)).await, r#"[302,"/echo"]"#);
}

#[tokio::test]
async fn calls_overlap() {
    let gateway =
        TestGateway::start("  - { path: /query, query: { services: [up], limits: { timeout: 60s } } }").await;
    let source = r#"#include <orfa.h>
        void orfa(const void *input, int len) {
            orfa_future calls[8];
            for (int i = 0; i < 8; i++) calls[i] = orfa_get("http://up/hang?i=%d", i);
            orfa_wait_all(calls, 8);
        }"#;
    let javascript = "export default (_, { up }) => Promise.all([1, 2, 3, 4, 5, 6, 7, 8].map((i) => up.get('/hang', { i })))";
    let queries = [TestQuery::module(build_c_program(source).await), TestQuery::javascript(javascript)];
    for (seen, query) in [8, 16].into_iter().zip(queries) {
        // No call is ever answered: only concurrent calls can all reach the service.
        tokio::select! {
            answer = query.send(&gateway) => panic!("{}", answer.text()),
            () = gateway.upstream.wait_for_requests("/hang", seen) => {}
        }
    }
    gateway.assert_responsive("/query").await;
}

#[tokio::test]
async fn random_numbers_and_logs() {
    let house = TestGateway::shared().await;
    let random = plain_module(
        "",
        "(call $random (i32.const 0) (i32.const 16)) (call $done (i32.const 0) (i32.const 16))",
    );
    let (first, second) = (
        TestQuery::module(&random[..]).send(&house).await,
        TestQuery::module(&random[..]).send(&house).await,
    );
    assert!(first.body.len() == 16 && first.body != second.body);
    let log = "#include <orfa.h>
        void orfa(const void *input, int len) {
            for (int i = 0; i < 1000; i++) orfa_log(\"line %d\", i);
            orfa_fail(\"no %s\", \"luck\");
        }";
    let document =
        house.expect_problem(TestQuery::module(build_c_program(log).await), 422, "program-refused").await;
    assert_eq!(document["detail"], "no luck");
    let console = document["console"].as_str().expect("a console");
    assert!(console.len() <= 4096 && console.ends_with("line 999\n"), "{console}");
}

#[tokio::test]
async fn a_problem_quotes_no_more_than_4_kb_of_a_program() {
    let gateway = TestGateway::shared().await;
    for (body, code) in [
        (
            "(call $fail (i32.const 0) (i32.const 0) (i32.const 131072) (i32.const 0) (i32.const 0))",
            "program-refused",
        ),
        (
            "(drop (call $header (i32.const 0) (i32.const 131072) (i32.const 0) (i32.const 0)))",
            "answer-header",
        ),
    ] {
        let fill = "(memory.fill (i32.const 0) (i32.const 97) (i32.const 131072))";
        let document = gateway
            .expect_problem(TestQuery::module(plain_module("", &format!("{fill} {body}"))), 422, code)
            .await;
        assert!(document.to_string().len() < 5000, "{}", document.to_string().len());
    }
}

#[tokio::test]
async fn arbitrary_json_positions_are_safe() {
    let gateway = TestGateway::shared().await;
    let call = request_segment(AT, "GET", "http://up/json?n=2", &[], "");
    let ask = "(loop $next
          (drop (call $Json_children (local.get $h) (local.get $place) (i32.const 8192) (i32.const 4096)))
          (drop (call $Json_text (local.get $h) (local.get $place) (i32.const 8192) (i32.const 64)))
          (drop (call $Json_member (local.get $h) (local.get $place) (i32.const 16) (i32.const 2) (i32.const 0)
            (i32.const 8192) (i32.const 9000) (i32.const 64)))
          (drop (call $Json_column (local.get $h) (local.get $place) (i32.const 16) (i32.const 2) (i32.const 1)
            (i32.const 8192) (i32.const 8) (i32.const 9000) (i32.const 64)))
          (local.set $place (i32.add (local.get $place) (i32.const 1)))
          (br_if $next (i32.lt_u (local.get $place) (i32.const 200))))
        (drop (call $Json_text (local.get $h) (i32.const -1) (i32.const 8192) (i32.const 64)))
        (call $done (i32.const 16) (i32.const 2))";
    let body = format!("(local $place i32) {}", after_response(ask));
    let module = plain_module(&format!("{call} (data (i32.const 16) \"id\")"), &body);
    assert_eq!(gateway.expect_text(TestQuery::module(module)).await, "id");
}

#[tokio::test]
async fn reads_a_member_of_many_items_at_once() {
    let gateway = TestGateway::shared().await;
    let body = r#"[{"n":1,"n":7},{"n":"ab"},{},{"n":2},5,{"n":"abc"},{"n":"d"}]"#;
    let call = request_segment(AT, "POST", "http://up/body", &[], body);
    // Kinds, lengths and numbers from the second item on, with space for the text of one item.
    let ask = |place: u32, last: u32| {
        format!(
            "(i32.store (i32.const 12288) (call $Json_column (local.get $h) (i32.const {place}) (i32.const 16) (i32.const 1)
            (i32.const {last}) (i32.const 12292) (i32.const 8) (i32.const 16384) (i32.const 4)))
            (call $done (i32.const 12288) (i32.const 132))"
        )
    };
    let [first, second] = [0, 1].map(|number| object_offset(body, number));
    for (place, last, count, kinds) in [
        (first, 0, 5, &[3, 7, 11, 3, 11][..]),
        (second, 0, 4, &[7, 11, 3, 11]),
        (first, 1, 5, &[3, 7, 11, 3, 11]),
    ] {
        let module =
            plain_module(&format!("{call} (data (i32.const 16) \"n\")"), &after_response(&ask(place, last)));
        let answer = TestQuery::module(module).with_path("/write").send(&gateway).await;
        let words: Vec<_> =
            answer.body.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let values = words[1..].chunks(4).take(kinds.len());
        assert_eq!(words[0], count, "{words:?}");
        assert_eq!(values.clone().map(|value| value[0]).collect::<Vec<_>>(), kinds, "{words:?}");
        if place == first {
            assert_eq!(words[3], if last == 1 { 7 } else { 1 }, "{words:?}");
        }
    }
}

/// Returns the offset of the object with this number in a text.
fn object_offset(text: &str, number: usize) -> u32 {
    let found = text.match_indices('{').nth(number).map_or(0, |(place, _)| place);
    u32::try_from(found).unwrap_or(u32::MAX)
}

#[tokio::test]
async fn a_call_with_a_head_of_more_than_64_kib_ends_the_run() {
    // The value of each header is in the second of the two pages.
    let call = request_segment(AT, "GET", "http://up/status/200", &[], "");
    let fields = format!("{call} (data (i32.const 4096) \"x-a\")");
    for (count, len) in [(1, 65_530), (90, 1000)] {
        let mut body = "(memory.fill (i32.const 65536) (i32.const 97) (i32.const 65536))".to_owned();
        let mut store = |at: u32, word: u32| {
            body += &format!("(i32.store (i32.const {at}) (i32.const {word}))");
        };
        store(AT + 16, 8192);
        store(AT + 20, count);
        for header in (0..count).map(|index| 8192 + 16 * index) {
            (header..).step_by(4).zip([4096, 3, 65_536, len]).for_each(|(at, word)| store(at, word));
        }
        body += &format!("(drop (call $http (i32.const {AT})))");
        let document = expect_problem(&fields, &body, "call-head-too-large").await;
        let detail = document["detail"].as_str().unwrap_or_default();
        assert!(detail.contains("http://up/status/200") && detail.contains("64 KiB"), "{document}");
    }
    TestGateway::shared().await.assert_responsive("/query").await;
}

#[tokio::test]
async fn a_pointer_or_name_of_more_than_16_kib_is_invalid() {
    let gateway = TestGateway::shared().await;
    let call = request_segment(AT, "GET", "http://up/json?n=1", &[], "");
    for (len, code) in [(16_384, "-2"), (16_385, "-3"), (65_536, "-3")] {
        for asked in [
            format!(
                "(call $Response_json (local.get $h) (i32.const 65536) (i32.const {len}) (i32.const 0) (i32.const 0))"
            ),
            format!(
                "(call $Json_member (local.get $h) (local.get $root) (i32.const 65536) (i32.const {len}) (i32.const 0) (i32.const 64) (i32.const 0) (i32.const 0))"
            ),
        ] {
            // `/json` answers with an array of objects; the pointer starts with a slash.
            let body = after_response(&format!(
                "(memory.fill (i32.const 65536) (i32.const 97) (i32.const 65536)) (i32.store8 (i32.const 65536) (i32.const 47))
                (local.set $root (i32.const 0))
                (if (i32.ne {asked} (i32.const {code})) (then unreachable))
                (call $done (i32.const 0) (i32.const 0))"
            ));
            let body = format!("(local $root i32) {body}");
            assert_eq!(
                gateway.expect_text(TestQuery::module(plain_module(&call, &body))).await,
                "",
                "{len}: {asked}"
            );
        }
    }
}

#[tokio::test]
async fn long_header_names_are_refused_like_others() {
    let name = "content-type".repeat(20);
    let set =
        format!("(drop (call $header (i32.const 0) (i32.const {}) (i32.const 0) (i32.const 1)))", name.len());
    let document = expect_problem(&format!("(data (i32.const 0) \"{name}\")"), &set, "answer-header").await;
    assert!(document["detail"].as_str().is_some_and(|text| text.contains(&name)), "{document}");
}

#[tokio::test]
async fn bodies_of_several_mebibytes_are_copied_whole() {
    const LEN: u32 = (3 << 20) + 4 * 777;
    let gateway = TestGateway::start(
        "  - path: /query
    query:
      services: [up]
      methods: [GET, POST]
      limits: { memory: 32MiB, upstream_bytes: 8MiB, response_body: 8MiB, cpu: 10s, timeout: 60s }",
    )
    .await;
    // Increasing words are sent to a service that echoes them, read back, and returned as the answer.
    let call = request_segment(AT, "POST", "http://up/body", &[], "");
    let body = format!(
        "(local $i i32) (local $h i32) (drop (memory.grow (i32.const 128)))
        (loop (i32.store (i32.add (i32.const 131072) (local.get $i)) (local.get $i))
          (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 4))) (i32.const {LEN}))))
        (i32.store (i32.const {}) (i32.const 131072)) (i32.store (i32.const {}) (i32.const {LEN}))
        (local.set $h (call $http (i32.const {AT}))) (i32.store (i32.const 8) (local.get $h))
        (drop (call $Future_wait (i32.const 8) (i32.const 1) (i32.const 1)))
        (if (i32.ne (i32.const {LEN}) (call $Response_read (local.get $h) (i32.const 0) (i32.const 4194304) (i32.const 4194304)))
          (then unreachable))
        (call $done (i32.const 4194304) (i32.const {LEN}))",
        AT + 24,
        AT + 28
    );
    let answer = TestQuery::module(plain_module(&call, &body)).send(&gateway).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let expected: Vec<u8> = (0..LEN).step_by(4).flat_map(u32::to_le_bytes).collect();
    assert!(answer.body == expected, "the {} bytes differ", answer.body.len());
}
