//! Query planning: a client's document is parsed, checked, validated, planned, lowered to steps, and cached.
//!
//! The planner and the validation are libraries (`hive-router-query-planner`, `graphql-tools`); only this
//! module and `lower/` refer to them. A plan depends on the document and the operation's name alone: the
//! variables of `@skip` and `@include` are evaluated during execution.

mod abstract_types;
pub(crate) mod data;
pub(crate) mod explain;
#[cfg(test)]
mod fuzz;
mod hoisted_fields;
#[cfg(test)]
mod hostile;
mod limits;
mod lower;
mod operation;
mod plan_cache;
mod plan_memory;
mod planning_work;
mod response_keys;
pub(crate) mod shape;
mod supergraph;
pub(crate) mod types;
mod validate;
pub(crate) mod values;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use graphql_tools::static_graphql::query::{Document, VariableDefinition};
use graphql_tools::static_graphql::schema::Document as SchemaDocument;
use hive_router_query_planner::ast::normalization::normalize_operation;
use hive_router_query_planner::ast::operation::OperationDefinition as NormalizedOperation;
use hive_router_query_planner::ast::selection_item::SelectionItem;
use hive_router_query_planner::ast::selection_set::{FieldSelection, SelectionSet};
use hive_router_query_planner::graph::PlannerOverrideContext;
use hive_router_query_planner::planner::plan_nodes::PlanNode;
use hive_router_query_planner::planner::{Planner as HivePlanner, PlannerError, QueryPlannerOptions};
use hive_router_query_planner::state::supergraph_state::SupergraphDefinition;
use hive_router_query_planner::utils::cancellation::CancellationToken;
use hive_router_query_planner::utils::parsing::{safe_parse_operation_with_token_limit, safe_parse_schema};

use offload::OffloadError;
use services::InFlightMap;

use crate::config::GraphqlLimits;
use crate::error::{GraphqlError, GraphqlErrorKind};
use crate::subgraph::{OperationKind, Subgraph};
use data::{PlanStep, ResponsePosition};
use hoisted_fields::hoist_fields;
pub(crate) use limits::document_text::check_size;
use limits::fragments::FragmentIndex;
use lower::{LoweringError, PlanLowering};
use operation::DocumentOperation;
use plan_cache::{CachedPlan, EvictedPlans};
use planning_work::{PlanningModel, PlanningWork};
use response_keys::{ReservedNames, ResponseKeys};
use shape::{ResponseShape, ShapeBuilder, ShapeId};
use types::{ClientTypeRef, ClientTypes};
use validate::ValidationRules;
pub(crate) use validate::shorten_text;

/// The default timeout for planning one document.
pub(crate) const PLANNING_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum size of the plan cache in bytes.
const PLAN_CACHE_BYTES: usize = 32 << 20;
/// The maximum estimated memory of a plan in bytes. The cache accepts no larger ones.
const MAX_PLAN_BYTES: usize = PLAN_CACHE_BYTES / 4;

/// The error message for a supergraph that makes the library panic.
pub(crate) const UNREADABLE_MESSAGE: &str = "the planner can't read it";

/// Plans documents and caches the plans.
pub(crate) struct QueryPlanner {
    hive: HivePlanner,
    /// A second planner, for operations that the first finds no path for.
    fallback: Option<HivePlanner>,
    types: Arc<ClientTypes>,
    reserved_names: ReservedNames,
    subgraphs: HashMap<Arc<str>, Subgraph>,
    validation: ValidationRules,
    model: PlanningModel,
    limits: GraphqlLimits,
    cache: CachedPlan,
    /// Documents that are being planned.
    pub(crate) in_flight: Arc<InFlightMap<Result<Arc<QueryPlan>, PlanError>>>,
}

/// The reason why a document has no plan.
#[derive(Clone, Debug)]
pub(crate) enum PlanError {
    /// The document is invalid.
    Document(Arc<[GraphqlError]>),
    /// The pool had no capacity or no time for the work.
    Work(OffloadError),
}

/// An execution plan for an operation.
#[derive(Debug)]
pub(crate) struct QueryPlan {
    pub(crate) kind: OperationKind,
    /// Whether it queries the schema itself.
    pub(crate) has_introspection: bool,
    pub(crate) variables: Vec<OperationVariable>,
    pub(crate) steps: Vec<PlanStep>,
    pub(crate) positions: Vec<ResponsePosition>,
    pub(crate) shapes: Vec<ResponseShape>,
    /// The number of scans in the shapes.
    pub(crate) scans: usize,
    pub(crate) root: ShapeId,
    pub(crate) types: Arc<ClientTypes>,
    /// The estimated memory of the plan.
    pub(crate) bytes: usize,
}

/// A document that is ready to be planned.
#[derive(Debug)]
pub(crate) struct CheckedDocument {
    /// The name of the requested operation.
    name: Option<Box<str>>,
    document: Document,
    /// The work that planning takes.
    pub(crate) work: PlanningWork,
}

/// A variable of an operation.
#[derive(Debug)]
pub(crate) struct OperationVariable {
    pub(crate) name: Arc<str>,
    pub(crate) ty: ClientTypeRef,
    pub(crate) default: Option<bytes::Bytes>,
    pub(crate) location: (u32, u32),
}

impl QueryPlanner {
    /// Creates a planner for a supergraph, with or without its mutations. The error is a message.
    pub(crate) fn new(
        supergraph: &str,
        subgraphs: Vec<Subgraph>,
        limits: &GraphqlLimits,
        has_mutations: bool,
    ) -> Result<Self, String> {
        let mut document = safe_parse_schema(supergraph).map_err(|error| error.to_string())?;
        if !has_mutations {
            supergraph::without_mutations(&mut document);
        }
        let mut hive = new_library_planner(&document)?;
        let shown = supergraph::without_hidden_names(&hive.consumer_schema.document);
        hive.consumer_schema = Arc::new(Arc::new(shown).into());
        let again = supergraph::without_interface_objects(&document);
        let again = again.and_then(|document| new_library_planner(&document).ok());
        let mut types = ClientTypes::from_schema(&hive.consumer_schema.document);
        for (name, definition) in &hive.supergraph.definitions {
            types.intern(name);
            if let SupergraphDefinition::Enum(named) = definition {
                types.hide_values(name, named.values.iter().map(|value| value.name.as_str()));
            }
        }
        types.hide_objects(&document);
        let bindings = subgraphs.iter().map(|subgraph| match &subgraph.kind {
            crate::subgraph::SubgraphProtocol::Rest(bindings)
            | crate::subgraph::SubgraphProtocol::Remote { bindings, .. } => &**bindings,
        });
        for (of, objects) in bindings.clone().flat_map(|bindings| &bindings.hidden_objects) {
            objects.iter().for_each(|object| types.hide_object(of, object));
        }
        types.record_scalars(bindings);
        let model = PlanningModel::new(&hive.supergraph, &mut types);
        let types = Arc::new(types);
        let subgraphs = subgraphs.into_iter().map(|subgraph| (Arc::clone(&subgraph.name), subgraph));
        Ok(Self {
            hive,
            fallback: again,
            validation: ValidationRules::new(&types),
            types,
            reserved_names: ReservedNames::from_supergraph(&document),
            subgraphs: subgraphs.collect(),
            model,
            limits: *limits,
            cache: CachedPlan::new(PLAN_CACHE_BYTES),
            in_flight: Arc::default(),
        })
    }

    /// The schema that clients see.
    pub(crate) fn schema(&self) -> &SchemaDocument {
        &self.hive.consumer_schema.document
    }

    /// Returns the cached plan of an operation.
    pub(crate) fn cached_plan(&self, text: &str, name: Option<&str>) -> Option<Arc<QueryPlan>> {
        self.cache.get(text, name)
    }

    /// Returns the plan of an operation, planning it now if necessary. For use where no requests wait.
    pub(crate) fn plan(&self, text: &str, name: Option<&str>) -> Result<Arc<QueryPlan>, Vec<GraphqlError>> {
        match self.cached_plan(text, name) {
            Some(plan) => Ok(plan),
            None => {
                let Some(checked) = self.check_document(text, name, u64::MAX)? else {
                    unreachable!("the number of selections is unlimited")
                };
                let plan = self.plan_checked(&checked, &CancellationToken::with_timeout(PLANNING_TIMEOUT))?;
                self.cache_plan(&text.into(), name, &plan);
                Ok(plan)
            }
        }
    }

    /// An estimate of the maximum CPU time of [`Self::check_document`]. The validation library looks types up
    /// by linear search.
    pub(crate) fn check_estimate(&self, text: &str) -> Duration {
        let tokens = (text.len() / 2).min(self.limits.tokens as usize);
        let nanos = tokens.saturating_mul(1_000 + 10 * self.schema().definitions.len()) + 20 * text.len();
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Parses, checks and validates a document. Returns `None` if its operations have more than
    /// `most_selections` selections together. This is decided in time linear in the document's size.
    pub(crate) fn check_document(
        &self,
        text: &str,
        name: Option<&str>,
        most_selections: u64,
    ) -> Result<Option<CheckedDocument>, Vec<GraphqlError>> {
        let one = |error: Box<GraphqlError>| vec![*error];
        limits::document_text::check_text(text).map_err(one)?;
        let document = self.parse(text).map_err(one)?;
        let operation = DocumentOperation::from_document(&document, name).map_err(one)?;
        if operation.kind == OperationKind::Mutation && self.types.mutation.is_none() {
            let message = "the schema has no mutations";
            return Err(vec![GraphqlError::new(GraphqlErrorKind::Operation, message)]);
        }
        let fragments = FragmentIndex::new(&document).map_err(one)?;
        let counts = limits::check_sizes(&document, &fragments, &self.types, &self.limits).map_err(one)?;
        if counts.total > most_selections {
            return Ok(None);
        }
        limits::check_repetition(&document, &fragments).map_err(one)?;
        self.validation.validate_document(
            self.schema(),
            &self.types,
            &document,
            &fragments,
            counts.largest,
        )?;
        let root = self.types.root_type(operation.kind);
        let work =
            PlanningWork::for_operation(operation.selections, root, &fragments, &self.types, &self.model);
        let work = work.map_err(one)?;
        Ok(Some(CheckedDocument { name: name.map(Into::into), document, work }))
    }

    /// Caches a plan. Returns the plans that were evicted for it, whose drop may take long. Must not be
    /// called in the offload pool, whose threads have a low priority: serving threads wait for the lock of
    /// the cache.
    pub(crate) fn cache_plan(
        &self,
        text: &Arc<str>,
        name: Option<&str>,
        plan: &Arc<QueryPlan>,
    ) -> EvictedPlans {
        self.cache.insert(text, name, plan)
    }

    /// Plans a checked document.
    pub(crate) fn plan_checked(
        &self,
        checked: &CheckedDocument,
        token: &CancellationToken,
    ) -> Result<Arc<QueryPlan>, Vec<GraphqlError>> {
        let one = |error: Box<GraphqlError>| vec![*error];
        let CheckedDocument { name, document, .. } = checked;
        let operation = DocumentOperation::from_document(document, name.as_deref()).map_err(one)?;
        let fragments = FragmentIndex::new(document).map_err(one)?;
        let root = self.types.root_type(operation.kind);
        let variables = self.operation_variables(&operation);
        let broken = |LoweringError(reason): LoweringError| {
            tracing::error!(reason, "a document could not be planned");
            vec![GraphqlError::new(
                GraphqlErrorKind::Plan,
                "the gateway can't plan this document; its log has the reason",
            )]
        };
        let keys = ResponseKeys::from_document(document, &self.reserved_names);
        let (positions, steps) =
            self.lower_operation(&operation, &fragments, &keys, token).map_err(broken)?;
        let mut shaping = ShapeBuilder::new(&self.types, &positions, document, &keys);
        let root = shaping.root_shape(operation.selections, root);
        if shaping.is_exhausted() {
            return Err(one(planning_work::planning_limit_error()));
        }
        let (shapes, scans) = (std::mem::take(&mut shaping.shapes), shaping.scans);
        let mut plan = QueryPlan {
            kind: operation.kind,
            has_introspection: has_introspection(&shapes),
            variables,
            steps,
            positions,
            shapes,
            scans,
            root,
            types: Arc::clone(&self.types),
            bytes: 0,
        };
        plan.bytes = plan_memory::plan_bytes(&plan);
        if plan.bytes > MAX_PLAN_BYTES {
            return Err(one(planning_work::planning_limit_error()));
        }
        Ok(Arc::new(plan))
    }

    fn parse(&self, text: &str) -> Result<Document, Box<GraphqlError>> {
        let tokens = self.limits.tokens as usize;
        catch_panic(|| safe_parse_operation_with_token_limit(text, tokens))
            .ok_or_else(|| GraphqlError::new(GraphqlErrorKind::Syntax, "the document can't be read"))?
            .map_err(|error| Box::new(syntax_error(&error.to_string(), tokens)))
    }

    fn operation_variables(&self, operation: &DocumentOperation<'_>) -> Vec<OperationVariable> {
        let speller = values::ValueSpeller { types: &self.types, bindings: None };
        let variable = |variable: &VariableDefinition| {
            let ty = self.types.resolve_type(&variable.var_type)?;
            Some(OperationVariable {
                name: variable.name.as_str().into(),
                default: variable.default_value.as_ref().map(|value| speller.literal_json(value, &ty)),
                ty,
                location: (variable.position.line as u32, variable.position.column as u32),
            })
        };
        operation.variables.iter().filter_map(variable).collect()
    }

    /// Returns the positions and steps of an operation. Introspection, which the gateway answers itself, is
    /// not planned.
    fn lower_operation(
        &self,
        operation: &DocumentOperation<'_>,
        fragments: &FragmentIndex<'_>,
        keys: &ResponseKeys<'_>,
        token: &CancellationToken,
    ) -> Result<(Vec<ResponsePosition>, Vec<PlanStep>), LoweringError> {
        let mut lowering =
            PlanLowering::new(&self.hive.supergraph, &self.types, &self.subgraphs, operation.kind);
        if let Some(mut document) = operation.planner_document(fragments) {
            keys.rename_fields(&mut document);
            abstract_types::prepare_document(
                &mut document,
                self.types.root_type(operation.kind),
                &self.types,
            );
            if let Some(node) = self.plan_operation(&document, operation.kind, token)? {
                lowering.lower_node(&node)?;
            }
        }
        Ok((lowering.positions, lowering.steps))
    }

    /// Returns the library's plan of a document with one operation, or `None` if conditions leave nothing to
    /// execute.
    fn plan_operation(
        &self,
        document: &Document,
        kind: OperationKind,
        token: &CancellationToken,
    ) -> Result<Option<PlanNode>, LoweringError> {
        let plan = catch_panic(|| {
            let mut normalized = normalize_operation(&self.hive.supergraph, document, None)
                .map_err(|error| LoweringError(error.to_string()))?;
            drop_empty_fragments(&mut normalized.operation.selection_set);
            if normalized.operation.selection_set.is_empty() {
                return Ok(None);
            }
            let plan = |hive: &HivePlanner, operation: &NormalizedOperation| {
                let overrides = PlannerOverrideContext::from_percentage(0.0);
                hive.plan_from_normalized_operation(operation, overrides, token)
            };
            let operation = &normalized.operation;
            let planned = match (plan(&self.hive, operation), &self.fallback) {
                (Err(PlannerError::PathLocatorError(error)), Some(again)) => {
                    let lifted = || {
                        let root = self.types.name(self.types.root_type(kind));
                        let selection_set =
                            hoist_fields(&self.hive.supergraph, root, &operation.selection_set);
                        plan(again, &NormalizedOperation { selection_set, ..operation.clone() })
                    };
                    plan(again, operation).or_else(|_| lifted()).map_err(|_| error.into())
                }
                (planned, _) => planned,
            };
            planned.map(|plan| plan.node).map_err(|error| LoweringError(error.to_string()))
        });
        plan.unwrap_or_else(|| Err(LoweringError("the planner panicked".to_owned())))
    }
}

/// Removes fragments that `@include(if: false)` has left without selections, since the library finds no path
/// for them.
fn drop_empty_fragments(set: &mut SelectionSet) {
    set.items.retain_mut(|item| match item {
        SelectionItem::Field(field) => {
            let is_leaf = field.is_leaf();
            drop_empty_fragments(&mut field.selections);
            if !is_leaf && field.is_leaf() {
                // A service rejects an object without selections.
                field.selections.items.push(SelectionItem::Field(FieldSelection::new_skipped_typename()));
            }
            true
        }
        SelectionItem::InlineFragment(fragment) => {
            drop_empty_fragments(&mut fragment.selections);
            !fragment.selections.is_empty()
        }
        SelectionItem::FragmentSpread(_) => true,
    });
}

/// Creates the library's planner for a supergraph.
fn new_library_planner(supergraph: &SchemaDocument) -> Result<HivePlanner, String> {
    let hive = catch_panic(|| HivePlanner::new_from_supergraph(supergraph, QueryPlannerOptions::default()));
    let hive = hive.ok_or_else(|| UNREADABLE_MESSAGE.to_owned())?;
    hive.map_err(|error| error.to_string())
}

/// Returns the result of a library call, or `None` if it panics.
fn catch_panic<T>(call: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).ok()
}

/// Converts a parser error, taking the position and the description from its lines.
fn syntax_error(text: &str, tokens: usize) -> GraphqlError {
    if text.to_ascii_lowercase().contains("token limit") {
        return GraphqlError::new(
            GraphqlErrorKind::Limit,
            format!("the document has more than {tokens} tokens"),
        );
    }
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let message = lines.iter().skip(1).copied().collect::<Vec<_>>().join("; ");
    let place = lines.first().and_then(|first| {
        let (_, place) = first.rsplit_once(' ')?;
        let (line, column) = place.split_once(':')?;
        Some((line.parse().ok()?, column.trim_end_matches(':').parse().ok()?))
    });
    let message = if message.is_empty() { text.trim().to_owned() } else { message };
    let message = format!("the document is not valid GraphQL: {}", shorten_text(&message));
    let error = GraphqlError::new(GraphqlErrorKind::Syntax, message);
    place.map_or(error.clone(), |place| error.with_location(place))
}

fn has_introspection(shapes: &[ResponseShape]) -> bool {
    let fields = shapes.iter().flat_map(|shape| &shape.variants).flat_map(|variant| variant.fields.iter());
    fields.into_iter().any(|field| matches!(field.source, shape::FieldSource::Introspection(_)))
}

#[cfg(test)]
mod tests;
