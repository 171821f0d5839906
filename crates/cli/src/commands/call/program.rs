//! A program as it is sent: its bytes and its media type.

use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::output::exit::CliError;

/// A program, ready to be sent.
#[derive(Clone, Debug)]
pub(crate) struct PreparedProgram {
    pub(crate) file: PathBuf,
    pub(crate) bytes: Bytes,
    pub(crate) content_type: &'static str,
}

impl PreparedProgram {
    /// Reads the file, and builds it first if it is C.
    pub(crate) fn load(file: &Path) -> anyhow::Result<Self> {
        let extension = file.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        let (bytes, content_type) = match extension {
            "ts" | "mts" => (read_file(file)?, "text/typescript"),
            "js" | "mjs" => (read_file(file)?, "text/javascript"),
            "wasm" => (read_file(file)?, "application/wasm"),
            "c" => (crate::build::build_module(file)?, "application/wasm"),
            _ => return Err(unknown_program(file).into()),
        };
        Ok(Self { file: file.to_owned(), bytes: bytes.into(), content_type })
    }

    /// The text of a program that is sent as source.
    pub(crate) fn source(&self) -> Option<&str> {
        let text = self.content_type.starts_with("text/");
        text.then(|| std::str::from_utf8(&self.bytes).ok()).flatten()
    }
}

/// Reads a file that the command line names.
pub(crate) fn read_file(file: &Path) -> Result<Vec<u8>, CliError> {
    std::fs::read(file).map_err(|error| {
        let message = format!("{} can't be read: {error}", file.display());
        CliError::usage("no-such-file", message, "")
    })
}

fn unknown_program(file: &Path) -> CliError {
    let message = format!("{} is not a supported kind of program", file.display());
    CliError::usage("unknown-program", message, "programs end in .ts, .js, .mjs, .c or .wasm")
}
