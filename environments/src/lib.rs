//! The environments of queries, ready to run: modules that `build.rs` compiled from `c/` and `javascript/`
//! and snapshotted after their start, and their machine code.
//!
//! This crate runs nothing; `query` does. [`toolchain`] is public because `orfa query build` uses the same
//! clang for authors of queries, and [`native`] because `orfa query debug` compiles the C environment for the
//! author's machine.

pub mod native;
#[path = "../build/toolchain.rs"]
pub mod toolchain;

/// An environment: a module that query modules import from.
#[derive(Clone, Copy, Debug)]
pub struct EnvironmentModule {
    /// Its versioned name, the import module in a query.
    pub name: &'static str,
    /// The module snapshotted after its start: there is no `_initialize` left to call.
    pub wasm: &'static [u8],
    /// The module compiled to machine code for this build's `sandbox`.
    pub precompiled: &'static [u8],
}

/// libc, memory, strings, JSON: for C and other languages that compile to small modules.
pub static C: EnvironmentModule = EnvironmentModule {
    name: "env:c@1",
    wasm: include_bytes!(concat!(env!("OUT_DIR"), "/c.wasm")),
    precompiled: include_bytes!(concat!(env!("OUT_DIR"), "/c.cwasm")),
};

/// QuickJS and the `services` object: for programs in JavaScript and TypeScript.
pub static JAVASCRIPT: EnvironmentModule = EnvironmentModule {
    name: "env:javascript@1",
    wasm: include_bytes!(concat!(env!("OUT_DIR"), "/javascript.wasm")),
    precompiled: include_bytes!(concat!(env!("OUT_DIR"), "/javascript.cwasm")),
};
