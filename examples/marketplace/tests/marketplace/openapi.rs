//! The OpenAPI documents match the routes of the router and the responses.

use std::collections::{BTreeMap, BTreeSet};

use marketplace::MarketplaceService;
use saphyr::{LoadableYamlNode, Scalar, Yaml};
use serde_json::{Value, json};

use crate::Api;

fn document(service: MarketplaceService) -> Value {
    tree(&Yaml::load_from_str(service.openapi()).unwrap()[0])
}

fn tree(yaml: &Yaml<'_>) -> Value {
    match yaml {
        Yaml::Value(Scalar::Boolean(value)) => json!(value),
        Yaml::Value(Scalar::Integer(value)) => json!(value),
        Yaml::Value(Scalar::FloatingPoint(value)) => json!(value.into_inner()),
        Yaml::Value(Scalar::String(value)) => json!(value),
        Yaml::Sequence(items) => items.iter().map(tree).collect(),
        Yaml::Mapping(items) => {
            items.iter().map(|(name, value)| (name.as_str().unwrap().to_owned(), tree(value))).collect()
        }
        _ => Value::Null,
    }
}

/// Resolves `{ $ref: "#/..." }`.
fn resolved<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    match value["$ref"].as_str() {
        Some(reference) => document.pointer(reference.trim_start_matches('#')).expect(reference),
        None => value,
    }
}

/// Returns method, path and names of the query parameters of every operation.
fn operations(document: &Value) -> BTreeMap<(String, String), BTreeSet<String>> {
    let mut found = BTreeMap::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap().iter().filter(|(name, _)| *name != "parameters")
        {
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let names =
                parameters.map(|value| resolved(document, value)["name"].as_str().unwrap().to_owned());
            found.insert((method.to_uppercase(), path.clone()), names.collect());
        }
    }
    found
}

#[test]
fn documents_and_routers_have_same_routes_and_parameters() {
    for service in MarketplaceService::ALL {
        let routes = service.routes().iter().map(|route| {
            let parameters = route.parameters.iter().map(|&name| name.to_owned()).collect();
            ((route.method.to_string(), route.path.to_owned()), parameters)
        });
        assert_eq!(operations(&document(service)), routes.collect(), "{}", service.name());
    }
}

#[test]
fn references_resolve_and_components_are_used() {
    for service in MarketplaceService::ALL {
        let (document, text) = (document(service), service.openapi());
        for reference in text.split("$ref: \"#").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(document.pointer(reference).is_some(), "{}: {reference}", service.name());
        }
        for (kind, components) in document["components"].as_object().unwrap() {
            for name in components.as_object().unwrap().keys() {
                let reference = format!("#/components/{kind}/{name}\"");
                assert!(text.contains(&reference), "{}: {reference}", service.name());
            }
        }
    }
}

#[test]
fn operation_ids_exist_and_are_unique() {
    for service in MarketplaceService::ALL {
        let document = document(service);
        let items = document["paths"].as_object().unwrap().values();
        let operations =
            items.flat_map(|item| item.as_object().unwrap()).filter(|(name, _)| *name != "parameters");
        let ids: Vec<&str> = operations.map(|(_, value)| value["operationId"].as_str().unwrap()).collect();
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
    }
}

/// Returns the schema of a response, with the document's components for its references.
fn schema(document: &Value, method: &str, path: &str, status: &str) -> Value {
    let responses = &document["paths"][path][method]["responses"];
    let response = responses.get(status).unwrap_or(&responses["default"]);
    let content = resolved(document, response)["content"].as_object().expect(path);
    let mut schema = content.values().next().unwrap()["schema"].clone();
    schema["components"] = document["components"].clone();
    schema
}

#[tokio::test]
async fn responses_match_documented_schemas() {
    let login = r#"{"email":"nobody@example.org","password":""}"#;
    for (service, method, template, path, body) in [
        (MarketplaceService::Profile, "get", "/buyers", "/buyers", ""),
        (MarketplaceService::Profile, "get", "/buyers/{id}", "/buyers/1", ""),
        (MarketplaceService::Profile, "get", "/buyers/{id}", "/buyers/1000", ""),
        (MarketplaceService::Profile, "get", "/freelancers", "/freelancers", ""),
        (MarketplaceService::Profile, "get", "/freelancers/{id}", "/freelancers/315", ""),
        (MarketplaceService::Profile, "get", "/users", "/users", ""),
        (MarketplaceService::Profile, "get", "/users", "/users?limit=x", ""),
        (MarketplaceService::Profile, "get", "/users/{id}", "/users/3", ""),
        (MarketplaceService::Profile, "post", "/users/{id}/notices", "/users/3/notices", r#"{"text":"x"}"#),
        (MarketplaceService::Profile, "post", "/login", "/login", login),
        (MarketplaceService::Catalog, "get", "/catalogs", "/catalogs", ""),
        (MarketplaceService::Catalog, "get", "/catalogs/{id}", "/catalogs/1", ""),
        (MarketplaceService::Order, "get", "/orders", "/orders", ""),
        (MarketplaceService::Order, "get", "/orders/{id}", "/orders/1", ""),
        (
            MarketplaceService::Order,
            "patch",
            "/orders/{id}",
            "/orders/1",
            r#"{"status":"open","review":null}"#,
        ),
        (MarketplaceService::Order, "get", "/buyers/{id}/rating", "/buyers/8/rating", ""),
    ] {
        let reply = Api::fresh(service).send(&method.to_uppercase(), path, body).await;
        let schema = schema(&document(service), method, template, reply.status.as_str());
        let answer = reply.json();
        jsonschema::validate(&schema, &answer).unwrap_or_else(|error| panic!("{method} {path}: {error}"));
    }
}
