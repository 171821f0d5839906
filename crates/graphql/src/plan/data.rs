//! The data model of a plan: the results of its steps and where they belong, before the client's selection is
//! applied.
//!
//! A *position* is a path in the response without list indices, such as `orders.catalog`. The data at a
//! position comes from *slots*: the results that a step fetched for the position, or the values of a field in
//! a slot of the parent position. An object of the response is represented by the locations of its slots in
//! the fetched documents.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::types::{ClientTypes, TypeId};
use super::values::CallArgumentTexts;
use crate::fetch::remote::EncodedDocument;
use crate::subgraph::{BatchStrategy, RestOperation, SubgraphBindings};

pub(crate) type PositionId = usize;
pub(crate) type SlotId = usize;
pub(crate) type StepId = usize;

/// A set of types; `None` contains all types.
pub(crate) type TypeFilter = Option<Arc<[TypeId]>>;

/// Whether a set contains a type.
pub(crate) fn allows_type(only: &TypeFilter, ty: Option<TypeId>) -> bool {
    match (only, ty) {
        (Some(types), Some(ty)) => types.contains(&ty),
        _ => true,
    }
}

/// Returns the intersection of two sets.
pub(crate) fn intersect_types(one: &TypeFilter, other: &TypeFilter) -> TypeFilter {
    match (one, other) {
        (None, only) | (only, None) => only.clone(),
        (Some(one), Some(other)) => Some(one.iter().filter(|ty| other.contains(ty)).copied().collect()),
    }
}

/// A position in the response.
#[derive(Debug)]
pub(crate) struct ResponsePosition {
    /// The parent position, and the key of the field in it.
    pub(crate) parent: Option<(PositionId, Arc<str>)>,
    /// The type of that field.
    pub(crate) declared_type: TypeId,
    pub(crate) slots: Vec<ObjectSlot>,
    /// Whether an object may occur in several places, because it was fetched by a key.
    pub(crate) is_shared: bool,
    /// The fields that have subfields.
    pub(crate) children: HashMap<Arc<str>, PositionId>,
}

/// A source of objects.
#[derive(Debug)]
pub(crate) struct ObjectSlot {
    pub(crate) origin: SlotOrigin,
    /// The fields that it contains, by planned key.
    pub(crate) fields: HashMap<Arc<str>, Vec<SlotField>>,
    pub(crate) type_resolver: Option<TypeResolver>,
}

impl ObjectSlot {
    /// The key of the field whose value the slot contains; `None` for a slot of objects with fields.
    pub(crate) fn field(&self) -> Option<&Arc<str>> {
        let is_itself = |entries: &[SlotField]| {
            entries.iter().any(|slot_field| slot_field.lookup == FieldLookup::WholeValue)
        };
        self.fields.iter().find(|(_, entries)| is_itself(entries)).map(|(key, _)| key)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotOrigin {
    /// A field of a slot of the parent position.
    Parent(SlotId),
    /// The result of a step, for one of its groups.
    StepResult(StepId, usize),
}

/// A field in a slot.
#[derive(Clone, Debug)]
pub(crate) struct SlotField {
    /// The name of the field in the schema.
    pub(crate) field: Box<str>,
    /// The types of the objects that the entry applies to.
    pub(crate) type_filter: TypeFilter,
    pub(crate) lookup: FieldLookup,
    /// Whether the request to the service used another key, so that the response may contain a different
    /// field under this key.
    pub(crate) is_renamed: bool,
    /// Whether the request for the field depends on variables.
    pub(crate) is_conditional: bool,
    /// The names of enum values, by the service's texts.
    pub(crate) spelling: Option<Arc<HashMap<Box<str>, Box<str>>>>,
}

/// The location of a field's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FieldLookup {
    /// The member of this name.
    Member(Box<str>),
    /// The slot's value itself.
    WholeValue,
}

/// A rule that determines the type of an object in a slot.
#[derive(Clone, Debug)]
pub(crate) enum TypeResolver {
    /// The member of this name contains the type name.
    Typename(Box<str>),
    /// The member of this name contains the service's own text for the type.
    Member(Box<str>, HashMap<Box<str>, TypeId>),
    /// The first type whose members are all present.
    Shape(Vec<(TypeId, Vec<Box<str>>)>),
    /// A constant type.
    Constant(TypeId),
}

/// A call, or several calls of the same kind, for all objects that need it.
#[derive(Debug)]
pub(crate) struct PlanStep {
    pub(crate) service: Arc<str>,
    /// The service's names and value texts.
    pub(crate) bindings: Arc<SubgraphBindings>,
    pub(crate) call: PlanCall,
    /// The objects that it is made for.
    pub(crate) groups: Vec<ObjectGroup>,
    /// The variables that the step depends on, with their required values.
    pub(crate) conditions: Vec<(Arc<str>, bool)>,
    /// The steps that must finish before.
    pub(crate) dependencies: Vec<StepId>,
}

/// The request of a step.
#[derive(Debug)]
pub(crate) enum PlanCall {
    /// A single operation.
    Operation(Arc<RestOperation>, CallArgumentTexts),
    /// Objects or fields, fetched by keys.
    Keys(BatchStrategy, CallArgumentTexts),
    /// A single document of a GraphQL service.
    Document(SubgraphDocument),
    /// A document of a GraphQL service that resolves representations, with the variable for each group's
    /// alias.
    Entities(SubgraphDocument, Vec<(Box<str>, Box<str>)>),
    /// A field of a GraphQL service's `Query`, fetched by keys.
    Linked {
        path: Arc<str>,
        strategy: BatchStrategy,
        arguments: CallArgumentTexts,
        /// The selection of the field, without its braces.
        selection: Box<str>,
        /// The declarations of the variables used in it.
        declarations: Box<str>,
        variables: Box<[Box<str>]>,
    },
}

/// A document for a GraphQL service.
#[derive(Debug)]
pub(crate) struct SubgraphDocument {
    /// The path below the service's URL.
    pub(crate) path: Arc<str>,
    pub(crate) text: Box<str>,
    /// The text in its encoded form for requests.
    pub(crate) query: EncodedDocument,
    pub(crate) variables: Box<[Box<str>]>,
    pub(crate) is_query: bool,
}

/// The objects at one position that a step is made for.
#[derive(Debug)]
pub(crate) struct ObjectGroup {
    pub(crate) position: PositionId,
    /// The slot of the position that receives the results.
    pub(crate) slot: SlotId,
    /// The types of the objects that the step is made for.
    pub(crate) type_filter: TypeFilter,
    /// The data that the step needs about the objects.
    pub(crate) input: StepInput,
    /// The slots that determine the result for an object.
    pub(crate) key_slots: Vec<SlotId>,
    /// The path to the objects; `None` for a step without input, which is made once.
    pub(crate) path: Option<GroupPath>,
    /// Whether an object without the needed data gets an empty list.
    pub(crate) is_many: bool,
    /// The index of its alias in [`PlanCall::Entities`].
    pub(crate) batch: usize,
}

/// The data that a step needs about its objects.
#[derive(Debug)]
pub(crate) enum StepInput {
    Empty,
    /// The names of fields, and the keys under which they are found.
    Fields(Box<[Box<str>]>, Box<[Arc<str>]>),
    Representation(EntityRepresentation),
}

/// The representation of an object for a GraphQL service.
#[derive(Debug, Default)]
pub(crate) struct EntityRepresentation(pub(crate) Vec<RepresentationField>);

/// A field of a representation.
#[derive(Debug)]
pub(crate) struct RepresentationField {
    pub(crate) type_filter: TypeFilter,
    /// The name in the representation.
    pub(crate) name: Box<str>,
    /// The key under which the value is found.
    pub(crate) key: Arc<str>,
    pub(crate) value: RepresentationValue,
}

#[derive(Debug)]
pub(crate) enum RepresentationValue {
    Typename,
    Constant(Bytes),
    Leaf,
    Object(EntityRepresentation),
}

/// The path to the objects of a group.
#[derive(Debug)]
pub(crate) struct GroupPath {
    /// The result of a step, without duplicates; `None` for the response itself.
    pub(crate) start: Option<(StepId, usize)>,
    /// The position where the path begins, and the positions below.
    pub(crate) levels: Vec<GroupPathLevel>,
}

#[derive(Debug)]
pub(crate) struct GroupPathLevel {
    pub(crate) position: PositionId,
    /// The relevant slots.
    pub(crate) slots: Vec<SlotId>,
    pub(crate) type_filter: TypeFilter,
}

impl PlanStep {
    /// The fields of its objects that it needs, in the order of a key.
    pub(crate) fn needed_fields(&self) -> &[Box<str>] {
        match self.groups.first().map(|group| &group.input) {
            Some(StepInput::Fields(fields, _)) => fields,
            _ => &[],
        }
    }

    /// Whether it requests a whole list, independently of the objects.
    pub(crate) fn is_list(&self) -> bool {
        let (PlanCall::Keys(how, _) | PlanCall::Linked { strategy: how, .. }) = &self.call else {
            return false;
        };
        matches!(how, BatchStrategy::WholeList(..))
    }
}

impl SubgraphDocument {
    pub(crate) fn new(path: &Arc<str>, text: &str, variables: Box<[Box<str>]>, is_query: bool) -> Self {
        Self {
            path: Arc::clone(path),
            text: text.into(),
            query: EncodedDocument::new(text),
            variables,
            is_query,
        }
    }
}

impl ObjectSlot {
    pub(crate) fn new(origin: SlotOrigin) -> Self {
        Self { origin, fields: HashMap::new(), type_resolver: None }
    }

    /// Adds a field, or merges it with an existing entry for the same types.
    pub(crate) fn add_entry(&mut self, key: &str, field: SlotField) {
        let entries = match self.fields.get_mut(key) {
            Some(entries) => entries,
            None => self.fields.entry(key.into()).or_default(),
        };
        let is_same = |slot_field: &&mut SlotField| {
            (&slot_field.field, &slot_field.type_filter, &slot_field.lookup)
                == (&field.field, &field.type_filter, &field.lookup)
        };
        match entries.iter_mut().find(is_same) {
            Some(known) => known.is_conditional &= field.is_conditional,
            None => entries.push(field),
        }
    }

    /// The field of an object of this type, under the client's key.
    pub(crate) fn client_entry(&self, key: &str, ty: Option<TypeId>) -> Option<&SlotField> {
        let mut fitting = self.fields.get(key)?.iter().filter(|field| allows_type(&field.type_filter, ty));
        fitting.clone().find(|slot_field| slot_field.is_renamed).or_else(|| fitting.next())
    }

    /// The field of an object of this type, under the key in the request to the service.
    pub(crate) fn requested_entry(&self, key: &str, ty: Option<TypeId>) -> Option<&SlotField> {
        let mut fitting = self.fields.get(key)?.iter().filter(|field| allows_type(&field.type_filter, ty));
        fitting.clone().find(|slot_field| !slot_field.is_renamed).or_else(|| fitting.next())
    }
}

impl ResponsePosition {
    /// Returns the slot with this source, creating it if necessary.
    pub(crate) fn ensure_slot(&mut self, from: SlotOrigin) -> SlotId {
        if let Some(known) = self.slots.iter().position(|slot| slot.origin == from) {
            return known;
        }
        self.slots.push(ObjectSlot::new(from));
        self.slots.len() - 1
    }

    /// Whether the type of its objects has to be determined.
    pub(crate) fn is_abstract(&self, types: &ClientTypes) -> bool {
        !types.is_object(self.declared_type)
    }
}
