//! GraphQL over the handlers of the routes, at `POST /graphql`.
//!
//! A service's schema is a file, such as `graphql/profile.graphql`, and a table assigns a handler to each
//! field of `Query` and `Mutation`. The handler returns JSON, and `select.rs` extracts the selected fields.
//! There is no introspection: the schema is available as the file.

mod select;

use std::collections::HashMap;

use bytes::Bytes;
use graphql_tools::parser::query::parse_query;
use graphql_tools::parser::schema::parse_schema;
use graphql_tools::static_graphql::query::{Definition, Document, OperationDefinition};
use graphql_tools::static_graphql::schema::{self, TypeDefinition};
use graphql_tools::validation::rules::default_rules_validation_plan;
use graphql_tools::validation::validate::{ValidationPlan, validate};
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use self::select::{Selector, quoted};
use crate::database::{Database, DatabaseAccess};
use crate::http::{HandlerInput, HandlerOutput, RequestHandler};
use crate::problem::ErrorResponse;

/// Definitions that every schema has implicitly.
const BUILT_IN: &str = "scalar Int scalar Float scalar String scalar Boolean scalar ID \
    directive @skip(if: Boolean!) on FIELD | FRAGMENT_SPREAD | INLINE_FRAGMENT \
    directive @include(if: Boolean!) on FIELD | FRAGMENT_SPREAD | INLINE_FRAGMENT ";

/// A field of `Query` or `Mutation`, and its handler.
pub(crate) type RootField = (&'static str, RequestHandler);

/// The GraphQL endpoint of a service.
pub(crate) struct Graphql {
    schema: schema::Document,
    /// The types of the fields, by the name of their object type.
    types: ObjectTypes,
    rules: ValidationPlan,
    fields: &'static [RootField],
}

type ObjectTypes = HashMap<String, HashMap<String, schema::Type>>;

/// A request's body.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GraphqlRequestBody {
    query: String,
    operation_name: Option<String>,
    variables: Option<Map<String, Value>>,
}

impl Graphql {
    pub(crate) fn new(sdl: &'static str, fields: &'static [RootField]) -> Self {
        let sdl = [BUILT_IN, sdl].concat();
        let schema = parse_schema::<String>(&sdl).unwrap_or_default().into_static();
        Self { types: types(&schema), schema, rules: default_rules_validation_plan(), fields }
    }

    /// Answers a request. Call it on a blocking thread.
    pub(crate) fn answer(&self, database: &Database, body: &Bytes) -> Result<HandlerOutput, ErrorResponse> {
        let GraphqlRequestBody { query, operation_name, variables } =
            serde_json::from_slice(body).map_err(|error| ErrorResponse::body(&error))?;
        let document = match parse_query::<String>(&query) {
            Ok(document) => document.into_static(),
            Err(error) => return Ok(refused(&[json!({ "message": error.to_string() })])),
        };
        let wrong = validate(&self.schema, &document, &self.rules);
        if !wrong.is_empty() {
            return Ok(refused(&wrong));
        }
        let Some(operation) = chosen(&document, operation_name.as_deref()) else {
            return Ok(refused(&[json!({ "message": "`operationName` has to name an operation" })]));
        };
        let selector = Selector::new(&self.types, &document, operation, variables.unwrap_or_default());
        let (root, access) = match operation {
            OperationDefinition::Mutation(_) => ("Mutation", DatabaseAccess::Write),
            _ => ("Query", DatabaseAccess::Read),
        };
        database.run(access, |db| Ok(self.run(db, root, operation, &selector)))
    }

    /// Runs the fields of an operation, one after the other.
    fn run(
        &self,
        db: &Connection,
        root: &str,
        operation: &OperationDefinition,
        selector: &Selector<'_>,
    ) -> HandlerOutput {
        let (mut data, mut errors, mut is_null) = ("{".to_owned(), Vec::new(), false);
        for (key, fields) in selector.fields(&[operation.selection_set()]) {
            data.push_str(if data.len() > 1 { "," } else { "" });
            data.push_str(&quoted(key));
            let before = data.len();
            let name = fields[0].name.as_str();
            let found = self.found(db, root, name, selector.arguments(fields[0]));
            let written = found.and_then(|found| {
                selector.write(root, &fields, &found, &mut data).map_err(|_| ErrorResponse::internal())
            });
            if let Err(problem) = written {
                errors.push(problem.graphql(key));
                data.truncate(before);
                data.push_str("null");
            }
            let field = self.types.get(root).and_then(|fields| fields.get(name));
            is_null |= &data[before..] == "null" && field.is_some_and(schema::Type::is_non_null);
        }
        let data = if is_null { "null".to_owned() } else { data + "}" };
        let errors =
            if errors.is_empty() { String::new() } else { format!(",\"errors\":{}", Value::from(errors)) };
        HandlerOutput::ok(format!("{{\"data\":{data}{errors}}}").into_bytes())
    }

    /// Runs the handler of a field: `null` for a row that doesn't exist, `true` for an empty response.
    fn found(
        &self,
        db: &Connection,
        root: &str,
        name: &str,
        arguments: Map<String, Value>,
    ) -> Result<Box<RawValue>, ErrorResponse> {
        if name == "__typename" {
            return to_raw_value(root).map_err(|_| ErrorResponse::internal());
        }
        let (_, run) =
            self.fields.iter().find(|(known, _)| *known == name).ok_or_else(ErrorResponse::introspection)?;
        match run(db, &HandlerInput::of(arguments)) {
            Ok(answer) => {
                let text = answer.text().map_or(Ok(RawValue::TRUE.to_owned()), serde_json::from_slice);
                text.map_err(|_| ErrorResponse::internal())
            }
            Err(problem) if problem.is_not_found() => Ok(RawValue::NULL.to_owned()),
            Err(problem) => Err(problem),
        }
    }
}

/// A response with errors only, for a request that can't be run.
fn refused(errors: &[impl Serialize]) -> HandlerOutput {
    HandlerOutput::ok(json!({ "errors": errors }).to_string().into_bytes())
}

/// Returns the operation of this name, or the only one.
fn chosen<'a>(document: &'a Document, name: Option<&str>) -> Option<&'a OperationDefinition> {
    let mut operations = document.definitions.iter().filter_map(|definition| match definition {
        Definition::Operation(operation) => Some(operation),
        Definition::Fragment(_) => None,
    });
    let Some(name) = name else { return operations.next().filter(|_| operations.next().is_none()) };
    operations.find(|operation| match operation {
        OperationDefinition::Query(query) => query.name.as_deref() == Some(name),
        OperationDefinition::Mutation(mutation) => mutation.name.as_deref() == Some(name),
        _ => false,
    })
}

fn types(schema: &schema::Document) -> ObjectTypes {
    let objects = schema.definitions.iter().filter_map(|definition| match definition {
        schema::Definition::TypeDefinition(TypeDefinition::Object(object)) => Some(object),
        _ => None,
    });
    let fields = |object: &schema::ObjectType| {
        object.fields.iter().map(|field| (field.name.clone(), field.field_type.clone())).collect()
    };
    objects.map(|object| (object.name.clone(), fields(object))).collect()
}
