//! Maps by what is random already: the sessions that the gateway gave, the tokens that it sealed.
//!
//! A client chooses no such key, and so needs no hash that it can't foresee: eight bytes of the key are one.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map whose keys nobody chooses.
pub(crate) type RandomMap<K, V> = HashMap<K, V, BuildHasherDefault<LastBytes>>;

/// The last eight bytes of what is hashed.
#[derive(Default)]
pub(crate) struct LastBytes(u64);

impl Hasher for LastBytes {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(last) = bytes.last_chunk() {
            self.0 ^= u64::from_le_bytes(*last);
        }
    }

    /// Spread, since text does not use all bits of a byte, and a map uses the first and the last ones.
    fn finish(&self) -> u64 {
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26)
    }
}
