//! `orfa query sign`: creates the value of `ORFA-Trust`.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use crate::commands::call::PreparedProgram;
use crate::commands::keys::DeveloperKey;
use crate::output::exit::CliExitCode;
use crate::output::terminal;

/// Sign a program in the form in which it will be sent, and print the value of the header ORFA-Trust.
#[derive(Debug, clap::Args)]
pub(crate) struct SignArguments {
    /// The program: .wasm, .js or .ts.
    program: PathBuf,
    /// The private key, created by `orfa keys new`.
    #[arg(short, long, value_name = "FILE")]
    key: PathBuf,
    /// The key's name in the gateway's config [default: the name of its file].
    #[arg(long, value_name = "NAME")]
    keyid: Option<String>,
}

pub(crate) fn run(arguments: &SignArguments) -> anyhow::Result<CliExitCode> {
    let SignArguments { program, key, keyid } = arguments;
    let program = PreparedProgram::load(program)?;
    let keyid =
        keyid.clone().unwrap_or_else(|| key.file_stem().unwrap_or_default().to_string_lossy().into_owned());
    let hash: [u8; 32] = Sha256::digest(&program.bytes).into();
    let signature = DeveloperKey::load(key)?.sign(&query::signed_message(program.content_type, &hash))?;
    terminal::write_stderr(&format!("SHA-256 :{}:\n", STANDARD.encode(hash)));
    terminal::write_stdout(&format!(":{}:;keyid=\"{keyid}\"\n", STANDARD.encode(signature)));
    Ok(CliExitCode::Ok)
}
