//! Binary output of JavaScript programs: every kind of view yields exactly its own bytes, and a Response
//! keeps a copy of its source.

use crate::support::{TestGateway, TestQuery};

/// JavaScript expressions for the bytes 2, 3, 4, 5: views of every kind over buffers with other bytes around
/// them.
const VIEWS: &[&str] = &[
    "all.slice(2, 6).buffer",
    "all.subarray(2, 6)",
    "new DataView(all.buffer, 2, 4)",
    "new DataView(all.slice(2, 6).buffer)",
    "new Uint8ClampedArray(all.buffer, 2, 4)",
    "new Int8Array(all.buffer, 2, 4)",
    "new Uint16Array(all.buffer, 2, 2)",
    "new Int32Array(new Uint8Array([0, 0, 0, 0, 2, 3, 4, 5, 9, 9, 9, 9]).buffer, 4, 1)",
    "new Float64Array(new Uint8Array([2, 3, 4, 5, 6, 7, 8, 9]).buffer)",
    "new BigUint64Array(new Uint8Array([9, 9, 9, 9, 9, 9, 9, 9, 2, 3, 4, 5, 6, 7, 8, 9]).buffer, 8)",
    "resized(2, 6, (buffer) => new Uint8Array(buffer))",
    "resized(2, 6, (buffer) => new DataView(buffer))",
    "resized(8, 6, (buffer) => new Uint8Array(buffer, 0))",
    "resized(8, 6, (buffer) => new Uint16Array(buffer))",
    "resized(8, 6, (buffer) => new DataView(buffer, 0))",
    "resized(8, 6, (buffer) => buffer)",
];

/// Returns the bytes of a view: some views show six or eight bytes instead of four.
fn visible_bytes(view: &str) -> &'static [u8] {
    match view {
        view if view.starts_with("resized") => &[2, 3, 4, 5, 6, 7],
        view if view.contains("64Array") => &[2, 3, 4, 5, 6, 7, 8, 9],
        _ => &[2, 3, 4, 5],
    }
}

/// Buffers and views without bytes, because `transfer()` moved them to another buffer.
const DETACHED_VIEWS: &[&str] = &[
    "detached((buffer) => new Uint8Array(buffer))",
    "detached((buffer) => new DataView(buffer))",
    "detached((buffer) => buffer)",
];

/// Views that no longer show any bytes, because their buffer is too short.
const SHRUNK_VIEWS: &[&str] = &[
    "resized(8, 1, (buffer) => new Uint8Array(buffer, 2, 4))",
    "resized(8, 1, (buffer) => new DataView(buffer, 2, 4))",
    "resized(8, 1, (buffer) => new Uint16Array(buffer))",
];

/// Builds a program that creates a view and returns its bytes by `way`.
fn program(view: &str, way: &str) -> TestQuery {
    let view = format!("({view})");
    let way = way.replace("VIEW", "view");
    let source = format!(
        "const all = new Uint8Array([0, 1, 2, 3, 4, 5, 6, 7]);
        function resized(from, to, make) {{
            const buffer = new ArrayBuffer(from, {{ maxByteLength: 64 }}), view = make(buffer);
            buffer.resize(to);
            new Uint8Array(buffer).set([2, 3, 4, 5, 6, 7].slice(0, to));
            return view;
        }}
        function detached(make) {{
            const buffer = new ArrayBuffer(8), view = make(buffer);
            buffer.transfer();
            return view;
        }}
        const whole = async (answer) => new Uint8Array(await (await answer).arrayBuffer());
        export default async (_, {{ up }}) => {{ const view = {view}; return {way}; }}"
    );
    TestQuery::javascript(&source).with_path("/write")
}

/// Expressions that pass bytes out of a program.
const OUTPUT_EXPRESSIONS: &[&str] = &[
    "VIEW",
    "new Response(VIEW)",
    "await new Response(VIEW).bytes()",
    "await whole(new Response(VIEW))",
    "new TextEncoder().encode(await new Response(VIEW).text())",
    "new TextEncoder().encode(new TextDecoder().decode(VIEW))",
    "await whole(up.fetch('/body', { method: 'POST', body: VIEW }))",
];

#[tokio::test]
async fn every_view_outputs_exactly_its_own_bytes() {
    let gateway = TestGateway::shared().await;
    for view in VIEWS {
        for way in OUTPUT_EXPRESSIONS {
            let answer = program(view, way).send(&gateway).await;
            assert_eq!(&*answer.body, visible_bytes(view), "{view} by {way}: {}", answer.text());
        }
    }
}

#[tokio::test]
async fn views_of_shrunk_buffers_are_empty() {
    let gateway = TestGateway::shared().await;
    for view in SHRUNK_VIEWS {
        for way in OUTPUT_EXPRESSIONS {
            let answer = program(view, way).send(&gateway).await;
            assert_eq!(&*answer.body, b"", "{view} by {way}: {}", answer.text());
        }
    }
}

#[tokio::test]
async fn detached_buffers_are_rejected_instead_of_sent_empty() {
    let gateway =
        TestGateway::start("  - { path: /write, query: { services: [up], methods: [GET, POST] } }").await;
    for view in DETACHED_VIEWS {
        for (way, code) in [
            ("VIEW", "program-bad-answer"),
            ("new Response(VIEW)", "program-threw"),
            ("await up.post('/echo', VIEW)", "program-threw"),
            ("await up.fetch('/echo', { method: 'POST', body: VIEW })", "program-threw"),
        ] {
            let document = gateway.expect_problem(program(view, way), 422, code).await;
            let detail = document["detail"].as_str().unwrap_or_default();
            assert!(detail.contains("this ArrayBuffer is detached"), "{view} by {way}: {document}");
        }
        assert_eq!(gateway.expect_text(program(view, "new TextDecoder().decode(VIEW)")).await, "", "{view}");
    }
    assert_eq!(gateway.upstream.hits("/echo"), 0, "a body was sent");
}

#[tokio::test]
async fn posts_bytes_as_octet_stream() {
    let gateway = TestGateway::shared().await;
    for view in VIEWS {
        let way = "(({ headers, body }) => headers['content-type'] + ' ' + body.length)(await up.post('/echo', VIEW))";
        let told = format!("application/octet-stream {}", visible_bytes(view).len());
        assert_eq!(gateway.expect_text(program(view, way)).await, told, "{view}");
    }
}

#[tokio::test]
async fn a_response_copies_the_bytes_it_is_created_from() {
    let gateway = TestGateway::shared().await;
    for change in ["all.fill(0)", "all.buffer.transfer()"] {
        for read in ["response", "await response.bytes()", "await whole(response)"] {
            let way =
                format!("(async () => {{ const response = new Response(VIEW); {change}; return {read} }})()");
            let answer = program("all.subarray(2, 6)", &way).send(&gateway).await;
            assert_eq!(&*answer.body, [2, 3, 4, 5], "{change}, {read}: {}", answer.text());
        }
    }
    let mine = "(async () => { const response = new Response(VIEW); (await response.bytes()).fill(0); return response })()";
    assert_eq!(&*program("all.subarray(2, 6)", mine).send(&gateway).await.body, [2, 3, 4, 5]);
}

#[tokio::test]
async fn only_genuine_buffers_and_views_count_as_bytes() {
    let gateway = TestGateway::shared().await;
    for fake in
        ["Object.create(ArrayBuffer.prototype)", "Object.create(DataView.prototype)", "{ __proto__: all }"]
    {
        let way = "(() => { try { return new Response(VIEW) && 'taken' } catch (e) { return e.name } })()";
        assert_eq!(gateway.expect_text(program(fake, way)).await, "TypeError", "{fake}");
    }
    let tampered = "(() => {
        Object.defineProperty(DataView.prototype, 'byteLength', { get: () => 1e9 });
        Object.defineProperty(Object.getPrototypeOf(Uint8Array.prototype), 'byteLength', { get: () => 1e9 });
        Uint8Array.prototype.slice = () => new Uint8Array(1e6);
        return new Response(VIEW).bytes();
    })()";
    for view in ["new DataView(all.buffer, 2, 4)", "all.subarray(2, 6)"] {
        assert_eq!(&*program(view, tampered).send(&gateway).await.body, [2, 3, 4, 5], "{view}");
    }
}

#[tokio::test]
async fn url_search_params_delete_and_has_accept_a_value() {
    let gateway = TestGateway::shared().await;
    for (change, told) in [
        ("p.delete('a', '1')", "a=2&b=1&a=3"),
        ("p.delete('a', 1)", "a=2&b=1&a=3"),
        ("p.delete('a', '9')", "a=1&a=2&b=1&a=3"),
        ("p.delete('a', undefined)", "b=1"),
        ("p.delete('a')", "b=1"),
        ("p.set('a', '7')", "a=7&b=1"),
    ] {
        let way = format!(
            "(() => {{ const p = new URLSearchParams('a=1&a=2&b=1&a=3'); {change}; return String(p) }})()"
        );
        assert_eq!(gateway.expect_text(program("0", &way)).await, told, "{change}");
    }
    let has = "(() => { const p = new URLSearchParams('a=1&a=2');
        return [p.has('a', '2'), p.has('a', 2), p.has('a', '3'), p.has('b', '2'), p.has('a'), p.has('a', undefined)] })()";
    assert_eq!(gateway.expect_text(program("0", has)).await, "[true,true,false,false,true,true]");
    let texts = r"(() => { const p = new URLSearchParams({ 'a\ud800': '\0' });
        return [p.has('a\ufffd', '\0'), String(p), p.get('a\udc00').length] })()";
    assert_eq!(gateway.expect_text(program("0", texts)).await, "[true,\"a%EF%BF%BD=%00\",1]");
}

#[tokio::test]
async fn get_random_values_throws_above_its_limit() {
    let gateway = TestGateway::shared().await;
    let way = "(() => { try { crypto.getRandomValues(new Uint8Array(65537)); return 'filled' } catch (e) { return e.name } })()";
    assert_eq!(gateway.expect_text(program("0", way)).await, "RangeError");
}
