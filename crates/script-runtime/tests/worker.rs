//! The worker's JavaScript: its own tests on all engines, and a TypeScript check of the types in its
//! comments.
#![allow(missing_docs)]

use std::path::Path;
use std::process::Command;

const SETUP: &str = "`scripts/setup test` shows how to install it";

#[test]
fn the_worker_code_passes_the_type_check() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let packages = root.join("sdk/javascript/node_modules");
    let compiler = packages.join("typescript/lib/tsc.js");
    assert!(compiler.is_file() && packages.join("@types/node").is_dir(), "TypeScript is missing: {SETUP}");
    let mut node = Command::new("node");
    let output = node.arg(compiler).arg("-p").arg(root.join("worker/tests")).output();
    let ended = output.unwrap_or_else(|error| panic!("Node.js is required: {error}; {SETUP}"));
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
}

#[test]
fn the_workers_own_tests_pass_on_all_engines() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(root.join("worker/tests/engines")).output();
    let ended = output.unwrap_or_else(|error| panic!("{error}; {SETUP}"));
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{said}{}", String::from_utf8_lossy(&ended.stderr));
}
