//! Runs clang and wasm-ld with the headers of the SDK that are embedded in this binary.
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use environments::toolchain::ClangToolchain;
use query_abi::{CONSTRUCTORS, ENTRY, layout};

use super::error::BuildError;
use super::module_check::DATA_END;
use super::object::ObjectFileInfo;

/// The header that a query includes.
pub(crate) const ORFA_H: &str = include_str!("../../../../sdk/c/orfa.h");
/// The generated low-level ABI header.
pub(crate) const ORFA_ABI_H: &str = include_str!("../../../../sdk/c/orfa_abi.h");

/// Flags that optimise for size, since the program is uploaded with the request.
const FLAGS: &[&str] = &["-Oz", "-Wall", "-fno-exceptions", "-ffunction-sections", "-fdata-sections"];

/// Compiles a C file to an object in `folder`. Returns it with clang's warnings.
pub(super) fn compile(
    tools: &ClangToolchain,
    source: &Path,
    flags: &[String],
    folder: &Path,
) -> Result<(PathBuf, String), BuildError> {
    let name = source.display().to_string();
    if source.extension().is_none_or(|extension| extension != "c") {
        return Err(BuildError::Language(name));
    }
    fs::metadata(source).map_err(|error| BuildError::Source { path: name, error })?;
    for (header, text) in [("orfa.h", ORFA_H), ("orfa_abi.h", ORFA_ABI_H)] {
        fs::write(folder.join(header), text).map_err(BuildError::Folder)?;
    }
    let mut all: Vec<OsString> = FLAGS.iter().map(Into::into).collect();
    all.extend(["-isystem".into(), folder.into()]);
    all.extend(flags.iter().map(Into::into));
    let object = folder.join("query.o");
    let warnings = tools.compile_file(source, &all, &object).map_err(BuildError::Compile)?;
    Ok((object, warnings))
}

/// Links an object at the addresses of a query. Functions that it does not define are imported.
pub(super) fn link(
    tools: &ClangToolchain,
    object: &Path,
    facts: &ObjectFileInfo,
    folder: &Path,
) -> Result<PathBuf, BuildError> {
    let mut arguments: Vec<OsString> = vec![
        object.into(),
        "--no-entry".into(),
        "--import-memory".into(),
        "--import-table".into(),
        "--import-undefined".into(),
        "-zstack-size=0".into(),
        format!("--global-base={}", layout::QUERY_DATA.start).into(),
        format!("--table-base={}", layout::QUERY_TABLE.start).into(),
        format!("--export={ENTRY}").into(),
        format!("--export={DATA_END}").into(),
        "--gc-sections".into(),
        "--strip-all".into(),
        "-O2".into(),
        "--compress-relocations".into(),
    ];
    if facts.has_constructors {
        arguments.push(format!("--export={CONSTRUCTORS}").into());
    }
    let linked = folder.join("linked.wasm");
    tools.link(&arguments, &linked).map_err(BuildError::Link)?;
    Ok(linked)
}
