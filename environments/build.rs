//! Makes the environments: compiles and links them, takes their snapshots and compiles those to machine
//! code, so that a gateway starts with ready code and `orfa` is one file.
//!
//! `build/toolchain.rs` calls clang and wasm-ld, `build/crates.rs` finds C sources from crates.io,
//! `build/c.rs` and `build/javascript.rs` are the recipes.
#![expect(unreachable_pub, reason = "build/toolchain.rs is also a public module of the library")]

#[path = "build/crates.rs"]
mod crates;
#[path = "build/toolchain.rs"]
mod toolchain;

use toolchain::{Result, Toolchain};

fn main() {
    if let Err(error) = make() {
        println!("cargo::error={}", error.replace('\n', "\ncargo::error="));
        std::process::exit(1);
    }
}

fn make() -> Result<()> {
    let tools = Toolchain::find()?;
    println!("cargo::warning={:?} {}", tools, crates::crate_source("yyjson-sys")?.display());
    Ok(())
}
