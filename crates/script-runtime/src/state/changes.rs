//! A run's change set: JSON text, an array of edits in order, each of one of the run's slots.
//!
//! `[slot, [steps…], value]` sets, `[slot, [steps…]]` deletes; a step is the index of an item or the name of
//! a member, and the last one may be `"length"` of an array, which truncates it. `[slot, [steps…], count,
//! [values…]]` replaces `count` items, starting at the item of the last step, by the values. The store and
//! other workers receive the text of the edits unchanged; here it is only validated and split by cell.

use bytes::Bytes;
use json::{JsonDocument, JsonNumber, ValueKind};

use super::tree::{self, EditError, EditUndo, StateValue, TreeStep, WorkAllowance};
use crate::frame::json_index::build_index;

/// The reason why a change set is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChangeSetError {
    #[error("{0}")]
    NotJson(#[from] json::JsonError),
    #[error("edit {0} is not `[slot, path]`, `[slot, path, value]` or `[slot, path, count, values]`")]
    InvalidEdit(usize),
    #[error("edit {0} is for slot {1}, which the run does not have")]
    UnknownSlot(usize, u64),
    #[error("edit {0} does not fit: {1}")]
    Misfit(usize, EditError),
}

impl ChangeSetError {
    /// Whether it is refused only because it takes more work than allowed.
    pub(crate) fn is_over_allowance(self) -> bool {
        matches!(self, Self::Misfit(_, EditError::OverAllowance))
    }
}

/// A parsed change set.
#[derive(Debug)]
pub(crate) struct ChangeSet {
    text: Bytes,
    document: Option<JsonDocument>,
}

/// The edits of one cell.
#[derive(Debug)]
pub(crate) struct CellEdits {
    pub(crate) slot: usize,
    /// The edits as a change set of their own.
    pub(crate) text: Bytes,
    /// The cell's new value, if the only edit sets the whole value.
    pub(crate) replacement: Option<Bytes>,
}

/// A parsed edit.
struct CellEdit<'a> {
    slot: u64,
    path: json::JsonNode<'a>,
    operation: EditOperation<'a>,
    text: Bytes,
}

/// The operation of an edit.
#[derive(Clone, Copy)]
enum EditOperation<'a> {
    Delete,
    Set(json::JsonNode<'a>),
    /// Replaces this number of items by the values.
    Splice(usize, json::JsonNode<'a>),
}

impl ChangeSet {
    /// Parses a change set from a worker. An empty text is a change set without edits.
    pub(crate) fn parse(text: &Bytes) -> Result<Self, ChangeSetError> {
        Self::parse_with(text, build_index)
    }

    /// Parses a change set from the store. It was accepted before, so it must be readable whatever the size
    /// of its index.
    fn parse_stored(text: &Bytes) -> Result<Self, ChangeSetError> {
        Self::parse_with(text, JsonDocument::new)
    }

    fn parse_with(
        text: &Bytes,
        index: fn(Bytes) -> Result<JsonDocument, json::JsonError>,
    ) -> Result<Self, ChangeSetError> {
        let document = if text.is_empty() { None } else { Some(index(text.clone())?) };
        if document.as_ref().is_some_and(|document| document.root().kind() != ValueKind::Array) {
            return Err(ChangeSetError::InvalidEdit(0));
        }
        Ok(Self { text: text.clone(), document })
    }

    fn edits(&self) -> impl Iterator<Item = Result<CellEdit<'_>, ChangeSetError>> {
        let root = self.document.as_ref().map(JsonDocument::root);
        let items = root.into_iter().flat_map(json::JsonNode::items);
        items
            .enumerate()
            .map(|(number, item)| CellEdit::parse(item).ok_or(ChangeSetError::InvalidEdit(number)))
    }

    /// Splits the change set by slot, in ascending order; each slot must be less than `slots`.
    pub(crate) fn split_by_slot(&self, slots: usize) -> Result<Vec<CellEdits>, ChangeSetError> {
        let mut edits: Vec<(usize, CellEdit<'_>)> = Vec::new();
        for (number, item) in self.edits().enumerate() {
            let item = item?;
            let slot = usize::try_from(item.slot).ok().filter(|slot| *slot < slots);
            edits.push((slot.ok_or(ChangeSetError::UnknownSlot(number, item.slot))?, item));
        }
        let alone = edits.iter().all(|(slot, _)| edits.first().is_some_and(|(first, _)| first == slot));
        edits.sort_by_key(|(slot, _)| *slot);
        let part = |edits: &[(usize, CellEdit<'_>)]| Some(self.build_part(edits.first()?.0, edits, alone));
        Ok(edits.chunk_by(|(one, _), (other, _)| one == other).filter_map(part).collect())
    }

    fn build_part(&self, slot: usize, edits: &[(usize, CellEdit<'_>)], alone: bool) -> CellEdits {
        let whole = match edits {
            [(_, CellEdit { operation: EditOperation::Set(value), path, .. })]
                if path.items().next().is_none() =>
            {
                Some(self.detach(value.slice()))
            }
            _ => None,
        };
        let text = if alone {
            self.text.clone()
        } else {
            let texts: Vec<&[u8]> = edits.iter().map(|(_, item)| &*item.text).collect();
            [b"[", &texts.join(&b","[..])[..], b"]"].concat().into()
        };
        CellEdits { slot, text, replacement: whole }
    }

    /// Copies a small part of the text, so that it does not keep the whole text in memory.
    fn detach(&self, part: Bytes) -> Bytes {
        if part.len() * 2 < self.text.len() { Bytes::copy_from_slice(&part) } else { part }
    }

    /// Applies a change set of a single cell, atomically.
    pub(crate) fn apply(&self, root: &mut Option<StateValue>) -> Result<Vec<EditUndo>, ChangeSetError> {
        self.apply_with_allowance(root, &mut WorkAllowance::new(WorkAllowance::UNLIMITED))
    }

    /// Like [`ChangeSet::apply`], with limited work.
    pub(crate) fn apply_with_allowance(
        &self,
        root: &mut Option<StateValue>,
        effort: &mut WorkAllowance,
    ) -> Result<Vec<EditUndo>, ChangeSetError> {
        let mut undos = Vec::new();
        for (number, item) in self.edits().enumerate() {
            let edit_undo = item.and_then(|item| {
                let path = item
                    .path
                    .items()
                    .map(parse_step)
                    .collect::<Option<_>>()
                    .ok_or(ChangeSetError::InvalidEdit(number))?;
                item.operation
                    .apply(root, path, effort)
                    .map_err(|misfit| ChangeSetError::Misfit(number, misfit))
            });
            match edit_undo {
                Ok(undo) => undos.push(undo),
                Err(refused) => {
                    tree::undo_edits(root, undos);
                    return Err(refused);
                }
            }
        }
        Ok(undos)
    }
}

impl<'a> CellEdit<'a> {
    fn parse(node: json::JsonNode<'a>) -> Option<Self> {
        let mut parts = node.items();
        let slot = match parts.next()?.number()? {
            JsonNumber::Unsigned(slot) => slot,
            _ => return None,
        };
        let path = parts.next().filter(|path| path.kind() == ValueKind::Array)?;
        let edit_operation = match (parts.next(), parts.next()) {
            (None, _) => EditOperation::Delete,
            (Some(value), None) => EditOperation::Set(value),
            (Some(count), Some(values)) if values.kind() == ValueKind::Array => {
                EditOperation::Splice(parse_index(count)?, values)
            }
            _ => return None,
        };
        parts.next().is_none().then(|| Self { slot, path, operation: edit_operation, text: node.slice() })
    }
}

impl EditOperation<'_> {
    fn apply(
        self,
        root: &mut Option<StateValue>,
        path: Vec<TreeStep>,
        effort: &mut WorkAllowance,
    ) -> Result<EditUndo, EditError> {
        match self {
            Self::Delete => tree::apply_edit(root, path, None, 0, effort),
            Self::Set(value) => {
                let (node, depth) = StateValue::from_json(value);
                tree::apply_edit(root, path, Some(node), depth, effort)
            }
            Self::Splice(count, values) => {
                let (values, depths): (Vec<StateValue>, Vec<usize>) =
                    values.items().map(StateValue::from_json).unzip();
                let depth = depths.into_iter().max().unwrap_or_default();
                tree::splice(root, path, count, values, depth, effort)
            }
        }
    }
}

fn parse_step(node: json::JsonNode<'_>) -> Option<TreeStep> {
    match node.kind() {
        ValueKind::String => Some(TreeStep::Member(node.text().into())),
        _ => parse_index(node).map(TreeStep::Item),
    }
}

fn parse_index(node: json::JsonNode<'_>) -> Option<usize> {
    match node.number()? {
        JsonNumber::Unsigned(number) => usize::try_from(number).ok(),
        _ => None,
    }
}

/// Builds the tree of a value with subsequent change sets applied. The index of a value takes at most eight
/// times its text, and is dropped together with each text.
pub(crate) fn build_tree<'a>(
    value: Option<&Bytes>,
    changes: impl Iterator<Item = &'a Bytes>,
) -> Result<Option<StateValue>, ChangeSetError> {
    let document = value.cloned().map(JsonDocument::new).transpose()?;
    let mut root = document.map(|document| StateValue::from_json(document.root()).0);
    for text in changes {
        ChangeSet::parse_stored(text)?.apply(&mut root)?;
    }
    Ok(root)
}
