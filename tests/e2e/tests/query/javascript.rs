//! Arbitrary JavaScript and TypeScript: programs that fail to parse, throw, never end or tamper with globals.

use serde_json::{Value, json};

use crate::support::{TestGateway, TestQuery};

/// Sends a JavaScript program, asserts that it is refused with this code, and returns the problem.
async fn expect_problem(source: &str, code: &str) -> Value {
    let gateway = TestGateway::shared().await;
    gateway.expect_problem(TestQuery::javascript(source), 422, code).await
}

/// Returns the line and column of a problem.
fn problem_location(document: &Value) -> (u64, u64) {
    (document["line"].as_u64().unwrap_or_default(), document["column"].as_u64().unwrap_or_default())
}

#[tokio::test]
async fn source_that_does_not_parse() {
    let document = expect_problem("export default async () => {\n  let a = ;\n}", "program-syntax").await;
    assert_eq!(problem_location(&document), (2, 11), "{document}");
    for source in
        ["export default {", "}", "export default () => 'open", "/", "let a; let a;", "return 1", "\u{0}"]
    {
        assert_eq!(problem_location(&expect_problem(source, "program-syntax").await).0, 1, "{source}");
    }
}

#[tokio::test]
async fn typescript_that_does_not_parse() {
    let gateway = TestGateway::shared().await;
    let wrong = "interface A { b: string }\nexport default (a: A): => 1";
    let document = gateway.expect_problem(TestQuery::typescript(wrong), 422, "program-syntax").await;
    assert_eq!(problem_location(&document).0, 2, "{document}");
    for not_erasable in [
        "enum A { B }",
        "namespace a { export const b = 1 }",
        "class A { constructor(private b: string) {} }",
    ] {
        let source = format!("\n{not_erasable}\nexport default () => 1");
        let document = gateway.expect_problem(TestQuery::typescript(&source), 422, "program-syntax").await;
        assert_eq!(problem_location(&document).0, 2, "{not_erasable}: {document}");
        assert!(document["hint"].as_str().is_some_and(|hint| !hint.is_empty()), "{document}");
    }
}

#[tokio::test]
async fn reports_uncaught_exceptions() {
    let source = "export default async () => {\n  await 0;\n  throw new RangeError('too far');\n}";
    let document = expect_problem(source, "program-threw").await;
    assert!(
        document["detail"].as_str().is_some_and(|text| text.starts_with("RangeError: too far")),
        "{document}"
    );
    assert_eq!(problem_location(&document), (3, 13), "{document}");
    for source in [
        "throw new Error('at the top')",
        "export default () => { throw 1 }",
        "export default () => { throw undefined }",
        "export default () => { throw { toString() { throw 1 }, toJSON() { throw 2 } } }",
        "export default () => Promise.reject()",
        "export default () => { throw new Proxy({}, { get() { throw 1 } }) }",
        "export default () => { const e = new Error(); e.stack = { toString() { throw 1 } }; throw e }",
        "export default () => missing",
        "export default () => null.x",
        "export default () => ({ get then() { throw new Error('thenable') } })",
        "export default () => ({ toJSON() { throw new Error('in toJSON') } })",
        "await Promise.reject(new Error('at the top'))",
    ] {
        expect_problem(source, "program-threw").await;
    }
}

#[tokio::test]
async fn lines_and_columns_are_those_of_the_typescript() {
    let gateway = TestGateway::shared().await;
    let source = "type Item<T> = {\n  id: T;\n};\ninterface Input { item?: Item<number> }\n\n\
        export default async function (input: Input, _: unknown): Promise<number> {\n  const n: number = 1 as any as number; throw new Error('here'); return n satisfies number;\n}";
    let document = gateway.expect_problem(TestQuery::typescript(source), 422, "program-threw").await;
    assert_eq!(problem_location(&document), (7, 51), "{document}");
}

#[tokio::test]
async fn promises_that_never_settle() {
    for source in [
        "export default () => new Promise(() => {})",
        "export default async () => { await { then() {} } }",
        "await new Promise(() => {}); export default () => 1",
    ] {
        expect_problem(source, "program-stalled").await;
    }
}

#[tokio::test]
async fn stops_endless_loops() {
    for source in [
        "export default () => { for (;;); }",
        "for (;;); export default () => 1",
        "export default async () => { for (;;) await 0 }",
        "export default () => { const again = () => Promise.resolve().then(again); return again() }",
        "export default () => { const again = () => queueMicrotask(again); again(); return new Promise(() => {}) }",
        "export default () => /(a*)*b/.test('a'.repeat(50))",
        "export default () => ({ get then() { for (;;); } })",
        "export default () => ({ toJSON() { for (;;); } })",
        "export default () => { try { for (;;); } finally { for (;;); } }",
        "export default () => JSON.stringify(new Array(4e9).fill(0))",
    ] {
        let document = TestQuery::javascript(source).send(&*TestGateway::shared().await).await.json();
        assert!(
            document["code"] == "limit-cpu" || document["code"] == "limit-memory",
            "{source}: {document}"
        );
    }
    expect_problem("export default async () => { for (;;) await 0 }", "limit-cpu").await;
}

#[tokio::test]
async fn stops_endless_recursion() {
    let deep = "export default () => {\n  const deep = () => deep() + 1;\n  return deep();\n}";
    let document = expect_problem(deep, "program-threw").await;
    assert!(document["detail"].as_str().is_some_and(|text| text.contains("RangeError")), "{document}");
    assert_eq!(problem_location(&document).0, 2, "{document}");
    for source in [
        "export default () => { const a = []; a[0] = a; return JSON.stringify(a) }",
        "export default () => { const deep = { toJSON() { return JSON.stringify(deep) } }; return deep }",
        "export default () => { const deep = () => [1].map(deep); return deep() }",
        "export default () => { const p = new Proxy({}, { get: (_, k) => p[k] }); return p.x }",
        "export default () => { let r = ''; for (let i = 0; i < 3000; i++) r += '('; new RegExp(r + ')'.repeat(3000)) }",
        "export default () => { let s = '1'; for (let i = 0; i < 5000; i++) s = `(${s})`; return eval(s) }",
        "export default () => { const x = { toString() { return `${x}` } }; return `${x}` }",
    ] {
        let document = TestQuery::javascript(source).send(&*TestGateway::shared().await).await.json();
        let code = document["code"].as_str().unwrap_or("none");
        assert!(["program-threw", "program-trapped", "limit-cpu"].contains(&code), "{source}: {document}");
    }
    TestGateway::shared().await.assert_responsive("/query").await;
}

#[tokio::test]
async fn stops_endless_allocation() {
    let house = TestGateway::shared().await;
    for source in [
        "export default () => { const all = []; for (;;) all.push(new Uint8Array(1 << 16)) }",
        "export default () => { let text = 'x'; for (;;) text = (text + text).toUpperCase() }",
        "export default () => { const all = []; for (;;) { try { all.push('x'.repeat(1 << 20) + all.length) } catch {} } }",
        "export default () => { const map = new Map(); for (let i = 0; ; i++) map.set(i, { i }) }",
        "export default () => new Uint8Array(1 << 30).length",
        "export default () => 'x'.repeat(1 << 28)",
    ] {
        // A memory limit below the route's, so that the CPU limit does not come first on a busy machine.
        let program = TestQuery::javascript(source).limit("memory=6000000");
        house.expect_problem(program, 422, "limit-memory").await;
    }
}

#[tokio::test]
async fn json_that_is_nested_deeply() {
    let house = TestGateway::shared().await;
    let nested = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    let program = TestQuery::javascript("export default (input) => input.length").limit("cpu=300");
    house.expect_problem(program.clone().input(&nested), 422, "program-trapped").await;
    house.expect_problem(program.clone().input("{\"a\":"), 422, "program-refused").await;
    assert_eq!(house.expect_text(program.input("[[],[[]]]")).await, "2");
    let build = "export default () => { let a = []; for (let i = 0; i < 20000; i++) a = [a]; return a }";
    let code = TestQuery::javascript(build).send(&house).await.json()["code"].clone();
    assert!(code == "program-trapped" || code == "program-threw", "{code}");
    house.assert_responsive("/query").await;
}

#[tokio::test]
async fn globals_that_were_tampered_with() {
    let gateway = TestGateway::shared().await;
    let plain = "return { n: (await up.get('/json', { n: 3 })).length, all: await Promise.all([1, up.get('/json', { n: 1 })]) }";
    let expected = json!({ "n": 3, "all": [1, [{ "id": 0, "name": "item 0" }]] });
    for tampering in [
        "JSON.parse = JSON.stringify = () => { throw 1 }",
        "globalThis.JSON = undefined",
        "Array.prototype.push = Array.prototype.map = Array.prototype.forEach = () => { throw 1 }",
        "Object.defineProperty(Object.prototype, 'status', { get() { throw 1 }, set() { throw 1 } })",
        "Object.prototype.method = 'POST'",
        "Object.prototype.headers = 5",
        "for (const name of ['Response', 'Headers', 'URLSearchParams', 'Uint8Array', 'Error', 'Object', 'Array', 'String', 'Symbol', 'Reflect']) globalThis[name] = undefined",
        "String.prototype.toUpperCase = String.prototype.slice = String.prototype.indexOf = () => { throw 1 }",
        "Function.prototype.call = Function.prototype.apply = Function.prototype.bind = () => { throw 1 }",
        "delete globalThis.services; globalThis.services = globalThis.up = null",
        "Object.freeze(globalThis)",
        "const all = globalThis, { deleteProperty } = Reflect; for (const name of Object.getOwnPropertyNames(all)) if (name !== 'Promise') deleteProperty(all, name)",
        "Object.defineProperty(Symbol.prototype, Symbol.toPrimitive, { value() { throw 1 } })",
    ] {
        let source = format!("export default async (_, {{ up }}) => {{ {tampering}; {plain} }}");
        let answer = gateway.expect_text(TestQuery::javascript(&source)).await;
        let value: Value = serde_json::from_str(&answer).unwrap_or_default();
        assert_eq!(value, expected, "{tampering}");
        gateway.assert_responsive("/query").await;
    }
}

#[tokio::test]
async fn promises_that_were_tampered_with_do_not_affect_other_runs() {
    let gateway = TestGateway::shared().await;
    for tampering in [
        "Promise.prototype.then = () => { throw 1 }",
        "Promise.prototype.then = function () { return this }",
        "Promise.prototype.constructor = null",
        "Object.prototype.then = function (resolve) { resolve(7) }",
        "Object.defineProperty(Object.prototype, 'then', { get() { for (;;); } })",
        "Promise = undefined",
        "Error.prepareStackTrace = () => { for (;;); }; Error.stackTraceLimit = 0",
        "Promise.resolve = Promise.all = () => { throw 1 }",
        "Object.setPrototypeOf(Promise.prototype, new Proxy({}, { get() { throw 1 } }))",
    ] {
        let source =
            format!("export default async (_, {{ up }}) => {{ {tampering}; return await up.get('/json') }}");
        let answer = TestQuery::javascript(&source).send(&gateway).await;
        assert!([200, 422].contains(&answer.status.as_u16()), "{tampering}: {}", answer.text());
        gateway.assert_responsive("/query").await;
    }
}

#[tokio::test]
async fn services_are_read_only() {
    let gateway = TestGateway::shared().await;
    let source = "export default async (_, services) => {
        try { services.up = { get: () => 'mine' } } catch {}
        try { services.up.get = () => 'mine' } catch {}
        try { Object.defineProperty(services, 'evil', { value: 1 }) } catch {}
        return [await services.up.get('/json', { n: 1 }), Object.keys(services)];
    }";
    let answer: Value =
        serde_json::from_str(&gateway.expect_text(TestQuery::javascript(source)).await).expect("JSON");
    assert_eq!(answer[1], json!(["dead", "guarded", "impatient", "up"]));
    let document =
        expect_problem("export default (_, { catalog }) => catalog.get('/')", "program-threw").await;
    assert!(
        document["detail"].as_str().is_some_and(|text| text.contains("there is no service 'catalog'")),
        "{document}"
    );
}

#[tokio::test]
async fn two_runs_share_nothing() {
    let gateway = TestGateway::shared().await;
    let count =
        "globalThis.n = (globalThis.n ?? 0) + 1; Object.prototype.seen ??= 0; Object.prototype.seen++;
        let own = 0; export default () => [n, {}.seen, ++own]";
    for _ in 0..4 {
        assert_eq!(gateway.expect_text(TestQuery::javascript(count)).await, "[1,1,1]");
    }
}

#[tokio::test]
async fn a_program_is_one_file() {
    for source in [
        "import fs from 'fs'; export default () => 1",
        "import { a } from './a.js'; export default () => a",
        "export * from 'https://evil.example/x.js'",
    ] {
        let document = expect_problem(source, "program-syntax").await;
        assert_eq!(problem_location(&document).0, 1, "{document}");
    }
    expect_problem("export default () => import('fs')", "program-threw").await;
    for name in [
        "process",
        "require",
        "fetch",
        "setTimeout",
        "std",
        "os",
        "Atomics",
        "SharedArrayBuffer",
        "WebAssembly",
        "window",
    ] {
        let gateway = TestGateway::shared().await;
        assert_eq!(
            gateway.expect_text(TestQuery::javascript(&format!("export default () => typeof {name}"))).await,
            "undefined",
            "{name}"
        );
    }
}

#[tokio::test]
async fn problems_include_the_console() {
    let source = "export default () => { console.log('a', { b: [1] }); console.error(new TypeError('c').message); throw new Error('d') }";
    let document = expect_problem(source, "program-threw").await;
    assert_eq!(document["console"], "a {\"b\":[1]}\nc\n", "{document}");
}
