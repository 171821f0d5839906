//! GraphQL behind a gateway: conformance over HTTP, schemas from services, reloads, and the commands.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use testkit::{http, with_timeout};

use super::gateway::{GraphqlGateway, node_command};

const ACCEPT_GRAPHQL: (&str, &str) = ("accept", "application/graphql-response+json");
const ROUTE: &str = "  - { path: /graphql, graphql: { services: [agents, up], mutations: true } }\n";

#[tokio::test]
async fn passes_the_audits_of_graphql_over_http() {
    let gateway = GraphqlGateway::new(ROUTE, &[]).await;
    let mut audit = node_command("audit.mjs");
    let output = audit.arg(gateway.url("/graphql")).output().await.expect("node runs");
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!(report["failed"], json!([]), "{report:#}");
    assert!(report["played"].as_u64() > Some(50), "{report:#}");
}

#[tokio::test]
async fn combines_a_graphql_and_a_rest_service_in_one_schema() {
    let gateway = GraphqlGateway::new(ROUTE, &[]).await;
    let answer =
        gateway.send_query("/graphql", "{ agent(id: 2) { name tags } items(n: 2) { id name } }").await;
    let data = json!({
        "agent": { "name": "Bob", "tags": ["NEW", "OLD"] },
        "items": [{ "id": 0, "name": "item 0" }, { "id": 1, "name": "item 1" }],
    });
    assert_eq!(answer, json!({ "data": data }));
    let variables =
        json!({ "query": "query($id: Int!) { agent(id: $id) { id } }", "variables": { "id": 3 } });
    assert_eq!(
        gateway.post("/graphql", &variables, &[]).await.json()["data"],
        json!({ "agent": { "id": 3 } })
    );
    let broken = gateway.send_query("/graphql", "{ broken agent(id: 1) { id } }").await;
    assert_eq!(broken["data"], json!({ "broken": null, "agent": { "id": 1 } }));
    assert_eq!(broken["errors"][0]["path"], json!(["broken"]), "{broken:#}");
    let line =
        gateway.gateway.wait_for_log(|line| line.contains("\"route\":\"/graphql\"")).await.expect("a line");
    let line: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(line["calls"], json!(2), "{line}");
}

#[tokio::test]
async fn mutations_require_post() {
    let gateway = GraphqlGateway::new(ROUTE, &[]).await;
    let mutation = "mutation { rename(id: 1, name: \"Zoe\") { name } }";
    let answer = gateway.send_query("/graphql", mutation).await;
    assert_eq!(answer, json!({ "data": { "rename": { "name": "Zoe" } } }));
    let query = form_urlencoded::byte_serialize(mutation.as_bytes()).collect::<String>();
    let refused = gateway.get(&format!("/graphql?query={query}"), &[]).await;
    assert_eq!((refused.status.as_u16(), refused.header("allow")), (405, "POST"));
    assert_eq!(refused.json()["code"], "method-not-allowed");
    let query = form_urlencoded::byte_serialize(b"{ agent(id: 1) { name } }").collect::<String>();
    let answer = gateway.get(&format!("/graphql?query={query}"), &[]).await;
    assert_eq!(answer.json(), json!({ "data": { "agent": { "name": "Zoe" } } }));
}

#[tokio::test]
async fn mutations_are_off_by_default() {
    let gateway = GraphqlGateway::new("  - { path: /graphql, graphql: { services: [agents] } }\n", &[]).await;
    let refused = gateway.send_query("/graphql", "mutation { rename(id: 1, name: \"Zoe\") { name } }").await;
    assert_eq!(refused["errors"][0]["extensions"]["code"], "graphql-operation", "{refused}");
    let schema =
        gateway.send_query("/graphql", "{ __schema { mutationType { name } } agent(id: 1) { name } }").await;
    let data = json!({ "__schema": { "mutationType": null }, "agent": { "name": "Ann" } });
    assert_eq!(schema, json!({ "data": data }));
}

#[tokio::test]
async fn refusals_are_problems_or_graphql_errors_and_logged() {
    let gateway = GraphqlGateway::new(ROUTE, &[]).await;
    let url = gateway.url("/graphql");
    let json = ("content-type", "application/json");
    let body = r#"{"query": "{ __typename }"}"#;
    for (method, headers, body, status, code) in [
        ("PUT", vec![json], body, 405, "method-not-allowed"),
        ("POST", vec![], body, 400, "content-type-missing"),
        ("POST", vec![("content-type", "text/plain")], body, 415, "content-type-unknown"),
        ("POST", vec![("content-type", "application/json; charset=utf-16")], body, 415, "charset-unknown"),
        ("POST", vec![json, ("accept", "text/csv")], body, 406, "not-acceptable"),
        ("POST", vec![json, ("origin", "https://evil.example")], body, 403, "origin-forbidden"),
    ] {
        let answer = http::request(method, &url, &headers, body).await.expect("an answer");
        let seen = (answer.status.as_u16(), answer.header("content-type"), answer.json()["code"].clone());
        assert_eq!(seen, (status, "application/problem+json", code.into()), "{method} {headers:?}");
    }
    for (body, status, code) in [
        ("[]", 400, "graphql-batch"),
        ("{", 400, "graphql-json"),
        (r#"{"query": 1}"#, 400, "graphql-parameter"),
        (r#"{"documentId": "none"}"#, 400, "document-unknown"),
    ] {
        let answer = http::request("POST", &url, &[json, ACCEPT_GRAPHQL], body).await.expect("an answer");
        let value = answer.json();
        assert_eq!(
            (answer.status.as_u16(), &value["errors"][0]["extensions"]["code"]),
            (status, &code.into()),
            "{value}"
        );
        assert_eq!(value.get("data"), None, "{body}");
    }
    let line = gateway.gateway.wait_for_log(|line| line.contains("graphql-batch")).await.expect("a line");
    assert!(line.contains(r#""status":400"#), "{line}");
}

#[tokio::test]
async fn persisted_documents_are_known_only_to_their_caller() {
    let gateway = GraphqlGateway::new(ROUTE, &[]).await;
    let text = "{ agent(id: 1) { id } }";
    let by_hash = json!({ "extensions": { "persistedQuery": { "version": 1, "sha256Hash": sha256(text) } } });
    let mut value = by_hash.clone();
    value["query"] = text.into();
    let unknown = gateway.post("/graphql", &by_hash, &[ACCEPT_GRAPHQL]).await;
    assert_eq!(
        (unknown.status.as_u16(), &unknown.json()["errors"][0]["message"]),
        (200, &json!("PersistedQueryNotFound"))
    );
    let data = json!({ "data": { "agent": { "id": 1 } } });
    assert_eq!(gateway.post("/graphql", &value, &[]).await.json(), data);
    assert_eq!(gateway.post("/graphql", &by_hash, &[]).await.json(), data);
    let key = ("x-api-key", "a-long-and-random-key-of-the-shop");
    let other = gateway.post("/graphql", &by_hash, &[key]).await.json();
    assert_eq!(other["errors"][0]["extensions"]["code"], "persisted-not-found", "another caller: {other}");
    value["query"] = "{ agent(id: 2) { id } }".into();
    let other = gateway.post("/graphql", &value, &[]).await;
    assert_eq!(
        (other.status.as_u16(), &other.json()["errors"][0]["extensions"]["code"]),
        (400, &json!("persisted-mismatch"))
    );
}

#[tokio::test]
async fn a_document_list_rejects_other_documents() {
    let route = "  - { path: /graphql, graphql: { services: [agents], documents: { files: './documents/*.graphql', only: true } } }\n";
    let one = "query One($id: Int!) { agent(id: $id) { name } }\n";
    let gateway = GraphqlGateway::new(route, &[("documents/one.graphql", one)]).await;
    let variables = json!({ "id": 2 });
    let data = json!({ "data": { "agent": { "name": "Bob" } } });
    for value in [
        json!({ "documentId": "one", "variables": variables }),
        json!({ "documentId": format!("sha256:{}", sha256(one)), "variables": variables }),
        json!({ "query": one.trim_end(), "variables": variables }),
        json!({ "extensions": { "persistedQuery": { "version": 1, "sha256Hash": sha256(one) } }, "variables": variables }),
    ] {
        assert_eq!(gateway.post("/graphql", &value, &[]).await.json(), data, "{value}");
    }
    let refused = gateway.post("/graphql", &json!({ "query": "{ agent(id: 1) { name } }" }), &[]).await;
    assert_eq!(
        (refused.status.as_u16(), &refused.json()["errors"][0]["extensions"]["code"]),
        (403, &json!("document-not-listed"))
    );
}

#[tokio::test]
async fn introspection_is_limited_to_permitted_callers() {
    let routes = "
  - { path: /graphql, graphql: { services: [agents], introspection: off } }
  - { path: /shop, graphql: { services: [agents], introspection: { callers: [shop] } } }
";
    let gateway = GraphqlGateway::new(routes, &[]).await;
    let key = ("x-api-key", "a-long-and-random-key-of-the-shop");
    let value = json!({ "query": "{ ... on Query { __schema { queryType { name } } } }" });
    for (path, headers, is_told) in
        [("/graphql", vec![key], false), ("/shop", vec![], false), ("/shop", vec![key], true)]
    {
        let answer = gateway.post(path, &value, &headers).await.json();
        let code = &answer["errors"][0]["extensions"]["code"];
        assert_eq!(code == "introspection-off", !is_told, "{path} {answer}");
        assert_eq!(answer["data"]["__schema"]["queryType"]["name"] == "Query", is_told, "{path} {answer}");
    }
    assert_eq!(
        gateway.send_query("/graphql", "{ __typename }").await,
        json!({ "data": { "__typename": "Query" } })
    );
}

#[tokio::test]
async fn an_unreachable_service_delays_only_its_own_route() {
    let routes = "
  - { path: /graphql, graphql: { services: [agents] } }
  - { path: /echo, proxy: up }
";
    let mut gateway = GraphqlGateway::without_agents(routes).await;
    let waiting = gateway.post("/graphql", &json!({ "query": "{ __typename }" }), &[]).await;
    assert_eq!((waiting.status.as_u16(), &waiting.json()["code"]), (503, &json!("graphql-not-ready")));
    assert!(!waiting.header("retry-after").is_empty());
    assert_eq!(gateway.get("/echo", &[]).await.status.as_u16(), 200);
    // The reason names the service only after it was asked once without an answer.
    with_timeout("the reason names the service", async {
        loop {
            let (status, why) = gateway.fetch_readyz().await;
            assert!(status == 503 && why.contains("/graphql"), "{status} {why}");
            if why.contains("agents") {
                break;
            }
        }
    })
    .await;
    gateway.start_agents().await;
    with_timeout("the route is ready", async { while gateway.fetch_readyz().await.0 != 200 {} }).await;
    assert_eq!(
        gateway.send_query("/graphql", "{ agent(id: 1) { name } }").await,
        json!({ "data": { "agent": { "name": "Ann" } } })
    );
    // A reload while the service is down keeps its last schema.
    gateway.stop_agents().await;
    gateway.reload(&routes.replace("/echo", "/json")).await;
    assert_eq!(gateway.get("/json", &[]).await.status.as_u16(), 200);
    assert_eq!(gateway.fetch_readyz().await.0, 200);
}

#[tokio::test]
async fn repetitive_answers_are_deduplicated_on_request() {
    let gateway = GraphqlGateway::new(ROUTE, &[]).await;
    let value = json!({ "query": "{ a: items(n: 50) { id name } b: items(n: 50) { id name } }" });
    let plain = gateway.post("/graphql", &value, &[ACCEPT_GRAPHQL]).await;
    let accept = ("accept", "application/graphql-dedup+json;v=1, application/graphql-response+json;q=0.9");
    let short = gateway.post("/graphql", &value, &[accept]).await;
    assert_eq!(short.header("content-type"), "application/graphql-dedup+json;v=1");
    assert!(short.body.len() * 10 < plain.body.len() * 9, "{} of {}", short.body.len(), plain.body.len());
    let decoded: Value =
        serde_json::from_slice(&dedup::decode(&short.body, 1 << 20).expect("a text")).expect("JSON");
    assert_eq!(decoded, plain.json());
}

#[tokio::test]
async fn mistakes_have_locations_and_stop_a_reload() {
    let route =
        "  - { path: /graphql, graphql: { services: [agents], documents: './documents/*.graphql' } }\n";
    let sdl = "type Query { agent(id: Int!): Agent }\ntype Agent { id: Int! }\n";
    let files = [("documents/one.graphql", "{ agent(id: 1) { id } }\n"), ("agents.graphql", sdl)];
    let gateway = GraphqlGateway::new(route, &files).await;
    let config =
        |routes: &str| gateway.config(routes).replace("graphql: {}", "graphql: { schema: agents.graphql }");
    gateway.write_file("orfa.yaml", &config(route));
    assert!(gateway.run_check().await.0, "{}", gateway.run_check().await.1);
    gateway.write_file("documents/one.graphql", "{\n  agent(id: 1) { nothing }\n}\n");
    let (is_good, told) = gateway.run_check().await;
    assert!(!is_good && told.contains("one.graphql:2:") && told.contains("graphql-document"), "{told}");
    gateway.expect_refused_reload().await;
    let answer = gateway.send_query("/graphql", "{ agent(id: 1) { id } }").await;
    assert_eq!(answer["data"], json!({ "agent": { "id": 1 } }));
    gateway.write_file("documents/one.graphql", "{ agent(id: 2) { id } }\n");
    for (route, told) in [
        ("{ services: [nobody] }", "there is no service `nobody`"),
        ("{ services: [dumb] }", "the service `dumb` has no API description"),
        ("{}", "the schema has no source"),
        ("{ services: [up], supergraph: up.yaml }", "a supergraph beside `services` or `links`"),
        ("{ supergraph: up.yaml }", "is not valid GraphQL"),
        ("{ services: [up], links: none.yaml }", "the links none.yaml can't be read"),
        ("{ services: [up], documents: '[' }", "`[` is not a"),
    ] {
        gateway.write_file("orfa.yaml", &config(&format!("  - {{ path: /graphql, graphql: {route} }}\n")));
        let (is_good, said) = gateway.run_check().await;
        assert!(!is_good && said.contains(told), "{route}: {said}");
    }
}

#[tokio::test]
async fn commands_print_the_schema_and_explain_documents() {
    let gateway = GraphqlGateway::new(ROUTE, &[]).await;
    let (is_good, schema, _) = gateway.run_orfa(&["graphql", "schema"]).await;
    assert!(is_good && schema.contains("type Agent") && schema.contains("A seller."), "{schema}");
    let (is_good, plan, told) =
        gateway.run_orfa(&["graphql", "explain", "{ agent(id: 1) { name } items { id } }"]).await;
    assert!(is_good && plan.contains("agents") && plan.contains("GET"), "{plan}\n{told}");
    let (is_good, _, told) = gateway.run_orfa(&["graphql", "explain", "{ nothing }"]).await;
    assert!(!is_good && told.contains("nothing"), "{told}");
    for (file, begins) in [("plan.svg", "<svg"), ("plan.mmd", "flowchart")] {
        let (is_good, ..) = gateway.run_orfa(&["graphql", "explain", "{ items { id } }", "-o", file]).await;
        assert!(is_good && gateway.read_file(file).starts_with(begins), "{file}");
    }
    let (is_good, _, told) = gateway.run_orfa(&["graphql", "schema", "--route", "/none"]).await;
    assert!(!is_good && told.contains("/graphql"), "{told}");
}

fn sha256(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}
