//! The marketplace's aggregates as its `orfa.yaml` has them: the five queries of the study that it comes from, each beside
//! the same put together by hand, and as few calls as that needs.

use marketplace::{Data, Marketplace, Service};
use serde_json::{Value, json};
use testkit::{Gateway, http};

use crate::support::metrics;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/marketplace");

/// The gateway of the example, before services of its own.
struct Market {
    services: Marketplace,
    gateway: Gateway,
}

impl Market {
    async fn open() -> Self {
        let services = Marketplace::start(Data::fresh().expect("a folder")).await.expect("a marketplace");
        let mut config =
            std::fs::read_to_string(format!("{FOLDER}/orfa.yaml")).expect("the example's config");
        for service in Service::ALL {
            config = config.replace(&format!("http://127.0.0.1:{}", service.port()), &services.url(service));
        }
        for folder in ["openapi", "scripts", "aggregates"] {
            config = config.replace(&format!(" {folder}/"), &format!(" {FOLDER}/{folder}/"));
        }
        let config = config.replace("127.0.0.1:8080", "127.0.0.1:0") + "admin: 127.0.0.1:0\n";
        let gateway = Gateway::start(crate::orfa(), &config).await;
        Self { services, gateway }
    }

    /// What an aggregate answers, and how many calls it made for that.
    async fn ask(&self, method: &str, path: &str, body: &str) -> (http::Response, u64) {
        let before = self.calls().await;
        let json = [("content-type", "application/json")];
        let url = format!("{}/market{path}", self.gateway.url);
        let answer =
            http::request(method, &url, if body.is_empty() { &[] } else { &json }, body.to_owned()).await;
        (answer.expect("an answer"), self.calls().await - before)
    }

    /// What a service itself answers.
    async fn get(&self, service: Service, path: &str) -> Value {
        let url = format!("{}{path}", self.services.url(service));
        http::request("GET", &url, &[], "").await.expect("an answer").json()
    }

    async fn calls(&self) -> u64 {
        let metrics = metrics(&self.gateway).await;
        let counts = metrics.lines().filter(|line| line.starts_with("orfa_upstream_requests_total"));
        counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }
}

/// Rows with those that belong to them; `one` of them, or all.
fn joined(
    rows: &Value,
    parts: &Value,
    (ours, theirs): (&str, &str),
    name: &str,
    one: bool,
    fields: &[&str],
) -> Value {
    let pick = |part: &Value| match fields {
        [] => part.clone(),
        fields => fields.iter().map(|field| ((*field).to_owned(), part[*field].clone())).collect(),
    };
    let of = |row: &Value| items(parts).iter().filter(|part| part[theirs] == row[ours]).map(pick).collect();
    let with = |row: &Value| {
        let (mut row, mut found): (Value, Vec<Value>) = (row.clone(), of(row));
        row[name] = if one { found.pop().unwrap_or_default() } else { json!(found) };
        row
    };
    items(rows).iter().map(with).collect()
}

fn items(list: &Value) -> &[Value] {
    list.as_array().expect("a list")
}

#[tokio::test]
async fn q1_logs_a_user_in_by_one_call_and_says_what_the_service_says() {
    let market = Market::open().await;
    let email = market.get(Service::Profile, "/buyers/9").await["email"].clone();
    let login = json!({ "email": email, "password": "password-9" });
    let (answer, calls) = market.ask("POST", "/login", &login.to_string()).await;
    assert_eq!((answer.status.as_u16(), calls), (200, 1), "{}", answer.text());
    assert_eq!(answer.json()["message"], "welcome");
}

#[tokio::test]
async fn q2_changes_a_buyer_by_one_call() {
    let market = Market::open().await;
    let mut buyer = market.get(Service::Profile, "/buyers/9").await;
    for field in ["id", "joined"] {
        buyer.as_object_mut().expect("an object").remove(field);
    }
    buyer["city"] = json!("Lyon");
    let (answer, calls) = market.ask("PUT", "/buyers/9", &buyer.to_string()).await;
    assert_eq!((answer.status.as_u16(), calls), (200, 1), "{}", answer.text());
    let stored = market.get(Service::Profile, "/buyers/9").await;
    assert_eq!((answer.json(), &stored["city"]), (stored.clone(), &json!("Lyon")));
}

#[tokio::test]
async fn q3_lists_all_freelancers_by_one_call() {
    let market = Market::open().await;
    let (answer, calls) = market.ask("GET", "/freelancers", "").await;
    assert_eq!((answer.json(), calls), (market.get(Service::Profile, "/freelancers").await, 1));
}

#[tokio::test]
async fn q4_lists_all_buyers_with_their_postings_by_two_calls() {
    let market = Market::open().await;
    let (answer, calls) = market.ask("GET", "/buyers", "").await;
    let buyers = market.get(Service::Profile, "/buyers").await;
    let postings = market.get(Service::Catalog, "/catalogs").await;
    let expected = joined(&buyers, &postings, ("id", "buyer_id"), "catalogs", false, &[]);
    assert_eq!((answer.json(), calls), (expected, 2));
    assert_eq!(answer.json()[7]["catalogs"], json!([]), "buyer 8 has no postings");
}

#[tokio::test]
async fn q5_lists_orders_with_their_postings_and_freelancers_by_three_calls() {
    let market = Market::open().await;
    let postings = market.get(Service::Catalog, "/catalogs").await;
    let people = market.get(Service::Profile, "/freelancers").await;
    for limit in [0, 1, 50, 2000] {
        let (answer, calls) = market.ask("GET", &format!("/orders?limit={limit}"), "").await;
        let orders = market.get(Service::Order, &format!("/orders?limit={limit}")).await;
        let fields = ["id", "title", "price"];
        let expected = joined(&orders, &postings, ("catalog_id", "id"), "catalog", true, &fields);
        let expected =
            joined(&expected, &people, ("freelancer_id", "id"), "freelancer", true, &["id", "name"]);
        assert_eq!(answer.json(), expected, "{limit}");
        assert!(calls <= 3, "{calls} calls for {limit} orders");
    }
}
