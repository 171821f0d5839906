//! Lookup of the values at a position of the response: the step results for an object, and the values that
//! its slots inherit from the position above.

use json::JsonNode;

use super::run::Run;
use super::val::{Val, read};
use crate::plan::data::{From, Group, Position, PositionId, SlotId, StepId, Teller};
use crate::plan::types::TypeId;

impl Run<'_> {
    /// Returns the result of a step for an object.
    fn lookup<'r>(&'r self, step: StepId, number: usize, values: &[Val<'r>]) -> Val<'r> {
        let Some(made) = &self.made[step] else { return Val::Absent };
        let (Some(made), Some(group)) = (made.get(number), self.plan.steps[step].groups.get(number)) else {
            return Val::Absent;
        };
        if group.walk.is_none() {
            return made.found.first().map_or(Val::Absent, |found| self.val(found));
        }
        let key = group.key.as_slice();
        match made.numbers.get(key, values).and_then(|found| made.found.get(found as usize)) {
            Some(found) => self.val(found),
            None => self.not_found(group, values),
        }
    }

    /// Returns the value for an object that was not part of the step's request.
    fn not_found<'r>(&self, group: &Group, values: &[Val<'r>]) -> Val<'r> {
        let failed = group.key.iter().find_map(|slot| match values[*slot] {
            Val::Failed(error) => Some(error),
            _ => None,
        });
        match failed {
            Some(error) => Val::Failed(error),
            None if group.is_many => Val::Many(&[]),
            None => Val::Absent,
        }
    }

    /// Returns the values of the slots that read a field of the object above; for a list field these are
    /// lists.
    pub(super) fn below<'r>(
        &'r self,
        position: &Position,
        slots: Option<&[SlotId]>,
        above: &[Val<'r>],
        ty: Option<TypeId>,
    ) -> Vec<Val<'r>> {
        let mut values = vec![Val::Absent; position.slots.len()];
        let Some((parent, key)) = &position.parent else { return values };
        let parent = &self.plan.positions[*parent];
        let all = 0..position.slots.len();
        let mut set = |slot: SlotId| {
            let From::Parent(number) = position.slots[slot].from else { return };
            let Some(entry) = parent.slots[number].entry(key, ty) else { return };
            values[slot] = read(&entry.lookup, above[number]);
        };
        match slots {
            Some(slots) => slots.iter().copied().for_each(&mut set),
            None => all.for_each(&mut set),
        }
        values
    }

    /// Sets the values of an object's slots that hold step results.
    pub(super) fn fill<'r>(&'r self, position: &Position, slots: Option<&[SlotId]>, values: &mut [Val<'r>]) {
        for (slot, known) in position.slots.iter().enumerate() {
            if let From::Found(step, group) = known.from
                && slots.is_none_or(|slots| slots.contains(&slot))
            {
                values[slot] = self.lookup(step, group, values);
            }
        }
    }

    /// Returns the type of an object: the declared type if it is concrete, or else the type that a slot's
    /// data indicates.
    pub(super) fn type_of(&self, position: PositionId, values: &[Val<'_>]) -> Option<TypeId> {
        let position = &self.plan.positions[position];
        let types = &self.plan.types;
        if types.is_object(position.declared) {
            return Some(position.declared);
        }
        let mut told = None;
        for (slot, value) in position.slots.iter().zip(values) {
            let (Some(teller), Some(node)) = (&slot.teller, value.node()) else { continue };
            match self.told(teller, node) {
                Some(id) if types.is_object(id) => return Some(id),
                other => told = told.or(other),
            }
        }
        told
    }

    /// Whether the types of a position's objects were requested from any service.
    pub(super) fn tells(&self, position: Option<PositionId>) -> bool {
        let position = position.map(|position| &self.plan.positions[position]);
        position.is_some_and(|position| position.slots.iter().any(|slot| slot.teller.is_some()))
    }

    fn told(&self, teller: &Teller, node: JsonNode<'_>) -> Option<TypeId> {
        let text = |name: &str| node.member(name.as_bytes())?.string();
        match teller {
            Teller::Always(id) => Some(*id),
            Teller::Typename(member) => self.plan.types.find(std::str::from_utf8(&text(member)?).ok()?),
            Teller::Member(member, known) => {
                let said = text(member)?;
                let said = std::str::from_utf8(&said).ok()?;
                known.get(said).copied().or_else(|| self.plan.types.find(said))
            }
            Teller::Shape(shapes) => {
                let fits = |members: &[Box<str>]| {
                    members.iter().all(|member| node.member(member.as_bytes()).is_some())
                };
                shapes.iter().find(|(_, members)| fits(members)).map(|(id, _)| *id)
            }
        }
    }
}
