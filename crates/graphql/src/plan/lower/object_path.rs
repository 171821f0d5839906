//! The shortest path to the objects that a step is made for. It begins at the result of another step, each
//! object once, if all data that the step needs is below it; otherwise at the root of the response.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::{FetchTarget, LoweringError, PlanLowering};
use crate::plan::data::{
    EntityRepresentation, GroupPath, GroupPathLevel, PlanStep, PositionId, RepresentationValue,
    ResponsePosition, SlotField, SlotId, SlotOrigin, StepId, TypeFilter,
};
use crate::plan::types::ClientTypes;

/// The data that a step reads from its objects. The keys are updated to those under which the data is finally
/// found.
pub(super) enum StepNeeds<'n> {
    Keys(&'n mut [Arc<str>]),
    Representation(&'n mut EntityRepresentation),
}

/// The path to the objects of a step, and the steps that it depends on.
pub(super) struct ResolvedObjectPath {
    pub(super) key_slots: Vec<SlotId>,
    pub(super) path: GroupPath,
    pub(super) dependencies: BTreeSet<StepId>,
}

struct ObjectPath<'w> {
    positions: &'w [ResponsePosition],
    steps: &'w [PlanStep],
    types: &'w ClientTypes,
    /// The relevant slots, by position.
    marked_slots: HashMap<PositionId, BTreeSet<SlotId>>,
    dependencies: BTreeSet<StepId>,
}

/// Whether a slot has the field for all its objects, independently of variables.
fn is_unconditional(entries: &[SlotField]) -> bool {
    entries.iter().any(|field| field.type_filter.is_none() && !field.is_conditional)
}

impl PlanLowering<'_> {
    pub(super) fn find_object_path(
        &self,
        target: &FetchTarget,
        only: Option<&std::sync::Arc<[u32]>>,
        needs: StepNeeds<'_>,
    ) -> Result<ResolvedObjectPath, LoweringError> {
        let mut path = ObjectPath {
            positions: &self.positions,
            steps: &self.steps,
            types: self.types,
            marked_slots: HashMap::new(),
            dependencies: BTreeSet::new(),
        };
        match needs {
            StepNeeds::Keys(keys) => {
                for key in keys {
                    path.mark_field(target.position, key)?;
                }
            }
            StepNeeds::Representation(said) => path.mark_representation(target.position, said)?,
        }
        path.build_path(target, only)
    }
}

impl ObjectPath<'_> {
    /// Marks the slots that have a field.
    fn mark_field(&mut self, position: PositionId, key: &Arc<str>) -> Result<(), LoweringError> {
        let mut is_found = false;
        for (number, slot) in self.positions[position].slots.iter().enumerate() {
            let Some(entries) = slot.fields.get(key) else { continue };
            is_found = true;
            self.marked_slots.entry(position).or_default().insert(number);
            if is_unconditional(entries) && self.is_unconditional_slot(position, number) {
                break;
            }
        }
        is_found.then_some(()).ok_or_else(|| LoweringError(format!("no slot has `{key}`")))
    }

    /// Whether a slot exists independently of variables.
    fn is_unconditional_slot(&self, position: PositionId, slot: SlotId) -> bool {
        let ResponsePosition { slots, parent, .. } = &self.positions[position];
        match (slots[slot].origin, parent) {
            (SlotOrigin::StepResult(step, _), _) => {
                self.steps.get(step).is_none_or(|step| step.conditions.is_empty())
            }
            (SlotOrigin::Parent(above), Some((parent, key))) => {
                let entries = self.positions[*parent].slots[above].fields.get(key);
                entries.is_some_and(|entries| is_unconditional(entries))
                    && self.is_unconditional_slot(*parent, above)
            }
            (SlotOrigin::Parent(_), None) => true,
        }
    }

    fn mark_representation(
        &mut self,
        position: PositionId,
        representation: &mut EntityRepresentation,
    ) -> Result<(), LoweringError> {
        for field in &mut representation.0 {
            match &mut field.value {
                RepresentationValue::Typename => self.mark_type_resolver(position),
                RepresentationValue::Constant(_) => {}
                RepresentationValue::Leaf => {
                    self.mark_field_or_name(position, &mut field.key, &field.name)?
                }
                RepresentationValue::Object(below) => {
                    self.mark_field_or_name(position, &mut field.key, &field.name)?;
                    let child = self.positions[position].children.get(&field.key);
                    let child =
                        *child.ok_or_else(|| LoweringError(format!("no position at `{}`", field.key)))?;
                    self.mark_representation(child, below)?;
                    let marked = self.mark_key_slots(child);
                    self.mark_parent_slots(child, &marked);
                }
            }
        }
        Ok(())
    }

    /// Reads a field under the planner's name, or else under the name in the representation.
    fn mark_field_or_name(
        &mut self,
        position: PositionId,
        key: &mut Arc<str>,
        name: &str,
    ) -> Result<(), LoweringError> {
        if self.mark_field(position, key).is_err() {
            *key = name.into();
            self.mark_field(position, key)?;
        }
        Ok(())
    }

    /// Marks a slot that determines the types of objects, if they have to be determined.
    fn mark_type_resolver(&mut self, position: PositionId) {
        let ResponsePosition { slots, .. } = &self.positions[position];
        let marks = self.marked_slots.entry(position).or_default();
        if !self.positions[position].is_abstract(self.types)
            || marks.iter().any(|slot| slots[*slot].type_resolver.is_some())
        {
            return;
        }
        if let Some(teller) = slots.iter().position(|slot| slot.type_resolver.is_some()) {
            marks.insert(teller);
        }
    }

    /// Marks the slots that determine the results in the marked slots.
    fn mark_key_slots(&mut self, position: PositionId) -> Vec<SlotId> {
        let mut open: Vec<SlotId> = self.marked_slots.entry(position).or_default().iter().copied().collect();
        while let Some(slot) = open.pop() {
            if let SlotOrigin::StepResult(step, group) = self.positions[position].slots[slot].origin {
                self.dependencies.insert(step);
                let key = self.steps.get(step).and_then(|step| step.groups.get(group));
                for slot in key.map(|group| group.key_slots.as_slice()).unwrap_or_default() {
                    if self.marked_slots.entry(position).or_default().insert(*slot) {
                        open.push(*slot);
                    }
                }
            }
        }
        self.marked_slots.entry(position).or_default().iter().copied().collect()
    }

    /// Marks the slots of the parent position that these slots come from.
    fn mark_parent_slots(&mut self, position: PositionId, slots: &[SlotId]) {
        let Some((parent, _)) = &self.positions[position].parent else { return };
        for slot in slots {
            if let SlotOrigin::Parent(above) = self.positions[position].slots[*slot].origin {
                self.marked_slots.entry(*parent).or_default().insert(above);
            }
        }
    }

    fn build_path(
        mut self,
        target: &FetchTarget,
        only: Option<&std::sync::Arc<[u32]>>,
    ) -> Result<ResolvedObjectPath, LoweringError> {
        let mut position = target.position;
        if only.is_some() {
            self.mark_type_resolver(position);
        }
        if self.marked_slots.get(&position).is_none_or(BTreeSet::is_empty) {
            self.marked_slots.entry(position).or_default().insert(0);
        }
        let key = self.marked_slots[&position].iter().copied().collect();
        let mut levels = Vec::new();
        let start = loop {
            let of_path: TypeFilter = target.type_filters.get(&position).cloned().flatten();
            if of_path.is_some() {
                self.mark_type_resolver(position);
            }
            let marked: Vec<SlotId> =
                self.marked_slots.entry(position).or_default().iter().copied().collect();
            let level = |slots| GroupPathLevel { position, slots, type_filter: of_path.clone() };
            let Some((parent, _)) = &self.positions[position].parent else {
                let slots = self.mark_key_slots(position);
                levels.push(level(slots));
                break None;
            };
            if let [slot] = marked[..]
                && let SlotOrigin::StepResult(step, group) = self.positions[position].slots[slot].origin
            {
                self.dependencies.insert(step);
                levels.push(level(marked));
                break Some((step, group));
            }
            let slots = self.mark_key_slots(position);
            self.mark_parent_slots(position, &slots);
            levels.push(level(slots));
            position = *parent;
        };
        levels.reverse();
        Ok(ResolvedObjectPath {
            key_slots: key,
            path: GroupPath { start, levels },
            dependencies: self.dependencies,
        })
    }
}
