//! Maps with random keys, such as sessions and sealed tokens.
//!
//! The gateway generates these keys, so clients can't cause collisions. Eight bytes of the key serve as its
//! hash.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map whose keys clients can't choose.
pub(crate) type RandomMap<K, V> = HashMap<K, V, BuildHasherDefault<LastBytes>>;

/// A hasher that uses the last eight bytes of its input.
#[derive(Default)]
pub(crate) struct LastBytes(u64);

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
