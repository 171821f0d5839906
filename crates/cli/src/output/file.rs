//! Output files of verbs.

use std::path::Path;

use crate::output::exit::CliError;
use crate::output::{terminal, units};

/// Writes a file and reports it.
pub(crate) fn write_and_report(file: &Path, text: &str) -> Result<(), CliError> {
    std::fs::write(file, text).map_err(|error| write_error(file, &error))?;
    terminal::write_stdout(&format!("{}: {}\n", file.display(), units::format_bytes(text.len() as u64)));
    Ok(())
}

pub(crate) fn write_error(file: &Path, error: &std::io::Error) -> CliError {
    CliError::failed("not-written", format!("{} can't be written: {error}", file.display()), "")
}
