//! The deduplicated form of JSON: a repeated object is written once, and every occurrence becomes a reference
//! to it.
//!
//! docs/deduplication.md is the specification. Two objects are equal if their texts are equal, whatever their
//! names and IDs. So any JSON text is restored exactly, with numbers as spelt and members in order; only
//! white space between tokens is lost.
//!
//! A text is processed in three passes. Its objects are numbered, equal ones alike ([`mod@hash_cons`]); the
//! objects that are worth sharing are selected ([`mod@encode`]); and the result is written ([`mod@write`]). A
//! heuristic prefilter skips texts that hardly repeat anything ([`mod@prefilter`]).
//!
//! For a [`JsonTree`], [`mod@sharing`] finds the values that occur several times in memory or are recorded as
//! repetitions. If these alone save enough, no further search is made. Otherwise the tree is flattened to a
//! text that contains them once ([`mod@flatten`]). A text with recorded repetitions is flattened in either
//! case.
//!
//! The modules, from low to high: `form`, `hash` and `write`; `hash_cons`; `sharing` and `prefilter`;
//! `flatten`; `encode` and `decode`.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod decode;
mod encode;
mod flatten;
mod form;
mod hash;
mod hash_cons;
mod prefilter;
mod sharing;
mod write;

use bytes::Bytes;
use hash_cons::{EqualityCriterion, SharedParts};
use json::{JsonDocument, JsonTree};
use sharing::SharedValues;

pub use decode::{DecodeError, decode};
pub use form::{DedupForm, media_type};

/// The maximum memory of a text's index. An ordinary text of the maximum size needs a third of it.
const INDEX_BYTES: usize = 8 << 20;

/// The sizes of texts that are deduplicated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DedupLimits {
    /// The minimum size in bytes; shorter texts stay plain.
    pub min: usize,
    /// The maximum size in bytes; longer texts stay plain.
    pub max: usize,
}

impl Default for DedupLimits {
    /// From 512 bytes, below which little can be saved, to 8 MiB, which take about 10 ms.
    fn default() -> Self {
        Self { min: 512, max: 8 << 20 }
    }
}

/// Returns the deduplicated form of a value, or `None` if it should be sent plain: it saves less than a
/// tenth, the value is outside the limits or has more than 131,072 objects, or it has no such form. If the
/// known repetitions save a tenth, no further search is made.
#[must_use]
pub fn encode(tree: &JsonTree, form: DedupForm, limits: &DedupLimits) -> Option<JsonTree> {
    let length = tree.len();
    if !(limits.min..=limits.max).contains(&length) {
        return None;
    }
    let values = SharedValues::new(tree, length)?;
    if values.saves_enough(length) {
        let shared = match tree {
            JsonTree::Repeating(..) => {
                encode_flattened(tree, &values, form, EqualityCriterion::KnownRepetitions)
            }
            _ => values.write_encoded(tree, form, length),
        };
        if shared.is_some() {
            return shared;
        }
    }
    prefilter::is_promising(tree, length)
        .then(|| encode_flattened(tree, &values, form, EqualityCriterion::SameText))?
}

/// Encodes a value by way of a text that contains the known repetitions once.
fn encode_flattened(
    tree: &JsonTree,
    values: &SharedValues,
    form: DedupForm,
    equal: EqualityCriterion,
) -> Option<JsonTree> {
    let compact = |tidy| {
        let layout = flatten::flatten(tree, values, tidy)?;
        let document = JsonDocument::from_checked(Bytes::from(layout.text)).ok()?;
        Some((document, layout.shared))
    };
    let (mut document, mut shared) = compact(false)?;
    if document.has_whitespace() {
        (document, shared) = compact(true)?;
    }
    encode::encode(&document, &shared, form, equal).map(|text| JsonTree::Text(text.into()))
}

/// Returns the deduplicated form of a text, or `None` if it should be sent plain, as in [`encode()`].
///
/// # Errors
/// If the text is not JSON.
pub fn encode_text(
    text: &Bytes,
    form: DedupForm,
    limits: &DedupLimits,
) -> Result<Option<Vec<u8>>, json::JsonError> {
    if !(limits.min..=limits.max).contains(&text.len()) {
        return Ok(None);
    }
    let mut document = match JsonDocument::with_memory_limit(text.clone(), INDEX_BYTES) {
        Err(json::JsonError::IndexTooLarge(_)) => return Ok(None),
        document => document?,
    };
    if !prefilter::is_promising_text(text) {
        return Ok(None);
    }
    if document.has_whitespace() {
        document = JsonDocument::from_checked(Bytes::from(flatten::strip_whitespace(&document)))?;
    }
    Ok(encode::encode(&document, &SharedParts::default(), form, EqualityCriterion::SameText))
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
