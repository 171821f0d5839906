//! The repetitions in a tree that are known without comparing bytes: values that share memory.
//!
//! A first walk over the tree finds them ([`SharedValues::new`]). If they save enough, a second walk writes
//! the encoded form ([`SharedValues::write_encoded`]). Otherwise the walk is repeated to flatten the tree for
//! a search.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use json::{DEPTH, JsonDocument, JsonTree, RepeatedObject, TreeMember};

use crate::form::DedupForm;
use crate::hash;
use crate::hash_cons::{MAX_OBJECTS, MAX_PLAIN_DEPTH, MIN_OBJECT_LENGTH};
use crate::write::write_reference;

const TABLE_MEMBER: Bytes = Bytes::from_static(b"\"t\"");
const ROOT_MEMBER: Bytes = Bytes::from_static(b"\"r\"");
/// A special object number: no other value can share this memory.
const UNSHARED: u32 = u32::MAX;

/// The repeated values of a tree.
#[derive(Debug)]
pub(crate) struct SharedValues {
    /// The number of occurrences of each object, by its number. Further occurrences of short objects do not
    /// count.
    occurrences: Vec<u32>,
    /// The numbers of the objects in the order of the walk, which does not enter a repeated value again.
    visits: Vec<u32>,
    saved_bytes: u64,
}

impl SharedValues {
    /// Walks a tree with this text length. Returns `None` if the tree is too deep or has too many objects.
    pub(crate) fn new(tree: &JsonTree, length: usize) -> Option<Self> {
        let numbers = HashMap::with_capacity_and_hasher(length / 512, BuildHasherDefault::default());
        let values = Self { occurrences: Vec::new(), visits: Vec::new(), saved_bytes: 0 };
        let mut walk = SharingWalk { numbers, lengths: Vec::new(), shared_values: values };
        match tree {
            // The root array cannot contain itself, so other owners of its `Arc` do not mean repetition.
            JsonTree::Array(items) => walk.visit_items(items, DEPTH.checked_sub(1)?, true)?,
            _ => walk.visit_value(tree, DEPTH, true)?,
        };
        Some(walk.shared_values)
    }

    /// Whether the repetitions make up a tenth of the text.
    pub(crate) fn saves_enough(&self, length: usize) -> bool {
        self.saved_bytes.saturating_mul(10) >= length as u64
    }

    /// Returns the number of numbered objects.
    pub(crate) fn object_count(&self) -> usize {
        self.occurrences.len()
    }

    /// Returns the numbers of the objects in the order of the walk.
    pub(crate) fn visits(&self) -> VisitNumbers<'_> {
        VisitNumbers(self.visits.iter())
    }

    /// Returns the encoded form of the tree. `None` if the form does not apply, the result is hardly shorter
    /// or too deep, or a name requires a full search.
    pub(crate) fn write_encoded(&self, tree: &JsonTree, form: DedupForm, length: usize) -> Option<JsonTree> {
        let fates = vec![SharedValueState::New; self.occurrences.len()];
        let mut writing = SharedValueWriter {
            shared_values: self,
            visits: self.visits(),
            states: fates,
            table: vec![b'['],
            entry_depths: Vec::new(),
            spare_buffers: Vec::new(),
            has_dollars: false,
        };
        if form == DedupForm::GraphQl {
            // The root is not written as a value, because it contains the table.
            writing.visits.next_number(tree);
        }
        let mut text = |value, most| {
            let mut out =
                Vec::with_capacity(usize::try_from((length as u64).saturating_sub(self.saved_bytes)).ok()?);
            let height = writing.write_value(value, &mut out);
            (height <= most).then(|| JsonTree::Text(Bytes::from(out)))
        };
        let mut members = vec![(TABLE_MEMBER, JsonTree::NULL)];
        match (form, tree) {
            (DedupForm::GraphQl, JsonTree::Object(own)) if can_follow_table(own) => {
                for (name, value) in own.iter() {
                    members.push((name.clone(), text(value, MAX_PLAIN_DEPTH - 1)?));
                }
            }
            (DedupForm::GraphQl, _) => return None,
            (DedupForm::Json, _) => members.push((ROOT_MEMBER, text(tree, MAX_PLAIN_DEPTH)?)),
        }
        let SharedValueWriter { mut table, has_dollars, .. } = writing;
        if has_dollars {
            return None;
        }
        table.push(b']');
        if let Some((_, value)) = members.first_mut() {
            *value = JsonTree::Text(table.into());
        }
        let shared = JsonTree::Object(Arc::from(members));
        (shared.len().saturating_mul(10) <= length.saturating_mul(9)).then_some(shared)
    }
}

/// The numbers of a tree's objects in the order of the walk.
pub(crate) struct VisitNumbers<'a>(std::slice::Iter<'a, u32>);

impl VisitNumbers<'_> {
    /// Returns the number of the next visited value; `None` if it cannot be shared.
    pub(crate) fn next_number(&mut self, tree: &JsonTree) -> Option<usize> {
        memory_addresses(tree)?;
        self.0.next().filter(|number| **number != UNSHARED).map(|number| *number as usize)
    }
}

/// Whether members can follow the table: there are some, and none could be mistaken for a member of the form.
fn can_follow_table(members: &[TreeMember]) -> bool {
    let is_of_the_form =
        |name: &[u8]| matches!(name, b"\"t\"" | b"\"r\"" | [_, b'$', ..]) || name.contains(&b'\\');
    !members.is_empty() && !members.iter().any(|(name, _)| is_of_the_form(name))
}

/// Returns the addresses of an object's text and members; `None` for other values. Values with the same start
/// address have the same end.
fn memory_addresses(tree: &JsonTree) -> Option<(usize, usize)> {
    match tree {
        JsonTree::Text(text) if text.starts_with(b"{") => Some((text.as_ptr().addr(), 0)),
        JsonTree::Object(members) => Some((0, members.as_ptr().addr())),
        JsonTree::Extended(text, members) => Some((text.as_ptr().addr(), members.as_ptr().addr())),
        JsonTree::Text(_) | JsonTree::Array(_) | JsonTree::Repeating(..) => None,
    }
}

/// Whether the memory of a value has no other owner.
fn is_sole_owner(tree: &JsonTree) -> bool {
    match tree {
        JsonTree::Object(members) | JsonTree::Extended(_, members) => {
            // Empty slices may all have the same address.
            !members.is_empty() && Arc::strong_count(members) == 1
        }
        JsonTree::Text(_) | JsonTree::Array(_) | JsonTree::Repeating(..) => false,
    }
}

/// Returns the recorded repetitions that are long enough to be shared.
pub(crate) fn shareable_repetitions(objects: &[RepeatedObject]) -> impl Iterator<Item = &RepeatedObject> {
    objects.iter().filter(|object| object.length as u64 >= MIN_OBJECT_LENGTH)
}

/// Whether a text contains a name that could begin with `$`, so that it needs a full search.
fn has_dollar(text: &[u8]) -> bool {
    memchr::memchr2_iter(b'$', b'\\', text).any(|at| {
        let (before, from) = text.split_at_checked(at).unwrap_or_default();
        before.ends_with(b"\"") || from.starts_with(b"\\u0024")
    })
}

/// The walk that finds repetitions.
struct SharingWalk {
    numbers: HashMap<(usize, usize), u32, BuildHasherDefault<AddressHasher>>,
    /// The length of each object's plain text.
    lengths: Vec<u64>,
    shared_values: SharedValues,
}

impl SharingWalk {
    /// Returns the length of a value. `once` is false if the walk may visit this value several times, which
    /// is the case inside of an array with other owners.
    fn visit_value(&mut self, tree: &JsonTree, depth: usize, once: bool) -> Option<u64> {
        let depth = depth.checked_sub(1)?;
        let Some(memory) = memory_addresses(tree) else { return self.visit_content(tree, depth, once) };
        if self.shared_values.visits.len() >= MAX_OBJECTS {
            return None;
        }
        if once && is_sole_owner(tree) {
            self.shared_values.visits.push(UNSHARED);
            return self.visit_content(tree, depth, once);
        }
        let next =
            u32::try_from(self.shared_values.occurrences.len()).ok().filter(|next| *next != UNSHARED)?;
        let number = *self.numbers.entry(memory).or_insert(next);
        self.shared_values.visits.push(number);
        if number != next {
            let length = self.lengths.get(number as usize).copied()?;
            // Short objects are written out at each occurrence.
            if length >= MIN_OBJECT_LENGTH {
                *self.shared_values.occurrences.get_mut(number as usize)? += 1;
                self.shared_values.saved_bytes += length;
            }
            return Some(length);
        }
        self.shared_values.occurrences.push(1);
        self.lengths.push(0);
        let length = self.visit_content(tree, depth, true)?;
        *self.lengths.get_mut(number as usize)? = length;
        Some(length)
    }

    fn visit_content(&mut self, tree: &JsonTree, depth: usize, once: bool) -> Option<u64> {
        let (own, members): (u64, &[TreeMember]) = match tree {
            JsonTree::Text(text) => return Some(text.len() as u64),
            JsonTree::Array(items) => {
                return self.visit_items(items, depth, once && Arc::strong_count(items) == 1);
            }
            JsonTree::Object(members) => (2, members),
            JsonTree::Extended(text, members) => (text.len() as u64, members),
            JsonTree::Repeating(text, again) => {
                self.shared_values.saved_bytes +=
                    shareable_repetitions(again).map(|object| object.length as u64).sum::<u64>();
                return Some(text.len() as u64);
            }
        };
        let mut length = own;
        for (name, value) in members {
            length += name.len() as u64 + 2 + self.visit_value(value, depth, once)?;
        }
        Some(length)
    }

    fn visit_items(&mut self, items: &[JsonTree], depth: usize, once: bool) -> Option<u64> {
        let mut length = 2;
        for item in items {
            length += 1 + self.visit_value(item, depth, once)?;
        }
        Some(length)
    }
}

/// The state of an object during writing.
#[derive(Clone, Copy)]
enum SharedValueState {
    /// The object has not been visited.
    New,
    /// The object has been written out.
    Inline,
    /// The object is this entry of the table.
    Shared(u32),
}

/// The walk that writes the encoded form.
struct SharedValueWriter<'a> {
    shared_values: &'a SharedValues,
    visits: VisitNumbers<'a>,
    states: Vec<SharedValueState>,
    table: Vec<u8>,
    /// The nesting depth of each entry's plain text.
    entry_depths: Vec<usize>,
    /// Buffers for entries, for reuse.
    spare_buffers: Vec<Vec<u8>>,
    /// Whether a name could be mistaken for a reference, which only a full search can determine.
    has_dollars: bool,
}

impl SharedValueWriter<'_> {
    /// Writes a value, and returns an upper bound of the nesting depth of its plain text.
    fn write_value(&mut self, tree: &JsonTree, out: &mut Vec<u8>) -> usize {
        let Some(number) = self.visits.next_number(tree) else { return self.write_content(tree, out) };
        let is_shared = self.shared_values.occurrences.get(number).is_some_and(|times| *times > 1);
        let state = self.states.get(number).copied().unwrap_or(SharedValueState::Inline);
        let entry = match state {
            SharedValueState::Shared(entry) => entry,
            // The walk did not enter the value again. It is short, which bounds its depth.
            SharedValueState::Inline => {
                tree.write(out);
                return MIN_OBJECT_LENGTH as usize;
            }
            SharedValueState::New if is_shared => self.append_entry(tree),
            SharedValueState::New => {
                self.set_state(number, SharedValueState::Inline);
                return self.write_content(tree, out);
            }
        };
        self.set_state(number, SharedValueState::Shared(entry));
        write_reference(out, entry);
        self.entry_depths.get(entry as usize).copied().unwrap_or_default()
    }

    fn set_state(&mut self, number: usize, state: SharedValueState) {
        if let Some(value_state) = self.states.get_mut(number) {
            *value_state = state;
        }
    }

    /// Appends a value to the table, after the entries that it refers to.
    fn append_entry(&mut self, tree: &JsonTree) -> u32 {
        let mut text = self.spare_buffers.pop().unwrap_or_default();
        let height = self.write_content(tree, &mut text);
        if !self.entry_depths.is_empty() {
            self.table.push(b',');
        }
        self.table.append(&mut text);
        self.spare_buffers.push(text);
        self.entry_depths.push(height);
        self.entry_depths.len() as u32 - 1
    }

    fn write_content(&mut self, tree: &JsonTree, out: &mut Vec<u8>) -> usize {
        match tree {
            JsonTree::Text(text) | JsonTree::Repeating(text, _) => {
                self.has_dollars = self.has_dollars || has_dollar(text);
                out.extend_from_slice(text);
                nesting_bound(text)
            }
            JsonTree::Object(members) => {
                out.push(b'{');
                self.write_members(members, true, out)
            }
            JsonTree::Extended(text, members) => {
                self.has_dollars = self.has_dollars || has_dollar(text);
                let own = text.strip_suffix(b"}").unwrap_or(text);
                out.extend_from_slice(own);
                nesting_bound(text).max(self.write_members(members, own.trim_ascii_end() == b"{", out))
            }
            JsonTree::Array(items) => {
                out.push(b'[');
                let mut deepest = 0;
                for (place, item) in items.iter().enumerate() {
                    if place > 0 {
                        out.push(b',');
                    }
                    deepest = self.write_value(item, out).max(deepest);
                }
                out.push(b']');
                deepest + 1
            }
        }
    }

    fn write_members(&mut self, members: &[TreeMember], mut first: bool, out: &mut Vec<u8>) -> usize {
        let mut deepest = 0;
        for (name, value) in members {
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            self.has_dollars |= matches!(**name, [_, b'$' | b'\\', ..]);
            out.extend_from_slice(name);
            out.push(b':');
            deepest = self.write_value(value, out).max(deepest);
        }
        out.push(b'}');
        deepest + 1
    }
}

/// Returns an upper bound of a text's nesting depth. The exact depth is computed only if many containers are
/// opened.
fn nesting_bound(text: &[u8]) -> usize {
    const ESTIMATE_LIMIT: usize = MAX_PLAIN_DEPTH / 2;
    if text.len() < ESTIMATE_LIMIT * 2 {
        return text.len() / 2;
    }
    let opened = memchr::memchr2_iter(b'{', b'[', text).take(ESTIMATE_LIMIT).count();
    if opened < ESTIMATE_LIMIT {
        return opened;
    }
    let Ok(document) = JsonDocument::from_checked(Bytes::copy_from_slice(text)) else { return DEPTH };
    let levels = document.tokens().scan(0_usize, |level, (byte, _)| {
        match byte {
            b'{' | b'[' => *level += 1,
            b'}' | b']' => *level = level.saturating_sub(1),
            _ => {}
        }
        Some(*level)
    });
    levels.max().unwrap_or_default()
}

/// A hasher for addresses. A client that sends bodies cannot choose them, so that a multiplication suffices.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = hash::extend_bytes(self.0, bytes);
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.0 = hash::extend_number(self.0, number as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
