//! The objects that were written before. An object that several places share is written once and copied from
//! there. The repetitions are recorded for deduplication.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::ops::Range;

use json::{JsonTree, RepeatedObject};

use crate::execute::object_index::LocationHasher;
use crate::plan::shape::ShapeId;

/// A shape, and the location of the only object that is its source.
pub(super) type WrittenObjectKey = (ShapeId, u64);

/// The objects that were written without errors, and the ranges of their texts.
#[derive(Default)]
pub(super) struct WrittenObjects {
    ranges: HashMap<WrittenObjectKey, Range<usize>, BuildHasherDefault<LocationHasher>>,
    /// The keys in the order of the texts.
    order: Vec<WrittenObjectKey>,
    repetitions: Vec<RepeatedObject>,
}

impl WrittenObjects {
    /// Returns the length of an object's text if it was written before.
    pub(super) fn text_length(&self, key: &WrittenObjectKey) -> Option<usize> {
        self.ranges.get(key).map(Range::len)
    }

    /// Copies the earlier text of an object, and returns whether there is one.
    pub(super) fn copy_text(&mut self, key: &WrittenObjectKey, out: &mut Vec<u8>) -> bool {
        let Some(range) = self.ranges.get(key) else { return false };
        // The record of a shorter text would be larger than the text.
        if range.len() >= size_of::<RepeatedObject>() {
            self.repetitions.push(RepeatedObject {
                position: out.len(),
                first_position: range.start,
                length: range.len(),
            });
        }
        out.extend_from_within(range.clone());
        true
    }

    pub(super) fn add(&mut self, key: WrittenObjectKey, range: Range<usize>) {
        self.ranges.insert(key, range);
        self.order.push(key);
    }

    /// Discards everything that was written after this length.
    pub(super) fn truncate(&mut self, length: usize) {
        while self.repetitions.pop_if(|object| object.position >= length).is_some() {}
        while let Some(last) = self.order.last()
            && self.ranges.get(last).is_none_or(|range| range.end > length)
        {
            self.ranges.remove(last);
            self.order.pop();
        }
    }

    /// Returns the text as a tree, with the recorded repetitions.
    pub(super) fn into_tree(self, text: Vec<u8>) -> JsonTree {
        match self.repetitions.is_empty() {
            true => JsonTree::Text(text.into()),
            false => JsonTree::Repeating(text.into(), self.repetitions.into()),
        }
    }
}
