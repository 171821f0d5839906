//! Tests of a route in front of a service that holds its responses back until a test releases them.

use std::collections::BTreeMap;
use std::sync::mpsc::{Sender, channel};

use futures_util::FutureExt;
use handler::{HandlerRequest, HandlerResult};
use http::Request;
use http::header::{ACCEPT, CONTENT_TYPE};
use http_body_util::BodyExt;
use offload::{JobRequest, OffloadConfig};

use services::headers::ConnectionDetails;
use services::{CallRights, CallerId, RequestCall};

use super::*;
use crate::RemoteService;
use crate::fetch::shop_fixture::ShopFixture;
use crate::plan::QueryPlan;

mod caching;

const ITEM_RESPONSE: &str = r#"{"data":{"item":{"name":"one"}}}"#;

const SDL: &str = "type Query { item: Item } type Mutation { change: Item } type Item { name: String }";

/// Creates a route for the service `shop`.
fn new_route(fixture: &ShopFixture, config: &str) -> GraphqlRoute {
    route_with_schema(fixture, config, SDL, &new_pool())
}

/// Creates a pool in which each payer may use one second of CPU time in ten.
fn new_pool() -> OffloadPool {
    let config = OffloadConfig { quota: Duration::from_secs(1), ..OffloadConfig::default() };
    OffloadPool::start(config).expect("a thread")
}

/// Creates a route for the service `shop` with this schema.
fn route_with_schema(fixture: &ShopFixture, config: &str, sdl: &str, offload: &OffloadPool) -> GraphqlRoute {
    let config: GraphqlConfig = serde_json::from_str(config).expect("a route's config");
    let service =
        RemoteService { config: serde_json::from_str("{}").expect("a config"), schema: Some(sdl.into()) };
    let context = GraphqlRouteContext {
        services: &fixture.services,
        documents: &BTreeMap::new(),
        remotes: &BTreeMap::from([("shop".to_owned(), service)]),
        links: None,
        supergraph: None,
        document_files: Vec::new(),
        schemas: &Arc::default(),
        offload,
    };
    GraphqlRoute::new(&config, context).unwrap_or_else(|diagnostics| panic!("{diagnostics:?}"))
}

/// Returns the text of a response, and the number of calls made for it.
async fn query_route(route: &GraphqlRoute, query: &str) -> (String, usize) {
    post_route(route, &serde_json::json!({ "query": query })).await
}

/// Like [`query_route`], for a complete body.
async fn post_route(route: &GraphqlRoute, body: &serde_json::Value) -> (String, usize) {
    post_route_as(route, body, RequestCall::unlimited()).await
}

/// Like [`post_route`], for a caller.
async fn post_route_as(route: &GraphqlRoute, body: &serde_json::Value, call: RequestCall) -> (String, usize) {
    let body = body.to_string();
    let request =
        Request::post("/").header(CONTENT_TYPE, "application/json").header(ACCEPT, "application/json");
    let body = services::body::full(body);
    let answer =
        route.handle(HandlerRequest::new(request.body(body).expect("a request"), call.clone())).await;
    let answer = answer.unwrap_or_else(|_| panic!("no answer"));
    let calls = call.budget.take_report().map_or(0, |report| report.call_records.len());
    let text = answer.response.into_body().collect().await.unwrap_or_else(|_| panic!("no body")).to_bytes();
    (String::from_utf8_lossy(&text).into_owned(), calls)
}

/// Polls a request until the service has received another call.
async fn poll_until_called(fixture: &ShopFixture, request: &mut (impl Future + Unpin)) {
    let before = fixture.request_lines().len();
    while fixture.request_lines().len() == before {
        assert!((&mut *request).now_or_never().is_none());
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn coalesces_equal_concurrent_queries() {
    let fixture = ShopFixture::new(&[("POST /graphql", 200, ITEM_RESPONSE)]).await;
    let route = new_route(&fixture, r#"{"services":["shop"],"coalesce":{"operations":true}}"#);
    fixture.responses.gate.forget_permits(usize::MAX);
    let mut first = query_route(&route, "{ item { name } }").boxed();
    poll_until_called(&fixture, &mut first).await;
    let mut second = query_route(&route, "{ item { name } }").boxed();
    assert!((&mut second).now_or_never().is_none());
    let mut other = query_route(&route, "{ it: item { name } }").boxed();
    assert!((&mut other).now_or_never().is_none());
    fixture.responses.gate.add_permits(2);
    let ((first, made), (second, shared), (_, others)) = tokio::join!(first, second, other);
    assert_eq!((first.as_str(), second.as_str()), (ITEM_RESPONSE, ITEM_RESPONSE));
    assert_eq!((made, shared, others), (1, 0, 1), "the number of `calls` in the access log");
    assert_eq!(fixture.request_lines().len(), 2);
}

#[tokio::test]
async fn coalesced_queries_have_separate_deadlines() {
    let fixture = ShopFixture::new(&[("POST /graphql", 200, ITEM_RESPONSE)]).await;
    let route = new_route(&fixture, r#"{"services":["shop"],"coalesce":{"operations":true}}"#);
    let ready = route.0.ready_schema.load_full().expect("a schema");
    ready.planner.plan("{ item { name } }", None).expect("a plan");
    fixture.responses.gate.forget_permits(usize::MAX);
    let query = serde_json::json!({ "query": "{ item { name } }" });
    let over = Arc::new(RequestBudget::new(Duration::ZERO, 10, 1 << 20, 10));
    let mut late =
        post_route_as(&route, &query, RequestCall { budget: over, ..RequestCall::unlimited() }).boxed();
    let mut other = query_route(&route, "{ item { name } }").boxed();
    let early = (&mut late).now_or_never();
    assert!((&mut other).now_or_never().is_none());
    let (text, _) = match early {
        Some(early) => early,
        None => testkit::with_timeout("a response at the deadline", late).await,
    };
    assert!(text.contains("limit-deadline"), "{text}");
    fixture.responses.gate.add_permits(2);
    assert_eq!(other.await.0, ITEM_RESPONSE);
}

/// Returns the context of a request whose client has used up its quota for responses.
fn call_without_quota(pool: &OffloadPool) -> RequestCall {
    let call = RequestCall { caller: CallerId::Named("indebted".into()), ..RequestCall::unlimited() };
    let months = Duration::from_secs(1 << 24);
    pool.quota().charge(call.quota_key().for_responses(), months, Instant::now());
    call
}

#[tokio::test]
async fn a_plan_does_not_wait_for_the_quota_of_another_caller() {
    let fixture = ShopFixture::new(&[("POST /graphql", 200, ITEM_RESPONSE)]).await;
    let pool = new_pool();
    let route = route_with_schema(&fixture, r#"{"services":["shop"]}"#, SDL, &pool);
    let query = serde_json::json!({ "query": "{ item { name } }" });
    let mut waiting = post_route_as(&route, &query, call_without_quota(&pool)).boxed();
    assert!((&mut waiting).now_or_never().is_none());
    let (text, _) = testkit::with_timeout("a plan", query_route(&route, "{ item { name } }")).await;
    assert_eq!(text, ITEM_RESPONSE);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_arrive_is_refused_at_the_deadline() {
    let fixture = ShopFixture::new(&[]).await;
    let route = new_route(&fixture, r#"{"services":["shop"]}"#);
    let (mut sender, body) =
        http_body_util::channel::Channel::<bytes::Bytes, services::body::BodyError>::new(1);
    sender.send_data(r#"{"query":"#.into()).await.expect("a reader");
    let request = Request::post("/").header(CONTENT_TYPE, "application/json");
    let request = request.body(body.boxed_unsync()).expect("a request");
    let answer = tokio::time::timeout(
        SCHEMA_TIMEOUT,
        route.handle(HandlerRequest::new(request, RequestCall::unlimited())),
    )
    .await;
    let Err(problem) = answer.expect("a response before the timeout") else { panic!("there is no problem") };
    assert_eq!((problem.code(), problem.status().as_u16()), ("limit-deadline", 422));
}

/// A schema in which names begin with `HiddenElements` or `hidden` unless a client uses them.
const HIDDEN: &str = "type Query { item(by: HiddenInput, of: HiddenEnum, must: Int = 1): HiddenItem node: HiddenNode } \
    input HiddenInput { hiddenField: HiddenEnum! hiddenOther: HiddenInput } enum HiddenEnum { HIDDEN_ONE HIDDEN_TWO } \
    interface HiddenNode { name: String } type HiddenItem implements HiddenNode { name: String sub(hiddenMust: Int!): HiddenItem } \
    type HiddenOther { name: String }";

#[tokio::test]
async fn errors_contain_no_schema_names_if_introspection_is_not_allowed() {
    let rig = ShopFixture::new(&[(
        "POST /graphql",
        200,
        r#"{"data":{"item":{"name":[1]},"node":{"__typename":"HiddenOther"}}}"#,
    )])
    .await;
    let (hidden, open) = (r#"{"services":["shop"],"introspection":"off"}"#, r#"{"services":["shop"]}"#);
    let (hidden, open) = (
        route_with_schema(&rig, hidden, HIDDEN, &new_pool()),
        route_with_schema(&rig, open, HIDDEN, &new_pool()),
    );
    let variables = "query Q($v: HiddenEnum, $i: HiddenInput) { item(of: $v, by: $i) { name } }";
    let bodies = [
        serde_json::json!({ "query": variables, "variables": { "v": "WRONG" } }),
        serde_json::json!({ "query": variables, "variables": { "v": 1 } }),
        serde_json::json!({ "query": variables, "variables": { "i": {} } }),
        serde_json::json!({ "query": variables, "variables": { "i": { "wrong": 1 } } }),
        serde_json::json!({ "query": variables, "variables": { "i": 1 } }),
        serde_json::json!({ "query": "{ item(of: WRONG) { name } }" }),
        serde_json::json!({ "query": "{ item(of: 1) { name } }" }),
        serde_json::json!({ "query": "{ item(by: 1) { name } }" }),
        serde_json::json!({ "query": "{ item(by: {}) { name } }" }),
        serde_json::json!({ "query": "{ item(by: { wrong: 1 }) { name } }" }),
        serde_json::json!({ "query": "{ item(wrong: 1) { name } }" }),
        serde_json::json!({ "query": "{ item }" }),
        serde_json::json!({ "query": "{ item { wrong } }" }),
        serde_json::json!({ "query": "{ item { name { x } } }" }),
        serde_json::json!({ "query": "{ item { sub { name } } }" }),
        serde_json::json!({ "query": "{ item { x: name x: sub(hiddenMust: 1) { name } } }" }),
        serde_json::json!({ "query": "query Q($v: Int) { item(of: $v) { name } }" }),
        serde_json::json!({ "query": "{ item { ... on Query { __typename } } }" }),
        serde_json::json!({ "query": "{ item { name } }" }),
        serde_json::json!({ "query": "{ node { __typename name } }" }),
    ];
    for body in bodies {
        let (told, _) = post_route(&open, &body).await;
        assert!(told.contains("errors"), "{body} {told}");
        let (told, _) = post_route(&hidden, &body).await;
        assert!(told.contains("errors"), "{body} {told}");
        let given = body.to_string();
        let words = told.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let names =
            words.filter(|word| word.to_ascii_lowercase().starts_with("hidden") && !given.contains(word));
        assert_eq!(names.collect::<Vec<_>>(), Vec::<&str>::new(), "{body} {told}");
    }
}

/// Returns a document that is not small: checking it and planning it are jobs of their own.
fn long_document(number: usize) -> String {
    let fields: String = (0..90).map(|field| format!("a{field}: name ")).collect();
    format!("query Q{number} {{ item {{ {fields} }} }} # {}", "x".repeat(4000))
}

/// Returns the numbers of jobs that have checked and planned documents.
fn planning_jobs(pool: &OffloadPool) -> [u64; 2] {
    ["graphql-check", "graphql-plan"].map(|kind| finished_jobs(pool, kind))
}

#[tokio::test]
async fn plans_equal_concurrent_documents_once_in_the_pool() {
    let rig = ShopFixture::new(&[("POST /graphql", 200, ITEM_RESPONSE)]).await;
    for (text, expected) in [("{ item { name } }".to_owned(), [0, 1]), (long_document(0), [1, 1])] {
        let pool = new_pool();
        let route = route_with_schema(&rig, r#"{"services":["shop"]}"#, SDL, &pool);
        let all = futures_util::future::join_all((0..20).map(|_| query_route(&route, &text))).await;
        assert!(all.iter().all(|(text, _)| text.starts_with(r#"{"data":"#)), "{all:?}");
        assert_eq!(planning_jobs(&pool), expected, "{text:.40}");
        query_route(&route, &text).await;
        assert_eq!(planning_jobs(&pool), expected, "a cached plan takes no work: {text:.40}");
    }
}

#[tokio::test]
async fn rejects_invalid_documents_in_the_pool() {
    let rig = ShopFixture::new(&[]).await;
    let pool = new_pool();
    let route = route_with_schema(&rig, r#"{"services":["shop"]}"#, SDL, &pool);
    for (number, text) in ["{", "{ nothing }", "subscription { item { name } }"].into_iter().enumerate() {
        let (answer, _) = query_route(&route, text).await;
        assert!(answer.contains("errors"), "{answer}");
        assert_eq!(planning_jobs(&pool), [0, number as u64 + 1], "{text}");
    }
}

#[tokio::test]
async fn short_documents_with_large_expansions_are_charged_for_their_check() {
    let rig = ShopFixture::new(&[("POST /graphql", 200, ITEM_RESPONSE)]).await;
    let pool = new_pool();
    let route = route_with_schema(&rig, r#"{"services":["shop"]}"#, SDL, &pool);
    let operations: String = (0..20).map(|number| format!("query Q{number}{{item{{...F}}}}")).collect();
    let fields: String = (0..10).map(|number| format!("a{number}:name ")).collect();
    let query = format!("{operations}fragment F on Item{{{fields}}}");
    let body = serde_json::json!({ "query": query, "operationName": "Q7" });
    let (answer, _) = post_route(&route, &body).await;
    assert!(answer.starts_with(r#"{"data":"#), "{answer}");
    assert_eq!(planning_jobs(&pool), [1, 2], "a check for nothing, and a job for each step");
}

#[tokio::test]
async fn plans_for_many_object_types_are_charged_before_they_are_made() {
    let rig = ShopFixture::new(&[("POST /graphql", 200, ITEM_RESPONSE)]).await;
    let objects: String =
        (0..200).map(|number| format!("type T{number} implements Node {{ name: String }} ")).collect();
    let sdl = format!("type Query {{ node: Node }} interface Node {{ name: String }} {objects}");
    let fields: String = (0..5).map(|number| format!("a{number}: name ")).collect();
    for (fragment, expected) in [("", [0, 1]), ("... on T0 { name }", [0, 2])] {
        let pool = new_pool();
        let route = route_with_schema(&rig, r#"{"services":["shop"]}"#, &sdl, &pool);
        query_route(&route, &format!("{{ node {{ {fields} {fragment} }} }}")).await;
        assert_eq!(planning_jobs(&pool), expected, "{fragment}");
    }
}

#[tokio::test]
async fn answers_introspection_in_the_pool() {
    let rig = ShopFixture::new(&[]).await;
    let pool = new_pool();
    let route = route_with_schema(&rig, r#"{"services":["shop"]}"#, SDL, &pool);
    let (answer, _) = query_route(&route, "{ __schema { queryType { name } } }").await;
    assert_eq!(answer, r#"{"data":{"__schema":{"queryType":{"name":"Query"}}}}"#);
    assert_eq!(count_moves(&pool), 1);
}

#[tokio::test]
async fn rejects_documents_of_a_caller_above_its_quota() {
    let rig = ShopFixture::new(&[("POST /graphql", 200, ITEM_RESPONSE)]).await;
    let offload =
        OffloadPool::start(OffloadConfig { quota: Duration::from_millis(20), ..OffloadConfig::default() });
    let route = route_with_schema(&rig, r#"{"services":["shop"]}"#, SDL, &offload.expect("a thread"));
    let mut codes = Vec::new();
    for number in 0..100 {
        let body = services::body::full(serde_json::json!({ "query": long_document(number) }).to_string());
        let request =
            Request::post("/").header(CONTENT_TYPE, "application/json").header(ACCEPT, "application/json");
        if let Err(problem) = route
            .handle(HandlerRequest::new(request.body(body).expect("a request"), RequestCall::unlimited()))
            .await
        {
            assert_eq!(problem.status(), http::StatusCode::TOO_MANY_REQUESTS);
            assert!(problem.headers().contains_key(http::header::RETRY_AFTER));
            codes.push(problem.code());
        }
    }
    assert!(!codes.is_empty() && codes.iter().all(|code| *code == "plan-rate"), "{codes:?}");
    // A cached plan costs nothing.
    let (text, _) = query_route(&route, &long_document(0)).await;
    assert_eq!(text.get(..8), Some(r#"{"data":"#));
}

/// Returns the number of finished jobs of a kind.
fn finished_jobs(pool: &OffloadPool, kind: &str) -> u64 {
    pool.stats().kinds.get(kind).map_or(0, |kind| kind.jobs)
}

/// Returns the number of moves of requests to the pool.
fn count_moves(pool: &OffloadPool) -> u64 {
    finished_jobs(pool, "graphql-answer")
}

#[tokio::test]
async fn coerces_values_of_wide_types_in_the_pool() {
    let rig = ShopFixture::new(&[("POST /graphql", 200, ITEM_RESPONSE)]).await;
    let names: String = (0..500).map(|number| format!("V{number} ")).collect();
    let query = "query Q($of: [E!]) { item(of: $of) { name } }";
    let body = serde_json::json!({ "query": query, "variables": { "of": vec!["V299"; 600] } });
    for (values, expected) in [("V299", 0), (&*names, 1)] {
        let pool = new_pool();
        let sdl = format!(
            "type Query {{ item(of: [E!]): Item }} type Item {{ name: String }} enum E {{ {values} }}"
        );
        let route = route_with_schema(&rig, r#"{"services":["shop"]}"#, &sdl, &pool);
        let (answer, _) = post_route(&route, &body).await;
        assert_eq!((answer.as_str(), count_moves(&pool)), (ITEM_RESPONSE, expected), "{values:.20}");
    }
}

#[tokio::test]
async fn rejects_variables_whose_defaults_are_long_together() {
    let rig = ShopFixture::new(&[("POST /graphql", 200, ITEM_RESPONSE)]).await;
    let default = "x".repeat(1000);
    let sdl = format!(
        "type Query {{ item(of: [In!]): Item }} input In {{ text: String = \"{default}\" }} type Item {{ name: String }}"
    );
    let route = route_with_schema(&rig, r#"{"services":["shop"]}"#, &sdl, &new_pool());
    let query = "query Q($of: [In!]) { item(of: $of) { name } }";
    let body = |count| serde_json::json!({ "query": query, "variables": { "of": vec![serde_json::json!({}); count] } });
    let (answer, _) = post_route(&route, &body(10_000)).await;
    assert!(answer.contains("graphql-variables"), "{answer:.300}");
    let (answer, _) = post_route(&route, &body(1000)).await;
    assert_eq!(answer, ITEM_RESPONSE);
}

#[tokio::test]
async fn coerces_large_variables_in_the_pool() {
    let fixture = ShopFixture::new(&[("POST /graphql", 200, ITEM_RESPONSE)]).await;
    let pool = new_pool();
    let sdl = "type Query { item(of: [Int!]): Item } type Item { name: String }";
    let route = route_with_schema(&fixture, r#"{"services":["shop"]}"#, sdl, &pool);
    let fields: String = (0..90).map(|field| format!("a{field}: name ")).collect();
    let query = format!("query Q($of: [Int!]) {{ item(of: $of) {{ {fields} }} }} # {}", "x".repeat(4000));
    let mut values = vec![serde_json::json!(1); 10_000];
    values.push("no number".into());
    let body = serde_json::json!({ "query": query, "variables": { "of": values } });
    let (text, _) = post_route(&route, &body).await;
    assert!(text.contains("graphql-variables"), "{text}");
    assert_eq!(count_moves(&pool), 2, "the body, and the variables after the document was planned");
}

#[tokio::test]
async fn large_plans_are_dropped_in_the_pool() {
    let fixture = ShopFixture::new(&[]).await;
    let pool = new_pool();
    let route = route_with_schema(&fixture, r#"{"services":["shop"]}"#, SDL, &pool);
    let ready = route.0.ready_schema.load_full().expect("a schema");
    let query_plan = ready.planner.plan("{ item { name } }", None).expect("a plan");
    let plan = |bytes: usize| {
        let (variables, steps, positions, shapes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (kind, types) = (query_plan.kind, Arc::clone(&query_plan.types));
        let (has_introspection, scans, root) = (false, 0, 0);
        Arc::new(QueryPlan {
            kind,
            has_introspection,
            variables,
            steps,
            positions,
            shapes,
            scans,
            root,
            types,
            bytes,
        })
    };
    let dropped = || pool.stats().kinds.get("graphql-drop").map_or(0, |kind| kind.jobs);
    route.0.discard_plan(Some(plan(1000)));
    let large = plan(8 << 20);
    route.0.discard_plan(Some(Arc::clone(&large)));
    route.0.discard_plan(Some(large));
    testkit::with_timeout("a dropped plan", async {
        while dropped() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(dropped(), 1);
}

#[tokio::test]
async fn schemas_of_services_are_composed_in_the_pool() {
    let sdl = r#"extend schema @link(url: "https://specs.apollo.dev/federation/v2.3", import: ["@key"])
        type Query { item: Item } type Item { name: String }"#;
    let answer = serde_json::json!({ "data": { "_service": { "sdl": sdl } } }).to_string();
    let rig = ShopFixture::new(&[("POST /graphql", 200, answer.as_str())]).await;
    let pool = new_pool();
    let config = serde_json::from_str(r#"{"federated":true}"#).expect("a config");
    let ground = GraphqlRouteContext {
        services: &rig.services,
        documents: &BTreeMap::new(),
        remotes: &BTreeMap::from([("shop".to_owned(), RemoteService { config, schema: None })]),
        links: None,
        supergraph: None,
        document_files: Vec::new(),
        schemas: &Arc::default(),
        offload: &pool,
    };
    let config: GraphqlConfig = serde_json::from_str(r#"{"services":["shop"]}"#).expect("a config");
    let route = GraphqlRoute::new(&config, ground).unwrap_or_else(|wrong| panic!("{wrong:?}"));
    route.start_introspection();
    testkit::with_timeout("a schema", async {
        while route.unavailable_reason().is_some() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    testkit::with_timeout("the end of the job", async {
        while !pool.stats().kinds.contains_key("graphql-schema") {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn rejects_deeply_nested_and_duplicate_variables() {
    let rig = ShopFixture::new(&[("POST /graphql", 200, ITEM_RESPONSE)]).await;
    let sdl = "type Query { item(of: In): Item } input In { of: In } type Item { name: String }";
    let route = route_with_schema(&rig, r#"{"services":["shop"]}"#, sdl, &new_pool());
    let query = "query Q($of: In) { item(of: $of) { name } }";
    let deep = format!("{}null{}", r#"{"of":"#.repeat(900), "}".repeat(900));
    let many = format!("{{{}}}", vec![r#""of":null"#; 5000].join(","));
    for value in [deep, many] {
        let body = format!(r#"{{"query":"{query}","variables":{{"of":{value}}}}}"#);
        let request =
            Request::post("/").header(CONTENT_TYPE, "application/json").header(ACCEPT, "application/json");
        let body = services::body::full(body);
        let answer = route
            .handle(HandlerRequest::new(request.body(body).expect("a request"), RequestCall::unlimited()))
            .await;
        let answer = answer.unwrap_or_else(|_| panic!("no answer")).response.into_body().collect().await;
        let text = answer.unwrap_or_else(|_| panic!("no body")).to_bytes();
        assert!(String::from_utf8_lossy(&text).contains("graphql-variables"), "{text:?}");
        assert!(text.len() < 2000);
    }
}

#[tokio::test]
async fn does_not_coalesce_queries_of_callers_with_different_rights() {
    let rig = ShopFixture::new(&[("POST /graphql", 200, ITEM_RESPONSE)]).await;
    let route = new_route(&rig, r#"{"services":["shop"],"coalesce":{"operations":true}}"#);
    rig.responses.gate.forget_permits(usize::MAX);
    let query = serde_json::json!({ "query": "{ item { name } }" });
    // The same subject, with tokens for different groups.
    let call = |services: &[&str]| {
        let services = Some(services.iter().map(|name| Box::from(*name)).collect());
        let rights = Some(Arc::new(CallRights { services, methods: None }));
        RequestCall { caller: CallerId::Subject("ann".into()), rights, ..RequestCall::unlimited() }
    };
    let mut first = post_route_as(&route, &query, call(&["shop"])).boxed();
    poll_until_called(&rig, &mut first).await;
    let (refused, calls) = post_route_as(&route, &query, call(&["other"])).await;
    assert!(refused.contains("service-forbidden") && !refused.contains("one"), "{refused}");
    assert_eq!(calls, 0);
    rig.responses.gate.add_permits(1);
    assert_eq!(first.await.0, ITEM_RESPONSE);
}

/// Returns a response to `{ item { name } }` that is parsed in the pool.
fn long_response() -> String {
    serde_json::json!({ "data": { "item": { "name": "x".repeat(200_000) } } }).to_string()
}

#[tokio::test]
async fn long_shared_responses_are_parsed_in_the_pool() {
    let answer = long_response();
    let rig = ShopFixture::new(&[("POST /graphql", 200, answer.as_str())]).await;
    let pool = new_pool();
    let config = r#"{"services":["shop"],"coalesce":{"operations":true}}"#;
    let route = route_with_schema(&rig, config, SDL, &pool);
    let (text, _) = query_route(&route, "{ item { name } }").await;
    assert!(text == answer, "{text:.300}");
    assert!(count_moves(&pool) > 0);
}

/// Returns the context of a request from a network of its own.
fn client_call(last: u8) -> RequestCall {
    let address = std::net::Ipv4Addr::new(192, 0, 2, last).into();
    let arrival = Some(ConnectionDetails { peer: address, client: address, is_secure: false });
    RequestCall { connection_details: arrival, ..RequestCall::unlimited() }
}

/// A job of [`fill_queue`].
type QueuedJob<'p> = BoxFuture<'p, Result<bool, OffloadError>>;

/// Fills a client's queue in a pool with one thread. The first job holds the thread until the sender is
/// dropped.
fn fill_queue<'p>(pool: &'p OffloadPool, client: &RequestCall) -> (Sender<()>, Vec<QueuedJob<'p>>) {
    let (release, wait) = channel::<()>();
    let request = || JobRequest {
        kind: "test",
        payer: client.quota_key().for_responses(),
        estimate: Duration::ZERO,
        deadline: Instant::now() + Duration::from_secs(3600),
    };
    let mut queued: Vec<QueuedJob<'p>> = vec![pool.run(request(), move |_| wait.recv().is_ok()).boxed()];
    while queued.last_mut().expect("a job").now_or_never().is_none() {
        queued.push(pool.run(request(), |_| true).boxed());
    }
    (release, queued)
}

/// Creates a route that coalesces operations, in front of a service that holds back [`long_answer`]. The
/// deadlines are long. Also returns a query that is planned already, since that takes a place in the queue,
/// too.
async fn coalescing_route() -> (ShopFixture, OffloadPool, GraphqlRoute, serde_json::Value) {
    let answer = long_response();
    let rig =
        ShopFixture::with_config(&[("POST /graphql", 200, answer.as_str())], r#","timeout":"1h""#, false)
            .await;
    let pool = new_pool();
    let config = r#"{"services":["shop"],"coalesce":{"operations":true},"limits":{"timeout":"1h"}}"#;
    let route = route_with_schema(&rig, config, SDL, &pool);
    let ready = route.0.ready_schema.load_full().expect("a schema");
    let document = "{ item { name } }";
    ready.planner.plan(document, None).expect("a plan");
    rig.responses.gate.forget_permits(usize::MAX);
    (rig, pool, route, serde_json::json!({ "query": document }))
}

/// Starts a request that may end with a problem.
fn handle_query<'r>(
    route: &'r GraphqlRoute,
    query: &serde_json::Value,
    call: &RequestCall,
) -> BoxFuture<'r, HandlerResult> {
    let body = services::body::full(query.to_string());
    let request = Request::post("/").header(CONTENT_TYPE, "application/json").body(body);
    route.handle(HandlerRequest::new(request.expect("a request"), call.clone()))
}

/// Waits until the first request calls the service. Then starts an equal one, which waits for its response.
async fn join_request<'r>(
    rig: &ShopFixture,
    first: &mut (impl Future + Unpin),
    route: &'r GraphqlRoute,
    query: &'r serde_json::Value,
    call: RequestCall,
) -> BoxFuture<'r, (String, usize)> {
    poll_until_called(rig, first).await;
    let mut second = post_route_as(route, query, call).boxed();
    assert!((&mut second).now_or_never().is_none());
    second
}

#[tokio::test]
async fn an_equal_query_does_not_wait_for_the_quota_of_another_caller() {
    let answer = long_response();
    let (rig, pool, route, query) = coalescing_route().await;
    let (poor, other) = (client_call(1), client_call(2));
    let mut started = post_route_as(&route, &query, poor.clone()).boxed();
    let joined = join_request(&rig, &mut started, &route, &query, other).await;
    let (account, months, now) =
        (poor.quota_key().for_responses(), Duration::from_secs(1 << 24), Instant::now());
    pool.quota().charge(account, months, now);
    rig.responses.gate.add_permits(2);
    let (text, _) = testkit::with_timeout("a response", joined).await;
    assert!(text == answer, "{text:.300}");
    assert_eq!(rig.request_lines().len(), 2, "the second request has made its own call");
    pool.quota().correct_charge(account, months, Duration::ZERO, now);
    let (text, calls) = testkit::with_timeout("a response", started).await;
    assert!(text == answer, "{text:.300}");
    assert_eq!((calls, rig.request_lines().len()), (1, 2), "the first request has continued its own");
}

#[tokio::test]
async fn a_refused_response_fails_only_the_request_that_started_it() {
    let (rig, pool, route, query) = coalescing_route().await;
    let (poor, other) = (client_call(1), client_call(2));
    let (release, _queued) = fill_queue(&pool, &poor);
    let mut refused = handle_query(&route, &query, &poor);
    let answered = join_request(&rig, &mut refused, &route, &query, other).await;
    rig.responses.gate.add_permits(2);
    let problem = refused.await.expect_err("a problem");
    assert_eq!(problem.code(), "answer-unfinished");
    drop(release);
    let (text, _) = answered.await;
    assert!(text == long_response(), "{text:.300}");
    assert_eq!(rig.request_lines().len(), 2);
}

#[tokio::test]
async fn a_request_runs_alone_after_several_refused_ones() {
    let (rig, pool, route, query) = coalescing_route().await;
    let (poor, other) = (client_call(1), client_call(2));
    let (release, _queued) = fill_queue(&pool, &poor);
    let mut answered = post_route_as(&route, &query, other).boxed();
    for _ in 0..planning::MAX_ATTEMPTS {
        let mut refused = handle_query(&route, &query, &poor);
        poll_until_called(&rig, &mut refused).await;
        assert!((&mut answered).now_or_never().is_none());
        rig.responses.gate.add_permits(1);
        assert_eq!(refused.await.expect_err("a problem").code(), "answer-unfinished");
    }
    drop(release);
    rig.responses.gate.add_permits(1);
    let (text, _) = answered.await;
    assert!(text == long_response(), "{text:.300}");
    assert_eq!(rig.request_lines().len(), planning::MAX_ATTEMPTS + 1);
}

#[tokio::test]
async fn a_document_is_planned_alone_after_several_refusals() {
    let rig = ShopFixture::new(&[("POST /graphql", 200, ITEM_RESPONSE)]).await;
    let pool = new_pool();
    let route = route_with_schema(&rig, r#"{"services":["shop"],"limits":{"timeout":"1h"}}"#, SDL, &pool);
    let (poor, other) = (client_call(1), client_call(2));
    let query = serde_json::json!({ "query": "{ item { name } }" });
    let (release, _queued) = fill_queue(&pool, &poor);
    let mut answered = post_route_as(&route, &query, other).boxed();
    for _ in 0..planning::MAX_ATTEMPTS {
        let mut refused = handle_query(&route, &query, &poor);
        assert!((&mut refused).now_or_never().is_none());
        assert!((&mut answered).now_or_never().is_none());
        assert!(refused.await.is_err());
    }
    assert!((&mut answered).now_or_never().is_none());
    drop(release);
    let (text, _) = testkit::with_timeout("a response", answered).await;
    assert_eq!(text, ITEM_RESPONSE);
}

#[tokio::test]
async fn a_document_that_is_not_planned_before_the_deadline_is_refused() {
    let rig = ShopFixture::new(&[("POST /graphql", 200, ITEM_RESPONSE)]).await;
    let pool = new_pool();
    let route = route_with_schema(&rig, r#"{"services":["shop"]}"#, SDL, &pool);
    let (release, _queued) = fill_queue(&pool, &client_call(1));
    // A small document, and one whose check is a job of its own.
    for text in ["{ item { name } }".to_owned(), long_document(0)] {
        let over = Arc::new(RequestBudget::new(Duration::ZERO, 10, 1 << 20, 10));
        let late = RequestCall { budget: over, ..client_call(2) };
        let late = handle_query(&route, &serde_json::json!({ "query": text }), &late);
        let problem = testkit::with_timeout("a refusal", late).await.expect_err("a problem");
        assert_eq!((problem.code(), problem.status().as_u16()), ("plan-timeout", 503), "{text:.40}");
        assert!(problem.headers().contains_key(http::header::RETRY_AFTER));
    }
    assert!(rig.request_lines().is_empty(), "no service is called");
    drop(release);
    let (text, _) = testkit::with_timeout("a response", query_route(&route, "{ item { name } }")).await;
    assert_eq!(text, ITEM_RESPONSE);
}

#[tokio::test]
async fn a_request_runs_alone_while_it_has_time_for_it() {
    let (rig, pool, route, query) = coalescing_route().await;
    let (poor, other) = (client_call(1), client_call(2));
    let (release, _queued) = fill_queue(&pool, &poor);
    let mut refused = handle_query(&route, &query, &poor);
    let mut answered = join_request(&rig, &mut refused, &route, &query, other).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(25 * 60)).await;
    tokio::time::resume();
    rig.responses.gate.add_permits(1);
    assert_eq!(refused.await.expect_err("a problem").code(), "answer-unfinished");
    let mut second = handle_query(&route, &query, &poor);
    poll_until_called(&rig, &mut second).await;
    // After another such operation, less time would be left than one takes.
    testkit::with_timeout("a call of its own", poll_until_called(&rig, &mut answered)).await;
    drop(release);
    rig.responses.gate.add_permits(2);
    let (text, _) = testkit::with_timeout("a response", answered).await;
    assert!(text == long_response(), "{text:.300}");
}
