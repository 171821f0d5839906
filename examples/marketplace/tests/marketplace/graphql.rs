//! GraphQL: the rows, mutations and errors.

use graphql_tools::parser::schema::{Definition, TypeDefinition, parse_schema};
use marketplace::MarketplaceService;
use serde_json::{Value, json};

use crate::Api;

impl Api {
    async fn graphql(&self, query: &str, variables: Value) -> Value {
        let body = json!({ "query": query, "variables": variables }).to_string();
        let reply = self.send("POST", "/graphql", &body).await;
        assert_eq!(reply.status, 200, "{query}");
        reply.json()
    }
}

/// Returns a selection of all members of the rows.
fn whole(row: &Value) -> String {
    let members = row.as_object().unwrap().iter().map(|(name, value)| match value {
        Value::Object(_) => format!("{name} {}", whole(value)),
        _ => name.clone(),
    });
    format!("{{ {} }}", members.collect::<Vec<_>>().join(" "))
}

#[tokio::test]
async fn lists_equal_those_of_rest() {
    let lists = [
        (MarketplaceService::Profile, "/buyers", "buyers"),
        (MarketplaceService::Profile, "/freelancers?ids=101,105", "freelancers(ids: [101, 105])"),
        (MarketplaceService::Profile, "/users?role=admin", "users(role: admin)"),
        (
            MarketplaceService::Catalog,
            "/catalogs?buyers=1,2&per_buyer=1&sort=-created",
            "catalogs(buyers: [1, 2], per_buyer: 1, sort: _created)",
        ),
        (
            MarketplaceService::Order,
            "/orders?status=completed&limit=3&ids=4,9,18,27,36,45,58",
            "orders(status: completed, limit: 3, ids: [4, 9, 18, 27, 36, 45, 58])",
        ),
    ];
    for (service, path, field) in lists {
        let api = Api::fresh(service);
        let rows = api.get(path).await;
        let selection = whole(rows.as_array().unwrap().last().unwrap());
        let answer = api.graphql(&format!("{{ rows: {field} {selection} }}"), json!({})).await;
        assert_eq!(answer, json!({ "data": { "rows": rows } }), "{path}");
    }
}

#[tokio::test]
async fn supports_aliases_fragments_conditions_and_variables() {
    let api = Api::fresh(MarketplaceService::Order);
    let query = "query Q($id: Long!, $more: Boolean = false) {
        a: order(id: $id) { ...part payment { amount @include(if: $more) } ... on Order { status @skip(if: true) } }
        b: order(id: 100000) { id }
      }
      fragment part on Order { __typename number: id payment { currency } }";
    let order = api.get("/orders/7").await;
    let expected = json!({ "data": {
        "a": { "__typename": "Order", "number": 7, "payment": { "currency": order["payment"]["currency"] } },
        "b": null,
    }});
    assert_eq!(api.graphql(query, json!({ "id": 7 })).await, expected);
    let none = api.graphql("{ order(id: 7) @skip(if: true) { id } }", json!({})).await;
    assert_eq!(none, json!({ "data": {} }));
    let more = api.graphql(query, json!({ "id": 7, "more": true })).await;
    assert_eq!(more["data"]["a"]["payment"]["amount"], order["payment"]["amount"]);
}

#[tokio::test]
async fn mutation_changes_a_row() {
    let api = Api::fresh(MarketplaceService::Catalog);
    let gone = "mutation { first: deleteCatalog(id: 7) again: deleteCatalog(id: 7) }";
    let expected = json!({ "data": { "first": true, "again": null } });
    assert_eq!(api.graphql(gone, json!({})).await, expected);
    assert_eq!(api.send("GET", "/catalogs/7", "").await.status, 404);
}

#[tokio::test]
async fn reports_problems_as_field_errors() {
    let api = Api::fresh(MarketplaceService::Profile);
    let login = r#"mutation { me: login(input: { email: "nobody", password: "" }) { name } }"#;
    let answer = api.graphql(login, json!({})).await;
    assert_eq!(answer["data"], json!({ "me": null }));
    assert_eq!(answer["errors"][0]["path"], json!(["me"]));
    assert_eq!(answer["errors"][0]["extensions"]["code"], "wrong-login");
    let answer = api.graphql("{ buyers(limit: -1) { id } }", json!({})).await;
    assert_eq!(
        (&answer["data"], &answer["errors"][0]["extensions"]["code"]),
        (&Value::Null, &json!("bad-parameter"))
    );
}

#[tokio::test]
async fn rejects_invalid_documents_before_running_them() {
    let api = Api::fresh(MarketplaceService::Profile);
    for query in ["{ buyers { nam } }", "{ buyers", "query A { __typename } query B { __typename }"] {
        let answer = api.graphql(query, json!({})).await;
        assert!(
            answer.get("data").is_none() && answer["errors"][0]["message"].is_string(),
            "{query}: {answer}"
        );
    }
}

#[tokio::test]
async fn answers_every_query_field() {
    for service in MarketplaceService::ALL {
        let schema = parse_schema::<String>(service.schema()).unwrap();
        let roots = schema.definitions.iter().filter_map(|definition| match definition {
            Definition::TypeDefinition(TypeDefinition::Object(object)) => Some(object),
            _ => None,
        });
        let roots = roots.filter(|object| object.name == "Query");
        let api = Api::fresh(service);
        let mut asked = 0;
        for field in roots.flat_map(|object| &object.fields) {
            let needs_id = field.arguments.iter().any(|argument| argument.name == "id");
            let arguments = if needs_id { "(id: 1)" } else { "(limit: 1)" };
            let answer =
                api.graphql(&format!("{{ {}{arguments} {{ __typename }} }}", field.name), json!({})).await;
            assert!(answer.get("errors").is_none(), "{}: {answer}", field.name);
            asked += 1;
        }
        assert!(asked > 1, "{}", service.name());
    }
}
