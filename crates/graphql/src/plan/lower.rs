//! Lowering of the planner's plan to steps. Every fetch becomes a step; a fetch from a REST service becomes a
//! step for each root field and each link.
//!
//! The planner's plan is traversed once, in its order, and the positions of the response are built on the
//! way. The dependencies of a step follow from the slots that it reads, so that no step waits for data that
//! it does not need.

mod entities;
mod link;
mod object_path;
mod representation;
mod root_fields;
mod select;
mod translation;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use hive_router_query_planner::ast::fragment::FragmentDefinition;
use hive_router_query_planner::ast::operation::VariableDefinition;
use hive_router_query_planner::ast::selection_item::SelectionItem;
use hive_router_query_planner::ast::selection_set::FieldSelection;
use hive_router_query_planner::planner::plan_nodes::{
    BatchFetchNode, FetchNode, FetchRewrite, FlattenNodePath, FlattenNodePathSegment, PlanNode,
};
use hive_router_query_planner::state::supergraph_state::SupergraphState;

use super::data::{
    FieldLookup, ObjectGroup, PlanCall, PlanStep, PositionId, ResponsePosition, SlotField, StepId,
    TypeFilter, intersect_types,
};
use super::types::{ClientTypes, TypeId};
use super::values::{CallArgumentTexts, ValueSpeller, quote_json};
use crate::subgraph::{OperationKind, Subgraph, SubgraphBindings, SubgraphProtocol};
use entities::{EntitiesAlias, EntitiesFetch};
use select::DataPosition;

/// The reason why a plan cannot be lowered: a bug in the gateway, or an inconsistent supergraph.
#[derive(Debug)]
pub(crate) struct LoweringError(pub(crate) String);

type LoweringResult = Result<(), LoweringError>;

/// The steps and positions so far.
pub(crate) struct PlanLowering<'a> {
    supergraph: &'a SupergraphState,
    types: &'a ClientTypes,
    subgraphs: &'a HashMap<Arc<str>, Subgraph>,
    kind: OperationKind,
    pub(crate) positions: Vec<ResponsePosition>,
    pub(crate) steps: Vec<PlanStep>,
    /// The conditions of the nodes that are being lowered.
    conditions: Vec<(Arc<str>, bool)>,
}

/// A fetch that is being lowered.
#[derive(Clone, Copy)]
struct LoweredFetch<'f> {
    subgraph: &'f Subgraph,
    fragments: &'f [FragmentDefinition],
    variables: &'f [VariableDefinition],
    output_rewrites: &'f [FetchRewrite],
}

/// The objects that a fetch is made for.
#[derive(Clone)]
struct FetchTarget {
    position: PositionId,
    /// The positions on the path to them, with the types of the objects that are included.
    type_filters: HashMap<PositionId, TypeFilter>,
}

impl<'f> LoweredFetch<'f> {
    fn bindings(self) -> &'f SubgraphBindings {
        match &self.subgraph.kind {
            SubgraphProtocol::Rest(bindings) | SubgraphProtocol::Remote { bindings, .. } => bindings,
        }
    }

    fn is_rest(self) -> bool {
        matches!(self.subgraph.kind, SubgraphProtocol::Rest(_))
    }
}

impl<'a> PlanLowering<'a> {
    pub(crate) fn new(
        supergraph: &'a SupergraphState,
        types: &'a ClientTypes,
        subgraphs: &'a HashMap<Arc<str>, Subgraph>,
        kind: OperationKind,
    ) -> Self {
        let declared = types.root_type(kind);
        let root = ResponsePosition {
            parent: None,
            declared_type: declared,
            slots: Vec::new(),
            is_shared: false,
            children: HashMap::new(),
        };
        let (steps, conditions) = (Vec::new(), Vec::new());
        Self { supergraph, types, subgraphs, kind, positions: vec![root], steps, conditions }
    }

    /// Lowers a node of the planner's plan.
    pub(crate) fn lower_node(&mut self, node: &PlanNode) -> LoweringResult {
        match node {
            PlanNode::Sequence(sequence) => sequence.nodes.iter().try_for_each(|node| self.lower_node(node)),
            PlanNode::Parallel(parallel) => parallel.nodes.iter().try_for_each(|node| self.lower_node(node)),
            PlanNode::Fetch(fetch) => {
                self.lower_fetch(fetch, FetchTarget { position: 0, type_filters: HashMap::new() })
            }
            PlanNode::Flatten(flatten) => match &*flatten.node {
                PlanNode::Fetch(fetch) => self.lower_fetch(fetch, self.resolve_target(&flatten.path)?),
                _ => Err(LoweringError("a path leads to something other than a fetch".to_owned())),
            },
            PlanNode::BatchFetch(fetch) => self.lower_batch(fetch),
            PlanNode::Condition(condition) => {
                for (branch, value) in [(&condition.if_clause, true), (&condition.else_clause, false)] {
                    let Some(branch) = branch else { continue };
                    self.conditions.push((condition.condition.as_str().into(), value));
                    let done = self.lower_node(branch);
                    self.conditions.pop();
                    done?;
                }
                Ok(())
            }
            PlanNode::Subscription(_) | PlanNode::Defer(_) => {
                Err(LoweringError("subscriptions and @defer are not supported".to_owned()))
            }
        }
    }

    /// The position at the end of a path.
    fn resolve_target(&self, path: &FlattenNodePath) -> Result<FetchTarget, LoweringError> {
        let mut target = FetchTarget { position: 0, type_filters: HashMap::new() };
        for segment in path.as_slice() {
            match segment {
                FlattenNodePathSegment::Field(key) => {
                    let child = self.positions[target.position].children.get(key.as_str());
                    target.position =
                        *child.ok_or_else(|| LoweringError(format!("no position at `{path}`")))?;
                }
                FlattenNodePathSegment::TypeCondition(names) => {
                    let only = self.type_filter_for(names.iter().map(String::as_str));
                    let known = target.type_filters.entry(target.position).or_insert(None);
                    *known = intersect_types(known, &only);
                }
                FlattenNodePathSegment::List => {}
            }
        }
        Ok(target)
    }

    /// The types with these names, and the possible types of the abstract ones. Hidden types are included,
    /// since services may require data about them.
    fn type_filter_for<'n>(&self, names: impl Iterator<Item = &'n str>) -> TypeFilter {
        let mut types: BTreeSet<TypeId> = BTreeSet::new();
        for id in names.filter_map(|name| self.types.find(name)) {
            types.insert(id);
            types.extend(self.types.objects(id));
            types.extend(self.types.hidden_objects(id));
        }
        Some(types.into_iter().collect())
    }

    fn find_subgraph(&self, name: &str) -> Result<&'a Subgraph, LoweringError> {
        self.subgraphs.get(name).ok_or_else(|| LoweringError(format!("there is no service `{name}`")))
    }

    fn lower_fetch(&mut self, node: &FetchNode, target: FetchTarget) -> LoweringResult {
        let subgraph = self.find_subgraph(&node.service_name)?;
        let outputs = node.output_rewrites.as_deref().unwrap_or_default();
        let document = &node.operation.document;
        let variables = document.operation.variable_definitions.as_deref().unwrap_or_default();
        let fetch =
            LoweredFetch { subgraph, fragments: &document.fragments, variables, output_rewrites: outputs };
        let Some(requires) = &node.requires else { return self.lower_roots(fetch, node, &target) };
        let field = document.operation.selection_set.entities_field();
        let alias = EntitiesAlias {
            field: field
                .ok_or_else(|| LoweringError("a fetch of entities without `_entities`".to_owned()))?,
            variable: "representations",
            requires,
            input_rewrites: node.input_rewrites.as_deref().unwrap_or_default(),
            output_rewrites: outputs,
            targets: vec![target],
        };
        let node_variables = to_boxed_names(node.variable_usages.iter().flatten());
        self.lower_entities(
            fetch,
            EntitiesFetch { node_variables, operation: &node.operation, aliases: vec![alias] },
        )
    }

    fn lower_batch(&mut self, node: &BatchFetchNode) -> LoweringResult {
        let subgraph = self.find_subgraph(&node.service_name)?;
        let document = &node.operation.document;
        let mut aliases = Vec::new();
        for alias in &node.entity_batch.aliases {
            let field = document.operation.selection_set.items.iter().find_map(|item| match item {
                SelectionItem::Field(field) if field.selection_identifier() == alias.alias => Some(field),
                _ => None,
            });
            let targets: Result<Vec<FetchTarget>, LoweringError> =
                alias.merge_paths.iter().map(|path| self.resolve_target(path)).collect();
            aliases.push(EntitiesAlias {
                field: field.ok_or_else(|| LoweringError(format!("a batch without `{}`", alias.alias)))?,
                variable: &alias.representations_variable_name,
                requires: &alias.requires,
                input_rewrites: alias.input_rewrites.as_deref().unwrap_or_default(),
                output_rewrites: alias.output_rewrites.as_deref().unwrap_or_default(),
                targets: targets?,
            });
        }
        let variables = document.operation.variable_definitions.as_deref().unwrap_or_default();
        let fetch =
            LoweredFetch { subgraph, fragments: &document.fragments, variables, output_rewrites: &[] };
        let representations: Vec<&str> = aliases.iter().map(|alias| alias.variable).collect();
        let variables = node.variable_usages.iter().flatten();
        let node_variables =
            to_boxed_names(variables.filter(|name| !representations.contains(&name.as_str())));
        self.lower_entities(fetch, EntitiesFetch { node_variables, operation: &node.operation, aliases })
    }

    fn push_step(
        &mut self,
        subgraph: &Subgraph,
        call: PlanCall,
        groups: Vec<ObjectGroup>,
        conditions: &[(Arc<str>, bool)],
        after: Vec<StepId>,
    ) {
        let conditions = self.conditions.iter().chain(conditions).cloned().collect();
        let service = Arc::clone(&subgraph.name);
        let (SubgraphProtocol::Rest(bindings) | SubgraphProtocol::Remote { bindings, .. }) = &subgraph.kind;
        let bindings = Arc::clone(bindings);
        self.steps.push(PlanStep { service, bindings, call, groups, conditions, dependencies: after });
    }

    /// Lowers a part of the plan that depends on variables.
    fn with_conditions<T>(
        &mut self,
        conditions: Vec<(Arc<str>, bool)>,
        lower: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let outer = self.conditions.len();
        self.conditions.extend(conditions);
        let done = lower(self);
        self.conditions.truncate(outer);
        done
    }

    /// Adds a field whose value is the slot itself.
    fn add_slot_value(
        &mut self,
        fetch: LoweredFetch<'_>,
        position: &DataPosition<'_>,
        field: &FieldSelection,
    ) -> LoweringResult {
        let key = field.selection_identifier();
        let slot_field = SlotField {
            field: field.name.as_str().into(),
            type_filter: position.type_filter.clone(),
            lookup: FieldLookup::WholeValue,
            is_renamed: false,
            is_conditional: position.is_conditional,
            spelling: self.field_spelling(fetch, position.parent, &field.name),
        };
        self.positions[position.position].slots[position.slot].add_entry(key, slot_field);
        self.record_subselection(fetch, position, field, key, &mut vec![key.to_owned()])
    }

    fn lower_arguments(
        &self,
        fetch: LoweredFetch<'_>,
        parent: &str,
        field: &FieldSelection,
    ) -> CallArgumentTexts {
        let speller = ValueSpeller { types: self.types, bindings: Some(fetch.bindings()) };
        let client_field = self.types.find(parent).and_then(|id| self.types.field(id, &field.name));
        let mut arguments = Vec::new();
        for argument in client_field.map(|field| field.arguments.as_slice()).unwrap_or_default() {
            let given = field.arguments.iter().flatten().find(|(name, _)| **name == *argument.name);
            let default = argument.default.as_ref().map(|value| speller.literal_json(value, &argument.ty));
            let value = match given {
                Some((_, value)) => speller.build_template(value, &argument.ty, default),
                None => match default {
                    Some(text) => super::values::ValueTemplate::Text(text),
                    None => continue,
                },
            };
            arguments.push((quote_json(&argument.name), value));
        }
        CallArgumentTexts(arguments)
    }
}

fn to_boxed_names<'n>(names: impl Iterator<Item = &'n String>) -> Box<[Box<str>]> {
    names.map(|name| name.as_str().into()).collect()
}

/// The variables that decide whether a field or fragment is included, with their required values.
fn inclusion_conditions(skip: &Option<String>, include: &Option<String>) -> Vec<(Arc<str>, bool)> {
    let skip = skip.iter().map(|name| (name.as_str().into(), false));
    skip.chain(include.iter().map(|name| (name.as_str().into(), true))).collect()
}
