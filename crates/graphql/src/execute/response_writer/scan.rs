//! Lookup of the values that are read from an object: one walk over the members of each slot.

use json::ValueKind;

use crate::execute::slot_value::SlotValue;
use crate::plan::shape::ShapeVariant;

/// The maximum number of members whose order is recorded.
const MAX_ORDERED_MEMBERS: usize = 1_000;
/// The number of comparisons that take as long as passing a member whose name is not known by the order.
const PASS_COMPARISONS: usize = 4;

/// The result of a read.
#[derive(Clone, Copy, Default)]
struct ReadResult<'r> {
    value: SlotValue<'r>,
    is_found: bool,
}

/// A scanner of objects' members.
pub(super) struct MemberScanner<'r> {
    /// The values that were found among the members of all objects in progress.
    hits: Vec<ReadResult<'r>>,
    /// By scan: the names of members in the order in which they last occurred, each with its index among the
    /// names searched for.
    member_orders: Vec<Vec<(&'r [u8], Option<usize>)>>,
}

impl<'r> MemberScanner<'r> {
    /// Creates a scanner for a plan with this number of scans.
    pub(super) fn new(scans: usize) -> Self {
        Self { hits: Vec::new(), member_orders: vec![Vec::new(); scans] }
    }

    /// The number of values of the objects in progress, which is the base of the next object's values.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.hits.len()
    }

    /// Discards the values of the objects above this base.
    #[inline]
    pub(super) fn truncate(&mut self, base: usize) {
        self.hits.truncate(base);
    }

    /// Returns the value of a read from the object with this base.
    #[inline]
    pub(super) fn value(&self, base: usize, read: usize) -> SlotValue<'r> {
        self.hits[base + read].value
    }

    /// Finds the values that are read from an object, and appends them. Returns the number of steps that this
    /// counts as.
    pub(super) fn scan(&mut self, variant: &'r ShapeVariant, values: &[SlotValue<'r>]) -> usize {
        let mut steps = 0;
        let base = self.hits.len();
        self.hits.resize(base + variant.read_count, ReadResult::default());
        for scan in &variant.scans {
            let hits = &mut self.hits[base..];
            let (document, node) = match values[scan.slot] {
                SlotValue::Node(document, node, _) => (document, node),
                failed @ SlotValue::Failed(_) => {
                    let numbers = scan.names.values().flatten();
                    numbers.for_each(|number| hits[*number].value = failed);
                    continue;
                }
                SlotValue::Absent | SlotValue::Many(_) => continue,
            };
            let order = &mut self.member_orders[scan.number];
            let (mut left, mut place, mut compared) = (scan.names.len(), 0, 0);
            let mut members = node.members();
            while left > 0
                && let Some((key, value)) = members.next()
            {
                // Objects of one kind usually have their members in the same order.
                let known = order.get(place).filter(|(name, _)| key.equals(name)).map(|(_, found)| *found);
                let found = known.unwrap_or_else(|| {
                    compared += PASS_COMPARISONS + scan.comparisons();
                    let found = scan.find(key);
                    let text = key.node().text();
                    let name = text.get(1..text.len() - 1).filter(|name| !name.contains(&b'\\'));
                    let entry = (name.unwrap_or_default(), found);
                    match order.get_mut(place) {
                        Some(known) => *known = entry,
                        None if place < MAX_ORDERED_MEMBERS => order.push(entry),
                        None => {}
                    }
                    found
                });
                place += 1;
                let Some(found) = found else { continue };
                let Some((_, numbers)) = scan.names.get_index(found) else { continue };
                // The first of several equal names counts.
                if numbers.first().is_some_and(|first| hits[*first].is_found) {
                    continue;
                }
                left -= 1;
                let is_null = value.kind() == ValueKind::Null;
                let value = if is_null { SlotValue::Absent } else { SlotValue::Node(document, value, None) };
                numbers.iter().for_each(|number| hits[*number] = ReadResult { value, is_found: true });
            }
            // A comparison takes a fraction of the time of writing a field.
            steps += compared / 16;
        }
        steps
    }
}
