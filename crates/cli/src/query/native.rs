//! A query in C as a program of this machine: the query, the C environment and the mock of the host's functions.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

use environments::native::{HEADERS, SOURCES};
use environments::toolchain::Toolchain;

use crate::build::{ORFA_ABI_H, ORFA_H};
use crate::exit::Complaint;
use crate::terminal;

/// The host's functions, from a recording.
const MOCK: &str = include_str!("../../../../sdk/c/orfa_mock.c");
/// Nothing is optimised away from under the debugger. The headers say to WebAssembly what means nothing here.
const FLAGS: &[&str] = &[
    "-g",
    "-O0",
    "-Wno-attributes",
    "-Wno-unknown-attributes",
    "-Wno-ignored-attributes",
    "-DYYJSON_DISABLE_UTILS=1",
    "-DYYJSON_DISABLE_NON_STANDARD=1",
];

/// `CC`, or the clang that builds modules: another compiler may call functions in another order where C leaves it open,
/// and then their answers come in another order than they were recorded.
fn compiler() -> OsString {
    let chosen = std::env::var_os("CC");
    let clang = || Toolchain::find().map(|tools| tools.clang.into());
    chosen.unwrap_or_else(|| clang().unwrap_or_else(|_| "cc".into()))
}

/// Compiles a query for this machine. The sources beside it go to `folder`: the debugger shows them, too.
pub(super) fn build(source: &Path, folder: &Path, out: &Path) -> anyhow::Result<()> {
    crate::call::read(source)?;
    let own = [("orfa_mock.c", MOCK)];
    let headers = [("orfa.h", ORFA_H), ("orfa_abi.h", ORFA_ABI_H)];
    for (name, text) in SOURCES.iter().chain(HEADERS).chain(&own).chain(&headers) {
        fs::write(folder.join(name), text)?;
    }
    let compiler = compiler();
    let beside = SOURCES.iter().chain(&own).map(|(name, _)| folder.join(name).into_os_string());
    let mut arguments: Vec<OsString> = FLAGS.iter().map(Into::into).collect();
    arguments.extend(["-isystem".into(), folder.into(), source.into()]);
    arguments.extend(beside);
    arguments.extend(["-lm".into(), "-o".into(), out.into()]);
    let output = Command::new(&compiler).args(arguments).output().map_err(|error| {
        let message = format!("{} can't be run: {error}", Path::new(&compiler).display());
        Complaint::failed(
            "compiler-missing",
            message,
            "on Debian: apt-get install clang-19 libc6-dev; CC names another one",
        )
    })?;
    if !output.status.success() {
        let message =
            format!("{} does not compile:\n{}", source.display(), String::from_utf8_lossy(&output.stderr));
        return Err(Complaint::failed("compile-failed", message, "").into());
    }
    terminal::complain(&String::from_utf8_lossy(&output.stderr));
    Ok(())
}
