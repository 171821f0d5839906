//! The cryptography of tokens: an adapter that makes the JWT library use `ring`, as rustls does, so that the
//! binary contains only one implementation. It only verifies; the gateway signs nothing.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::signature::{self, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::hmac;
use ring::signature as known;

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: sign,
    verifier_factory: create_verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

/// Installs the adapter. Further calls have no effect.
pub(super) fn install() {
    let _ = PROVIDER.install_default();
}

fn sign(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>, Error> {
    Err(ErrorKind::UnsupportedAlgorithm.into())
}

fn create_verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    if key.family() != algorithm.family() {
        return Err(ErrorKind::InvalidAlgorithm.into());
    }
    Ok(Box::new(SignatureVerifier { algorithm: *algorithm, key: key.clone() }))
}

/// Verifies signatures with a single key.
struct SignatureVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl SignatureVerifier {
    fn is_valid_signature(&self, message: &[u8], signature: &[u8]) -> bool {
        if let DecodingKeyKind::RsaModulusExponent { n, e } = self.key.kind() {
            let key = known::RsaPublicKeyComponents { n, e };
            return rsa_parameters(self.algorithm)
                .is_some_and(|rule| key.verify(rule, message, signature).is_ok());
        }
        let Ok(key) = self.key.try_get_as_bytes() else { return false };
        if let Some(rule) = hmac_algorithm(self.algorithm) {
            return hmac::verify(&hmac::Key::new(rule, key), message, signature).is_ok();
        }
        let rule: &dyn known::VerificationAlgorithm = match self.algorithm {
            Algorithm::ES256 => &known::ECDSA_P256_SHA256_FIXED,
            Algorithm::ES384 => &known::ECDSA_P384_SHA384_FIXED,
            Algorithm::EdDSA => &known::ED25519,
            _ => return false,
        };
        known::UnparsedPublicKey::new(rule, key).verify(message, signature).is_ok()
    }
}

/// Returns the RSA parameters of an algorithm. They refuse keys of less than 2048 bits.
fn rsa_parameters(algorithm: Algorithm) -> Option<&'static known::RsaParameters> {
    match algorithm {
        Algorithm::RS256 => Some(&known::RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => Some(&known::RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => Some(&known::RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => Some(&known::RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => Some(&known::RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => Some(&known::RSA_PSS_2048_8192_SHA512),
        _ => None,
    }
}

fn hmac_algorithm(algorithm: Algorithm) -> Option<hmac::Algorithm> {
    match algorithm {
        Algorithm::HS256 => Some(hmac::HMAC_SHA256),
        Algorithm::HS384 => Some(hmac::HMAC_SHA384),
        Algorithm::HS512 => Some(hmac::HMAC_SHA512),
        _ => None,
    }
}

impl Verifier<Vec<u8>> for SignatureVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        if self.is_valid_signature(message, signature) { Ok(()) } else { Err(signature::Error::new()) }
    }
}

impl JwtVerifier for SignatureVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
