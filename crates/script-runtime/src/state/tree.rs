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
const LENGTH: &[u8] = b"\"length\"";

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
    was: PreviousValue,
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
    Fewer(usize),
    /// The removed tail of the array at the path.
    More(Vec<StateValue>),
    /// The items that were replaced from the last step on, and the number of items that replaced them.
    Items(Vec<StateValue>, usize),
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
    pub(crate) const SHORT: usize = 16 << 10;

    pub(crate) fn new(units: usize) -> Self {
        Self(units)
    }

    /// Takes units.
    ///
    /// # Errors
    /// [`EditError::Long`] if not as many are left.
    pub(crate) fn spend(&mut self, units: usize) -> Result<(), EditError> {
        self.0 = self.0.checked_sub(units).ok_or(EditError::Long)?;
        Ok(())
    }

    /// Takes a unit for each value in this one, which is removed.
    fn visit(&mut self, node: &StateValue) -> Result<(), EditError> {
        self.spend(1)?;
        match node {
            StateValue::Short(_) | StateValue::Long(_) => Ok(()),
            StateValue::Array(items) => items.iter().try_for_each(|item| self.visit(item)),
            StateValue::Object(object) => object.values().try_for_each(|value| self.visit(value)),
        }
    }

    /// Takes the units for `added` entries more. If there is no room for them, all entries move.
    fn grow(&mut self, len: usize, added: usize, capacity: usize) -> Result<(), EditError> {
        if len + added > capacity { self.spend(4 * len) } else { Ok(()) }
    }
}

/// The reason why an edit cannot be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EditError {
    #[error("there is nothing at its path")]
    NoSuchPlace,
    #[error("an item is set beyond the end of its array, which would leave a hole")]
    Hole,
    #[error("an item of an array is deleted, which would leave a hole")]
    Deleted,
    #[error("an array gets an invalid `length`, or one that would make it grow")]
    Grown,
    #[error("more items are taken out of an array than there are")]
    Fewer,
    #[error("a value would be nested more than {DEPTH} levels deep")]
    TooDeep,
    /// May fit, but takes more work than allowed.
    #[error("it takes long")]
    Long,
}

impl StateValue {
    /// Builds the tree of a value; returns it with its nesting depth. The text is valid, so its depth is
    /// limited.
    pub(crate) fn read(node: json::JsonNode<'_>) -> (Self, usize) {
        let mut deepest = 0;
        let mut deeper = |(node, depth): (Self, usize)| {
            deepest = deepest.max(depth);
            node
        };
        match node.kind() {
            ValueKind::Array => {
                let mut items: Vec<Self> = Vec::with_capacity(node.count());
                items.extend(node.items().map(|item| deeper(Self::read(item))));
                (Self::Array(items), deepest + 1)
            }
            ValueKind::Object => {
                let mut object = StateObject::default();
                for (name, value) in node.members() {
                    object.set(name.node().text(), deeper(Self::read(value)));
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
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Short(text) => out.extend_from_slice(text.text()),
            Self::Long(text) => out.extend_from_slice(text),
            Self::Array(items) => {
                out.push(b'[');
                for (number, item) in items.iter().enumerate() {
                    if number > 0 {
                        out.push(b',');
                    }
                    item.write(out);
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
                    value.write(out);
                }
                out.push(b'}');
            }
        }
    }

    /// The length of its JSON text.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Short(text) => text.text().len(),
            Self::Long(text) => text.len(),
            Self::Array(items) => 2 + sizes(items) + commas(items.len()),
            // Each member has a colon.
            Self::Object(object) => 2 + object.size() + object.len() + commas(object.len()),
        }
    }

    /// Returns the value as an integer.
    fn index(&self) -> Option<usize> {
        match self {
            Self::Short(text) => std::str::from_utf8(text.text()).ok()?.parse().ok(),
            _ => None,
        }
    }

    /// Returns the value at a path below this one.
    fn at(&mut self, path: &[TreeStep]) -> Option<&mut Self> {
        path.iter().try_fold(self, |node, step| match (node, step) {
            (Self::Array(items), TreeStep::Item(index)) => items.get_mut(*index),
            (Self::Object(object), TreeStep::Member(name)) => object.get_mut(name),
            _ => None,
        })
    }
}

/// The total length of values as JSON text, without separators.
fn sizes(nodes: &[StateValue]) -> usize {
    nodes.iter().map(StateValue::size).sum()
}

/// The number of commas between this number of entries.
fn commas(entries: usize) -> usize {
    entries.saturating_sub(1)
}

/// Sets the value at a path, or deletes it if `set` is `None`. `depth` is the nesting depth of the new value.
pub(crate) fn edit(
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
        root.iter().try_for_each(|root| effort.visit(root))?;
        let size = |node: Option<&StateValue>| node.map_or(0, StateValue::size);
        let change = SizeChange { added: size(set.as_ref()), removed: size(root.as_ref()) };
        return Ok(EditUndo { path, was: PreviousValue::Root(std::mem::replace(root, set)), change });
    };
    let place = root.as_mut().and_then(|root| root.at(above)).ok_or(EditError::NoSuchPlace)?;
    let (was, change) = match (place, last, set) {
        (StateValue::Array(items), TreeStep::Item(index), Some(node)) if *index == items.len() => {
            effort.grow(items.len(), 1, items.capacity())?;
            let change = SizeChange { added: node.size() + usize::from(*index > 0), removed: 0 };
            items.push(node);
            return Ok(EditUndo { was: PreviousValue::Fewer(*index), path: above.to_vec(), change });
        }
        (StateValue::Array(items), TreeStep::Item(index), Some(node)) => {
            let item = items.get_mut(*index).ok_or(EditError::Hole)?;
            effort.visit(item)?;
            let change = SizeChange { added: node.size(), removed: item.size() };
            (PreviousValue::Item(std::mem::replace(item, node)), change)
        }
        (StateValue::Array(items), TreeStep::Member(name), Some(len)) if **name == *LENGTH => {
            let len = len.index().filter(|len| *len <= items.len()).ok_or(EditError::Grown)?;
            let before = items.len();
            items.iter().skip(len).try_for_each(|item| effort.visit(item))?;
            let more = items.split_off(len);
            let change = SizeChange { added: commas(len), removed: sizes(&more) + commas(before) };
            return Ok(EditUndo { was: PreviousValue::More(more), path: above.to_vec(), change });
        }
        (StateValue::Array(_), TreeStep::Item(_), None) => return Err(EditError::Deleted),
        (StateValue::Object(object), TreeStep::Member(name), Some(node)) => {
            let (size, before) = (node.size(), object.len());
            match object.get_mut(name) {
                Some(was) => effort.visit(was)?,
                None => effort.grow(before, 1, object.capacity())?,
            }
            let was = object.set(name, node);
            let change = match &was {
                Some((_, was)) => SizeChange { added: size, removed: was.size() },
                None => SizeChange { added: name.len() + 1 + size + usize::from(before > 0), removed: 0 },
            };
            (PreviousValue::Member(was), change)
        }
        (StateValue::Object(object), TreeStep::Member(name), None) => {
            object.get_mut(name).map_or(Ok(()), |was| effort.visit(was))?;
            let was = object.remove(name);
            let removed = was
                .as_ref()
                .map_or(0, |(_, node)| name.len() + 1 + node.size() + usize::from(object.len() > 0));
            (PreviousValue::Member(was), SizeChange { added: 0, removed })
        }
        _ => return Err(EditError::NoSuchPlace),
    };
    Ok(EditUndo { path, was, change })
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
    let Some((TreeStep::Item(first), above)) = path.split_last() else { return Err(EditError::NoSuchPlace) };
    let place = root.as_mut().and_then(|root| root.at(above));
    let Some(StateValue::Array(items)) = place else { return Err(EditError::NoSuchPlace) };
    let end = first.checked_add(count).filter(|end| *end <= items.len()).ok_or(EditError::Fewer)?;
    let added = values.len();
    items.iter().skip(*first).take(count).try_for_each(|item| effort.visit(item))?;
    if added != count {
        effort.spend((items.len() - end) / 2)?;
        effort.grow(items.len(), added.saturating_sub(count), items.capacity())?;
    }
    let (size, before) = (sizes(&values), items.len());
    let were: Vec<StateValue> = items.splice(*first..end, values).collect();
    let change = SizeChange { added: size + commas(items.len()), removed: sizes(&were) + commas(before) };
    Ok(EditUndo { path, was: PreviousValue::Items(were, added), change })
}

/// Undoes edits, the last one first. They must be those that produced this value.
pub(crate) fn take_back(root: &mut Option<StateValue>, undos: Vec<EditUndo>) {
    for EditUndo { mut path, was, .. } in undos.into_iter().rev() {
        let was = match was {
            PreviousValue::Root(node) => {
                *root = node;
                continue;
            }
            PreviousValue::Fewer(_) | PreviousValue::More(_) => (was, None),
            PreviousValue::Item(_) | PreviousValue::Member(_) | PreviousValue::Items(..) => (was, path.pop()),
        };
        match (was, root.as_mut().and_then(|root| root.at(&path))) {
            ((PreviousValue::Fewer(len), _), Some(StateValue::Array(items))) => items.truncate(len),
            ((PreviousValue::More(mut more), _), Some(StateValue::Array(items))) => items.append(&mut more),
            ((PreviousValue::Item(node), Some(TreeStep::Item(index))), Some(StateValue::Array(items))) => {
                if let Some(item) = items.get_mut(index) {
                    *item = node;
                }
            }
            (
                (PreviousValue::Items(were, added), Some(TreeStep::Item(first))),
                Some(StateValue::Array(items)),
            ) if first + added <= items.len() => {
                items.splice(first..first + added, were);
            }
            (
                (PreviousValue::Member(was), Some(TreeStep::Member(name))),
                Some(StateValue::Object(object)),
            ) => {
                object.put_back(&name, was);
            }
            _ => {}
        }
    }
}
