//! Estimation of the work that planning an operation takes, before it is planned.
//!
//! The planner library takes time and memory beyond its input size in three ways. It inlines fragments, and
//! those of an abstract type once for each possible object type. It keeps all equally good paths to a field,
//! whose number multiplies wherever an operation moves between services and has a choice of keys or services.
//! And it adds the paths to a tree one by one, traversing the whole tree for each. It checks its deadline
//! only in some of its loops. Besides, a plan has the fields of an abstract type once for each possible
//! object type, if the types may have different fields (`shape.rs`).
//!
//! This module makes the same traversal with counts instead of paths (`model.rs` has the locations of
//! fields): for each service the cost and the number of the best paths. The result is compared with fixed
//! limits, and charged to the caller. The traversal covers the whole expansion, whose size `limits` has
//! checked.

mod model;

use std::time::Duration;

use graphql_tools::static_graphql::query::{Field, Selection, SelectionSet, Value};

use super::MAX_PLAN_BYTES;
use super::limits::fragments::FragmentIndex;
use super::shape;
use super::types::{ClientTypeRef, ClientTypes, TypeId};
use crate::error::{GraphqlError, GraphqlErrorKind};
pub(crate) use model::PlanningModel;

/// The maximum number of selections that the planner may create from an operation, in addition to the route's
/// own limit.
const MAX_NODES: u64 = 6_000;
/// The maximum number of steps of all paths to all leaves. The library keeps about 400 bytes for each at the
/// same time.
const MAX_STEPS: u64 = 120_000;
/// The maximum number of tree nodes that the planner may visit to add all paths.
const MAX_MERGES: u64 = 20_000_000;
/// The number of bytes in a field's arguments that count as a further step, since they are copied for each
/// path.
const ARGUMENT_BYTES: u64 = 256;
/// The number of fields that exceed the maximum memory of a plan. Plans with more are not completed.
const MAX_FIELDS: u64 = (MAX_PLAN_BYTES / size_of::<shape::ShapeField>()) as u64;

/// The work of planning an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlanningWork {
    /// The fields and fragments of the operation as the library expands it.
    pub(crate) nodes: u64,
    /// The steps of all paths to all leaves.
    pub(crate) steps: u64,
    /// The tree nodes visited to add the paths.
    pub(crate) merges: u64,
    /// The fields of the plan, once for each possible object type. Zero if no fragment has a type condition,
    /// since all types have the same fields then, which `nodes` includes.
    pub(crate) fields: u64,
}

/// The best paths to a place that end at a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BestPaths {
    service: u16,
    cost: u64,
    count: u64,
}

/// A place in the operation.
#[derive(Clone, Copy)]
struct OperationPlace<'w> {
    ty: Option<TypeId>,
    paths: &'w [BestPaths],
    /// The number of steps of one path.
    length: u64,
    /// The number of times that the place occurs in the library's expansion.
    occurrences: u64,
    /// Whether it occurs there separately for each possible object type.
    is_narrowed: bool,
    /// The number of shapes of its objects in the plan.
    shapes: u64,
    /// The number of object types in each of these shapes that the selections apply to.
    objects: u64,
}

struct WorkWalk<'a, 'd> {
    model: &'a PlanningModel,
    types: &'a ClientTypes,
    fragments: &'a FragmentIndex<'d>,
    nodes: u64,
    steps: u64,
    leaves: u64,
    fields: u64,
    has_type_conditions: bool,
}

impl PlanningWork {
    /// Computes the work of an operation, or returns an error if it exceeds the limits.
    pub(crate) fn for_operation<'d>(
        selections: &'d SelectionSet,
        root: TypeId,
        fragments: &FragmentIndex<'d>,
        types: &ClientTypes,
        model: &PlanningModel,
    ) -> Result<Self, Box<GraphqlError>> {
        let ways: Vec<BestPaths> =
            model.services(root).map(|service| BestPaths { service, cost: 1, count: 1 }).collect();
        let mut walk = WorkWalk {
            model,
            types,
            fragments,
            nodes: 0,
            steps: 0,
            leaves: 0,
            fields: 0,
            has_type_conditions: false,
        };
        let place = OperationPlace {
            ty: Some(root),
            paths: &ways,
            length: 1,
            occurrences: 1,
            is_narrowed: false,
            shapes: 1,
            objects: 1,
        };
        walk.count_selections(selections, place)?;
        let merges = walk.leaves.saturating_mul(walk.nodes);
        if merges > MAX_MERGES {
            return Err(planning_limit_error());
        }
        let fields = if walk.has_type_conditions { walk.fields.min(MAX_FIELDS) } else { 0 };
        Ok(Self { nodes: walk.nodes, steps: walk.steps, merges, fields })
    }

    /// An estimate of the maximum CPU time.
    pub(crate) fn estimate(self) -> Duration {
        let nanos = [(self.nodes, 20_000), (self.steps, 2_000), (self.merges, 40), (self.fields, 2_000)];
        let nanos = nanos.map(|(count, each)| count.saturating_mul(each));
        Duration::from_nanos(nanos.into_iter().fold(100_000, u64::saturating_add))
    }
}

impl<'d> WorkWalk<'_, 'd> {
    fn count_selections(
        &mut self,
        set: &'d SelectionSet,
        place: OperationPlace<'_>,
    ) -> Result<(), Box<GraphqlError>> {
        for item in &set.items {
            match item {
                Selection::Field(field) => self.count_field(field, place)?,
                Selection::InlineFragment(fragment) => {
                    let condition = fragment.type_condition.as_ref();
                    self.has_type_conditions |= condition.is_some();
                    let ty = condition.map_or(place.ty, |name| self.types.find(name.as_ref()));
                    let is_kept = condition.is_some() && ty.is_none_or(|ty| !self.types.is_union(ty));
                    let is_plain = is_kept || fragment.directives.is_empty();
                    let inner = self.fragment_place(ty, is_plain, place)?;
                    self.count_selections(&fragment.selection_set, inner)?;
                }
                Selection::FragmentSpread(spread) => {
                    let Some(fragment) = self.fragments.get(&spread.fragment_name) else { continue };
                    self.has_type_conditions = true;
                    let ty = self.types.find(fragment.type_condition.as_ref());
                    let is_kept = ty.is_none_or(|ty| !self.types.is_union(ty));
                    let inner = self.fragment_place(ty, is_kept || spread.directives.is_empty(), place)?;
                    self.count_selections(&fragment.selection_set, inner)?;
                }
            }
        }
        Ok(())
    }

    /// The place within a fragment of a type.
    fn fragment_place<'w>(
        &mut self,
        ty: Option<TypeId>,
        is_plain: bool,
        place: OperationPlace<'w>,
    ) -> Result<OperationPlace<'w>, Box<GraphqlError>> {
        let objects = |id: Option<TypeId>| id.map(|id| self.types.objects(id)).unwrap_or_default();
        let (own, outer) = (objects(ty), objects(place.ty));
        let is_abstract = !own.is_empty();
        let stays = ty == place.ty && is_plain && !place.is_narrowed;
        let (count, is_narrowed) = match (is_abstract, place.is_narrowed || outer.is_empty()) {
            (false, _) => (1, false),
            _ if stays => (1, false),
            (true, true) => (1, true),
            (true, false) => (own.iter().filter(|object| outer.contains(object)).count() as u64, true),
        };
        let times = place.occurrences.saturating_mul(count);
        self.add_nodes(times)?;
        let objects = place.objects.min(self.object_count(ty));
        Ok(OperationPlace { ty, occurrences: times, is_narrowed, objects, ..place })
    }

    fn count_field(&mut self, field: &'d Field, place: OperationPlace<'_>) -> Result<(), Box<GraphqlError>> {
        let times = match place.is_narrowed {
            true => place.occurrences,
            false => {
                place.occurrences.saturating_mul(self.model.expansion_count(place.ty, &field.name).max(1))
            }
        };
        // An object of each type may select further fields of the field's value.
        let shapes = place.shapes.saturating_mul(place.objects);
        self.fields = self.fields.saturating_add(shapes);
        let is_leaf = field.selection_set.items.is_empty();
        let (ways, moves) = self.model.advance(place.ty, field, is_leaf, place.paths, self.types);
        // A move adds the fields of its key, and type conditions.
        self.add_nodes(times.saturating_mul(1 + 3 * u64::from(moves)))?;
        let length = place.length + 1 + u64::from(moves) + argument_bytes(field) / ARGUMENT_BYTES;
        let best = ways.iter().map(|ways| ways.cost).min();
        let count = match is_leaf {
            true => ways.iter().filter(|ways| Some(ways.cost) == best).map(|ways| ways.count).sum(),
            // All of them are passed to each selection below.
            false => {
                let count = ways.iter().map(|ways| ways.count).fold(0, u64::saturating_add);
                count.saturating_mul(field.selection_set.items.len() as u64)
            }
        };
        let count = u64::max(count, 1).saturating_mul(times);
        if is_leaf {
            self.leaves = self.leaves.saturating_add(count);
            self.steps = self.steps.saturating_add(count.saturating_mul(length));
        } else {
            self.steps = self.steps.saturating_add(count);
        }
        if self.steps > MAX_STEPS {
            return Err(planning_limit_error());
        }
        let client_field = place.ty.and_then(|ty| self.types.field(ty, &field.name));
        let ty = client_field.map(|field| ClientTypeRef::named_type(&field.ty));
        let objects = self.object_count(ty);
        let inner = OperationPlace {
            ty,
            paths: &ways,
            length,
            occurrences: times,
            is_narrowed: false,
            shapes,
            objects,
        };
        self.count_selections(&field.selection_set, inner)
    }

    /// The number of possible object types of a type: 1 for an object type.
    fn object_count(&self, ty: Option<TypeId>) -> u64 {
        ty.map_or(1, |ty| self.types.objects(ty).len().max(1) as u64)
    }

    fn add_nodes(&mut self, count: u64) -> Result<(), Box<GraphqlError>> {
        self.nodes = self.nodes.saturating_add(count);
        if self.nodes > MAX_NODES { Err(planning_limit_error()) } else { Ok(()) }
    }
}

/// The error for an operation that takes too much work or memory.
pub(super) fn planning_limit_error() -> Box<GraphqlError> {
    let message = "the operation takes too much work or memory to plan: its fragments expand to too many \
                   selections, also where interfaces and unions have many object types, or its fields can be \
                   fetched from services in too many ways; ask for less at once";
    Box::new(GraphqlError::new(GraphqlErrorKind::Limit, message))
}

/// An estimate of the memory for a field's arguments and its alias.
fn argument_bytes(field: &Field) -> u64 {
    let arguments = field.arguments.iter().map(|(name, value)| name.len() as u64 + value_bytes(value));
    arguments.chain(field.alias.as_ref().map(|alias| alias.len() as u64)).fold(0, u64::saturating_add)
}

fn value_bytes(value: &Value) -> u64 {
    const VALUE_BYTES: u64 = 32;
    let inner = match value {
        Value::String(text) | Value::Variable(text) | Value::Enum(text) => text.len() as u64,
        Value::List(items) => items.iter().map(value_bytes).fold(0, u64::saturating_add),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| value_bytes(value).saturating_add(name.len() as u64))
            .fold(0, u64::saturating_add),
        _ => 0,
    };
    VALUE_BYTES.saturating_add(inner)
}

#[cfg(test)]
mod tests;
