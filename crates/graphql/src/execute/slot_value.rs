//! The value of a slot: a location in a document. Further values are reached from there.

use json::{JsonNode, ValueKind};

use crate::fetch::outcome::ValueLocation;
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
