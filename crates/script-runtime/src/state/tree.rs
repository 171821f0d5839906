//! The value of a cell as a tree, so that the cost of a change is proportional to the change.
//!
//! Scalars keep the worker's spelling: numbers are never rounded, strings never decoded, and unpaired
//! surrogates, which JavaScript allows, are preserved. Engines spell equal strings alike (ECMAScript defines
//! how), so member names are compared by their spelling.
//!
//! Each edit can be undone: a change set that fails halfway has no effect, and the value of the last durable
//! version can be derived from the last finished one. Members have sequence numbers, which restore their
//! order as well.

use std::iter::Sum;

use json::ValueKind;

use super::object::StateObject;

/// The maximum nesting of values, as in `json`.
pub(crate) const DEPTH: usize = json::DEPTH;

/// The step to an array's length.
const LENGTH_STEP: &[u8] = b"\"length\"";

/// A value.
#[derive(Clone, Debug)]
pub(crate) enum StateValue {
    /// A scalar with a short text.
    Short(ShortText),
    /// A scalar.
    Long(Box<[u8]>),
    Array(Vec<StateValue>),
    Object(Box<StateObject>),
}

const _: () = assert!(size_of::<StateValue>() == 24, "an array of numbers takes 24 bytes for each");

/// A short text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShortText {
    len: u8,
    bytes: [u8; 15],
}

impl ShortText {
    fn new(text: &[u8]) -> Option<Self> {
        let mut bytes = [0; 15];
        bytes.get_mut(..text.len())?.copy_from_slice(text);
        Some(Self { len: u8::try_from(text.len()).ok()?, bytes })
    }

    fn text(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

/// A step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TreeStep {
    Item(usize),
    /// As spelled in JSON, with quotes.
    Member(Box<[u8]>),
}

/// The undo step of an edit: its path and the previous value.
#[derive(Debug)]
pub(crate) struct EditUndo {
    path: Vec<TreeStep>,
    previous: PreviousValue,
    change: SizeChange,
}

impl EditUndo {
    /// The effect of the edit on the length of the value's text.
    pub(crate) fn size_change(&self) -> SizeChange {
        self.change
    }
}

/// The number of bytes that an edit added to and removed from a value's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SizeChange {
    added: usize,
    removed: usize,
}

impl SizeChange {
    /// Returns the length after the edit.
    pub(crate) fn apply(self, size: usize) -> usize {
        (size + self.added).saturating_sub(self.removed)
    }

    /// The number of removed bytes.
    pub(crate) fn removed(self) -> usize {
        self.removed
    }

    /// Returns the length before the edit.
    pub(crate) fn revert(self, size: usize) -> usize {
        (size + self.removed).saturating_sub(self.added)
    }
}

impl Sum for SizeChange {
    fn sum<I: Iterator<Item = Self>>(changes: I) -> Self {
        changes.fold(Self::default(), |sum, change| Self {
            added: sum.added + change.added,
            removed: sum.removed + change.removed,
        })
    }
}

#[derive(Debug)]
enum PreviousValue {
    /// The whole value.
    Root(Option<StateValue>),
    /// The item at the last step of the path.
    Item(StateValue),
    /// The previous length of the array at the path, which has grown.
    Appended(usize),
    /// The removed tail of the array at the path.
    Truncated(Vec<StateValue>),
    /// The items that were replaced from the last step on, and the number of items that replaced them.
    Spliced(Vec<StateValue>, usize),
    /// The member at the last step of the path, with its sequence number; `None` if it did not exist.
    Member(Option<(u64, StateValue)>),
}

/// The work that may still be done for a change set: a unit takes some nanoseconds. The text of a change set
/// limits only the work on new values; a short one can remove large values, or move the items of an array.
#[derive(Debug)]
pub(crate) struct WorkAllowance(usize);

impl WorkAllowance {
    pub(crate) const UNLIMITED: usize = usize::MAX;
    /// The work that does not keep a serving thread: some tenths of a millisecond.
    pub(crate) const SERVING_LIMIT: usize = 16 << 10;

    pub(crate) fn new(units: usize) -> Self {
        Self(units)
    }

    /// Takes units.
    ///
    /// # Errors
    /// [`EditError::OverAllowance`] if not as many are left.
    pub(crate) fn spend(&mut self, units: usize) -> Result<(), EditError> {
        self.0 = self.0.checked_sub(units).ok_or(EditError::OverAllowance)?;
        Ok(())
    }

    /// Takes a unit for each value in this one, which is removed.
    fn spend_visit(&mut self, node: &StateValue) -> Result<(), EditError> {
        self.spend(1)?;
        match node {
            StateValue::Short(_) | StateValue::Long(_) => Ok(()),
            StateValue::Array(items) => items.iter().try_for_each(|item| self.spend_visit(item)),
            StateValue::Object(object) => object.values().try_for_each(|value| self.spend_visit(value)),
        }
    }

    /// Takes the units for `added` entries more. If there is no room for them, all entries move.
    fn spend_growth(&mut self, len: usize, added: usize, capacity: usize) -> Result<(), EditError> {
        if len + added > capacity { self.spend(4 * len) } else { Ok(()) }
    }
}

/// The reason why an edit cannot be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EditError {
    #[error("there is nothing at its path")]
    PathNotFound,
    #[error("an item is set beyond the end of its array, which would leave a hole")]
    Hole,
    #[error("an item of an array is deleted, which would leave a hole")]
    ItemDeleted,
    #[error("an array gets an invalid `length`, or one that would make it grow")]
    LengthGrown,
    #[error("more items are taken out of an array than there are")]
    TooFewItems,
    #[error("a value would be nested more than {DEPTH} levels deep")]
    TooDeep,
    /// May fit, but takes more work than allowed.
    #[error("it takes long")]
    OverAllowance,
}

impl StateValue {
    /// Builds the tree of a value; returns it with its nesting depth. The text is valid, so its depth is
    /// limited.
    pub(crate) fn from_json(node: json::JsonNode<'_>) -> (Self, usize) {
        let mut deepest = 0;
        let mut deeper = |(node, depth): (Self, usize)| {
            deepest = deepest.max(depth);
            node
        };
        match node.kind() {
            ValueKind::Array => {
                let mut items: Vec<Self> = Vec::with_capacity(node.count());
                items.extend(node.items().map(|item| deeper(Self::from_json(item))));
                (Self::Array(items), deepest + 1)
            }
            ValueKind::Object => {
                let mut object = StateObject::default();
                for (name, value) in node.members() {
                    object.set(name.node().text(), deeper(Self::from_json(value)));
                }
                (Self::Object(Box::new(object)), deepest + 1)
            }
            _ => (Self::scalar(node.text()), 0),
        }
    }

    fn scalar(text: &[u8]) -> Self {
        ShortText::new(text).map_or_else(|| Self::Long(text.into()), Self::Short)
    }

    /// Writes the value as JSON text.
    pub(crate) fn write_json(&self, out: &mut Vec<u8>) {
        match self {
            Self::Short(text) => out.extend_from_slice(text.text()),
            Self::Long(text) => out.extend_from_slice(text),
            Self::Array(items) => {
                out.push(b'[');
                for (number, item) in items.iter().enumerate() {
                    if number > 0 {
                        out.push(b',');
                    }
                    item.write_json(out);
                }
                out.push(b']');
            }
            Self::Object(object) => {
                out.push(b'{');
                for (number, (name, value)) in object.members().enumerate() {
                    if number > 0 {
                        out.push(b',');
                    }
                    out.extend_from_slice(name);
                    out.push(b':');
                    value.write_json(out);
                }
                out.push(b'}');
            }
        }
    }

    /// The length of its JSON text.
    pub(crate) fn text_size(&self) -> usize {
        match self {
            Self::Short(text) => text.text().len(),
            Self::Long(text) => text.len(),
            Self::Array(items) => 2 + total_text_size(items) + comma_count(items.len()),
            // Each member has a colon.
            Self::Object(object) => 2 + object.text_size() + object.len() + comma_count(object.len()),
        }
    }

    /// Returns the value as an integer.
    fn as_index(&self) -> Option<usize> {
        match self {
            Self::Short(text) => std::str::from_utf8(text.text()).ok()?.parse().ok(),
            _ => None,
        }
    }

    /// Returns the value at a path below this one.
    fn get_path(&mut self, path: &[TreeStep]) -> Option<&mut Self> {
        path.iter().try_fold(self, |node, step| match (node, step) {
            (Self::Array(items), TreeStep::Item(index)) => items.get_mut(*index),
            (Self::Object(object), TreeStep::Member(name)) => object.get_mut(name),
            _ => None,
        })
    }
}

/// The total length of values as JSON text, without separators.
fn total_text_size(nodes: &[StateValue]) -> usize {
    nodes.iter().map(StateValue::text_size).sum()
}

/// The number of commas between this number of entries.
fn comma_count(entries: usize) -> usize {
    entries.saturating_sub(1)
}

/// Sets the value at a path, or deletes it if `set` is `None`. `depth` is the nesting depth of the new value.
pub(crate) fn apply_edit(
    root: &mut Option<StateValue>,
    path: Vec<TreeStep>,
    set: Option<StateValue>,
    depth: usize,
    effort: &mut WorkAllowance,
) -> Result<EditUndo, EditError> {
    if path.len() + depth > DEPTH {
        return Err(EditError::TooDeep);
    }
    let Some((last, above)) = path.split_last() else {
        root.iter().try_for_each(|root| effort.spend_visit(root))?;
        let size = |node: Option<&StateValue>| node.map_or(0, StateValue::text_size);
        let change = SizeChange { added: size(set.as_ref()), removed: size(root.as_ref()) };
        return Ok(EditUndo { path, previous: PreviousValue::Root(std::mem::replace(root, set)), change });
    };
    let value = root.as_mut().and_then(|root| root.get_path(above)).ok_or(EditError::PathNotFound)?;
    let (was, change) = match (value, last, set) {
        (StateValue::Array(items), TreeStep::Item(index), Some(node)) if *index == items.len() => {
            effort.spend_growth(items.len(), 1, items.capacity())?;
            let change = SizeChange { added: node.text_size() + usize::from(*index > 0), removed: 0 };
            items.push(node);
            return Ok(EditUndo { previous: PreviousValue::Appended(*index), path: above.to_vec(), change });
        }
        (StateValue::Array(items), TreeStep::Item(index), Some(node)) => {
            let item = items.get_mut(*index).ok_or(EditError::Hole)?;
            effort.spend_visit(item)?;
            let change = SizeChange { added: node.text_size(), removed: item.text_size() };
            (PreviousValue::Item(std::mem::replace(item, node)), change)
        }
        (StateValue::Array(items), TreeStep::Member(name), Some(len)) if **name == *LENGTH_STEP => {
            let len = len.as_index().filter(|len| *len <= items.len()).ok_or(EditError::LengthGrown)?;
            let before = items.len();
            items.iter().skip(len).try_for_each(|item| effort.spend_visit(item))?;
            let more = items.split_off(len);
            let change =
                SizeChange { added: comma_count(len), removed: total_text_size(&more) + comma_count(before) };
            return Ok(EditUndo { previous: PreviousValue::Truncated(more), path: above.to_vec(), change });
        }
        (StateValue::Array(_), TreeStep::Item(_), None) => return Err(EditError::ItemDeleted),
        (StateValue::Object(object), TreeStep::Member(name), Some(node)) => {
            let (size, before) = (node.text_size(), object.len());
            match object.get_mut(name) {
                Some(was) => effort.spend_visit(was)?,
                None => effort.spend_growth(before, 1, object.capacity())?,
            }
            let was = object.set(name, node);
            let change = match &was {
                Some((_, was)) => SizeChange { added: size, removed: was.text_size() },
                None => SizeChange { added: name.len() + 1 + size + usize::from(before > 0), removed: 0 },
            };
            (PreviousValue::Member(was), change)
        }
        (StateValue::Object(object), TreeStep::Member(name), None) => {
            object.get_mut(name).map_or(Ok(()), |was| effort.spend_visit(was))?;
            let was = object.remove(name);
            let removed = was
                .as_ref()
                .map_or(0, |(_, node)| name.len() + 1 + node.text_size() + usize::from(object.len() > 0));
            (PreviousValue::Member(was), SizeChange { added: 0, removed })
        }
        _ => return Err(EditError::PathNotFound),
    };
    Ok(EditUndo { path, previous: was, change })
}

/// Replaces `count` items of an array by values, starting at the item at a path. `depth` is the maximum
/// nesting depth of the values.
pub(crate) fn splice(
    root: &mut Option<StateValue>,
    path: Vec<TreeStep>,
    count: usize,
    values: Vec<StateValue>,
    depth: usize,
    effort: &mut WorkAllowance,
) -> Result<EditUndo, EditError> {
    if path.len() + depth > DEPTH {
        return Err(EditError::TooDeep);
    }
    let Some((TreeStep::Item(first), above)) = path.split_last() else { return Err(EditError::PathNotFound) };
    let value = root.as_mut().and_then(|root| root.get_path(above));
    let Some(StateValue::Array(items)) = value else { return Err(EditError::PathNotFound) };
    let end = first.checked_add(count).filter(|end| *end <= items.len()).ok_or(EditError::TooFewItems)?;
    let added = values.len();
    items.iter().skip(*first).take(count).try_for_each(|item| effort.spend_visit(item))?;
    if added != count {
        effort.spend((items.len() - end) / 2)?;
        effort.spend_growth(items.len(), added.saturating_sub(count), items.capacity())?;
    }
    let (size, before) = (total_text_size(&values), items.len());
    let were: Vec<StateValue> = items.splice(*first..end, values).collect();
    let change = SizeChange {
        added: size + comma_count(items.len()),
        removed: total_text_size(&were) + comma_count(before),
    };
    Ok(EditUndo { path, previous: PreviousValue::Spliced(were, added), change })
}

/// Undoes edits, the last one first. They must be those that produced this value.
pub(crate) fn undo_edits(root: &mut Option<StateValue>, undos: Vec<EditUndo>) {
    for EditUndo { mut path, previous: was, .. } in undos.into_iter().rev() {
        let was = match was {
            PreviousValue::Root(node) => {
                *root = node;
                continue;
            }
            PreviousValue::Appended(_) | PreviousValue::Truncated(_) => (was, None),
            PreviousValue::Item(_) | PreviousValue::Member(_) | PreviousValue::Spliced(..) => {
                (was, path.pop())
            }
        };
        match (was, root.as_mut().and_then(|root| root.get_path(&path))) {
            ((PreviousValue::Appended(len), _), Some(StateValue::Array(items))) => items.truncate(len),
            ((PreviousValue::Truncated(mut more), _), Some(StateValue::Array(items))) => {
                items.append(&mut more)
            }
            ((PreviousValue::Item(node), Some(TreeStep::Item(index))), Some(StateValue::Array(items))) => {
                if let Some(item) = items.get_mut(index) {
                    *item = node;
                }
            }
            (
                (PreviousValue::Spliced(were, added), Some(TreeStep::Item(first))),
                Some(StateValue::Array(items)),
            ) if first + added <= items.len() => {
                items.splice(first..first + added, were);
            }
            (
                (PreviousValue::Member(was), Some(TreeStep::Member(name))),
                Some(StateValue::Object(object)),
            ) => {
                object.restore(&name, was);
            }
            _ => {}
        }
    }
}
