//! WebAssembly modules. Modules that don't conform are refused before compilation, and the problem names the
//! offending item; conforming modules that misbehave end with a problem of their own.

use crate::support::{
    TestGateway, TestQuery, build_c_program, c_environment_module, compile_wat, plain_module,
};

const DONE: &str = "(call $done (i32.const 0) (i32.const 0))";
/// The shortest valid module.
const SHORT: &str = r#"(import "orfa" "done" (func $done (param i32 i32))) (memory (export "memory") 1)
    (func (export "orfa") (param i32 i32) (call $done (i32.const 0) (i32.const 0)))"#;

/// Sends a module, asserts that it is refused with this code, and that the detail contains `told`.
async fn expect_problem(module: Vec<u8>, code: &str, told: &str) {
    let gateway = TestGateway::shared().await;
    let document = gateway.expect_problem(TestQuery::module(module), 422, code).await;
    assert!(document["detail"].as_str().is_some_and(|detail| detail.contains(told)), "{document}");
}

#[tokio::test]
async fn rejects_truncated_modules() {
    let whole = compile_wat(&format!("(module {SHORT})"));
    for end in [1, 4, 7, 9, whole.len() / 2, whole.len() - 1] {
        expect_problem(whole[..end].to_vec(), "module-malformed", "not valid WebAssembly").await;
    }
}

#[tokio::test]
async fn a_wrong_magic_or_version() {
    expect_problem(b"\x7fELF\x02\x01\x01\0".to_vec(), "module-malformed", "magic").await;
    expect_problem(b"\0asm\x02\0\0\0".to_vec(), "module-malformed", "version").await;
    expect_problem(b"export default () => 1".to_vec(), "module-malformed", "magic").await;
    expect_problem(compile_wat("(component)"), "module-malformed", "component").await;
}

#[tokio::test]
async fn code_that_is_not_valid() {
    expect_problem(
        plain_module("", "(drop (i32.add (i32.const 1) (i64.const 1)))"),
        "module-malformed",
        "type mismatch",
    )
    .await;
    let threads = r#"(memory (export "memory") 1 2 shared)"#;
    expect_problem(
        compile_wat(&format!("(module {threads} (func (export \"orfa\") (param i32 i32)))")),
        "module-malformed",
        "",
    )
    .await;
    let wide = r#"(memory (export "memory") i64 1)"#;
    expect_problem(
        compile_wat(&format!("(module {wide} (func (export \"orfa\") (param i32 i32)))")),
        "module-malformed",
        "",
    )
    .await;
}

#[tokio::test]
async fn rejects_foreign_imports() {
    let foreign = |import: &str| {
        compile_wat(&format!(
            "(module {import} (memory (export \"memory\") 1) (func (export \"orfa\") (param i32 i32)))"
        ))
    };
    let wasi = r#"(import "wasi_snapshot_preview1" "fd_write" (func (param i32 i32 i32 i32) (result i32)))"#;
    expect_problem(foreign(wasi), "module-import", "`wasi_snapshot_preview1` `fd_write`").await;
    expect_problem(foreign(r#"(import "orfa" "exec" (func))"#), "module-import", "`orfa` `exec`").await;
    expect_problem(foreign(r#"(import "env" "malloc" (func))"#), "module-import", "`env` `malloc`").await;
    expect_problem(foreign(r#"(import "env:c@9" "malloc" (func))"#), "module-environment", "`env:c@9`").await;
    expect_problem(
        foreign(r#"(import "env:javascript@1" "memory" (func))"#),
        "module-environment",
        "`env:javascript@1`",
    )
    .await;
}

#[tokio::test]
async fn imports_of_another_type() {
    let gateway = TestGateway::shared().await;
    for import in [
        r#"(import "orfa" "done" (func (param i64)))"#,
        r#"(import "orfa" "done" (global i32))"#,
        r#"(import "env:c@1" "orfa_alloc" (func (param f64)))"#,
        r#"(import "env:c@1" "memory" (global i32))"#,
        r#"(import "env:c@1" "__stack_pointer" (global (mut i64)))"#,
        r#"(import "env:c@1" "__stack_pointer" (global i32))"#,
        r#"(import "env:c@1" "__indirect_function_table" (table 0 externref))"#,
        r#"(import "env:c@1" "memory" (memory 60000))"#,
        r#"(import "env:c@1" "memory" (memory 1 2))"#,
    ] {
        for environment in ["", r#"(import "env:c@1" "memory" (memory 0))"#] {
            let own = if import.contains("env:") || !environment.is_empty() {
                ""
            } else {
                r#"(memory (export "memory") 1)"#
            };
            let text =
                format!("(module {import} {environment} {own} (func (export \"orfa\") (param i32 i32)))");
            if let Ok(module) = wat::parse_str(&text) {
                let answer = TestQuery::module(module).send(&gateway).await;
                assert!(
                    ["module-import", "module-malformed"].iter().any(|code| answer.json()["code"] == **code),
                    "{text}: {}",
                    answer.text()
                );
            }
        }
    }
    gateway.assert_responsive("/query").await;
}

#[tokio::test]
async fn own_memory_or_table_beside_an_environment() {
    let with = |field: &str| {
        compile_wat(&format!(
            "(module (import \"env:c@1\" \"free\" (func (param i32))) {field} (func (export \"orfa\") (param i32 i32)))"
        ))
    };
    expect_problem(with("(memory 1)"), "module-memory", "defines a memory").await;
    expect_problem(with("(table 1 funcref)"), "module-table", "defines a table").await;
    expect_problem(
        compile_wat("(module (func (export \"orfa\") (param i32 i32)))"),
        "module-memory",
        "no memory",
    )
    .await;
}

#[tokio::test]
async fn rejects_unexported_memory() {
    expect_problem(
        compile_wat("(module (memory 1) (func (export \"orfa\") (param i32 i32)))"),
        "module-memory",
        "does not export",
    )
    .await;
    let other =
        r#"(memory (export "mem") 1) (func (export "memory")) (func (export "orfa") (param i32 i32))"#;
    expect_problem(compile_wat(&format!("(module {other})")), "module-memory", "does not export").await;
}

#[tokio::test]
async fn features_that_are_off() {
    for (field, body) in [
        ("(tag $e)", "(throw $e)"),
        ("(type $s (struct (field i32)))", "(drop (struct.new $s (i32.const 1)))"),
        ("(table 20000 funcref)", DONE),
        ("(memory 1)", DONE),
        ("", "(drop (i8x16.relaxed_swizzle (v128.const i64x2 0 0) (v128.const i64x2 0 0)))"),
    ] {
        let gateway = TestGateway::shared().await;
        gateway.expect_problem(TestQuery::module(plain_module(field, body)), 422, "module-malformed").await;
    }
    let huge = r#"(module (memory (export "memory") 5000) (func (export "orfa") (param i32 i32)))"#;
    expect_problem(compile_wat(huge), "module-malformed", "").await;
}

#[tokio::test]
async fn data_outside_the_region() {
    for (place, told) in [
        ("0", "is at 0 to 1"),
        ("262143", "is at 262143 to 262144"),
        ("327680", "is at 327680 to 327681"),
        ("-1", "is at 4294967295 to 4294967296"),
    ] {
        expect_problem(
            c_environment_module(&format!("(data (i32.const {place}) \"x\")"), DONE),
            "module-data-region",
            told,
        )
        .await;
    }
    let across = c_environment_module("(data (i32.const 327670) \"eleven char\")", DONE);
    expect_problem(across, "module-data-region", "is at 327670 to 327681").await;
    let gateway = TestGateway::shared().await;
    let computed = r#"(import "env:c@1" "__stack_pointer" (global $p (mut i32))) (data (global.get $p) "x")"#;
    expect_problem(compile_wat(&format!("(module (import \"env:c@1\" \"memory\" (memory 5)) {computed} (func (export \"orfa\") (param i32 i32)))")), "module-malformed", "").await;
    for (place, text) in [("262144", "x"), ("327679", "x"), ("327680", "")] {
        let fits = c_environment_module(&format!("(data (i32.const {place}) \"{text}\")"), DONE);
        assert_eq!(gateway.expect_text(TestQuery::module(fits)).await, "", "{place}");
    }
}

#[tokio::test]
async fn elements_outside_the_region() {
    for (slot, told) in [("0", "0 to 1"), ("256", "256 to 257"), ("-1", "4294967295 to 4294967296")] {
        expect_problem(
            c_environment_module(&format!("(elem (i32.const {slot}) func $done)"), DONE),
            "module-table-region",
            told,
        )
        .await;
    }
    let gateway = TestGateway::shared().await;
    let fits =
        c_environment_module("(elem (i32.const 1) func $done) (elem (i32.const 255) func $done)", DONE);
    assert_eq!(gateway.expect_text(TestQuery::module(fits)).await, "");
}

#[tokio::test]
async fn segments_of_a_plain_module_that_do_not_fit_its_memory() {
    expect_problem(
        plain_module("(data (i32.const 131072) \"x\")", DONE),
        "program-trapped",
        "out of bounds memory",
    )
    .await;
    expect_problem(
        plain_module("(table 1 funcref) (elem (i32.const 1) func $done)", DONE),
        "program-trapped",
        "out of bounds table",
    )
    .await;
}

#[tokio::test]
async fn rejects_a_missing_entry() {
    let without = |export: &str| compile_wat(&format!("(module (memory (export \"memory\") 1) {export})"));
    expect_problem(without(""), "module-no-entry", "`orfa`").await;
    expect_problem(without("(func (export \"main\") (param i32 i32))"), "module-no-entry", "`orfa`").await;
    expect_problem(without("(global (export \"orfa\") i32 (i32.const 0))"), "module-no-entry", "`orfa`")
        .await;
}

#[tokio::test]
async fn rejects_a_wrong_entry_signature() {
    let entry = |ty: &str| {
        compile_wat(&format!(
            "(module (memory (export \"memory\") 1) (func (export \"orfa\") {ty} unreachable))"
        ))
    };
    for ty in ["", "(param i32)", "(param i64 i64)", "(param i32 i32) (result i32)", "(param i32 i32 i32)"] {
        expect_problem(entry(ty), "module-signature", "`orfa` has the type").await;
    }
    let constructors = r#"(func (export "__wasm_call_ctors") (param i32))"#;
    expect_problem(plain_module(constructors, DONE), "module-signature", "`__wasm_call_ctors` has the type")
        .await;
    let alloc = r#"(func (export "orfa_alloc") (param i64) (result i32) (i32.const 8))"#;
    expect_problem(plain_module(alloc, DONE), "module-signature", "`orfa_alloc` has the type").await;
}

#[tokio::test]
async fn start_functions_may_call_the_host() {
    let gateway = TestGateway::shared().await;
    let early = |call: &str| format!("(func $start {call}) (start $start)");
    for module in [plain_module(&early(DONE), ""), c_environment_module(&early(DONE), "")] {
        assert_eq!(gateway.expect_text(TestQuery::module(module)).await, "");
    }
    let wild = early("(call $done (i32.const -1) (i32.const 2))");
    gateway.expect_problem(TestQuery::module(plain_module(&wild, "")), 422, "program-bad-pointer").await;
}

#[tokio::test]
async fn start_functions_are_limited() {
    for module in [
        plain_module("(func $start (loop (br 0))) (start $start)", DONE),
        plain_module("(func (export \"__wasm_call_ctors\") (loop (br 0)))", DONE),
        plain_module(
            "(func (export \"orfa_alloc\") (param i32) (result i32) (loop (br 0)) unreachable)",
            DONE,
        ),
        c_environment_module("(func $start (loop (br 0))) (start $start)", DONE),
        c_environment_module("(func (export \"__wasm_call_ctors\") (loop (br 0)))", DONE),
    ] {
        let gateway = TestGateway::shared().await;
        gateway.expect_problem(TestQuery::module(module).input("input"), 422, "limit-cpu").await;
    }
}

#[tokio::test]
async fn stops_endless_recursion() {
    let gateway = TestGateway::shared().await;
    let deep = "(func $deep (call $deep))";
    for module in [
        plain_module(deep, "(call $deep)"),
        c_environment_module(deep, "(call $deep)"),
        build_c_program("#include <orfa.h>
            static int deep(volatile char *before) { volatile char here[4096]; here[0] = before[0]; return deep(here) + here[1]; }
            void orfa(const void *input, int len) { volatile char first[1] = {0}; orfa_done_as(\"%d\", deep(first)); }").await,
    ] {
        gateway.expect_problem(TestQuery::module(module), 422, "program-trapped").await;
    }
}

#[tokio::test]
async fn problems_name_the_trap() {
    for (body, told) in [
        ("unreachable", "unreachable"),
        ("(drop (i32.div_s (i32.const 1) (i32.const 0)))", "divide by zero"),
        ("(drop (i32.load (i32.const -4)))", "out of bounds memory"),
        ("(drop (i32.trunc_f64_s (f64.const nan)))", "invalid conversion"),
        ("(call_indirect $t (param) (i32.const 0))", "uninitialized element"),
        ("(call_indirect $t (param) (i32.const 99))", "undefined element"),
    ] {
        expect_problem(plain_module("(table $t 2 funcref)", body), "program-trapped", told).await;
    }
}

#[tokio::test]
async fn modules_that_are_hard_to_compile() {
    let gateway = TestGateway::shared().await;
    let locals = format!("(func (local {}) (drop (i32.const 0)))", "i64 ".repeat(60_000));
    gateway
        .expect_problem(TestQuery::module(plain_module(&locals, DONE)), 422, "module-malformed")
        .await
        .as_object()
        .expect("a document");
    let nested = format!("{}{}", "(block ".repeat(1500), ")".repeat(1500));
    assert_eq!(
        gateway.expect_text(TestQuery::module(plain_module("", &format!("{nested} {DONE}")))).await,
        ""
    );
}

#[tokio::test]
async fn runs_plain_modules() {
    let gateway = TestGateway::shared().await;
    let echo = plain_module("", "(call $done (local.get $at) (local.get $len))");
    assert_eq!(gateway.expect_text(TestQuery::module(&echo[..]).input("an echo")).await, "an echo");
    let own = plain_module(
        "(func (export \"orfa_alloc\") (param i32) (result i32) (i32.const 512))",
        "(call $done (local.get $at) (i32.add (local.get $at) (i32.const -505)))",
    );
    assert_eq!(
        gateway.expect_text(TestQuery::module(own).input("its own")).await,
        "its own",
        "a custom allocator"
    );
    assert_eq!(gateway.expect_text(TestQuery::module(echo)).await, "");
}

#[tokio::test]
async fn two_runs_share_no_memory() {
    let gateway = TestGateway::shared().await;
    let count = "(i32.store (i32.const 300000) (i32.add (i32.load (i32.const 300000)) (i32.const 49)))
        (call $done (i32.const 300000) (i32.const 1))";
    for module in [c_environment_module("", count), plain_module("", &count.replace("300000", "3000"))] {
        for _ in 0..3 {
            assert_eq!(gateway.expect_text(TestQuery::module(&module[..])).await, "1");
        }
    }
}

#[tokio::test]
async fn constructors_of_both_modules_run() {
    let gateway = TestGateway::shared().await;
    let source = r#"#include <orfa.h>
        #include <stdlib.h>
        static volatile int order[3], count;
        __attribute__((constructor(200))) static void second(void) { order[count++] = 2; }
        __attribute__((constructor(101))) static void first(void) { order[count++] = 1; }
        static char *kept;
        __attribute__((constructor(300))) static void third(void) { kept = malloc(4); kept[0] = order[count++] = 3; }
        void orfa(const void *input, int len) { orfa_done_as("[%d,%d,%d,%d]", order[0], order[1], order[2], kept[0]); }"#;
    assert_eq!(gateway.expect_text(TestQuery::module(build_c_program(source).await)).await, "[1,2,3,3]");
}

#[tokio::test]
async fn function_pointers_work_across_modules() {
    let gateway = TestGateway::shared().await;
    let source = r#"#include <orfa.h>
        #include <stdlib.h>
        #include <string.h>
        static int calls;
        static int downwards(const void *a, const void *b) { calls++; return *(const int *)b - *(const int *)a; }
        static int (*volatile compare)(const char *, const char *) = strcmp;
        void orfa(const void *input, int len) {
            int numbers[] = {3, 1, 4, 1, 5};
            qsort(numbers, 5, sizeof *numbers, downwards);
            orfa_done_as("[%d,%d,%d,%b,%d]", numbers[0], numbers[1], numbers[4], calls > 3, compare("a", "a"));
        }"#;
    assert_eq!(gateway.expect_text(TestQuery::module(build_c_program(source).await)).await, "[5,4,1,true,0]");
}

#[tokio::test]
async fn a_c_program_reads_its_input_and_calls_services() {
    let gateway = TestGateway::shared().await;
    let source = r#"#include <orfa.h>
        void orfa(const void *input, int len) {
            int n = orfa_int(orfa_json(input, len), 1, "/n");
            orfa_value list = orfa_get_json("http://up/json?n=%d", n);
            orfa_done_as("{count:%d,last:%v}", orfa_len(list), orfa_at(list, "/%d/name", n - 1));
        }"#;
    let module = build_c_program(source).await;
    assert!(module.len() < 1200, "{} bytes", module.len());
    let query = TestQuery::module(module).input(r#"{"n":4}"#);
    assert_eq!(gateway.expect_text(query.clone()).await, r#"{"count":4,"last":"item 3"}"#);
    assert_eq!(query.send(&gateway).await.header("content-type"), "application/json");
}
