//! Tests that every input gets a verdict without a panic.

use proptest::prelude::*;

use super::{ModuleRefusal, check_module, cost, hostile};

/// A query module with one item of each kind that is checked.
const MODULE: &str = r#"(module
    (type $entry (func (param i32 i32)))
    (import "env:c@1" "memory" (memory 1))
    (import "env:c@1" "__indirect_function_table" (table 1 funcref))
    (import "env:c@1" "__stack_pointer" (global $stack (mut i32)))
    (import "env:c@1" "orfa_done" (func $done (param i32 i32)))
    (func $orfa (type $entry) local.get 0 local.get 1 call $done)
    (func $constructors)
    (elem (i32.const 1) $orfa)
    (data (i32.const 262144) "hello")
    (export "orfa" (func $orfa))
    (export "__wasm_call_ctors" (func $constructors)))"#;

fn check_wasm(wasm: &[u8]) -> Result<super::ModuleFacts, ModuleRefusal> {
    check_module(wasm, &|_| true)
}

fn refusal_code(text: &str) -> &'static str {
    check_wasm(&wat::parse_str(text).unwrap()).unwrap_err().code()
}

#[test]
fn accepts_a_valid_module() {
    let facts = check_wasm(&wat::parse_str(MODULE).unwrap()).unwrap();
    assert!(facts.uses_environment);
}

#[test]
fn reports_a_code_for_each_reason() {
    let cases = [
        ("262144", "262139", "module-data-region"),
        ("(i32.const 262144) \"hello\"", "(i32.const 327676) \"hello\"", "module-data-region"),
        ("(elem (i32.const 1)", "(elem (i32.const 256)", "module-table-region"),
        ("(elem (i32.const 1)", "(elem (i32.const 0)", "module-table-region"),
        ("env:c@1\" \"orfa_done", "env\" \"orfa_done", "module-import"),
        ("env:c@1\" \"orfa_done", "env:c@2\" \"orfa_done", "module-environment"),
        ("(export \"orfa\"", "(export \"Orfa\"", "module-no-entry"),
        ("(param i32 i32)))", "(param i32 i32) (result i32)))", "module-malformed"),
    ];
    for (from, to, code) in cases {
        assert_eq!(refusal_code(&MODULE.replacen(from, to, 1)), code, "{to}");
    }
}

/// Would take the compiler 27 seconds with 64 KiB.
#[test]
fn rejects_thousands_of_functions_with_thousands_of_locals() {
    let dear = hostile::with_locals(8_100, 50_000);
    assert!(dear.len() <= query_abi::MODULE_BYTES, "{}", dear.len());
    assert_eq!(check_module(&dear, &|_| false).unwrap_err().code(), "module-complexity");
}

#[test]
fn rejects_one_item_above_each_limit() {
    let verdict = |wasm: Vec<u8>| check_module(&wasm, &|_| false).err();
    let text = |name: &str, count: usize| {
        let make = hostile::ATTACKS.iter().find(|attack| attack.0 == name).unwrap().1;
        wat::parse_str(format!("(module {})", make(count))).unwrap()
    };
    assert_eq!(verdict(hostile::with_locals(16, 4096)), None);
    assert!(matches!(
        verdict(hostile::with_locals(2, 32_769)),
        Some(ModuleRefusal::Complexity { what: "locals", .. })
    ));
    for (name, limit) in [
        ("many empty functions", 1_999),
        ("many types", 1_999),
        ("many globals", 2_000),
        ("many data segments", 2_000),
        ("many element segments", 2_000),
        ("deep blocks", 1_500),
        ("deep loops", 32),
        ("values in use at once", 999),
    ] {
        assert_eq!(verdict(text(name, limit)), None, "{name}");
        let refused = verdict(text(name, limit + 1));
        assert!(matches!(refused, Some(ModuleRefusal::Complexity { .. })), "{name}: {refused:?}");
    }
}

/// Each of these took the compiler more than a second.
#[test]
fn rejects_small_modules_that_are_expensive_to_compile() {
    for name in [
        "many exported functions",
        "types with many values",
        "blocks with many values",
        "a br_table above many locals",
        "blocks before many locals",
        "loops around many locals",
        "deep loops to the outermost",
        "many loops",
        "loops that change many locals",
        "a value across many calls",
        "many indirect calls",
        "many square roots",
        "many conversions",
    ] {
        let attack = hostile::ATTACKS.iter().find(|attack| attack.0 == name).unwrap();
        let refused =
            cost::estimate_cost(&hostile::largest_module(attack)).err().map(|refusal| refusal.code());
        assert_eq!(refused, Some("module-complexity"), "{name}");
    }
}

#[test]
fn estimates_more_for_expensive_modules() {
    let estimate = |text: &str| cost::estimate_cost(&wat::parse_str(text).unwrap()).unwrap();
    let small = estimate("(module (func))");
    assert!(estimate(&format!("(module {})", "(func)".repeat(100))) > 30 * small);
    assert!(
        cost::estimate_cost(&hostile::with_locals(1, 10_000)).unwrap()
            > cost::estimate_cost(&hostile::with_locals(1, 1)).unwrap()
    );
}

proptest! {
    #[test]
    fn accepts_only_valid_modules_among_damaged_ones(
        at: prop::sample::Index,
        bytes in prop::collection::vec(any::<u8>(), 0..4),
        cut: bool,
    ) {
        let mut wasm = wat::parse_str(MODULE).unwrap();
        let start = at.index(wasm.len());
        let end = if cut { wasm.len() } else { (start + bytes.len()).min(wasm.len()) };
        wasm.splice(start..end, bytes);
        if check_wasm(&wasm).is_ok() {
            prop_assert!(wasmparser::validate(&wasm).is_ok());
        }
    }

    #[test]
    fn checks_arbitrary_bytes_without_panic(bytes: Vec<u8>) {
        let _ = check_wasm(&bytes);
        let _ = check_wasm(&[b"\0asm\x01\0\0\0", &bytes[..]].concat());
    }
}
