//! JSON text as slices: nothing is parsed that is not asked for.
//!
//! A [`Document`] is a text that was checked once, all of it (RFC 8259), and an index of its tokens and
//! longer containers, made on the way. A [`Node`] is a value in it: a place in the text. Walking to
//! a member or an item jumps over what lies before it; numbers stay as they were spelt, keys keep their
//! order, equal keys stay all; text that is handed on shares the document's memory. A [`Path`] leads to several
//! values at once, [`Grouped`] finds items by key, and a [`Tree`] is a value composed of such texts.
//! A [`Checker`] judges a text that is too long to be held.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod ambiguity;
mod block;
mod checker;
mod index;
mod join;
mod node;
mod path;
pub mod pointer;
mod string;
mod tree;
mod walk;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use block::Found;
use bytes::Bytes;

pub use ambiguity::Ambiguity;
pub use checker::Checker;
pub use index::DEPTH;
use index::{Container, Tokens};
pub use join::{Grouped, Kinds, Scalar};
pub use node::{Items, Key, Kind, Members, Node, Number, Passed, Spelling, Spot};
pub use path::{NotArray, NotPath, Path, Step};
pub use tree::{Again, Member, Pieces, Tree};

/// Why a text or a pointer is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is not JSON, or ends too early.
    #[error("byte {0}: this is not JSON")]
    NotJson(usize),
    /// The text is nested deeper than [`DEPTH`].
    #[error("byte {0}: this is nested more than {DEPTH} levels deep")]
    TooDeep(usize),
    /// The text has 4 GiB or more.
    #[error("the text has 4 GiB or more")]
    TooLong,
    /// The index takes more bytes than it may: see [`Document::within`].
    #[error("byte {0}: the index of this takes more memory than there is for it")]
    IndexTooLarge(usize),
    /// The pointer is not one: it must be empty or begin with `/`, and `~` be followed by 0 or 1.
    #[error("not a JSON Pointer: it must be empty or begin with `/`, and `~` be followed by 0 or 1")]
    NotPointer,
}

/// A JSON text and its index.
#[derive(Debug)]
pub struct Document {
    text: Bytes,
    /// Where its tokens begin, a bit for each byte.
    blocks: Vec<u64>,
    is_spaced: bool,
    containers: Vec<Container>,
    /// The place in the index that [`Document::node`] found last: the next one is often it, or behind it.
    last: AtomicUsize,
    /// Where in the index the containers of each [`STRETCH`] of the text begin, once one is looked for elsewhere.
    stretches: OnceLock<Box<[u32]>>,
}

/// So many bytes of a text have few containers in the index.
const STRETCH: usize = 256;

impl Document {
    /// Checks a text and makes its index. A byte order mark in front is left out.
    ///
    /// # Errors
    /// When the text is not JSON, too deep, or too long. Places count from behind a byte order mark.
    pub fn new(text: Bytes) -> Result<Self, Error> {
        Self::within(text, usize::MAX)
    }

    /// Like [`Document::new`], but never takes more than `most` bytes beside the text, neither while the index is made nor
    /// later. Most texts need a fifth of their own length; one that is nested as deeply as may be, eight times as much.
    ///
    /// # Errors
    /// Those of [`Document::new`], and [`Error::IndexTooLarge`].
    pub fn within(mut text: Bytes, most: usize) -> Result<Self, Error> {
        if text.starts_with(b"\xef\xbb\xbf") {
            text = text.slice(3..);
        }
        let Some(most) = most.checked_sub(stretches_bytes(text.len())) else {
            return Err(Error::IndexTooLarge(0));
        };
        let (Found { tokens, is_spaced }, containers) = index::index(&text, most)?;
        Ok(Self::of(text, tokens, is_spaced, containers))
    }

    fn of(text: Bytes, blocks: Vec<u64>, is_spaced: bool, containers: Vec<Container>) -> Self {
        let (last, stretches) = (AtomicUsize::new(0), OnceLock::new());
        Self { text, blocks, is_spaced, containers, last, stretches }
    }

    /// A document of a text that was checked before: only its tokens are found, which is a third of the work. Of a
    /// text that is no JSON what it says means nothing, and lies within the text.
    ///
    /// # Errors
    /// When the text ends within a string or has in one what none may hold, or is too long.
    pub fn known(text: Bytes) -> Result<Self, Error> {
        if u32::try_from(text.len()).is_err() {
            return Err(Error::TooLong);
        }
        let Found { tokens, is_spaced } = block::tokens(&text).map_err(Error::NotJson)?;
        Ok(Self::of(text, tokens, is_spaced, Vec::new()))
    }

    /// The text, without a byte order mark.
    #[must_use]
    pub fn text(&self) -> &Bytes {
        &self.text
    }

    /// Whether there is white space between its tokens, or around it.
    #[must_use]
    pub fn is_spaced(&self) -> bool {
        self.is_spaced
    }

    /// Its tokens, in order: the first byte of each, and its place.
    pub fn tokens(&self) -> impl Iterator<Item = (u8, usize)> {
        let mut tokens = self.tokens_from(0);
        std::iter::from_fn(move || {
            let (byte, at) = tokens.next();
            Some((byte?, at))
        })
    }

    /// The value that the text is.
    #[must_use]
    pub fn root(&self) -> Node<'_> {
        Node::new(self, self.tokens_from(0).next().1, 0)
    }

    /// The value that begins at a place in the text, as [`Node::start`] says it; `None` where no token begins, as within a
    /// string or behind the text. At a token that is no value the result means nothing, and lies within the text.
    #[must_use]
    pub fn node(&self, start: usize) -> Option<Node<'_>> {
        let bits = self.blocks.get(start / block::BLOCK)?;
        (bits >> (start % block::BLOCK) & 1 == 1).then(|| Node::new(self, start, self.place(start)))
    }

    /// Makes what [`Document::node`] needs for places in any order, which takes time by the length of the text: else the
    /// first call that needs it does.
    pub fn index_places(&self) {
        self.search(0);
    }

    /// The value that stands at a spot, as [`Node::spot`] says it; `None` behind the text. By a spot of another document
    /// the result means nothing, and lies within the text.
    #[must_use]
    #[inline]
    pub fn at(&self, spot: Spot) -> Option<Node<'_>> {
        Node::at(self, spot)
    }

    /// The members of an object from the one on that stands at this spot, as [`Members::spot`] says it.
    #[must_use]
    pub fn members_at(&self, spot: Spot) -> Members<'_> {
        Members::at(self, spot)
    }

    /// The place in the index of the first container that begins at `start` or behind.
    fn place(&self, start: usize) -> usize {
        let last = self.last.load(Ordering::Relaxed);
        let begins = |place: &usize| {
            self.containers.get(*place).is_some_and(|container| container.start as usize == start)
        };
        let behind = self.containers.get(last).map_or(0, |container| container.next as usize);
        let place = [last, behind].into_iter().find(begins).unwrap_or_else(|| self.search(start));
        self.last.store(place, Ordering::Relaxed);
        place
    }

    fn search(&self, start: usize) -> usize {
        let stretches = self.stretches.get_or_init(|| {
            let mut stretches = Vec::with_capacity(stretches_bytes(self.text.len()) / size_of::<u32>());
            for (place, container) in self.containers.iter().enumerate() {
                while stretches.len() * STRETCH <= container.start as usize {
                    stretches.push(place as u32);
                }
            }
            stretches.into()
        });
        let first = stretches.get(start / STRETCH).map_or(self.containers.len(), |first| *first as usize);
        let rest = self.containers.get(first..).unwrap_or_default();
        first + rest.iter().take_while(|container| (container.start as usize) < start).count()
    }

    /// The bytes that the index takes at most, beside the text.
    #[must_use]
    pub fn index_bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<u64>()
            + self.containers.capacity() * size_of::<Container>()
            + stretches_bytes(self.text.len())
    }

    #[inline]
    fn tokens_from(&self, place: usize) -> Tokens<'_> {
        Tokens::from(&self.text, &self.blocks, place)
    }
}

/// The bytes of [`Document::stretches`] for a text of this length.
fn stretches_bytes(text: usize) -> usize {
    (text / STRETCH + 1) * size_of::<u32>()
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
