//! Lists in the slots of a position, which are read item by item.

use json::ValueKind;

use super::slot_value::SlotValue;
use super::step_results::StepResults;
use crate::fetch::outcome::ValueLocation;

/// An iterator over the lists in a position's slots, item by item.
pub(super) struct SlotLists<'r> {
    results: &'r StepResults,
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
    pub(super) fn from_values(results: &'r StepResults, values: &[SlotValue<'r>]) -> Option<Self> {
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
        Some(Self { results, lists: values.iter().map(list).collect() })
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
                    let item =
                        places.next().map(|location| self.results.item_value(*location).null_as_absent());
                    is_any |= item.is_some();
                    item
                }
            };
            *value = item.unwrap_or_default();
        }
        is_any
    }
}
