//! Tests of subgraphs by the Apollo Federation specification, composed and queried.

use serde_json::{Value, json};

use super::fixture::ExecutionFixture;

const LINK: &str = r#"extend schema @link(url: "https://specs.apollo.dev/federation/v2.3", import: ["@key", "@requires",
  "@provides", "@external", "@shareable", "@override", "@inaccessible", "@interfaceObject"]) "#;

pub(super) fn federated_fixture(services: &[(&str, &str)], data: Value) -> ExecutionFixture {
    let services: Vec<(&str, String)> =
        services.iter().map(|(name, sdl)| (*name, format!("{LINK}{sdl}"))).collect();
    ExecutionFixture::with_subgraphs(&services, data)
}

const PRODUCTS: &str = r#"
  type Query { products: [Product!] product: Product }
  type Product @key(fields: "upc") { upc: ID! name: String! price: Int box: Box }
  type Box { size: Int }"#;

fn product_fixture() -> ExecutionFixture {
    let inventory = r#"
      type Product @key(fields: "upc") { upc: ID! price: Int @external box: Box @external weight: Int
        sum: Int @requires(fields: "price box { size }") inStock: Boolean! }
      type Box { size: Int @external }"#;
    let reviews = r#"
      type Query { latest: [Review] }
      type Product @key(fields: "upc") { upc: ID! reviews: [Review!]! }
      type Review @key(fields: "id") { id: ID! body: String product: Product }"#;
    federated_fixture(
        &[("products", PRODUCTS), ("inventory", inventory), ("reviews", reviews)],
        json!({
            "products": {
                "Query": { "products": [{ "__typename": "Product", "upc": "1" }, { "__typename": "Product", "upc": "2" }] },
                "Product": [
                    { "upc": "1", "name": "table", "price": 10, "box": { "__typename": "Box", "size": 5 } },
                    { "upc": "2", "name": "chair", "price": 20, "box": null },
                ],
            },
            "inventory": { "Product": [{ "upc": "1", "inStock": true }, { "upc": "2", "inStock": { "__error": "no shelf" } }] },
            "reviews": {
                "Query": { "latest": [
                    { "__typename": "Review", "id": "b" }, null, { "__typename": "Review", "id": "a" }, { "__typename": "Review", "id": "b" },
                ] },
                "Product": [{ "upc": "1", "reviews": [{ "__typename": "Review", "id": "a" }, { "__typename": "Review", "id": "b" }] },
                    { "upc": "2", "reviews": [] }],
                "Review": [
                    { "id": "a", "body": "fine", "product": { "__typename": "Product", "upc": "1" } },
                    { "id": "b", "body": null, "product": { "__typename": "Product", "upc": "2" } },
                ],
            },
        }),
    )
}

#[tokio::test]
async fn fetches_entities_in_one_request_without_duplicates() {
    let rig = product_fixture();
    let answer = rig.query("{ latest { id product { name } } }").await;
    assert_eq!(
        answer,
        r#"{"data":{"latest":[{"id":"b","product":{"name":"chair"}},null,{"id":"a","product":{"name":"table"}},{"id":"b","product":{"name":"chair"}}]}}"#
    );
    let asked = rig.take_sorted_requests();
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(asked[0].starts_with(r#"products/graphql {"representations":[{"__typename":"Product","upc":"2"},{"__typename":"Product","upc":"1"}]}"#), "{asked:?}");
}

#[tokio::test]
async fn fetches_and_sends_required_fields_first() {
    let rig = product_fixture();
    let answer = rig.query("{ products { sum reviews { product { sum } } } }").await;
    assert_eq!(
        answer,
        r#"{"data":{"products":[{"sum":15,"reviews":[{"product":{"sum":15}},{"product":{"sum":20}}]},{"sum":20,"reviews":[]}]}}"#
    );
}

#[tokio::test]
async fn reports_a_subgraph_error_at_its_field_and_propagates_null_minimally() {
    let rig = product_fixture();
    let answer = rig.query("{ products { name stock: inStock } }").await;
    assert_eq!(
        answer,
        r#"{"data":{"products":null},"errors":[{"message":"no shelf","path":["products",1,"stock"],"extensions":{"code":"upstream-errors","service":"inventory"}}]}"#
    );
}

#[tokio::test]
async fn keys_may_be_objects_and_of_several_fields() {
    let rig = federated_fixture(
        &[
            (
                "a",
                r#"type Query { items: [Item] } type Item @key(fields: "sku owner { id }") { sku: Int! owner: Owner! }
                   type Owner { id: ID! @shareable }"#,
            ),
            (
                "b",
                r#"type Item @key(fields: "sku owner { id }") { sku: Int! owner: Owner! name: String }
                   type Owner { id: ID! @shareable }"#,
            ),
        ],
        json!({
            "a": { "Query": { "items": [
                { "__typename": "Item", "sku": 1, "owner": { "__typename": "Owner", "id": "x" } },
                { "__typename": "Item", "sku": 1, "owner": { "__typename": "Owner", "id": "y" } },
            ] } },
            "b": { "Item": [
                { "sku": 1, "owner": { "id": "x" }, "name": "of x" }, { "sku": 1, "owner": { "id": "y" }, "name": "of y" },
            ] },
        }),
    );
    let answer = rig.query("{ items { name } }").await;
    assert_eq!(answer, r#"{"data":{"items":[{"name":"of x"},{"name":"of y"}]}}"#);
}

#[tokio::test]
async fn members_of_unions_and_interfaces_have_their_selected_fields() {
    let rig = federated_fixture(
        &[
            (
                "a",
                r#"type Query { found: [Found] media: [Media] } union Found = Book | Film
                   interface Media { id: ID! title: Int }
                   type Book implements Media @key(fields: "id") { id: ID! title: Int }
                   type Film implements Media @key(fields: "id") { id: ID! title: Int }"#,
            ),
            (
                "b",
                r#"type Book @key(fields: "id") { id: ID! pages: Int name: String }
                   type Film @key(fields: "id") { id: ID! length: Int name: String }"#,
            ),
        ],
        json!({
            "a": { "Query": {
                "found": [{ "__typename": "Film", "id": "1" }, { "__typename": "Book", "id": "1" }],
                "media": [{ "__typename": "Book", "id": "1", "title": 3 }, { "__typename": "Film", "id": "1", "title": 4 }],
            } },
            "b": {
                "Book": [{ "id": "1", "pages": 300, "name": "b" }],
                "Film": [{ "id": "1", "length": 90, "name": "f" }],
            },
        }),
    );
    let answer = rig
        .query("{ found { __typename ... on Book { name size: pages } ... on Film { size: length name } } }")
        .await;
    assert_eq!(
        answer,
        r#"{"data":{"found":[{"__typename":"Film","size":90,"name":"f"},{"__typename":"Book","name":"b","size":300}]}}"#
    );
    let answer = rig.query("{ media { title ... on Book { pages } ... on Media { id } } }").await;
    assert_eq!(answer, r#"{"data":{"media":[{"title":3,"pages":300,"id":"1"},{"title":4,"id":"1"}]}}"#);
}

#[tokio::test]
async fn an_interface_object_adds_fields_to_an_interface() {
    let rig = federated_fixture(
        &[
            (
                "a",
                r#"type Query { media: [Media] } interface Media @key(fields: "id") { id: ID! }
                   type Book implements Media @key(fields: "id") { id: ID! pages: Int }
                   type Film implements Media @key(fields: "id") { id: ID! }"#,
            ),
            (
                "b",
                r#"type Query { best: Media } type Media @key(fields: "id") @interfaceObject { id: ID! stars: Int }"#,
            ),
        ],
        json!({
            "a": {
                "Query": { "media": [{ "__typename": "Book", "id": "1" }, { "__typename": "Film", "id": "2" }] },
                "Media": [{ "id": "1", "__typename": "Book", "pages": 7 }],
                "Book": [{ "id": "1", "pages": 7 }],
            },
            "b": {
                "Query": { "best": { "__typename": "Media", "id": "1" } },
                "Media": [{ "id": "1", "stars": 5 }, { "id": "2", "stars": 3 }],
            },
        }),
    );
    assert_eq!(
        rig.query("{ media { __typename stars } }").await,
        r#"{"data":{"media":[{"__typename":"Book","stars":5},{"__typename":"Film","stars":3}]}}"#
    );
}

#[tokio::test]
async fn hidden_enum_values_are_null() {
    let rig = federated_fixture(
        &[(
            "a",
            r#"type Query { colour: Colour colours: [Colour] sure: Colour! }
               enum Colour { RED SECRET @inaccessible }"#,
        )],
        json!({ "a": { "Query": { "colour": "SECRET", "colours": ["RED", "SECRET"], "sure": "BLUE" } } }),
    );
    assert_eq!(rig.query("{ colour colours }").await, r#"{"data":{"colour":null,"colours":["RED",null]}}"#);
    let wrong = rig.query("{ sure }").await;
    assert!(wrong.starts_with(r#"{"data":null,"errors":[{"#) && wrong.contains("graphql-value"), "{wrong}");
}

#[tokio::test]
async fn executes_mutations_in_order() {
    let rig = federated_fixture(
        &[
            ("a", r#"type Query { x: Int } type Mutation { one: T } type T @key(fields: "id") { id: ID! }"#),
            (
                "b",
                r#"type Query { y: Int } type Mutation { two: Int } type T @key(fields: "id") { id: ID! name: String }"#,
            ),
        ],
        json!({
            "a": { "Mutation": { "one": { "__typename": "T", "id": "1" }, "three": 3 } },
            "b": { "Mutation": { "two": 2 }, "T": [{ "id": "1", "name": "t" }] },
        }),
    );
    assert_eq!(rig.query("mutation { two one { name } }").await, r#"{"data":{"two":2,"one":{"name":"t"}}}"#);
    let asked = rig.take_requests();
    assert!(asked[0].starts_with("b/") && asked[1].starts_with("a/") && asked.len() == 3, "{asked:?}");
    let answer = rig.query("mutation { first: one { name } two last: one { name } }").await;
    assert_eq!(answer, r#"{"data":{"first":{"name":"t"},"two":2,"last":{"name":"t"}}}"#);
    let asked = rig.take_requests();
    assert!(asked.last().is_some_and(|last| last.starts_with("b/")), "the name is read again: {asked:?}");
}

#[tokio::test]
async fn a_failed_service_does_not_affect_the_data_of_others() {
    let rig = product_fixture();
    let answer = rig.query("{ products { name reviews { body } } product { name } }").await;
    assert!(answer.contains(r#""product":null"#), "{answer}");
}

#[tokio::test]
async fn uses_the_names_of_a_service_and_calls_links_to_itself_separately() {
    let own = json!({
        "types": "Order is their T, OrderState their State",
        "Query": { "list": [{ "__typename": "T", "no": 1, "state": "open", "next": 2 }, { "__typename": "U" }] },
    });
    let rig = ExecutionFixture::with_renamed_service(own);
    let answer = rig
        .query_with_variables(
            "query($in: OrderState) { orders(state: $in) { __typename ... on Order { number at: state } } }",
            r#"{"in":"OPEN"}"#,
        )
        .await;
    assert_eq!(
        answer,
        r#"{"data":{"orders":[{"__typename":"Order","number":1,"at":"OPEN"},{"__typename":"U"}]}}"#
    );
    assert_eq!(rig.take_sorted_requests(), [r#"shop/graphql {"in":"open"}"#]);
    let plan = rig
        .planner
        .plan("{ orders(state: OPEN) { ... on Order { number next { number } } } }", None)
        .unwrap();
    let text = plan.explain().to_string();
    assert!(text.contains("orders: list(state: open)") && text.contains("...on T{number: no"), "{text}");
    assert!(text.contains("orfa_need_after: next") && text.contains("{ find }"), "{text}");
}
