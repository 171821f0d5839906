//! Tests of hidden types: by `@inaccessible` in a subgraph, or by the operator.

use serde_json::{Value, json};

use super::federated;
use super::fixture::ExecutionFixture;

/// A schema in which the types that begin with `Hidden` are to be hidden. `MARK` is replaced by the directive
/// for it.
const SDL: &str = "
  type Query { any: Any anys: [Any] node: Node nodes: [Node] item: Item }
  union Any = Item | HiddenMember
  interface Node { id: ID! }
  interface HiddenFace MARK { name: String }
  type Item implements Node & HiddenFace { id: ID! name: String }
  type HiddenNode implements Node MARK { id: ID! secret: String }
  type HiddenMember MARK { secret: String }";

/// Queries, and the data of their responses.
const ANSWERS: [(&str, &str); 10] = [
    ("{ any { __typename } }", r#"{"any":null}"#),
    ("{ any { ... on Item { id } } }", r#"{"any":null}"#),
    ("{ anys { __typename ... on Item { id } } }", r#"{"anys":[{"__typename":"Item","id":"1"},null]}"#),
    ("{ anys { ... on Item { id } } }", r#"{"anys":[{"id":"1"},null]}"#),
    ("{ node { id } }", r#"{"node":null}"#),
    ("{ node { kind: __typename } }", r#"{"node":null}"#),
    ("{ nodes { id } }", r#"{"nodes":[{"id":"1"},null]}"#),
    ("{ nodes { ... on Item { name } } }", r#"{"nodes":[{"name":"one"},null]}"#),
    ("{ nodes { ... on Node { __typename id } } }", r#"{"nodes":[{"__typename":"Item","id":"1"},null]}"#),
    (
        "query { ...F } fragment F on Query { list: nodes { ...G } } fragment G on Node { key: id }",
        r#"{"list":[{"key":"1"},null]}"#,
    ),
];

fn hidden_data() -> Value {
    let item = json!({ "__typename": "Item", "id": "1", "name": "one" });
    let node = json!({ "__typename": "HiddenNode", "id": "2", "secret": "s" });
    let member = json!({ "__typename": "HiddenMember", "secret": "s" });
    json!({ "Query": {
        "any": member, "anys": [item, member], "node": node, "nodes": [item, node], "item": item,
    } })
}

async fn check_hidden(fixture: &ExecutionFixture) {
    for (document, data) in ANSWERS {
        assert_eq!(fixture.query(document).await, format!(r#"{{"data":{data}}}"#), "{document}");
    }
    let schema = fixture.planner.schema().to_string();
    assert!(schema.contains("union Any = Item"), "{schema}");
    assert!(schema.contains("type Item implements Node {"), "{schema}");
    for name in ["Hidden", "Covert"] {
        assert!(!schema.contains(name), "{schema}");
    }
    let told = fixture
        .query(
            r#"{ __schema { types { name possibleTypes { name } interfaces { name } } }
                 __type(name: "HiddenNode") { name } }"#,
        )
        .await;
    assert!(told.ends_with(r#""__type":null}}"#) && !told.contains("Hidden"), "{told}");
    for document in [
        "{ node { ... on HiddenNode { secret } } }",
        "{ any { ... on HiddenMember { secret } } }",
        "{ item { ... on HiddenFace { name } } }",
        "{ node { secret } }",
    ] {
        let told = fixture.query(document).await;
        assert!(told.contains("graphql-invalid"), "{document}: {told}");
    }
}

#[tokio::test]
async fn objects_of_inaccessible_types_are_null_whatever_is_selected() {
    let sdl = SDL.replace("MARK", "@inaccessible");
    check_hidden(&federated::federated_fixture(&[("shop", &sdl)], json!({ "shop": hidden_data() }))).await;
}

#[tokio::test]
async fn objects_of_types_that_the_operator_hides_are_null_whatever_is_selected() {
    let sdl = SDL.replace("MARK", "");
    let hidden = r#"{ "types": { "HiddenNode": { "hide": true }, "HiddenMember": { "hide": true },
        "HiddenFace": { "hide": true } } }"#;
    check_hidden(&ExecutionFixture::with_graphql_service(&sdl, hidden, &hidden_data())).await;
    let renamed = r#"{ "types": { "HiddenNode": { "hide": true, "rename": "CovertNode" },
        "HiddenMember": { "hide": true, "rename": "CovertMember" }, "HiddenFace": { "hide": true } } }"#;
    check_hidden(&ExecutionFixture::with_graphql_service(&sdl, renamed, &hidden_data())).await;
}

/// Type names are requested only where an object may be of a hidden type.
#[tokio::test]
async fn requests_type_names_only_if_types_are_hidden() {
    let fixture = ExecutionFixture::with_graphql_service(&SDL.replace("MARK", ""), "{}", &hidden_data());
    let text = fixture.planner.plan("{ nodes { id } }", None).expect("a plan").explain().to_string();
    assert!(!text.contains("__typename"), "{text}");
    let hidden = r#"{ "types": { "HiddenNode": { "hide": true } } }"#;
    let execution_fixture =
        ExecutionFixture::with_graphql_service(&SDL.replace("MARK", ""), hidden, &hidden_data());
    let text =
        execution_fixture.planner.plan("{ nodes { id } }", None).expect("a plan").explain().to_string();
    assert!(text.contains("__typename"), "{text}");
}

/// A service with pets that are cats or dogs, distinguished by `kind`.
const PETS: &str = r##"{ "openapi": "3.1.0", "info": { "title": "zoo", "version": "1" }, "paths": {
  "/pet": { "get": { "operationId": "pet", "responses": { "200": { "description": "", "content": { "application/json": {
    "schema": { "$ref": "#/components/schemas/Pet" } } } } } } } },
  "components": { "schemas": {
    "Pet": { "oneOf": [{ "$ref": "#/components/schemas/Cat" }, { "$ref": "#/components/schemas/Dog" }] },
    "Cat": { "type": "object", "required": ["kind", "lives"],
      "properties": { "kind": { "const": "cat" }, "lives": { "type": "integer" } } },
    "Dog": { "type": "object", "required": ["kind", "tricks"],
      "properties": { "kind": { "const": "dog" }, "tricks": { "type": "integer" } } } } } }"##;

#[tokio::test]
async fn an_object_of_a_rest_service_whose_type_is_hidden_is_null() {
    let links = r#"{ "types": { "Dog": { "hide": true } } }"#;
    let fixture = ExecutionFixture::with_rest_services(
        &[("zoo", PETS)],
        links,
        &[("zoo/pet", r#"{"kind":"dog","tricks":3}"#)],
    );
    for document in ["{ pet { __typename } }", "{ pet { ... on Cat { lives } } }"] {
        assert_eq!(fixture.query(document).await, r#"{"data":{"pet":null}}"#, "{document}");
    }
}
