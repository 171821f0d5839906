//! Large JSON responses, which stay in the host. To a program they behave like values that it parsed itself,
//! apart from their cost.

use serde_json::json;

use crate::support::{RecordedRun, TestGateway, TestQuery, build_c_program, lossy_text};

/// Padding that makes a text long enough to stay in the host.
const PAD: &str = "const pad = ' '.repeat(5000);";

/// Builds a program that runs each check on `JSON.parse(text)` and on a response with this text, and returns
/// the checks whose results differ.
fn compare_json(text: &str, checks: &str) -> TestQuery {
    compare_json_expression(&serde_json::to_string(text).expect("JSON"), checks)
}

/// Like `both`, with a JavaScript expression for the text.
fn compare_json_expression(text: &str, checks: &str) -> TestQuery {
    TestQuery::javascript(&format!(
        "{PAD}
        const text = {text};
        const show = (value) => JSON.stringify(value, (_, v) => v === undefined ? 'undefined' : typeof v === 'symbol' ? String(v) : Object.is(v, -0) ? '-0' : v);
        const attempt = (check, value) => {{ try {{ return show(check(value)); }} catch (error) {{ return String(error); }} }};
        const checks = [{checks}];
        export default async (_, {{ up }}) => {{
          const different = [];
          for (const check of checks) {{
            const answer = await up.fetch('/body', {{ method: 'POST', body: text + pad }});
            const [lazy, plain] = [attempt(check, await answer.json()), attempt(check, JSON.parse(text))];
            if (lazy !== plain) different.push(`${{check}}: ${{lazy}}, not ${{plain}}`);
          }}
          return different;
        }};"
    ))
    .with_path("/write")
}

/// An object whose values, names, texts and lists span several of the host's chunks.
const MEGABYTES: &str = r#"
    '{"first":1,"escaped":"' + 'a\\n\\u00e9'.repeat(60000) + '","unpaired":"' + 'x'.repeat(600000) + '\\ud800",'
    + '"digits":' + '7'.repeat(600000) + ', "' + 'k'.repeat(600000) + '":"named","\\u006bk":"escaped",'
    + '"many":' + JSON.stringify(Array.from({ length: 7000 }, (_, id) => ({ pad: 'p'.repeat(80), id }))) + ','
    + '"names":' + JSON.stringify(Object.fromEntries(Array.from({ length: 7000 }, (_, n) => ['n'.repeat(80) + n, n]))) + ','
    + '"texts":["' + 'y'.repeat(600000) + '","z","' + '\u00fc'.repeat(300000) + '"],"last":{"x":1}, "same":1,"same":2}'
"#;

/// A route whose programs may read megabytes.
const ROUTES: &str = "
  - path: /write
    query:
      services: [up]
      methods: [GET, POST]
      limits: { memory: 64MiB, cpu: 20s, timeout: 60s }
";

#[tokio::test]
async fn objects_of_megabytes_behave_like_parsed_ones() {
    let gateway = TestGateway::start(ROUTES).await;
    for checks in [
        "(v) => [v.first, v.last.x, v.same, v.none, v['kk'], v['k'.repeat(600000)]]",
        "(v) => [v.escaped.length, v.escaped.slice(-3), v.escaped === JSON.parse(text).escaped]",
        "(v) => [v.unpaired.length, v.unpaired.charCodeAt(600000), String(v.digits)]",
        "(v) => Object.keys(v).map((name) => name.length)",
        "(v) => [v.many.length, v.many.reduce((sum, { id }) => sum + id, 0), v.many[6999].id, v.many[0].none]",
        "(v) => [v.names['n'.repeat(80) + 6999], v.names['n'.repeat(80) + 0], v.names.none, Object.keys(v.names).length]",
        "(v) => v.texts.map((text) => [text.length, text.at(-1)])",
        "(v) => JSON.stringify(v.many) === JSON.stringify(JSON.parse(text).many)",
    ] {
        assert_eq!(gateway.expect_text(compare_json_expression(MEGABYTES, checks)).await, "[]", "{checks}");
    }
}

const DOCUMENT: &str = r#"{
    "b": 1, "a": {"x": [1, 2, {"deep": true}], "y": null}, "10": "ten", "2": "two",
    "same": 1, "other": 0, "same": 2, "": "empty", "__proto__": {"evil": 1}, "toString": "mine",
    "list": [{"id": 3}, {"id": 1}, {"id": 2}, [], {}], "é\n\"\/": "\u00e9\ud83d\ude00", "\ud800": "\udc00x",
    "numbers": [0, -0, 1.5, -7, 1e3, 1E400, -1e-400, 2147483648, 9007199254740993, 18446744073709551616, 123456789012345678901234567890],
    "constructor": false, "then": "not a promise", "length": 4
}"#;

#[tokio::test]
async fn large_objects_behave_like_parsed_ones() {
    let house = TestGateway::shared().await;
    let checks = [
        "(v) => v",
        "(v) => Object.keys(v)",
        "(v) => Object.entries(v)",
        "(v) => [v.same, Object.keys(v).length]",
        "(v) => { v.same; v.list; return Object.keys(v); }",
        "(v) => { const names = []; for (const name in v) names.push(name); return names; }",
        "(v) => ({ ...v, b: 2 })",
        "(v) => { const { b, a: { x: [first, ...rest] }, none = 'default', ...others } = v; return [b, first, rest, none, others]; }",
        "(v) => ['b' in v, 'none' in v, 'toString' in v, Object.hasOwn(v, 'b'), Object.hasOwn(v, 'valueOf'), v.hasOwnProperty('2')]",
        "(v) => [delete v.b, delete v.none, 'b' in v, v.b, Object.keys(v)]",
        "(v) => { v.b = 'changed'; v.fresh = 1; v[5] = 'five'; return [v.b, Object.keys(v), v]; }",
        "(v) => { v.a.y = 1; v.a.x[0] = 'one'; v.a.x.push(4); v.list.length = 1; return [v.a, v.list]; }",
        "(v) => [v.a === v.a, v.list === v.list, v.list[0] === v.list[0], v.a.x[2] === v.a.x.at(-1)]",
        "(v) => { const list = v.list; Object.keys(v); return [v.list === list, v.a.x === Object.entries(v).find(([k]) => k === 'a')[1].x]; }",
        "(v) => [typeof v, Array.isArray(v), Array.isArray(v.list), v instanceof Object, v.list instanceof Array, Object.prototype.toString.call(v)]",
        "(v) => [Object.getPrototypeOf(v) === Object.prototype, Object.getPrototypeOf(v.a) === Object.prototype, v.__proto__.evil, v.a.__proto__ === Object.prototype]",
        "(v) => { v.a.__proto__ = { inherited: 1 }; return [v.a.inherited, Object.keys(v.a), Object.getPrototypeOf(v.a).inherited]; }",
        "(v) => Object.setPrototypeOf(v.a, null) && [v.a.toString === undefined, Object.keys(v.a)]",
        "(v) => [v.toString, v.constructor, v.then, v.length, v.valueOf() === v, v[''], v[10], v['2'], v[2]]",
        "(v) => [v[Symbol.iterator], v[Symbol.toPrimitive], Symbol.iterator in v, Object.getOwnPropertySymbols(v)]",
        "(v) => { v[Symbol.for('mark')] = 1; return Object.getOwnPropertySymbols(v); }",
        "(v) => v['é\\n\"/']",
        "(v) => [v['\\ud800'].length, v['\\ud800'].charCodeAt(0), v['\\ufffd']]",
        "(v) => v.numbers.map(String)",
        "(v) => v.numbers.map((n) => Object.is(n, -0))",
        "(v) => [v.list.map((i) => i.id), v.list.filter((i) => i.id > 1), v.list.slice(0, 3).sort((a, b) => a.id - b.id)]",
        "(v) => { let sum = 0; for (const item of v.list) sum += item.id ?? 0; return sum; }",
        "(v) => [...v.list, Math.max(...v.numbers.slice(0, 3)), v.list.concat([1]), v.list.includes(v.list[1]), v.list.indexOf(v.list[2])]",
        "(v) => [JSON.stringify(v.a), JSON.stringify(v, null, 2), JSON.stringify(v, ['a', 'b']), JSON.stringify(v, (k, x) => k === 'list' ? undefined : x)]",
        "(v) => { v.a.toJSON = () => 'short'; return JSON.stringify(v.a); }",
        "(v) => [Object.getOwnPropertyDescriptor(v, 'b'), Object.getOwnPropertyDescriptor(v, 'none'), Object.getOwnPropertyDescriptors(v.a)]",
        "(v) => { Object.defineProperty(v, 'b', { get: () => 'got', enumerable: false }); return [v.b, Object.keys(v)]; }",
        "(v) => { Object.defineProperty(v, 'hidden', { value: 1 }); return [v.hidden, Object.keys(v)]; }",
        "(v) => { Object.freeze(v); return [Object.isFrozen(v), v.b, Object.keys(v)]; }",
        "(v) => { Object.freeze(v); v.b = 2; }",
        "(v) => { Object.freeze(v); v.fresh = 2; }",
        "(v) => { Object.freeze(v); delete v.b; }",
        "(v) => { Object.seal(v); v.b = 2; return [v.b, Object.isSealed(v), Object.isExtensible(v)]; }",
        "(v) => { Object.preventExtensions(v); v.fresh = 2; }",
        "(v) => Object.assign({}, v.a, { z: 1 })",
        "(v) => Object.assign(v.a, { z: 1 })",
        "(v) => Object.fromEntries(Object.entries(v.a))",
        "(v) => `${v.a}${v.list}`",
        "(v) => [new Map(Object.entries(v.a)).size, new Set([v.a, v.a]).size, new WeakSet([v.a]).has(v.a)]",
        "(v) => new Proxy(v, { get: (t, k) => t[k] }).b",
        "(v) => Reflect.ownKeys(v)",
        "(v) => [Reflect.set(v, 'b', 9), v.b, Reflect.deleteProperty(v, 'b'), Reflect.has(v, 'b')]",
        "(v) => { class Child { constructor(o) { Object.setPrototypeOf(this, o); } } return new Child(v).b; }",
        "(v) => { const child = Object.create(v); child.b = 'own'; return [child.b, v.b, child.same, Object.keys(child)]; }",
        "(v) => { v.self = v; return JSON.stringify(v); }",
        "(v) => v.none.deeper",
        "(v) => v()",
        "(v) => v.b++ + v.b",
    ];
    for some in checks.chunks(18) {
        assert_eq!(house.expect_text(compare_json(DOCUMENT, &some.join(",\n"))).await, "[]");
    }
}

#[tokio::test]
async fn large_arrays_behave_like_parsed_ones() {
    let gateway = TestGateway::shared().await;
    let text =
        r#"[ {"id": 1, "tags": ["a", "b"]}, [[], [1, [2]]], "text", "\ud83d", null, true, false, 1.25, {} ]"#;
    let checks = "(v) => v, (v) => v.length, (v) => [Array.isArray(v), v[0].tags[1], v.at(-2)],
        (v) => { v.push(1); v[0] = 2; return v; }, (v) => { v[0].id = 7; return v[0]; },
        (v) => v.flat(Infinity), (v) => JSON.stringify(v), (v) => Object.keys(v), (v) => v.map(String),
        (v) => v[3].charCodeAt(0), (v) => v.reverse(), (v) => { const [a, , b] = v; return [a, b]; }";
    assert_eq!(gateway.expect_text(compare_json(text, checks)).await, "[]");
}

/// Reading ahead is observable only by its time.
#[tokio::test]
async fn members_of_many_objects_behave_like_parsed_ones_in_any_order() {
    let gateway = TestGateway::start(
        "  - { path: /write, query: { services: [up], methods: [POST], limits: { cpu: 10s, timeout: 30s, memory: 64MiB } } }",
    )
    .await;
    let item = |id: usize| {
        let mut item = json!({
            "id": id, "name": format!("item {id} {}", "n".repeat(if id == 40 { 3000 } else { id % 50 })), "real": id as f64 + 0.5,
            "more": { "deep": [id] }, "parts": [{ "id": 1, "name": "one" }, { "id": 2 }, { "id": 3, "é": 1 }],
        });
        if id.is_multiple_of(3) {
            item["some"] = json!({ "id": id });
        }
        if id % 7 == 2 {
            item["id"] = json!(format!("\u{e9} {id}"));
        }
        item.to_string()
    };
    let items = |len: usize| (0..len).map(item).collect::<Vec<_>>().join(",");
    let odd = r#"{"id": 1, "id": 2, "name": "\ud800", "real": 123456789012345678901234567890}, {}"#;
    let text = format!(
        r#"{{"list": [{}, {odd}, {}], "mixed": [{}, 7, [{{"id": 8}}], {}], "one": [{}]}}"#,
        items(150),
        items(140),
        items(9),
        items(9),
        items(1),
    );
    let checks = "
        (v) => v.list.map((i) => i.id), (v) => v.list.map((i) => [i.id, i.name, i.real, i.none, i.some?.id, i.more.deep[0]]),
        (v) => v.list.map((i) => i.parts.map((p) => [p.id, p.name, p['é'], i.id])), (v) => v.list.toReversed().map((i) => i.name),
        (v) => v.list.map((i, at) => at % 3 ? i.id : [i.name, i.id, i.id]), (v) => v.list.filter((i) => i.id > 20).map((i) => i.id),
        (v) => v.list.map((i, at) => v.list[at * 7 % v.list.length].id), (v) => v.list.find((i) => i.id === 77).name,
        (v) => [...v.list, ...v.mixed, ...v.one].map((i) => i.id), (v) => v.list.map((i) => [i.some === i.some, i.more === i.more]),
        (v) => v.list.map((i, at) => { if (at % 4 === 0) v.list[at + 1] && (v.list[at + 1].id = 'set'); return i.id; }),
        (v) => v.list.map((i, at) => { if (at % 4 === 0) delete v.list[at + 1]?.id; return [i.id, Object.keys(i)]; }),
        (v) => { v.list.sort((a, b) => String(a.id) < String(b.id) ? -1 : 1); return v.list.map((i) => i.id); },
        (v) => { const some = v.list.splice(3, 5); v.list.push(...some); return v.list.map((i) => [i.id, i.real]); },
        (v) => v.list.map((i) => Object.keys(i).map((name) => i[name]?.length ?? i[name])), (v) => v.list.map((i) => ({ ...i, id: -i.id })),
        (v) => { for (const i of v.list) i.id; return [v.list.map((i) => i.id), v.list]; }, (v) => v.list.map((i) => i[Symbol.iterator] ?? i.id)";
    assert_eq!(gateway.expect_text(compare_json(&text, checks)).await, "[]");
    // The next document takes the place of the freed one.
    let source = "export default async (_, { up }) => {
        const sums = [];
        for (let round = 0; round < 6; round++) {
          const body = JSON.stringify(Array.from({ length: 200 }, (_, id) => ({ id: id * round, name: `item ${id}` })));
          sums.push((await (await up.fetch('/body', { method: 'POST', body })).json()).reduce((sum, item) => sum + item.id, 0));
        }
        return sums;
    }";
    let query = TestQuery::javascript(source).with_path("/write");
    assert_eq!(gateway.expect_text(query).await, json!([0, 19900, 39800, 59700, 79600, 99500]).to_string());
}

#[tokio::test]
async fn large_responses_are_passed_on_verbatim() {
    let gateway = TestGateway::shared().await;
    let text = r#"{"total": 1.50, "big": 123456789012345678901234567890}"#;
    let source = format!(
        "{PAD} export default async (_, {{ up }}) => (await up.fetch('/body', {{ method: 'POST', body: '{text}' + pad }})).json();"
    );
    let query = TestQuery::javascript(&source).with_path("/write");
    assert_eq!(gateway.expect_text(query.clone()).await, text);
    assert_eq!(query.send(&gateway).await.header("content-type"), "application/json");
}

/// A replay in Node compares bodies, and does not know how the response was spelt.
#[tokio::test]
async fn parts_of_a_large_response_are_posted_as_json_stringify_writes_them() {
    let gateway = TestGateway::shared().await;
    let source = format!(
        r#"{PAD} export default async (_, {{ up }}) => {{
          const body = '{{"part": {{"x": 1.0, "y": [{{"z": 1e2}}]}}}}' + pad;
          const v = await (await up.fetch('/body', {{ method: 'POST', body }})).json();
          return [(await up.post('/echo', [v.part])).body, (await up.post('/echo', v)).body];
        }}"#
    );
    let part = r#"{"x":1,"y":[{"z":100}]}"#;
    let expected = json!([format!("[{part}]"), format!(r#"{{"part":{part}}}"#)]).to_string();
    assert_eq!(gateway.expect_text(TestQuery::javascript(&source).with_path("/write")).await, expected);
}

#[tokio::test]
async fn answers_with_parts_of_a_large_response_are_serialized_as_json() {
    let gateway = TestGateway::shared().await;
    for (returned, written) in [
        (
            "{ part: v.part, n: 1, none: undefined, f() {}, s: 'é\"', list: [v.part, undefined, () => 1, NaN] }",
            r#"{"part":{"x": 1.0},"n":1,"s":"é\"","list":[{"x": 1.0},null,null,null]}"#,
        ),
        (
            "[v.part, v.list, new Date(0), Object(1n === 2n), { toJSON: (name) => [name, v.part] }, /x/]",
            r#"[{"x": 1.0},[{"id": 1},{"id": 2}],"1970-01-01T00:00:00.000Z",false,["4",{"x":1}],{}]"#,
        ),
        ("(v.part.x, v.part.x, v.part)", r#"{"x":1}"#),
        ("(v.list[0].id = 7, v.list)", r#"[{"id":7},{"id": 2}]"#),
        ("Object.assign([v.part], { more: 1 })", r#"[{"x": 1.0}]"#),
        ("new (class A { a = v.part; get b() { return 1; } })", r#"{"a":{"x": 1.0}}"#),
    ] {
        let source = format!(
            r#"{PAD} export default async (_, {{ up }}) => {{
              const body = '{{"part": {{"x": 1.0}}, "list": [{{"id": 1}}, {{"id": 2}}]}}' + pad;
              const v = await (await up.fetch('/body', {{ method: 'POST', body }})).json();
              return {returned};
            }}"#
        );
        let query = TestQuery::javascript(&source).with_path("/write");
        assert_eq!(gateway.expect_text(query).await, written, "{returned}");
    }
    let circle = format!(
        "{PAD} export default async (_, {{ up }}) => {{
          const v = await (await up.fetch('/body', {{ method: 'POST', body: '{{\"a\": {{}}}}' + pad }})).json();
          v.a.self = v;
          return v;
        }}"
    );
    let document = gateway
        .expect_problem(TestQuery::javascript(&circle).with_path("/write"), 422, "program-bad-answer")
        .await;
    assert!(document["detail"].as_str().is_some_and(|text| text.contains("circular")), "{document}");
}

#[tokio::test]
async fn answers_are_serialized_like_json_stringify() {
    let gateway = TestGateway::shared().await;
    let values = r#"
        'plain', 'qu"ote, back\\slash, \n\r\t\b\f\0\x1f\x7f', 'é ü 漢 😀', 'x'.repeat(300) + '"' + 'y'.repeat(300),
        '\ud800', 'a\udc00"\n', '\ud83d\ude00', '\u2028', 'left'.concat('right'.repeat(5000)),
        0, -0, 1, -1, 2147483647, -2147483648, 2147483648, 1.5, -1e-7, 1e21, 5e-324, 1.7976931348623157e308, NaN, Infinity, -Infinity,
        true, false, null, undefined, Symbol('s'), () => 1, class {},
        [], {}, [[], [{}]], [undefined, () => 1, , 3], Object.assign([1], { more: 1 }),
        { a: undefined, b: () => 1, c: Symbol('s'), d: 1 }, { [Symbol('s')]: 1 }, { '': 1, 'é"\n': 2, '\ud800': 3, 10: 4, 2: 5, __proto__: { no: 1 } },
        { ['__proto__']: 1 }, Object.create({ inherited: 1 }, { own: { value: 1, enumerable: true }, hidden: { value: 2 } }), Object.create(null),
        { get a() { return this.b; }, b: 1 }, new (class A { x = 1; #y = 2; get z() { return 3; } static s = 4; }),
        new Date(0), [new Date(0)], new Date(NaN), /x/, new Error('e'), new Uint8Array([1, 2]), new ArrayBuffer(2),
        Object('boxed'), Object(1), Object(true), new Proxy({ a: 1 }, {}), new Proxy([1, 2], {}), new Proxy(() => 1, {}),
        { toJSON(name) { return `named ${JSON.stringify(name)}`; } }, [{ toJSON(name) { return name; } }],
        { inner: { toJSON(name) { return { name, toJSON: 'not called' }; } } }, { date: new Date(1) , toJSON: 'no function' },
        { toJSON() {} }, { a: { toJSON() {} }, b: 1 }, [{ toJSON() {} }], { toJSON: () => ({ toJSON: () => 1 }) }, { toJSON: () => new Date(0) },
        { ['toJSON']: { deep: 1 } }, Object.assign(() => 1, { toJSON: () => 'of a function' }), JSON.rawJSON('1.000'), { raw: JSON.rawJSON('1e1000') },
        (() => { let deep = { toJSON: (name) => `at ${name}` }; for (let i = 0; i < 90; i++) deep = i % 2 ? [deep] : { deep }; return deep; })(),
        (() => { let deep = 'the end'; for (let i = 0; i < 500; i++) deep = [deep]; return deep; })(),
        (() => { const same = { same: 1 }; return [same, same, { same }]; })(),
    "#;
    let answer = async |prepare: &str, returned: &str| {
        let source = format!("{prepare}; const values = () => [{values}]; export default () => {returned};");
        gateway.expect_text(TestQuery::javascript(&source)).await
    };
    let patched = "Object.prototype.toJSON = function (name) { return this instanceof Date ? 'day' : name === '3' ? undefined : { is: 1 }; }";
    for prepare in ["", patched, "String.prototype.toJSON = Number.prototype.toJSON = () => 'not called'"] {
        let known = answer(prepare, "new Response(JSON.stringify(values()))").await;
        assert_eq!(answer(prepare, "values()").await, known, "{prepare}");
        let sent = format!(
            "{prepare}; const values = () => [{values}];
            export default async (_, {{ up }}) => new Response((await up.post('/echo', values())).body);"
        );
        assert_eq!(
            gateway.expect_text(TestQuery::javascript(&sent).with_path("/write")).await,
            known,
            "{prepare}, as a body"
        );
        let known = answer(prepare, "new Response(JSON.stringify({ 'a name': values() }))").await;
        assert_eq!(answer(prepare, "({ 'a name': values() })").await, known, "{prepare}");
    }
    for (returned, told) in [
        ("({ toJSON() {} })", "no JSON form"),
        ("1n", "BigInt"),
        ("[{ deep: [1n] }]", "BigInt"),
        ("((a) => (a.push({ a }), a))([])", "circular"),
        ("((a) => (a.d = Object.assign(new Date(0), { toJSON: () => a }), a))({})", "circular"),
    ] {
        let query = TestQuery::javascript(&format!("export default () => {returned};"));
        let document = gateway.expect_problem(query, 422, "program-bad-answer").await;
        assert!(
            document["detail"].as_str().is_some_and(|text| text.contains(told)),
            "{returned}: {document}"
        );
    }
    for returned in
        ["{ get a() { throw new Error('mine'); } }", "[{ toJSON() { throw new Error('mine'); } }]"]
    {
        let query = TestQuery::javascript(&format!("export default () => ({returned});"));
        let document = gateway.expect_problem(query, 422, "program-threw").await;
        assert!(document["detail"].as_str().is_some_and(|text| text.contains("mine")), "{document}");
    }
}

#[tokio::test]
async fn reports_invalid_or_too_deep_json_immediately() {
    let gateway = TestGateway::shared().await;
    let source = format!(
        "{PAD} export default async (text, {{ up }}) => {{
          try {{ return await (await up.fetch('/body', {{ method: 'POST', body: text }})).json(); }}
          catch (error) {{ return `${{error.name}}: ${{error.message}}`; }}
        }};
        export const input = 'text';"
    );
    let pad = " ".repeat(5000);
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    for (text, told) in [
        (format!("[1,{pad}2}}"), "SyntaxError: not JSON, at byte 5004".to_owned()),
        (nested(20_000), "RangeError: the JSON is nested too deeply, at byte 1024".to_owned()),
        (format!("{}{pad}", nested(1024)), nested(1024)),
    ] {
        let query = TestQuery::javascript(&source).with_path("/write").input(&text);
        assert_eq!(gateway.expect_text(query).await, told);
    }
}

#[tokio::test]
async fn service_errors_describe_an_invalid_large_body() {
    let gateway = TestGateway::shared().await;
    let source = "export default async (_, { up }) => {
        const reasons = [];
        for (const body of ['['.repeat(9000) + ']'.repeat(9000), '['.repeat(1000) + ' '.repeat(9000)]) {
          await up.post('/body', new TextEncoder().encode(body)).catch((error) => reasons.push(error.reason, error.message));
        }
        return reasons;
    }";
    let value = json!([
        "too-deep",
        "up answered 200 to POST /body, with a body that is nested too deeply",
        "not-json",
        "up answered 200 to POST /body, with a body that is not JSON",
    ]);
    assert_eq!(
        gateway.expect_text(TestQuery::javascript(source).with_path("/write")).await,
        value.to_string()
    );
}

#[tokio::test]
async fn documents_are_freed_with_their_last_object() {
    let limits = "{ cpu: 10s, memory: 8MiB, calls: 40 }";
    let gateway = TestGateway::start(&format!(
        "  - {{ path: /query, query: {{ services: [up], methods: [GET, POST], limits: {limits} }} }}"
    ))
    .await;
    // Each response with its index exceeds 60 KB, and all of them together exceed the limit.
    let source = "export default async (_, { up }) => {
        const body = JSON.stringify(Array.from({ length: 3000 }, (_, id) => ({ id, name: `item ${id}` })));
        let sum = 0;
        for (let i = 0; i < 40; i++) sum += (await (await up.fetch('/body', { method: 'POST', body })).json())[i].id;
        return sum;
    }";
    assert_eq!(gateway.expect_text(TestQuery::javascript(source)).await, "780");
}

#[tokio::test]
async fn c_programs_read_large_responses_in_place() {
    let gateway = TestGateway::shared().await;
    let source = r#"#include <orfa.h>
        #include <string.h>
        void orfa(const void *input, int len) {
            orfa_value all = orfa_wait_json(orfa_post("http://up/body", "%v", orfa_json(input, len)));
            orfa_value list = orfa_at(all, "/list"), one = orfa_at(list, "/%d", 1);
            orfa_out out = orfa_array();
            orfa_add(out, "%d,%d,%s,%lld,%f,%b", orfa_len(all), orfa_len(list), orfa_str(one, "none", "/name"),
                orfa_long(all, 0, "/big"), orfa_num(all, 0, "/huge"), orfa_bool(all, 0, "/yes"));
            orfa_add(out, "%d,%d,%d", orfa_int(all, -1, "/none/x"), orfa_int(all, -1, "/list/0/id"), orfa_int(all, -1, "/a~1b"));
            orfa_add(out, "%v,%v,%v", one, orfa_at(one, "/tags"), orfa_find(list, "name", orfa_at(list, "/2/name")));
            orfa_add(out, "%v,{...%v,extra:1},%v", orfa_pluck(list, "kind"), one, orfa_pick(one, "name,none,tags,more"));
            int sum = 0, members = 0, found = 0;
            for orfa_each(item, list) sum += orfa_int(item, 0, "/id");
            for orfa_each(member, all) members++;
            for (orfa_value at = orfa_at(all, "/yes"); at; at = orfa_next(all, at)) found++;
            orfa_add(out, "%d,%d,%d,%b,%b,%b", sum, members, found, orfa_has(all, "yes"), orfa_has(all, "no"),
                orfa_at(list, "/1") == one);
            orfa_add(out, "%v,%s,%d", orfa_at(orfa_pick(all, "list"), "/list/0/tags/1"),
                orfa_str(all, "", "/escaped"), (int)strlen(orfa_str(all, "", "/pad")));
            orfa_done_json(out);
        }"#;
    let tags = json!(["x", "y"]);
    let item = |id: i64, kind: &str| json!({ "id": id, "name": format!("item {id}"), "kind": kind, "tags": tags, "more": { "deep": [id] } });
    let list = [item(1, "a"), item(20, "b"), item(300, "a")];
    let all = json!({
        "list": list, "big": i64::MAX, "huge": 1.5e300, "a/b": 7, "pad": "p".repeat(6000),
        "escaped": "é \"\n😀", "yes": true, "last": null,
    });
    let query = TestQuery::module(build_c_program(source).await).with_path("/write").input(&all.to_string());
    let answer: serde_json::Value = serde_json::from_str(&gateway.expect_text(query).await).expect("JSON");
    let mut extra = list[1].clone();
    extra["extra"] = json!(1);
    let value = json!([
        8, 3, "item 20", i64::MAX, 1.5e300, true, -1, 1, 7, list[1], tags, list[2], ["a", "b"], extra,
        { "name": "item 20", "tags": tags, "more": { "deep": [20] } }, 321, 8, 2, true, false, true, "y",
        "é \"\n😀", 6000,
    ]);
    assert_eq!(answer, value);
}

/// Reading ahead is observable only by its time.
#[tokio::test]
async fn c_programs_read_members_of_many_items_in_any_order() {
    let gateway = TestGateway::start(
        "  - { path: /query, query: { services: [up], methods: [POST], limits: { cpu: 10s, timeout: 30s } } }",
    )
    .await;
    let source = r#"#include <orfa.h>
        static void add(orfa_out out, orfa_value item) {
            orfa_add(out, "[%d,%s,%f,%b,%v,%v]", orfa_int(item, -1, "/id"), orfa_str(item, NULL, "/name"),
                orfa_num(item, -1, "/real"), orfa_bool(item, 1, "/flag"), orfa_at(item, "/some"), orfa_at(item, "/more/deep"));
        }
        void orfa(const void *input, int len) {
            orfa_value list = orfa_at(orfa_wait_json(orfa_post("http://up/body", "%v", orfa_json(input, len))), "/list");
            orfa_out all = orfa_array(), some = orfa_array();
            const char *name = NULL;
            for orfa_each(item, list) {
                add(all, item);
                for orfa_each(part, orfa_at(item, "/parts")) add(all, part);
                if (!name) name = orfa_str(item, NULL, "/name");
            }
            for (int i = 0; i < orfa_len(list); i += i % 3 ? 1 : 5) add(some, orfa_at(list, "/%d", i));
            for (int i = orfa_len(list); i--;) add(some, orfa_at(list, "/%d", i));
            orfa_done_as("{all:%o,some:%o,name:%s}", all, some, name);
        }"#;
    let item = |id: usize| match id % 50 {
        49 => json!("no object"),
        48 => json!([{ "id": 0 }]),
        rest => {
            let mut item = json!({
                "id": id, "name": format!("item {id} {}", "n".repeat(if rest == 40 { 3000 } else { rest })), "real": id as f64 + 0.5,
                "flag": false, "more": { "deep": [id] }, "parts": [{ "id": 1, "name": "one" }, { "id": 2 }, { "id": 3 }],
            });
            if id.is_multiple_of(3) {
                item["some"] = json!({ "id": id });
            }
            item
        }
    };
    let list: Vec<_> = (0..300).map(item).collect();
    let row = |item: &serde_json::Value| {
        let or = |name: &str, otherwise| item.get(name).cloned().unwrap_or(otherwise);
        json!([
            or("id", json!(-1)),
            item["name"],
            or("real", json!(-1.0)),
            or("flag", json!(true)),
            item["some"],
            item["more"]["deep"]
        ])
    };
    let rows = |item: &serde_json::Value| {
        let parts = item["parts"].as_array().cloned().unwrap_or_default();
        std::iter::once(row(item)).chain(parts.iter().map(row).collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    let steps = std::iter::successors(Some(0), |at| Some(at + if at % 3 == 0 { 5 } else { 1 }));
    let some = steps.take_while(|at| *at < list.len()).chain((0..list.len()).rev());
    let known = json!({
        "all": list.iter().flat_map(rows).collect::<Vec<_>>(),
        "some": some.map(|at| row(&list[at])).collect::<Vec<_>>(),
        "name": "item 0 ",
    });
    let query = TestQuery::module(build_c_program(source).await).input(&json!({ "list": list }).to_string());
    let answer: serde_json::Value = serde_json::from_str(&gateway.expect_text(query).await).expect("JSON");
    assert_eq!(answer, known);
}

#[tokio::test]
async fn c_programs_fail_on_invalid_or_too_deep_large_responses() {
    let house = TestGateway::shared().await;
    let source = r#"#include <orfa.h>
        void orfa(const void *input, int len) {
            orfa_request request = {"POST", 4, "http://up/body", 14, 0, 0, input, len};
            orfa_future future = orfa_http(&request);
            if (orfa_try_json(future)) orfa_fail("it is JSON");
            orfa_wait_json(future);
        }"#;
    let module = build_c_program(source).await;
    let pad = " ".repeat(5000);
    for (text, told) in [
        (format!("[1,{pad}2}}"), "its body is not JSON, at byte 5004"),
        ("[".repeat(20_000), "its body is nested too deeply, at byte 1024"),
    ] {
        let query = TestQuery::module(module.clone()).with_path("/write").input(&text);
        let document = house.expect_problem(query, 422, "program-refused").await;
        let detail = document["detail"].as_str().unwrap_or_default();
        assert!(detail.ends_with(told), "{document}");
    }
}

#[tokio::test]
async fn recorded_runs_and_replays_read_large_responses() {
    let house = TestGateway::shared().await;
    let javascript = "export default async (_, { up }) => (await up.get('/json', { n: 300 }))[299].name";
    let c = r#"#include <orfa.h>
        void orfa(const void *input, int len) { orfa_done_text(orfa_str(orfa_get_json("http://up/json?n=300"), "", "/299/name")); }"#;
    let module = build_c_program(c).await;
    for (query, file, program, source) in [
        (TestQuery::javascript(javascript), "q.js", javascript.as_bytes(), ("q.js", javascript)),
        (TestQuery::module(module.clone()), "q.wasm", module.as_slice(), ("q.c", c)),
    ] {
        assert_eq!(house.expect_text(query.clone()).await, "item 299");
        let recorded = RecordedRun::record(query).await;
        let output = recorded.assert_replays(file, program).await;
        assert_eq!(lossy_text(&output.stdout).trim_end(), "item 299");
        let natively = recorded.run_natively(source.0, source.1.as_bytes()).await;
        assert_eq!(lossy_text(&natively.stdout).trim_end(), "item 299", "{}", lossy_text(&natively.stderr));
    }
}

/// Regression: a container expression that was evaluated again in every iteration restarted the walk.
/// Existing modules still do so.
#[tokio::test]
async fn iterating_over_a_repeated_container_expression_ends() {
    let house = TestGateway::shared().await;
    let items = vec![json!({ "parts": [1, 2], "more": { "a": 3 }, "rest": "x".repeat(30) }); 200];
    let input = json!({ "data": items }).to_string();
    let asks_again = "for (orfa_value item = NULL; (item = orfa_next((container), item)) != NULL;)";
    for each in ["for orfa_each(item, container)", asks_again] {
        let each = |item: &str, container: &str| each.replace("item", item).replace("container", container);
        let source = format!(
            "#include <orfa.h>
void orfa(const void *input, int len) {{
    orfa_value all = orfa_wait_json(orfa_post(\"http://up/body\", \"%v\", orfa_json(input, len)));
    int count = 0;
    {} {{
        {} count += orfa_int(part, 0, \"\");
        {} count += orfa_int(part, 0, \"\");
        {} count += orfa_len(whole) == 200;
    }}
    orfa_done_as(\"%d\", count);
}}",
            each("one", "orfa_at(all, \"/data\")"),
            each("part", "orfa_at(one, \"/parts\")"),
            each("part", "orfa_at(one, \"/more\")"),
            // From here on the parts of `all` are indexed.
            each("whole", "all"),
        );
        let query = TestQuery::module(build_c_program(&source).await).with_path("/write").input(&input);
        assert_eq!(house.expect_text(query).await, "1400");
    }
}
