//! Runs a query in JavaScript or TypeScript in Node: the program's own text with a mock of `services`.

use std::ffi::OsString;
use std::path::Path;

use super::replay;
use crate::commands::call::PreparedProgram;
use crate::output::exit::CliError;

/// A mock of `services`, clock and randomness that reads from a recording.
const MOCK: &str = include_str!("../../../../../sdk/javascript/mock.mjs");

/// The arguments of Node: the mock, the recording, the program without its types, and the name of its source.
pub(super) fn node_arguments(
    program: &PreparedProgram,
    recording: &Path,
    folder: &Path,
) -> anyhow::Result<Vec<OsString>> {
    let Some(source) = program.source() else {
        let message = format!("{} is not a source that can be debugged", program.file.display());
        let hint = "name the source it was built from: .c, .ts, .js or .mjs";
        return Err(CliError::usage("unknown-program", message, hint).into());
    };
    let text = query::convert_to_javascript(replay::program_language(program), source.as_bytes());
    let text = text.map_err(|error| replay::replay_error(&error, true))?;
    let (mock, stripped) = (folder.join("mock.mjs"), folder.join("program.mjs"));
    std::fs::write(&mock, MOCK)?;
    std::fs::write(&stripped, &*text)?;
    let file = std::path::absolute(&program.file)?;
    Ok(vec![mock.into(), recording.into(), stripped.into(), file.into()])
}
