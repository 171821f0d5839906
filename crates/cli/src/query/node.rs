//! A query in JavaScript or TypeScript as a program of Node: the author's own text beside a mock of `services`.

use std::ffi::OsString;
use std::path::Path;

use super::replay;
use crate::call::Program;
use crate::exit::Complaint;

/// `services`, clock and chance from a recording.
const MOCK: &str = include_str!("../../../../sdk/javascript/mock.mjs");

/// What Node is given: the mock, the recording, the program without its types, and whose text that is.
pub(super) fn arguments(program: &Program, recording: &Path, folder: &Path) -> anyhow::Result<Vec<OsString>> {
    let Some(source) = program.source() else {
        let message = format!("{} is no source that can be debugged", program.file.display());
        let hint = "name the source it was built from: .c, .ts, .js or .mjs";
        return Err(Complaint::usage("unknown-program", message, hint).into());
    };
    let text = query::javascript(replay::language(program), source.as_bytes());
    let text = text.map_err(|error| replay::complaint(&error, true))?;
    let (mock, stripped) = (folder.join("mock.mjs"), folder.join("program.mjs"));
    std::fs::write(&mock, MOCK)?;
    std::fs::write(&stripped, &*text)?;
    let file = std::path::absolute(&program.file)?;
    Ok(vec![mock.into(), recording.into(), stripped.into(), file.into()])
}
