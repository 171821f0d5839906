//! `orfa keys`: the keys with which developers sign programs.
//!
//! Keys are P-256 as PKCS #8 in PEM, as supported by `openssl`. The private key stays in the file, and the
//! public key is printed for the config.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};

use crate::output::exit::{CliError, CliExitCode};
use crate::output::terminal;

/// The order of P-256 (FIPS 186-5).
const P256_ORDER: [u8; 32] = [
    0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xbc,
    0xe6, 0xfa, 0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51,
];
/// The maximum line length of PEM (RFC 7468).
const PEM_LINE_LENGTH: usize = 64;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum KeysCommand {
    New(NewKeyArguments),
}

/// Create a key to sign programs with, and print its entry for the config.
#[derive(Debug, clap::Args)]
pub(crate) struct NewKeyArguments {
    /// The name of the key: the `keyid` of signatures, and its name under `trust:` in the config.
    name: String,
    /// The file of the private key [default: NAME.pem].
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// A developer's key.
pub(crate) struct DeveloperKey(EcdsaKeyPair);

pub(crate) fn create_key(arguments: &NewKeyArguments) -> anyhow::Result<CliExitCode> {
    let NewKeyArguments { name, out } = arguments;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.is_empty() || !name.bytes().all(is_plain) {
        let message = format!("`{name}` is not a valid name for a key");
        return Err(CliError::usage("key-name", message, "use letters, digits, `-`, `_` and `.`").into());
    }
    let file = out.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.pem")));
    let failed = |_| anyhow::anyhow!("the system has no random bytes");
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
    let pkcs8 = pkcs8.map_err(failed)?;
    let key =
        DeveloperKey::from_pkcs8(pkcs8.as_ref()).ok_or_else(|| anyhow::anyhow!("a new key can't be read"))?;
    write_private_key(&file, &encode_pem(pkcs8.as_ref()))?;
    let public = query::format_public_key(key.0.public_key().as_ref());
    terminal::write_stderr(&format!(
        "{}: the private key. Keep it secret; the config needs only this:\n",
        file.display()
    ));
    terminal::write_stdout(&format!("trust:\n  {name}:\n    public_key: {public}\n"));
    Ok(CliExitCode::Ok)
}

impl DeveloperKey {
    /// Reads a private key from its file.
    pub(crate) fn load(file: &Path) -> Result<Self, CliError> {
        let hint = "`orfa keys new NAME` creates one";
        let wrong =
            |what: &str| CliError::failed("key-unreadable", format!("{}: {what}", file.display()), hint);
        let text = std::fs::read_to_string(file).map_err(|error| wrong(&error.to_string()))?;
        let lines = text.lines().map(str::trim).filter(|line| !line.starts_with("-----"));
        let der = STANDARD.decode(lines.collect::<String>());
        let key = der.ok().and_then(|der| Self::from_pkcs8(&der));
        key.ok_or_else(|| wrong("this is not a P-256 private key in PEM (PKCS #8)"))
    }

    fn from_pkcs8(pkcs8: &[u8]) -> Option<Self> {
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &SystemRandom::new()).ok().map(Self)
    }

    /// Signs a message. Returns `r` and `s`, with `s` in the lower half of its range.
    pub(crate) fn sign(&self, message: &[u8]) -> anyhow::Result<Vec<u8>> {
        let signed = self.0.sign(&SystemRandom::new(), message);
        let mut signature =
            signed.map_err(|_| anyhow::anyhow!("the system has no random bytes"))?.as_ref().to_vec();
        let s = &mut signature[32..];
        if !query::is_low_s(s) {
            negate(s);
        }
        Ok(signature)
    }
}

/// Replaces `s` by `ORDER - s`, which is the other valid form of the same signature.
fn negate(s: &mut [u8]) {
    let mut borrow = 0;
    for (digit, order) in s.iter_mut().zip(P256_ORDER).rev() {
        let difference = i16::from(order) - i16::from(*digit) - borrow;
        borrow = i16::from(difference < 0);
        *digit = difference.rem_euclid(256) as u8;
    }
}

fn encode_pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: String = text
        .as_bytes()
        .chunks(PEM_LINE_LENGTH)
        .map(|line| format!("{}\n", String::from_utf8_lossy(line)))
        .collect();
    format!("-----BEGIN PRIVATE KEY-----\n{lines}-----END PRIVATE KEY-----\n")
}

/// Writes a new file that only its owner can read.
fn write_private_key(file: &Path, text: &str) -> Result<(), CliError> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    opened.and_then(|mut opened| opened.write_all(text.as_bytes())).map_err(|error| {
        let message = format!("{} can't be written: {error}", file.display());
        CliError::failed("not-written", message, "`-o FILE` writes it elsewhere")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_low_and_verify() {
        let pkcs8 =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).unwrap();
        let key = DeveloperKey::from_pkcs8(pkcs8.as_ref()).unwrap();
        let public = key.0.public_key().as_ref().to_vec();
        let public =
            ring::signature::UnparsedPublicKey::new(&ring::signature::ECDSA_P256_SHA256_FIXED, public);
        for number in 0..32u8 {
            let signature = key.sign(&[number]).unwrap();
            assert!(query::is_low_s(&signature[32..]));
            public.verify(&[number], &signature).unwrap();
        }
    }

    #[test]
    fn reads_the_keys_that_it_writes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.pem");
        let pkcs8 =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).unwrap();
        write_private_key(&file, &encode_pem(pkcs8.as_ref())).unwrap();
        assert!(DeveloperKey::load(&file).is_ok());
        assert!(write_private_key(&file, "another").is_err(), "a key is not written over");
    }
}
