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
    Said(&'n mut EntityRepresentation),
}

/// The path to the objects of a step, and the steps that it depends on.
pub(super) struct ResolvedObjectPath {
    pub(super) key: Vec<SlotId>,
    pub(super) walk: GroupPath,
    pub(super) after: BTreeSet<StepId>,
}

struct ObjectPath<'w> {
    positions: &'w [ResponsePosition],
    steps: &'w [PlanStep],
    types: &'w ClientTypes,
    /// The relevant slots, by position.
    marks: HashMap<PositionId, BTreeSet<SlotId>>,
    after: BTreeSet<StepId>,
}

/// Whether a slot has the field for all its objects, independently of variables.
fn is_always(entries: &[SlotField]) -> bool {
    entries.iter().any(|entry| entry.only.is_none() && !entry.is_conditional)
}

impl PlanLowering<'_> {
    pub(super) fn way(
        &self,
        target: &FetchTarget,
        only: Option<&std::sync::Arc<[u32]>>,
        needs: StepNeeds<'_>,
    ) -> Result<ResolvedObjectPath, LoweringError> {
        let mut way = ObjectPath {
            positions: &self.positions,
            steps: &self.steps,
            types: self.types,
            marks: HashMap::new(),
            after: BTreeSet::new(),
        };
        match needs {
            StepNeeds::Keys(keys) => {
                for key in keys {
                    way.read(target.position, key)?;
                }
            }
            StepNeeds::Said(said) => way.said(target.position, said)?,
        }
        way.climb(target, only)
    }
}

impl ObjectPath<'_> {
    /// Marks the slots that have a field.
    fn read(&mut self, position: PositionId, key: &Arc<str>) -> Result<(), LoweringError> {
        let mut is_found = false;
        for (number, slot) in self.positions[position].slots.iter().enumerate() {
            let Some(entries) = slot.fields.get(key) else { continue };
            is_found = true;
            self.marks.entry(position).or_default().insert(number);
            if is_always(entries) && self.is_sure(position, number) {
                break;
            }
        }
        is_found.then_some(()).ok_or_else(|| LoweringError(format!("no slot has `{key}`")))
    }

    /// Whether a slot exists independently of variables.
    fn is_sure(&self, position: PositionId, slot: SlotId) -> bool {
        let ResponsePosition { slots, parent, .. } = &self.positions[position];
        match (slots[slot].from, parent) {
            (SlotOrigin::Found(step, _), _) => {
                self.steps.get(step).is_none_or(|step| step.conditions.is_empty())
            }
            (SlotOrigin::Parent(above), Some((parent, key))) => {
                let entries = self.positions[*parent].slots[above].fields.get(key);
                entries.is_some_and(|entries| is_always(entries)) && self.is_sure(*parent, above)
            }
            (SlotOrigin::Parent(_), None) => true,
        }
    }

    fn said(
        &mut self,
        position: PositionId,
        representation: &mut EntityRepresentation,
    ) -> Result<(), LoweringError> {
        for said in &mut representation.0 {
            match &mut said.value {
                RepresentationValue::Typename => self.tell(position),
                RepresentationValue::Constant(_) => {}
                RepresentationValue::Leaf => self.fallback(position, &mut said.key, &said.name)?,
                RepresentationValue::Object(below) => {
                    self.fallback(position, &mut said.key, &said.name)?;
                    let child = self.positions[position].children.get(&said.key);
                    let child =
                        *child.ok_or_else(|| LoweringError(format!("no position at `{}`", said.key)))?;
                    self.said(child, below)?;
                    let marked = self.close(child);
                    self.lift(child, &marked);
                }
            }
        }
        Ok(())
    }

    /// Reads a field under the planner's name, or else under the name in the representation.
    fn fallback(
        &mut self,
        position: PositionId,
        key: &mut Arc<str>,
        name: &str,
    ) -> Result<(), LoweringError> {
        if self.read(position, key).is_err() {
            *key = name.into();
            self.read(position, key)?;
        }
        Ok(())
    }

    /// Marks a slot that determines the types of objects, if they have to be determined.
    fn tell(&mut self, position: PositionId) {
        let ResponsePosition { slots, .. } = &self.positions[position];
        let marks = self.marks.entry(position).or_default();
        if !self.positions[position].is_abstract(self.types)
            || marks.iter().any(|slot| slots[*slot].teller.is_some())
        {
            return;
        }
        if let Some(teller) = slots.iter().position(|slot| slot.teller.is_some()) {
            marks.insert(teller);
        }
    }

    /// Marks the slots that determine the results in the marked slots.
    fn close(&mut self, position: PositionId) -> Vec<SlotId> {
        let mut open: Vec<SlotId> = self.marks.entry(position).or_default().iter().copied().collect();
        while let Some(slot) = open.pop() {
            if let SlotOrigin::Found(step, group) = self.positions[position].slots[slot].from {
                self.after.insert(step);
                let key = self.steps.get(step).and_then(|step| step.groups.get(group));
                for slot in key.map(|group| group.key.as_slice()).unwrap_or_default() {
                    if self.marks.entry(position).or_default().insert(*slot) {
                        open.push(*slot);
                    }
                }
            }
        }
        self.marks.entry(position).or_default().iter().copied().collect()
    }

    /// Marks the slots of the parent position that these slots come from.
    fn lift(&mut self, position: PositionId, slots: &[SlotId]) {
        let Some((parent, _)) = &self.positions[position].parent else { return };
        for slot in slots {
            if let SlotOrigin::Parent(above) = self.positions[position].slots[*slot].from {
                self.marks.entry(*parent).or_default().insert(above);
            }
        }
    }

    fn climb(
        mut self,
        target: &FetchTarget,
        only: Option<&std::sync::Arc<[u32]>>,
    ) -> Result<ResolvedObjectPath, LoweringError> {
        let mut position = target.position;
        if only.is_some() {
            self.tell(position);
        }
        if self.marks.get(&position).is_none_or(BTreeSet::is_empty) {
            self.marks.entry(position).or_default().insert(0);
        }
        let key = self.marks[&position].iter().copied().collect();
        let mut levels = Vec::new();
        let start = loop {
            let of_path: TypeFilter = target.only.get(&position).cloned().flatten();
            if of_path.is_some() {
                self.tell(position);
            }
            let marked: Vec<SlotId> = self.marks.entry(position).or_default().iter().copied().collect();
            let level = |slots| GroupPathLevel { position, slots, only: of_path.clone() };
            let Some((parent, _)) = &self.positions[position].parent else {
                let slots = self.close(position);
                levels.push(level(slots));
                break None;
            };
            if let [slot] = marked[..]
                && let SlotOrigin::Found(step, group) = self.positions[position].slots[slot].from
            {
                self.after.insert(step);
                levels.push(level(marked));
                break Some((step, group));
            }
            let slots = self.close(position);
            self.lift(position, &slots);
            levels.push(level(slots));
            position = *parent;
        };
        levels.reverse();
        Ok(ResolvedObjectPath { key, walk: GroupPath { start, levels }, after: self.after })
    }
}
