//! Requests that change rows.

use marketplace::MarketplaceService;
use serde_json::{Value, json};

use crate::Api;

fn posting() -> Value {
    json!({
        "buyer_id": 8, "title": "A poster", "description": "For the door.", "category": "design",
        "price": 120, "currency": "EUR", "skills": ["figma"],
    })
}

#[tokio::test]
async fn login_requires_correct_password() {
    let api = Api::fresh(MarketplaceService::Profile);
    let email = api.get("/users/9").await["email"].clone();
    let login = |password: &str| json!({"email": email, "password": password}).to_string();
    let reply = api.send("POST", "/login", &login("password-9")).await;
    assert_eq!((reply.status.as_u16(), &reply.json()["user_id"]), (200, &json!(9)));
    assert_eq!(api.send("POST", "/login", &login("password-8")).await.status, 401);
}

#[tokio::test]
async fn updates_a_buyer() {
    let api = Api::fresh(MarketplaceService::Profile);
    let mut buyer = api.get("/buyers/4").await;
    buyer["city"] = json!("Bandung");
    let mut update = buyer.clone();
    update.as_object_mut().unwrap().retain(|name, _| !["id", "joined"].contains(&name.as_str()));
    assert_eq!(api.send("PUT", "/buyers/4", &update.to_string()).await.json(), buyer);
    assert_eq!(api.get("/buyers/4").await, buyer);
    let reply = api.send("PUT", "/buyers/5", &update.to_string()).await;
    assert_eq!((reply.status.as_u16(), &reply.json()["code"]), (409, &json!("conflict")));
    assert_eq!(api.send("PUT", "/buyers/101", &update.to_string()).await.status, 404);
}

#[tokio::test]
async fn notice_reaches_only_its_user() {
    let api = Api::fresh(MarketplaceService::Profile);
    let reply = api.send("POST", "/users/3/notices", r#"{"text":"Maintenance tonight"}"#).await;
    assert_eq!((reply.status.as_u16(), reply.header("location")), (201, "/users/3/notices"));
    assert_eq!(api.get("/users/3/notices").await, json!([reply.json()]));
    assert_eq!(api.get("/users/4/notices").await, json!([]));
    assert_eq!(api.send("POST", "/users/999/notices", r#"{"text":"x"}"#).await.status, 404);
}

#[tokio::test]
async fn creates_replaces_and_deletes_a_posting() {
    let api = Api::fresh(MarketplaceService::Catalog);
    let created = api.send("POST", "/catalogs", &posting().to_string()).await;
    assert_eq!((created.status.as_u16(), created.header("location")), (201, "/catalogs/1001"));
    assert_eq!(api.get("/catalogs?buyer=8").await, json!([created.json()]));

    let mut changed = posting();
    changed["open"] = json!(false);
    let replaced = api.send("PUT", "/catalogs/1001", &changed.to_string()).await.json();
    assert_eq!((&replaced["open"], &replaced["created"]), (&json!(false), &created.json()["created"]));

    assert_eq!(api.send("DELETE", "/catalogs/1001", "").await.status, 204);
    assert_eq!(api.send("GET", "/catalogs/1001", "").await.status, 404);
    assert_eq!(api.send("DELETE", "/catalogs/1001", "").await.status, 404);
}

#[tokio::test]
async fn order_goes_from_open_to_reviewed_to_deleted() {
    let api = Api::fresh(MarketplaceService::Order);
    let order = json!({
        "catalog_id": 1, "freelancer_id": 101, "buyer_id": 1,
        "payment": {"amount": 50, "currency": "EUR", "method": "card"},
    });
    let created = api.send("POST", "/orders", &order.to_string()).await;
    assert_eq!((created.status.as_u16(), created.header("location")), (201, "/orders/1510"));
    assert_eq!((&created.json()["status"], &created.json()["review"]), (&json!("open"), &Value::Null));

    let change = json!({
        "status": "completed", "payment": {"paid_at": "2026-07-01T10:00:00Z"},
        "review": {"stars": 4, "text": "Good"},
    });
    let changed = api.send("PATCH", "/orders/1510", &change.to_string()).await.json();
    assert_eq!(changed["review"], change["review"]);
    assert_eq!(changed["payment"]["paid_at"], "2026-07-01T10:00:00Z");
    assert_eq!(changed["payment"]["amount"], 50);

    let removed = api.send("PATCH", "/orders/1510", r#"{"review":null}"#).await.json();
    assert_eq!((&removed["review"], &removed["status"]), (&Value::Null, &json!("completed")));
    assert_eq!(api.send("DELETE", "/orders/1510", "").await.status, 204);
    assert_eq!(api.send("PATCH", "/orders/1510", "{}").await.status, 404);
}

#[tokio::test]
async fn keeps_all_concurrent_writes() {
    let api = Api::fresh(MarketplaceService::Profile);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let api = Api(api.0.clone());
        tasks.spawn(async move { api.send("POST", "/users/1/notices", r#"{"text":"x"}"#).await.status });
    }
    assert!(tasks.join_all().await.iter().all(|status| *status == 201));
    assert_eq!(api.ids("/users/1/notices").await.len(), 50);
}
