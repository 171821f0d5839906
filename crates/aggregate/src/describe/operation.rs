//! The OpenAPI 3.1 operation of an aggregate: parameters from its inputs, and the schema of its response as
//! far as the OpenAPI documents of the services describe it.

use json::{JsonPath, JsonPathStep};
use openapi::{BodyContent, DiscriminatedUnion, OpenApiDocument, OpenApiSchema};
use serde_json::{Map, Value, json};

use crate::aggregate::Aggregate;
use crate::declaration::{InputType, RowCardinality};
use crate::plan::input::{AggregateInput, DEFAULT_MAX_LENGTH, InputLocation};
use crate::plan::{AggregateShape, ERRORS_MEMBER, PartPlan};

/// The maximum nesting of schemas. Deeper schemas accept any value.
const MAX_SCHEMA_DEPTH: usize = 12;

impl Aggregate {
    /// Returns the operation. Its path is the route's, its method the first of [`Aggregate::methods`].
    #[must_use]
    pub fn operation(&self) -> Value {
        let plan = &self.plan;
        let parameters: Vec<Value> = plan.inputs.entries.iter().map(parameter_object).collect();
        let answer = json!({
            "description": "The answer.",
            "headers": { "ORFA-Parts": {
                "description": "The optional parts that failed, as a list by RFC 9651.", "schema": { "type": "string" } } },
            "content": { "application/json": { "schema": self.answer_schema() } },
        });
        let mut responses = Map::new();
        responses.insert("200".to_owned(), answer.clone());
        if plan.partial_status.as_u16() != 200 {
            responses.insert(plan.partial_status.as_u16().to_string(), answer);
        }
        responses.insert("default".to_owned(), json!({ "description": "A problem by RFC 9457." }));
        let mut operation = Map::new();
        let words = [("summary", &self.declaration.summary), ("description", &self.declaration.description)];
        operation.extend(
            words
                .iter()
                .filter(|(_, text)| !text.is_empty())
                .map(|(name, text)| ((*name).to_owned(), Value::from(text.as_str()))),
        );
        operation.insert("parameters".to_owned(), parameters.into());
        if plan.reads_body {
            let body = json!({ "required": true, "content": { "application/json": { "schema": {} } } });
            operation.insert("requestBody".to_owned(), body);
        }
        operation.insert("responses".to_owned(), responses.into());
        operation.into()
    }

    fn answer_schema(&self) -> Value {
        let object = |members: Vec<(String, Value, bool)>| {
            let required: Vec<Value> =
                members.iter().filter(|member| member.2).map(|member| member.0.as_str().into()).collect();
            let mut properties: Map<String, Value> =
                members.into_iter().map(|(name, schema, _)| (name, schema)).collect();
            properties.insert(
                ERRORS_MEMBER.to_owned(),
                json!({ "type": "array", "items": { "type": "object" },
                "description": "The optional parts that failed; absent where none did." }),
            );
            json!({ "type": "object", "properties": properties, "required": required })
        };
        match &self.plan.answer {
            AggregateShape::Part(part) => self.part_schema(*part),
            AggregateShape::Parts(parts) => {
                let member =
                    |part: &usize| (self.plan.parts[*part].name.to_string(), self.part_schema(*part), true);
                object(parts.iter().map(|(_, part)| member(part)).collect())
            }
            AggregateShape::Merged(parts, _) => {
                let members = parts.iter().flat_map(|part| take_properties(self.part_schema(*part)));
                object(members.map(|(name, schema)| (name, schema, false)).collect())
            }
        }
    }

    /// Returns the schema of a part in the response.
    fn part_schema(&self, number: usize) -> Value {
        let schema = self.value_schema(number);
        if self.plan.parts[number].is_required() { schema } else { nullable_schema(schema) }
    }

    /// Returns the schema of a part's value, including the parts that are put into it.
    fn value_schema(&self, number: usize) -> Value {
        let part = &self.plan.parts[number];
        let mut schema = self.call_schema(part).unwrap_or_else(|| json!({}));
        if let Ok(path) = JsonPath::parse(&part.pointer) {
            schema = schema_at_path(schema, path.steps());
        }
        if part.joins.is_some() && !is_array(&schema) {
            schema = json!({ "type": "array", "items": schema });
        }
        if let Some(fields) = &part.fields {
            schema = select_schema_fields(schema, fields.iter().map(|(name, path)| (name, path)));
        }
        if part.each.as_ref().is_some_and(|each| each.target.is_none()) {
            schema = json!({ "type": "array", "items": schema });
        }
        for child in &part.children {
            let child_part = &self.plan.parts[*child];
            let Some(target) = child_part.put_target() else { continue };
            let value = match &child_part.joins {
                Some(joins) if joins.cardinality != RowCardinality::Only(false) => {
                    nullable_schema(items_schema(self.value_schema(*child)))
                }
                _ => self.part_schema(*child),
            };
            insert_member(&mut schema, target.path.steps(), &target.name, value);
        }
        schema
    }

    /// Returns the schema of a part's call from the service's document.
    fn call_schema(&self, part: &PartPlan) -> Option<Value> {
        let document = self.documents.get(&**part.service.name())?;
        let path = crate::plan::sample(&part.url.path);
        let operations =
            document.operations.iter().filter(|operation| operation.method == part.method.as_str());
        let mut fitting: Vec<_> =
            operations.filter(|operation| path_matches(&operation.path, &path)).collect();
        // `/users/me` takes precedence over `/users/{id}`.
        fitting.sort_by_key(|operation| operation.path.matches('{').count());
        fitting.first()?.answers.iter().find_map(|content| match content {
            BodyContent::Json(schema) => Some(schema_json(schema, document, MAX_SCHEMA_DEPTH)),
            _ => None,
        })
    }
}

/// Whether a path matches a path template.
fn path_matches(template: &str, path: &str) -> bool {
    let is_same = |(known, found): (&str, &str)| known == found || (known.contains('{') && !found.is_empty());
    template.split('/').count() == path.split('/').count()
        && template.split('/').zip(path.split('/')).all(is_same)
}

fn parameter_object(input: &AggregateInput) -> Value {
    let name = match &input.place {
        InputLocation::Path(_) => input.declaration.name.as_deref().unwrap_or(&input.name),
        InputLocation::Query(name) => name,
        InputLocation::Header(name) => name.as_str(),
    };
    let mut schema = Map::new();
    let kind = |kind| match kind {
        InputType::Integer => "integer",
        InputType::Number => "number",
        InputType::Boolean => "boolean",
        InputType::String | InputType::Array => "string",
    };
    schema.insert("type".to_owned(), kind(input.item_type).into());
    for (word, bound) in [("minimum", input.declaration.minimum), ("maximum", input.declaration.maximum)] {
        schema.extend(bound.map(|bound| (word.to_owned(), bound_value(bound))));
    }
    if !input.declaration.values.is_empty() {
        schema.insert("enum".to_owned(), input.declaration.values.clone().into());
    }
    let longest = input.declaration.max_length.unwrap_or(DEFAULT_MAX_LENGTH);
    if input.item_type == InputType::String {
        schema.insert("maxLength".to_owned(), longest.into());
    }
    let is_list = input.declaration.kind == InputType::Array;
    let mut schema = match is_list {
        true => json!({ "type": "array", "maxItems": longest, "items": schema }),
        false => schema.into(),
    };
    if let Some(default) = &input.declaration.default {
        schema["default"] = default.clone();
    }
    let is_required = matches!(input.place, InputLocation::Path(_)) || input.declaration.required;
    let mut parameter =
        json!({ "name": name, "in": input.place.name(), "required": is_required, "schema": schema });
    if !input.declaration.description.is_empty() {
        parameter["description"] = input.declaration.description.as_str().into();
    }
    if is_list && matches!(input.place, InputLocation::Query(_)) {
        parameter["explode"] = false.into();
    }
    parameter
}

/// Returns a bound, as an integer if possible.
#[expect(clippy::cast_possible_truncation, reason = "whole numbers below 2^53 only")]
fn bound_value(bound: f64) -> Value {
    match bound.fract() == 0.0 && bound.abs() < 9e15 {
        true => (bound as i64).into(),
        false => bound.into(),
    }
}

/// Writes a schema as OpenAPI 3.1, with named schemas inlined.
fn schema_json(schema: &OpenApiSchema, document: &OpenApiDocument, depth: usize) -> Value {
    let Some(depth) = depth.checked_sub(1) else { return json!({}) };
    let inner = |schema: &OpenApiSchema| schema_json(schema, document, depth);
    let formatted = |kind: &str, format: &Option<String>| match format {
        Some(format) => json!({ "type": kind, "format": format }),
        None => json!({ "type": kind }),
    };
    match schema {
        OpenApiSchema::Unknown => json!({}),
        OpenApiSchema::Never => json!(false),
        OpenApiSchema::Null => json!({ "type": "null" }),
        OpenApiSchema::Boolean => json!({ "type": "boolean" }),
        OpenApiSchema::Integer(format) => formatted("integer", format),
        OpenApiSchema::Number => json!({ "type": "number" }),
        OpenApiSchema::Text(format) => formatted("string", format),
        OpenApiSchema::Literals(values) => json!({ "enum": values }),
        OpenApiSchema::List(items) => json!({ "type": "array", "items": inner(items) }),
        OpenApiSchema::Tuple(first, rest) => {
            let value = rest.as_ref().map_or(json!(false), |api_schema| inner(api_schema));
            json!({ "type": "array", "prefixItems": first.iter().map(inner).collect::<Vec<_>>(), "items": value })
        }
        OpenApiSchema::Object(object) => {
            let properties: Map<String, Value> =
                object.members.iter().map(|member| (member.name.clone(), inner(&member.schema))).collect();
            let required: Vec<&str> = object
                .members
                .iter()
                .filter(|member| member.is_required)
                .map(|member| &*member.name)
                .collect();
            let mut written = json!({ "type": "object", "properties": properties, "required": required });
            if let Some(others) = &object.additional {
                written["additionalProperties"] = inner(others);
            }
            written
        }
        OpenApiSchema::Named(name) => document.schema(name).map_or_else(|| json!({}), inner),
        OpenApiSchema::Any(all) | OpenApiSchema::Discriminated(DiscriminatedUnion { branches: all, .. }) => {
            json!({ "anyOf": all.iter().map(inner).collect::<Vec<_>>() })
        }
        OpenApiSchema::All(all) => json!({ "allOf": all.iter().map(inner).collect::<Vec<_>>() }),
    }
}

/// Returns the schema of the value at a path.
fn schema_at_path(schema: Value, steps: &[JsonPathStep]) -> Value {
    steps.iter().fold(schema, |mut schema, step| match step {
        JsonPathStep::Wildcard => items_schema(schema),
        JsonPathStep::Name(name) => schema["properties"][&**name].take(),
    })
}

/// Returns the schema of an array's items.
fn items_schema(mut schema: Value) -> Value {
    match schema["items"].take() {
        Value::Null => json!({}),
        items => items,
    }
}

fn is_array(schema: &Value) -> bool {
    schema["type"] == "array"
}

fn take_properties(mut schema: Value) -> Map<String, Value> {
    match schema["properties"].take() {
        Value::Object(properties) => properties,
        _ => Map::new(),
    }
}

/// Restricts the schema of an object, or of an array's items, to the given fields.
fn select_schema_fields<'a>(
    schema: Value,
    fields: impl Iterator<Item = (&'a bytes::Bytes, &'a JsonPath)>,
) -> Value {
    if is_array(&schema) {
        return json!({ "type": "array", "items": select_schema_fields(items_schema(schema), fields) });
    }
    let of_field = |(name, path): (&bytes::Bytes, &JsonPath)| {
        let name: String = serde_json::from_slice(name).unwrap_or_default();
        let schema = schema_at_path(schema.clone(), path.steps());
        (name, if schema.is_null() { json!({}) } else { schema })
    };
    let properties: Map<String, Value> = fields.map(of_field).collect();
    json!({ "type": "object", "properties": properties })
}

/// Adds a member to the schema at a path.
fn insert_member(schema: &mut Value, steps: &[JsonPathStep], name: &str, value: Value) {
    match steps {
        [] if is_array(schema) => insert_member(&mut schema["items"], steps, name, value),
        [] => {
            if !schema.is_object() {
                *schema = json!({});
            }
            schema["type"] = "object".into();
            schema["properties"][name] = value;
        }
        [JsonPathStep::Wildcard, rest @ ..] => insert_member(&mut schema["items"], rest, name, value),
        [JsonPathStep::Name(member), rest @ ..] => {
            insert_member(&mut schema["properties"][&**member], rest, name, value)
        }
    }
}

fn nullable_schema(schema: Value) -> Value {
    json!({ "anyOf": [schema, { "type": "null" }] })
}
