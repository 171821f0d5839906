//! Filters, orders and pages.

use std::cmp::Reverse;

use marketplace::MarketplaceService;
use serde_json::{Value, json};

use crate::{Api, column};

#[tokio::test]
async fn page_has_its_rows_and_total_count() {
    let api = Api::fresh(MarketplaceService::Profile);
    let reply = api.send("GET", "/buyers?limit=3&offset=10", "").await;
    assert_eq!(column(&reply.json(), "id"), [11, 12, 13]);
    assert_eq!(reply.header("x-total-count"), "100");
    assert_eq!(api.ids("/buyers?offset=98").await, [99, 100]);
    assert_eq!(api.get("/buyers?limit=0").await, json!([]));
    assert_eq!(api.send("GET", "/freelancers", "").await.header("x-total-count"), "215");
}

#[tokio::test]
async fn ids_select_rows_and_ignore_missing_ones() {
    let profile = Api::fresh(MarketplaceService::Profile);
    assert_eq!(profile.ids("/buyers?ids=9,2,2,101,4000").await, [2, 9]);
    assert_eq!(profile.ids("/freelancers?ids=9%2C101").await, [101]);
    assert_eq!(profile.get("/buyers?ids=").await, json!([]));
    assert_eq!(Api::fresh(MarketplaceService::Order).ids("/orders?ids=1509,7&limit=1").await, [7]);
}

#[tokio::test]
async fn minus_sorts_newest_first() {
    let rows = Api::fresh(MarketplaceService::Catalog).get("/catalogs?buyer=3&sort=-created").await;
    assert!(column(&rows, "buyer_id").iter().all(|buyer| *buyer == 3));
    let rows = rows.as_array().unwrap();
    assert!(rows.len() > 2);
    assert!(rows.is_sorted_by_key(|row| Reverse(row["created"].as_str())));
}

#[tokio::test]
async fn bulk_call_returns_two_newest_of_each_buyer() {
    let api = Api::fresh(MarketplaceService::Catalog);
    let bulk = api.get("/catalogs?buyers=1,2,5,8&per_buyer=2&sort=-created").await;
    for buyer in [1, 2, 5, 8] {
        let single = api.get(&format!("/catalogs?buyer={buyer}&sort=-created&limit=2")).await;
        let of_buyer = |row: &&Value| row["buyer_id"] == buyer;
        let rows: Vec<&Value> = bulk.as_array().unwrap().iter().filter(of_buyer).collect();
        assert_eq!(json!(rows), single);
    }
    assert_eq!(bulk.as_array().unwrap().len(), 5);
}

#[tokio::test]
async fn per_buyer_works_with_pages() {
    let api = Api::fresh(MarketplaceService::Catalog);
    let reply = api.send("GET", "/catalogs?per_buyer=1&limit=4", "").await;
    assert_eq!(reply.json().as_array().unwrap().len(), 4);
    assert_eq!(reply.header("x-total-count"), "99");
}

#[tokio::test]
async fn each_parameter_filters_orders() {
    let api = Api::fresh(MarketplaceService::Order);
    let all = api.get("/orders").await;
    for (query, field, value) in [
        ("catalog=17", "catalog_id", json!(17)),
        ("freelancer=120", "freelancer_id", json!(120)),
        ("status=in_progress", "status", json!("in_progress")),
    ] {
        let rows = all.as_array().unwrap().iter().filter(|row| row[field] == value);
        assert_eq!(api.get(&format!("/orders?{query}")).await, json!(rows.collect::<Vec<_>>()), "{query}");
    }
}

#[tokio::test]
async fn rating_is_average_of_reviews() {
    let api = Api::fresh(MarketplaceService::Order);
    let all = api.get("/orders").await;
    let orders = all.as_array().unwrap().iter().filter(|row| row["buyer_id"] == 1);
    let stars: Vec<f64> = orders.filter_map(|row| row["review"]["stars"].as_f64()).collect();
    let rating = api.get("/buyers/1/rating").await;
    assert_eq!(rating["reviews"].as_u64(), Some(stars.len() as u64));
    let average = stars.iter().sum::<f64>() / stars.len() as f64;
    assert!((rating["stars"].as_f64().unwrap() - average).abs() < 0.01);
    assert_eq!(api.get("/buyers/8/rating").await, json!({"buyer_id": 8, "stars": null, "reviews": 0}));
}

#[tokio::test]
async fn roles_of_details_and_bulk_call_agree() {
    let api = Api::fresh(MarketplaceService::Profile);
    let admins = api.ids("/users?role=admin").await;
    for id in 1..=40 {
        let roles = &api.get(&format!("/users/{id}")).await["roles"];
        assert_eq!(*roles == json!(["admin"]), admins.contains(&id), "{id}");
    }
    assert!(api.get("/users?limit=1").await[0].get("roles").is_none());
}
