//! Tests of signatures. The RSA key was generated for these tests and is not used elsewhere.

use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PublicKeyData};

use super::*;

const RSA_KEY: &[u8] = include_bytes!("rsa.der");
const RSA_PUBLIC: &[u8] = include_bytes!("rsa.pem");
/// An RSA signature of `hello world` with SHA-1, made by OpenSSL.
const RSA_SHA1: &[u8] = include_bytes!("rsa.sha1");

/// Encodes a message with these fields.
fn encode_message(of: &[(u8, &[u8])]) -> Vec<u8> {
    of.iter().flat_map(|(number, bytes)| encode_field(*number, bytes)).collect()
}

fn sign_arguments(arguments: &[(u8, &[u8])]) -> Result<Vec<u8>, String> {
    let result = sign(&encode_message(arguments)).unwrap();
    let [signature, error] = extract_fields(&result, [2, 3]).unwrap();
    match error {
        Some(error) => Err(String::from_utf8_lossy(error).into_owned()),
        None => Ok(signature.unwrap().to_vec()),
    }
}

fn is_verified(arguments: &[(u8, &[u8])]) -> bool {
    let result = verify(&encode_message(arguments)).unwrap();
    let [error] = extract_fields(&result, [2]).unwrap();
    assert_ne!(error.is_some(), result == [8, 1], "either an error or success");
    error.is_none()
}

#[test]
fn verifies_only_the_signed_text() {
    let curves = [(&PKCS_ECDSA_P256_SHA256, "sha256"), (&PKCS_ECDSA_P384_SHA384, "sha384")];
    let pairs = curves.map(|(curve, hash)| (KeyPair::generate_for(curve).unwrap(), hash));
    let mut keys: Vec<_> = pairs
        .iter()
        .map(|(pair, hash)| (pair.serialize_der(), (2, pair.subject_public_key_info()), *hash))
        .collect();
    for hash in ["sha256", "sha384", "sha512"] {
        keys.push((RSA_KEY.to_vec(), (5, RSA_PUBLIC.to_vec()), hash));
    }
    for (private, (number, public), hash) in &keys {
        let hash = hash.as_bytes();
        let signature = sign_arguments(&[(1, hash), (2, private), (3, b"text")]).unwrap();
        let with = |signature: &[u8], text: &[u8]| {
            is_verified(&[(1, hash), (*number, public), (3, signature), (4, text)])
        };
        assert!(with(&signature, b"text"));
        assert!(!with(&signature, b"texts") && !with(b"", b"text"));
    }
}

/// Builds an argument of this total length, padded by a text field.
fn padded_argument(fields: &[(u8, &[u8])], text: u8, length: usize) -> Vec<u8> {
    let begin = encode_message(fields);
    // The field number takes one byte, and the length of a text of 16 KiB to 2 MiB takes three.
    let argument = [&*begin, &*encode_field(text, &vec![b'x'; length - begin.len() - 4])].concat();
    assert_eq!(argument.len(), length);
    argument
}

#[test]
fn refuses_arguments_above_the_bound() {
    let signing = |length| sign(&padded_argument(&[(1, b"sha256"), (2, RSA_KEY)], 3, length));
    let verifying = |length| {
        let fields: [(u8, &[u8]); 3] = [(1, b"sha1"), (5, RSA_PUBLIC), (3, RSA_SHA1)];
        verify(&padded_argument(&fields, 4, length))
    };
    assert!(signing(MAX_ARGUMENT).unwrap().starts_with(&[8, 1]));
    assert!(verifying(MAX_ARGUMENT).is_ok());
    assert_eq!(signing(MAX_ARGUMENT + 1), Err(HostStatus::BadArgument));
    assert_eq!(verifying(MAX_ARGUMENT + 1), Err(HostStatus::BadArgument));
}

#[test]
fn long_keys_and_arguments_take_long() {
    let private: [(&[u8], usize, bool); 4] = [
        (RSA_KEY, 4, false),
        (&[b'x'; 1704], 4, false),
        (&[0; 1794], 4, true),
        (RSA_KEY, SHORT_ARGUMENT, true),
    ];
    for (key, text, is_long) in private {
        for number in [2, 4] {
            let arguments = encode_message(&[(1, b"sha256"), (number, key), (3, &vec![b'x'; text])]);
            assert_eq!(takes_long_to_sign(&arguments), is_long, "{} {text}", key.len());
        }
    }
    let public: [(&[u8], usize, bool); 3] =
        [(RSA_PUBLIC, 2000, false), (&[0; 1062], 2000, true), (RSA_PUBLIC, SHORT_ARGUMENT, true)];
    for (key, text, is_long) in public {
        for number in [2, 5] {
            let arguments = encode_message(&[(1, b"sha256"), (number, key), (4, &vec![b'x'; text])]);
            assert_eq!(takes_long_to_verify(&arguments), is_long, "{} {text}", key.len());
        }
    }
}

#[test]
fn verifies_openssl_signature_with_sha1() {
    let with = |text: &[u8]| is_verified(&[(1, b"sha1"), (5, RSA_PUBLIC), (3, RSA_SHA1), (4, text)]);
    assert!(with(b"hello world") && !with(b"hello"));
}

#[test]
fn reports_unsupported_hashes_in_the_result() {
    let error = sign_arguments(&[(1, b"md5"), (2, RSA_KEY), (3, b"text")]).unwrap_err();
    assert_eq!(error, "md5 is not supported with this key");
    assert!(!is_verified(&[(1, b"md5"), (5, RSA_PUBLIC), (3, RSA_SHA1), (4, b"hello world")]));
}

#[test]
fn reports_bad_keys_in_the_result_and_rejects_missing_keys() {
    let pem = KeyPair::generate().unwrap().serialize_pem();
    assert!(sign_arguments(&[(1, b"sha256"), (4, pem.as_bytes()), (3, b"text")]).is_ok());
    for number in [2, 4, 5] {
        if number != 5 {
            let error = sign_arguments(&[(1, b"sha256"), (number, b"no key"), (3, b"text")]).unwrap_err();
            assert!(error.starts_with("the key is not"), "{error}");
        }
        if number != 4 {
            assert!(!is_verified(&[(1, b"sha256"), (number, b"no key"), (4, b"text")]));
        }
    }
    assert_eq!(sign(&encode_message(&[(1, b"sha256")])), Err(HostStatus::BadArgument));
    assert_eq!(verify(&encode_message(&[(1, b"sha256")])), Err(HostStatus::BadArgument));
    assert_eq!(sign(&encode_message(&[(2, RSA_KEY), (4, pem.as_bytes())])), Err(HostStatus::BadArgument));
    assert_eq!(verify(b"\x0a\x7f"), Err(HostStatus::BadArgument));
}
