//! The deduplicated form of JSON: an object that a text repeats is written once, and referred to wherever it stands.
//!
//! docs/deduplication.md is its specification. What makes two objects one is their text, whatever their names
//! and ids: so any JSON text comes back as it was, numbers as spelt and members in their order; only white space
//! between tokens goes. The way of a text: its values are numbered, equal ones alike ([`mod@number`]); those that pay
//! are shared ([`mod@encode`]); everything is written ([`mod@write`]). Before that a glance tells whether anything could be
//! found ([`mod@glance`]). Of a [`Tree`], what it has several times in memory or is noted to repeat is [`mod@known`], and
//! where that alone saves enough, nothing else is looked for. Otherwise it is laid out as a text in which that stands
//! once ([`mod@flatten`]); so is a text with notes, whichever way.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod decode;
mod encode;
mod flatten;
mod glance;
mod hash;
mod known;
mod number;
mod write;

use bytes::Bytes;
use json::{Document, Tree};
use known::Known;
use number::Equal;

pub use decode::{Error, decode};

/// What a deduplicated text looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `{"t":[...],"data":...,"errors":...}`: the members of the answer stand beside the table. For answers that
    /// are objects without members `t` and `r`; others stay plain.
    GraphQl,
    /// `{"t":[...],"r":...}`, for any JSON.
    Json,
}

/// Which texts are worth the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Shorter ones stay plain.
    pub min: usize,
    /// Longer ones stay plain.
    pub max: usize,
}

impl Default for Limits {
    /// From 512 bytes, which gain next to nothing, to 8 MiB, which take about 10 ms.
    fn default() -> Self {
        Self { min: 512, max: 8 << 20 }
    }
}

/// The media type of a form, as `Content-Type` and `Accept` name it.
#[must_use]
pub fn media_type(form: Form) -> &'static str {
    match form {
        Form::GraphQl => "application/graphql-dedup+json;v=1",
        Form::Json => "application/vnd.orfa.dedup+json",
    }
}

/// The deduplicated form of a value; `None` where it should be sent plain: when it saves less than a tenth, or the
/// value is beyond the limits or has no such form. Where what it is known to have several times saves a tenth,
/// nothing else is looked for.
#[must_use]
pub fn encode(tree: &Tree, form: Form, limits: &Limits) -> Option<Tree> {
    let length = tree.len();
    if !(limits.min..=limits.max).contains(&length) {
        return None;
    }
    let known = Known::new(tree, length)?;
    if known.pays(length) {
        let shared = match tree {
            Tree::Repeating(..) => laid_out(tree, &known, form, Equal::Known),
            _ => known.write(tree, form, length),
        };
        if shared.is_some() {
            return shared;
        }
    }
    glance::is_promising(tree, length).then(|| laid_out(tree, &known, form, Equal::Spelt))?
}

/// The form of a value by way of a text in which what it is known to have several times stands once.
fn laid_out(tree: &Tree, known: &Known, form: Form, equal: Equal) -> Option<Tree> {
    let compact = |tidy| {
        let layout = flatten::flatten(tree, known, tidy)?;
        let document = Document::known(Bytes::from(layout.text)).ok()?;
        Some((document, layout.shared))
    };
    let (mut document, mut shared) = compact(false)?;
    if document.is_spaced() {
        (document, shared) = compact(true)?;
    }
    encode::encode(&document, &shared, form, equal).map(|text| Tree::Text(text.into()))
}

/// The deduplicated form of a text; `None` where it should be sent plain, as with [`encode`].
///
/// # Errors
/// When it is not JSON.
pub fn encode_text(text: &Bytes, form: Form, limits: &Limits) -> Result<Option<Vec<u8>>, json::Error> {
    if !(limits.min..=limits.max).contains(&text.len()) {
        return Ok(None);
    }
    let mut document = Document::new(text.clone())?;
    if !glance::is_promising_text(text) {
        return Ok(None);
    }
    if document.is_spaced() {
        document = Document::known(Bytes::from(flatten::tidied(&document)))?;
    }
    Ok(encode::encode(&document, &flatten::Shared::default(), form, Equal::Spelt))
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
