//! The shape of the client's selection: the fields of each object in the response, their order, and their
//! slots.
//!
//! Fields are collected (`collect.rs`) once for each document. A shape is a selection at a position; if
//! objects may be of several types, it has a list of fields for each type that differs. Objects that can be
//! copied as a whole are detected here, too (`copied_fields.rs`).

mod collect;
mod copied_fields;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use foldhash::fast::RandomState;
use graphql_tools::static_graphql::query::{
    Definition, Document, Field as AstField, FragmentDefinition, Selection, SelectionSet,
};
use indexmap::IndexMap;
use json::MemberName;

use super::data::{
    FieldLookup, PositionId, ResponsePosition, SlotField, SlotId, SlotOrigin, TypeFilter, allows_type,
};
use super::response_keys::ResponseKeys;
use super::types::{ClientTypeRef, ClientTypes, TypeId};
use super::values::quote_json;
use super::{MAX_PLAN_BYTES, QueryPlan, plan_memory};
use crate::error::ResponsePathStep;
use collect::CollectedField;
pub(crate) use copied_fields::{CopiedField, PlainKind};

pub(crate) type ShapeId = usize;

/// A selection at a position.
#[derive(Debug)]
pub(crate) struct ResponseShape {
    /// The position that its objects come from; `None` if no step fetches any.
    pub(crate) position: Option<PositionId>,
    pub(crate) parent: TypeId,
    /// The fields of an object, by its types.
    pub(crate) variants: Vec<ShapeVariant>,
}

/// The fields of objects of some types.
#[derive(Debug)]
pub(crate) struct ShapeVariant {
    pub(crate) type_filter: TypeFilter,
    pub(crate) fields: Box<[ShapeField]>,
    /// The number of fields that writing an object counts as: conditions take as long as fields.
    pub(crate) steps: usize,
    /// Whether the order of the fields depends on variables.
    pub(crate) has_variable_order: bool,
    /// The slot whose object the fields are copied from, if that is possible in one pass
    /// (`copied_fields.rs`).
    pub(crate) copy_slot: Option<SlotId>,
    /// The number of values that are read for the fields.
    pub(crate) read_count: usize,
    /// The member lookups in each slot's object.
    pub(crate) scans: Box<[MemberScan]>,
}

/// A lookup of several members in one object.
#[derive(Debug)]
pub(crate) struct MemberScan {
    /// Its number among all scans of the plan.
    pub(crate) number: usize,
    pub(crate) slot: SlotId,
    /// The numbers of the reads in ascending order, by member name.
    pub(crate) names: IndexMap<Box<[u8]>, Vec<usize>, RandomState>,
}

/// A field of the response.
#[derive(Debug)]
pub(crate) struct ShapeField {
    pub(crate) key: Arc<str>,
    /// The key under which it is planned.
    pub(crate) planned_key: Arc<str>,
    /// The key as a JSON member name, with quotes and colon.
    pub(crate) member_name: Bytes,
    pub(crate) name: Box<str>,
    pub(crate) ty: ClientTypeRef,
    pub(crate) source: FieldSource,
    /// The selection of its objects.
    pub(crate) shape: Option<ShapeId>,
    /// The position of its objects.
    pub(crate) child_position: Option<PositionId>,
    /// The way that it is copied from an object, if that is possible.
    pub(crate) copied_field: Option<CopiedField>,
    /// Its occurrences in the selection, with their places and conditions. The first occurrence whose
    /// condition is met applies. An unconditional occurrence ends the list.
    pub(crate) occurrences: Vec<(usize, InclusionConditions)>,
    pub(crate) location: (u32, u32),
}

/// Variables and their required values. Fields without directives share those of the fragment that they are
/// in.
pub(crate) type InclusionConditions = Arc<[(Arc<str>, bool)]>;

/// The source of a field's value.
#[derive(Debug)]
pub(crate) enum FieldSource {
    Typename,
    /// `__schema` or `__type`, which the gateway resolves itself.
    Introspection(AstField),
    /// The slots that may contain the value.
    Slots(Vec<ShapeRead>),
}

#[derive(Debug)]
pub(crate) struct ShapeRead {
    /// Its number among the reads of the object.
    pub(crate) number: usize,
    pub(crate) slot: SlotId,
    pub(crate) type_filter: TypeFilter,
    pub(crate) lookup: FieldLookup,
    pub(crate) spelling: Option<Arc<HashMap<Box<str>, Box<str>>>>,
    /// The slot of the value's objects.
    pub(crate) value_slot: Option<SlotId>,
}

/// A selection set with the conditions under which it is included.
#[derive(Clone, PartialEq, Eq, Hash)]
struct ConditionalSelection {
    /// The address of the selection set, which identifies it during the document's lifetime.
    set_address: usize,
    conditions: InclusionConditions,
}

/// A builder of a document's shapes.
pub(crate) struct ShapeBuilder<'d> {
    types: &'d ClientTypes,
    positions: &'d [ResponsePosition],
    keys: &'d ResponseKeys<'d>,
    fragments: HashMap<&'d str, &'d FragmentDefinition>,
    selection_sets: HashMap<usize, &'d SelectionSet>,
    shape_ids: HashMap<(Option<PositionId>, TypeId, Vec<ConditionalSelection>), ShapeId>,
    pub(crate) shapes: Vec<ResponseShape>,
    /// The number of scans so far.
    pub(crate) scans: usize,
    /// The work done so far.
    work: usize,
    /// The estimated memory of the variants so far.
    bytes: usize,
}

impl MemberScan {
    /// The number of names that are compared one by one. Among more names, a member is found by a hash, which
    /// takes about as long as this number of comparisons.
    pub(crate) const MAX_LINEAR_NAMES: usize = 16;

    /// Returns the index of a member's name among the names.
    #[inline]
    pub(crate) fn find(&self, key: MemberName<'_>) -> Option<usize> {
        if self.names.len() <= Self::MAX_LINEAR_NAMES {
            return self.names.keys().position(|name| key.equals(name));
        }
        self.names.get_index_of(&*key.node().string()?)
    }

    /// The number of comparisons that take as long as [`MemberScan::find`].
    pub(crate) fn comparisons(&self) -> usize {
        self.names.len().min(Self::MAX_LINEAR_NAMES)
    }

    /// Whether the name with this index is that of a read with this number or a higher one.
    pub(crate) fn is_read_from(&self, name: usize, read: usize) -> bool {
        self.names.get_index(name).is_some_and(|(_, numbers)| numbers.last() >= Some(&read))
    }
}

impl QueryPlan {
    /// Appends the path of an error that a service reports below an object, with the client's keys. The path
    /// ends at the first field that the client did not select.
    pub(crate) fn extend_path(
        &self,
        path: &mut Vec<ResponsePathStep>,
        of: ShapeId,
        planned: impl Iterator<Item = ResponsePathStep>,
    ) {
        let mut shapes = vec![of];
        for segment in planned {
            let ResponsePathStep::Key(key) = &segment else {
                path.push(segment);
                continue;
            };
            let variants = shapes.iter().flat_map(|shape| &self.shapes[*shape].variants);
            let fields = variants.flat_map(|variant| &variant.fields);
            let fields: Vec<&ShapeField> = fields.filter(|field| field.planned_key == *key).collect();
            let Some(field) = fields.first() else { return };
            path.push(ResponsePathStep::Key(Arc::clone(&field.key)));
            shapes = fields.iter().filter_map(|field| field.shape).collect();
            shapes.sort_unstable();
            shapes.dedup();
        }
    }
}

/// The work limit: one unit for each field of a selection, and more for comparing fields with each other.
/// Objects of different types may multiply selections at each level.
const MAX_WORK: usize = 500_000;

impl<'d> ShapeBuilder<'d> {
    pub(crate) fn new(
        types: &'d ClientTypes,
        positions: &'d [ResponsePosition],
        document: &'d Document,
        keys: &'d ResponseKeys<'d>,
    ) -> Self {
        let fragments = document.definitions.iter().filter_map(|definition| match definition {
            Definition::Fragment(fragment) => Some((fragment.name.as_str(), fragment)),
            Definition::Operation(_) => None,
        });
        Self {
            types,
            positions,
            keys,
            fragments: fragments.collect(),
            selection_sets: HashMap::new(),
            shape_ids: HashMap::new(),
            shapes: Vec::new(),
            scans: 0,
            work: 0,
            bytes: 0,
        }
    }

    /// Whether the limit of work or memory was exceeded, so that shapes are incomplete.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.work > MAX_WORK || self.bytes > MAX_PLAN_BYTES
    }

    /// Builds the shape of an operation.
    pub(crate) fn root_shape(&mut self, selections: &'d SelectionSet, root: TypeId) -> ShapeId {
        let part = self.add_part(selections, [].into());
        self.add_shape(Some(0), root, vec![part])
    }

    fn add_part(&mut self, set: &'d SelectionSet, when: InclusionConditions) -> ConditionalSelection {
        let address = std::ptr::from_ref(set).addr();
        self.selection_sets.insert(address, set);
        ConditionalSelection { set_address: address, conditions: when }
    }

    fn add_shape(
        &mut self,
        position: Option<PositionId>,
        parent: TypeId,
        parts: Vec<ConditionalSelection>,
    ) -> ShapeId {
        let key = (position, parent, parts);
        if let Some(known) = self.shape_ids.get(&key) {
            return *known;
        }
        let id = self.shapes.len();
        self.shapes.push(ResponseShape { position, parent, variants: Vec::new() });
        let parts = key.2.clone();
        self.shape_ids.insert(key, id);
        let mut variants = Vec::new();
        if self.types.is_object(parent) || !self.has_type_conditions(parent, &parts) {
            let fields = self.object_fields(position, parent, parent, &parts);
            variants.push(self.build_variant(None, position, fields));
        } else {
            for object in self.types.objects(parent) {
                if self.is_exhausted() {
                    break;
                }
                let fields = self.object_fields(position, *object, parent, &parts);
                variants.push(self.build_variant(Some([*object].into()), position, fields));
            }
        }
        self.shapes[id].variants = variants;
        id
    }

    /// Numbers the reads of fields, groups them by slot, and counts the memory.
    fn build_variant(
        &mut self,
        only: TypeFilter,
        position: Option<PositionId>,
        mut fields: Box<[ShapeField]>,
    ) -> ShapeVariant {
        let mut reads = 0;
        let mut scans: Vec<MemberScan> = Vec::new();
        for field in &mut fields {
            let FieldSource::Slots(known) = &mut field.source else { continue };
            for read in known {
                read.number = reads;
                reads += 1;
                let FieldLookup::Member(name) = &read.lookup else { continue };
                let place = scans.iter().position(|scan| scan.slot == read.slot).unwrap_or_else(|| {
                    scans.push(MemberScan {
                        number: self.scans,
                        slot: read.slot,
                        names: IndexMap::default(),
                    });
                    self.scans += 1;
                    scans.len() - 1
                });
                let Some(scan) = scans.get_mut(place) else { continue };
                scan.names.entry(name.as_bytes().into()).or_default().push(read.number);
            }
        }
        let conditions = |(_, when): &(usize, InclusionConditions)| when.len();
        let steps = |field: &ShapeField| {
            field.occurrences.len().max(1) + field.occurrences.iter().map(conditions).sum::<usize>()
        };
        let steps = 1 + fields.iter().map(steps).sum::<usize>();
        let is_loose = fields.iter().any(|field| field.occurrences.len() > 1);
        let copies = self.find_copy_slot(position, &mut fields);
        let variant = ShapeVariant {
            type_filter: only,
            fields,
            steps,
            has_variable_order: is_loose,
            copy_slot: copies,
            read_count: reads,
            scans: scans.into(),
        };
        self.bytes += size_of::<ShapeVariant>() + plan_memory::variant_bytes(&variant);
        variant
    }

    /// Whether a selection has different fields for the possible types of an abstract type.
    fn has_type_conditions(&self, parent: TypeId, parts: &[ConditionalSelection]) -> bool {
        let all = |condition: &str| self.types.find(condition) == Some(parent);
        fn set_has_type_condition<'d>(
            set: &'d SelectionSet,
            fragments: &HashMap<&str, &'d FragmentDefinition>,
            all: &dyn Fn(&str) -> bool,
        ) -> bool {
            set.items.iter().any(|item| match item {
                Selection::Field(_) => false,
                Selection::InlineFragment(fragment) => {
                    fragment.type_condition.as_ref().is_some_and(|name| !all(name.as_ref()))
                        || set_has_type_condition(&fragment.selection_set, fragments, all)
                }
                Selection::FragmentSpread(spread) => {
                    fragments.get(spread.fragment_name.as_str()).is_some_and(|fragment| {
                        !all(fragment.type_condition.as_ref())
                            || set_has_type_condition(&fragment.selection_set, fragments, all)
                    })
                }
            })
        }
        let sets = parts.iter().filter_map(|part| self.selection_sets.get(&part.set_address));
        sets.into_iter().any(|set| set_has_type_condition(set, &self.fragments, &all))
    }

    /// The fields of an object.
    fn object_fields(
        &mut self,
        position: Option<PositionId>,
        object: TypeId,
        parent: TypeId,
        parts: &[ConditionalSelection],
    ) -> Box<[ShapeField]> {
        let mut collected: Vec<CollectedField<'d>> = Vec::new();
        let mut visited = Vec::new();
        for part in parts {
            let Some(set) = self.selection_sets.get(&part.set_address).copied() else { continue };
            self.collect_fields(set, object, &part.conditions, &mut visited, &mut collected);
        }
        let fields = collected.iter().map(|field| field.fields.len()).sum::<usize>();
        self.work += 1 + fields + (visited.len() + fields).pow(2) / 256;
        collected.into_iter().filter_map(|field| self.build_field(position, object, parent, field)).collect()
    }

    /// The field with these occurrences; `None` if its type does not exist or a limit was exceeded.
    fn build_field(
        &mut self,
        position: Option<PositionId>,
        object: TypeId,
        parent: TypeId,
        collected: CollectedField<'d>,
    ) -> Option<ShapeField> {
        if self.is_exhausted() {
            return None;
        }
        let CollectedField { key, fields, places } = collected;
        let (first, _) = fields.first()?;
        let location = (first.position.line as u32, first.position.column as u32);
        let always = fields.iter().position(|(_, when)| when.is_empty()).map_or(fields.len(), |at| at + 1);
        let when = places.into_iter().zip(&fields).take(always);
        let when = when.map(|(place, (_, when))| (place, when.clone())).collect();
        let client_field =
            self.types.field(object, &first.name).or_else(|| self.types.field(parent, &first.name));
        let planned: Arc<str> = self.keys.planned_key(first).into();
        let child = position.and_then(|position| self.positions[position].children.get(&planned).copied());
        let source = match first.name.as_str() {
            "__typename" => FieldSource::Typename,
            "__schema" | "__type" => FieldSource::Introspection(self.merge_occurrences(&fields)),
            _ => {
                let object = self.types.is_object(object).then_some(object);
                self.slot_reads(position, object, &first.name, &planned, child)
            }
        };
        let ty = match &source {
            FieldSource::Typename => {
                ClientTypeRef::NonNull(Box::new(ClientTypeRef::Named(self.types.find("String")?)))
            }
            _ => client_field?.ty.clone(),
        };
        let is_composite =
            self.types.is_composite(ty.named_type()) && matches!(source, FieldSource::Slots(_));
        let shape = is_composite.then(|| {
            let parts = fields
                .iter()
                .map(|(field, when)| self.add_part(&field.selection_set, when.clone()))
                .collect();
            self.add_shape(child, ty.named_type(), parts)
        });
        let mut member = quote_json(key).to_vec();
        member.push(b':');
        let (key, name) = (key.into(), first.name.as_str().into());
        let (quoted, copied) = (member.into(), None);
        Some(ShapeField {
            key,
            planned_key: planned,
            member_name: quoted,
            name,
            ty,
            source,
            shape,
            child_position: child,
            copied_field: copied,
            occurrences: when,
            location,
        })
    }

    /// The slots from which a field with this name and planned key is read, for objects of one type or of
    /// all.
    fn slot_reads(
        &self,
        position: Option<PositionId>,
        object: Option<TypeId>,
        name: &str,
        key: &str,
        child: Option<PositionId>,
    ) -> FieldSource {
        let below = |slot| {
            let slots = &self.positions[child?].slots;
            slots.iter().position(|object_slot| object_slot.origin == SlotOrigin::Parent(slot))
        };
        let slots = position.map(|position| self.positions[position].slots.as_slice()).unwrap_or_default();
        let reads = slots.iter().enumerate().flat_map(|(slot, known)| {
            let entries = known.fields.get(key).map(Vec::as_slice).unwrap_or_default();
            let is_seen = move |field: &&SlotField| {
                let hides = |other: &SlotField| {
                    other.is_renamed
                        && (other.type_filter.is_none() || other.type_filter == field.type_filter)
                };
                *field.field == *name && (field.is_renamed || !entries.iter().any(hides))
            };
            let entries_of_object =
                entries.iter().filter(move |slot_field| allows_type(&slot_field.type_filter, object));
            entries_of_object.filter(is_seen).map(move |entry| ShapeRead {
                number: 0,
                slot,
                type_filter: entry.type_filter.clone(),
                lookup: entry.lookup.clone(),
                spelling: entry.spelling.clone(),
                value_slot: below(slot),
            })
        });
        FieldSource::Slots(reads.collect())
    }
}
