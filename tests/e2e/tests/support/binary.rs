//! The binary under test.
//!
//! Cargo names a binary (`CARGO_BIN_EXE_orfa`) only to tests of its own package, and a dependency on the
//! binary of another package is unstable (`-Z bindeps`). So the first test that needs `orfa` has Cargo build
//! it. In `cargo test --workspace` there is nothing left to build: the features and the profile are the same,
//! and a test of the package `orfa` has made Cargo link the binary before any test runs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use serde_json::Value;

/// Returns the path of the binary under test. The environment variable `ORFA_BINARY` overrides it with the
/// absolute path of another one, such as `target/dist/orfa`.
pub(crate) fn orfa_binary() -> &'static Path {
    static BINARY: LazyLock<PathBuf> = LazyLock::new(|| {
        let named = std::env::var_os("ORFA_BINARY").filter(|path| !path.is_empty());
        named.map_or_else(build_binary, PathBuf::from)
    });
    &BINARY
}

/// Builds `orfa` with the features and the profile of `cargo test --workspace`.
fn build_binary() -> PathBuf {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--workspace", "--bin", "orfa", "--locked", "--quiet", "--message-format=json"]);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    // This test is in `TARGET/PROFILE/deps`. A relative target folder would mean another one here.
    let test = std::env::current_exe().expect("the path of this test");
    let target = test.ancestors().nth(3).expect("a target folder");
    cargo.arg("--target-dir").arg(target);
    cargo.current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = cargo.output().expect("cargo runs");
    assert!(output.status.success(), "`orfa` can't be built: {}", output.status);
    let messages = String::from_utf8(output.stdout).expect("UTF-8");
    let path = messages.lines().rev().find_map(|message| {
        let message: Value = serde_json::from_str(message).ok()?;
        Some(PathBuf::from(message["executable"].as_str()?))
    });
    path.expect("Cargo reports the path of `orfa`")
}
