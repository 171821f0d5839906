//! Maps with random keys, such as sessions, sealed tokens and shares of payers.
//!
//! The gateway generates these keys or hashes them with a key of its own, so clients can't cause collisions.
//! Eight bytes of the key, or the combination of its numbers, serve as its hash.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map whose keys clients can't choose.
pub type RandomMap<K, V> = HashMap<K, V, BuildHasherDefault<LastBytes>>;

/// A hasher that uses the last eight bytes of its input.
#[derive(Debug, Default)]
pub struct LastBytes(u64);

impl Hasher for LastBytes {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(last) = bytes.last_chunk() {
            self.0 ^= u64::from_le_bytes(*last);
        }
    }

    /// Mixes the bits: text does not use all bits of a byte, while a map uses the first and the last bits of
    /// the hash.
    fn finish(&self) -> u64 {
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    use super::*;
    use crate::key::QuotaKey;

    #[test]
    fn shares_of_payers_have_different_hashes() {
        let payers = (0..1_000).map(|number| QuotaKey::new(&number));
        let members = (0..1_000).map(|number| QuotaKey::new(&number).in_block(&(number / 100)));
        let shares: HashSet<_> = payers.chain(members).map(|payer| Some(payer.queue_share())).collect();
        let hasher = BuildHasherDefault::<LastBytes>::default();
        let hashes: HashSet<u64> = shares.iter().map(|share| hasher.hash_one(share)).collect();
        assert_eq!(hashes.len(), shares.len());
    }
}
