//! A model of the services that resolve each field and of the keys that lead to them, which determines the
//! number of paths to a field.

use std::collections::{HashMap, HashSet};

use graphql_tools::static_graphql::query::Field;
use hive_router_query_planner::state::supergraph_state::{
    SupergraphDefinition, SupergraphInterfaceType, SupergraphState,
};

use super::BestPaths;
use crate::plan::types::{ClientTypes, TypeId};

/// The planner's cost of moving to another service.
const MOVE_COST: u64 = 1000;

/// The locations of fields.
#[derive(Debug, Default)]
pub(crate) struct PlanningModel {
    types: HashMap<TypeId, TypeModel>,
}

/// The locations of a type's fields.
#[derive(Debug, Default)]
struct TypeModel {
    services: Vec<u16>,
    fields: HashMap<Box<str>, Vec<u16>>,
    keys: Vec<ResolvableKey>,
    /// The fields that the library looks up in each possible type of an interface, and the number of possible
    /// types.
    expanded_fields: HashSet<Box<str>>,
    object_count: u64,
}

/// A key by which a service resolves an object.
#[derive(Debug)]
struct ResolvableKey {
    service: u16,
    cost: u64,
    /// The top-level fields of the key.
    names: Vec<Box<str>>,
}

impl PlanningModel {
    pub(crate) fn new(supergraph: &SupergraphState, types: &mut ClientTypes) -> Self {
        let mut numbers: HashMap<&str, u16> = HashMap::new();
        for name in supergraph.known_subgraphs.keys() {
            let next = u16::try_from(numbers.len()).unwrap_or(u16::MAX);
            numbers.insert(name, next);
        }
        let number = |name: &str| numbers.get(name).copied().unwrap_or(u16::MAX);
        let mut model = Self::default();
        for (name, definition) in &supergraph.definitions {
            if !definition.is_composite_type() {
                continue;
            }
            let mut type_model = TypeModel::default();
            for join in definition.join_types() {
                let service = number(&join.graph_id);
                if !type_model.services.contains(&service) {
                    type_model.services.push(service);
                }
                if let Some(key) = join.key.as_ref().filter(|_| join.resolvable) {
                    let (names, words) = outer_names(key);
                    type_model.keys.push(ResolvableKey { service, cost: MOVE_COST + 1 + words, names });
                }
            }
            for (name, field) in definition.fields() {
                let services = field.resolvable_in_graphs(definition);
                let mut services: Vec<u16> = services.iter().map(|name| number(name)).collect();
                services.sort_unstable();
                type_model.fields.insert(name.as_str().into(), services);
            }
            if let SupergraphDefinition::Interface(interface) = definition {
                (type_model.object_count, type_model.expanded_fields) =
                    expanded_fields(supergraph, interface);
            }
            model.types.insert(types.intern(name), type_model);
        }
        model
    }

    /// The services that have a type.
    pub(super) fn services(&self, ty: TypeId) -> impl Iterator<Item = u16> {
        self.types.get(&ty).into_iter().flat_map(|model| model.services.iter().copied())
    }

    /// The number of possible types that a field is expanded to; zero if it is not expanded.
    pub(super) fn expansion_count(&self, ty: Option<TypeId>, field: &str) -> u64 {
        let model = ty.and_then(|ty| self.types.get(&ty));
        model
            .filter(|type_model| type_model.expanded_fields.contains(field))
            .map_or(0, |known| known.object_count)
    }

    /// The paths to a field, and whether the best path moves to another service. For an abstract type, the
    /// result is that of the possible type with the most paths.
    pub(super) fn advance(
        &self,
        ty: Option<TypeId>,
        field: &Field,
        is_leaf: bool,
        ways: &[BestPaths],
        types: &ClientTypes,
    ) -> (Vec<BestPaths>, bool) {
        let Some(ty) = ty else { return (ways.to_vec(), false) };
        let known = std::iter::once(&ty).chain(types.objects(ty)).filter_map(|ty| self.types.get(ty));
        let all = known.filter_map(|model| model.advance(&field.name, is_leaf, ways));
        let count = |ways: &[BestPaths]| ways.iter().map(|ways| ways.count).fold(0, u64::saturating_add);
        all.max_by_key(|(ways, _)| count(ways)).unwrap_or_else(|| (ways.to_vec(), false))
    }
}

impl TypeModel {
    fn advance(&self, field: &str, is_leaf: bool, ways: &[BestPaths]) -> Option<(Vec<BestPaths>, bool)> {
        let there = self.fields.get(field)?;
        let mut next: Vec<BestPaths> = Vec::new();
        let mut has_direct = false;
        for from in ways {
            let is_direct = there.contains(&from.service);
            has_direct |= is_direct;
            if is_direct {
                add_paths(&mut next, BestPaths { cost: from.cost + 1, ..*from });
            }
            if is_direct && is_leaf {
                continue;
            }
            for service in there.iter().filter(|service| **service != from.service) {
                let Some((cost, keys)) = self.move_cost(*service, from.service) else { continue };
                let count = from.count.saturating_mul(keys);
                add_paths(&mut next, BestPaths { service: *service, cost: from.cost + cost + 1, count });
            }
        }
        (!next.is_empty()).then_some((next, !has_direct))
    }

    /// The cost of moving from one service to another, and the number of usable keys. If the first service
    /// resolves none of the keys, the path is longer.
    fn move_cost(&self, service: u16, from: u16) -> Option<(u64, u64)> {
        let keys = self.keys.iter().filter(|key| key.service == service);
        let has = |name: &str| {
            name == "__typename" || self.fields.get(name).is_some_and(|there| there.contains(&from))
        };
        let met = keys.clone().filter(|key| key.names.iter().all(|name| has(name)));
        match (met.clone().map(|key| key.cost).min(), met.count()) {
            (Some(cost), count) => Some((cost, count as u64)),
            (None, _) => keys.map(|key| key.cost + MOVE_COST).min().map(|cost| (cost, 1)),
        }
    }
}

/// Adds paths. Of the paths to one service only the cheapest are kept; those of equal cost are added up.
fn add_paths(all: &mut Vec<BestPaths>, ways: BestPaths) {
    match all.iter_mut().find(|paths| paths.service == ways.service) {
        None => all.push(ways),
        Some(known) if known.cost > ways.cost => *known = ways,
        Some(known) if known.cost == ways.cost => known.count = known.count.saturating_add(ways.count),
        Some(_) => {}
    }
}

/// The top-level fields of a key, and the total number of its fields.
fn outer_names(key: &str) -> (Vec<Box<str>>, u64) {
    let spaced = key.replace('{', " { ").replace('}', " } ");
    let (mut names, mut words, mut depth) = (Vec::new(), 0, 0_usize);
    for word in spaced.split_whitespace() {
        match word {
            "{" => depth += 1,
            "}" => depth = depth.saturating_sub(1),
            name => {
                words += 1;
                if depth == 0 {
                    names.push(name.into());
                }
            }
        }
    }
    (names, words)
}

/// The fields of an interface that the library looks up in each possible type, and the number of possible
/// types. It does so if a possible type may not have the field itself, or if some of the services that have
/// the interface lack the field.
fn expanded_fields(
    supergraph: &SupergraphState,
    interface: &SupergraphInterfaceType,
) -> (u64, HashSet<Box<str>>) {
    let objects: Vec<&SupergraphDefinition> = supergraph
        .definitions
        .values()
        .filter(|known| matches!(known, SupergraphDefinition::Object(_)))
        .filter(|known| known.join_implements().iter().any(|join| join.interface == interface.name))
        .collect();
    let is_expanded = |field: &&String| {
        objects.iter().any(|object| may_lack_field(supergraph, object, field))
            || is_partial_field(interface, field)
    };
    let fields = interface.fields.keys().filter(is_expanded).map(|name| name.as_str().into());
    (objects.len() as u64, fields.collect())
}

/// Whether an object type may lack a field of its interface in some service.
fn may_lack_field(supergraph: &SupergraphState, object: &SupergraphDefinition, field: &str) -> bool {
    let Some(own) = object.fields().get(field) else { return true };
    own.join_field.iter().any(|join| {
        join.external
            || join.used_overridden
            || join.override_value.as_ref().is_some_and(|name| supergraph.subgraph_exists_by_name(name))
    })
}

/// Whether some services have an interface without one of its fields.
fn is_partial_field(interface: &SupergraphInterfaceType, field: &str) -> bool {
    let services = interface.join_type.iter().filter(|join| !join.is_interface_object).count();
    let Some(field) =
        interface.fields.get(field).filter(|field| services > 1 && !field.join_field.is_empty())
    else {
        return false;
    };
    let resolving = field.join_field.iter().filter(|join| !join.external && join.graph_id.is_some()).count();
    resolving < services
}
