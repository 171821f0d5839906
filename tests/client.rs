//! The client library's own tests and types, as whoever works on it runs them: `npm test` without npm. What it
//! does in a browser is in `browser.rs`.

use std::path::{Path, PathBuf};

use testkit::patiently;
use tokio::process::Command;

const SETUP: &str = "`scripts/setup test` says what to do";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/javascript")
}

/// Runs Node in the library's folder, to the end.
async fn node(arguments: &[&str]) {
    let mut node = Command::new("node");
    let output = node.args(arguments).current_dir(folder()).kill_on_drop(true).output();
    let ended = patiently("Node's end", output).await;
    let ended = ended.unwrap_or_else(|error| panic!("node, which has to be there: {error}; {SETUP}"));
    let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "node {arguments:?}:\n{out}{err}");
}

#[tokio::test]
async fn the_client_library_keeps_what_it_promises_of_a_gateway_that_misbehaves() {
    let files = std::fs::read_dir(folder().join("test")).expect("the folder of the tests");
    let names = files.map(|file| file.expect("a file").file_name().into_string().expect("a name in ASCII"));
    let tests: Vec<String> =
        names.filter(|name| name.ends_with(".test.js")).map(|name| format!("test/{name}")).collect();
    assert!(!tests.is_empty(), "there are no tests");
    let arguments: Vec<&str> = std::iter::once("--test").chain(tests.iter().map(String::as_str)).collect();
    node(&arguments).await;
}

#[tokio::test]
async fn the_client_librarys_types_are_those_of_its_code() {
    let compiler = folder().join("node_modules/typescript/lib/tsc.js");
    assert!(compiler.is_file(), "TypeScript is missing: {SETUP}");
    let compiler = compiler.to_str().expect("a path in UTF-8");
    node(&[compiler]).await;
    node(&[compiler, "--project", "tsconfig.apollo.json"]).await;
}
