//! Checks that composed schemas can be planned: every query has a plan.

use std::collections::HashMap;

use graphql_tools::parser::schema::{Definition, Document, Field, Type, TypeDefinition};
use hive_router_query_planner::ast::normalization::normalize_operation;
use hive_router_query_planner::graph::PlannerOverrideContext;
use hive_router_query_planner::planner::{Planner, QueryPlannerOptions};
use hive_router_query_planner::utils::cancellation::CancellationToken;
use hive_router_query_planner::utils::parsing::{safe_parse_operation, safe_parse_schema};

/// The maximum depth of queries.
const MAX_DEPTH: usize = 4;

pub(super) fn new_planner(sdl: &str) -> Planner {
    let document = safe_parse_schema(sdl).unwrap();
    Planner::new_from_supergraph(&document, QueryPlannerOptions::default()).unwrap()
}

/// Returns the plan as the planner prints it, or its error.
pub(super) fn plan_query(planner: &Planner, query: &str) -> Result<String, String> {
    let query = safe_parse_operation(query).unwrap();
    let normalized =
        normalize_operation(&planner.supergraph, &query, None).map_err(|error| error.to_string())?;
    let overrides = PlannerOverrideContext::from_percentage(50.0);
    planner
        .plan_from_normalized_operation(&normalized.operation, overrides, &CancellationToken::new())
        .map(|plan| plan.to_string())
        .map_err(|error| error.to_string())
}

/// Generates queries for all fields, down to a maximum depth: one for each field of the root.
pub(super) fn field_queries(planner: &Planner) -> Vec<String> {
    let schema = ConsumerSchema::new(&planner.consumer_schema.document);
    let roots = [("query", "Query"), ("mutation", "Mutation")];
    let roots = roots.into_iter().filter_map(|(word, name)| Some((word, schema.types.get(name)?)));
    let mut queries = Vec::new();
    for (word, root) in roots {
        for field in type_fields(root).iter().filter(|field| !field.name.starts_with("__")) {
            queries.extend(schema.field_query(field, MAX_DEPTH).map(|field| format!("{word} {{ {field} }}")));
        }
    }
    queries
}

/// The schema as clients see it.
struct ConsumerSchema<'c> {
    types: HashMap<&'c str, &'c TypeDefinition<'static, String>>,
}

impl<'c> ConsumerSchema<'c> {
    fn new(document: &'c Document<'static, String>) -> Self {
        let types = document.definitions.iter().filter_map(|definition| match definition {
            Definition::TypeDefinition(of) => Some((super::summary::type_name(of), of)),
            _ => None,
        });
        Self { types: types.collect() }
    }

    /// Returns `None` if the field requires arguments, or if the maximum depth is reached.
    fn field_query(&self, field: &Field<'static, String>, depth: usize) -> Option<String> {
        let is_required = |of: &Type<'static, String>| matches!(of, Type::NonNullType(_));
        if field
            .arguments
            .iter()
            .any(|argument| is_required(&argument.value_type) && argument.default_value.is_none())
        {
            return None;
        }
        let below = match self.types.get(innermost_type(&field.field_type)) {
            None | Some(TypeDefinition::Scalar(_) | TypeDefinition::Enum(_)) => {
                return Some(field.name.clone());
            }
            _ if depth == 0 => return None,
            Some(of) => self.subselection(of, depth - 1),
        };
        Some(format!("{} {{ {below} }}", field.name))
    }

    fn subselection(&self, of: &TypeDefinition<'static, String>, depth: usize) -> String {
        let own = type_fields(of).iter().filter_map(|field| self.field_query(field, depth));
        let mut all: Vec<String> = std::iter::once("__typename".to_owned()).chain(own).collect();
        let objects = self.types.values().filter(|object| match (of, object) {
            (TypeDefinition::Interface(of), TypeDefinition::Object(object)) => {
                object.implements_interfaces.contains(&of.name)
            }
            (TypeDefinition::Union(of), TypeDefinition::Object(object)) => of.types.contains(&object.name),
            _ => false,
        });
        for object in objects {
            all.push(format!(
                "... on {} {{ {} }}",
                super::summary::type_name(object),
                self.subselection(object, depth)
            ));
        }
        all.join(" ")
    }
}

fn type_fields<'c>(of: &'c TypeDefinition<'static, String>) -> &'c [Field<'static, String>] {
    match of {
        TypeDefinition::Object(of) => &of.fields,
        TypeDefinition::Interface(of) => &of.fields,
        _ => &[],
    }
}

fn innermost_type<'c>(of: &'c Type<'static, String>) -> &'c str {
    match of {
        Type::NamedType(name) => name,
        Type::ListType(of) | Type::NonNullType(of) => innermost_type(of),
    }
}
