//! Collection of the objects that a step is executed for, and of the input that it needs from each. Equal
//! inputs are requested once.
//!
//! A walk visits the objects on each group's path, and a collector adds their inputs to the request. Both
//! count against the maximum number of visits.

mod representation;

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashMap;

use bytes::Bytes;
use foldhash::fast::RandomState;
use json::{JsonNode, ValueKind};

use super::object_index::ObjectIndex;
use super::object_reader::ObjectReader;
use super::slot_value::SlotValue;
use super::step_executor::{KeyRows, StepRequest};
use super::step_results::GatheredObjects;
use crate::plan::data::{GroupPath, GroupPathLevel, ObjectGroup, PlanStep, StepInput, allows_type};
use representation::RepresentationWriter;

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

/// Collects the objects of a step and adds their inputs to the request; `None` if nothing has to be
/// requested. Also returns the number of visited objects, which is less than `most`.
pub(super) fn gather_objects(
    objects: ObjectReader<'_>,
    step: &PlanStep,
    step_request: &mut StepRequest,
    most: usize,
) -> Result<(usize, Option<Vec<GatheredObjects>>), TooManyVisits> {
    let visits = VisitAllowance(Cell::new(most));
    let mut gathered = Vec::new();
    step_request.keys = KeyRows::default();
    // Groups with the same alias share one batch.
    let batches = step.groups.iter().map(|group| group.batch + 1).max().unwrap_or(1);
    step_request.representations = (0..batches).map(|_| Vec::new()).collect();
    let requested = (0..batches).map(|_| RequestedInputs::default()).collect();
    let mut inputs = InputCollector { objects, visits: &visits, requested, request: step_request };
    let walk = ObjectWalk { objects, visits: &visits };
    for group in &step.groups {
        let mut numbers = ObjectIndex::default();
        if let Some(path) = &group.path {
            walk.visit_path(path, &mut |values| {
                if !numbers.contains(&group.key_slots, values)
                    && let Some(number) = inputs.add(group, values)
                {
                    numbers.insert(&group.key_slots, values, number);
                }
            })?;
            visits.check()?;
        }
        gathered.push((numbers, group.batch));
    }
    let counts: Vec<usize> = inputs.requested.iter().map(HashMap::len).collect();
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

/// A collector of the inputs that a step needs from its objects.
struct InputCollector<'w, 'r> {
    objects: ObjectReader<'r>,
    visits: &'w VisitAllowance,
    /// By batch.
    requested: Vec<RequestedInputs<'r>>,
    request: &'w mut StepRequest,
}

impl<'r> InputCollector<'_, 'r> {
    /// Adds the input that is needed from an object to the request, and returns its index; `None` if the
    /// object lacks a needed value.
    fn add(&mut self, group: &ObjectGroup, values: &[SlotValue<'r>]) -> Option<u32> {
        let objects = self.objects;
        let known = &mut self.requested[group.batch];
        let next = u32::try_from(known.len()).ok()?;
        let ty = objects.object_type(group.position, values);
        if group.type_filter.is_some() && ty.is_some() && !allows_type(&group.type_filter, ty) {
            return None;
        }
        match &group.input {
            StepInput::Empty => None,
            StepInput::Fields(_, keys) => {
                let value =
                    |key: &std::sync::Arc<str>| match objects.field_value(group.position, key, values, ty) {
                        SlotValue::Node(document, node, _) => Some((document, node)),
                        _ => None,
                    };
                if let [key] = &**keys {
                    let (document, node) = value(key)?;
                    let text = Cow::Borrowed(node.text());
                    self.visits.count(text.len() / BYTES_PER_VISIT);
                    if let Some(number) = known.get(&text) {
                        return Some(*number);
                    }
                    self.request.keys.add(document, &objects.results.documents[document as usize], node);
                    known.insert(text, next);
                    return Some(next);
                }
                let nodes: Vec<(u32, JsonNode<'r>)> = keys.iter().map(value).collect::<Option<_>>()?;
                let text: Vec<u8> = nodes.iter().flat_map(|(_, node)| [node.text(), b","].concat()).collect();
                self.visits.count(text.len() / BYTES_PER_VISIT);
                if let Some(number) = known.get(text.as_slice()) {
                    return Some(*number);
                }
                for (document, node) in nodes {
                    self.request.keys.add(document, &objects.results.documents[document as usize], node);
                }
                known.insert(Cow::Owned(text), next);
                Some(next)
            }
            StepInput::Representation(said) => {
                let mut writer = RepresentationWriter::new(objects);
                writer.write_object(group.position, said, values, ty)?;
                let text = writer.into_text();
                self.visits.count(text.len() / BYTES_PER_VISIT);
                if let Some(number) = known.get(text.as_slice()) {
                    return Some(*number);
                }
                self.request.representations[group.batch].push(Bytes::from(text.clone()));
                known.insert(Cow::Owned(text), next);
                Some(next)
            }
        }
    }
}

/// A walk over the objects on the path of a group.
struct ObjectWalk<'w, 'r> {
    objects: ObjectReader<'r>,
    visits: &'w VisitAllowance,
}

impl<'r> ObjectWalk<'_, 'r> {
    /// Calls `see` for each object on a path.
    fn visit_path(
        &self,
        path: &GroupPath,
        see: &mut dyn FnMut(&[SlotValue<'r>]),
    ) -> Result<(), TooManyVisits> {
        let Some((first, rest)) = path.levels.split_first() else { return Ok(()) };
        let position = &self.objects.plan.positions[first.position];
        let mut values = vec![SlotValue::Absent; position.slots.len()];
        match (path.start, &*first.slots) {
            (Some((step, group)), [slot]) => {
                for value in self.objects.results.group_values(step, group) {
                    self.visits.check()?;
                    self.visits.count(1);
                    values[*slot] = value;
                    self.descend(first, rest, &values, see)?;
                }
                Ok(())
            }
            _ => {
                self.objects.fill_step_results(position, Some(&first.slots), &mut values);
                self.descend(first, rest, &values, see)
            }
        }
    }

    /// Continues with the levels below an object.
    fn descend(
        &self,
        level: &GroupPathLevel,
        levels: &[GroupPathLevel],
        values: &[SlotValue<'r>],
        see: &mut dyn FnMut(&[SlotValue<'r>]),
    ) -> Result<(), TooManyVisits> {
        if !self.matches_filter(level, values) {
            return Ok(());
        }
        let Some((next, rest)) = levels.split_first() else {
            see(values);
            return Ok(());
        };
        let ty = self.objects.object_type(level.position, values);
        let position = &self.objects.plan.positions[next.position];
        let mut below = self.objects.child_values(position, Some(&next.slots), values, ty);
        self.visit_values(next, rest, &mut below, see)
    }

    fn matches_filter(&self, level: &GroupPathLevel, values: &[SlotValue<'_>]) -> bool {
        level.type_filter.is_none()
            || self
                .objects
                .object_type(level.position, values)
                .is_none_or(|ty| allows_type(&level.type_filter, Some(ty)))
    }

    /// Continues with every object of a value, which may be a list.
    fn visit_values(
        &self,
        level: &GroupPathLevel,
        levels: &[GroupPathLevel],
        values: &mut [SlotValue<'r>],
        see: &mut dyn FnMut(&[SlotValue<'r>]),
    ) -> Result<(), TooManyVisits> {
        self.visits.check()?;
        self.visits.count(1);
        if let Some(mut split) = self.objects.lists(values) {
            while split.next(values) {
                self.visit_values(level, levels, values, see)?;
            }
            return Ok(());
        }
        let is_object =
            |value: &SlotValue<'_>| value.node().is_some_and(|node| node.kind() == ValueKind::Object);
        if values.iter().any(is_object) {
            let position = &self.objects.plan.positions[level.position];
            self.objects.fill_step_results(position, Some(&level.slots), values);
            self.descend(level, levels, values, see)?;
        }
        Ok(())
    }
}
