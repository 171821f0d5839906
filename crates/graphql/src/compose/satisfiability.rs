//! Satisfiability: whether every field can be queried, by every path that leads to its type. Starting from
//! the services that return an object, other services are reached by the keys that they resolve. A field that
//! is unreachable here could not be planned later.
//!
//! A state is a type with the services in which an object of the type is available. Each state is visited
//! once.

mod error_messages;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use diagnostics::Diagnostics;

use super::merged_schema::{JoinField, MergedTypes};
use super::model::{SubgraphField, SubgraphSchema, SubgraphType, SubgraphTypeKind};
use super::selection::{FieldSetSelection, SelectedElement};

/// The maximum number of states to visit. Practical schemas stay far below it; beyond it, the check is
/// incomplete.
const MAX_STATES: usize = 50_000;
/// The maximum depth of keys that depend on other keys.
const MAX_KEY_DEPTH: usize = 4;

/// Reports every field that cannot be resolved by some query that selects it.
pub(super) fn check_satisfiability<'a>(
    schemas: &[SubgraphSchema<'a>],
    types: &MergedTypes<'a>,
    errors: &mut Diagnostics,
) {
    let fields = types.values().flat_map(|of| of.fields.values());
    let has_labels = fields.flat_map(|field| &field.join).any(|join| join.label.is_some());
    let mut told = HashSet::new();
    // A field that is overridden for a percentage of the requests must be reachable with and without the
    // override.
    for is_overridden in if has_labels { [true, false].as_slice() } else { &[true] } {
        let mut satisfiability = Satisfiability {
            schemas,
            types,
            is_overridden: *is_overridden,
            states: Vec::new(),
            visited: HashSet::new(),
            reported: told,
            satisfied_cache: RefCell::default(),
        };
        satisfiability.check_all(errors);
        told = satisfiability.reported;
    }
}

/// A service in which an object is available, with the fields provided beyond the service's own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct ReachableService<'s> {
    source: usize,
    provided: Vec<ProvidedSelection<'s>>,
}

impl ReachableService<'_> {
    fn without_provided(source: usize) -> Self {
        Self { source, provided: Vec::new() }
    }
}

/// A selection, compared by address.
#[derive(Clone, Copy, Debug)]
struct ProvidedSelection<'s>(&'s FieldSetSelection);

impl ProvidedSelection<'_> {
    fn address(&self) -> usize {
        std::ptr::from_ref(self.0).addr()
    }
}

impl PartialEq for ProvidedSelection<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.address() == other.address()
    }
}
impl Eq for ProvidedSelection<'_> {}
impl PartialOrd for ProvidedSelection<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for ProvidedSelection<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.address().cmp(&other.address())
    }
}
impl std::hash::Hash for ProvidedSelection<'_> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.address().hash(state);
    }
}

struct ReachState<'s> {
    type_index: usize,
    services: Vec<ReachableService<'s>>,
    /// The previous state, and the field that leads from it to this one.
    previous: Option<(usize, &'s str)>,
}

/// A requirement on an object: its type, the required fields, and where the object is available.
type FieldRequirement<'s> = (Option<usize>, ProvidedSelection<'s>, ReachableService<'s>);

struct Satisfiability<'s, 'a> {
    schemas: &'s [SubgraphSchema<'a>],
    types: &'s MergedTypes<'a>,
    states: Vec<ReachState<'s>>,
    visited: HashSet<(usize, Vec<ReachableService<'s>>)>,
    /// The fields already reported.
    reported: HashSet<(usize, &'s str)>,
    /// Whether fields with an override label are currently overridden.
    is_overridden: bool,
    /// The cached result for each requirement.
    satisfied_cache: RefCell<HashMap<FieldRequirement<'s>, bool>>,
}

impl<'s, 'a> Satisfiability<'s, 'a> {
    fn check_all(&mut self, errors: &mut Diagnostics) {
        for root in ["Query", "Mutation", "Subscription"] {
            let Some(name) = self.types.get_index_of(root) else { continue };
            let places =
                (0..self.schemas.len()).filter(|&source| self.schemas[source].types.contains_key(root));
            self.add_state(ReachState {
                type_index: name,
                services: places.map(ReachableService::without_provided).collect(),
                previous: None,
            });
        }
        let mut next = 0;
        while next < self.states.len() && next < MAX_STATES {
            self.check_state(next, errors);
            next += 1;
        }
    }

    fn add_state(&mut self, mut state: ReachState<'s>) {
        state.services.sort_unstable();
        state.services.dedup();
        if self.visited.insert((state.type_index, state.services.clone())) {
            self.states.push(state);
        }
    }

    fn check_state(&mut self, index: usize, errors: &mut Diagnostics) {
        let ReachState { type_index: of, services: places, .. } = &self.states[index];
        let of = *of;
        let Some((&name, merged)) = self.types.get_index(of) else { return };
        let reachable_services = self.reachable_services(name, places, 0);
        let (mut next, mut missed) = (Vec::new(), Vec::new());
        for (&field, _) in merged.fields.iter().filter(|(_, field)| !field.metadata.is_inaccessible) {
            let found: Vec<ReachableService<'s>> = reachable_services
                .iter()
                .filter_map(|service| self.resolve_field(name, field, service))
                .collect();
            if found.is_empty() && self.reported.insert((of, field)) {
                missed.push(field);
            }
            next.push((field, found));
        }
        error_messages::report_fields(self, index, name, &missed, errors);
        let knows_type = |reachable_service: &ReachableService<'_>| {
            name == "Query" || self.schemas[reachable_service.source].types.contains_key(name)
        };
        if !reachable_services.iter().any(knows_type) && self.reported.insert((of, "__typename")) {
            error_messages::report_unknown_type(self, index, name, errors);
        }
        for (field, found) in next {
            for (of, places) in self.possible_objects(name, field, found) {
                self.add_state(ReachState {
                    type_index: of,
                    services: places,
                    previous: Some((index, field)),
                });
            }
        }
    }

    /// The services that can be reached with the object, from where it is available.
    fn reachable_services(
        &self,
        name: &str,
        services: &[ReachableService<'s>],
        depth: usize,
    ) -> Vec<ReachableService<'s>> {
        let mut reached = services.to_vec();
        if name == "Query" {
            let all = (0..self.schemas.len())
                .filter(|source| !reached.iter().any(|service| service.source == *source));
            reached.extend(all.map(ReachableService::without_provided).collect::<Vec<_>>());
            return reached;
        }
        let mut rest: Vec<(usize, &FieldSetSelection)> = self.resolvable_keys(name);
        if depth >= MAX_KEY_DEPTH {
            return reached;
        }
        loop {
            let before = rest.len();
            rest.retain(|&(source, key)| {
                if reached.iter().any(|reachable_service| {
                    reachable_service.source == source && reachable_service.provided.is_empty()
                }) {
                    return false;
                }
                let is_new = self.can_resolve_all(name, key, &reached, depth + 1);
                if is_new {
                    reached.push(ReachableService::without_provided(source));
                }
                !is_new
            });
            if rest.len() == before {
                return reached;
            }
        }
    }

    /// The keys by which services resolve the type.
    fn resolvable_keys(&self, name: &str) -> Vec<(usize, &'s FieldSetSelection)> {
        let mut keys = Vec::new();
        for source in 0..self.schemas.len() {
            for (_, of) in self.type_views(name, source) {
                let resolvable = of.keys.iter().filter(|key| key.is_resolvable);
                keys.extend(resolvable.map(|key| (source, &key.fields.selection)));
            }
        }
        keys
    }

    /// The type as a service declares it: under its own name, or as an interface object.
    fn type_views(&self, name: &str, source: usize) -> Vec<(&'s str, &'s SubgraphType<'a>)> {
        let types = &self.schemas[source].types;
        if let Some((name, of)) = types.get_key_value(name) {
            return vec![(name, of)];
        }
        let interfaces = self.types.get(name).into_iter().flat_map(|of| &of.interfaces);
        let found = interfaces.filter_map(|interface| types.get_key_value(interface));
        found.filter(|(_, of)| of.is_interface_object).map(|(name, of)| (*name, of)).collect()
    }

    /// Whether the whole selection can be resolved for an object.
    fn can_resolve_all(
        &self,
        name: &str,
        selection: &FieldSetSelection,
        services: &[ReachableService<'s>],
        depth: usize,
    ) -> bool {
        selection.0.iter().all(|picked| match picked {
            SelectedElement::InlineFragment { type_condition: of, below } => {
                of.as_deref().is_some_and(|of| !self.may_be_type(name, of))
                    || self.can_resolve_all(name, below, services, depth)
            }
            SelectedElement::Field { name: field, .. } if &**field == "__typename" => true,
            SelectedElement::Field { name: field, subselection: below, .. } => {
                let reachable_services: Vec<ReachableService<'s>> =
                    services.iter().filter_map(|service| self.resolve_field(name, field, service)).collect();
                !reachable_services.is_empty()
                    && (below.0.is_empty()
                        || self.possible_objects(name, field, reachable_services).iter().all(
                            |(of, places)| {
                                let name = self.types.get_index(*of).map_or("", |(name, _)| name);
                                self.can_resolve_all(
                                    name,
                                    below,
                                    &self.reachable_services(name, places, depth + 1),
                                    depth,
                                )
                            },
                        ))
            }
        })
    }

    fn may_be_type(&self, name: &str, other: &str) -> bool {
        name == other
            || self.types.get(name).is_some_and(|of| of.interfaces.contains(other))
            || self.types.get(other).is_some_and(|of| of.members.contains(name))
    }

    /// Where the field's value is available if the field is resolved by this service; `None` if the service
    /// can't resolve it.
    fn resolve_field(
        &self,
        name: &str,
        field: &str,
        service: &ReachableService<'s>,
    ) -> Option<ReachableService<'s>> {
        let mut provided: Vec<ProvidedSelection<'s>> = service
            .provided
            .iter()
            .filter_map(|ProvidedSelection(of)| self.find_subselection(name, of, field))
            .map(ProvidedSelection)
            .collect();
        let is_provided = !provided.is_empty();
        let (view, subgraph_field) = self
            .type_views(name, service.source)
            .into_iter()
            .find_map(|(view, of)| Some((view, of.fields.get(field)?)))?;
        if !is_provided && !self.is_resolved(view, field, service.source) {
            return None;
        }
        if let Some(requires) = subgraph_field.requires.as_ref().filter(|_| !is_provided) {
            self.is_satisfied(name, &requires.selection, service).then_some(())?;
        }
        provided.extend(subgraph_field.provides.as_ref().map(|set| ProvidedSelection(&set.selection)));
        provided.retain(|ProvidedSelection(of)| !of.0.is_empty());
        provided.sort_unstable();
        Some(ReachableService { source: service.source, provided })
    }

    /// Whether the required fields of an object can be resolved, starting from the field's service. A field
    /// that requires itself is never satisfied.
    fn is_satisfied(
        &self,
        name: &str,
        requires: &'s FieldSetSelection,
        service: &ReachableService<'s>,
    ) -> bool {
        let question = (self.types.get_index_of(name), ProvidedSelection(requires), service.clone());
        if let Some(&known) = self.satisfied_cache.borrow().get(&question) {
            return known;
        }
        self.satisfied_cache.borrow_mut().insert(question.clone(), false);
        let services = self.reachable_services(name, std::slice::from_ref(service), 0);
        let is_satisfied = self.can_resolve_all(name, requires, &services, 0);
        self.satisfied_cache.borrow_mut().insert(question, is_satisfied);
        is_satisfied
    }

    /// The part of a selection below a field, for an object of this type.
    fn find_subselection(
        &self,
        name: &str,
        selection: &'s FieldSetSelection,
        field: &str,
    ) -> Option<&'s FieldSetSelection> {
        selection.0.iter().find_map(|picked| match picked {
            SelectedElement::Field { name, subselection: below, .. } => (**name == *field).then_some(below),
            SelectedElement::InlineFragment { type_condition: of, below } => {
                let fits = of.as_deref().is_none_or(|of| self.may_be_type(name, of));
                if fits { self.find_subselection(name, below, field) } else { None }
            }
        })
    }

    fn is_resolved(&self, view: &str, field: &str, source: usize) -> bool {
        let Some(merged) = self.types.get(view).and_then(|of| of.fields.get(field)) else { return false };
        let gives = |join: &JoinField<'_>| {
            let is_now = join.label.is_none() || join.overrides.is_some() == self.is_overridden;
            join.source == Some(source) && is_now && !join.is_external && !join.is_used_overridden
        };
        merged.join.is_empty() || merged.join.iter().any(gives)
    }

    /// The possible object types of a field's value, each with the services in which it may be available.
    fn possible_objects(
        &self,
        name: &str,
        field: &str,
        services: Vec<ReachableService<'s>>,
    ) -> HashMap<usize, Vec<ReachableService<'s>>> {
        let mut objects: HashMap<usize, Vec<ReachableService<'s>>> = HashMap::new();
        for service in services {
            let views = self.type_views(name, service.source);
            let Some(of) = views.iter().find_map(|(_, of)| of.fields.get(field)) else { continue };
            for object in self.possible_types(of, service.source) {
                objects.entry(object).or_default().push(service.clone());
            }
        }
        objects
    }

    fn possible_types(&self, field: &SubgraphField<'_>, source: usize) -> Vec<usize> {
        let name = field.type_ref.name();
        let types = &self.schemas[source].types;
        let Some(of) = types.get(name) else { return Vec::new() };
        let names: Vec<&str> = match of.kind {
            SubgraphTypeKind::Object if of.is_interface_object => {
                let all = self
                    .types
                    .iter()
                    .filter(|(_, of)| of.kind == SubgraphTypeKind::Object && of.interfaces.contains(name));
                all.map(|(name, _)| *name).collect()
            }
            SubgraphTypeKind::Object => vec![name],
            SubgraphTypeKind::Union => of.members.iter().copied().collect(),
            SubgraphTypeKind::Interface => {
                let all = types
                    .iter()
                    .filter(|(_, of)| of.kind == SubgraphTypeKind::Object && of.interfaces.contains(name));
                all.map(|(name, _)| *name).collect()
            }
            _ => Vec::new(),
        };
        let seen = |name: &&str| self.types.get(*name).is_some_and(|of| !of.metadata.is_inaccessible);
        names.iter().filter(|name| seen(name)).filter_map(|name| self.types.get_index_of(*name)).collect()
    }
}
