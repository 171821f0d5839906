//! Collection of the objects that a step is executed for, and of the input that it needs from each. Equal
//! inputs are requested once.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;
use foldhash::fast::RandomState;
use json::{JsonNode, ValueKind};

use super::object_index::ObjectIndex;
use super::run::ExecutionRun;
use super::slot_value::{SlotLists, SlotValue, read_field};
use super::step_executor::{KeyRows, StepRequest};
use crate::plan::data::{
    EntityRepresentation, GroupPath, GroupPathLevel, ObjectGroup, PlanStep, PositionId, RepresentationValue,
    StepInput, allows_type,
};
use crate::plan::types::TypeId;

/// The objects of a group.
#[derive(Debug)]
pub(crate) struct GatheredObjects {
    /// The index of each object's result within the group, by the locations of the key slots.
    pub(super) result_index: ObjectIndex,
    /// The range of this group's results within all results of the step.
    pub(super) range: Range<usize>,
}

/// The error of a walk that has visited its maximum number of objects.
#[derive(Clone, Copy, Debug)]
pub(super) struct TooManyVisits;

/// The number of objects that a walk may still visit.
struct VisitAllowance(Cell<usize>);

/// The number of bytes of an input that count as a further object.
const BYTES_PER_VISIT: usize = 256;

impl VisitAllowance {
    /// Counts objects that are visited.
    fn count(&self, visits: usize) {
        self.0.set(self.0.get().saturating_sub(visits));
    }

    /// Checks that the maximum is not reached.
    fn check(&self) -> Result<(), TooManyVisits> {
        if self.0.get() == 0 { Err(TooManyVisits) } else { Ok(()) }
    }
}

/// The inputs that were already requested, by their JSON text. The text comes from services, so the hash is
/// seeded.
type RequestedInputs<'r> = HashMap<Cow<'r, [u8]>, u32, RandomState>;

impl ExecutionRun<'_> {
    /// Collects the objects of a step and adds their inputs to the request; `None` if nothing has to be
    /// requested. Also returns the number of visited objects, which is less than `most`.
    pub(super) fn gather(
        &self,
        step: &PlanStep,
        asked: &mut StepRequest,
        most: usize,
    ) -> Result<(usize, Option<Vec<GatheredObjects>>), TooManyVisits> {
        let visits = VisitAllowance(Cell::new(most));
        let mut gathered = Vec::new();
        asked.keys = KeyRows::default();
        // Groups with the same alias share one batch.
        let batches = step.groups.iter().map(|group| group.batch + 1).max().unwrap_or(1);
        let mut known: Vec<RequestedInputs<'_>> = (0..batches).map(|_| RequestedInputs::default()).collect();
        asked.representations = (0..batches).map(|_| Vec::new()).collect();
        for group in &step.groups {
            let mut numbers = ObjectIndex::default();
            if let Some(walk) = &group.path {
                self.walk_objects(walk, &visits, &mut |values| {
                    if !numbers.contains(&group.key_slots, values)
                        && let Some(number) =
                            self.add_input(group, values, &mut known[group.batch], asked, &visits)
                    {
                        numbers.insert(&group.key_slots, values, number);
                    }
                })?;
                visits.check()?;
            }
            gathered.push((numbers, group.batch));
        }
        let counts: Vec<usize> = known.iter().map(HashMap::len).collect();
        let visited = most - visits.0.get();
        if counts.iter().all(|count| *count == 0) {
            return Ok((visited, None));
        }
        let range = |batch: usize| {
            let start: usize = counts.iter().take(batch).sum();
            start..start + counts[batch]
        };
        let gathered = gathered.into_iter();
        let gathered = gathered
            .map(|(numbers, batch)| GatheredObjects { result_index: numbers, range: range(batch) })
            .collect();
        Ok((visited, Some(gathered)))
    }

    /// Adds the input that is needed from an object to the request, and returns its index; `None` if the
    /// object lacks a needed value.
    fn add_input<'r>(
        &'r self,
        group: &ObjectGroup,
        values: &[SlotValue<'r>],
        known: &mut RequestedInputs<'r>,
        asked: &mut StepRequest,
        visits: &VisitAllowance,
    ) -> Option<u32> {
        let next = u32::try_from(known.len()).ok()?;
        let ty = self.object_type(group.position, values);
        if group.type_filter.is_some() && ty.is_some() && !allows_type(&group.type_filter, ty) {
            return None;
        }
        match &group.input {
            StepInput::Empty => None,
            StepInput::Fields(_, keys) => {
                let value =
                    |key: &std::sync::Arc<str>| match self.field_value(group.position, key, values, ty) {
                        SlotValue::Node(document, node, _) => Some((document, node)),
                        _ => None,
                    };
                if let [key] = &**keys {
                    let (document, node) = value(key)?;
                    let text = Cow::Borrowed(node.text());
                    visits.count(text.len() / BYTES_PER_VISIT);
                    if let Some(number) = known.get(&text) {
                        return Some(*number);
                    }
                    asked.keys.add(document, &self.documents[document as usize], node);
                    known.insert(text, next);
                    return Some(next);
                }
                let nodes: Vec<(u32, JsonNode<'r>)> = keys.iter().map(value).collect::<Option<_>>()?;
                let text: Vec<u8> = nodes.iter().flat_map(|(_, node)| [node.text(), b","].concat()).collect();
                visits.count(text.len() / BYTES_PER_VISIT);
                if let Some(number) = known.get(text.as_slice()) {
                    return Some(*number);
                }
                for (document, node) in nodes {
                    asked.keys.add(document, &self.documents[document as usize], node);
                }
                known.insert(Cow::Owned(text), next);
                Some(next)
            }
            StepInput::Representation(said) => {
                let mut text = Vec::new();
                self.write_representation(group.position, said, values, ty, &mut text)?;
                visits.count(text.len() / BYTES_PER_VISIT);
                if let Some(number) = known.get(text.as_slice()) {
                    return Some(*number);
                }
                asked.representations[group.batch].push(Bytes::from(text.clone()));
                known.insert(Cow::Owned(text), next);
                Some(next)
            }
        }
    }

    /// Returns the value of an object's field from the first slot that has one.
    fn field_value<'r>(
        &'r self,
        position: PositionId,
        key: &str,
        values: &[SlotValue<'r>],
        ty: Option<TypeId>,
    ) -> SlotValue<'r> {
        let slots = self.plan.positions[position].slots.iter().zip(values);
        let found = slots
            .filter_map(|(slot, value)| Some(read_field(&slot.requested_entry(key, ty)?.lookup, *value)));
        let mut failed = SlotValue::Absent;
        for value in found {
            match value {
                SlotValue::Node(..) | SlotValue::Many(_) => return value,
                SlotValue::Failed(_) => failed = value,
                SlotValue::Absent => {}
            }
        }
        failed
    }

    /// Writes the representation of an object; `None` if a value is missing, or if only the type would be
    /// written.
    fn write_representation<'r>(
        &'r self,
        position: PositionId,
        said: &EntityRepresentation,
        values: &[SlotValue<'r>],
        ty: Option<TypeId>,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        out.push(b'{');
        let start = out.len();
        let (mut has_fields, mut is_typename) = (false, true);
        let mut written: Vec<&str> = Vec::new();
        for field in &said.0 {
            if field.type_filter.is_some() && !ty.is_some_and(|ty| allows_type(&field.type_filter, Some(ty)))
                || written.contains(&&*field.name)
            {
                continue;
            }
            written.push(&field.name);
            if out.len() > start {
                out.push(b',');
            }
            out.extend_from_slice(serde_json::Value::from(&*field.name).to_string().as_bytes());
            out.push(b':');
            is_typename &=
                matches!(field.value, RepresentationValue::Typename | RepresentationValue::Constant(_));
            match &field.value {
                RepresentationValue::Constant(text) => out.extend_from_slice(text),
                RepresentationValue::Typename => {
                    let name = self.plan.types.name(ty?);
                    out.extend_from_slice(serde_json::Value::from(&**name).to_string().as_bytes());
                }
                RepresentationValue::Leaf => {
                    self.write_leaf(position, &field.key, values, ty, out)?;
                    has_fields = true;
                }
                RepresentationValue::Object(below) => {
                    let child = *self.plan.positions[position].children.get(&field.key)?;
                    let mut values = self.child_values(&self.plan.positions[child], None, values, ty);
                    self.write_representations(child, below, &mut values, out)?;
                    has_fields = true;
                }
            }
        }
        out.push(b'}');
        let asks_typename = said.0.iter().all(|field| {
            matches!(field.value, RepresentationValue::Typename | RepresentationValue::Constant(_))
        });
        (has_fields || asks_typename && is_typename && out.len() > start + 1).then_some(())
    }

    /// Writes a leaf of a representation. A `null` from a service is written as `null`, while a value that
    /// was never fetched makes the representation incomplete.
    fn write_leaf<'r>(
        &'r self,
        position: PositionId,
        key: &str,
        values: &[SlotValue<'r>],
        ty: Option<TypeId>,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        match self.field_value(position, key, values, ty) {
            SlotValue::Node(_, node, _) => out.extend_from_slice(node.text()),
            SlotValue::Failed(_) | SlotValue::Many(_) => return None,
            SlotValue::Absent => {
                let slots = self.plan.positions[position].slots.iter().zip(values);
                let is_there = slots.into_iter().any(|(slot, value)| {
                    slot.requested_entry(key, ty).is_some() && matches!(value, SlotValue::Node(..))
                });
                out.extend_from_slice(is_there.then_some(&b"null"[..])?);
            }
        }
        Some(())
    }

    fn write_representations<'r>(
        &'r self,
        position: PositionId,
        said: &EntityRepresentation,
        values: &mut [SlotValue<'r>],
        out: &mut Vec<u8>,
    ) -> Option<()> {
        if let Some(mut split) = SlotLists::from_values(self, values) {
            out.push(b'[');
            let mut is_first = true;
            while split.next(values) {
                if !std::mem::take(&mut is_first) {
                    out.push(b',');
                }
                self.write_representations(position, said, values, out)?;
            }
            out.push(b']');
            return Some(());
        }
        if values.iter().all(|value| matches!(value, SlotValue::Absent)) {
            out.extend_from_slice(b"null");
            return Some(());
        }
        self.fill_step_results(&self.plan.positions[position], None, values);
        let ty = self.object_type(position, values);
        self.write_representation(position, said, values, ty, out)
    }

    /// Calls `see` for each object on a path.
    fn walk_objects<'r>(
        &'r self,
        walk: &GroupPath,
        visits: &VisitAllowance,
        see: &mut dyn FnMut(&[SlotValue<'r>]),
    ) -> Result<(), TooManyVisits> {
        let Some((first, rest)) = walk.levels.split_first() else { return Ok(()) };
        let position = &self.plan.positions[first.position];
        let mut values = vec![SlotValue::Absent; position.slots.len()];
        match (walk.start, &*first.slots) {
            (Some((step, group)), [slot]) => {
                for found in self.group_results(step, group) {
                    visits.check()?;
                    visits.count(1);
                    values[*slot] = found;
                    self.descend(first, rest, &values, visits, see)?;
                }
                Ok(())
            }
            _ => {
                self.fill_step_results(position, Some(&first.slots), &mut values);
                self.descend(first, rest, &values, visits, see)
            }
        }
    }

    /// Continues with the levels below an object.
    fn descend<'r>(
        &'r self,
        level: &GroupPathLevel,
        rest: &[GroupPathLevel],
        values: &[SlotValue<'r>],
        visits: &VisitAllowance,
        see: &mut dyn FnMut(&[SlotValue<'r>]),
    ) -> Result<(), TooManyVisits> {
        if !self.matches_filter(level, values) {
            return Ok(());
        }
        let Some((next, rest)) = rest.split_first() else {
            see(values);
            return Ok(());
        };
        let ty = self.object_type(level.position, values);
        let mut below = self.child_values(&self.plan.positions[next.position], Some(&next.slots), values, ty);
        self.visit_values(next, rest, &mut below, visits, see)
    }

    fn matches_filter(&self, level: &GroupPathLevel, values: &[SlotValue<'_>]) -> bool {
        level.type_filter.is_none()
            || self
                .object_type(level.position, values)
                .is_none_or(|ty| allows_type(&level.type_filter, Some(ty)))
    }

    /// Continues with every object of a value, which may be a list.
    fn visit_values<'r>(
        &'r self,
        level: &GroupPathLevel,
        rest: &[GroupPathLevel],
        values: &mut [SlotValue<'r>],
        visits: &VisitAllowance,
        see: &mut dyn FnMut(&[SlotValue<'r>]),
    ) -> Result<(), TooManyVisits> {
        visits.check()?;
        visits.count(1);
        if let Some(mut split) = SlotLists::from_values(self, values) {
            while split.next(values) {
                self.visit_values(level, rest, values, visits, see)?;
            }
            return Ok(());
        }
        let is_object =
            |value: &SlotValue<'_>| value.node().is_some_and(|node| node.kind() == ValueKind::Object);
        if values.iter().any(is_object) {
            self.fill_step_results(&self.plan.positions[level.position], Some(&level.slots), values);
            self.descend(level, rest, values, visits, see)?;
        }
        Ok(())
    }
}
