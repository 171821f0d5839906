//! Whatever bytes come in: a verdict, never a panic.

use proptest::prelude::*;

use super::{Refusal, check};

/// A query module with a bit of everything that is looked at.
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

fn verdict(wasm: &[u8]) -> Result<super::Facts, Refusal> {
    check(wasm, &|_| true)
}

fn refused(text: &str) -> &'static str {
    verdict(&wat::parse_str(text).unwrap()).unwrap_err().code()
}

#[test]
fn a_module_that_fits_is_accepted() {
    let facts = verdict(&wat::parse_str(MODULE).unwrap()).unwrap();
    assert!(facts.environment);
}

#[test]
fn each_reason_has_its_code() {
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
        assert_eq!(refused(&MODULE.replacen(from, to, 1)), code, "{to}");
    }
}

proptest! {
    #[test]
    fn what_is_accepted_of_damaged_modules_is_valid(
        at: prop::sample::Index,
        bytes in prop::collection::vec(any::<u8>(), 0..4),
        cut: bool,
    ) {
        let mut wasm = wat::parse_str(MODULE).unwrap();
        let start = at.index(wasm.len());
        let end = if cut { wasm.len() } else { (start + bytes.len()).min(wasm.len()) };
        wasm.splice(start..end, bytes);
        if verdict(&wasm).is_ok() {
            prop_assert!(wasmparser::validate(&wasm).is_ok());
        }
    }

    #[test]
    fn any_bytes_get_a_verdict(bytes: Vec<u8>) {
        let _ = verdict(&bytes);
        let _ = verdict(&[b"\0asm\x01\0\0\0", &bytes[..]].concat());
    }
}
