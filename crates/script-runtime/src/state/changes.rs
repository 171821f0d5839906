//! A run's change set: JSON text, an array of edits in order, each of one of the run's slots.
//!
//! `[slot, [steps…], value]` sets, `[slot, [steps…]]` deletes; a step is the index of an item or the name of
//! a member, and the last one may be `"length"` of an array, which truncates it. `[slot, [steps…], count,
//! [values…]]` replaces `count` items, starting at the item of the last step, by the values. The store and
//! other workers receive the text of the edits unchanged; here it is only validated and split by cell.

use bytes::Bytes;
use json::{JsonDocument, JsonNumber, ValueKind};

use super::tree::{self, Effort, Misfit, Node, Step, Undo};
use crate::index::index;

/// The reason why a change set is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error("{0}")]
    NotJson(#[from] json::JsonError),
    #[error("edit {0} is not `[slot, path]`, `[slot, path, value]` or `[slot, path, count, values]`")]
    NoEdit(usize),
    #[error("edit {0} is for slot {1}, which the run does not have")]
    NoSlot(usize, u64),
    #[error("edit {0} does not fit: {1}")]
    Misfit(usize, Misfit),
}

impl Refused {
    /// Whether it is refused only because it takes more work than allowed.
    pub(crate) fn is_long(self) -> bool {
        matches!(self, Self::Misfit(_, Misfit::Long))
    }
}

/// A parsed change set.
#[derive(Debug)]
pub(crate) struct Changes {
    text: Bytes,
    document: Option<JsonDocument>,
}

/// The edits of one cell.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) slot: usize,
    /// The edits as a change set of their own.
    pub(crate) text: Bytes,
    /// The cell's new value, if the only edit sets the whole value.
    pub(crate) whole: Option<Bytes>,
}

/// A parsed edit.
struct Item<'a> {
    slot: u64,
    path: json::JsonNode<'a>,
    what: What<'a>,
    text: Bytes,
}

/// The operation of an edit.
#[derive(Clone, Copy)]
enum What<'a> {
    Delete,
    Set(json::JsonNode<'a>),
    /// Replaces this number of items by the values.
    Splice(usize, json::JsonNode<'a>),
}

impl Changes {
    /// Parses a change set from a worker. An empty text is a change set without edits.
    pub(crate) fn read(text: &Bytes) -> Result<Self, Refused> {
        Self::with(text, index)
    }

    /// Parses a change set from the store. It was accepted before, so it must be readable whatever the size
    /// of its index.
    fn stored(text: &Bytes) -> Result<Self, Refused> {
        Self::with(text, JsonDocument::new)
    }

    fn with(
        text: &Bytes,
        index: fn(Bytes) -> Result<JsonDocument, json::JsonError>,
    ) -> Result<Self, Refused> {
        let document = if text.is_empty() { None } else { Some(index(text.clone())?) };
        if document.as_ref().is_some_and(|document| document.root().kind() != ValueKind::Array) {
            return Err(Refused::NoEdit(0));
        }
        Ok(Self { text: text.clone(), document })
    }

    fn items(&self) -> impl Iterator<Item = Result<Item<'_>, Refused>> {
        let root = self.document.as_ref().map(JsonDocument::root);
        let items = root.into_iter().flat_map(json::JsonNode::items);
        items.enumerate().map(|(number, item)| Item::read(item).ok_or(Refused::NoEdit(number)))
    }

    /// Splits the change set by slot, in ascending order; each slot must be less than `slots`.
    pub(crate) fn parts(&self, slots: usize) -> Result<Vec<Part>, Refused> {
        let mut edits: Vec<(usize, Item<'_>)> = Vec::new();
        for (number, item) in self.items().enumerate() {
            let item = item?;
            let slot = usize::try_from(item.slot).ok().filter(|slot| *slot < slots);
            edits.push((slot.ok_or(Refused::NoSlot(number, item.slot))?, item));
        }
        let alone = edits.iter().all(|(slot, _)| edits.first().is_some_and(|(first, _)| first == slot));
        edits.sort_by_key(|(slot, _)| *slot);
        let part = |edits: &[(usize, Item<'_>)]| Some(self.part(edits.first()?.0, edits, alone));
        Ok(edits.chunk_by(|(one, _), (other, _)| one == other).filter_map(part).collect())
    }

    fn part(&self, slot: usize, edits: &[(usize, Item<'_>)], alone: bool) -> Part {
        let whole = match edits {
            [(_, Item { what: What::Set(value), path, .. })] if path.items().next().is_none() => {
                Some(self.own(value.slice()))
            }
            _ => None,
        };
        let text = if alone {
            self.text.clone()
        } else {
            let texts: Vec<&[u8]> = edits.iter().map(|(_, item)| &*item.text).collect();
            [b"[", &texts.join(&b","[..])[..], b"]"].concat().into()
        };
        Part { slot, text, whole }
    }

    /// Copies a small part of the text, so that it does not keep the whole text in memory.
    fn own(&self, part: Bytes) -> Bytes {
        if part.len() * 2 < self.text.len() { Bytes::copy_from_slice(&part) } else { part }
    }

    /// Applies a change set of a single cell, atomically.
    pub(crate) fn apply(&self, root: &mut Option<Node>) -> Result<Vec<Undo>, Refused> {
        self.apply_within(root, &mut Effort::new(Effort::UNLIMITED))
    }

    /// Like [`Changes::apply`], with limited work.
    pub(crate) fn apply_within(
        &self,
        root: &mut Option<Node>,
        effort: &mut Effort,
    ) -> Result<Vec<Undo>, Refused> {
        let mut undos = Vec::new();
        for (number, item) in self.items().enumerate() {
            let made = item.and_then(|item| {
                let path =
                    item.path.items().map(step).collect::<Option<_>>().ok_or(Refused::NoEdit(number))?;
                item.what.make(root, path, effort).map_err(|misfit| Refused::Misfit(number, misfit))
            });
            match made {
                Ok(undo) => undos.push(undo),
                Err(refused) => {
                    tree::take_back(root, undos);
                    return Err(refused);
                }
            }
        }
        Ok(undos)
    }
}

impl<'a> Item<'a> {
    fn read(node: json::JsonNode<'a>) -> Option<Self> {
        let mut parts = node.items();
        let slot = match parts.next()?.number()? {
            JsonNumber::Unsigned(slot) => slot,
            _ => return None,
        };
        let path = parts.next().filter(|path| path.kind() == ValueKind::Array)?;
        let what = match (parts.next(), parts.next()) {
            (None, _) => What::Delete,
            (Some(value), None) => What::Set(value),
            (Some(count), Some(values)) if values.kind() == ValueKind::Array => {
                What::Splice(number(count)?, values)
            }
            _ => return None,
        };
        parts.next().is_none().then(|| Self { slot, path, what, text: node.slice() })
    }
}

impl What<'_> {
    fn make(self, root: &mut Option<Node>, path: Vec<Step>, effort: &mut Effort) -> Result<Undo, Misfit> {
        match self {
            Self::Delete => tree::edit(root, path, None, 0, effort),
            Self::Set(value) => {
                let (node, depth) = Node::read(value);
                tree::edit(root, path, Some(node), depth, effort)
            }
            Self::Splice(count, values) => {
                let (values, depths): (Vec<Node>, Vec<usize>) = values.items().map(Node::read).unzip();
                let depth = depths.into_iter().max().unwrap_or_default();
                tree::splice(root, path, count, values, depth, effort)
            }
        }
    }
}

fn step(node: json::JsonNode<'_>) -> Option<Step> {
    match node.kind() {
        ValueKind::String => Some(Step::Member(node.text().into())),
        _ => number(node).map(Step::Item),
    }
}

fn number(node: json::JsonNode<'_>) -> Option<usize> {
    match node.number()? {
        JsonNumber::Unsigned(number) => usize::try_from(number).ok(),
        _ => None,
    }
}

/// Builds the tree of a value with subsequent change sets applied. The index of a value takes at most eight
/// times its text, and is dropped together with each text.
pub(crate) fn tree<'a>(
    value: Option<&Bytes>,
    changes: impl Iterator<Item = &'a Bytes>,
) -> Result<Option<Node>, Refused> {
    let document = value.cloned().map(JsonDocument::new).transpose()?;
    let mut root = document.map(|document| Node::read(document.root()).0);
    for text in changes {
        Changes::stored(text)?.apply(&mut root)?;
    }
    Ok(root)
}
