//! Gateway features on a script route: methods, paths, filters, callers, origins, limits and metrics.

use serde_json::json;
use testkit::http;

use super::ScriptTestGateway;
use crate::support::{admin_url, fetch_metrics, metric_value};

const SHOP: &str = r"service shop {
  res '/things' {
    state things = []
    on GET { respond things }
    on POST { things.push(query.name); respond { 201: { Location: '/things/' + things.length } } }
  }
  res '/seen' on GET { respond { key: query.$headers['x-api-key'] || null, by: query.$headers['x-filter'] || null } }
  res '/up' on GET { res up = 'http://up/echo'; respond up.get() }
  res '/elsewhere' on GET { res far = query.url; respond far.get() }
  res '/moved' on GET { respond { 302: { Location: '/things' } } }
}
";

/// A filter that adds a header to each request.
const FILTER: &str = r#"(module
    (import "env" "proxy_add_header_map_value" (func $add (param i32 i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (data (i32.const 16) "x-filterfirst")
    (func (export "proxy_abi_version_0_2_1"))
    (func (export "malloc") (param i32) (result i32) (i32.const 1024))
    (func (export "proxy_on_context_create") (param i32 i32))
    (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (call $add (i32.const 0) (i32.const 16) (i32.const 8) (i32.const 24) (i32.const 5))))"#;

#[tokio::test]
async fn serves_the_scripts_paths_and_methods_below_its_mount_path() {
    let gateway = ScriptTestGateway::start(SHOP).await;
    assert_eq!(gateway.problem_code("GET", "/nothing").await, (404, "resource-not-found".into()));
    let refused = gateway.request("DELETE", "/things").await;
    assert_eq!((refused.status.as_u16(), refused.header("allow")), (405, "GET, HEAD, POST, OPTIONS"));
    let options = gateway.request("OPTIONS", "/things").await;
    assert_eq!((options.status.as_u16(), options.header("allow")), (204, "GET, HEAD, POST, OPTIONS"));
    let response = gateway.request("POST", "/things?name=a").await;
    assert_eq!((response.status.as_u16(), response.header("location")), (201, "/s/things/1"));
    let moved = gateway.request("GET", "/moved").await;
    assert_eq!((moved.status.as_u16(), moved.header("location")), (302, "/s/things"));
    let head = gateway.request("HEAD", "/things").await;
    assert_eq!((head.status.as_u16(), head.header("content-length"), head.body.len()), (200, "5", 0));
    assert_eq!(gateway.get("/things").await, r#"["a"]"#);
}

#[tokio::test]
async fn the_catalogue_lists_static_resources_and_their_methods() {
    let gateway = ScriptTestGateway::start(SHOP).await;
    let url = &gateway.gateway.url;
    let catalogue = format!("{url}/.well-known/api-catalog");
    let catalogue = http::request("GET", &catalogue, &[], "").await.expect("an answer").json();
    let service = &catalogue["linkset"][0];
    assert_eq!(service["anchor"], format!("{url}/s/"));
    let item = |path: &str, methods: &[&str]| json!({ "href": format!("{url}{path}"), "methods": methods });
    let items = service["item"].as_array().expect("items");
    assert_eq!(items.len(), 5);
    assert!(items.contains(&item("/s/things", &["GET", "HEAD", "POST", "OPTIONS"])), "{items:?}");
    assert!(items.contains(&item("/s/moved", &["GET", "HEAD", "OPTIONS"])), "{items:?}");
}

#[tokio::test]
async fn readyz_waits_until_each_script_is_in_force_and_gives_the_reason() {
    let gateway = ScriptTestGateway::start(&format!("const oops = missing()\n{SHOP}")).await;
    gateway.gateway.wait_for_log(|line| line.contains("can't be activated")).await.expect("a line");
    let admin = admin_url(&gateway.gateway).await;
    let ready = async || {
        let answer = http::request("GET", &format!("{admin}/readyz"), &[], "").await.expect("an answer");
        (answer.status.as_u16(), answer.json())
    };
    let (status, value) = ready().await;
    assert_eq!((status, &value["status"]), (503, &json!("starting")));
    let reason = value["reason"].as_str().expect("a reason");
    assert!(reason.contains("`shop`") && reason.contains("shop.sjs:1:14: ReferenceError"), "{reason}");
    assert_eq!(metric_value(&fetch_metrics(&gateway.gateway).await, "orfa_ready"), 0);
    gateway.gateway.replace_file("shop.sjs", SHOP);
    gateway.wait_for_text("/things", "[]").await;
    assert_eq!(ready().await, (200, json!({ "status": "ready" })));
    gateway.gateway.replace_file("shop.sjs", &format!("const oops = missing()\n{SHOP}"));
    let twice = gateway.gateway.wait_for_log(|line| line.contains("the previous one remains active")).await;
    twice.expect("a line");
    assert_eq!(ready().await.0, 200, "the previous script answers");
}

#[tokio::test]
async fn filters_see_a_request_before_the_script_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("says.wasm");
    std::fs::write(&file, wat::parse_str(FILTER).expect("a module")).expect("written");
    let route =
        format!("  - {{ path: '/s/*', script: shop.sjs, filters: [{{ wasm: '{}' }}] }}\n", file.display());
    let gateway = ScriptTestGateway::start_with_routes(SHOP, &route, "").await;
    assert_eq!(gateway.request("GET", "/seen").await.json(), json!({ "key": null, "by": "first" }));
}

#[tokio::test]
async fn enforces_keys_and_rates_and_hides_keys_from_the_script() {
    let more = "callers: { shop: { key: 'sha256:2d7378043d70770b7914bc2cc4a1b9cd0354356ad77fa9475ccb602366608f5c' } }\n\
                rights: { shop: { routes: ['/s/*'], rate: { requests: 2/h, burst: 2 } } }";
    let served =
        ScriptTestGateway::start_with_routes(SHOP, "  - { path: '/s/*', script: shop.sjs }\n", more).await;
    assert_eq!(served.problem_code("GET", "/seen").await, (401, "credentials-missing".into()));
    let key = [("x-api-key", "a-long-and-random-key-of-the-shop")];
    let seen = served.send("GET", "/seen", &key, "").await;
    assert_eq!((seen.status.as_u16(), seen.text()), (200, r#"{"key":null,"by":null}"#.to_owned()));
    served.send("GET", "/seen", &key, "").await;
    let third = served.send("GET", "/seen", &key, "").await;
    assert_eq!((third.status.as_u16(), &third.json()["code"]), (429, &"rate-requests".into()));
}

#[tokio::test]
async fn preflight_requests_are_answered_without_the_script() {
    let route = "  - { path: '/s/*', script: shop.sjs, cors: { origins: ['https://shop.example.org'] } }\n";
    let gateway = ScriptTestGateway::start_with_routes(SHOP, route, "").await;
    let preflight = [("origin", "https://shop.example.org"), ("access-control-request-method", "DELETE")];
    let answer = gateway.send("OPTIONS", "/things", &preflight, "").await;
    assert_eq!(answer.header("access-control-allow-origin"), "https://shop.example.org");
    assert!(answer.header("access-control-allow-methods").contains("DELETE"), "{:?}", answer.headers);
}

#[tokio::test]
async fn foreign_origins_write_nothing() {
    let gateway = ScriptTestGateway::start(SHOP).await;
    for foreign in [("origin", "http://evil.example"), ("origin", "null"), ("sec-fetch-site", "cross-site")] {
        let refused = gateway.send("POST", "/things?name=evil", &[foreign], "").await;
        assert_eq!((refused.status.as_u16(), &refused.json()["code"]), (403, &"origin-forbidden".into()));
        assert_eq!(gateway.send("GET", "/things", &[foreign], "").await.text(), "[]", "{foreign:?}");
    }
    let own = [("origin", gateway.gateway.url.as_str())];
    assert_eq!(gateway.send("POST", "/things?name=a", &own, "").await.status.as_u16(), 201);
    assert_eq!(gateway.get("/things").await, r#"["a"]"#);
    let route = "  - { path: '/s/*', script: shop.sjs, cors: { origins: ['https://shop.example.org'] } }\n";
    let test_gateway = ScriptTestGateway::start_with_routes(SHOP, route, "").await;
    let shop = [("origin", "https://shop.example.org")];
    assert_eq!(test_gateway.send("POST", "/things?name=a", &shop, "").await.status.as_u16(), 201);
}

#[tokio::test]
async fn rejects_bodies_above_the_scripts_limit() {
    let route = "  - { path: '/s/*', script: { file: shop.sjs, limits: { request_body: 1KiB } } }\n";
    let gateway = ScriptTestGateway::start_with_routes(SHOP, route, "").await;
    let answer = gateway.send("POST", "/things", &[], vec![b'x'; 2048]).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["code"]), (413, &"body-too-large".into()));
}

#[tokio::test]
async fn a_script_reaches_services_by_name_and_other_hosts_only_by_a_pattern() {
    let gateway = ScriptTestGateway::start(SHOP).await;
    assert_eq!(gateway.request("GET", "/up").await.json()["path"], "/echo");
    let other = testkit::misbehaving_upstream::start().await;
    let far =
        format!("/elsewhere?url={}", other.url().replace(':', "%3A").replace('/', "%2F") + "%2Fjson%3Fn%3D1");
    assert_eq!(gateway.problem_code("GET", &far).await, (502, "script-resource".into()));
    assert_eq!(other.hits("/json"), 0);
    let test_gateway =
        ScriptTestGateway::start_with_options(SHOP, &format!("hosts: ['{}']", other.address()), "").await;
    assert_eq!(test_gateway.request("GET", &far).await.json().as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn scripts_are_covered_by_metrics_and_the_access_log() {
    let gateway = ScriptTestGateway::start(SHOP).await;
    gateway.get("/up").await;
    gateway.request("POST", "/things?name=a").await;
    let line = gateway.gateway.wait_for_log(|line| line.contains("/s/up")).await.expect("a line");
    for part in [r#""route":"/s/*""#, r#""calls":1"#, r#""status":200"#] {
        assert!(line.contains(part), "no {part} in {line}");
    }
    let page = fetch_metrics(&gateway.gateway).await;
    assert_eq!(metric_value(&page, "orfa_script_requests_total{route=\"/s/*\"}"), 2);
    assert_eq!(metric_value(&page, "orfa_script_runs_total{service=\"shop\"}"), 2);
    assert_eq!(metric_value(&page, "orfa_script_writers_waiting{service=\"shop\"}"), 0);
    assert!(metric_value(&page, "orfa_script_commits_total{service=\"shop\"}") > 0);
    assert_eq!(metric_value(&page, "orfa_script_ready{service=\"shop\"}"), 1);
    assert_eq!(metric_value(&page, "orfa_script_worker_restarts_total{service=\"shop\"}"), 0);
    assert!(metric_value(&page, "orfa_script_workers{service=\"shop\"}") > 0);
}

#[tokio::test]
async fn two_routes_serve_two_services_of_one_file() {
    let script =
        "service a { res '/x' on GET { respond 'a' } }\nservice b { res '/x' on GET { respond 'b' } }\n";
    let routes = "  - { path: '/a/*', script: { file: shop.sjs, service: a } }\n  \
                  - { path: '/b/*', script: { file: shop.sjs, service: b } }\n";
    let served = ScriptTestGateway::start_with_routes(script, routes, "").await;
    for name in ["a", "b"] {
        let url = format!("{}/{name}/x", served.gateway.url);
        assert_eq!(http::request("GET", &url, &[], "").await.expect("an answer").text(), name);
    }
}

#[tokio::test]
async fn answers_derived_from_state_or_service_responses_are_private() {
    let shop = r"service shop {
      res '/things' {
        state things = []
        on GET { respond things }
        on POST { things.push(1); respond things }
      }
      res '/up' on GET {
        res up = 'http://up/echo'
        respond up.get()
      }
      res '/inner' on GET {
        res up = '/up'
        let said = up.get()
        respond { path: said.path, twice: said.path + said.path }
      }
    }";
    let served = ScriptTestGateway::start(shop).await;
    for path in ["/things", "/up", "/inner"] {
        let answer = served.request("GET", path).await;
        assert_eq!((answer.status.as_u16(), answer.header("cache-control")), (200, "private"), "{path}");
    }
    assert_eq!(served.request("POST", "/things").await.header("cache-control"), "");
}
