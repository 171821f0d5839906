//! A heuristic prefilter: equal objects begin alike, so that a value without similar beginnings hardly
//! repeats itself.
//!
//! In the first part of the value, a fixed number of bytes or an eighth of it, the beginning of every object
//! up to the first brace within it is hashed into a bitmap. If too few beginnings are alike, the search,
//! which is most of the cost of deduplication, is skipped. The filter misses repetitions that occur only
//! later, and a large flat object that is repeated among many different ones.

use json::JsonTree;

use crate::hash;
use crate::hash_cons::MIN_OBJECT_LENGTH;

/// The minimum number of bytes that are examined; for longer values it is an eighth of the length.
const MIN_EXAMINED_BYTES: usize = 64 << 10;
/// The inverse of the required share: a value is promising if one in this many objects begins like an earlier
/// one.
const INVERSE_SHARE: u32 = 16;

/// Whether a search in this text is likely to save enough.
pub(crate) fn is_promising_text(text: &[u8]) -> bool {
    let mut statistics = ObjectStatistics::new(text.len());
    statistics.examine_text(text.get(..statistics.remaining_bytes).unwrap_or(text));
    statistics.is_promising()
}

/// Whether a search in a tree with this text length is likely to save enough.
pub(crate) fn is_promising(tree: &JsonTree, length: usize) -> bool {
    let mut statistics = ObjectStatistics::new(length);
    statistics.examine_tree(tree);
    statistics.is_promising()
}

/// The statistics of a value's objects.
struct ObjectStatistics {
    /// The bitmap. Its length in words is a power of two.
    bits: Vec<u64>,
    seed: u64,
    /// The number of bytes that remain to be examined.
    remaining_bytes: usize,
    objects: u32,
    similar_objects: u32,
}

impl ObjectStatistics {
    fn new(length: usize) -> Self {
        let remaining_bytes = MIN_EXAMINED_BYTES.max(length / 8);
        Self {
            bits: vec![0; (remaining_bytes / 64).next_power_of_two()],
            seed: hash::process_seed(),
            remaining_bytes,
            objects: 0,
            similar_objects: 0,
        }
    }

    fn examine_tree(&mut self, tree: &JsonTree) {
        if self.remaining_bytes == 0 {
            return;
        }
        let members = match tree {
            JsonTree::Text(text) | JsonTree::Repeating(text, _) => return self.examine_text(text),
            JsonTree::Array(items) => return items.iter().for_each(|item| self.examine_tree(item)),
            JsonTree::Object(members) => {
                let mut hash = self.seed;
                for (name, value) in members.iter() {
                    hash = hash::extend_bytes(hash, name);
                    if let JsonTree::Text(text) = value {
                        hash = hash::extend_bytes(hash, text);
                    }
                }
                self.record_hash(hash, false);
                members
            }
            JsonTree::Extended(text, members) => {
                self.examine_text(text);
                members
            }
        };
        members.iter().for_each(|(_, value)| self.examine_tree(value));
    }

    /// Examines all objects of a text. Braces in strings are counted as objects, which only affects the
    /// estimate.
    fn examine_text(&mut self, text: &[u8]) {
        self.remaining_bytes = self.remaining_bytes.saturating_sub(text.len());
        let mut open = None;
        for brace in memchr::memchr2_iter(b'{', b'}', text) {
            if let Some(beginning) = open.and_then(|open| text.get(open..=brace)) {
                self.examine_beginning(beginning);
            }
            open = (text.get(brace) == Some(&b'{')).then_some(brace);
        }
    }

    /// Examines the beginning of an object, or all of it if it contains no other object.
    fn examine_beginning(&mut self, text: &[u8]) {
        if text.len() < MIN_OBJECT_LENGTH as usize && text.ends_with(b"}") {
            return;
        }
        // Indentation hides equality: the same object is indented differently elsewhere. So these objects
        // count as alike.
        let is_spaced = text.get(1).is_some_and(u8::is_ascii_whitespace);
        self.record_hash(hash::extend_bytes(self.seed, text), is_spaced);
    }

    fn record_hash(&mut self, hash: u64, is_spaced: bool) {
        self.objects += 1;
        let bit = 1 << (hash >> 58);
        let word = hash as usize & (self.bits.len() - 1);
        if let Some(word) = self.bits.get_mut(word) {
            self.similar_objects += u32::from(is_spaced || *word & bit != 0);
            *word |= bit;
        }
    }

    fn is_promising(&self) -> bool {
        self.similar_objects > 0 && self.similar_objects.saturating_mul(INVERSE_SHARE) >= self.objects
    }
}
