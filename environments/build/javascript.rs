//! The JavaScript environment: QuickJS-ng and the library of `javascript/` in one module.
//!
//! Memory and table have the layout of the C environment, from the same linker arguments. The build takes the
//! snapshot after the prelude has run.
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::c::link_arguments;
use crate::crates::crate_source;
use crate::toolchain::{ClangToolchain, ToolchainResult};

/// Source files in `javascript/`. `env.c` embeds `prelude.js`.
const FILES: &[&str] = &["env.c", "calls.c", "lazy.c", "write.c", "url.c", "library.c", "wasi.c"];
/// Source files of the engine, without its command line and its operating system library.
const ENGINE: &[&str] = &["quickjs.c", "libregexp.c", "libunicode.c", "dtoa.c"];
/// Flags for the engine. `wasi-libc` has no signals and no process times; these macros make its headers offer
/// the rest. `-w` silences warnings, which are for the engine's maintainers.
const ENGINE_FLAGS: &[&str] =
    &["-D_GNU_SOURCE", "-D_WASI_EMULATED_PROCESS_CLOCKS", "-D_WASI_EMULATED_SIGNAL", "-w"];
/// Flags for our own files. `env.c` uses `#embed` of C23.
const OWN_FLAGS: &[&str] = &["-D_GNU_SOURCE", "-Wno-unused-parameter", "-Wno-c23-extensions"];

/// Builds the JavaScript environment in `out` and returns the linked module, before its snapshot.
pub fn build(tools: &ClangToolchain, out: &Path) -> ToolchainResult<PathBuf> {
    let engine = crate_source("libquickjs-ng-sys")?.join("embed/quickjs");
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("javascript");
    let folder = out.join("objects");
    let mut objects = compile_files(tools, &own, FILES, OWN_FLAGS, &engine, &folder)?;
    objects.extend(compile_files(tools, &engine, ENGINE, ENGINE_FLAGS, &engine, &folder)?);
    let linked = out.join("javascript.linked.wasm");
    tools.link(&link_arguments(tools, &objects, &[])?, &linked)?;
    Ok(linked)
}

fn compile_files(
    tools: &ClangToolchain,
    from: &Path,
    files: &[&str],
    flags: &[&str],
    headers: &Path,
    out: &Path,
) -> ToolchainResult<Vec<PathBuf>> {
    let sources: Vec<_> = files.iter().map(|file| from.join(file)).collect();
    let common = ["-O2".into(), "-DNDEBUG".into(), "-I".into(), headers.into()];
    let flags: Vec<OsString> = flags.iter().map(Into::into).chain(common).collect();
    tools.compile(&sources, &flags, out)
}
