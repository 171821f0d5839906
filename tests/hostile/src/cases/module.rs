//! Query programs in WebAssembly that are dear to check or compile, or that misuse the host.

use anyhow::{Context, Result};

use super::HeldRows;
use crate::case::AttackCase;
use crate::ending::AttackEnding;
use crate::target::AttackTarget;

const MALFORMED: AttackEnding = AttackEnding::problem(422, "module-malformed");
const IMPORT: AttackEnding = AttackEnding::problem(422, "module-import");

/// A module in WebAssembly text and how it may end.
macro_rules! module {
    ($name:literal, $source:expr, [$($ending:expr),+ $(,)?] $(,)?) => {
        case!($name, |it| text(&it, $source), [$($ending),+], COMPILED)
    };
}

/// A module that is checked, compiled, kept and run.
const COMPILED: HeldRows = &[
    ("query body", 4),
    ("module being compiled", 1),
    ("compiled programs", 1),
    ("memory held for a program", 1),
];

/// The same on the route that reads megabytes.
const LONG: HeldRows = &[
    ("query body", 4),
    ("module being compiled", 1),
    ("compiled programs", 1),
    ("memory held for a program", 2),
];

pub(super) const CASES: &[AttackCase] = &[
    case!("module/body that is no module", |it| it.module(b"\0asm\x01\0\0\0\xff\xff".to_vec()), [MALFORMED]),
    case!("module/component", |it| it.module(b"\0asm\x0d\0\x01\0".to_vec()), [MALFORMED]),
    case!(
        "module/section that is longer than the module",
        |it| it.module(b"\0asm\x01\0\0\0\x01\xff\xff\xff\xff\x0f".to_vec()),
        [MALFORMED]
    ),
    module!(
        "module/loop without an end",
        r#"(module (memory (export "memory") 1) (func (export "orfa") (param i32 i32) (loop $l (br $l))))"#,
        [AttackEnding::problem(422, "limit-cpu")]
    ),
    module!(
        "module/recursion without an end",
        r#"(module (memory (export "memory") 1) (func $f (export "orfa") (param i32 i32) (call $f (local.get 0) (local.get 1))))"#,
        [AttackEnding::problem(422, "program-trapped")]
    ),
    module!(
        "module/memory that grows without an end",
        r#"(module (memory (export "memory") 1) (func (export "orfa") (param i32 i32) (loop $l (drop (memory.grow (i32.const 16))) (br $l))))"#,
        [AttackEnding::problem(422, "limit-memory"), AttackEnding::problem(422, "limit-cpu")]
    ),
    module!(
        "module/memory that is filled again and again",
        r#"(module (memory (export "memory") 250)
            (func (export "orfa") (param i32 i32)
              (loop $l (memory.fill (i32.const 0) (i32.const 1) (i32.const 16384000)) (br $l))))"#,
        [AttackEnding::problem(422, "limit-cpu")]
    ),
    module!(
        "module/memory that grows and is filled again and again",
        r#"(module (memory (export "memory") 1)
            (func (export "orfa") (param i32 i32)
              (loop $l
                (memory.fill (i32.const 0) (i32.const 1) (i32.mul (memory.size) (i32.const 65536)))
                (drop (memory.grow (i32.const 8)))
                (br $l))))"#,
        [AttackEnding::problem(422, "limit-memory"), AttackEnding::problem(422, "limit-cpu")]
    ),
    case!(
        "module/code without loops that touches all of its memory",
        |it| run_straight_line_code(&it, r#"(memory (export "memory") 250)"#, &touched_pages(3_900)),
        [AttackEnding::problem(422, "limit-cpu")],
        COMPILED
    ),
    case!(
        "module/code without loops that grows its memory in vain",
        |it| run_straight_line_code(
            &it,
            r#"(memory (export "memory") 1 1)"#,
            &"(drop (memory.grow (i32.const 1)))".repeat(2_000)
        ),
        [AttackEnding::problem(422, "limit-cpu")],
        COMPILED
    ),
    case!(
        "module/code without loops that calls the host",
        |it| run_straight_line_code(
            &it,
            r#"(import "orfa" "random" (func $random (param i32 i32))) (memory (export "memory") 2)"#,
            &"(call $random (i32.const 0) (i32.const 65536))".repeat(1_000)
        ),
        [AttackEnding::problem(422, "limit-cpu")],
        COMPILED
    ),
    module!(
        "module/data at both ends of its memory",
        r#"(module (memory (export "memory") 250) (func (export "orfa") (param i32 i32))
            (data (i32.const 0) "a") (data (i32.const 16383999) "b"))"#,
        [AttackEnding::problem(422, "program-no-answer")]
    ),
    case!(
        "module/client that leaves a memory that is full",
        |it| abandon_full_memory(&it),
        [AttackEnding::Closed],
        COMPILED
    ),
    // The request at 1024: `GET`, a URL of 14 MB, no headers, no body.
    module!(
        "module/call with a URL of megabytes",
        r#"(module (import "orfa" "http" (func $http (param i32) (result i32))) (memory (export "memory") 230)
            (data (i32.const 0) "GET")
            (data (i32.const 1024) "\00\00\00\00\03\00\00\00\00\00\01\00\80\9f\d5\00")
            (func (export "orfa") (param i32 i32)
              (memory.fill (i32.const 65536) (i32.const 97) (i32.const 14000000))
              (drop (call $http (i32.const 1024)))))"#,
        [AttackEnding::problem(422, "call-head-too-large")]
    ),
    module!(
        "module/pointer of megabytes",
        r#"(module (import "orfa" "http" (func $http (param i32) (result i32)))
            (import "orfa" "Future_wait" (func $wait (param i32 i32 i32) (result i32)))
            (import "orfa" "Response_json" (func $json (param i32 i32 i32 i32 i32) (result i32)))
            (memory (export "memory") 230)
            (data (i32.const 0) "GET") (data (i32.const 16) "http://up/json?n=1")
            (data (i32.const 1024) "\00\00\00\00\03\00\00\00\10\00\00\00\12\00\00\00")
            (func (export "orfa") (param i32 i32)
              (memory.fill (i32.const 65536) (i32.const 97) (i32.const 14000000))
              (i32.store (i32.const 2048) (call $http (i32.const 1024)))
              (drop (call $wait (i32.const 2048) (i32.const 1) (i32.const 1)))
              (loop $l
                (drop (call $json (i32.load (i32.const 2048)) (i32.const 65536) (i32.const 14000000) (i32.const 0) (i32.const 0)))
                (br $l))))"#,
        [AttackEnding::problem(422, "limit-cpu")]
    ),
    case!(
        "module/long answer that is walked again and again",
        |it| long_answer(
            &it,
            "http://up/json?n=100000",
            r#"(drop (call $children (local.get $h) (i32.const 0) (i32.const 65536) (i32.const 8000000)))
               (drop (call $pointer (local.get $h) (i32.const 80) (i32.const 9) (i32.const 65536) (i32.const 64)))"#
        ),
        [AttackEnding::problem(422, "limit-cpu")],
        LONG
    ),
    case!(
        "module/long text that is read again and again",
        |it| long_answer(
            &it,
            "http://up/json?n=1&text=4000000",
            r#"(drop (call $read (local.get $h) (i32.const 0) (i32.const 65536) (i32.const 8000000)))
               (drop (call $member (local.get $h) (i32.const 1) (i32.const 96) (i32.const 4) (i32.const 0)
                 (i32.const 128) (i32.const 65536) (i32.const 8000000)))
               (drop (call $text (local.get $h) (i32.const 0) (i32.const 65536) (i32.const 8000000)))"#
        ),
        [AttackEnding::problem(422, "limit-cpu")],
        LONG
    ),
    case!(
        "module/list of short values that is walked again and again",
        |it| echo_json(
            &it,
            ("[", "0,", "0]", 480_000),
            "(drop (call $children (local.get $h) (i32.const 0) (i32.const 65536) (i32.const 8000000)))"
        ),
        [AttackEnding::problem(422, "limit-cpu")],
        LONG
    ),
    case!(
        "module/object of short members that is searched again and again",
        |it| echo_json(
            &it,
            (r#"{"#, r#""":0,"#, r#""":0}"#, 200_000),
            r#"(drop (call $member (local.get $h) (i32.const 0) (i32.const 96) (i32.const 4) (i32.const 1)
                 (i32.const 128) (i32.const 65536) (i32.const 8000000)))"#
        ),
        [AttackEnding::problem(422, "limit-cpu")],
        LONG
    ),
    case!(
        "module/column of objects of short members",
        |it| echo_json(
            &it,
            (r#"[{"#, r#""":0,"#, r#""":0}]"#, 100_000),
            r#"(drop (call $column (local.get $h) (i32.const 1) (i32.const 96) (i32.const 4) (i32.const 1)
                 (i32.const 65536) (i32.const 1000) (i32.const 128000) (i32.const 1000)))"#
        ),
        [AttackEnding::problem(422, "limit-cpu")],
        LONG
    ),
    case!(
        "module/list of strings of escapes that is walked again and again",
        |it| echo_json(
            &it,
            ("[", &format!("\"{}\",", r"\n".repeat(40)), "0]", 15_000),
            "(drop (call $children (local.get $h) (i32.const 0) (i32.const 65536) (i32.const 8000000)))"
        ),
        [AttackEnding::problem(422, "limit-cpu")],
        LONG
    ),
    case!(
        "module/text of a colon before a long string",
        |it| echo_json(
            &it,
            (r#"{"a":""#, "aaaaaaaaaa", r#""}"#, 140_000),
            "(drop (call $text (local.get $h) (i32.const 4) (i32.const 65536) (i32.const 8000000)))"
        ),
        [AttackEnding::problem(422, "limit-cpu")],
        LONG
    ),
    case!(
        "module/calls with bodies of megabytes",
        |it| async move {
            let words = [0, 3, 16, "http://up/status/200".len(), 0, 0, 65536, 14_000_000];
            let source = format!(
                r#"(module (import "orfa" "http" (func $http (param i32) (result i32)))
                    (memory (export "memory") 230)
                    (data (i32.const 0) "GET") (data (i32.const 16) "http://up/status/200")
                    (data (i32.const 1024) "{}")
                    (func (export "orfa") (param i32 i32)
                      (memory.fill (i32.const 65536) (i32.const 97) (i32.const 14000000))
                      (loop $l (drop (call $http (i32.const 1024))) (br $l))))"#,
                words_in_text(&words)
            );
            it.module_at("/long", wat::parse_str(&source).context("the module's text")?).await
        },
        [AttackEnding::problem(422, "limit-memory")],
        LONG
    ),
    module!(
        "module/memory that begins too large",
        r#"(module (memory (export "memory") 65536) (func (export "orfa") (param i32 i32)))"#,
        [AttackEnding::problem(422, "limit-memory"), MALFORMED]
    ),
    module!(
        "module/no memory",
        r#"(module (func (export "orfa") (param i32 i32)))"#,
        [AttackEnding::problem(422, "module-memory")]
    ),
    module!(
        "module/no entry",
        r#"(module (memory (export "memory") 1))"#,
        [AttackEnding::problem(422, "module-no-entry")]
    ),
    module!(
        "module/entry of another type",
        r#"(module (memory (export "memory") 1) (func (export "orfa") (param i64)))"#,
        [AttackEnding::problem(422, "module-signature")]
    ),
    module!(
        "module/import that there is not",
        r#"(module (import "wasi_snapshot_preview1" "fd_write" (func (param i32 i32 i32 i32) (result i32)))
            (memory (export "memory") 1) (func (export "orfa") (param i32 i32)))"#,
        [IMPORT]
    ),
    module!(
        "module/start that spins",
        r#"(module (memory (export "memory") 1) (func $s (loop $l (br $l))) (start $s) (func (export "orfa") (param i32 i32)))"#,
        [AttackEnding::problem(422, "limit-cpu"), MALFORMED]
    ),
    module!(
        "module/trap",
        r#"(module (memory (export "memory") 1) (func (export "orfa") (param i32 i32) unreachable))"#,
        [AttackEnding::problem(422, "program-trapped")]
    ),
    module!(
        "module/table that is too large",
        r#"(module (memory (export "memory") 1) (table 10000000 funcref) (func (export "orfa") (param i32 i32)))"#,
        [AttackEnding::problem(422, "module-table"), AttackEnding::problem(422, "limit-memory"), MALFORMED]
    ),
    case!(
        "module/many functions with many locals",
        |it| it.module(many_locals(8_100, 50_000)),
        [AttackEnding::problem(422, "module-complexity"), MALFORMED],
        COMPILED
    ),
    case!(
        "module/one function with as many locals as there may be",
        |it| it.module(many_locals(1, 50_000)),
        [
            AttackEnding::problem(422, "module-complexity"),
            MALFORMED,
            AttackEnding::Answer(200),
            AttackEnding::problem(422, "program-no-answer")
        ],
        COMPILED
    ),
    case!(
        "module/many functions",
        |it| it.module(many_locals(15_000, 0)),
        [AttackEnding::problem(422, "module-complexity"), AttackEnding::problem(422, "program-no-answer")],
        COMPILED
    ),
    case!(
        "module/deep blocks",
        |it| it.module(deep_blocks(20_000)),
        [
            AttackEnding::problem(422, "module-complexity"),
            AttackEnding::problem(422, "program-no-answer"),
            MALFORMED
        ],
        COMPILED
    ),
    case!(
        "module/branch tables to everywhere",
        |it| it.module(branch_tables(200, 200)),
        [
            AttackEnding::problem(422, "module-complexity"),
            AttackEnding::problem(422, "program-no-answer"),
            MALFORMED
        ],
        COMPILED
    ),
];

async fn text(target: &AttackTarget, source: &str) -> Result<AttackEnding> {
    target.module(wat::parse_str(source).context("the module's text")?).await
}

/// A module that repeats long code without loops.
async fn run_straight_line_code(target: &AttackTarget, items: &str, code: &str) -> Result<AttackEnding> {
    let source =
        format!(r#"(module {items} (func (export "orfa") (param i32 i32) (loop $l {code} (br $l))))"#);
    text(target, &source).await
}

/// Code that writes to this number of pages of memory.
fn touched_pages(count: usize) -> String {
    let touch = |page: usize| format!("(i32.store8 (i32.const {}) (i32.const 1))", page * 4096);
    (0..count).map(touch).collect()
}

/// A module that has filled its memory and waits for a service that does not answer, ten times; its client
/// leaves.
async fn abandon_full_memory(target: &AttackTarget) -> Result<AttackEnding> {
    let source = r#"(module (import "orfa" "http" (func $http (param i32) (result i32)))
        (import "orfa" "Future_wait" (func $wait (param i32 i32 i32) (result i32)))
        (memory (export "memory") 240)
        (data (i32.const 0) "GET") (data (i32.const 16) "http://up/hang")
        (data (i32.const 1024) "\00\00\00\00\03\00\00\00\10\00\00\00\0e\00\00\00")
        (func (export "orfa") (param i32 i32) (local $at i32)
          (local.set $at (i32.const 65536))
          (loop $l
            (memory.fill (local.get $at) (i32.const 7) (i32.const 131072))
            (local.set $at (i32.add (local.get $at) (i32.const 131072)))
            (br_if $l (i32.lt_u (local.get $at) (i32.const 15400000))))
          (i32.store (i32.const 2048) (call $http (i32.const 1024)))
          (drop (call $wait (i32.const 2048) (i32.const 1) (i32.const 1)))))"#;
    let module = wat::parse_str(source).context("the module's text")?;
    for _ in 0..10 {
        let waiting = target.upstream.hits("/hang") + 1;
        tokio::select! {
            ending = target.module(module.clone()) => return ending,
            () = target.upstream.wait_for_requests("/hang", waiting) => {}
        }
    }
    Ok(AttackEnding::Closed)
}

/// A module that has a long answer, `$h`, and does something with it without an end.
async fn long_answer(target: &AttackTarget, url: &str, again: &str) -> Result<AttackEnding> {
    let source = format!(
        r#"(module
            (import "orfa" "http" (func $http (param i32) (result i32)))
            (import "orfa" "Future_wait" (func $wait (param i32 i32 i32) (result i32)))
            (import "orfa" "Response_read" (func $read (param i32 i32 i32 i32) (result i32)))
            (import "orfa" "Response_json" (func $pointer (param i32 i32 i32 i32 i32) (result i32)))
            (import "orfa" "Json_root" (func $root (param i32 i32 i32 i32) (result i32)))
            (import "orfa" "Json_member" (func $member (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
            (import "orfa" "Json_children" (func $children (param i32 i32 i32 i32) (result i32)))
            (import "orfa" "Json_text" (func $text (param i32 i32 i32 i32) (result i32)))
            (memory (export "memory") 130)
            (data (i32.const 0) "GET") (data (i32.const 16) "{url}")
            (data (i32.const 80) "/99999/id") (data (i32.const 96) "text")
            (data (i32.const 1024) "\00\00\00\00\03\00\00\00\10\00\00\00\{len:02x}\00\00\00")
            (func (export "orfa") (param i32 i32) (local $h i32)
              (local.set $h (call $http (i32.const 1024)))
              (i32.store (i32.const 2048) (local.get $h))
              (drop (call $wait (i32.const 2048) (i32.const 1) (i32.const 1)))
              (drop (call $root (local.get $h) (i32.const 128) (i32.const 0) (i32.const 0)))
              (loop $l {again} (br $l))))"#,
        len = url.len()
    );
    target.module_at("/long", wat::parse_str(&source).context("the module's text")?).await
}

/// Little-endian words as a string of WebAssembly text.
fn words_in_text(words: &[usize]) -> String {
    words.iter().flat_map(|word| (*word as u32).to_le_bytes()).map(|byte| format!("\\{byte:02x}")).collect()
}

/// A program that asks for JSON of its own making, so many parts between a beginning and an end, and then
/// makes calls about it again and again.
async fn echo_json(
    target: &AttackTarget,
    (open, part, close, count): (&str, &str, &str, usize),
    again: &str,
) -> Result<AttackEnding> {
    const URL: &str = "http://up/body";
    let body = 8_300_000;
    let words = [0, 3, 16, URL.len(), 0, 0, body, open.len() + count * part.len() + close.len()];
    let request: String = words
        .iter()
        .flat_map(|word| (*word as u32).to_le_bytes())
        .map(|byte| format!("\\{byte:02x}"))
        .collect();
    let quoted = |text: &str| text.replace('\\', "\\5c").replace('"', "\\22");
    let (open, part, close) = [open, part, close].map(|text| (quoted(text), text.len())).into();
    let source = format!(
        r#"(module
            (import "orfa" "http" (func $http (param i32) (result i32)))
            (import "orfa" "Future_wait" (func $wait (param i32 i32 i32) (result i32)))
            (import "orfa" "Json_root" (func $root (param i32 i32 i32 i32) (result i32)))
            (import "orfa" "Json_member" (func $member (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
            (import "orfa" "Json_column" (func $column (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
            (import "orfa" "Json_children" (func $children (param i32 i32 i32 i32) (result i32)))
            (import "orfa" "Json_text" (func $text (param i32 i32 i32 i32) (result i32)))
            (memory (export "memory") 150)
            (data (i32.const 0) "GET") (data (i32.const 16) "{URL}") (data (i32.const 96) "text")
            (data (i32.const 200) "{open}") (data (i32.const 300) "{part}") (data (i32.const 400) "{close}")
            (data (i32.const 1024) "{request}")
            (func (export "orfa") (param i32 i32) (local $h i32) (local $to i32) (local $left i32)
              (local.set $to (i32.const {body}))
              (memory.copy (local.get $to) (i32.const 200) (i32.const {open_len}))
              (local.set $to (i32.add (local.get $to) (i32.const {open_len})))
              (local.set $left (i32.const {count}))
              (loop $parts
                (memory.copy (local.get $to) (i32.const 300) (i32.const {part_len}))
                (local.set $to (i32.add (local.get $to) (i32.const {part_len})))
                (br_if $parts (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
              (memory.copy (local.get $to) (i32.const 400) (i32.const {close_len}))
              (local.set $h (call $http (i32.const 1024)))
              (i32.store (i32.const 2048) (local.get $h))
              (drop (call $wait (i32.const 2048) (i32.const 1) (i32.const 1)))
              (if (i32.ne (call $root (local.get $h) (i32.const 128) (i32.const 0) (i32.const 0)) (i32.const 0))
                (then unreachable))
              (loop $l {again} (br $l))))"#,
        open = open.0,
        open_len = open.1,
        part = part.0,
        part_len = part.1,
        close = close.0,
        close_len = close.1,
    );
    target.module_at("/long", wat::parse_str(&source).context("the module's text")?).await
}

/// The sections of a module whose functions have these bodies, each as the code section has it.
fn encode_module(bodies: &[Vec<u8>]) -> Vec<u8> {
    let mut types = vec![1, 0x60, 2, 0x7f, 0x7f, 0];
    let mut functions = leb128(bodies.len());
    functions.extend(bodies.iter().map(|_| 0));
    let mut exports = vec![2, 6];
    exports.extend(b"memory\x02\x00\x04orfa\x00\x00");
    let mut code = leb128(bodies.len());
    for body in bodies {
        code.extend(leb128(body.len()));
        code.extend(body);
    }
    let mut module = b"\0asm\x01\0\0\0".to_vec();
    for (id, section) in
        [(1, &mut types), (3, &mut functions), (5, &mut vec![1, 0, 1]), (7, &mut exports), (10, &mut code)]
    {
        module.push(id);
        module.extend(leb128(section.len()));
        module.append(section);
    }
    module
}

/// An unsigned number of WebAssembly's binary format.
fn leb128(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = (number & 0x7f) as u8;
        number >>= 7;
        bytes.push(if number == 0 { low } else { low | 0x80 });
        if number == 0 {
            return bytes;
        }
    }
}

fn many_locals(functions: usize, locals: usize) -> Vec<u8> {
    let body = match locals {
        0 => vec![0, 0x0b],
        _ => [vec![1], leb128(locals), vec![0x7f, 0x0b]].concat(),
    };
    encode_module(&vec![body; functions])
}

fn deep_blocks(depth: usize) -> Vec<u8> {
    encode_module(&[[vec![0], [0x02, 0x40].repeat(depth), vec![0x0b; depth + 1]].concat()])
}

/// Blocks, and in the innermost one as many tables of branches to each of them.
fn branch_tables(depth: usize, tables: usize) -> Vec<u8> {
    let mut table = vec![0x20, 0x00, 0x0e];
    table.extend(leb128(depth));
    (0..depth).for_each(|target| table.extend(leb128(target)));
    table.push(0);
    encode_module(&[
        [vec![0], [0x02, 0x40].repeat(depth), table.repeat(tables), vec![0x0b; depth + 1]].concat()
    ])
}
