//! `sign` and `verify_signature`: arguments and results are Protocol Buffers messages, as in Envoy.
//!
//! Supported keys are RSA with at least 2048 bits, and the curves P-256 and P-384. A missing key or more than
//! one is BAD_ARGUMENT; all other errors are part of the result.
//!
//! The library accepts no precomputed digest, so hashing can't run in steps. Arguments are limited instead,
//! so that hashing takes a fraction of a millisecond. With a long key or argument, a signature takes
//! milliseconds.

use ring::rand::SystemRandom;
use ring::signature::{self as algorithms, EcdsaKeyPair, EcdsaSigningAlgorithm, RsaEncoding, RsaKeyPair};
use ring::signature::{UnparsedPublicKey, VerificationAlgorithm};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer};
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::spki::SubjectPublicKeyInfoRef;

use super::extract_fields;
use crate::abi::HostStatus;

const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");

/// The maximum length of an argument in bytes.
const MAX_ARGUMENT: usize = 256 << 10;

/// The length in bytes up to which a text is hashed within a tenth of a millisecond.
const SHORT_ARGUMENT: usize = 32 << 10;
/// The length in bytes of a private key up to which signing takes less than a millisecond: RSA of 2048 bits
/// in PEM. A key of 3072 bits is longer in DER, too, and one of 4096 bits takes 3 to 6 ms.
const SHORT_PRIVATE_KEY: usize = 1750;
/// The length in bytes of a public key up to which verifying takes less than half a millisecond: RSA of 4096
/// bits in PEM. The exponents of clients' keys may have up to 33 bits.
const SHORT_PUBLIC_KEY: usize = 900;

/// The result of an operation, with an error message for the module.
type SignatureResult<T> = Result<T, String>;

/// Signs a text with a private key (PKCS #8). Arguments: 1 is the hash function, 2 the key in DER or 4 in
/// PEM, 3 the text. Result: 1 is whether it succeeded, 2 the signature, 3 the error.
pub(super) fn sign(arguments: &[u8]) -> Result<Vec<u8>, HostStatus> {
    let [hash, der, text, pem] = bounded_fields(arguments, [1, 2, 3, 4])?;
    let key = exactly_one_key(der, pem, |pem| {
        Some(PrivatePkcs8KeyDer::from_pem_slice(pem).ok()?.secret_pkcs8_der().to_vec())
    })?;
    let signed = sign_text(&key, hash.unwrap_or_default(), text.unwrap_or_default());
    Ok(match signed {
        Ok(signature) => [&[8, 1], &*encode_field(2, &signature)].concat(),
        Err(why) => encode_field(3, why.as_bytes()),
    })
}

/// Verifies the signature of a text. Arguments: 1 is the hash function, 2 the public key (SPKI) in DER or 5
/// in PEM, 3 the signature, 4 the text. Result: 1 is whether the signature is valid, 2 the error.
pub(super) fn verify(arguments: &[u8]) -> Result<Vec<u8>, HostStatus> {
    let [hash, der, signature, text, pem] = bounded_fields(arguments, [1, 2, 3, 4, 5])?;
    let key =
        exactly_one_key(der, pem, |pem| Some(SubjectPublicKeyInfoDer::from_pem_slice(pem).ok()?.to_vec()))?;
    let hash = hash.unwrap_or_default();
    Ok(match verify_text(&key, hash, signature.unwrap_or_default(), text.unwrap_or_default()) {
        Ok(()) => vec![8, 1],
        Err(why) => encode_field(2, why.as_bytes()),
    })
}

/// Whether to sign with these arguments on a thread that serves no requests.
pub(super) fn takes_long_to_sign(arguments: &[u8]) -> bool {
    has_long_key(arguments, [2, 4], SHORT_PRIVATE_KEY)
}

/// Whether to verify with these arguments on a thread that serves no requests.
pub(super) fn takes_long_to_verify(arguments: &[u8]) -> bool {
    has_long_key(arguments, [2, 5], SHORT_PUBLIC_KEY)
}

/// Whether the key in one of these fields is longer than `short`, or all arguments together are long.
fn has_long_key(arguments: &[u8], numbers: [u64; 2], short: usize) -> bool {
    let is_long = |keys: [Option<&[u8]>; 2]| keys.into_iter().flatten().any(|key| key.len() > short);
    arguments.len() > SHORT_ARGUMENT || extract_fields(arguments, numbers).is_ok_and(is_long)
}

/// Extracts fields of an argument, and refuses an argument above the limit.
fn bounded_fields<const N: usize>(
    argument: &[u8],
    numbers: [u64; N],
) -> Result<[Option<&[u8]>; N], HostStatus> {
    if argument.len() > MAX_ARGUMENT {
        return Err(HostStatus::BadArgument);
    }
    extract_fields(argument, numbers)
}

/// Returns the key, exactly one of which has to be present. The result is empty if the PEM can't be parsed.
fn exactly_one_key(
    der: Option<&[u8]>,
    pem: Option<&[u8]>,
    read: impl FnOnce(&[u8]) -> Option<Vec<u8>>,
) -> Result<Vec<u8>, HostStatus> {
    match (der.filter(|key| !key.is_empty()), pem.filter(|key| !key.is_empty())) {
        (Some(der), None) => Ok(der.to_vec()),
        (None, Some(pem)) => Ok(read(pem).unwrap_or_default()),
        _ => Err(HostStatus::BadArgument),
    }
}

fn sign_text(key: &[u8], hash: &[u8], text: &[u8]) -> SignatureResult<Vec<u8>> {
    let random = SystemRandom::new();
    if let Ok(key) = RsaKeyPair::from_pkcs8(key) {
        let encoding = rsa_signing(hash).ok_or_else(|| unsupported_hash(hash))?;
        let mut signature = vec![0; key.public().modulus_len()];
        key.sign(encoding, &random, text, &mut signature).map_err(|_| unsupported_key())?;
        return Ok(signature);
    }
    let curves: [(&EcdsaSigningAlgorithm, &[u8]); 2] = [
        (&algorithms::ECDSA_P256_SHA256_ASN1_SIGNING, b"sha256"),
        (&algorithms::ECDSA_P384_SHA384_ASN1_SIGNING, b"sha384"),
    ];
    let read = |(curve, own)| Some((EcdsaKeyPair::from_pkcs8(curve, key, &random).ok()?, own));
    let (key, own) = curves.into_iter().find_map(read).ok_or_else(unsupported_key)?;
    if own != hash {
        return Err(unsupported_hash(hash));
    }
    key.sign(&random, text).map(|signature| signature.as_ref().to_vec()).map_err(|_| unsupported_key())
}

fn verify_text(key: &[u8], hash: &[u8], signature: &[u8], text: &[u8]) -> SignatureResult<()> {
    let key = SubjectPublicKeyInfoRef::try_from(key).map_err(|_| unsupported_key())?;
    let kind = (key.algorithm.oid, key.algorithm.parameters_oid().ok());
    if ![(RSA, None), (EC, Some(P256)), (EC, Some(P384))].contains(&kind) {
        return Err(unsupported_key());
    }
    let algorithm = verification_algorithm(kind, hash).ok_or_else(|| unsupported_hash(hash))?;
    let key = UnparsedPublicKey::new(algorithm, key.subject_public_key.raw_bytes());
    key.verify(text, signature).map_err(|_| "the signature does not match the text".to_owned())
}

fn rsa_signing(hash: &[u8]) -> Option<&'static dyn RsaEncoding> {
    Some(match hash {
        b"sha256" => &algorithms::RSA_PKCS1_SHA256,
        b"sha384" => &algorithms::RSA_PKCS1_SHA384,
        b"sha512" => &algorithms::RSA_PKCS1_SHA512,
        _ => return None,
    })
}

fn verification_algorithm(
    (kind, curve): (ObjectIdentifier, Option<ObjectIdentifier>),
    hash: &[u8],
) -> Option<&'static dyn VerificationAlgorithm> {
    Some(match (kind, curve, hash) {
        (RSA, _, b"sha1") => &algorithms::RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY,
        (RSA, _, b"sha256") => &algorithms::RSA_PKCS1_2048_8192_SHA256,
        (RSA, _, b"sha384") => &algorithms::RSA_PKCS1_2048_8192_SHA384,
        (RSA, _, b"sha512") => &algorithms::RSA_PKCS1_2048_8192_SHA512,
        (_, Some(P256), b"sha256") => &algorithms::ECDSA_P256_SHA256_ASN1,
        (_, Some(P256), b"sha384") => &algorithms::ECDSA_P256_SHA384_ASN1,
        (_, Some(P384), b"sha256") => &algorithms::ECDSA_P384_SHA256_ASN1,
        (_, Some(P384), b"sha384") => &algorithms::ECDSA_P384_SHA384_ASN1,
        _ => return None,
    })
}

fn unsupported_hash(hash: &[u8]) -> String {
    let hash = String::from_utf8_lossy(hash.get(..32).unwrap_or(hash));
    format!("{hash} is not supported with this key")
}

fn unsupported_key() -> String {
    "the key is not a supported RSA, P-256 or P-384 key".to_owned()
}

/// Encodes a field of bytes.
fn encode_field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length > 0x7f {
        field.push(length as u8 | 0x80);
        length >>= 7;
    }
    field.push(length as u8);
    field.extend_from_slice(bytes);
    field
}

#[cfg(test)]
mod tests;
