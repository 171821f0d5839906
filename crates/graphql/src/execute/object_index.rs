//! The indexes of step results, by the locations of the key slots.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::slot_value::SlotValue;
use crate::plan::data::SlotId;

/// An index from the locations of the key slots to the number of a result.
#[derive(Debug, Default)]
pub(super) struct ObjectIndex {
    single: HashMap<u64, u32, BuildHasherDefault<LocationHasher>>,
    composite: HashMap<Box<[u64]>, u32>,
}

impl ObjectIndex {
    pub(super) fn insert(&mut self, key: &[SlotId], values: &[SlotValue<'_>], number: u32) {
        if let [slot] = key {
            if let Some(place) = values[*slot].location() {
                self.single.insert(place, number);
            }
            return;
        }
        self.composite.insert(key_locations(key, values), number);
    }

    /// Whether an object with these key locations has been added before.
    pub(super) fn contains(&self, key: &[SlotId], values: &[SlotValue<'_>]) -> bool {
        self.get(key, values).is_some()
    }

    pub(super) fn get(&self, key: &[SlotId], values: &[SlotValue<'_>]) -> Option<u32> {
        match key {
            [slot] => self.single.get(&values[*slot].location()?).copied(),
            _ => self.composite.get(&key_locations(key, values)).copied(),
        }
    }
}

fn key_locations(key: &[SlotId], values: &[SlotValue<'_>]) -> Box<[u64]> {
    key.iter().map(|slot| values[*slot].location_or_max()).collect()
}

/// A hasher for locations: they are small integers, which a multiplication spreads well.
#[derive(Default)]
pub(super) struct LocationHasher(u64);

impl Hasher for LocationHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 29;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
