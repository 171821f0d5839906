//! Aggregates behind a gateway: requests, checks, explanations and reloads.

use serde_json::{Value, json};
use testkit::http::{self, TestResponse};
use testkit::misbehaving_upstream::{self, MisbehavingUpstream};
use testkit::{GatewayProcess, with_timeout};
use tokio::process::Command;

use crate::support::orfa_binary;

/// A list of items, each with the result of another call.
const ITEMS: &str = "\
summary: Items and their echoes
input: { n: { type: integer, default: 2, maximum: 5 } }
parts:
  items: { get: 'up/json?n={n}' }
  echo: { get: 'up/echo?id={each.id}', each: items, fields: [path] }
response: items
";
/// A single item by its id, with parts that may fail.
const SINGLE_ITEM: &str = "\
input: { id: { type: integer } }
parts:
  item: { get: 'up/json?n={id}' }
  rating: { get: 'dead/rating', optional: true }
  status: { get: 'up/status/404', default: { stars: 0 } }
";

struct AggregateGateway {
    gateway: GatewayProcess,
    _upstream: MisbehavingUpstream,
}

fn config(service: &str) -> String {
    format!(
        "
listen: 127.0.0.1:0
drain: {{ delay: 0s }}
shed: {{ automatic: false }}
services: {{ up: {{ url: '{service}' }}, dead: {{ url: 'http://127.0.0.1:1' }} }}
callers: {{ shop: {{ key: 'sha256:2d7378043d70770b7914bc2cc4a1b9cd0354356ad77fa9475ccb602366608f5c' }} }}
rights: {{ anonymous: {{ routes: [/items, '/items/{{id}}'] }}, others: {{}} }}
routes:
  - {{ path: /items, aggregate: items.yaml }}
  - {{ path: '/items/{{id}}', aggregate: {{ file: one.yaml, limits: {{ calls: 10 }} }} }}
  - {{ path: /hidden, aggregate: items.yaml }}
"
    )
}

impl AggregateGateway {
    async fn new() -> Self {
        let upstream = misbehaving_upstream::start().await;
        let files = [("items.yaml", ITEMS), ("one.yaml", SINGLE_ITEM)];
        let gateway = GatewayProcess::start_with(orfa_binary(), &config(&upstream.url()), &files).await;
        Self { gateway, _upstream: upstream }
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> TestResponse {
        http::request("GET", &format!("{}{path}", self.gateway.url), headers, "").await.expect("an answer")
    }
}

fn expected_item(id: u64) -> Value {
    json!({ "id": id, "name": format!("item {id}"), "echo": { "path": format!("/echo?id={id}") } })
}

#[tokio::test]
async fn combines_several_calls_in_one_answer() {
    let served = AggregateGateway::new().await;
    let answer = served.get("/items", &[]).await;
    assert_eq!((answer.status.as_u16(), answer.json()), (200, json!([expected_item(0), expected_item(1)])));
    assert_eq!(answer.header("content-type"), "application/json");
    let line = served.gateway.wait_for_log(|line| line.contains("/items")).await.expect("a line");
    let line: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!((&line["route"], &line["calls"]), (&json!("/items"), &json!(3)), "{line}");
    let refused = served.get("/items?n=6", &[]).await;
    assert_eq!((refused.status.as_u16(), refused.header("content-type")), (400, "application/problem+json"));
    let nowhere = served.get("/items/1/2", &[]).await;
    assert_eq!(nowhere.status.as_u16(), 404);
}

#[tokio::test]
async fn takes_inputs_from_the_path_and_reports_failed_parts() {
    let served = AggregateGateway::new().await;
    let answer = served.get("/items/1", &[]).await;
    let body = answer.json();
    assert_eq!(body["item"], json!([{ "id": 0, "name": "item 0" }]), "{body}");
    assert_eq!((&body["rating"], &body["status"]), (&Value::Null, &json!({ "stars": 0 })));
    assert_eq!(body["errors"].as_array().map(Vec::len), Some(2), "{body}");
    assert!(answer.header("orfa-parts").contains("rating"), "{}", answer.header("orfa-parts"));
    assert_eq!(served.get("/items/x", &[]).await.status.as_u16(), 400);
}

#[tokio::test]
async fn composed_answers_are_deduplicated_and_compressed() {
    let upstream = misbehaving_upstream::start().await;
    let many = "parts: { one: { get: 'up/json?n=100' }, other: { get: 'up/json?n=100' } }\n";
    let config = config(&upstream.url());
    let files = [("items.yaml", many), ("one.yaml", SINGLE_ITEM)];
    let gateway = GatewayProcess::start_with(orfa_binary(), &config, &files).await;
    let url = format!("{}/items", gateway.url);
    let get =
        async |headers: &[(&str, &str)]| http::request("GET", &url, headers, "").await.expect("an answer");
    let plain = get(&[]).await;
    assert_eq!(plain.header("vary"), "accept");
    let short = get(&[("accept", "application/vnd.orfa.dedup+json")]).await;
    assert_eq!(short.header("content-type"), "application/vnd.orfa.dedup+json");
    assert!(short.body.len() * 10 < plain.body.len() * 9, "{} of {}", short.body.len(), plain.body.len());
    assert_eq!(dedup::decode(&short.body, 1 << 20).expect("a text"), plain.body);
    let shorter = get(&[("accept", "application/vnd.orfa.dedup+json"), ("accept-encoding", "zstd")]).await;
    assert_eq!(shorter.header("content-encoding"), "zstd");
    assert!(shorter.body.len() * 2 < short.body.len());
}

#[tokio::test]
async fn foreign_origins_cause_no_calls() {
    let served = AggregateGateway::new().await;
    let refused = served.get("/items", &[("origin", "https://evil.example"), ("cookie", "a=b")]).await;
    assert_eq!((refused.status.as_u16(), &refused.json()["code"]), (403, &json!("origin-forbidden")));
}

#[tokio::test]
async fn describes_aggregates_to_permitted_callers() {
    let gateway = AggregateGateway::new().await;
    let catalogue = gateway.get("/.well-known/api-catalog", &[]).await.json();
    let link = &catalogue["linkset"][0]["service-desc"][0]["href"];
    assert_eq!(link, &json!(format!("{}/openapi.json", gateway.gateway.url)));
    let document = gateway.get("/openapi.json", &[]).await;
    assert_eq!(document.header("content-type"), "application/json");
    let document = document.json();
    assert_eq!(document["openapi"], "3.1.0");
    let paths: Vec<&String> = document["paths"].as_object().expect("paths").keys().collect();
    assert_eq!(paths, ["/items", "/items/{id}"]);
    let operation = &document["paths"]["/items"]["get"];
    assert_eq!(operation["summary"], "Items and their echoes");
    assert_eq!(operation["parameters"][0]["name"], "n");
    assert_eq!(document["paths"]["/items/{id}"]["get"]["parameters"][0]["in"], "path");
    let key = [("x-api-key", "a-long-and-random-key-of-the-shop")];
    let all = gateway.get("/openapi.json", &key).await.json();
    assert!(all["paths"]["/hidden"].is_object(), "{all}");
}

#[tokio::test]
async fn reloads_a_changed_declaration_and_rejects_an_invalid_one() {
    let gateway = AggregateGateway::new().await;
    gateway
        .gateway
        .replace_file("items.yaml", &ITEMS.replace("get: 'up/json?n={n}'", "get: 'up/json?n={m}'"));
    let line = gateway.gateway.wait_for_log(|line| line.contains("items.yaml:4:")).await.expect("a line");
    assert!(line.contains("{m}") || line.contains("`m`"), "{line}");
    gateway.gateway.wait_for_log(|line| line.contains("stays active")).await.expect("a line");
    assert_eq!(gateway.get("/items?n=1", &[]).await.json(), json!([expected_item(0)]));
    gateway.gateway.replace_file("items.yaml", &ITEMS.replace("fields: [path]", "fields: [method]"));
    let changed = async {
        while gateway.get("/items?n=1", &[]).await.json()[0]["echo"] != json!({ "method": "GET" }) {}
    };
    with_timeout("the changed declaration", changed).await;
}

async fn run_orfa(folder: &std::path::Path, arguments: &[&str]) -> (i32, String) {
    let ran =
        Command::new(orfa_binary()).args(arguments).current_dir(folder).output().await.expect("orfa runs");
    let told = [ran.stdout, ran.stderr].concat();
    (ran.status.code().unwrap_or_default(), String::from_utf8(told).expect("text"))
}

fn config_folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("orfa.yaml"), config("http://127.0.0.1:1")).expect("written");
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).expect("written");
    }
    folder
}

#[tokio::test]
async fn check_reports_every_mistake_of_a_declaration_with_its_location() {
    let bad = "\
input: { n: { type: integr } }
parts:
  items: { get: 'up/json', fields: 7, optoinal: true }
";
    let folder = config_folder(&[("items.yaml", bad), ("one.yaml", SINGLE_ITEM)]);
    let (code, told) = run_orfa(folder.path(), &["check"]).await;
    assert_eq!(code, 64, "{told}");
    for place in
        ["items.yaml:1:21: input.n.type", "items.yaml:3:36: parts.items.fields", "did you mean `optional`?"]
    {
        assert_eq!(told.matches(place).count(), 1, "{place} in\n{told}");
    }

    let circle = "\
parts:
  a: { get: 'up/json?n={$.b}' }
  b: { get: 'nowhere/json?n={$.a}' }
";
    std::fs::write(folder.path().join("items.yaml"), circle).expect("written");
    let (code, told) = run_orfa(folder.path(), &["check"]).await;
    assert_eq!(code, 64, "{told}");
    assert!(told.contains("items.yaml:3:") && told.contains("nowhere"), "{told}");
    std::fs::write(folder.path().join("items.yaml"), ITEMS).expect("written");
    assert_eq!(run_orfa(folder.path(), &["check"]).await, (0, "ok: 2 services, 3 routes\n".to_owned()));
    std::fs::remove_file(folder.path().join("one.yaml")).expect("removed");
    let (code, told) = run_orfa(folder.path(), &["check"]).await;
    assert!(code == 64 && told.contains("orfa.yaml:10:") && told.contains("can't be read"), "{told}");
}

/// A declaration with many mistakes, and the report of all of them.
const MISTAKES: &str = include_str!("aggregate/mistakes.yaml");
const MISTAKES_REPORT: &str = include_str!("aggregate/mistakes.txt");

#[tokio::test]
async fn reports_all_mistakes_of_a_declaration_in_order() {
    let folder = config_folder(&[("items.yaml", MISTAKES), ("one.yaml", SINGLE_ITEM)]);
    let (code, told) = run_orfa(folder.path(), &["check"]).await;
    assert_eq!((code, &*told), (64, MISTAKES_REPORT), "\n{told}");
}

#[tokio::test]
async fn explain_shows_calls_without_making_them() {
    let draft = ("draft.yaml", "parts: { all: { get: 'up/json?n=3' } }\n");
    let folder = config_folder(&[("items.yaml", ITEMS), ("one.yaml", SINGLE_ITEM), draft]);
    let (code, by_route) = run_orfa(folder.path(), &["aggregate", "explain", "/items"]).await;
    assert_eq!(code, 0, "{by_route}");
    for words in
        ["GET, HEAD /items", "items", "up/json?n={n}", "a call for each of items", "into items as `echo`"]
    {
        assert!(by_route.contains(words), "no {words} in\n{by_route}");
    }
    assert_eq!(run_orfa(folder.path(), &["aggregate", "explain", "items.yaml"]).await.1, by_route);
    let (_, of_draft) = run_orfa(folder.path(), &["aggregate", "explain", "draft.yaml"]).await;
    assert!(of_draft.contains("/draft") && of_draft.contains("one call"), "{of_draft}");
    for (file, words) in [("calls.svg", "<svg"), ("calls.mmd", "flowchart")] {
        let (code, told) = run_orfa(folder.path(), &["aggregate", "explain", "/items", "-o", file]).await;
        assert!(code == 0 && told.starts_with(file), "{told}");
        let drawn = std::fs::read_to_string(folder.path().join(file)).expect("a picture");
        assert!(drawn.contains(words) && drawn.contains("up/echo?id={each.id}"), "{drawn}");
    }
    let (code, told) = run_orfa(folder.path(), &["aggregate", "explain", "/nowhere"]).await;
    assert!(code == 64 && told.contains("no-such-aggregate"), "{told}");
}

#[tokio::test]
async fn old_keys_of_a_declaration_work_and_warn_once() {
    let new = "\
input: { ids: { type: array, items: integer, enum: [1, 2], max_length: 2 } }
parts: { items: { get: 'up/json?n={ids}' } }
response: items
";
    let old = "\
input: { ids: { type: list, of: integer, values: [1, 2], longest: 2 } }
parts: { items: { get: 'up/json?n={ids}' } }
answer: items
";
    // Two routes have this declaration.
    let folder = config_folder(&[("items.yaml", new), ("one.yaml", SINGLE_ITEM)]);
    let (_, known) = run_orfa(folder.path(), &["aggregate", "explain", "/items"]).await;
    std::fs::write(folder.path().join("items.yaml"), old).expect("written");
    std::fs::write(folder.path().join("draft.yaml"), old).expect("written");
    let (code, explained) = run_orfa(folder.path(), &["aggregate", "explain", "/items"]).await;
    assert!(code == 0 && explained.starts_with(&known), "{explained}");
    let (code, checked) = run_orfa(folder.path(), &["check"]).await;
    assert!(code == 0 && checked.starts_with("ok: 2 services, 3 routes\n"), "{checked}");
    let (code, of_draft) = run_orfa(folder.path(), &["aggregate", "explain", "draft.yaml"]).await;
    assert!(code == 0 && of_draft.contains("draft.yaml:1:29: input.ids.of: "), "{of_draft}");
    for told in [explained, checked] {
        for place in [
            "items.yaml:1:23: input.ids.type: ",
            "items.yaml:1:29: input.ids.of: ",
            "items.yaml:1:42: input.ids.values: ",
            "items.yaml:1:58: input.ids.longest: ",
            "items.yaml:3:1: answer: ",
        ] {
            assert_eq!(told.matches(place).count(), 1, "{place} in\n{told}");
        }
    }
}
