//! The marketplace with its `orfa.yaml`. The five queries of the original study run as aggregates, as GraphQL
//! over the REST services and as GraphQL stitched from the services' own schemas. Each is compared with the
//! same data joined by hand and its minimal number of calls. Random queries are compared with a single server
//! over the same rows (`marketplace/same.mjs`).

use std::path::Path;

use marketplace::{DatabaseFolder, Marketplace, MarketplaceService};
use serde_json::{Value, json};
use testkit::{GatewayProcess, http, with_timeout};
use tokio::process::Command;

use crate::support::{fetch_metrics, orfa_binary};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/marketplace");

/// The example's gateway and its services.
struct MarketGateway {
    services: Marketplace,
    gateway: GatewayProcess,
}

impl MarketGateway {
    async fn start() -> Self {
        Self::start_with(|config| config).await
    }

    /// Like `open`, with a changed config.
    async fn start_with(change: impl FnOnce(String) -> String) -> Self {
        let services =
            Marketplace::start(DatabaseFolder::fresh().expect("a folder")).await.expect("a marketplace");
        let mut config =
            std::fs::read_to_string(format!("{FOLDER}/orfa.yaml")).expect("the example's config");
        for service in MarketplaceService::ALL {
            config = config.replace(&format!("http://127.0.0.1:{}", service.port()), &services.url(service));
        }
        for file in ["openapi/", "scripts/", "aggregates/", "graphql/", "links.yaml", "stitched.yaml"] {
            config = config.replace(&format!(" {file}"), &format!(" {FOLDER}/{file}"));
        }
        let config = config.replace("127.0.0.1:8080", "127.0.0.1:0")
            + "admin: 127.0.0.1:0\nshed: { automatic: false }\n";
        let gateway = GatewayProcess::start(orfa_binary(), &change(config)).await;
        Self { services, gateway }
    }

    /// Sends a request to an aggregate. Returns the answer and the number of upstream calls.
    async fn request_aggregate(&self, method: &str, path: &str, body: &str) -> (http::TestResponse, u64) {
        self.send(method, &format!("/market{path}"), body).await
    }

    /// Sends one of the five queries to a GraphQL route. Returns its data and the number of upstream calls.
    async fn request_graphql(&self, route: &str, question: &str, variables: &Value) -> (Value, u64) {
        let document = std::fs::read_to_string(format!("{FOLDER}/documents/{question}.graphql"));
        let body = json!({ "query": document.expect("a document"), "variables": variables });
        let (answer, calls) = self.send("POST", route, &body.to_string()).await;
        let mut answer = answer.json();
        assert!(answer.get("errors").is_none(), "{question} on {route}: {answer}");
        (answer["data"].take(), calls)
    }

    async fn send(&self, method: &str, path: &str, body: &str) -> (http::TestResponse, u64) {
        let before = self.upstream_calls().await;
        let json = [("content-type", "application/json"), ("accept", "application/json")];
        let url = format!("{}{path}", self.gateway.url);
        let answer =
            http::request(method, &url, if body.is_empty() { &[] } else { &json }, body.to_owned()).await;
        (answer.expect("an answer"), self.upstream_calls().await - before)
    }

    /// Returns a service's own response.
    async fn get(&self, service: MarketplaceService, path: &str) -> Value {
        let url = format!("{}{path}", self.services.url(service));
        http::request("GET", &url, &[], "").await.expect("an answer").json()
    }

    async fn upstream_calls(&self) -> u64 {
        let metrics = fetch_metrics(&self.gateway).await;
        let counts = metrics.lines().filter(|line| line.starts_with("orfa_upstream_requests_total"));
        counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }
}

/// Adds to each row its related rows as `name`: one of them, or all.
fn join_rows(
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
    let of =
        |row: &Value| list_items(parts).iter().filter(|part| part[theirs] == row[ours]).map(pick).collect();
    let with = |row: &Value| {
        let (mut row, mut found): (Value, Vec<Value>) = (row.clone(), of(row));
        row[name] = if one { found.pop().unwrap_or_default() } else { json!(found) };
        row
    };
    list_items(rows).iter().map(with).collect()
}

fn list_items(list: &Value) -> &[Value] {
    list.as_array().expect("a list")
}

#[tokio::test]
async fn q1_logs_a_user_in_with_one_call() {
    let market = MarketGateway::start().await;
    let email = market.get(MarketplaceService::Profile, "/buyers/9").await["email"].clone();
    let login = json!({ "email": email, "password": "password-9" });
    let (answer, calls) = market.request_aggregate("POST", "/login", &login.to_string()).await;
    assert_eq!((answer.status.as_u16(), calls), (200, 1), "{}", answer.text());
    assert_eq!(answer.json()["message"], "welcome");
}

#[tokio::test]
async fn q2_changes_a_buyer_with_one_call() {
    let market = MarketGateway::start().await;
    let mut buyer = market.get(MarketplaceService::Profile, "/buyers/9").await;
    for field in ["id", "joined"] {
        buyer.as_object_mut().expect("an object").remove(field);
    }
    buyer["city"] = json!("Lyon");
    let (answer, calls) = market.request_aggregate("PUT", "/buyers/9", &buyer.to_string()).await;
    assert_eq!((answer.status.as_u16(), calls), (200, 1), "{}", answer.text());
    let stored = market.get(MarketplaceService::Profile, "/buyers/9").await;
    assert_eq!((answer.json(), &stored["city"]), (stored.clone(), &json!("Lyon")));
}

#[tokio::test]
async fn q3_lists_all_freelancers_with_one_call() {
    let market = MarketGateway::start().await;
    let (answer, calls) = market.request_aggregate("GET", "/freelancers", "").await;
    assert_eq!((answer.json(), calls), (market.get(MarketplaceService::Profile, "/freelancers").await, 1));
}

#[tokio::test]
async fn q4_lists_all_buyers_with_their_postings_in_two_calls() {
    let market = MarketGateway::start().await;
    let (answer, calls) = market.request_aggregate("GET", "/buyers", "").await;
    let buyers = market.get(MarketplaceService::Profile, "/buyers").await;
    let postings = market.get(MarketplaceService::Catalog, "/catalogs").await;
    let expected = join_rows(&buyers, &postings, ("id", "buyer_id"), "catalogs", false, &[]);
    assert_eq!((answer.json(), calls), (expected, 2));
    assert_eq!(answer.json()[7]["catalogs"], json!([]), "buyer 8 has no postings");
}

#[tokio::test]
async fn q5_lists_orders_with_their_postings_and_freelancers_in_three_calls() {
    let market = MarketGateway::start().await;
    let postings = market.get(MarketplaceService::Catalog, "/catalogs").await;
    let people = market.get(MarketplaceService::Profile, "/freelancers").await;
    for limit in [0, 1, 50, 2000] {
        let (answer, calls) = market.request_aggregate("GET", &format!("/orders?limit={limit}"), "").await;
        let orders = market.get(MarketplaceService::Order, &format!("/orders?limit={limit}")).await;
        let fields = ["id", "title", "price"];
        let expected = join_rows(&orders, &postings, ("catalog_id", "id"), "catalog", true, &fields);
        let expected =
            join_rows(&expected, &people, ("freelancer_id", "id"), "freelancer", true, &["id", "name"]);
        assert_eq!(answer.json(), expected, "{limit}");
        assert!(calls <= 3, "{calls} calls for {limit} orders");
    }
}

/// The GraphQL routes: over the REST services, and stitched from the services' own schemas.
const GRAPHQL_ROUTES: [&str; 2] = ["/graphql", "/stitched"];

#[tokio::test]
async fn q1_by_graphql_logs_a_user_in_with_one_call() {
    let market = MarketGateway::start().await;
    let email = market.get(MarketplaceService::Profile, "/buyers/9").await["email"].clone();
    let login = json!({ "email": email, "password": "password-9" });
    let expected = market.request_aggregate("POST", "/login", &login.to_string()).await.0.json();
    for route in GRAPHQL_ROUTES {
        let (data, calls) = market.request_graphql(route, "q1", &login).await;
        assert_eq!((&data["login"], calls), (&expected, 1), "{route}");
    }
}

#[tokio::test]
async fn q2_by_graphql_changes_a_buyer_with_one_call() {
    let market = MarketGateway::start().await;
    for (route, city) in GRAPHQL_ROUTES.into_iter().zip(["Lyon", "Turin"]) {
        let mut buyer = market.get(MarketplaceService::Profile, "/buyers/9").await;
        buyer.as_object_mut().expect("an object").remove("joined");
        buyer["city"] = json!(city);
        let (data, calls) = market.request_graphql(route, "q2", &buyer).await;
        let stored = market.get(MarketplaceService::Profile, "/buyers/9").await;
        assert_eq!((&data["updateBuyer"], &stored["city"], calls), (&stored, &json!(city), 1), "{route}");
    }
}

#[tokio::test]
async fn q3_by_graphql_lists_all_freelancers_with_one_call() {
    let market = MarketGateway::start().await;
    let expected = market.request_aggregate("GET", "/freelancers", "").await.0.json();
    for route in GRAPHQL_ROUTES {
        let (data, calls) = market.request_graphql(route, "q3", &json!({})).await;
        assert_eq!((&data["freelancers"], calls), (&expected, 1), "{route}");
    }
}

#[tokio::test]
async fn q4_by_graphql_lists_all_buyers_with_their_postings_in_two_calls() {
    let market = MarketGateway::start().await;
    let expected = market.request_aggregate("GET", "/buyers", "").await.0.json();
    for route in GRAPHQL_ROUTES {
        let (data, calls) = market.request_graphql(route, "q4", &json!({})).await;
        assert_eq!((&data["buyers"], calls), (&expected, 2), "{route}");
    }
}

#[tokio::test]
async fn q5_by_graphql_lists_orders_with_their_postings_and_freelancers_in_three_calls() {
    let market = MarketGateway::start().await;
    for limit in [1, 50, 2000] {
        let expected = market.request_aggregate("GET", &format!("/orders?limit={limit}"), "").await.0.json();
        for route in GRAPHQL_ROUTES {
            let (data, calls) = market.request_graphql(route, "q5", &json!({ "limit": limit })).await;
            assert_eq!((&data["orders"], calls), (&expected, 3), "{limit} orders on {route}");
        }
    }
    for route in GRAPHQL_ROUTES {
        assert_eq!(
            market.request_graphql(route, "q5", &json!({ "limit": 0 })).await,
            (json!({ "orders": [] }), 1),
            "{route}"
        );
    }
}

/// ORFA_SEED sets another seed, and ORFA_DOCUMENTS another number of documents.
#[tokio::test]
async fn random_queries_match_a_single_server_over_the_same_rows() {
    // Some queries ask for lists of lists; refusals by the cost limit are not tested here.
    let market = MarketGateway::start_with(|config| {
        let config = config.replace("mutations: true }", "mutations: true, limits: { cost: 4000000000 } }");
        assert_eq!(config.matches("cost:").count(), 2, "{config}");
        config
    });
    let market = market.await;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/examples/marketplace/same.mjs");
    let services = MarketplaceService::ALL.map(|service| market.services.url(service));
    let set = |name, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    for route in GRAPHQL_ROUTES {
        let mut node = Command::new("node");
        node.arg(&script).arg(format!("{}{route}", market.gateway.url)).args(&services);
        node.args([set("ORFA_SEED", "8"), set("ORFA_DOCUMENTS", "250")]).kill_on_drop(true);
        let output = with_timeout("Node's end", node.output()).await;
        let ended =
            output.unwrap_or_else(|error| panic!("node is required: {error}; run `scripts/setup test`"));
        let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        assert!(ended.status.success(), "{route}:\n{out}{err}");
    }
}
