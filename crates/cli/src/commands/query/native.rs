//! Builds a query in C as a native program from the query, the C environment and the mock of the host
//! functions.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

use environments::native::{HEADERS, SOURCES};
use environments::toolchain::ClangToolchain;

use crate::build::{ORFA_ABI_H, ORFA_H};
use crate::output::exit::CliError;
use crate::output::terminal;

/// The host functions, which read from a recording.
const MOCK: &str = include_str!("../../../../../sdk/c/orfa_mock.c");
/// Disables optimisation for the debugger, and warnings about attributes for WebAssembly.
const FLAGS: &[&str] = &[
    "-g",
    "-O0",
    "-Wno-attributes",
    "-Wno-unknown-attributes",
    "-Wno-ignored-attributes",
    "-DYYJSON_DISABLE_UTILS=1",
    "-DYYJSON_DISABLE_NON_STANDARD=1",
];

/// Returns `CC`, or the clang that builds modules. Another compiler may call functions in another order where
/// C leaves it unspecified, and their results would then not match the recorded order.
fn find_compiler() -> OsString {
    let chosen = std::env::var_os("CC");
    let clang = || ClangToolchain::find().map(|tools| tools.clang.into());
    chosen.unwrap_or_else(|| clang().unwrap_or_else(|_| "cc".into()))
}

/// Compiles a query for this machine. The other sources are written to `folder`, so that the debugger can
/// show them.
pub(super) fn build(source: &Path, folder: &Path, out: &Path) -> anyhow::Result<()> {
    crate::commands::call::read_file(source)?;
    let own = [("orfa_mock.c", MOCK)];
    let headers = [("orfa.h", ORFA_H), ("orfa_abi.h", ORFA_ABI_H)];
    for (name, text) in SOURCES.iter().chain(HEADERS).chain(&own).chain(&headers) {
        fs::write(folder.join(name), text)?;
    }
    let compiler = find_compiler();
    let beside = SOURCES.iter().chain(&own).map(|(name, _)| folder.join(name).into_os_string());
    let mut arguments: Vec<OsString> = FLAGS.iter().map(Into::into).collect();
    arguments.extend(["-isystem".into(), folder.into(), source.into()]);
    arguments.extend(beside);
    arguments.extend(["-lm".into(), "-o".into(), out.into()]);
    let output = Command::new(&compiler).args(arguments).output().map_err(|error| {
        let message = format!("{} can't be run: {error}", Path::new(&compiler).display());
        CliError::failed(
            "compiler-missing",
            message,
            "on Debian: apt-get install clang-19 libc6-dev; CC selects another compiler",
        )
    })?;
    if !output.status.success() {
        let message =
            format!("{} does not compile:\n{}", source.display(), String::from_utf8_lossy(&output.stderr));
        return Err(CliError::failed("compile-failed", message, "").into());
    }
    terminal::write_stderr(&String::from_utf8_lossy(&output.stderr));
    Ok(())
}
