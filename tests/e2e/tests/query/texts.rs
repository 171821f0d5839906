//! Strings with U+0000 or unpaired surrogates in upstream calls: none is cut, so the string that a program
//! checked is the one that is sent. Also invalid header fields.

use serde_json::{Value, json};

use crate::support::{TestGateway, TestQuery, build_c_program};

/// Returns calls that use `text`, a JavaScript expression, in every position that takes a string.
fn calls_with(text: &str) -> Vec<(&'static str, String)> {
    [
        ("path", "up.get('/echo' + TEXT + '.public')"),
        ("path of a delete", "up.delete('/echo' + TEXT)"),
        ("path of a fetch", "up.fetch('/echo' + TEXT, {})"),
        ("placeholder", "up.get('/{name}', { name: 'echo' + TEXT })"),
        ("placeholder in a list", "up.get('/{name}', { name: ['echo' + TEXT, 'b'] })"),
    ]
    .map(|(place, call)| (place, call.replace("TEXT", text)))
    .to_vec()
}

fn call_program(call: &str) -> TestQuery {
    TestQuery::javascript(&format!("export default async (_, {{ up }}) => ({call})")).with_path("/write")
}

#[tokio::test]
async fn paths_are_never_cut_at_nul() {
    let gateway = TestGateway::start(
        "  - path: /write
    query: { services: [up], methods: [GET, POST, DELETE] }",
    )
    .await;
    for (place, call) in calls_with(r"'\0'").into_iter().chain(calls_with(r"'\u0000/x'")) {
        let document = gateway
            .expect_problem(call_program(&format!("await {call}")), 422, "path-control-character")
            .await;
        assert!(document["detail"].as_str().is_some_and(|text| text.contains("%00")), "{place}: {document}");
    }
    assert_eq!(gateway.upstream.hits("/echo"), 0, "a request was sent to a shorter path");
}

#[tokio::test]
async fn parameters_are_not_cut_at_nul() {
    let gateway = TestGateway::shared().await;
    for (params, path) in [
        (r"{ 'a\0b': 1 }", "/echo?a%00b=1"),
        (r"{ '\0': 'x\0y' }", "/echo?%00=x%00y"),
        (r"{ a: ['1\0', '\0'] }", "/echo?a=1%00,%00"),
        (r"{ 'a\ud800': 'b\udc00' }", "/echo?a%EF%BF%BD=b%EF%BF%BD"),
        (r"{ 'é': '\ud83d\ude00' }", "/echo?%C3%A9=%F0%9F%98%80"),
    ] {
        let query = call_program(&format!("(await up.get('/echo', {params})).path"));
        assert_eq!(gateway.expect_text(query).await, path, "{params}");
    }
    let query = call_program(r"(await up.get('/echo?a\0b=c\ud800d\0')).path");
    assert_eq!(gateway.expect_text(query).await, "/echo?a%00b=c%EF%BF%BDd%00");
}

#[tokio::test]
async fn an_unpaired_surrogate_in_a_path_is_sent_as_the_replacement_character() {
    let gateway = TestGateway::shared().await;
    for (place, call) in calls_with(r"'\ud800'") {
        let query = call_program(&format!("await {call}.then(() => 'came', (e) => e.path)"));
        let path = gateway.expect_text(query).await;
        assert!(path == "came" || path.contains("%EF%BF%BD"), "{place}: {path}");
    }
}

#[tokio::test]
async fn c_strings_never_match_a_longer_text_with_a_nul() {
    let gateway = TestGateway::shared().await;
    let source = r#"#include <orfa.h>
        void orfa(const void *input, int len) {
            orfa_value json = orfa_json(input, len);
            const char *name = orfa_str(json, "none", "/name");
            orfa_value echo = orfa_get_json("http://up/echo?name=%v", orfa_at(json, "/name"));
            orfa_done_as("[%s,%b,%b,%v]", name, orfa_is(orfa_at(json, "/name"), "public"),
                         orfa_has(orfa_at(json, "/names"), "public"), orfa_at(echo, "/path"));
        }"#;
    let module = build_c_program(source).await;
    for (text, told) in [
        ("public", json!(["public", true, true, "/echo?name=public"])),
        ("public\0/../secret", json!(["none", false, false, "/echo?name=public%00%2F..%2Fsecret"])),
        ("\0", json!(["none", false, false, "/echo?name=%00"])),
    ] {
        let input = json!({ "name": text, "names": [text] }).to_string();
        let answer = gateway.expect_text(TestQuery::module(module.clone()).input(&input)).await;
        assert_eq!(serde_json::from_str::<Value>(&answer).unwrap(), told, "{text:?}");
    }
}

#[tokio::test]
async fn invalid_header_fields_and_methods_throw_a_catchable_error() {
    let house = TestGateway::shared().await;
    for init in [
        r"{ headers: { 'a\0': 'b' } }",
        r"{ headers: { '': 'b' } }",
        r"{ headers: { 'a b': 'c' } }",
        r"{ headers: { 'a:': 'c' } }",
        r"{ headers: { '\u212aey': 'c' } }",
        r"{ headers: { 'a\r\nx-b': 'c' } }",
        r"{ headers: { a: 'b\0c' } }",
        r"{ headers: { a: 'b\r\nx-c: d' } }",
        r"{ headers: { a: 'b\x7f' } }",
        r"{ headers: new Headers([['a\0b', 'c']]) }",
        r"{ method: 'GET\0' }",
        r"{ method: 'GET /x' }",
        r"{ method: 'DELET\u0130' }",
        r"{ method: '' }",
    ] {
        let call = format!("up.fetch('/echo', {init})");
        let query = call_program(&format!("await (async () => {call})().then(() => 'sent', (e) => e.name)"));
        assert_eq!(house.expect_text(query).await, "TypeError", "{init}");
    }
    let value = r"new Headers({ 'X-A': ' \tb\u00a0\r\n' }).get('x-a')";
    assert_eq!(house.expect_text(call_program(value)).await, "b\u{a0}", "only HTTP whitespace is trimmed");
}

#[tokio::test]
async fn headers_iterate_in_order_of_their_names() {
    let house = TestGateway::shared().await;
    let source = "(() => {
        const all = new Headers([['b', '1'], ['set-cookie', 'x=1'], ['a', '2'], ['B', '3'], ['set-cookie', 'y=2']]);
        const seen = [];
        all.forEach((value, name) => seen.push(name + '=' + value));
        return [[...all].map(([name, value]) => name + '=' + value).join(), seen.join(), [...all.keys()].join()].join(' ');
    })()";
    let sorted = "a=2,b=1, 3,set-cookie=x=1,set-cookie=y=2";
    let told = format!("{sorted} {sorted} a,b,set-cookie,set-cookie");
    assert_eq!(house.expect_text(call_program(source)).await, told);
}

#[tokio::test]
async fn headers_join_all_values_of_a_name() {
    let house = TestGateway::shared().await;
    let source = "(() => {
        const all = new Headers([['set-cookie', 'x=1'], ['a', '2'], ['Set-Cookie', 'y=2'], ['A', '3'], ['b', '']]);
        return [all.get('SET-COOKIE'), all.getSetCookie(), all.get('a'), all.get('b'), all.get('none')];
    })()";
    assert_eq!(house.expect_text(call_program(source)).await, r#"["x=1, y=2",["x=1","y=2"],"2, 3","",null]"#);
}

#[tokio::test]
async fn rejects_input_modes_with_a_nul() {
    let house = TestGateway::shared().await;
    for mode in [r"text\0", r"json\0x", r"bytes\0"] {
        let source = format!("export const input = '{mode}'; export default () => 1");
        house.expect_problem(TestQuery::javascript(&source), 422, "program-bad-answer").await;
    }
}

#[tokio::test]
async fn reports_error_messages_beyond_a_nul() {
    let house = TestGateway::shared().await;
    let source = "export default () => {\n  const o = { ['a\\0b']() { throw new Error('one\\0two') } };\n  o['a\\0b']();\n}";
    let document = house.expect_problem(TestQuery::javascript(source), 422, "program-threw").await;
    assert!(document["detail"].as_str().is_some_and(|text| text.contains("one\0two")), "{document}");
    assert_eq!(document["line"], 2, "{document}");
}
