//! The binary starts.
//!
//! `cargo test --workspace` links `orfa` for this test, so that the end-to-end tests (`tests/e2e`) find it.

use std::process::Command;

#[test]
fn prints_its_version() {
    let output = Command::new(env!("CARGO_BIN_EXE_orfa")).arg("--version").output().expect("orfa runs");
    assert!(output.status.success(), "{}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stdout), concat!("orfa ", env!("CARGO_PKG_VERSION"), "\n"));
}
