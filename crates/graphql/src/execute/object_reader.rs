//! Lookup of the values at a position of the response: the step results for an object, and the values that
//! its slots inherit from the position above.

use json::JsonNode;

use super::slot_lists::SlotLists;
use super::slot_value::{SlotValue, read_field};
use super::step_results::StepResults;
use crate::plan::QueryPlan;
use crate::plan::data::{
    ObjectGroup, PositionId, ResponsePosition, SlotId, SlotOrigin, StepId, TypeResolver,
};
use crate::plan::types::TypeId;

/// A reader of the objects at the positions of a plan.
#[derive(Clone, Copy)]
pub(super) struct ObjectReader<'r> {
    pub(super) plan: &'r QueryPlan,
    pub(super) results: &'r StepResults,
}

impl<'r> ObjectReader<'r> {
    /// Returns an iterator over the lists in these slots, or `None` if none of the values is a list.
    pub(super) fn lists(self, values: &[SlotValue<'r>]) -> Option<SlotLists<'r>> {
        SlotLists::from_values(self.results, values)
    }

    /// Returns the result of a step for an object.
    fn step_result(self, step: StepId, number: usize, values: &[SlotValue<'r>]) -> SlotValue<'r> {
        let (Some(made), Some(group)) =
            (self.results.group(step, number), self.plan.steps[step].groups.get(number))
        else {
            return SlotValue::Absent;
        };
        if group.path.is_none() {
            return made
                .outcomes
                .first()
                .map_or(SlotValue::Absent, |outcome| self.results.outcome_value(outcome));
        }
        let key = group.key_slots.as_slice();
        match made.result_index.get(key, values).and_then(|found| made.outcomes.get(found as usize)) {
            Some(fetch_outcome) => self.results.outcome_value(fetch_outcome),
            None => self.missing_result(group, values),
        }
    }

    /// Returns the value for an object that was not part of the step's request.
    fn missing_result(self, group: &ObjectGroup, values: &[SlotValue<'r>]) -> SlotValue<'r> {
        let failed = group.key_slots.iter().find_map(|slot| match values[*slot] {
            SlotValue::Failed(error) => Some(error),
            _ => None,
        });
        match failed {
            Some(error) => SlotValue::Failed(error),
            None if group.is_many => SlotValue::Many(&[]),
            None => SlotValue::Absent,
        }
    }

    /// Returns the values of the slots that read a field of the object above; for a list field these are
    /// lists.
    pub(super) fn child_values(
        self,
        position: &ResponsePosition,
        slots: Option<&[SlotId]>,
        above: &[SlotValue<'r>],
        ty: Option<TypeId>,
    ) -> Vec<SlotValue<'r>> {
        let mut values = vec![SlotValue::Absent; position.slots.len()];
        let Some((parent, key)) = &position.parent else { return values };
        let parent = &self.plan.positions[*parent];
        let all = 0..position.slots.len();
        let mut set = |slot: SlotId| {
            let SlotOrigin::Parent(number) = position.slots[slot].origin else { return };
            let Some(field) = parent.slots[number].client_entry(key, ty) else { return };
            values[slot] = read_field(&field.lookup, above[number]);
        };
        match slots {
            Some(slots) => slots.iter().copied().for_each(&mut set),
            None => all.for_each(&mut set),
        }
        values
    }

    /// Sets the values of an object's slots that hold step results.
    pub(super) fn fill_step_results(
        self,
        position: &ResponsePosition,
        slots: Option<&[SlotId]>,
        values: &mut [SlotValue<'r>],
    ) {
        for (slot, object_slot) in position.slots.iter().enumerate() {
            if let SlotOrigin::StepResult(step, group) = object_slot.origin
                && slots.is_none_or(|slots| slots.contains(&slot))
            {
                values[slot] = self.step_result(step, group, values);
            }
        }
    }

    /// Returns the value of an object's field from the first slot that has one.
    pub(super) fn field_value(
        self,
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

    /// Returns the type of an object: the declared type if it is concrete, or else the type that a slot's
    /// data indicates.
    pub(super) fn object_type(self, position: PositionId, values: &[SlotValue<'_>]) -> Option<TypeId> {
        let position = &self.plan.positions[position];
        let types = &self.plan.types;
        if types.is_object(position.declared_type) {
            return Some(position.declared_type);
        }
        let mut told = None;
        for (slot, value) in position.slots.iter().zip(values) {
            let (Some(teller), Some(node)) = (&slot.type_resolver, value.node()) else { continue };
            match self.resolve_type(teller, node) {
                Some(id) if types.is_object(id) => return Some(id),
                other => told = told.or(other),
            }
        }
        told
    }

    /// Whether the types of a position's objects were requested from any service.
    pub(super) fn is_type_requested(self, position: Option<PositionId>) -> bool {
        let position = position.map(|position| &self.plan.positions[position]);
        position.is_some_and(|position| position.slots.iter().any(|slot| slot.type_resolver.is_some()))
    }

    fn resolve_type(self, teller: &TypeResolver, node: JsonNode<'_>) -> Option<TypeId> {
        let text = |name: &str| node.member(name.as_bytes())?.string();
        match teller {
            TypeResolver::Constant(id) => Some(*id),
            TypeResolver::Typename(member) => self.plan.types.find(std::str::from_utf8(&text(member)?).ok()?),
            TypeResolver::Member(member, known) => {
                let said = text(member)?;
                let said = std::str::from_utf8(&said).ok()?;
                known.get(said).copied().or_else(|| self.plan.types.find(said))
            }
            TypeResolver::Shape(shapes) => {
                let fits = |members: &[Box<str>]| {
                    members.iter().all(|member| node.member(member.as_bytes()).is_some())
                };
                shapes.iter().find(|(_, members)| fits(members)).map(|(id, _)| *id)
            }
        }
    }
}
