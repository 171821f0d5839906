//! The value of a slot: a location in a document. Further values are reached from there.

use json::{JsonNode, ValueKind};

use super::run::ExecutionRun;
use crate::ValueLocation;
use crate::plan::data::FieldLookup;

/// The value of a slot.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum SlotValue<'r> {
    #[default]
    Absent,
    /// A value, and the index of the error that was reported with it.
    Node(u32, JsonNode<'r>, Option<u32>),
    Many(&'r [ValueLocation]),
    Failed(u32),
}

impl<'r> SlotValue<'r> {
    /// The location as a single number.
    pub(super) fn location(self) -> Option<u64> {
        match self {
            Self::Node(document, node, _) => Some(u64::from(document) << 32 | node.start() as u64),
            _ => None,
        }
    }

    /// Like [`SlotValue::location`], but with a reserved number for values without a location.
    pub(super) fn location_or_max(self) -> u64 {
        self.location().unwrap_or(u64::MAX)
    }

    pub(super) fn node(self) -> Option<JsonNode<'r>> {
        match self {
            Self::Node(_, node, _) => Some(node),
            _ => None,
        }
    }

    /// Returns the value, or `Absent` if it is `null`.
    pub(super) fn null_as_absent(self) -> Self {
        match self {
            Self::Node(_, node, None) if node.kind() == ValueKind::Null => Self::Absent,
            other => other,
        }
    }

    /// Returns the value without its error, which is reported once, by the enclosing object.
    pub(super) fn without_error(self) -> Self {
        match self {
            Self::Node(document, node, _) => Self::Node(document, node, None).null_as_absent(),
            other => other,
        }
    }

    pub(super) fn is_list(self) -> bool {
        match self {
            Self::Many(_) => true,
            Self::Node(_, node, _) => node.kind() == ValueKind::Array,
            _ => false,
        }
    }
}

/// Reads a field from the value of a slot.
pub(super) fn read_field<'r>(lookup: &FieldLookup, value: SlotValue<'r>) -> SlotValue<'r> {
    match (lookup, value) {
        (FieldLookup::WholeValue, value) => value.without_error(),
        (FieldLookup::Member(name), SlotValue::Node(document, node, _)) => {
            let member = node.member(name.as_bytes()).filter(|member| member.kind() != ValueKind::Null);
            member.map_or(SlotValue::Absent, |member| SlotValue::Node(document, member, None))
        }
        (FieldLookup::Member(_), SlotValue::Failed(error)) => SlotValue::Failed(error),
        (FieldLookup::Member(_), SlotValue::Absent | SlotValue::Many(_)) => SlotValue::Absent,
    }
}

/// An iterator over the lists in a position's slots, item by item.
pub(super) struct SlotLists<'r> {
    run: &'r ExecutionRun<'r>,
    lists: Vec<SlotList<'r>>,
}

enum SlotList<'r> {
    /// A value that is not a list. A failed value is repeated for every item.
    None(SlotValue<'r>),
    Items(u32, json::ArrayItems<'r>),
    Locations(std::slice::Iter<'r, ValueLocation>),
}

impl<'r> SlotLists<'r> {
    /// Returns `None` if none of the values is a list.
    pub(super) fn from_values(run: &'r ExecutionRun<'r>, values: &[SlotValue<'r>]) -> Option<Self> {
        if !values.iter().any(|value| value.is_list()) {
            return None;
        }
        let list = |value: &SlotValue<'r>| match *value {
            SlotValue::Node(document, node, _) if node.kind() == ValueKind::Array => {
                SlotList::Items(document, node.items())
            }
            SlotValue::Many(places) => SlotList::Locations(places.iter()),
            SlotValue::Failed(error) => SlotList::None(SlotValue::Failed(error)),
            _ => SlotList::None(SlotValue::Absent),
        };
        Some(Self { run, lists: values.iter().map(list).collect() })
    }

    /// Sets the values to those of the next item, and returns whether there is one.
    pub(super) fn next(&mut self, values: &mut [SlotValue<'r>]) -> bool {
        let mut is_any = false;
        for (list, value) in self.lists.iter_mut().zip(values) {
            let item = match list {
                SlotList::None(value) => {
                    let value = *value;
                    Some(value).filter(|value| matches!(value, SlotValue::Failed(_)))
                }
                SlotList::Items(document, items) => {
                    let item =
                        items.next().map(|node| SlotValue::Node(*document, node, None).null_as_absent());
                    is_any |= item.is_some();
                    item
                }
                SlotList::Locations(places) => {
                    let item = places.next().map(|place| self.run.item_value(*place).null_as_absent());
                    is_any |= item.is_some();
                    item
                }
            };
            *value = item.unwrap_or_default();
        }
        is_any
    }
}
