//! Errors are problem details with the name of the wrong parameter.

use marketplace::MarketplaceService;
use serde_json::Value;

use crate::Api;

async fn problem(service: MarketplaceService, method: &str, path: &str, body: &str) -> (u16, String, Value) {
    let reply = Api::fresh(service).send(method, path, body).await;
    assert_eq!(reply.header("content-type"), "application/problem+json", "{path}");
    let problem = reply.json();
    assert_eq!(problem["status"], reply.status.as_u16(), "{path}");
    assert!(problem["title"].is_string() && problem["detail"].is_string(), "{path}");
    (reply.status.as_u16(), problem["code"].as_str().unwrap().into(), problem["parameter"].clone())
}

#[tokio::test]
async fn names_bad_and_unknown_parameters() {
    for (service, path, code, name) in [
        (MarketplaceService::Profile, "/buyers?limit=-1", "bad-parameter", "limit"),
        (MarketplaceService::Profile, "/buyers?limit=", "bad-parameter", "limit"),
        (MarketplaceService::Profile, "/buyers?limit=1&limit=2", "bad-parameter", "limit"),
        (MarketplaceService::Profile, "/buyers?offset=99999999999999999999", "bad-parameter", "offset"),
        (MarketplaceService::Profile, "/users?role=king", "bad-parameter", "role"),
        (MarketplaceService::Profile, "/buyers?role=admin", "unknown-parameter", "role"),
        (MarketplaceService::Profile, "/buyers/1?limit=1", "unknown-parameter", "limit"),
        (MarketplaceService::Profile, "/buyers/one", "bad-parameter", "id"),
        (MarketplaceService::Catalog, "/catalogs?ids=1,,2", "bad-parameter", "ids"),
        (MarketplaceService::Catalog, "/catalogs?buyers=1;DROP", "bad-parameter", "buyers"),
        (MarketplaceService::Catalog, "/catalogs?sort=price", "bad-parameter", "sort"),
        (MarketplaceService::Catalog, "/catalogs?per_buyer=x", "bad-parameter", "per_buyer"),
        (MarketplaceService::Order, "/orders?status=lost", "bad-parameter", "status"),
        (MarketplaceService::Order, "/orders?limt=5", "unknown-parameter", "limt"),
    ] {
        let found = problem(service, "GET", path, "").await;
        assert_eq!(found, (400, code.into(), name.into()), "{path}");
    }
}

#[tokio::test]
async fn missing_rows_and_routes_are_404() {
    for (service, path, code) in [
        (MarketplaceService::Profile, "/buyers/101", "not-found"),
        (MarketplaceService::Profile, "/freelancers/1", "not-found"),
        (MarketplaceService::Profile, "/users/316", "not-found"),
        (MarketplaceService::Profile, "/users/316/notices", "not-found"),
        (MarketplaceService::Catalog, "/catalogs/1001", "not-found"),
        (MarketplaceService::Order, "/orders/0", "not-found"),
        (MarketplaceService::Order, "/", "no-route"),
    ] {
        let (status, found, _) = problem(service, "GET", path, "").await;
        assert_eq!((status, found.as_str()), (404, code), "{path}");
    }
}

#[tokio::test]
async fn unsupported_method_is_405_with_allow_header() {
    let reply = Api::fresh(MarketplaceService::Catalog).send("PATCH", "/catalogs/1", "{}").await;
    assert_eq!((reply.status.as_u16(), &reply.json()["code"]), (405, &"method-not-allowed".into()));
    let allowed = reply.header("allow");
    assert!(["GET", "PUT", "DELETE"].iter().all(|method| allowed.contains(method)), "{allowed}");
}

#[tokio::test]
async fn invalid_body_is_400() {
    for (service, method, path, body) in [
        (MarketplaceService::Profile, "POST", "/login", ""),
        (MarketplaceService::Profile, "POST", "/login", r#"{"email":"a@b"}"#),
        (MarketplaceService::Profile, "POST", "/users/1/notices", r#"{"text":"x","to":2}"#),
        (MarketplaceService::Profile, "POST", "/users/1/notices", r#"{"text":""}"#),
        (MarketplaceService::Catalog, "POST", "/catalogs", r#"{"title":"#),
        (MarketplaceService::Order, "PATCH", "/orders/1", r#"{"status":"lost"}"#),
        (MarketplaceService::Order, "PATCH", "/orders/1", r#"{"review":{"stars":6,"text":""}}"#),
        (MarketplaceService::Order, "PATCH", "/orders/1", r#"{"payment":{"paid_at":"yesterday"}}"#),
        (MarketplaceService::Order, "PATCH", "/orders/1", r#"{"payment":{"amount":0}}"#),
    ] {
        let (status, code, _) = problem(service, method, path, body).await;
        assert_eq!((status, code.as_str()), (400, "bad-body"), "{method} {path} {body}");
    }
}

#[tokio::test]
async fn oversized_body_is_413() {
    let (status, code, _) =
        problem(MarketplaceService::Profile, "POST", "/login", &" ".repeat(3 << 20)).await;
    assert_eq!((status, code.as_str()), (413, "unreadable"));
}
