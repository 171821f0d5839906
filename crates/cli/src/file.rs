//! Output files of verbs.

use std::path::Path;

use crate::exit::CliError;
use crate::{terminal, units};

/// Writes a file and reports it.
pub(crate) fn write(file: &Path, text: &str) -> Result<(), CliError> {
    std::fs::write(file, text).map_err(|error| not_written(file, &error))?;
    terminal::say(&format!("{}: {}\n", file.display(), units::bytes(text.len() as u64)));
    Ok(())
}

pub(crate) fn not_written(file: &Path, error: &std::io::Error) -> CliError {
    CliError::failed("not-written", format!("{} can't be written: {error}", file.display()), "")
}
