//! Whether a value could repeat itself, before anything is compared: equal objects begin alike.
//!
//! At the beginning of the value, so many bytes and an eighth of it, every object is looked at as far as the first brace
//! in it, a bit each in a table. Where hardly one begins as another did, the search would be in vain, and it is most of
//! what deduplication costs. What repeats only further behind is overlooked, and so is a large object without others in
//! it, among many that don't repeat.

use json::Tree;

use crate::hash;
use crate::number::SHORT;

/// So many bytes are looked at, or an eighth of a longer value.
const LOOK: usize = 64 << 10;
/// An object in so many has to begin as another did.
const FEW: u32 = 16;

/// Whether a search in a text of this length could find anything worth it.
pub(crate) fn is_promising_text(text: &[u8]) -> bool {
    let mut glance = Glance::new(text.len());
    glance.text(text.get(..glance.rest).unwrap_or(text));
    glance.is_promising()
}

/// Whether a search in a tree whose text has this length could find anything worth it.
pub(crate) fn is_promising(tree: &Tree, length: usize) -> bool {
    let mut glance = Glance::new(length);
    glance.tree(tree);
    glance.is_promising()
}

/// What was seen of a value's objects.
struct Glance {
    /// A power of two of words.
    bits: Vec<u64>,
    seed: u64,
    /// How many bytes are still to be looked at.
    rest: usize,
    objects: u32,
    alike: u32,
}

impl Glance {
    fn new(length: usize) -> Self {
        let rest = LOOK.max(length / 8);
        Self {
            bits: vec![0; (rest / 64).next_power_of_two()],
            seed: hash::seed(),
            rest,
            objects: 0,
            alike: 0,
        }
    }

    fn tree(&mut self, tree: &Tree) {
        if self.rest == 0 {
            return;
        }
        let members = match tree {
            Tree::Text(text) | Tree::Repeating(text, _) => return self.text(text),
            Tree::Array(items) => return items.iter().for_each(|item| self.tree(item)),
            Tree::Object(members) => {
                let mut hash = self.seed;
                for (name, value) in members.iter() {
                    hash = hash::bytes(hash, name);
                    if let Tree::Text(text) = value {
                        hash = hash::bytes(hash, text);
                    }
                }
                self.seen(hash, false);
                members
            }
            Tree::Extended(text, members) => {
                self.text(text);
                members
            }
        };
        members.iter().for_each(|(_, value)| self.tree(value));
    }

    /// Looks at all objects of a text. Braces in strings are taken for objects: that costs a bit.
    fn text(&mut self, text: &[u8]) {
        self.rest = self.rest.saturating_sub(text.len());
        let mut open = None;
        for brace in memchr::memchr2_iter(b'{', b'}', text) {
            if let Some(beginning) = open.and_then(|open| text.get(open..=brace)) {
                self.beginning(beginning);
            }
            open = (text.get(brace) == Some(&b'{')).then_some(brace);
        }
    }

    /// Looks at the beginning of an object; all of it, where no other is in it.
    fn beginning(&mut self, text: &[u8]) {
        if text.len() < SHORT as usize && text.ends_with(b"}") {
            return;
        }
        // White space can be anything: the same object is indented otherwise elsewhere.
        let is_spaced = text.get(1).is_some_and(u8::is_ascii_whitespace);
        self.seen(hash::bytes(self.seed, text), is_spaced);
    }

    fn seen(&mut self, hash: u64, is_spaced: bool) {
        self.objects += 1;
        let bit = 1 << (hash >> 58);
        let word = hash as usize & (self.bits.len() - 1);
        if let Some(word) = self.bits.get_mut(word) {
            self.alike += u32::from(is_spaced || *word & bit != 0);
            *word |= bit;
        }
    }

    fn is_promising(&self) -> bool {
        self.alike > 0 && self.alike.saturating_mul(FEW) >= self.objects
    }
}
