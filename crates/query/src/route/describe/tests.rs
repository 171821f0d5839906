//! Tests that the types generated from any OpenAPI document are valid TypeScript.

use openapi::{CallableService, OpenApiDocument, generate_types};
use oxc_allocator::Allocator;
use oxc_parser::Parser;
use oxc_span::SourceType;
use proptest::collection::{hash_map, vec};
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use serde_json::{Value, json};

/// Words with a meaning in one of the languages, or arbitrary text.
fn word() -> impl Strategy<Value = String> {
    let words = [
        "id",
        "class",
        "constructor",
        "*/",
        "a b",
        "\"",
        "`${x}`",
        "\\",
        "\u{2028}",
        "{id}",
        "7",
        "",
        "\n",
        "A",
        "B",
    ];
    prop_oneof![proptest::sample::select(words.to_vec()).prop_map(str::to_owned), "\\PC{0,6}"]
}

fn schema() -> impl Strategy<Value = Value> {
    let types = ["string", "integer", "number", "boolean", "null", "object", "array", "file", "odd"];
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        proptest::sample::select(types.to_vec()).prop_map(|name| json!({ "type": name })),
        vec(word(), 0..3).prop_map(|values| json!({ "enum": values })),
        any::<f64>().prop_map(|value| json!({ "const": value })),
        word().prop_map(|name| json!({ "$ref": format!("#/components/schemas/{name}") })),
        Just(json!({ "$ref": "#/components/schemas/A" })),
        Just(json!({ "$ref": "#/paths" })),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let members = hash_map(word(), inner.clone(), 0..4);
        prop_oneof![
            (members, vec(word(), 0..3), word(), inner.clone()).prop_map(|(members, required, said, others)| json!({
                "properties": members, "required": required, "description": said, "additionalProperties": others
            })),
            (vec(inner.clone(), 0..3), any::<bool>()).prop_map(|(of, is)| json!({ "anyOf": of, "nullable": is })),
            vec(inner.clone(), 0..3).prop_map(|of| json!({ "allOf": of, "type": ["object", "null"] })),
            vec(inner.clone(), 0..3).prop_map(|of| json!({ "prefixItems": of, "type": "array" })),
            inner.prop_map(|of| json!({ "items": of, "properties": { "x": of } })),
        ]
    })
}

fn document() -> impl Strategy<Value = Value> {
    let parameter = (word(), any::<bool>(), schema());
    let parameter = parameter.prop_map(|(name, in_path, schema)| {
        json!({ "name": name, "in": if in_path { "path" } else { "query" }, "schema": schema, "explode": in_path })
    });
    let operation = (word(), vec(parameter, 0..3), schema(), schema(), any::<bool>());
    let operation = operation.prop_map(|(summary, parameters, body, answer, deprecated)| {
        let content = |schema: Value| json!({ "content": { "application/json": { "schema": schema } } });
        json!({ "summary": summary, "parameters": parameters, "requestBody": content(body), "deprecated": deprecated,
                "responses": { "200": content(answer), "204": {} } })
    });
    let paths = hash_map(word().prop_map(|word| format!("/{word}/{{id}}")), vec(operation, 2), 0..3);
    (paths, hash_map(word(), schema(), 0..5), word()).prop_map(|(paths, schemas, title)| {
        let item = |(path, of): (_, Vec<Value>)| (path, json!({ "get": of[0], "post": of[1] }));
        let paths: serde_json::Map<_, _> = paths.into_iter().map(item).collect();
        json!({ "openapi": "3.1.0", "info": { "title": title }, "paths": paths, "components": { "schemas": schemas } })
    })
}

proptest::proptest! {
    #[test]
    fn generates_valid_typescript_from_any_document(text in document(), name in "[A-Za-z0-9_-]{1,8}|class|default") {
        let document = OpenApiDocument::parse(&text.to_string()).expect("a document");
        let operations = document.operations.iter().collect();
        let source = generate_types(&[CallableService { name: &name, document: Some(&document), operations }]);
        let allocator = Allocator::default();
        let parsed = Parser::new(&allocator, &source, SourceType::d_ts()).parse();
        let errors: Vec<_> = parsed.diagnostics.errors().map(ToString::to_string).collect();
        proptest::prop_assert!(errors.is_empty(), "{errors:?}\n{source}");
    }
}
