//! Query modules for tests, from WebAssembly text (for control over every byte) or from C.

use std::fmt::Write;

use query_abi::{AbiType, HOST_FUNCTIONS};
use tokio::process::Command;

use super::orfa_binary;

/// Compiles WebAssembly text.
#[track_caller]
pub(crate) fn compile_wat(text: &str) -> Vec<u8> {
    match wat::parse_str(text) {
        Ok(module) => module,
        Err(error) => panic!("{error}\n{text}"),
    }
}

/// Builds a plain module with a memory of two pages, an import of every host function under its own name
/// (`$http`), the given fields, and the given body of the function `orfa` (parameters `$at` and `$len`).
#[track_caller]
pub(crate) fn plain_module(fields: &str, body: &str) -> Vec<u8> {
    let memory = r#"(memory (export "memory") 2)"#;
    compile_wat(&format!("(module {} {memory} {fields} {})", host_functions(), entry_function(body)))
}

/// Builds a module for the C environment; it imports the environment's memory and table.
#[track_caller]
pub(crate) fn c_environment_module(fields: &str, body: &str) -> Vec<u8> {
    let imports = r#"(import "env:c@1" "memory" (memory 5))
        (import "env:c@1" "__indirect_function_table" (table 0 funcref))"#;
    compile_wat(&format!("(module {imports} {} {fields} {})", host_functions(), entry_function(body)))
}

/// Returns a data segment at `at` that holds an `orfa_request` and the texts it points to.
pub(crate) fn request_segment(
    at: u32,
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> String {
    let mut texts = String::new();
    let mut put = |text: &str| {
        let place = [at + 256 + texts.len() as u32, text.len() as u32];
        texts.push_str(text);
        place
    };
    let fields = headers.iter().flat_map(|(name, value)| [put(name), put(value)]).flatten();
    let fields: Vec<u32> = fields.collect();
    let [method, url, body] = [method, url, body].map(&mut put);
    let count = headers.len() as u32;
    let mut words = [method, url, [at + 32, count], body].concat();
    words.extend(fields);
    words.resize(64, 0);
    let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).chain(texts.bytes()).collect();
    format!("(data (i32.const {at}) \"{}\")", escape_bytes(&bytes))
}

/// Compiles a C source with `orfa query build`.
pub(crate) async fn build_c_program(source: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    let (from, to) = (folder.path().join("query.c"), folder.path().join("query.wasm"));
    std::fs::write(&from, source).expect("written");
    let built = Command::new(orfa_binary()).args(["query", "build"]).arg(&from).arg("-o").arg(&to).output();
    let built = built.await.expect("orfa runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    std::fs::read(&to).expect("a module")
}

fn entry_function(body: &str) -> String {
    format!(r#"(func (export "orfa") (param $at i32) (param $len i32) {body})"#)
}

/// Returns imports of all host functions, with their types in the ABI.
fn host_functions() -> String {
    let mut text = String::new();
    for function in HOST_FUNCTIONS {
        let name = function.name;
        let _ = write!(text, r#"(import "orfa" "{name}" (func ${name}"#);
        for (_, _, ty) in function.params {
            let _ = write!(text, " (param {})", core_type(*ty));
        }
        let result = function.result.map(|(_, ty)| format!(" (result {})", core_type(ty)));
        text.push_str(&result.unwrap_or_default());
        text.push_str("))\n");
    }
    text
}

fn core_type(ty: AbiType) -> &'static str {
    match ty {
        AbiType::I32 => "i32",
        AbiType::I64 => "i64",
    }
}

fn escape_bytes(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "\\{byte:02x}");
        text
    })
}
