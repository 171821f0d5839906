//! The C environment: libc, yyjson and the helpers of `sdk/c/orfa.h` in one module.
//!
//! The module follows the memory layout of `query_abi::layout`: the stack is at the bottom, so that a stack
//! overflow traps; then comes a gap for the data of the query; then data and heap of the environment. The
//! first slots of the table are the query's, too.
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use query_abi::{MEMORY, STACK_POINTER, layout};

use crate::crates::crate_source;
use crate::toolchain::{ClangToolchain, ToolchainResult};

/// Source files in `c/`.
const FILES: &[&str] = &["text.c", "format.c", "json.c", "lazy.c", "call.c", "answer.c", "host.c", "wasi.c"];

/// Leaves out functions that no helper calls, and support for comments and trailing commas, which are not
/// JSON.
const YYJSON_FLAGS: &[&str] = &["-DYYJSON_DISABLE_UTILS=1", "-DYYJSON_DISABLE_NON_STANDARD=1"];

/// The initial memory of an environment: most runs don't have to grow its heap.
const INITIAL_MEMORY: u32 = 1024 * 1024;

/// Builds the C environment in `out` and returns the linked module, before its snapshot. Also copies the
/// sources of yyjson there, for `native.rs`.
pub fn build(tools: &ClangToolchain, out: &Path) -> ToolchainResult<PathBuf> {
    let yyjson = crate_source("yyjson-sys")?.join("yyjson/src");
    for file in ["yyjson.c", "yyjson.h"] {
        let copied = fs::read(yyjson.join(file)).and_then(|text| fs::write(out.join(file), text));
        copied.map_err(|error| format!("{file}: {error}"))?;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources: Vec<_> = FILES.iter().map(|file| here.join("c").join(file)).collect();
    sources.push(yyjson.join("yyjson.c"));
    let mut flags: Vec<OsString> = vec!["-O2".into(), "-DNDEBUG".into(), "-Wno-unused-parameter".into()];
    flags.extend(YYJSON_FLAGS.iter().map(Into::into));
    flags.extend(["-I".into(), here.join("../sdk/c").into(), "-I".into(), yyjson.into()]);
    let objects = tools.compile(&sources, &flags, &out.join("objects"))?;
    let linked = out.join("c.linked.wasm");
    tools.link(&link_arguments(tools, &objects, &read_exports(&here.join("c/exports.txt"))?)?, &linked)?;
    Ok(linked)
}

/// Returns the arguments of the linker for an environment: the layout, libc, and the exports.
pub fn link_arguments(
    tools: &ClangToolchain,
    objects: &[PathBuf],
    exports: &[String],
) -> ToolchainResult<Vec<OsString>> {
    let archives = tools.libc_archives()?;
    let mut arguments: Vec<OsString> = vec![archives.join("crt1-reactor.o").into()];
    arguments.extend(objects.iter().map(Into::into));
    arguments.extend(["-L".into(), archives.into(), "-lc".into(), tools.builtins()?.into()]);
    let layout = [
        "--entry=_initialize".to_owned(),
        "--stack-first".to_owned(),
        format!("-zstack-size={}", layout::STACK.end),
        format!("--global-base={}", layout::ENVIRONMENT_DATA),
        format!("--initial-memory={INITIAL_MEMORY}"),
        format!("--table-base={}", layout::ENVIRONMENT_TABLE),
        "--export-table".to_owned(),
        "--growable-table".to_owned(),
        format!("--export={STACK_POINTER}"),
        format!("--export-memory={MEMORY}"),
        "--gc-sections".to_owned(),
        "--strip-all".to_owned(),
        "-O2".to_owned(),
        "--fatal-warnings".to_owned(),
    ];
    arguments.extend(layout.map(Into::into));
    arguments.extend(exports.iter().map(|name| format!("--export={name}").into()));
    Ok(arguments)
}

/// Reads the names in an export list: one per line, `#` begins a comment.
pub fn read_exports(list: &Path) -> ToolchainResult<Vec<String>> {
    let text = fs::read_to_string(list).map_err(|error| format!("{}: {error}", list.display()))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(lines.map(str::to_owned).collect())
}
