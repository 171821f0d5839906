//! Keys of callers in the config, as text or as a hash.

use ring::digest::{SHA256, digest};

/// A SHA-256 hash.
pub(crate) type KeyHash = [u8; 32];

/// The minimum length of a key in characters. Shorter keys can be guessed.
pub(crate) const MIN_KEY_LENGTH: usize = 16;

/// The reason a text in the config is not a valid key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadKey {
    /// `sha256:` is not followed by 64 hexadecimal digits.
    Hash,
    /// The key is too short.
    TooShort,
    /// The key contains characters that a header can't contain, or starts or ends with a space.
    InvalidCharacters,
}

/// Returns the hash of a key in the config, which contains either the key or its hash.
pub(crate) fn hash_key(text: &str) -> Result<KeyHash, BadKey> {
    if let Some(digits) = text.strip_prefix("sha256:") {
        return parse_hash(digits).ok_or(BadKey::Hash);
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(BadKey::InvalidCharacters);
    }
    if text.len() < MIN_KEY_LENGTH { Err(BadKey::TooShort) } else { Ok(sha256(text.as_bytes())) }
}

/// Returns the SHA-256 hash of bytes.
pub(crate) fn sha256(bytes: &[u8]) -> KeyHash {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}

fn parse_hash(digits: &str) -> Option<KeyHash> {
    let mut hash = [0; 32];
    if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (index, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_and_its_hash_are_the_same_key() {
        let hashed = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
        assert_eq!(hash_key(hashed).unwrap(), sha256(b"test"));
        assert_eq!(hash_key("a key of sixteen"), Err(BadKey::InvalidCharacters));
        assert_eq!(hash_key("a-key-of-sixteen"), Ok(sha256(b"a-key-of-sixteen")));
    }

    #[test]
    fn rejects_short_keys_and_malformed_hashes() {
        assert_eq!(hash_key("short"), Err(BadKey::TooShort));
        assert_eq!(hash_key("sha256:abc"), Err(BadKey::Hash));
        assert_eq!(hash_key(&format!("sha256:{}", "g".repeat(64))), Err(BadKey::Hash));
        assert_eq!(hash_key(""), Err(BadKey::TooShort));
    }
}
