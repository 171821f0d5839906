//! Documents and the values in them.
//!
//! A document and its nodes are one unit: a node is a position in its document's text and reads the index,
//! and a document is accessed through its nodes. From low to high: `block` classifies the bytes of a text,
//! `index` checks the grammar and finds the containers, `walk` skips values that are not in the index, `node`
//! represents a value, and `ambiguity` checks all values in it.

mod ambiguity;
mod block;
mod index;
mod node;
mod walk;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use crate::error::JsonError;
use block::BlockClassification;
use index::{IndexTokens, IndexedContainer};

pub use ambiguity::AmbiguousValue;
pub use node::{
    ArrayItems, JsonNode, JsonNumber, KeyPattern, MemberName, NodeId, ObjectMembers, PassedValue, ValueKind,
};

/// A JSON text and its index.
#[derive(Debug)]
pub struct JsonDocument {
    text: Bytes,
    /// The first bytes of tokens, a bit for each byte of the text.
    token_bits: Vec<u64>,
    has_whitespace: bool,
    containers: Vec<IndexedContainer>,
    /// The index entry that [`JsonDocument::node_at`] found last. The next lookup is often for the same or
    /// the following entry.
    last_lookup: AtomicUsize,
    /// The first index entry for each [`STRETCH_LENGTH`] of the text, built on the first lookup that needs
    /// it.
    stretches: OnceLock<Box<[u32]>>,
}

/// The length of a stretch, in bytes: short enough that it contains few index entries.
const STRETCH_LENGTH: usize = 256;

impl JsonDocument {
    /// Checks a text and builds its index. A leading byte order mark is removed.
    ///
    /// # Errors
    /// If the text is not JSON, nested too deeply, or too long. Positions are counted after the byte order
    /// mark.
    pub fn new(text: Bytes) -> Result<Self, JsonError> {
        Self::with_memory_limit(text, usize::MAX)
    }

    /// Like [`JsonDocument::new`], but limits the memory in addition to the text to `most` bytes, both while
    /// the index is built and afterwards. Most texts need a fifth of their own length; a text with the
    /// maximum nesting needs eight times its length.
    ///
    /// # Errors
    /// The errors of [`JsonDocument::new`], and [`JsonError::IndexTooLarge`].
    pub fn with_memory_limit(mut text: Bytes, most: usize) -> Result<Self, JsonError> {
        if text.starts_with(b"\xef\xbb\xbf") {
            text = text.slice(3..);
        }
        let Some(most) = most.checked_sub(stretches_bytes(text.len())) else {
            return Err(JsonError::IndexTooLarge(0));
        };
        let (BlockClassification { tokens, has_whitespace: is_spaced }, containers) =
            index::build_index(&text, most)?;
        Ok(Self::from_parts(text, tokens, is_spaced, containers))
    }

    fn from_parts(
        text: Bytes,
        token_bits: Vec<u64>,
        has_whitespace: bool,
        containers: Vec<IndexedContainer>,
    ) -> Self {
        let (last_lookup, stretches) = (AtomicUsize::new(0), OnceLock::new());
        Self { text, token_bits, has_whitespace, containers, last_lookup, stretches }
    }

    /// Creates a document of a text that was checked before. Only its tokens are found, which is a third of
    /// the work. For a text that is not JSON, all results are unspecified, but remain within the text.
    ///
    /// # Errors
    /// If the text ends within a string, has an invalid byte in a string, or is too long.
    pub fn from_checked(text: Bytes) -> Result<Self, JsonError> {
        if u32::try_from(text.len()).is_err() {
            return Err(JsonError::TooLong);
        }
        let BlockClassification { tokens, has_whitespace: is_spaced } =
            block::classify_text(&text).map_err(JsonError::NotJson)?;
        Ok(Self::from_parts(text, tokens, is_spaced, Vec::new()))
    }

    /// The text, without a byte order mark.
    #[must_use]
    pub fn text(&self) -> &Bytes {
        &self.text
    }

    /// Whether there is whitespace between its tokens, or around them.
    #[must_use]
    pub fn has_whitespace(&self) -> bool {
        self.has_whitespace
    }

    /// Returns the tokens in order: the first byte and the position of each.
    pub fn tokens(&self) -> impl Iterator<Item = (u8, usize)> {
        let mut tokens = self.tokens_from(0);
        std::iter::from_fn(move || {
            let (byte, at) = tokens.next();
            Some((byte?, at))
        })
    }

    /// Returns the root value.
    #[must_use]
    pub fn root(&self) -> JsonNode<'_> {
        JsonNode::new(self, self.tokens_from(0).next().1, 0)
    }

    /// Returns the value that begins at a position in the text, as returned by [`JsonNode::start`]. Returns
    /// `None` if no token begins there, for example within a string or after the end of the text. For a token
    /// that is not a value, the result is unspecified, but remains within the text.
    #[must_use]
    pub fn node_at(&self, start: usize) -> Option<JsonNode<'_>> {
        let bits = self.token_bits.get(start / block::BLOCK_LENGTH)?;
        (bits >> (start % block::BLOCK_LENGTH) & 1 == 1)
            .then(|| JsonNode::new(self, start, self.find_container(start)))
    }

    /// Builds the lookup table that [`JsonDocument::node_at`] needs for positions in any order. It takes time
    /// proportional to the text's length. Without this call, the first lookup that needs the table builds it.
    pub fn build_lookup_table(&self) {
        self.search_containers(0);
    }

    /// Returns the value at a spot, as returned by [`JsonNode::node_id`], or `None` if the spot is after the
    /// end of the text. For a spot of another document, the result is unspecified, but remains within the
    /// text.
    #[must_use]
    #[inline]
    pub fn node_by_id(&self, node_id: NodeId) -> Option<JsonNode<'_>> {
        JsonNode::from_id(self, node_id)
    }

    /// Returns the members of an object, beginning with the member at this spot, as returned by
    /// [`ObjectMembers::next_node_id`].
    #[must_use]
    pub fn members_at(&self, node_id: NodeId) -> ObjectMembers<'_> {
        ObjectMembers::from_id(self, node_id)
    }

    /// The index entry of the first container that begins at `start` or later.
    fn find_container(&self, start: usize) -> usize {
        let last = self.last_lookup.load(Ordering::Relaxed);
        let begins = |place: &usize| {
            self.containers.get(*place).is_some_and(|container| container.start as usize == start)
        };
        let behind = self.containers.get(last).map_or(0, |container| container.next as usize);
        let place = [last, behind].into_iter().find(begins).unwrap_or_else(|| self.search_containers(start));
        self.last_lookup.store(place, Ordering::Relaxed);
        place
    }

    fn search_containers(&self, start: usize) -> usize {
        let stretches = self.stretches.get_or_init(|| {
            let mut stretches = Vec::with_capacity(stretches_bytes(self.text.len()) / size_of::<u32>());
            for (place, container) in self.containers.iter().enumerate() {
                while stretches.len() * STRETCH_LENGTH <= container.start as usize {
                    stretches.push(place as u32);
                }
            }
            stretches.into()
        });
        let first =
            stretches.get(start / STRETCH_LENGTH).map_or(self.containers.len(), |first| *first as usize);
        let containers = self.containers.get(first..).unwrap_or_default();
        first + containers.iter().take_while(|container| (container.start as usize) < start).count()
    }

    /// The maximum memory of the index in bytes, excluding the text.
    #[must_use]
    pub fn index_bytes(&self) -> usize {
        self.token_bits.capacity() * size_of::<u64>()
            + self.containers.capacity() * size_of::<IndexedContainer>()
            + stretches_bytes(self.text.len())
    }

    #[inline]
    fn tokens_from(&self, place: usize) -> IndexTokens<'_> {
        IndexTokens::from_position(&self.text, &self.token_bits, place)
    }
}

/// The size in bytes of [`JsonDocument::stretches`] for a text of this length.
fn stretches_bytes(text: usize) -> usize {
    (text / STRETCH_LENGTH + 1) * size_of::<u32>()
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
