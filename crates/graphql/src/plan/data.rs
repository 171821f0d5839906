//! What the steps of a plan bring, and where: the answer before the client's selection is looked at.
//!
//! A *position* is a place in the answer without the numbers of list items, as `orders.catalog`. What stands there comes
//! out of *slots*: what a step found for it, or what a slot of the position above has in a field. An object of the
//! answer is nothing but the places in documents that its slots are at.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::types::{TypeId, Types};
use super::values::Arguments;
use crate::remote::Query;
use crate::{Bindings, How, Operation};

pub(crate) type PositionId = usize;
pub(crate) type SlotId = usize;
pub(crate) type StepId = usize;

/// A set of types; none: all of them.
pub(crate) type Only = Option<Arc<[TypeId]>>;

/// Whether a set has a type.
pub(crate) fn has(only: &Only, ty: Option<TypeId>) -> bool {
    match (only, ty) {
        (Some(types), Some(ty)) => types.contains(&ty),
        _ => true,
    }
}

/// What both have.
pub(crate) fn both(one: &Only, other: &Only) -> Only {
    match (one, other) {
        (None, only) | (only, None) => only.clone(),
        (Some(one), Some(other)) => Some(one.iter().filter(|ty| other.contains(ty)).copied().collect()),
    }
}

/// A place in the answer.
#[derive(Debug)]
pub(crate) struct Position {
    /// The position that it is a field of.
    pub(crate) parent: Option<(PositionId, Arc<str>)>,
    /// The type of that field.
    pub(crate) declared: TypeId,
    pub(crate) slots: Vec<Slot>,
    /// Whether an object may stand in several places: it was found by a key.
    pub(crate) is_shared: bool,
    /// The fields with fields of their own.
    pub(crate) children: HashMap<Arc<str>, PositionId>,
}

/// A source of objects.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) from: From,
    /// What it has, by the key that it is planned by.
    pub(crate) fields: HashMap<Arc<str>, Vec<Entry>>,
    pub(crate) teller: Option<Teller>,
}

impl Slot {
    /// The key of the field whose value it has; none of a source of objects with fields.
    pub(crate) fn field(&self) -> Option<&Arc<str>> {
        let is_itself = |entries: &[Entry]| entries.iter().any(|entry| entry.lookup == Lookup::Itself);
        self.fields.iter().find(|(_, entries)| is_itself(entries)).map(|(key, _)| key)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// The field of a slot of the position above.
    Parent(SlotId),
    /// What a step found, by its group.
    Found(StepId, usize),
}

/// A field in a slot.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The name of the field in the schema.
    pub(crate) field: Box<str>,
    /// Of objects of these types.
    pub(crate) only: Only,
    pub(crate) lookup: Lookup,
    /// Whether the service was asked for it by another key, so that a field of this key may stand beside it.
    pub(crate) is_renamed: bool,
    /// Whether it depends on variables if the service was asked for it.
    pub(crate) is_conditional: bool,
    /// The names of an enum's values, by what the service says.
    pub(crate) spelling: Option<Arc<HashMap<Box<str>, Box<str>>>>,
}

/// Where a field's value stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// In the member of this name.
    Member(Box<str>),
    /// It is what the slot is at.
    Itself,
}

/// How a slot tells what type an object is of.
#[derive(Clone, Debug)]
pub(crate) enum Teller {
    /// The member of this name has it.
    Typename(Box<str>),
    /// The member of this name says it in the service's words.
    Member(Box<str>, HashMap<Box<str>, TypeId>),
    /// It is the first type all of whose members are there.
    Shape(Vec<(TypeId, Vec<Box<str>>)>),
    /// It is always this.
    Always(TypeId),
}

/// A call, or several alike, for all objects that need it.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) service: Arc<str>,
    /// How the service spells values.
    pub(crate) bindings: Arc<Bindings>,
    pub(crate) call: Call,
    /// Whom it is made for.
    pub(crate) groups: Vec<Group>,
    /// The variables on which it depends whether it is made, and what they have to be.
    pub(crate) conditions: Vec<(Arc<str>, bool)>,
    /// Those that have to be made before.
    pub(crate) after: Vec<StepId>,
}

/// What a step asks.
#[derive(Debug)]
pub(crate) enum Call {
    /// An operation, once.
    Operation(Arc<Operation>, Arguments),
    /// Objects or fields by keys.
    Keys(How, Arguments),
    /// A document of a GraphQL service, once.
    Document(Document),
    /// A document of a GraphQL service that gives values for representations: by the alias of each group its variable.
    Entities(Document, Vec<(Box<str>, Box<str>)>),
    /// A field of a GraphQL service's `Query`, by keys.
    Linked {
        path: Arc<str>,
        how: How,
        arguments: Arguments,
        /// What is selected of the field, without its braces.
        selection: Box<str>,
        /// The variables in it, as an operation declares them.
        declares: Box<str>,
        variables: Box<[Box<str>]>,
    },
}

/// A document for a GraphQL service.
#[derive(Debug)]
pub(crate) struct Document {
    /// Below the service's URL.
    pub(crate) path: Arc<str>,
    pub(crate) text: Box<str>,
    /// The text as a request has it.
    pub(crate) query: Query,
    pub(crate) variables: Box<[Box<str>]>,
    pub(crate) is_query: bool,
}

/// Objects at one position that a step is made for.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) position: PositionId,
    /// Where its results are found: the slot of the position.
    pub(crate) slot: SlotId,
    /// Which of them it is made for; it is made for all.
    pub(crate) only: Only,
    /// What it needs to know of them.
    pub(crate) input: Input,
    /// The slots that decide what is found for an object.
    pub(crate) key: Vec<SlotId>,
    /// How the objects are found; a step without input is made once.
    pub(crate) walk: Option<Walk>,
    /// Whether an object without what is needed has an empty list.
    pub(crate) is_many: bool,
    /// Which of the aliases of [`Call::Entities`] it is.
    pub(crate) batch: usize,
}

/// What a step needs of its objects.
#[derive(Debug)]
pub(crate) enum Input {
    Nothing,
    /// Fields, by name, and the keys by which they are found.
    Fields(Box<[Box<str>]>, Box<[Arc<str>]>),
    Representation(Representation),
}

/// What is said to a GraphQL service of an object.
#[derive(Debug, Default)]
pub(crate) struct Representation(pub(crate) Vec<Said>);

/// A field of a representation.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) only: Only,
    /// What it is called there.
    pub(crate) name: Box<str>,
    /// By which key it is found.
    pub(crate) key: Arc<str>,
    pub(crate) value: Value,
}

#[derive(Debug)]
pub(crate) enum Value {
    Typename,
    Constant(Bytes),
    Leaf,
    Object(Representation),
}

/// The way to the objects of a group.
#[derive(Debug)]
pub(crate) struct Walk {
    /// What a step found, each once; none: the answer itself.
    pub(crate) start: Option<(StepId, usize)>,
    /// The position that it begins at, and those below.
    pub(crate) levels: Vec<Level>,
}

#[derive(Debug)]
pub(crate) struct Level {
    pub(crate) position: PositionId,
    /// The slots that matter.
    pub(crate) slots: Vec<SlotId>,
    pub(crate) only: Only,
}

impl Step {
    /// The fields of its objects that it needs, in the order of a key.
    pub(crate) fn needs(&self) -> &[Box<str>] {
        match self.groups.first().map(|group| &group.input) {
            Some(Input::Fields(fields, _)) => fields,
            _ => &[],
        }
    }

    /// Whether it asks for a list, all of it, whoever finds something in it.
    pub(crate) fn is_list(&self) -> bool {
        let (Call::Keys(how, _) | Call::Linked { how, .. }) = &self.call else { return false };
        matches!(how, How::List(..))
    }
}

impl Document {
    pub(crate) fn new(path: &Arc<str>, text: &str, variables: Box<[Box<str>]>, is_query: bool) -> Self {
        Self { path: Arc::clone(path), text: text.into(), query: Query::new(text), variables, is_query }
    }
}

impl Slot {
    pub(crate) fn new(from: From) -> Self {
        Self { from, fields: HashMap::new(), teller: None }
    }

    /// Notes a field. One that was noted for the same types stays.
    pub(crate) fn add(&mut self, key: &str, entry: Entry) {
        let entries = match self.fields.get_mut(key) {
            Some(entries) => entries,
            None => self.fields.entry(key.into()).or_default(),
        };
        let is_same = |known: &&mut Entry| {
            (&known.field, &known.only, &known.lookup) == (&entry.field, &entry.only, &entry.lookup)
        };
        match entries.iter_mut().find(is_same) {
            Some(known) => known.is_conditional &= entry.is_conditional,
            None => entries.push(entry),
        }
    }

    /// The field of an object of this type as the client knows it.
    pub(crate) fn entry(&self, key: &str, ty: Option<TypeId>) -> Option<&Entry> {
        let mut fitting = self.fields.get(key)?.iter().filter(|entry| has(&entry.only, ty));
        fitting.clone().find(|entry| entry.is_renamed).or_else(|| fitting.next())
    }

    /// The field of an object of this type as the service was asked for it.
    pub(crate) fn asked(&self, key: &str, ty: Option<TypeId>) -> Option<&Entry> {
        let mut fitting = self.fields.get(key)?.iter().filter(|entry| has(&entry.only, ty));
        fitting.clone().find(|entry| !entry.is_renamed).or_else(|| fitting.next())
    }
}

impl Position {
    /// The slot that comes from there, made if there is none.
    pub(crate) fn slot(&mut self, from: From) -> SlotId {
        if let Some(known) = self.slots.iter().position(|slot| slot.from == from) {
            return known;
        }
        self.slots.push(Slot::new(from));
        self.slots.len() - 1
    }

    /// Whether what type its objects are of has to be found out.
    pub(crate) fn is_abstract(&self, types: &Types) -> bool {
        !types.is_object(self.declared)
    }
}
