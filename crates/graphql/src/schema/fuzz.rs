//! Fuzzing of OpenAPI documents (see `fuzz/src/lib.rs`): every document must yield schemas that compose.

use std::sync::Arc;

use openapi::OpenApiDocument;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{SchemaDeclarations, SchemaDescription, SchemaSource, build_subgraphs};
use crate::compose::{ServiceSchema, compose};

#[test]
fn any_document_text_yields_a_schema() {
    let words = &[
        "    get:\n",
        "      operationId: ",
        "      parameters: [{ in: query, name: ",
        "      responses: { 200: { content: { application/json: { schema: ",
        "{ $ref: '#/components/schemas/A' }",
        "{ allOf: [",
        "{ oneOf: [",
        "{ enum: [",
        "{ type: object, properties: { a: ",
        "{ type: array, items: ",
        "integer",
        "required: [a]",
        " } } } }\n",
        "]",
        "}",
        ", ",
        "  /a/{b}:\n",
        "components:\n  schemas:\n    A: ",
        "\n",
    ];
    ::fuzz::check(words, |bytes: &[u8]| {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        for text in [format!("openapi: 3.1.0\npaths:\n{text}"), format!("swagger: '2.0'\n{text}")] {
            check_composes(&text);
        }
    });
}

/// Checks that the schemas of a document compose.
fn check_composes(text: &str) {
    let Ok(document) = OpenApiDocument::parse(text) else { return };
    let source = SchemaSource { name: Arc::from("a"), description: SchemaDescription::OpenApi(&document) };
    let (subgraphs, _) = build_subgraphs(&[source], &SchemaDeclarations::default()).expect("a schema");
    for it in subgraphs {
        let Err(errors) = compose(&[ServiceSchema { name: &it.name, sdl: &it.sdl }]) else { continue };
        // A service without queries has no schema on its own.
        let is_fine = errors.iter().all(|error| error.code == Some("NO_QUERIES"));
        assert!(is_fine, "{errors:?}\n{}", it.sdl);
    }
}

/// Names for schemas, members and texts. Some are reserved by GraphQL, some are invalid.
fn any_name() -> impl Strategy<Value = String> {
    prop_oneof![
        proptest::sample::select(vec![
            "A", "B", "a", "b", "-a", "a b", "__a", "Query", "String", "AInput", "7", "", "\u{e4}", "true",
            "\"\"\"\\"
        ])
        .prop_map(str::to_owned),
        any::<String>(),
    ]
}

fn any_schema() -> impl Strategy<Value = Value> {
    let reference = proptest::sample::select(vec!["A", "B", "AInput", "a b", "gone"]);
    let leaf = prop_oneof![
        proptest::sample::select(vec![
            "string", "integer", "number", "boolean", "null", "object", "array", "odd"
        ])
        .prop_map(|kind| json!({ "type": kind })),
        reference.prop_map(|name| json!({ "$ref": format!("#/components/schemas/{name}") })),
        proptest::collection::vec(any_name(), 0..4).prop_map(|texts| json!({ "enum": texts })),
        Just(json!({ "type": "integer", "format": "int64", "nullable": true })),
        Just(json!({ "type": ["string", "null"], "format": "date-time" })),
        Just(json!(true)),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let several = || proptest::collection::vec(inner.clone(), 0..4);
        prop_oneof![
            inner.clone().prop_map(|items| json!({ "type": "array", "items": items })),
            (proptest::collection::vec((any_name(), inner.clone()), 0..5), any_name(), any::<u8>()).prop_map(
                |(members, required, flags)| {
                    let members: serde_json::Map<_, _> = members.into_iter().collect();
                    let mut object = json!({ "properties": members, "required": [required], "description": "\"it\" \\ \n is" });
                    if flags & 1 == 1 {
                        object["additionalProperties"] = true.into();
                    }
                    if flags & 2 == 2 {
                        object["readOnly"] = true.into();
                    }
                    object
                }
            ),
            several().prop_map(|parts| json!({ "allOf": parts })),
            several().prop_map(|parts| json!({ "oneOf": parts })),
            several().prop_map(|parts| json!({ "anyOf": parts, "discriminator": { "propertyName": "a" } })),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_generated_document_yields_a_schema_that_composes(
        schemas in proptest::collection::vec((any_name(), any_schema()), 0..5),
        operations in proptest::collection::vec((any_name(), any_name(), any_schema(), any_schema(), any::<bool>()), 1..5),
    ) {
        let mut paths = serde_json::Map::new();
        for (id, parameter, answer, body, is_get) in operations {
            let method = if is_get { "get" } else { "put" };
            let mut operation = json!({
                "operationId": id,
                "parameters": [{ "name": parameter, "in": "query", "schema": body }, { "name": "p", "in": "path", "schema": answer }],
                "responses": { "200": {
                    "content": { "application/json": { "schema": answer } },
                    "links": { "next": { "operationId": id, "parameters": { parameter.as_str(): "$response.body#/a" } } },
                } },
            });
            if !is_get {
                operation["requestBody"] = json!({ "required": true, "content": { "application/json": { "schema": body } } });
            }
            paths.insert(format!("/{}/{{p}}", paths.len()), json!({ method: operation }));
        }
        let schemas: serde_json::Map<_, _> = schemas.into_iter().collect();
        check_composes(&json!({ "openapi": "3.1.0", "paths": paths, "components": { "schemas": schemas } }).to_string());
    }
}
