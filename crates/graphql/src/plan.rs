//! From a client's document to steps: parsed, judged, validated, planned, lowered, and kept.
//!
//! The planner and the validation are libraries' (`hive-router-query-planner`, `graphql-tools`), and named here and in
//! `lower/` only. A plan depends on the document and the operation's name alone: what variables say of `@skip` and
//! `@include` is looked at when it is run.

pub(crate) mod data;
pub(crate) mod explain;
mod kept;
mod lifted;
mod limits;
mod lower;
mod response_keys;
pub(crate) mod shape;
mod supergraph;
pub(crate) mod types;
pub(crate) mod values;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use graphql_tools::static_graphql::query::{
    Definition, Document, OperationDefinition, Selection, SelectionSet, VariableDefinition,
};
use graphql_tools::static_graphql::schema::Document as SchemaDocument;
use graphql_tools::validation::rules::default_rules_validation_plan;
use graphql_tools::validation::validate::{ValidationPlan, validate};
use hive_router_query_planner::ast::normalization::normalize_operation;
use hive_router_query_planner::ast::operation::OperationDefinition as Normalized;
use hive_router_query_planner::graph::PlannerOverrideContext;
use hive_router_query_planner::planner::plan_nodes::PlanNode;
use hive_router_query_planner::planner::{Planner as Hive, PlannerError, QueryPlannerOptions};
use hive_router_query_planner::state::supergraph_state::SupergraphDefinition;
use hive_router_query_planner::utils::cancellation::CancellationToken;
use hive_router_query_planner::utils::parsing::{safe_parse_operation_with_token_limit, safe_parse_schema};

use crate::error::{Code, GraphqlError};
use crate::{GraphqlLimits, OperationKind, Subgraph};
use data::{Position, Step};
use kept::Kept;
use lifted::lifted;
use lower::{Broken, Lowering};
use response_keys::{ReservedNames, ResponseKeys};
use shape::{Shape, ShapeId, Shaping};
use types::{Ty, Types};

/// How long one document may be planned for.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The bytes of documents whose plans are kept.
const KEPT: usize = 4 << 20;

/// What is said of a supergraph that the library does not even refuse.
pub(crate) const STOPPED: &str = "the planner can't read it";

/// Makes plans of documents, and keeps them.
pub(crate) struct Planner {
    hive: Hive,
    /// For what that one finds no way to.
    again: Option<Hive>,
    types: Arc<Types>,
    reserved: ReservedNames,
    subgraphs: HashMap<Arc<str>, Subgraph>,
    rules: ValidationPlan,
    limits: GraphqlLimits,
    kept: Kept,
}

/// How an operation is answered.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) kind: OperationKind,
    /// Whether it asks for the schema itself.
    pub(crate) introspects: bool,
    pub(crate) variables: Vec<Variable>,
    pub(crate) steps: Vec<Step>,
    pub(crate) positions: Vec<Position>,
    pub(crate) shapes: Vec<Shape>,
    /// How many scans they have.
    pub(crate) scans: usize,
    pub(crate) root: ShapeId,
    pub(crate) types: Arc<Types>,
}

/// A variable of an operation.
#[derive(Debug)]
pub(crate) struct Variable {
    pub(crate) name: Arc<str>,
    pub(crate) ty: Ty,
    pub(crate) default: Option<bytes::Bytes>,
    pub(crate) location: (u32, u32),
}

/// An operation of a document.
struct Operation<'d> {
    kind: OperationKind,
    variables: &'d [VariableDefinition],
    selections: &'d SelectionSet,
}

impl Planner {
    /// A planner of a supergraph, with its mutations or without; the error says why there can be none.
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
        let hive = library(&document)?;
        let again = supergraph::without_interface_objects(&document);
        let again = again.and_then(|document| library(&document).ok());
        let mut types = Types::of(&hive.consumer_schema.document);
        for (name, definition) in &hive.supergraph.definitions {
            types.intern(name);
            if let SupergraphDefinition::Enum(named) = definition {
                types.hide_values(name, named.values.iter().map(|value| value.name.as_str()));
            }
        }
        let subgraphs = subgraphs.into_iter().map(|subgraph| (Arc::clone(&subgraph.name), subgraph));
        Ok(Self {
            hive,
            again,
            types: Arc::new(types),
            reserved: ReservedNames::of(&document),
            subgraphs: subgraphs.collect(),
            rules: default_rules_validation_plan(),
            limits: *limits,
            kept: Kept::new(KEPT),
        })
    }

    /// The schema that clients see, in GraphQL.
    pub(crate) fn schema(&self) -> &SchemaDocument {
        &self.hive.consumer_schema.document
    }

    /// The plan of an operation.
    pub(crate) fn plan(&self, text: &str, name: Option<&str>) -> Result<Arc<Plan>, Vec<GraphqlError>> {
        if let Some(plan) = self.kept.get(text, name) {
            return Ok(plan);
        }
        let plan = Arc::new(self.make(text, name)?);
        self.kept.keep(text, name, &plan);
        Ok(plan)
    }

    fn make(&self, text: &str, name: Option<&str>) -> Result<Plan, Vec<GraphqlError>> {
        let one = |error: Box<GraphqlError>| vec![*error];
        limits::nesting(text).map_err(one)?;
        let document = self.parse(text).map_err(one)?;
        let operation = chosen(&document, name).map_err(one)?;
        let root = match operation.kind {
            OperationKind::Mutation if self.types.mutation.is_none() => {
                let message = "the schema has no mutations";
                return Err(vec![GraphqlError::new(Code::Operation, message)]);
            }
            kind => self.types.root(kind),
        };
        limits::operation(&document, operation.selections, root, &self.types, &self.limits).map_err(one)?;
        self.validate(&document)?;
        let variables = self.variables(&operation);
        let broken = |Broken(reason): Broken| {
            tracing::error!(reason, "a document could not be planned");
            vec![GraphqlError::new(Code::Plan, "the gateway can't plan this document; its log says why")]
        };
        let keys = ResponseKeys::of(&document, &self.reserved);
        let (positions, steps) = self.lowered(&document, &keys, &operation, name).map_err(broken)?;
        let mut shaping = Shaping::new(&self.types, &positions, &document, &keys);
        let root = shaping.root(operation.selections, root);
        let (shapes, scans) = (std::mem::take(&mut shaping.shapes), shaping.scans);
        Ok(Plan {
            kind: operation.kind,
            introspects: introspects(&shapes),
            variables,
            steps,
            positions,
            shapes,
            scans,
            root,
            types: Arc::clone(&self.types),
        })
    }

    fn parse(&self, text: &str) -> Result<Document, Box<GraphqlError>> {
        let tokens = self.limits.tokens as usize;
        guarded(|| safe_parse_operation_with_token_limit(text, tokens))
            .ok_or_else(|| GraphqlError::new(Code::Syntax, "the document can't be read"))?
            .map_err(|error| Box::new(syntax(&error.to_string(), tokens)))
    }

    fn validate(&self, document: &Document) -> Result<(), Vec<GraphqlError>> {
        let errors = guarded(|| validate(self.schema(), document, &self.rules));
        let errors = errors
            .ok_or_else(|| vec![GraphqlError::new(Code::Invalid, "the document can't be validated")])?;
        if errors.is_empty() {
            return Ok(());
        }
        Err(errors
            .into_iter()
            .map(|error| {
                let places = error.locations.iter().map(|place| (place.line as u32, place.column as u32));
                let locations = places.collect();
                GraphqlError { locations, ..GraphqlError::new(Code::Invalid, error.message) }
            })
            .collect())
    }

    fn variables(&self, operation: &Operation<'_>) -> Vec<Variable> {
        let speller = values::Speller { types: &self.types, bindings: None };
        let variable = |variable: &VariableDefinition| {
            let ty = self.types.known(&variable.var_type)?;
            Some(Variable {
                name: variable.name.as_str().into(),
                default: variable.default_value.as_ref().map(|value| speller.literal(value, &ty)),
                ty,
                location: (variable.position.line as u32, variable.position.column as u32),
            })
        };
        operation.variables.iter().filter_map(variable).collect()
    }

    /// The positions and steps of an operation; what the gateway answers by itself is not planned.
    fn lowered(
        &self,
        document: &Document,
        keys: &ResponseKeys<'_>,
        operation: &Operation<'_>,
        name: Option<&str>,
    ) -> Result<(Vec<Position>, Vec<Step>), Broken> {
        let mut lowering = Lowering::new(&self.hive.supergraph, &self.types, &self.subgraphs, operation.kind);
        if let Some(mut document) = without_introspection(document, name) {
            keys.rename(&mut document);
            if let Some(node) = self.planned(&document, name, operation.kind)? {
                lowering.node(&node)?;
            }
        }
        Ok((lowering.positions, lowering.steps))
    }

    /// The library's plan; none where conditions leave nothing of the operation.
    fn planned(
        &self,
        document: &Document,
        name: Option<&str>,
        kind: OperationKind,
    ) -> Result<Option<PlanNode>, Broken> {
        let plan = guarded(|| {
            let normalized = normalize_operation(&self.hive.supergraph, document, name)
                .map_err(|error| Broken(error.to_string()))?;
            if normalized.operation.selection_set.is_empty() {
                return Ok(None);
            }
            let token = CancellationToken::with_timeout(TIMEOUT);
            let plan = |hive: &Hive, operation: &Normalized| {
                let overrides = PlannerOverrideContext::from_percentage(0.0);
                hive.plan_from_normalized_operation(operation, overrides, &token)
            };
            let operation = &normalized.operation;
            let planned = match (plan(&self.hive, operation), &self.again) {
                (Err(PlannerError::PathLocatorError(error)), Some(again)) => {
                    let lifted = || {
                        let root = self.types.name(self.types.root(kind));
                        let selection_set = lifted(&self.hive.supergraph, root, &operation.selection_set);
                        plan(again, &Normalized { selection_set, ..operation.clone() })
                    };
                    plan(again, operation).or_else(|_| lifted()).map_err(|_| error.into())
                }
                (planned, _) => planned,
            };
            planned.map(|plan| plan.node).map_err(|error| Broken(error.to_string()))
        });
        plan.unwrap_or_else(|| Err(Broken("the planner panicked".to_owned())))
    }
}

/// The library's planner of a supergraph.
fn library(supergraph: &SchemaDocument) -> Result<Hive, String> {
    let hive = guarded(|| Hive::new_from_supergraph(supergraph, QueryPlannerOptions::default()));
    let hive = hive.ok_or_else(|| STOPPED.to_owned())?;
    hive.map_err(|error| error.to_string())
}

/// What a library says, unless it panics.
fn guarded<T>(call: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).ok()
}

/// A parser's error: of its lines the place and what was found there.
fn syntax(text: &str, tokens: usize) -> GraphqlError {
    if text.to_ascii_lowercase().contains("token limit") {
        return GraphqlError::new(Code::Limit, format!("the document has more than {tokens} tokens"));
    }
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let message = lines.iter().skip(1).copied().collect::<Vec<_>>().join("; ");
    let place = lines.first().and_then(|first| {
        let (_, place) = first.rsplit_once(' ')?;
        let (line, column) = place.split_once(':')?;
        Some((line.parse().ok()?, column.trim_end_matches(':').parse().ok()?))
    });
    let message = if message.is_empty() { text.trim().to_owned() } else { message };
    let error = GraphqlError::new(Code::Syntax, format!("the document is no GraphQL: {message}"));
    place.map_or(error.clone(), |place| error.at(place))
}

/// The operation of this name, or the only one.
fn chosen<'d>(document: &'d Document, name: Option<&str>) -> Result<Operation<'d>, Box<GraphqlError>> {
    let mut found: Option<&OperationDefinition> = None;
    for definition in &document.definitions {
        let Definition::Operation(operation) = definition else { continue };
        let own = match operation {
            OperationDefinition::Query(query) => query.name.as_deref(),
            OperationDefinition::Mutation(mutation) => mutation.name.as_deref(),
            OperationDefinition::Subscription(subscription) => subscription.name.as_deref(),
            OperationDefinition::SelectionSet(_) => None,
        };
        match (name, found) {
            (Some(name), _) if own != Some(name) => {}
            (None, Some(_)) => {
                let message = "the document has several operations: say by `operationName` which one";
                return Err(Box::new(GraphqlError::new(Code::Operation, message)));
            }
            _ => found = Some(operation),
        }
    }
    let missing = || match name {
        Some(name) => format!("the document has no operation `{name}`"),
        None => "the document has no operation".to_owned(),
    };
    let operation = found.ok_or_else(|| GraphqlError::new(Code::Operation, missing()))?;
    Ok(match operation {
        OperationDefinition::SelectionSet(selections) => {
            Operation { kind: OperationKind::Query, variables: &[], selections }
        }
        OperationDefinition::Query(query) => Operation {
            kind: OperationKind::Query,
            variables: &query.variable_definitions,
            selections: &query.selection_set,
        },
        OperationDefinition::Mutation(mutation) => Operation {
            kind: OperationKind::Mutation,
            variables: &mutation.variable_definitions,
            selections: &mutation.selection_set,
        },
        OperationDefinition::Subscription(_) => {
            let message = "subscriptions are not supported";
            return Err(Box::new(GraphqlError::new(Code::Operation, message)));
        }
    })
}

/// The document without what the gateway answers by itself; none if nothing else is asked.
fn without_introspection(document: &Document, name: Option<&str>) -> Option<Document> {
    let mut document = document.clone();
    let fragments = document.clone();
    let mut is_left = false;
    for definition in &mut document.definitions {
        let Definition::Operation(operation) = definition else { continue };
        let (own, selections) = match operation {
            OperationDefinition::Query(query) => (query.name.clone(), &mut query.selection_set),
            OperationDefinition::Mutation(mutation) => (mutation.name.clone(), &mut mutation.selection_set),
            OperationDefinition::SelectionSet(selections) => (None, selections),
            OperationDefinition::Subscription(_) => continue,
        };
        if name.is_none() || name == own.as_deref() {
            *selections = left(selections, &fragments);
            is_left = !selections.items.is_empty();
        }
    }
    is_left.then_some(document)
}

/// A selection of a root type without `__schema`, `__type` and `__typename`, its fragments in their places.
fn left(selections: &SelectionSet, document: &Document) -> SelectionSet {
    let mut items = Vec::new();
    for item in &selections.items {
        match item {
            Selection::Field(field) if field.name.starts_with("__") => {}
            Selection::Field(_) => items.push(item.clone()),
            Selection::InlineFragment(fragment) => {
                let mut fragment = fragment.clone();
                fragment.selection_set = left(&fragment.selection_set, document);
                if !fragment.selection_set.items.is_empty() {
                    items.push(Selection::InlineFragment(fragment));
                }
            }
            Selection::FragmentSpread(spread) => {
                let fragment = document.definitions.iter().find_map(|definition| match definition {
                    Definition::Fragment(fragment) if fragment.name == spread.fragment_name => Some(fragment),
                    _ => None,
                });
                let Some(fragment) = fragment else { continue };
                let selection_set = left(&fragment.selection_set, document);
                if !selection_set.items.is_empty() {
                    items.push(Selection::InlineFragment(
                        graphql_tools::static_graphql::query::InlineFragment {
                            position: spread.position,
                            type_condition: Some(fragment.type_condition.clone()),
                            directives: spread.directives.clone(),
                            selection_set,
                        },
                    ));
                }
            }
        }
    }
    SelectionSet { span: selections.span, items }
}

fn introspects(shapes: &[Shape]) -> bool {
    let fields = shapes.iter().flat_map(|shape| &shape.variants).flat_map(|variant| variant.fields.iter());
    fields.into_iter().any(|field| matches!(field.source, shape::Source::Introspection(_)))
}
