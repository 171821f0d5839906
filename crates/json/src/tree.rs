//! A JSON value made of parts of texts. What answers are composed of: nothing is parsed into values, no
//! text is copied before it is written, and a part that stands in many places is one memory, so that who
//! looks for what is repeated need not compare.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::{BufMut, Bytes};

/// Parts are gathered up to about this length.
const PIECE: usize = 16 * 1024;
/// Texts from this length on are handed on as they are: copying them costs more than a piece of their own.
const LONG: usize = 4 * 1024;

/// A member: its name, a JSON string with its quotes, and its value.
pub type Member = (Bytes, Tree);

/// A JSON value made of parts of texts.
#[derive(Clone, Debug)]
pub enum Tree {
    /// The text of a value, which was checked; white space between its tokens is as it came. The same
    /// memory is the same value.
    Text(Bytes),
    /// An object.
    Object(Arc<[Member]>),
    /// The text of an object, from brace to brace, and members that come behind its own.
    Extended(Bytes, Arc<[Member]>),
    /// An array.
    Array(Arc<[Tree]>),
    /// The text of a value that was written in one go, and what it is known to repeat: in order, and beside one another.
    Repeating(Bytes, Arc<[Again]>),
}

/// An object of a text that stands in it before already, spelt alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again {
    /// Where it begins.
    pub at: usize,
    /// Where the one before begins, which itself stands in none that stands there again.
    pub first: usize,
    /// How long they are, from brace to brace.
    pub length: usize,
}

impl Tree {
    /// `null`
    pub const NULL: Self = Self::Text(Bytes::from_static(b"null"));

    /// The length of its text.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no JSON text is empty")]
    pub fn len(&self) -> usize {
        match self {
            Self::Text(text) | Self::Repeating(text, _) => text.len(),
            Self::Object(members) => 2 + commas(members.len()) + len_of(members),
            Self::Extended(text, members) => {
                let comma = usize::from(!members.is_empty() && !is_empty(text));
                text.len() + comma + commas(members.len()) + len_of(members)
            }
            Self::Array(items) => 2 + commas(items.len()) + items.iter().map(Self::len).sum::<usize>(),
        }
    }

    /// The length of its text, if that is at most `most`. A value that stands in many places is measured once: a small tree may
    /// have a text of any length.
    #[must_use]
    pub fn len_within(&self, most: usize) -> Option<usize> {
        self.measured(most, &mut HashMap::new())
    }

    /// `known` has the lengths of what stands in several places, by where that is.
    fn measured(&self, most: usize, known: &mut HashMap<usize, usize>) -> Option<usize> {
        let (key, own) = match self {
            Self::Text(text) | Self::Repeating(text, _) => (None, text.len()),
            Self::Object(members) => (shared(members), 2 + commas(members.len())),
            Self::Extended(text, members) => {
                let comma = usize::from(!members.is_empty() && !is_empty(text));
                (shared(members), text.len() + comma + commas(members.len()))
            }
            Self::Array(items) => (shared(items), 2 + commas(items.len())),
        };
        let most = most.checked_sub(own)?;
        if let Some(children) = key.and_then(|key| known.get(&key)) {
            return (*children <= most).then_some(own + children);
        }
        let mut children = 0;
        let mut add = |name: usize, value: &Self| {
            children += name;
            children += value.measured(most.checked_sub(children)?, known)?;
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

    /// Appends its text.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) | Self::Repeating(text, _) => out.extend_from_slice(text),
            Self::Object(members) => {
                out.push(b'{');
                write_members(members, true, out);
                out.push(b'}');
            }
            Self::Extended(text, members) => {
                out.extend_from_slice(open(text));
                write_members(members, is_empty(text), out);
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

    /// Its text, piece by piece. Long texts are pieces of their own and not copied.
    #[must_use]
    pub fn pieces(self) -> Pieces {
        let length = self.len();
        self.pieces_of(length)
    }

    /// The same where the length is known.
    #[must_use]
    pub fn pieces_of(self, length: usize) -> Pieces {
        Pieces { rest: length, gathered: Vec::new(), long: None, next: Some(self), open: Vec::new() }
    }

    /// Whether they are one value in memory. Equal ones that are not say `false`.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
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

/// Where the items or members of a value are, if other values may have them too.
fn shared<T>(children: &Arc<[T]>) -> Option<usize> {
    (Arc::strong_count(children) > 1).then(|| Arc::as_ptr(children).cast::<()>().addr())
}

fn commas(count: usize) -> usize {
    count.saturating_sub(1)
}

fn len_of(members: &[Member]) -> usize {
    members.iter().map(|(name, value)| name.len() + 1 + value.len()).sum()
}

fn write_members(members: &[Member], mut first: bool, out: &mut Vec<u8>) {
    for (name, value) in members {
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        out.extend_from_slice(name);
        out.push(b':');
        value.write(out);
    }
}

/// An object's text without its last brace.
fn open(text: &[u8]) -> &[u8] {
    text.strip_suffix(b"}").unwrap_or(text)
}

/// Whether an object's text has no members.
fn is_empty(text: &[u8]) -> bool {
    open(text).trim_ascii_end() == b"{"
}

/// The text of a [`Tree`] in pieces.
#[derive(Debug)]
pub struct Pieces {
    /// The length of what is still to come.
    rest: usize,
    gathered: Vec<u8>,
    /// A long text that comes behind what is gathered.
    long: Option<Bytes>,
    next: Option<Tree>,
    open: Vec<Open>,
}

/// A container that is being written.
#[derive(Debug)]
struct Open {
    children: Children,
    /// The child that comes next.
    place: usize,
    /// Whether nothing stands before it.
    first: bool,
}

#[derive(Debug)]
enum Children {
    Members(Arc<[Member]>),
    Items(Arc<[Tree]>),
}

impl Pieces {
    fn text(&mut self, text: Bytes) {
        if text.len() < LONG {
            self.gathered.extend_from_slice(&text);
        } else {
            self.long = Some(text);
        }
    }

    /// Writes a value as far as its own text goes.
    fn begin(&mut self, tree: Tree) {
        let (children, first) = match tree {
            Tree::Text(text) | Tree::Repeating(text, _) => return self.text(text),
            Tree::Object(members) => {
                self.gathered.push(b'{');
                (Children::Members(members), true)
            }
            Tree::Extended(text, members) => {
                let first = is_empty(&text);
                self.text(text.slice(..open(&text).len()));
                (Children::Members(members), first)
            }
            Tree::Array(items) => {
                self.gathered.push(b'[');
                (Children::Items(items), true)
            }
        };
        self.open.push(Open { children, place: 0, first });
    }

    /// The value that comes next, once what stands before it is written; none when it is written too, since it is short,
    /// or when all is closed.
    fn step(&mut self) -> Option<Tree> {
        let open = self.open.last_mut()?;
        let (name, value, close) = match &open.children {
            Children::Members(members) => match members.get(open.place) {
                Some((name, value)) => (Some(name), Some(value), b'}'),
                None => (None, None, b'}'),
            },
            Children::Items(items) => (None, items.get(open.place), b']'),
        };
        let Some(value) = value else {
            self.gathered.push(close);
            self.open.pop();
            return None;
        };
        if !std::mem::take(&mut open.first) {
            self.gathered.push(b',');
        }
        if let Some(name) = name {
            self.gathered.put_slice(name);
            self.gathered.push(b':');
        }
        open.place += 1;
        match value {
            Tree::Text(text) if text.len() < LONG => {
                self.gathered.extend_from_slice(text);
                None
            }
            value => Some(value.clone()),
        }
    }
}

impl Iterator for Pieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        loop {
            let done = self.next.is_none() && self.open.is_empty();
            let full = self.gathered.len() >= PIECE || self.long.is_some() || done;
            if full {
                let gathered = Some(std::mem::take(&mut self.gathered)).filter(|text| !text.is_empty());
                let piece = gathered.map(Bytes::from).or_else(|| self.long.take());
                self.rest -= piece.as_ref().map_or(0, Bytes::len).min(self.rest);
                return piece;
            }
            if self.gathered.capacity() == 0 {
                self.gathered.reserve_exact(self.rest.min(PIECE + LONG));
            }
            match self.next.take() {
                Some(tree) => self.begin(tree),
                None => self.next = self.step(),
            }
        }
    }
}

#[cfg(test)]
mod tests;
