//! The steps of a request, and what they found.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use json::{Document, Kind, Node};

use super::gather::Gathered;
use super::source::{Asked, Source};
use super::variables::Variables;
use crate::plan::Plan;
use crate::plan::data::{Call, From, Group, Lookup, Position, PositionId, SlotId, Step, StepId, Teller};
use crate::plan::types::TypeId;
use crate::plan::values::Speller;
use crate::{Fetched, Found, Place, SourceError};

/// A request that is being answered.
pub(crate) struct Run<'p> {
    pub(super) plan: &'p Plan,
    pub(super) variables: Variables,
    pub(super) documents: Vec<Arc<Document>>,
    /// What went wrong.
    pub(super) errors: Vec<SourceError>,
    /// Those that are of a step as a whole, beside all that it found.
    pub(super) aside: Vec<(StepId, u32)>,
    /// By step what its groups have; nothing before it was made.
    made: Vec<Option<Box<[Made]>>>,
}

/// What a step found for a group.
#[derive(Debug, Default)]
struct Made {
    /// By the places of the slots that decide it.
    numbers: Numbers,
    found: Vec<Found>,
}

/// What was found, by the places of slots.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    single: HashMap<u64, u32, BuildHasherDefault<Mix>>,
    several: HashMap<Box<[u64]>, u32>,
}

/// A value of a slot.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Val<'r> {
    #[default]
    Absent,
    /// A value, and which error came with it.
    At(u32, Node<'r>, Option<u32>),
    Many(&'r [Place]),
    Failed(u32),
}

impl<'r> Val<'r> {
    /// Where it is, in one number.
    fn place(self) -> Option<u64> {
        match self {
            Self::At(document, node, _) => Some(u64::from(document) << 32 | node.start() as u64),
            _ => None,
        }
    }

    /// The same, with another number for what is no place.
    pub(super) fn place_or_none(self) -> u64 {
        self.place().unwrap_or(u64::MAX)
    }

    pub(super) fn node(self) -> Option<Node<'r>> {
        match self {
            Self::At(_, node, _) => Some(node),
            _ => None,
        }
    }

    /// Itself; nothing if it is `null`.
    pub(super) fn or_absent(self) -> Self {
        match self {
            Self::At(_, node, None) if node.kind() == Kind::Null => Self::Absent,
            other => other,
        }
    }

    pub(super) fn is_list(self) -> bool {
        match self {
            Self::Many(_) => true,
            Self::At(_, node, _) => node.kind() == Kind::Array,
            _ => false,
        }
    }
}

impl Numbers {
    pub(super) fn insert(&mut self, key: &[SlotId], values: &[Val<'_>], number: u32) {
        if let [slot] = key {
            if let Some(place) = values[*slot].place() {
                self.single.insert(place, number);
            }
            return;
        }
        self.several.insert(places(key, values), number);
    }

    /// Whether the objects at these places were seen before.
    pub(super) fn has(&self, key: &[SlotId], values: &[Val<'_>]) -> bool {
        self.get(key, values).is_some()
    }

    fn get(&self, key: &[SlotId], values: &[Val<'_>]) -> Option<u32> {
        match key {
            [slot] => self.single.get(&values[*slot].place()?).copied(),
            _ => self.several.get(&places(key, values)).copied(),
        }
    }
}

fn places(key: &[SlotId], values: &[Val<'_>]) -> Box<[u64]> {
    key.iter().map(|slot| values[*slot].place_or_none()).collect()
}

impl<'p> Run<'p> {
    pub(crate) fn new(plan: &'p Plan, variables: Variables) -> Self {
        let made = plan.steps.iter().map(|_| None).collect();
        Self { plan, variables, documents: Vec::new(), errors: Vec::new(), aside: Vec::new(), made }
    }

    /// Makes all steps, each as soon as those before it are made.
    pub(crate) async fn drive(&mut self, source: &dyn Source) {
        let plan = self.plan;
        let mut open: Vec<usize> = plan.steps.iter().map(|step| step.after.len()).collect();
        let mut ready: Vec<StepId> = (0..plan.steps.len()).filter(|step| open[*step] == 0).collect();
        let mut calls = FuturesUnordered::new();
        loop {
            let mut done: Vec<StepId> = Vec::new();
            while let Some(number) = ready.pop() {
                let step = &plan.steps[number];
                match self.prepare(step) {
                    None => {
                        self.made[number] = Some(step.groups.iter().map(|_| Made::default()).collect());
                        done.push(number);
                    }
                    Some((asked, gathered)) => {
                        calls.push(async move { (number, gathered, source.fetch(step, asked).await) })
                    }
                }
            }
            if done.is_empty() {
                let Some((number, gathered, fetched)) = calls.next().await else { return };
                self.absorb(number, gathered, fetched);
                done.push(number);
            }
            for (number, step) in plan.steps.iter().enumerate() {
                let met = step.after.iter().filter(|before| done.contains(before)).count();
                if met > 0 {
                    open[number] -= met;
                    if open[number] == 0 {
                        ready.push(number);
                    }
                }
            }
        }
    }

    /// What a step is made with, and for whom; nothing if it is for nobody.
    fn prepare(&self, step: &Step) -> Option<(Asked, Vec<Gathered>)> {
        if !step.conditions.iter().all(|(name, value)| self.variables.is_true(name) == *value) {
            return None;
        }
        let speller = Speller { types: &self.plan.types, bindings: Some(&step.bindings) };
        let mut asked = Asked::default();
        let mut gathered = Vec::new();
        match &step.call {
            Call::Operation(_, arguments) => asked.arguments = self.variables.arguments(arguments, &speller),
            Call::Document(document) => asked.variables = self.variables.pairs(&document.variables, &speller),
            Call::Keys(_, arguments) => {
                asked.arguments = self.variables.arguments(arguments, &speller);
                gathered = self.gather(step, &mut asked)?;
            }
            Call::Linked { arguments, variables, .. } => {
                asked.arguments = self.variables.arguments(arguments, &speller);
                asked.variables = self.variables.pairs(variables, &speller);
                gathered = self.gather(step, &mut asked)?;
            }
            Call::Entities(document, _) => {
                asked.variables = self.variables.pairs(&document.variables, &speller);
                gathered = self.gather(step, &mut asked)?;
            }
        }
        Some((asked, gathered))
    }

    /// Notes what a step brought, its documents and errors behind those that there are.
    fn absorb(&mut self, step: StepId, gathered: Vec<Gathered>, fetched: Fetched) {
        let documents = u32::try_from(self.documents.len()).unwrap_or(u32::MAX);
        let errors = u32::try_from(self.errors.len()).unwrap_or(u32::MAX);
        let place = |place: Place| Place { document: place.document + documents, start: place.start };
        let mut found: Vec<Found> = fetched.found;
        let mut is_told = vec![false; fetched.errors.len()];
        for found in &mut found {
            if let Found::Partial(_, error) | Found::Failed(error) = found
                && let Some(told) = is_told.get_mut(*error as usize)
            {
                *told = true;
            }
            match found {
                Found::Nothing => {}
                Found::One(at) => *at = place(*at),
                Found::Many(places) => places.iter_mut().for_each(|at| *at = place(*at)),
                Found::Partial(at, error) => {
                    *at = place(*at);
                    *error += errors;
                }
                Found::Failed(error) => *error += errors,
            }
        }
        let aside = (errors..).zip(is_told).filter(|(_, is_told)| !is_told);
        self.aside.extend(aside.map(|(error, _)| (step, error)));
        self.documents.extend(fetched.documents);
        self.errors.extend(fetched.errors);
        let made = match gathered.is_empty() {
            true => Box::new([Made { numbers: Numbers::default(), found }]) as Box<[Made]>,
            false => gathered
                .into_iter()
                .map(|gathered| {
                    let found = found.get(gathered.range).unwrap_or_default().to_vec();
                    Made { numbers: gathered.numbers, found }
                })
                .collect(),
        };
        self.made[step] = Some(made);
    }

    /// Everything that a step found for a group, each once.
    pub(super) fn all_found(&self, step: StepId, group: usize) -> impl Iterator<Item = Val<'_>> {
        let made = self.made.get(step).and_then(Option::as_ref).and_then(|made| made.get(group));
        made.map(|made| made.found.as_slice()).unwrap_or_default().iter().map(|found| self.val(found))
    }

    fn val<'r>(&'r self, found: &'r Found) -> Val<'r> {
        match found {
            Found::Nothing => Val::Absent,
            Found::One(place) => self.at(*place, None),
            Found::Partial(place, error) => self.at(*place, Some(*error)),
            Found::Many(places) => Val::Many(places),
            Found::Failed(error) => Val::Failed(*error),
        }
    }

    /// The value at a place.
    pub(super) fn at(&self, place: Place, error: Option<u32>) -> Val<'_> {
        let document = self.documents.get(place.document as usize);
        let node = document.and_then(|document| document.node(place.start as usize));
        node.map_or(Val::Absent, |node| Val::At(place.document, node, error))
    }

    /// What a step found for an object.
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

    /// What an object has that nothing was asked for.
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

    /// What slots of a position have that come from an object of the position above; of a list its lists.
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

    /// Adds to an object's values what steps found for it.
    pub(super) fn fill<'r>(&'r self, position: &Position, slots: Option<&[SlotId]>, values: &mut [Val<'r>]) {
        for (slot, known) in position.slots.iter().enumerate() {
            if let From::Found(step, group) = known.from
                && slots.is_none_or(|slots| slots.contains(&slot))
            {
                values[slot] = self.lookup(step, group, values);
            }
        }
    }

    /// What type an object is of: that of its position, or what a slot tells.
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

    /// Whether any service was asked for the types of a position's objects.
    pub(super) fn tells(&self, position: Option<PositionId>) -> bool {
        let position = position.map(|position| &self.plan.positions[position]);
        position.is_some_and(|position| position.slots.iter().any(|slot| slot.teller.is_some()))
    }

    fn told(&self, teller: &Teller, node: Node<'_>) -> Option<TypeId> {
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

/// A field's value in a slot.
pub(super) fn read<'r>(lookup: &Lookup, value: Val<'r>) -> Val<'r> {
    match (lookup, value) {
        (Lookup::Itself, value) => value.or_absent(),
        (Lookup::Member(name), Val::At(document, node, _)) => {
            let member = node.member(name.as_bytes()).filter(|member| member.kind() != Kind::Null);
            member.map_or(Val::Absent, |member| Val::At(document, member, None))
        }
        (Lookup::Member(_), Val::Failed(error)) => Val::Failed(error),
        (Lookup::Member(_), Val::Absent | Val::Many(_)) => Val::Absent,
    }
}

/// The lists of a position's slots, item by item.
pub(super) struct Split<'r> {
    run: &'r [Arc<Document>],
    lists: Vec<List<'r>>,
}

enum List<'r> {
    /// No list: the same for every item if it failed.
    None(Val<'r>),
    Items(u32, json::Items<'r>),
    Places(std::slice::Iter<'r, Place>),
}

impl<'r> Split<'r> {
    /// None if there is no list among the values.
    pub(super) fn of(run: &'r Run<'_>, values: &[Val<'r>]) -> Option<Self> {
        if !values.iter().any(|value| value.is_list()) {
            return None;
        }
        let list = |value: &Val<'r>| match *value {
            Val::At(document, node, _) if node.kind() == Kind::Array => List::Items(document, node.items()),
            Val::Many(places) => List::Places(places.iter()),
            Val::Failed(error) => List::None(Val::Failed(error)),
            _ => List::None(Val::Absent),
        };
        Some(Self { run: &run.documents, lists: values.iter().map(list).collect() })
    }

    /// Sets the values to those of the next item; says whether there is one.
    pub(super) fn next(&mut self, values: &mut [Val<'r>]) -> bool {
        let mut is_any = false;
        for (list, value) in self.lists.iter_mut().zip(values) {
            let item = match list {
                List::None(value) => {
                    let value = *value;
                    Some(value).filter(|value| matches!(value, Val::Failed(_)))
                }
                List::Items(document, items) => {
                    let item = items.next().map(|node| Val::At(*document, node, None).or_absent());
                    is_any |= item.is_some();
                    item
                }
                List::Places(places) => {
                    let item = places.next().map(|place| {
                        let document = self.run.get(place.document as usize);
                        let node = document.and_then(|document| document.node(place.start as usize));
                        node.map_or(Val::Absent, |node| Val::At(place.document, node, None).or_absent())
                    });
                    is_any |= item.is_some();
                    item
                }
            };
            *value = item.unwrap_or_default();
        }
        is_any
    }
}

/// Places are numbers that are well spread once they are multiplied.
#[derive(Default)]
pub(super) struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 29;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
