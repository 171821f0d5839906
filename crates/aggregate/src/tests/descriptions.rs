//! Descriptions of aggregates, as text and in OpenAPI.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::json;

use super::fixture::{AggregateTestService, declaration, test_services, unlimited_pool};
use crate::{Aggregate, AggregateContext, AggregateLimitsConfig};

const DECLARATION: &str = r#"{
    "summary": "Buyers with their postings",
    "input": {"limit": {"type": "integer", "default": 20, "maximum": 100}, "town": {"type": "string"}},
    "parts": {
        "buyers": {"get": "profile/buyers?limit={limit}"},
        "catalogs": {"get": "catalog/catalogs?buyers={$.buyers[*].id}", "join": {"into": "buyers", "on": "id = buyer_id"}, "fields": ["id", "title"]},
        "rating": {"get": "order/buyers/{each.id}/rating", "each": "buyers", "optional": true}
    },
    "response": "buyers"}"#;

const PROFILE: &str = r##"{"openapi": "3.1.0", "paths": {"/buyers": {"get": {"responses": {"200": {"content": {"application/json": {"schema":
    {"type": "array", "items": {"$ref": "#/components/schemas/Buyer"}}}}}}}}},
    "components": {"schemas": {"Buyer": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}}}}"##;

fn build_aggregate() -> Aggregate {
    let service =
        Arc::new(AggregateTestService { answers: Mutex::default(), recorded_calls: Mutex::default() });
    let profile = openapi::OpenApiDocument::parse(PROFILE).unwrap();
    let documents = BTreeMap::from([("profile".to_owned(), Arc::new(profile))]);
    let (services, offload) = (test_services(&service), unlimited_pool());
    let context = AggregateContext {
        path: "/buyers/{town}",
        services: &services,
        documents: &documents,
        offload: &offload,
    };
    Aggregate::new(&declaration(DECLARATION), &AggregateLimitsConfig::default(), &context).unwrap()
}

#[test]
fn an_explanation_shows_the_calls_wave_by_wave() {
    assert_eq!(build_aggregate().explain().to_string(), "\
GET, HEAD /buyers/{town}
  inputs limit (query, integer, default 20, at most 100); town (path, string)
  1  buyers    GET profile/buyers?limit={limit}
               one call
  2  catalogs  GET catalog/catalogs?buyers={$.buyers[*].id}
               one call, several if the URL had more than 8000 bytes; into buyers as `catalogs`, an array by id = buyer_id
     rating    GET order/buyers/{each.id}/rating
               a call for each of buyers, equal ones once: at most 200, 16 at once; into buyers as `rating`; optional
  response buyers
  at most 500 calls, 16 at once, 64MiB from services, 10s
");
    let chart = build_aggregate().explain().to_mermaid();
    assert!(chart.contains("  buyers --> catalogs\n  catalogs -.-> buyers\n"), "{chart}");
}

#[test]
fn operation_describes_parameters_and_response() {
    let operation = build_aggregate().operation();
    assert_eq!(operation["summary"], "Buyers with their postings");
    assert_eq!(
        operation["parameters"],
        json!([
            {"name": "limit", "in": "query", "required": false, "schema": {"type": "integer", "maximum": 100, "default": 20}},
            {"name": "town", "in": "path", "required": true, "schema": {"type": "string", "maxLength": 1000}},
        ])
    );
    let schema = &operation["responses"]["200"]["content"]["application/json"]["schema"];
    assert_eq!(
        *schema,
        json!({"type": "array", "items": {"type": "object", "required": ["id"], "properties": {
            "id": {"type": "integer"},
            "catalogs": {"type": "array", "items": {"type": "object", "properties": {"id": {}, "title": {}}}},
            "rating": {"anyOf": [{}, {"type": "null"}]},
        }}})
    );
}
