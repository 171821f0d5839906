//! Field selection merging (5.3.2 of the specification): whether fields with the same response key at one
//! place are compatible.
//!
//! The validation library compares every pair of fields, and every pair of fragments again, which takes
//! quadratic time and reports each conflict many times. This is the algorithm of Simon Adameit
//! (<https://xing.engineering/graphql-overlapping-fields-can-be-merged-fast>): all fields with the same key
//! at one place form a group. Within a group, every field is compared with the first, and the selections of
//! all fields are collected into the groups below. A group is examined only once. Mutually exclusive types
//! divide groups, which may multiply them at each level; therefore the work is limited as well.

use std::collections::{HashMap, HashSet};

use graphql_tools::static_graphql::query::{Definition, Document, Field, Selection, SelectionSet, Value};
use indexmap::IndexMap;

use super::fragments::{FragmentIndex, operation_selections};
use super::root_type;
use crate::error::{GraphqlError, GraphqlErrorKind};
use crate::plan::types::{ClientTypeRef, ClientTypes, TypeId};

/// The maximum number of visits to each selection of the expansion, on average. Without mutually exclusive
/// types, the algorithm needs at most three.
const VISITS_PER_SELECTION: usize = 60;
/// The number of additional visits allowed.
const EXTRA_VISITS: usize = 1000;
/// The maximum number of reported conflicts.
const MAX_CONFLICTS: usize = 10;

/// A field selected at a place.
#[derive(Clone, Copy)]
struct FieldOccurrence<'d> {
    field: &'d Field,
    parent: Option<TypeId>,
}

/// The fields of one place, by response key.
type OccurrenceGroups<'d> = IndexMap<&'d str, Vec<FieldOccurrence<'d>>>;

/// The search ends: the work is exhausted, or enough conflicts were found.
struct SearchEnd;

struct OverlapSearch<'a, 'd> {
    types: &'a ClientTypes,
    fragments: &'a FragmentIndex<'d>,
    /// The number of each field's arguments. Equal arguments have equal numbers.
    argument_ids: HashMap<usize, usize>,
    ids_by_text: HashMap<String, usize>,
    /// The groups whose shapes, and those whose fields, have been compared, by the addresses of their fields.
    compared_shapes: HashSet<Box<[usize]>>,
    compared_fields: HashSet<Box<[usize]>>,
    typename: Option<ClientTypeRef>,
    visits: usize,
    max_visits: usize,
    path: Vec<&'d str>,
    errors: Vec<GraphqlError>,
}

/// Checks all operations of a document; `selections_of_largest` is the number of selections in the largest.
pub(crate) fn check_overlap<'d>(
    document: &'d Document,
    fragments: &FragmentIndex<'d>,
    types: &ClientTypes,
    selections_of_largest: u64,
) -> Result<(), Vec<GraphqlError>> {
    let string =
        types.find("String").map(|string| ClientTypeRef::NonNull(Box::new(ClientTypeRef::Named(string))));
    let mut merging = OverlapSearch {
        types,
        fragments,
        argument_ids: HashMap::new(),
        ids_by_text: HashMap::new(),
        compared_shapes: HashSet::new(),
        compared_fields: HashSet::new(),
        typename: string,
        visits: 0,
        max_visits: 0,
        path: Vec::new(),
        errors: Vec::new(),
    };
    for definition in &document.definitions {
        let Definition::Operation(operation) = definition else { continue };
        let root = root_type(operation, types);
        let selections_of_largest = usize::try_from(selections_of_largest).unwrap_or(usize::MAX);
        merging.visits = 0;
        merging.max_visits =
            selections_of_largest.saturating_mul(VISITS_PER_SELECTION).saturating_add(EXTRA_VISITS);
        if merging.check_operation(operation_selections(operation), root).is_err() {
            break;
        }
    }
    if merging.errors.is_empty() { Ok(()) } else { Err(merging.errors) }
}

impl<'d> OverlapSearch<'_, 'd> {
    fn check_operation(
        &mut self,
        selections: &'d SelectionSet,
        root: Option<TypeId>,
    ) -> Result<(), SearchEnd> {
        let groups = self.collect_fields([(selections, root)])?;
        self.check_same_shapes(&groups)?;
        self.check_same_fields(&groups)
    }

    /// Checks that all values with the same key have the same shape, even for different types of objects.
    fn check_same_shapes(&mut self, groups: &OccurrenceGroups<'d>) -> Result<(), SearchEnd> {
        for (key, group) in groups {
            if !self.compared_shapes.insert(field_addresses(group)) {
                continue;
            }
            self.path.push(key);
            let mut others = group.iter();
            let first = others.find_map(|occurrence| Some((occurrence, self.field_type(*occurrence)?)));
            let conflict = first.and_then(|(first, ty)| {
                let other = others.find(|other| {
                    self.field_type(**other).is_some_and(|other| is_conflicting_shape(self.types, ty, other))
                })?;
                let other_ty = self.field_type(*other)?;
                let (one, two) = (self.types.format_type(ty), self.types.format_type(other_ty));
                let reason = format!("they return conflicting types \"{one}\" and \"{two}\"");
                Some((reason, *first, *other))
            });
            match conflict {
                Some((reason, first, other)) => {
                    self.report_conflict(&reason, "they return conflicting types", first, other)?;
                }
                None => {
                    let below = self.collect_fields(self.subselections(group))?;
                    self.check_same_shapes(&below)?;
                }
            }
            self.path.pop();
        }
        Ok(())
    }

    /// Checks that fields with the same key are the same field if an object may have both.
    fn check_same_fields(&mut self, groups: &OccurrenceGroups<'d>) -> Result<(), SearchEnd> {
        for (key, group) in groups {
            self.path.push(key);
            for group in self.group_by_object(group)? {
                if !self.compared_fields.insert(field_addresses(&group)) {
                    continue;
                }
                let Some((first, others)) = group.split_first() else { continue };
                let arguments = self.arguments_id(first.field);
                let mut conflict = None;
                for other in others {
                    if other.field.name != first.field.name {
                        let (one, two) = (&first.field.name, &other.field.name);
                        conflict = Some((format!("\"{one}\" and \"{two}\" are different fields"), *other));
                    } else if self.arguments_id(other.field) != arguments {
                        conflict = Some(("they have differing arguments".to_owned(), *other));
                    }
                    if conflict.is_some() {
                        break;
                    }
                }
                match conflict {
                    Some((reason, other)) => self.report_conflict(&reason, &reason, *first, other)?,
                    None => {
                        let below = self.collect_fields(self.subselections(&group))?;
                        self.check_same_fields(&below)?;
                    }
                }
            }
            self.path.pop();
        }
        Ok(())
    }

    /// Divides a group by the object types that it mentions: for each, the fields of that type, with those of
    /// interfaces and unions.
    fn group_by_object(
        &mut self,
        group: &[FieldOccurrence<'d>],
    ) -> Result<Vec<Vec<FieldOccurrence<'d>>>, SearchEnd> {
        let is_object =
            |occurrence: &FieldOccurrence<'_>| occurrence.parent.is_some_and(|id| self.types.is_object(id));
        let (of_objects, shared): (Vec<FieldOccurrence<'d>>, Vec<_>) =
            group.iter().copied().partition(is_object);
        let mut by_object: IndexMap<Option<TypeId>, Vec<FieldOccurrence<'d>>> = IndexMap::new();
        for field_occurrence in of_objects {
            by_object.entry(field_occurrence.parent).or_default().push(field_occurrence);
        }
        if by_object.len() < 2 {
            return Ok(vec![group.to_vec()]);
        }
        self.count_visits(by_object.len() * shared.len())?;
        Ok(by_object
            .into_values()
            .map(|mut own| {
                own.extend(shared.iter().copied());
                own
            })
            .collect())
    }

    /// The selections below the fields of a group.
    fn subselections(&self, group: &[FieldOccurrence<'d>]) -> Vec<(&'d SelectionSet, Option<TypeId>)> {
        let below = |occurrence: &FieldOccurrence<'d>| {
            let ty = self.field_type(*occurrence).map(ClientTypeRef::named_type);
            (!occurrence.field.selection_set.items.is_empty())
                .then_some((&occurrence.field.selection_set, ty))
        };
        group.iter().filter_map(below).collect()
    }

    /// The fields of selections, including those of fragments.
    fn collect_fields(
        &mut self,
        sets: impl IntoIterator<Item = (&'d SelectionSet, Option<TypeId>)>,
    ) -> Result<OccurrenceGroups<'d>, SearchEnd> {
        let mut groups = OccurrenceGroups::new();
        let mut spread: HashSet<&str> = HashSet::new();
        let mut open: Vec<(&SelectionSet, Option<TypeId>)> = sets.into_iter().collect();
        open.reverse();
        while let Some((set, parent)) = open.pop() {
            self.count_visits(set.items.len())?;
            for item in &set.items {
                match item {
                    Selection::Field(field) => {
                        let key = field.alias.as_ref().unwrap_or(&field.name).as_str();
                        groups.entry(key).or_default().push(FieldOccurrence { field, parent });
                    }
                    Selection::InlineFragment(fragment) => {
                        let condition = fragment.type_condition.as_ref();
                        let ty = condition.map_or(parent, |name| self.types.find(name.as_ref()));
                        open.push((&fragment.selection_set, ty));
                    }
                    Selection::FragmentSpread(known) => {
                        if spread.insert(&known.fragment_name)
                            && let Some(fragment) = self.fragments.get(&known.fragment_name)
                        {
                            let ty = self.types.find(fragment.type_condition.as_ref());
                            open.push((&fragment.selection_set, ty));
                        }
                    }
                }
            }
        }
        Ok(groups)
    }

    fn count_visits(&mut self, count: usize) -> Result<(), SearchEnd> {
        self.visits += count;
        if self.visits > self.max_visits {
            let message = "the document has too many selections with the same response key at one place to compare them";
            self.errors = vec![GraphqlError::new(GraphqlErrorKind::Limit, message)];
            return Err(SearchEnd);
        }
        Ok(())
    }

    fn field_type(&self, occurrence: FieldOccurrence<'d>) -> Option<&ClientTypeRef> {
        if occurrence.field.name == "__typename" {
            return self.typename.as_ref();
        }
        self.types.field(occurrence.parent?, &occurrence.field.name).map(|field| &field.ty)
    }

    /// The number of a field's arguments.
    fn arguments_id(&mut self, field: &'d Field) -> usize {
        let address = std::ptr::from_ref(field).addr();
        if let Some(number) = self.argument_ids.get(&address) {
            return *number;
        }
        let mut members: Vec<String> =
            field.arguments.iter().map(|(name, value)| canonical_member(name, value)).collect();
        members.sort_unstable();
        let next = self.ids_by_text.len();
        let number = *self.ids_by_text.entry(members.join(",")).or_insert(next);
        self.argument_ids.insert(address, number);
        number
    }

    fn report_conflict(
        &mut self,
        reason: &str,
        plain: &str,
        first: FieldOccurrence<'d>,
        other: FieldOccurrence<'d>,
    ) -> Result<(), SearchEnd> {
        let place = |occurrence: FieldOccurrence<'_>| {
            let position = occurrence.field.position;
            (position.line as u32, position.column as u32)
        };
        let told = |reason: &str| {
            let (outer, inner) =
                self.path.split_first().map_or(("", &[][..]), |(outer, inner)| (*outer, inner));
            let inner: String =
                inner.iter().map(|key| format!("subfields \"{key}\" conflict because ")).collect();
            format!(
                "Fields \"{outer}\" conflict because {inner}{reason}. \
                 Use different aliases on the fields to fetch both if this was intentional."
            )
        };
        let error =
            GraphqlError::new(GraphqlErrorKind::Invalid, told(reason)).with_plain_message(told(plain));
        self.errors.push(error.with_location(place(first)).with_location(place(other)));
        if self.errors.len() < MAX_CONFLICTS { Ok(()) } else { Err(SearchEnd) }
    }
}

/// Whether values of two types have different shapes.
fn is_conflicting_shape(types: &ClientTypes, one: &ClientTypeRef, other: &ClientTypeRef) -> bool {
    match (one, other) {
        (ClientTypeRef::NonNull(one), ClientTypeRef::NonNull(other))
        | (ClientTypeRef::List(one), ClientTypeRef::List(other)) => is_conflicting_shape(types, one, other),
        (ClientTypeRef::Named(one), ClientTypeRef::Named(other)) => {
            one != other && !(types.is_composite(*one) && types.is_composite(*other))
        }
        _ => true,
    }
}

fn field_addresses(group: &[FieldOccurrence<'_>]) -> Box<[usize]> {
    let mut addresses: Vec<usize> =
        group.iter().map(|known| std::ptr::from_ref(known.field).addr()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses.into()
}

fn canonical_member(name: &str, value: &Value) -> String {
    format!("{name}:{}", canonical_value(value))
}

/// A canonical text of a value: equal values have equal texts, whatever the order of object members.
fn canonical_value(value: &Value) -> String {
    match value {
        Value::Variable(name) => format!("${name}"),
        Value::Int(number) => number.as_i64().map_or_else(String::new, |number| number.to_string()),
        Value::Float(number) => format!("{:x}f", number.to_bits()),
        Value::String(text) => format!("{text:?}"),
        Value::Boolean(value) => format!("!{value}"),
        Value::Null => "!null".to_owned(),
        Value::Enum(name) => name.clone(),
        Value::List(items) => {
            format!("[{}]", items.iter().map(canonical_value).collect::<Vec<_>>().join(","))
        }
        Value::Object(members) => {
            let mut members: Vec<String> =
                members.iter().map(|(name, value)| canonical_member(name, value)).collect();
            members.sort_unstable();
            format!("{{{}}}", members.join(","))
        }
    }
}
