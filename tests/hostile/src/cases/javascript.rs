//! Query programs in JavaScript and TypeScript that spin, grow, nest, or exceed limits.

use anyhow::Result;

use super::HeldRows;
use crate::case::AttackCase;
use crate::ending::AttackEnding;
use crate::target::AttackTarget;

const CPU: AttackEnding = AttackEnding::problem(422, "limit-cpu");
const MEMORY: AttackEnding = AttackEnding::problem(422, "limit-memory");
const HEADER: AttackEnding = AttackEnding::problem(400, "header-malformed");
const SYNTAX: AttackEnding = AttackEnding::problem(422, "program-syntax");
const PROGRAM_THREW: AttackEnding = AttackEnding::problem(422, "program-threw");
const PROGRAM_TRAPPED: AttackEnding = AttackEnding::problem(422, "program-trapped");

/// Defines a case for a program and its allowed endings.
macro_rules! program {
    ($name:literal, $source:expr, [$($ending:expr),+ $(,)?] $(,)?) => {
        case!($name, |it| it.program($source), [$($ending),+], RUN)
    };
}

/// The memory of a run: held by the host, received, answered, and the program in the cache.
const RUN: HeldRows = &[
    ("query body", 2),
    ("memory held for a program", 1),
    ("bytes received by a program", 2),
    ("answer of a program", 2),
    ("calls of a program", 1),
];
/// The memory of a program that is compiled, and perhaps run.
const SOURCE: HeldRows = &[("query body", 4), ("memory held for a program", 1)];
/// The memory of a program whose types are stripped.
const TYPES: HeldRows =
    &[("query body", 4), ("syntax tree of a program", 1), ("memory held for a program", 1)];
/// The memory of a body that is decoded up to the limit.
const BOMB: HeldRows = &[("query body", 2), ("decoded query body", 4), ("decoder of a body", 1)];

pub(super) const CASES: &[AttackCase] = &[
    program!("javascript/loop without an end", "export default () => { for (;;); }", [CPU]),
    program!(
        "javascript/regular expression that backtracks",
        "export default () => /^(a+)+$/.test('a'.repeat(40) + 'b')",
        [CPU, AttackEnding::Answer(200)]
    ),
    program!(
        "javascript/recursion without an end",
        "const f = () => f() + 1; export default f",
        [PROGRAM_THREW]
    ),
    program!(
        "javascript/promises without an end",
        "export default async () => { const f = async () => { await 0; return f(); }; await f(); }",
        [CPU, MEMORY]
    ),
    program!(
        "javascript/promise that nobody settles",
        "export default () => new Promise(() => {})",
        [AttackEnding::problem(422, "program-stalled")]
    ),
    program!(
        "javascript/array that grows without an end",
        "export default () => { const a = []; for (;;) a.push(new Uint8Array(1 << 20)); }",
        [MEMORY, PROGRAM_THREW, CPU]
    ),
    program!(
        "javascript/text that doubles without an end",
        "export default () => { let s = 'a'; for (;;) s += s; }",
        [MEMORY, PROGRAM_THREW, CPU]
    ),
    program!(
        "javascript/answer beyond its limit",
        "export default () => 'a'.repeat(1 << 17)",
        [AttackEnding::problem(422, "limit-output")]
    ),
    program!(
        "javascript/answer that nests",
        "export default () => { let a = []; for (let i = 0; i < 100000; i++) a = [a]; return a }",
        [PROGRAM_THREW, PROGRAM_TRAPPED, CPU]
    ),
    program!(
        "javascript/answer that is a circle",
        "export default () => { const a = []; a.push(a); return a }",
        [AttackEnding::problem(422, "program-bad-answer")]
    ),
    program!(
        "javascript/log without an end",
        "export default () => { for (;;) console.log('x'.repeat(10000)) }",
        [CPU, MEMORY]
    ),
    program!(
        "javascript/call too many",
        "export default async (_, { up }) => { for (let i = 0; i < 21; i++) await up.get('/json', { n: 1 }) }",
        [AttackEnding::problem(422, "limit-calls")]
    ),
    program!(
        "javascript/calls that are all made at once",
        "export default (_, { up }) => Promise.all(Array.from({ length: 1000 }, () => up.get('/json', { n: 1 })))",
        [AttackEnding::problem(422, "limit-calls")]
    ),
    program!(
        "javascript/writes without an end after the return",
        "export default (_, { up }) => { (async () => { for (;;) await up.post('/echo', 1) })(); return 1 }",
        [AttackEnding::problem(422, "limit-calls")]
    ),
    program!(
        "javascript/write that fails and is not awaited",
        "export default (_, { up }) => { up.post('/status/409', 1); return 'stored' }",
        [PROGRAM_THREW]
    ),
    program!(
        "javascript/long answer that is read as JSON",
        "export default async (_, { up }) => (await up.get('/json', { n: 20000 })).length",
        [AttackEnding::Answer(200)]
    ),
    program!(
        "javascript/service that sends too much",
        "export default async (_, { up }) => (await up.get('/gigabyte')).length",
        [AttackEnding::problem(422, "limit-received")]
    ),
    program!(
        "javascript/service that never answers",
        "export default (_, { up }) => up.get('/hang')",
        [AttackEnding::problem(422, "limit-deadline")]
    ),
    program!(
        "javascript/path with U+0000",
        "export default async (_, { up }) => (await up.get('/echo/' + 'secret\\0' + '.public')).path",
        [
            AttackEnding::Answer(200),
            PROGRAM_THREW,
            AttackEnding::problem(400, "path-control-character"),
            AttackEnding::problem(422, "path-control-character"),
            AttackEnding::problem(403, "path-control-character")
        ]
    ),
    program!(
        "javascript/path with dot segments",
        "export default (_, { up }) => up.get('/a/../../b')",
        [AttackEnding::problem(422, "path-dot-segment"), AttackEnding::problem(400, "path-dot-segment")]
    ),
    program!(
        "javascript/service that is not open",
        "export default (_, { dead }) => dead.get('/x')",
        [PROGRAM_THREW]
    ),
    program!(
        "javascript/address that is no service",
        "export default () => fetch('http://127.0.0.1:1/')",
        [
            PROGRAM_THREW,
            AttackEnding::problem(422, "service-unknown"),
            AttackEnding::problem(422, "url-host")
        ]
    ),
    program!(
        "javascript/header with a line break",
        "export default (_, { up }) => up.get('/echo', {}, { headers: { a: 'b\\r\\nc: d' } })",
        [PROGRAM_THREW, AttackEnding::Answer(200), AttackEnding::problem(422, "program-bad-text")]
    ),
    program!(
        "javascript/prototype of everything changed",
        "Object.prototype.toJSON = () => 'mine'; Array.prototype.push = null; export default () => [1]",
        [AttackEnding::Answer(200)]
    ),
    program!("javascript/import of a file", "import fs from 'node:fs'; export default () => fs", [SYNTAX]),
    program!(
        "javascript/no default export",
        "const x = 1",
        [AttackEnding::problem(422, "program-bad-answer")]
    ),
    program!("javascript/no text", "\u{0}\u{1}\u{2}", [SYNTAX]),
    case!(
        "javascript/source of nested brackets",
        |it| repeat_source(&it, "[", 30_000, "text/javascript"),
        [SYNTAX, PROGRAM_TRAPPED],
        SOURCE
    ),
    case!(
        "javascript/source of nested functions",
        |it| repeat_source(&it, "()=>", 15_000, "text/javascript"),
        [SYNTAX, PROGRAM_TRAPPED],
        SOURCE
    ),
    case!(
        "javascript/types of nested brackets",
        |it| repeat_source(&it, "[", 30_000, "text/typescript"),
        [SYNTAX, PROGRAM_TRAPPED],
        TYPES
    ),
    case!(
        "javascript/types of nested angles",
        |it| repeat_source(&it, "<", 60_000, "text/typescript"),
        [SYNTAX, PROGRAM_TRAPPED],
        TYPES
    ),
    case!(
        "javascript/types of nested parentheses",
        |it| repeat_source(&it, "(", 60_000, "text/typescript"),
        [SYNTAX, PROGRAM_TRAPPED],
        TYPES
    ),
    case!(
        "javascript/program beyond its limit",
        |it| repeat_source(&it, ";", 70_000, "text/javascript"),
        [AttackEnding::problem(413, "program-too-large")],
        SOURCE
    ),
    case!(
        "javascript/body beyond its limit",
        |it| repeat_source(&it, ";", 300_000, "text/javascript"),
        [AttackEnding::problem(413, "body-too-large"), AttackEnding::problem(413, "program-too-large")],
        SOURCE
    ),
    case!(
        "javascript/bytes that are no text",
        |it| it.request_ending(
            "POST",
            "/query",
            &[("content-type", "text/javascript")],
            &b"\xff\xfe\xfd"[..]
        ),
        [AttackEnding::problem(400, "program-not-text")],
        SOURCE
    ),
    case!(
        "javascript/form without an end",
        |it| it.request_ending(
            "POST",
            "/query",
            &[("content-type", "multipart/form-data; boundary=x")],
            "--x\r\nContent-Disposition: form-data; name=program\r\nContent-Type: text/javascript\r\n\r\n"
        ),
        [AttackEnding::problem(400, "form-malformed")],
        SOURCE
    ),
    case!(
        "javascript/form with ORFA-Input",
        |it| it.request_ending(
            "POST",
            "/query",
            &[("content-type", "multipart/form-data; boundary=x"), ("orfa-input", "one")],
            "--x--\r\n"
        ),
        [AttackEnding::problem(400, "input-misplaced")],
        SOURCE
    ),
    case!(
        "javascript/form of one long part",
        |it| send_form(&it, 200_000),
        [AttackEnding::Answer(200)],
        SOURCE
    ),
    case!("javascript/limits of thousands of words", |it| many_limits(&it), [HEADER], SOURCE),
    case!(
        "javascript/gzip bomb",
        |it| it.request_ending(
            "POST",
            "/query",
            &[("content-type", "text/javascript"), ("content-encoding", "gzip")],
            super::bombs::gzip_bomb()
        ),
        [AttackEnding::problem(413, "body-too-large")],
        BOMB
    ),
    case!(
        "javascript/zstd bomb",
        |it| it.request_ending(
            "POST",
            "/query",
            &[("content-type", "text/javascript"), ("content-encoding", "zstd")],
            super::bombs::zstd_bomb()
        ),
        [AttackEnding::problem(413, "body-too-large")],
        BOMB
    ),
    case!(
        "javascript/zstd with a window of two gigabytes",
        |it| it.request_ending(
            "POST",
            "/query",
            &[("content-type", "text/javascript"), ("content-encoding", "zstd")],
            super::bombs::wide_window()
        ),
        [AttackEnding::problem(400, "content-encoding-broken"), AttackEnding::problem(413, "body-too-large")],
        BOMB
    ),
    case!(
        "javascript/brotli bomb",
        |it| it.request_ending(
            "POST",
            "/query",
            &[("content-type", "text/javascript"), ("content-encoding", "br")],
            super::bombs::brotli_bomb()
        ),
        [AttackEnding::problem(413, "body-too-large")],
        BOMB
    ),
    case!(
        "javascript/coding that is not what it says",
        |it| it.request_ending(
            "POST",
            "/query",
            &[("content-type", "text/javascript"), ("content-encoding", "gzip")],
            "not gzip at all"
        ),
        [AttackEnding::problem(400, "content-encoding-broken")],
        BOMB
    ),
];

/// Sends a form with an input of this length.
async fn send_form(target: &AttackTarget, bytes: usize) -> Result<AttackEnding> {
    let part = "--x\r\nContent-Disposition: form-data; name=";
    let program = "\"program\"\r\nContent-Type: text/javascript\r\n\r\nexport default () => 1";
    let input = format!("\"input\"\r\n\r\n\"{}\"", "a".repeat(bytes));
    let body = format!("{part}{program}\r\n{part}{input}\r\n--x--\r\n");
    target
        .request_ending("POST", "/query", &[("content-type", "multipart/form-data; boundary=x")], body)
        .await
}

/// Sends limits with thousands of names.
async fn many_limits(target: &AttackTarget) -> Result<AttackEnding> {
    let names: Vec<String> = (0..5_000).map(|number| format!("a{number}")).collect();
    let limits = names.join(",");
    let headers = [("content-type", "text/javascript"), ("orfa-limit", limits.as_str())];
    target.request_ending("POST", "/query", &headers, "export default () => 1").await
}

/// Sends a program that repeats one text.
async fn repeat_source(
    target: &AttackTarget,
    text: &str,
    times: usize,
    language: &str,
) -> Result<AttackEnding> {
    target.request_ending("POST", "/query", &[("content-type", language)], text.repeat(times)).await
}
