//! A hash of bytes that arrive piece by piece, quick for pieces of some dozen bytes. Whoever makes up bodies can't
//! know the seed, and equal hashes are compared: what collides costs time, and never makes two values one.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

/// The hash of nothing: other in every process.
pub(crate) fn seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| RandomState::new().hash_one(0_u64) | 1)
}

/// The hash of what `hash` has seen, and then a number.
#[inline]
pub(crate) fn number(hash: u64, number: u64) -> u64 {
    fold(hash ^ number, 0x9e37_79b9_7f4a_7c15)
}

/// The hash of what `hash` has seen, and then these bytes.
#[inline]
pub(crate) fn bytes(mut hash: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<16>();
    for word in words {
        hash = pair(hash, word);
    }
    if !rest.is_empty() {
        let mut last = [0; 16];
        last[..rest.len()].copy_from_slice(rest);
        hash = pair(hash, &last);
    }
    number(hash, bytes.len() as u64)
}

#[inline]
fn pair(hash: u64, word: &[u8; 16]) -> u64 {
    let word = u128::from_le_bytes(*word);
    fold(hash ^ word as u64, 0xd6e8_feb8_6659_fd93 ^ (word >> 64) as u64)
}

/// Both halves of a product, one over the other.
#[inline]
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}
