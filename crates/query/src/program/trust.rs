//! `ORFA-Trust`: programs signed by a registered developer's key.
//!
//! A signature is ECDSA on P-256 with SHA-256: `r` and `s` in 32 bytes each, with `s` in the lower half of
//! its range. The signed message consists of `ORFA-Trust v1`, the media type, the environment and the
//! program's SHA-256, separated by line feeds. A client that has a program's hash and signature can therefore
//! request the program without sending it.

mod config;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use diagnostics::Diagnostic;
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

use super::owner::{OwnerPrefix, ProgramOwner};
use super::source::{ProgramHash, ProgramLanguage, ProgramSignature};
use crate::problem::{QueryError, short};

pub use config::{KeyConfig, TrustConfig, format_public_key};

/// Half of the order of P-256 (FIPS 186-5). A larger `s` is another encoding of the same signature.
const HALF_ORDER: [u8; 32] = [
    0x7f, 0xff, 0xff, 0xff, 0x80, 0x00, 0x00, 0x00, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xde,
    0x73, 0x7d, 0x56, 0xd3, 0x8b, 0xcf, 0x42, 0x79, 0xdc, 0xe5, 0x61, 0x7e, 0x31, 0x92, 0xa8,
];

/// The registered keys, shared by all routes.
#[derive(Debug, Default)]
pub struct SigningKeys {
    keys: HashMap<Arc<str>, Arc<TrustedKey>>,
}

/// A registered developer's key.
#[derive(Debug)]
pub(crate) struct TrustedKey {
    pub(crate) name: Arc<str>,
    pub(crate) config: KeyConfig,
    /// The uncompressed point.
    public: Vec<u8>,
    expires_at: Option<SystemTime>,
    mark: OwnerPrefix,
}

/// Returns the message that a signature covers. The environment follows from the media type; for a
/// WebAssembly module it is empty, since the module's imports name it.
#[must_use]
pub fn signed_message(media_type: &str, hash: &[u8; 32]) -> Vec<u8> {
    let environment =
        if media_type == ProgramLanguage::Wasm.media_type() { "" } else { query_abi::ENVIRONMENT_JAVASCRIPT };
    let mut message = format!("ORFA-Trust v1\n{media_type}\n{environment}\n").into_bytes();
    message.extend_from_slice(hash);
    message
}

/// Whether `s` is in the lower half of its range.
#[must_use]
pub fn is_low_s(s: &[u8]) -> bool {
    s <= &HALF_ORDER[..]
}

impl SigningKeys {
    /// Reads the keys of a config, or returns all its mistakes. The pointers are relative to `trust`.
    ///
    /// # Errors
    /// Invalid keys and invalid dates.
    pub fn new(config: &TrustConfig) -> Result<Self, Vec<Diagnostic>> {
        let mut problems = Vec::new();
        let mut keys = HashMap::new();
        for (name, config) in config {
            match TrustedKey::new(name, config) {
                Ok(key) => drop(keys.insert(Arc::clone(&key.name), Arc::new(key))),
                Err(diagnostics) => problems.extend(diagnostics),
            }
        }
        if problems.is_empty() { Ok(Self { keys }) } else { Err(problems) }
    }

    pub(crate) fn all_keys(&self) -> impl Iterator<Item = &Arc<TrustedKey>> {
        self.keys.values()
    }

    /// Returns the key that made this signature.
    ///
    /// # Errors
    /// If the key is unknown or has expired, or the signature does not match this program.
    pub(crate) fn verify(
        &self,
        signature: &ProgramSignature,
        language: ProgramLanguage,
        hash: &ProgramHash,
    ) -> Result<&Arc<TrustedKey>, QueryError> {
        let shown = || short(&signature.key);
        let key = self.keys.get(&*signature.key).ok_or_else(|| QueryError::KeyUnknown(shown()))?;
        if key.is_expired(SystemTime::now()) {
            return Err(QueryError::KeyExpired(shown()));
        }
        let is_its =
            is_low_s(&signature.bytes[32..]) && key.verifies_program(language, hash, &signature.bytes);
        if is_its { Ok(key) } else { Err(QueryError::SignatureWrong(shown())) }
    }

    /// Returns the key that signed a token's program, if it is registered and has not expired.
    pub(crate) fn find_by_mark(&self, mark: OwnerPrefix) -> Option<&Arc<TrustedKey>> {
        let now = SystemTime::now();
        self.keys.values().find(|key| key.mark == mark && !key.is_expired(now))
    }
}

impl TrustedKey {
    fn new(name: &str, config: &KeyConfig) -> Result<Self, Vec<Diagnostic>> {
        let pointer = json::pointer::append_step("", name);
        let mut problems = Vec::new();
        let mut note = |field: &str, (message, hint): (String, &str)| {
            problems.push(Diagnostic::new(format!("{pointer}/{field}"), message, hint));
        };
        let public = config::parse_public_key(&config.public_key);
        let public = public.map_err(|wrong| note("public_key", wrong)).ok();
        let ends = config.expires.as_deref().map(config::parse_date).transpose();
        let ends = ends.map_err(|wrong| note("expires", wrong)).ok();
        let (Some(public), Some(ends)) = (public, ends) else { return Err(problems) };
        // The mark depends on name and public key, so that a new key under an old name has another mark.
        let point: String = public.iter().map(|byte| format!("{byte:02x}")).collect();
        let mark = ProgramOwner::Key(format!("{name}\0{point}").into()).hash_prefix();
        Ok(Self { name: name.into(), config: config.clone(), public, expires_at: ends, mark })
    }

    pub(crate) fn mark(&self) -> OwnerPrefix {
        self.mark
    }

    fn is_expired(&self, now: SystemTime) -> bool {
        self.expires_at.is_some_and(|ends| ends <= now)
    }

    fn verifies_program(&self, language: ProgramLanguage, hash: &ProgramHash, signature: &[u8]) -> bool {
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &self.public);
        key.verify(&signed_message(language.media_type(), hash), signature).is_ok()
    }
}
