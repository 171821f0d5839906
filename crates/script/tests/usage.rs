//! Changes of state: each form of JavaScript by which a part of state can reach code that changes it, beside
//! a similar form that only reads.
#![allow(missing_docs)]

use script::{CommitPoint, CompileOptions, ConcurrencyClass, ResourceHandler, compile};

/// Returns a PUT handler that uses the state `st`, the resource `u` and some functions of the service.
fn compile_handler(body: &str) -> ResourceHandler {
    let source = format!(
        "service s {{ res u = 'http://x/@'\n function tag(s, l) {{ l.push(1) }}\n \
         res '/a' {{ state st = {{ n: 0, list: [] }}\n on PUT {{ {body} }} }} }}"
    );
    let program = compile(&source, "test.sjs", &CompileOptions::default());
    let program = program.unwrap_or_else(|found| panic!("{body}: {found:?}"));
    program.services[0].handlers[0].clone()
}

fn commits_early(body: &str) -> bool {
    matches!(compile_handler(body).commit, CommitPoint::Early(_))
}

/// Statements before the change, code that changes `st.list`, and a body that only reads.
const FORMS: &[(&str, &str, &str)] = &[
    // Tagged templates.
    ("", "tag`${st.list}`", "respond `${st.list}`"),
    ("const f = (s, l) => l; const l = f`${st.list}`", "l.push(1)", "const l = `${st.list}`; respond l"),
    ("const o = { t(s, l) { l.push(1) } }", "o.t`${st.list}`", "const o = { t: st.list }; respond o.t"),
    // Thrown and rejected values.
    ("", "try { throw st.list } catch (l) { l.push(1) }", "try { throw 1 } catch { respond st.list }"),
    ("let l; try { throw [st.list] } catch ([x]) { l = x }", "l.push(1)", "throw st.list"),
    (
        "const p = Promise.reject(st.list)",
        "try { await p } catch (l) { l.push(1) }",
        "const l = await st.list; respond l",
    ),
    // Results of callbacks.
    (
        "const a = [0].map(() => st.list)",
        "a[0].push(1)",
        "const a = [0].map(() => st.list); respond a[0].length",
    ),
    (
        "const a = Array.from({ length: 1 }, () => st.list)",
        "a[0].push(1)",
        "const a = Array.from({ length: 1 }, () => st.list); respond a",
    ),
    (
        "",
        "[0, 1].reduce((a) => { a.push(1); return st.list }, [])",
        "respond [0, 1].reduce((a) => a.length ? a : st.list, [])",
    ),
    (
        "const p = Promise.resolve(st.list)",
        "p.then((l) => l.push(1))",
        "const l = await st.list; respond l.length",
    ),
    // Arguments of callbacks.
    (
        "const each = st.list.values().map((x) => x.push(1))",
        "[...each]",
        "respond [...st.list.values()].map((x) => x.n)",
    ),
    (
        "",
        "JSON.stringify(st.list, (k, v) => { v.push?.(1); return v })",
        "respond JSON.stringify(st.list, null, 2)",
    ),
    ("", "st.list.forEach(function () { arguments[0].a = 1 })", "st.list.forEach(function (it) { it.a })"),
    // Assignments.
    ("let l = null; l ??= st.list", "l.push(1)", "let l = null; l ??= st.list; respond l.length"),
    ("let l = 0; l ||= st.list", "l.push(1)", "let l = 0; l ||= st.list; respond l.length"),
    ("let l = 1; l &&= st.list", "l.push(1)", "let l = 1; l &&= st.list; respond l.length"),
    ("let l; ({ list: l } = st)", "l.push(1)", "const { list } = st; respond list"),
    (
        "const { list: { push: p } } = st",
        "p.call(st.list, 1)",
        "const { list: { length: n } } = st; respond n",
    ),
    // Default values.
    ("const { q = st.list } = {}", "q.push(1)", "const { q = st.list } = {}; respond q"),
    ("const [q = st.list] = []", "q.push(1)", "const [q = st.list] = []; respond q"),
    ("const f = (l = st.list) => l", "f().push(1)", "const f = (l = st.list) => l.length; respond f()"),
    ("let q; ({ q = st.list } = {})", "q.push(1)", "let q; ({ q = 2 } = {}); respond [q, st.list]"),
    ("let q; [q = st.list] = []", "q.push(1)", "let q; [q = 2] = []; respond [q, st.list]"),
    ("", "for (const { l = st.list } of [{}]) l.push(1)", "for (const { l = st.list } of [{}]) respond l"),
    // Functions as values.
    (
        "function f() { st.list.push(1) } const o = { f }",
        "o.f()",
        "function f() { return st.list }; respond f()",
    ),
    (
        "function f() { st.list.push(1) } const g = f.bind(null)",
        "g()",
        "function f(l) { return l.length }; respond f(st.list)",
    ),
    ("function f() { st.list.push(1) } const all = [f]", "all[0]()", "respond [st.list].length"),
    ("function f() { st.list.push(1) } const g = f", "g()", "const g = st.list; respond g"),
    (
        "function f() { st.list.push(1) } const same = (c) => c",
        "same(f)()",
        "const same = (c) => c; respond same(st.list)",
    ),
    (
        "function f() { st.list.push(1) } const o = { go: () => f() }",
        "o.go()",
        "const o = { go: () => 1 }; respond [o.go(), st.n]",
    ),
    (
        "const make = () => () => st.list.push(1); const g = make()",
        "g()",
        "const size = () => st.list.length; respond size()",
    ),
    (
        "let kept; const o = { keep(l) { kept = l } }; o.keep(st.list)",
        "kept.push(1)",
        "respond st.list.length",
    ),
    // Arguments of functions.
    (
        "const f = (a, b) => b.push(1)",
        "f(...[0, st.list])",
        "const f = (a, b) => b.length; respond f(...[0, st.list])",
    ),
    ("const f = (...r) => r[0].push(1)", "f(st.list)", "const f = (...r) => r[0].length; respond f(st.list)"),
    (
        "function f() { arguments[0].push(1) }",
        "f(st.list)",
        "function f() { return 1 }; respond [f(1), st.list]",
    ),
    // Generators, classes, getters, setters, and methods with the names of built-in methods.
    ("const g = function* () { yield st.list }", "for (const l of g()) l.push(1)", "respond [...st.list]"),
    (
        "const g = (function* () { const x = yield; x.push(1) })(); g.next()",
        "g.next(st.list)",
        "respond st.list.entries()",
    ),
    (
        "class A { l = st.list } const a = new A()",
        "a.l.push(1)",
        "class A { n = 1 }; respond [new A().n, st.list]",
    ),
    (
        "class A { constructor(l) { this.l = l } } const a = new A(st.list)",
        "a.l.push(1)",
        "respond new Date(st.n)",
    ),
    (
        "function F(l) { this.l = l } const a = new F(st.list)",
        "a.l.push(1)",
        "respond new Set([1]).has(st.n)",
    ),
    ("const o = { get l() { return st.list } }", "o.l.push(1)", "const o = { l: st.list }; respond o.l"),
    ("const o = { set x(l) { l.push(1) } }", "o.x = st.list", "let x = 1; x = st.list; respond x"),
    (
        "const o = { l: st.list, map() { return this.l.push(1) } }",
        "o.map()",
        "const o = { l: st.list }; respond o.l.map((x) => x)",
    ),
    (
        "const JSON = { stringify(l) { l.push(1) } }",
        "JSON.stringify(st.list)",
        "respond JSON.stringify(st.list)",
    ),
    (
        "const K = { [Symbol.hasInstance](l) { l.push(1); return true } }",
        "st.list instanceof K",
        "respond st.list instanceof Array",
    ),
    // Other operators and statements.
    ("", "st?.list?.push?.(1)", "respond st?.list?.length"),
    ("let l = (0, st.list)", "l.push(1)", "let l = (0, st.list); respond l"),
    ("const l = query.z ? [] : st.list", "l.push(1)", "const l = query.z ? [] : st.list; respond l"),
    ("", "a: for (;;) { st.list.push(1); break a }", "a: for (;;) { if (st.n) break a; respond st.list }"),
    ("let o = {}", "for (o.l of [st.list]) o.l.push(1)", "for (const l of [st.list]) respond l"),
];

#[test]
fn rule_4_any_change_through_an_alias_makes_a_writer() {
    for (before, write, read) in FORMS {
        assert_eq!(
            compile_handler(&format!("{before}; {write}")).class,
            ConcurrencyClass::Writer,
            "{before}; {write}"
        );
        assert_eq!(compile_handler(read).class, ConcurrencyClass::Reader, "{read}");
    }
}

#[test]
fn rule_6_never_commits_before_a_change_through_an_alias() {
    for (before, write, _) in FORMS {
        let body = format!("{before}; st.n = 1; u.get(1); {write}");
        assert!(!commits_early(&body), "{body}");
    }
}

#[test]
fn rule_6_never_commits_before_the_last_change_of_an_assigned_value() {
    for put in [
        "const { x = l } = {}; st.list = x",
        "const keep = (x = l) => { st.list = x }; keep()",
        "const keep = (...r) => { st.list = r[0] }; keep(l)",
        "function keep() { st.list = arguments[0] } keep(l)",
        "((x) => { st.list = x })(l)",
        "try { throw l } catch (e) { st.list = e }",
        "const g = function* () { yield l }; st.list = g().next().value",
        "function* g() { yield l } st.list = g().next().value",
        "let f = () => l; f = () => l; st.list = f()",
        "class A { m = l } st.list = new A().m",
        "function F() { this.m = l } st.list = new F().m",
        "let x; x ??= l; st.list = x",
    ] {
        let body = format!("var l = []; {put}; u.get(1); l.push(1)");
        assert!(!commits_early(&body), "{body}");
    }
}

#[test]
fn rule_6_an_asynchronous_function_may_change_state_after_its_call() {
    for body in [
        "const f = async () => { await null; st.n++ }; f(); u.get(1)",
        "(async () => { await null; st.n++ })(); u.get(1)",
        "const f = async (l) => { await null; l.push(1) }; f(st.list); u.get(1)",
        "const f = async () => { await null; st.n++ }; const g = () => { f() }; g(); u.get(1)",
        "[st.list].forEach(async (l) => { await null; l.push(1) }); u.get(1)",
    ] {
        assert!(!commits_early(body), "{body}");
    }
}

#[test]
fn rule_6_harmless_code_does_not_delay_the_commit() {
    for body in [
        "st.n = 1; const p = u.get(1); respond { n: st.n, p, list: st.list.map((x) => x.id) }",
        "function add(x) { st.list.push(x) } add(1); u.get(1); respond st",
        "const add = (x) => st.list.push(x); const both = () => { add(1); add(2) }; both(); u.get(1)",
        "st.list.push(1); try { u.get(1) } catch (e) { respond e.message }",
        "if (Object.hasOwn(st, query.k)) st.n++; u.get(1); respond st.n",
        "const o = { id: ++st.n }; st.list.push(o); u.post(1, o); respond o",
        "st.n = Date.now(); u.get(1); respond new Date(st.n).toISOString()",
        "if (!st.n) throw new Error('no ' + st.n); st.n--; u.get(1)",
        "const names = new Set(st.list); st.n = names.size; u.get(1)",
        "st.n ??= query.list.reduce((a, b) => a + b, st.n); u.get(1); respond ['a'].includes(st.n)",
        "const { q = 1 } = query; st.n = q; u.get(q); respond `${st.n}`",
        "res far = st.list[0]; st.n++; far.post(1)",
    ] {
        assert!(commits_early(body), "{body}");
    }
}
