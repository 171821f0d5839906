//! A JSON value composed of parts of texts, for responses: nothing is parsed into values, and no text is
//! copied before it is written. A part that occurs in several places shares its memory, so that deduplication
//! can detect it without comparisons.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::{BufMut, Bytes};

/// The approximate length up to which parts are gathered into one piece.
const PIECE_LENGTH: usize = 16 * 1024;
/// The maximum number of steps in which a piece is gathered, each of up to some tens of nanoseconds.
const MAX_PIECE_STEPS: usize = 512;
/// The minimum length of a text that becomes a piece of its own, since copying it would cost more.
const MIN_LONG_TEXT: usize = 4 * 1024;

/// A member: its name, as a JSON string with quotes, and its value.
pub type TreeMember = (Bytes, JsonTree);

/// A JSON value composed of parts of texts.
#[derive(Clone, Debug)]
pub enum JsonTree {
    /// The checked text of a value, with its original whitespace. The same memory means the same value.
    Text(Bytes),
    /// An object.
    Object(Arc<[TreeMember]>),
    /// The text of an object, including its braces, and further members to append.
    Extended(Bytes, Arc<[TreeMember]>),
    /// An array.
    Array(Arc<[JsonTree]>),
    /// The text of a value that was written in one pass, with its known repetitions in order; they do not
    /// overlap.
    Repeating(Bytes, Arc<[RepeatedObject]>),
}

/// An object in a text that repeats an earlier object with the same text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepeatedObject {
    /// The position of the repetition.
    pub position: usize,
    /// The position of the earlier object, which is not inside a repetition itself.
    pub first_position: usize,
    /// The length of both, including the braces.
    pub length: usize,
}

impl JsonTree {
    /// `null`
    pub const NULL: Self = Self::Text(Bytes::from_static(b"null"));

    /// The length of its text.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no JSON text is empty")]
    pub fn len(&self) -> usize {
        match self {
            Self::Text(text) | Self::Repeating(text, _) => text.len(),
            Self::Object(members) => 2 + comma_count(members.len()) + members_len(members),
            Self::Extended(text, members) => {
                let comma = usize::from(!members.is_empty() && !is_empty_object(text));
                text.len() + comma + comma_count(members.len()) + members_len(members)
            }
            Self::Array(items) => 2 + comma_count(items.len()) + items.iter().map(Self::len).sum::<usize>(),
        }
    }

    /// Returns the length of its text if it is at most `most`. A value that occurs in several places is
    /// measured once, since a small tree may have a text of any length.
    #[must_use]
    pub fn len_within(&self, most: usize) -> Option<usize> {
        self.measure_within(most, &mut HashMap::new())
    }

    /// Whether it is composed of more than `most` values. The children of a value that occurs in several
    /// places count once.
    #[must_use]
    pub fn has_more_than(&self, most: usize) -> bool {
        let mut left = most;
        !self.fits_count(&mut left, &mut HashSet::new())
    }

    /// Subtracts its values from `left`; returns `false` if there are more. `known` contains the addresses of
    /// shared values.
    fn fits_count(&self, left: &mut usize, known: &mut HashSet<usize>) -> bool {
        let Some(rest) = left.checked_sub(1) else { return false };
        *left = rest;
        match self {
            Self::Text(_) | Self::Repeating(..) => true,
            Self::Object(members) | Self::Extended(_, members) => {
                shared_address(members).is_some_and(|key| !known.insert(key))
                    || members.iter().all(|(_, value)| value.fits_count(left, known))
            }
            Self::Array(items) => {
                shared_address(items).is_some_and(|key| !known.insert(key))
                    || items.iter().all(|item| item.fits_count(left, known))
            }
        }
    }

    /// `known` contains the lengths of shared values, by their addresses.
    fn measure_within(&self, most: usize, known: &mut HashMap<usize, usize>) -> Option<usize> {
        let (key, own) = match self {
            Self::Text(text) | Self::Repeating(text, _) => (None, text.len()),
            Self::Object(members) => (shared_address(members), 2 + comma_count(members.len())),
            Self::Extended(text, members) => {
                let comma = usize::from(!members.is_empty() && !is_empty_object(text));
                (shared_address(members), text.len() + comma + comma_count(members.len()))
            }
            Self::Array(items) => (shared_address(items), 2 + comma_count(items.len())),
        };
        let most = most.checked_sub(own)?;
        if let Some(children) = key.and_then(|key| known.get(&key)) {
            return (*children <= most).then_some(own + children);
        }
        let mut children = 0;
        let mut add = |name: usize, value: &Self| {
            children += name;
            children += value.measure_within(most.checked_sub(children)?, known)?;
            Some(())
        };
        match self {
            Self::Text(_) | Self::Repeating(..) => {}
            Self::Object(members) | Self::Extended(_, members) => {
                members.iter().try_for_each(|(name, value)| add(name.len() + 1, value))?;
            }
            Self::Array(items) => items.iter().try_for_each(|item| add(0, item))?,
        }
        known.extend(key.map(|key| (key, children)));
        Some(own + children)
    }

    /// Appends the text.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) | Self::Repeating(text, _) => out.extend_from_slice(text),
            Self::Object(members) => {
                out.push(b'{');
                write_members(members, true, out);
                out.push(b'}');
            }
            Self::Extended(text, members) => {
                out.extend_from_slice(without_closing_brace(text));
                write_members(members, is_empty_object(text), out);
                out.push(b'}');
            }
            Self::Array(items) => {
                out.push(b'[');
                for (place, item) in items.iter().enumerate() {
                    if place > 0 {
                        out.push(b',');
                    }
                    item.write(out);
                }
                out.push(b']');
            }
        }
    }

    /// Returns the text in pieces. Long texts are pieces of their own and are not copied.
    #[must_use]
    pub fn pieces(self) -> TreePieces {
        let length = self.len();
        self.pieces_with_len(length)
    }

    /// Like [`JsonTree::pieces`], if the length is already known.
    #[must_use]
    pub fn pieces_with_len(self, length: usize) -> TreePieces {
        TreePieces {
            remaining_length: length,
            buffer: Vec::new(),
            long_text: None,
            next_tree: Some(self),
            open_containers: Vec::new(),
        }
    }

    /// Whether both are the same value in memory. Equal values in different memory are not the same.
    #[must_use]
    pub fn ptr_eq(&self, other: &Self) -> bool {
        let same = |one: &Bytes, other: &Bytes| one.as_ptr() == other.as_ptr() && one.len() == other.len();
        match (self, other) {
            (Self::Text(one) | Self::Repeating(one, _), Self::Text(other) | Self::Repeating(other, _)) => {
                same(one, other)
            }
            (Self::Object(one), Self::Object(other)) => Arc::ptr_eq(one, other),
            (Self::Extended(one, more), Self::Extended(other, others)) => {
                same(one, other) && Arc::ptr_eq(more, others)
            }
            (Self::Array(one), Self::Array(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// The address of a value's items or members, if other values may share them.
fn shared_address<T>(children: &Arc<[T]>) -> Option<usize> {
    (Arc::strong_count(children) > 1).then(|| Arc::as_ptr(children).cast::<()>().addr())
}

fn comma_count(count: usize) -> usize {
    count.saturating_sub(1)
}

fn members_len(members: &[TreeMember]) -> usize {
    members.iter().map(|(name, value)| name.len() + 1 + value.len()).sum()
}

fn write_members(members: &[TreeMember], mut first: bool, out: &mut Vec<u8>) {
    for (name, value) in members {
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        out.extend_from_slice(name);
        out.push(b':');
        value.write(out);
    }
}

/// The text of an object without its closing brace.
fn without_closing_brace(text: &[u8]) -> &[u8] {
    text.strip_suffix(b"}").unwrap_or(text)
}

/// Whether the text of an object has no members.
fn is_empty_object(text: &[u8]) -> bool {
    without_closing_brace(text).trim_ascii_end() == b"{"
}

/// The text of a [`JsonTree`] in pieces.
#[derive(Debug)]
pub struct TreePieces {
    /// The length of the remaining text.
    remaining_length: usize,
    buffer: Vec<u8>,
    /// A long text that follows the gathered text.
    long_text: Option<Bytes>,
    next_tree: Option<JsonTree>,
    open_containers: Vec<TreeContainer>,
}

/// A container that is being written.
#[derive(Debug)]
struct TreeContainer {
    children: TreeChildren,
    /// The index of the next child.
    next_index: usize,
    /// Whether nothing precedes it.
    is_first: bool,
}

#[derive(Debug)]
enum TreeChildren {
    Members(Arc<[TreeMember]>),
    Items(Arc<[JsonTree]>),
}

impl TreePieces {
    fn add_text(&mut self, text: Bytes) {
        if text.len() < MIN_LONG_TEXT {
            self.buffer.extend_from_slice(&text);
        } else {
            self.long_text = Some(text);
        }
    }

    /// Writes the beginning of a value, up to its first child.
    fn begin_value(&mut self, tree: JsonTree) {
        let (children, first) = match tree {
            JsonTree::Text(text) | JsonTree::Repeating(text, _) => return self.add_text(text),
            JsonTree::Object(members) => {
                self.buffer.push(b'{');
                (TreeChildren::Members(members), true)
            }
            JsonTree::Extended(text, members) => {
                let first = is_empty_object(&text);
                self.add_text(text.slice(..without_closing_brace(&text).len()));
                (TreeChildren::Members(members), first)
            }
            JsonTree::Array(items) => {
                self.buffer.push(b'[');
                (TreeChildren::Items(items), true)
            }
        };
        self.open_containers.push(TreeContainer { children, next_index: 0, is_first: first });
    }

    /// Writes the text before the next value and returns that value. Returns `None` if the value was short
    /// and has been written too, or if the container was closed.
    fn next_child(&mut self) -> Option<JsonTree> {
        let container = self.open_containers.last_mut()?;
        let (name, value, close) = match &container.children {
            TreeChildren::Members(members) => match members.get(container.next_index) {
                Some((name, value)) => (Some(name), Some(value), b'}'),
                None => (None, None, b'}'),
            },
            TreeChildren::Items(items) => (None, items.get(container.next_index), b']'),
        };
        let Some(value) = value else {
            self.buffer.push(close);
            self.open_containers.pop();
            return None;
        };
        if !std::mem::take(&mut container.is_first) {
            self.buffer.push(b',');
        }
        if let Some(name) = name {
            self.buffer.put_slice(name);
            self.buffer.push(b':');
        }
        container.next_index += 1;
        match value {
            JsonTree::Text(text) if text.len() < MIN_LONG_TEXT => {
                self.buffer.extend_from_slice(text);
                None
            }
            value => Some(value.clone()),
        }
    }
}

impl Iterator for TreePieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let mut steps = 0;
        loop {
            let done = self.next_tree.is_none() && self.open_containers.is_empty();
            let full = self.buffer.len() >= PIECE_LENGTH || self.long_text.is_some() || done;
            steps += 1;
            if full || (steps > MAX_PIECE_STEPS && !self.buffer.is_empty()) {
                let gathered = Some(std::mem::take(&mut self.buffer)).filter(|text| !text.is_empty());
                let piece = gathered.map(Bytes::from).or_else(|| self.long_text.take());
                self.remaining_length -= piece.as_ref().map_or(0, Bytes::len).min(self.remaining_length);
                return piece;
            }
            if self.buffer.capacity() == 0 {
                self.buffer.reserve_exact(self.remaining_length.min(PIECE_LENGTH + MIN_LONG_TEXT));
            }
            match self.next_tree.take() {
                Some(tree) => self.begin_value(tree),
                None => self.next_tree = self.next_child(),
            }
        }
    }
}

#[cfg(test)]
mod tests;
