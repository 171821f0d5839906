//! The initial rows: their numbers, determinism, and consistency between the services.

use std::collections::BTreeSet;

use marketplace::{DatabaseFolder, MarketplaceService};

use crate::{Api, column};

#[tokio::test]
async fn seeds_315_users_1000_catalogs_and_1509_orders() {
    let profile = Api::fresh(MarketplaceService::Profile);
    assert_eq!(profile.ids("/users").await.len(), 315);
    assert_eq!(profile.ids("/buyers").await.len(), 100);
    assert_eq!(profile.ids("/freelancers").await.len(), 215);
    assert_eq!(Api::fresh(MarketplaceService::Catalog).ids("/catalogs").await.len(), 1000);
    assert_eq!(Api::fresh(MarketplaceService::Order).ids("/orders").await.len(), 1509);
}

#[test]
fn seeds_are_deterministic() {
    for service in MarketplaceService::ALL {
        let files = [(); 2].map(|()| {
            let data = DatabaseFolder::fresh().unwrap();
            drop(marketplace::router(service, &data).unwrap());
            std::fs::read(data.path().join(format!("{}.sqlite", service.name()))).unwrap()
        });
        assert!(files[0] == files[1], "{}", service.name());
    }
}

#[tokio::test]
async fn written_rows_survive_restart() {
    let data = DatabaseFolder::fresh().unwrap();
    let start = || Api(marketplace::router(MarketplaceService::Profile, &data).unwrap());
    start().send("POST", "/users/7/notices", r#"{"text":"kept"}"#).await;
    assert_eq!(start().get("/users/7/notices").await[0]["text"], "kept");
}

#[tokio::test]
async fn orders_refer_to_existing_rows() {
    let catalogs = Api::fresh(MarketplaceService::Catalog).get("/catalogs").await;
    let orders = Api::fresh(MarketplaceService::Order).get("/orders").await;
    let freelancers: BTreeSet<i64> =
        Api::fresh(MarketplaceService::Profile).ids("/freelancers").await.into_iter().collect();
    for order in orders.as_array().unwrap() {
        let place = usize::try_from(order["catalog_id"].as_i64().unwrap() - 1).unwrap();
        assert_eq!(catalogs[place]["buyer_id"], order["buyer_id"]);
        assert!(freelancers.contains(&order["freelancer_id"].as_i64().unwrap()));
        assert!(catalogs[place]["created"].as_str() < order["created"].as_str());
    }
}

#[tokio::test]
async fn buyers_have_zero_one_or_many_postings() {
    let buyers = column(&Api::fresh(MarketplaceService::Catalog).get("/catalogs").await, "buyer_id");
    let count = |buyer| buyers.iter().filter(|other| **other == buyer).count();
    assert_eq!((count(8), count(5)), (0, 1));
    assert!((1..=100).filter(|buyer| ![5, 8].contains(buyer)).all(|buyer| count(buyer) >= 2));
}

#[tokio::test]
async fn one_user_in_ten_is_admin() {
    let admins = Api::fresh(MarketplaceService::Profile).ids("/users?role=admin").await;
    assert!((20..=45).contains(&admins.len()), "{}", admins.len());
    assert!(admins[1] <= 16);
}

#[tokio::test]
async fn rows_have_realistic_sizes() {
    for (service, path, size) in [
        (MarketplaceService::Profile, "/buyers", 200..300),
        (MarketplaceService::Catalog, "/catalogs", 350..500),
        (MarketplaceService::Order, "/orders", 300..400),
    ] {
        let reply = Api::fresh(service).send("GET", path, "").await;
        let average = reply.bytes.len() / reply.json().as_array().unwrap().len();
        assert!(size.contains(&average), "{path}: {average}");
    }
}
