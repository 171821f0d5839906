//! The form of a tree by what it shares in memory, and by nothing else: what the handler knows to be the same. No byte
//! is looked at but for names that would have to be spelt otherwise, and none is copied: what comes out is a tree as well.
//!
//! The tree is walked twice, in the same order: once to learn what it has several times, and once to take that out.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::iter;
use std::sync::Arc;

use bytes::Bytes;
use json::{DEPTH, Member, Tree};

use crate::flatten::memory;
use crate::number::SHORT;
use crate::{Form, hash};

const TABLE: Bytes = Bytes::from_static(b"\"t\"");
const ROOT: Bytes = Bytes::from_static(b"\"r\"");

/// The form of a tree; `None` if what it shares is less than a tenth of it, or a name needs a closer look.
pub(crate) fn encode(tree: &Tree, form: Form, plain: usize) -> Option<Tree> {
    if form == Form::GraphQl && !stands_beside_a_table(tree) {
        return None;
    }
    let numbers = HashMap::with_capacity_and_hasher(plain / 256, BuildHasherDefault::default());
    let mut seen = Seen { numbers, ..Seen::default() };
    seen.value(tree, DEPTH)?;
    if seen.saved.saturating_mul(10) < plain as u64 {
        return None;
    }
    let references = vec![None; seen.times.len()];
    let mut sharing =
        Sharing { times: seen.times, visits: seen.visits.iter(), references, table: Vec::new() };
    let root = sharing.value(tree);
    let table = (TABLE, Tree::Array(sharing.table.into()));
    let shared = match (form, root) {
        (Form::GraphQl, Tree::Object(members)) => {
            Tree::Object(iter::once(table).chain(members.iter().cloned()).collect())
        }
        (_, root) => Tree::Object([table, (ROOT, root)].into()),
    };
    (shared.len() * 10 <= plain * 9).then_some(shared)
}

/// Whether its members can stand beside the table: there are some, and none could be taken for a part of the form.
fn stands_beside_a_table(tree: &Tree) -> bool {
    let Tree::Object(members) = tree else { return false };
    let is_of_the_form = |name: &[u8]| matches!(name, b"\"t\"" | b"\"r\"") || name.contains(&b'\\');
    !members.is_empty() && !members.iter().any(|(name, _)| is_of_the_form(name))
}

/// Whether it has a name that could begin with `$`, which would have to be looked at.
fn has_dollar(text: &[u8]) -> bool {
    let is_there = |what: &[u8]| memchr::memmem::find(text, what).is_some();
    // Most texts are short and have neither letter, which is seen at once.
    memchr::memchr2(b'$', b'\\', text).is_some() && (is_there(b"\"$") || is_there(b"\\u0024"))
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

/// A tree that becomes one in which what is there several times stands in a table.
struct Sharing<'a> {
    times: Vec<u32>,
    visits: std::slice::Iter<'a, u32>,
    /// What refers to each, once it is in the table.
    references: Vec<Option<Tree>>,
    table: Vec<Tree>,
}

impl Sharing<'_> {
    fn value(&mut self, tree: &Tree) -> Tree {
        let number =
            memory(tree).and_then(|_| self.visits.next()).map_or(usize::MAX, |number| *number as usize);
        if self.times.get(number).is_none_or(|times| *times < 2) {
            return self.own(tree);
        }
        if let Some(Some(reference)) = self.references.get(number) {
            return reference.clone();
        }
        // Behind what it refers to.
        let entry = self.own(tree);
        let reference = Tree::Text(format!("{{\"$\":{}}}", self.table.len()).into());
        self.table.push(entry);
        if let Some(place) = self.references.get_mut(number) {
            *place = Some(reference.clone());
        }
        reference
    }

    fn own(&mut self, tree: &Tree) -> Tree {
        match tree {
            Tree::Text(text) => Tree::Text(text.clone()),
            Tree::Object(members) => Tree::Object(self.members(members)),
            Tree::Extended(text, members) => Tree::Extended(text.clone(), self.members(members)),
            Tree::Array(items) => Tree::Array(items.iter().map(|item| self.value(item)).collect()),
        }
    }

    fn members(&mut self, members: &[Member]) -> Arc<[Member]> {
        members.iter().map(|(name, value)| (name.clone(), self.value(value))).collect()
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
