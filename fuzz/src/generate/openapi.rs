//! OpenAPI documents as JSON, and arguments for their operations: names with a special meaning in URLs,
//! headers and GraphQL, schemas with circular references, links, and parameters in every location.

use serde_json::{Map, Value, json};

use crate::ByteChoices;

/// Names of schemas, members, parameters and operations.
pub const NAMES: &[&str] = &[
    "A", "B", "a", "b", "id", "-a", "a b", "__a", "Query", "String", "AInput", "7", "", "\u{e4}", "true",
    "x-y", "cookie", "a[b]", "\"\"\"\\", "host", "{a}", "a/b",
];
/// Names of schemas, some of them undefined.
const SCHEMAS: &[&str] = &["A", "B", "AInput", "a b", "gone"];
const PATHS: &[&str] = &[
    "/a/{id}",
    "/a/{id}/b",
    "/a/{id},{b}",
    "/{a}",
    "/a",
    "/",
    "a",
    "/a{b",
    "/a}b/{id}",
    "/a/../{id}",
    "/a?x={id}",
    "/%2f/{id}",
];

/// Generates a document.
#[must_use]
pub fn document(choices: &mut ByteChoices<'_>) -> Value {
    let mut schemas = Map::new();
    for _ in 0..choices.number_below(4) {
        let name = if choices.one_in(4) { choices.pick(NAMES) } else { choices.pick(SCHEMAS) };
        schemas.insert(name.to_owned(), schema(choices, 3));
    }
    let mut paths = Map::new();
    for _ in 0..=choices.number_below(4) {
        let path = choices.pick(PATHS);
        let item = paths.entry(path).or_insert_with(|| json!({}));
        let method = choices.pick(&["get", "get", "get", "put", "post", "patch", "delete", "head"]);
        item[method] = operation(choices, path);
        if choices.one_in(8) {
            item["parameters"] = json!([parameter(choices)]);
        }
    }
    let mut document = json!({
        "openapi": choices.pick(&["3.1.0", "3.0.3"]),
        "info": { "title": "a", "version": "1" },
        "paths": paths,
        "components": { "schemas": schemas },
    });
    if choices.one_in(8) {
        document["servers"] = json!([{ "url": choices.pick(&["http://a/b", "/{v}/c", "//x", "?", "/.."]) }]);
    }
    document
}

fn operation(choices: &mut ByteChoices<'_>, path: &str) -> Value {
    let mut parameters: Vec<Value> = (0..choices.number_below(3)).map(|_| parameter(choices)).collect();
    for name in path.split('{').skip(1).filter_map(|rest| rest.split('}').next()) {
        if !choices.one_in(8) {
            let schema = if choices.one_in(2) { json!({ "type": "string" }) } else { schema(choices, 1) };
            parameters.push(json!({ "name": name, "in": "path", "required": true, "schema": schema }));
        }
    }
    let content = choices.pick(&[
        "application/json",
        "application/json",
        "text/plain",
        "application/problem+json",
        "*/*",
    ]);
    let mut answer = json!({ "description": "", "content": { content: { "schema": schema(choices, 3) } } });
    if choices.one_in(3) {
        let filled = choices.pick(NAMES);
        let from = choices.pick(&[
            "$response.body#/id",
            "$response.body#/a/0",
            "$request.path.id",
            "$url",
            "x",
            "$response.body#/~1",
        ]);
        answer["links"] = json!({ choices.pick(NAMES): { "operationId": choices.pick(NAMES), "parameters": { filled: from } } });
    }
    let mut operation = json!({
        "operationId": choices.pick(NAMES),
        "parameters": parameters,
        "responses": { choices.pick(&["200", "200", "200", "201", "204", "default", "2XX", "404"]): answer },
    });
    if choices.one_in(2) {
        let body = schema(choices, 2);
        operation["requestBody"] =
            json!({ "required": choices.one_in(2), "content": { content: { "schema": body } } });
    }
    operation
}

fn parameter(choices: &mut ByteChoices<'_>) -> Value {
    if choices.one_in(16) {
        return json!({ "$ref": "#/components/parameters/gone" });
    }
    let name = if choices.one_in(2) { "id" } else { choices.pick(NAMES) };
    let place = choices.pick(&["path", "path", "query", "query", "header", "cookie", "elsewhere"]);
    let mut parameter = json!({ "name": name, "in": place, "schema": schema(choices, 2) });
    if place == "path" || choices.one_in(4) {
        parameter["required"] = true.into();
    }
    if choices.one_in(4) {
        parameter["style"] =
            (choices.pick(&["form", "simple", "deepObject", "matrix", "spaceDelimited", "label"])).into();
        parameter["explode"] = choices.one_in(2).into();
    }
    parameter
}

/// Generates a schema.
pub fn schema(choices: &mut ByteChoices<'_>, depth: usize) -> Value {
    match choices.number_below(if depth == 0 { 6 } else { 12 }) {
        0 => json!({ "type": "string" }),
        1 => {
            let kinds = ["string", "integer", "number", "boolean", "null", "object", "array", "odd"];
            json!({ "type": choices.pick(&kinds), "nullable": choices.one_in(4) })
        }
        2 | 3 => json!({ "$ref": format!("#/components/schemas/{}", choices.pick(SCHEMAS)) }),
        4 => {
            let values: Vec<&str> = (0..choices.number_below(4)).map(|_| choices.pick(NAMES)).collect();
            json!({ "enum": values })
        }
        5 => match choices.number_below(3) {
            0 => json!({ "type": ["string", "null"], "format": "date-time" }),
            1 => json!({ "type": "integer", "format": "int64" }),
            _ => json!(true),
        },
        6 | 7 => json!({ "type": "array", "items": schema(choices, depth - 1) }),
        8..10 => {
            let mut members = Map::new();
            for _ in 0..choices.number_below(5) {
                members.insert((choices.pick(NAMES)).to_owned(), schema(choices, depth - 1));
            }
            let mut object =
                json!({ "type": "object", "properties": members, "required": [choices.pick(NAMES)] });
            if choices.one_in(4) {
                object["additionalProperties"] = schema(choices, depth - 1);
            }
            object
        }
        10 => {
            let parts: Vec<Value> =
                (0..choices.number_below(4)).map(|_| schema(choices, depth - 1)).collect();
            json!({ choices.pick(&["allOf", "oneOf", "anyOf"]): parts, "discriminator": { "propertyName": "a" } })
        }
        _ => json!({ "type": "object", choices.pick(&["readOnly", "writeOnly", "deprecated"]): true }),
    }
}
