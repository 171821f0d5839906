//! `orfa query sign`: creates the value of `ORFA-Trust`.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use crate::call::Program;
use crate::exit::Exit;
use crate::keys::Key;
use crate::terminal;

/// Sign a program in the form in which it will be sent, and print the value of the header ORFA-Trust.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The program: .wasm, .js or .ts.
    program: PathBuf,
    /// The private key, created by `orfa keys new`.
    #[arg(short, long, value_name = "FILE")]
    key: PathBuf,
    /// The key's name in the gateway's config [default: the name of its file].
    #[arg(long, value_name = "NAME")]
    keyid: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let Arguments { program, key, keyid } = arguments;
    let program = Program::load(program)?;
    let keyid =
        keyid.clone().unwrap_or_else(|| key.file_stem().unwrap_or_default().to_string_lossy().into_owned());
    let hash: [u8; 32] = Sha256::digest(&program.bytes).into();
    let signature = Key::load(key)?.sign(&query::signed(program.content_type, &hash))?;
    terminal::complain(&format!("SHA-256 :{}:\n", STANDARD.encode(hash)));
    terminal::say(&format!(":{}:;keyid=\"{keyid}\"\n", STANDARD.encode(signature)));
    Ok(Exit::Ok)
}
