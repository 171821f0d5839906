//! An incremental hash of bytes that is fast for pieces of some dozen bytes. Clients cannot know the seed.
//! Values with equal hashes are compared, so that a collision costs time but never makes two values equal.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

/// The initial hash value, which differs between processes.
pub(crate) fn process_seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| RandomState::new().hash_one(0_u64) | 1)
}

/// Extends a hash with a number.
#[inline]
pub(crate) fn extend_number(hash: u64, number: u64) -> u64 {
    folded_multiply(hash ^ number, 0x9e37_79b9_7f4a_7c15)
}

/// Extends a hash with bytes.
#[inline]
pub(crate) fn extend_bytes(mut hash: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<16>();
    for word in words {
        hash = extend_word(hash, word);
    }
    if !rest.is_empty() {
        let mut last = [0; 16];
        last[..rest.len()].copy_from_slice(rest);
        hash = extend_word(hash, &last);
    }
    extend_number(hash, bytes.len() as u64)
}

#[inline]
fn extend_word(hash: u64, word: &[u8; 16]) -> u64 {
    let word = u128::from_le_bytes(*word);
    folded_multiply(hash ^ word as u64, 0xd6e8_feb8_6659_fd93 ^ (word >> 64) as u64)
}

/// Returns the exclusive or of both halves of a product.
#[inline]
fn folded_multiply(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}
