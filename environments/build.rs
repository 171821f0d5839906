//! Builds the environments: compiles and links them, takes their snapshots and compiles those to machine
//! code, so that a gateway starts with ready code and `orfa` is a single file.
//!
//! `build/toolchain.rs` runs clang and wasm-ld, `build/crates.rs` finds C sources from crates.io,
//! `build/c.rs` and `build/javascript.rs` are the recipes.
#![expect(unreachable_pub, reason = "build/toolchain.rs is also a public module of the library")]

#[path = "build/c.rs"]
mod c;
#[path = "build/crates.rs"]
mod crates;
#[path = "build/javascript.rs"]
mod javascript;
#[path = "build/toolchain.rs"]
mod toolchain;

use std::fs;
use std::path::{Path, PathBuf};

use toolchain::{ClangToolchain, ToolchainResult};

/// Inputs whose changes rebuild the environments.
const INPUTS: &[&str] = &["build.rs", "build", "c", "javascript", "../sdk/c/orfa.h", "../sdk/c/orfa_abi.h"];
/// The export that runs the constructors of an environment. It has run before the snapshot is taken.
const INITIALIZE: &str = "_initialize";

fn main() {
    INPUTS.iter().for_each(|input| println!("cargo::rerun-if-changed={input}"));
    for variable in ["ORFA_CLANG", "ORFA_WASM_LD", "ORFA_WASI_SYSROOT"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    if let Err(error) = build_environments() {
        error.lines().for_each(|line| println!("cargo::error={line}"));
        std::process::exit(1);
    }
}

fn build_environments() -> ToolchainResult<()> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let tools = ClangToolchain::find()?;
    write_environment("c", &c::build(&tools, &out)?, sandbox::GuestClass::C, &out)?;
    write_environment("javascript", &javascript::build(&tools, &out)?, sandbox::GuestClass::Javascript, &out)
}

/// Writes `NAME.wasm`, the snapshot of the environment after its start, and `NAME.cwasm`, its machine code.
fn write_environment(
    name: &str,
    linked: &Path,
    class: sandbox::GuestClass,
    out: &Path,
) -> ToolchainResult<()> {
    let wasm = fs::read(linked).map_err(|error| format!("{}: {error}", linked.display()))?;
    let wasm = sandbox::snapshot(&wasm, INITIALIZE).map_err(|error| format!("{name}: {error}"))?;
    let code = sandbox::precompile(class, &wasm).map_err(|error| format!("{name}: {error}"))?;
    for (ending, bytes) in [("wasm", &wasm), ("cwasm", &code)] {
        let path = out.join(format!("{name}.{ending}"));
        fs::write(&path, bytes).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}
