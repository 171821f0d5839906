//! Errors are problem details with the name of the wrong parameter.

use marketplace::Service;
use serde_json::Value;

use crate::Api;

async fn problem(service: Service, method: &str, path: &str, body: &str) -> (u16, String, Value) {
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
        (Service::Profile, "/buyers?limit=-1", "bad-parameter", "limit"),
        (Service::Profile, "/buyers?limit=", "bad-parameter", "limit"),
        (Service::Profile, "/buyers?limit=1&limit=2", "bad-parameter", "limit"),
        (Service::Profile, "/buyers?offset=99999999999999999999", "bad-parameter", "offset"),
        (Service::Profile, "/users?role=king", "bad-parameter", "role"),
        (Service::Profile, "/buyers?role=admin", "unknown-parameter", "role"),
        (Service::Profile, "/buyers/1?limit=1", "unknown-parameter", "limit"),
        (Service::Profile, "/buyers/one", "bad-parameter", "id"),
        (Service::Catalog, "/catalogs?ids=1,,2", "bad-parameter", "ids"),
        (Service::Catalog, "/catalogs?buyers=1;DROP", "bad-parameter", "buyers"),
        (Service::Catalog, "/catalogs?sort=price", "bad-parameter", "sort"),
        (Service::Catalog, "/catalogs?per_buyer=x", "bad-parameter", "per_buyer"),
        (Service::Order, "/orders?status=lost", "bad-parameter", "status"),
        (Service::Order, "/orders?limt=5", "unknown-parameter", "limt"),
    ] {
        let found = problem(service, "GET", path, "").await;
        assert_eq!(found, (400, code.into(), name.into()), "{path}");
    }
}

#[tokio::test]
async fn missing_rows_and_routes_are_404() {
    for (service, path, code) in [
        (Service::Profile, "/buyers/101", "not-found"),
        (Service::Profile, "/freelancers/1", "not-found"),
        (Service::Profile, "/users/316", "not-found"),
        (Service::Profile, "/users/316/notices", "not-found"),
        (Service::Catalog, "/catalogs/1001", "not-found"),
        (Service::Order, "/orders/0", "not-found"),
        (Service::Order, "/", "no-route"),
    ] {
        let (status, found, _) = problem(service, "GET", path, "").await;
        assert_eq!((status, found.as_str()), (404, code), "{path}");
    }
}

#[tokio::test]
async fn unsupported_method_is_405_with_allow_header() {
    let reply = Api::fresh(Service::Catalog).send("PATCH", "/catalogs/1", "{}").await;
    assert_eq!((reply.status.as_u16(), &reply.json()["code"]), (405, &"method-not-allowed".into()));
    let allowed = reply.header("allow");
    assert!(["GET", "PUT", "DELETE"].iter().all(|method| allowed.contains(method)), "{allowed}");
}

#[tokio::test]
async fn invalid_body_is_400() {
    for (service, method, path, body) in [
        (Service::Profile, "POST", "/login", ""),
        (Service::Profile, "POST", "/login", r#"{"email":"a@b"}"#),
        (Service::Profile, "POST", "/users/1/notices", r#"{"text":"x","to":2}"#),
        (Service::Profile, "POST", "/users/1/notices", r#"{"text":""}"#),
        (Service::Catalog, "POST", "/catalogs", r#"{"title":"#),
        (Service::Order, "PATCH", "/orders/1", r#"{"status":"lost"}"#),
        (Service::Order, "PATCH", "/orders/1", r#"{"review":{"stars":6,"text":""}}"#),
        (Service::Order, "PATCH", "/orders/1", r#"{"payment":{"paid_at":"yesterday"}}"#),
        (Service::Order, "PATCH", "/orders/1", r#"{"payment":{"amount":0}}"#),
    ] {
        let (status, code, _) = problem(service, method, path, body).await;
        assert_eq!((status, code.as_str()), (400, "bad-body"), "{method} {path} {body}");
    }
}

#[tokio::test]
async fn oversized_body_is_413() {
    let (status, code, _) = problem(Service::Profile, "POST", "/login", &" ".repeat(3 << 20)).await;
    assert_eq!((status, code.as_str()), (413, "unreadable"));
}
