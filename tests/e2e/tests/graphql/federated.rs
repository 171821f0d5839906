//! Real subgraphs of Apollo Federation behind a gateway: with a supergraph that was composed elsewhere, and
//! with one composed by the gateway from the subgraphs' SDL.

use std::process::Stdio;

use serde_json::{Value, json};
use testkit::{GatewayProcess, http, with_timeout};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::gateway::node_command;
use crate::support::{admin_url, orfa_binary};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/graphql");
const SUPERGRAPH: &str = include_str!("supergraph.graphql");

/// Starts a subgraph and returns its port.
async fn start_subgraph(name: &str) -> (Child, u16) {
    let mut child = node_command("subgraphs.mjs");
    let child = child.arg(format!("{FOLDER}/{name}.graphql")).stdout(Stdio::piped());
    let mut child = child.spawn().expect("node runs");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let line = with_timeout("the subgraph's port", lines.next_line()).await.expect("a line").expect("a port");
    (child, line.parse().expect("a number"))
}

struct FederatedGateway {
    gateway: GatewayProcess,
    _subgraphs: [Child; 2],
}

impl FederatedGateway {
    async fn new() -> Self {
        let (products, reviews) = tokio::join!(start_subgraph("products"), start_subgraph("reviews"));
        let service = |name: &str, port: u16| {
            format!("  {name}: {{ url: 'http://127.0.0.1:{port}', graphql: {{ federated: true }} }}\n")
        };
        let services = service("products", products.1) + &service("reviews", reviews.1);
        let config = format!(
            "
listen: 127.0.0.1:0
shed: {{ automatic: false }}
admin: 127.0.0.1:0
services:
{services}routes:
  - {{ path: /ready, graphql: {{ supergraph: supergraph.graphql, mutations: true }} }}
  - {{ path: /composed, graphql: {{ services: [products, reviews], mutations: true }} }}
"
        );
        let gateway =
            GatewayProcess::start_with(orfa_binary(), &config, &[("supergraph.graphql", SUPERGRAPH)]).await;
        let url = format!("{}/readyz", admin_url(&gateway).await);
        with_timeout("the subgraphs' schemas", async {
            while http::request("GET", &url, &[], "").await.expect("an answer").status != 200 {}
        })
        .await;
        Self { gateway, _subgraphs: [products.0, reviews.0] }
    }

    async fn send_query(&self, path: &str, query: &str) -> Value {
        let headers = [("content-type", "application/json")];
        let body = json!({ "query": query }).to_string();
        let url = format!("{}{path}", self.gateway.url);
        http::request("POST", &url, &headers, body).await.expect("an answer").json()
    }
}

#[tokio::test]
async fn answers_over_precomposed_and_composed_supergraphs() {
    let gateway = FederatedGateway::new().await;
    for path in ["/ready", "/composed"] {
        let query = r#"{ products { name shipping reviews { body product { name price } } } product(upc: "3") { name }
          latest { product { shipping } } }"#;
        let review = |body: &str, name: &str, price: u32| json!({ "body": body, "product": { "name": name, "price": price } });
        let products = json!([
            { "name": "table", "shipping": 60, "reviews": [review("wide", "table", 899)] },
            { "name": "chair", "shipping": 10, "reviews": [review("sturdy", "chair", 54)] },
        ]);
        let data =
            json!({ "products": products, "product": null, "latest": { "product": { "shipping": 60 } } });
        assert_eq!(gateway.send_query(path, query).await, json!({ "data": data }), "{path}");
    }
    for (path, body, price) in [("/ready", "dear", 900), ("/composed", "cheap", 899)] {
        let mutation = format!(
            r#"mutation {{ price(upc: "1", price: {price}) {{ price shipping }} review(upc: "2", body: "{body}") {{ body product {{ name }} }} }}"#
        );
        let data = json!({
            "price": { "price": price, "shipping": 60 }, "review": { "body": body, "product": { "name": "chair" } },
        });
        assert_eq!(gateway.send_query(path, &mutation).await, json!({ "data": data }), "{path}");
    }
    let latest = gateway.send_query("/ready", "{ latest { body } }").await;
    assert_eq!(latest, json!({ "data": { "latest": { "body": "cheap" } } }));
}

#[tokio::test]
async fn invalid_supergraphs_are_refused_with_their_line() {
    let gateway = FederatedGateway::new().await;
    for (was, is, code) in [
        ("requires: \"weight\"", "requires: \"nothing\"", "REQUIRES_INVALID_FIELDS"),
        ("key: \"upc\"", "key: \"upc {\"", "KEY_INVALID_FIELDS"),
        ("@join__type(graph: PRODUCTS", "@join__type(graph: NOBODY", "INVALID_GRAPHQL"),
    ] {
        let line = SUPERGRAPH.lines().position(|line| line.contains(was)).expect("a line") + 1;
        gateway.gateway.replace_file("supergraph.graphql", &SUPERGRAPH.replacen(was, is, 1));
        let ran = Command::new(orfa_binary()).arg("check").current_dir(gateway.gateway.directory()).output();
        let ran = ran.await.expect("orfa runs");
        let told = String::from_utf8_lossy(&ran.stderr);
        let place = format!("supergraph.graphql:{line}:");
        assert!(!ran.status.success() && told.contains(&place) && told.contains(code), "{told}");
    }
}
