//! The form of a tree by what it shares in memory, and by nothing else: what the handler knows to be the same. No byte
//! is looked at but for names that would have to be spelt otherwise, so that it takes about as long as copying does.
//!
//! The tree is walked twice, in the same order: once to learn what it has several times, and once to write it.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use json::{DEPTH, Member, Tree};

use crate::flatten::memory;
use crate::number::SHORT;
use crate::{Form, hash};

/// The form of a tree; `None` if what it shares is less than a tenth of it, or a name needs a closer look.
pub(crate) fn encode(tree: &Tree, form: Form, plain: usize) -> Option<Vec<u8>> {
    if form == Form::GraphQl && !stands_beside_a_table(tree) {
        return None;
    }
    let mut seen = Seen::default();
    seen.value(tree, DEPTH)?;
    if seen.saved.saturating_mul(10) < plain as u64 {
        return None;
    }
    let mut writing = Writing {
        times: seen.times,
        visits: seen.visits.iter(),
        entries: vec![None; seen.lengths.len()],
        count: 0,
        table: Vec::new(),
    };
    let mut root = Vec::with_capacity(plain);
    writing.value(tree, &mut root);
    let mut out = Vec::with_capacity(writing.table.len() + root.len() + 16);
    out.extend_from_slice(b"{\"t\":[");
    out.extend_from_slice(&writing.table);
    match form {
        // The members of the root follow the table: its brace becomes the comma between them.
        Form::GraphQl => {
            out.extend_from_slice(b"],");
            out.extend_from_slice(root.strip_prefix(b"{")?);
        }
        Form::Json => {
            out.extend_from_slice(b"],\"r\":");
            out.extend_from_slice(&root);
            out.push(b'}');
        }
    }
    (out.len() * 10 <= plain * 9).then_some(out)
}

/// Whether its members can stand beside the table: there are some, and none could be taken for a part of the form.
fn stands_beside_a_table(tree: &Tree) -> bool {
    let Tree::Object(members) = tree else { return false };
    let is_of_the_form = |name: &[u8]| matches!(name, b"\"t\"" | b"\"r\"") || name.contains(&b'\\');
    !members.is_empty() && !members.iter().any(|(name, _)| is_of_the_form(name))
}

/// Whether it has a name that could begin with `$`, which would have to be looked at.
fn has_dollar(text: &[u8]) -> bool {
    memchr::memmem::find(text, b"\"$").is_some() || memchr::memmem::find(text, b"\\u0024").is_some()
}

/// What a tree has, by memory.
#[derive(Default)]
struct Seen {
    numbers: HashMap<[usize; 3], u32, BuildHasherDefault<Addresses>>,
    /// How often each stands there.
    times: Vec<u32>,
    /// What the walk comes by, in its order.
    visits: Vec<u32>,
    /// How long each is, with references in it.
    lengths: Vec<u64>,
    saved: u64,
}

impl Seen {
    /// The length of what is written for a value, if what is there several times is so from here on.
    fn value(&mut self, tree: &Tree, depth: usize) -> Option<u64> {
        let depth = depth.checked_sub(1)?;
        let Some(memory) = memory(tree) else { return self.own(tree, depth) };
        let next = u32::try_from(self.times.len()).ok()?;
        let number = *self.numbers.entry(memory).or_insert(next);
        self.visits.push(number);
        if number != next {
            let length = self.lengths.get(number as usize).copied()?;
            // Shorter ones stay spelt out, wherever they stand.
            if length >= SHORT {
                *self.times.get_mut(number as usize)? += 1;
                self.saved += length;
            }
            return Some(length);
        }
        self.times.push(1);
        self.lengths.push(0);
        let length = self.own(tree, depth)?;
        *self.lengths.get_mut(number as usize)? = length;
        Some(length)
    }

    fn own(&mut self, tree: &Tree, depth: usize) -> Option<u64> {
        let (own, members): (u64, &[Member]) = match tree {
            Tree::Text(text) => return (!has_dollar(text)).then_some(text.len() as u64),
            Tree::Array(items) => {
                let mut length = 2;
                for item in items.iter() {
                    length += 1 + self.value(item, depth)?;
                }
                return Some(length);
            }
            Tree::Object(members) => (2, members),
            Tree::Extended(text, members) => ((!has_dollar(text)).then_some(text.len() as u64)?, members),
        };
        let mut length = own;
        for (name, value) in members {
            if has_dollar(name) {
                return None;
            }
            length += name.len() as u64 + 2 + self.value(value, depth)?;
        }
        Some(length)
    }
}

struct Writing<'a> {
    times: Vec<u32>,
    visits: std::slice::Iter<'a, u32>,
    /// Which entry of the table each is.
    entries: Vec<Option<u32>>,
    count: u32,
    table: Vec<u8>,
}

impl Writing<'_> {
    fn value(&mut self, tree: &Tree, out: &mut Vec<u8>) {
        if memory(tree).is_none() {
            return self.own(tree, out);
        }
        let Some(number) = self.visits.next().map(|number| *number as usize) else { return };
        let is_shared = self.times.get(number).is_some_and(|times| *times > 1);
        if !is_shared {
            return self.own(tree, out);
        }
        let entry = match self.entries.get(number) {
            Some(Some(entry)) => *entry,
            _ => self.entry(tree, number),
        };
        out.extend_from_slice(b"{\"$\":");
        out.extend_from_slice(itoa::Buffer::new().format(entry).as_bytes());
        out.push(b'}');
    }

    /// Writes a value into the table, behind what it refers to.
    fn entry(&mut self, tree: &Tree, number: usize) -> u32 {
        let mut text = Vec::new();
        self.own(tree, &mut text);
        if !self.table.is_empty() {
            self.table.push(b',');
        }
        self.table.extend_from_slice(&text);
        let entry = self.count;
        self.count += 1;
        if let Some(place) = self.entries.get_mut(number) {
            *place = Some(entry);
        }
        entry
    }

    fn own(&mut self, tree: &Tree, out: &mut Vec<u8>) {
        match tree {
            Tree::Text(text) => out.extend_from_slice(text),
            Tree::Object(members) => {
                out.push(b'{');
                self.members(members, true, out);
            }
            Tree::Extended(text, members) => {
                let open = text.strip_suffix(b"}").unwrap_or(text);
                out.extend_from_slice(open);
                self.members(members, open.trim_ascii_end() == b"{", out);
            }
            Tree::Array(items) => {
                out.push(b'[');
                for (place, item) in items.iter().enumerate() {
                    if place > 0 {
                        out.push(b',');
                    }
                    self.value(item, out);
                }
                out.push(b']');
            }
        }
    }

    fn members(&mut self, members: &[Member], mut first: bool, out: &mut Vec<u8>) {
        for (name, value) in members {
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            out.extend_from_slice(name);
            out.push(b':');
            self.value(value, out);
        }
        out.push(b'}');
    }
}

/// Addresses are spread by multiplication; nobody who sends bodies chooses them.
#[derive(Default)]
struct Addresses(u64);

impl Hasher for Addresses {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = hash::bytes(self.0, bytes);
    }

    fn write_usize(&mut self, number: usize) {
        self.0 = hash::number(self.0, number as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
