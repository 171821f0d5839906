//! A route before a service that holds its answers back until a test lets them go.

use std::collections::BTreeMap;

use futures_util::FutureExt;
use http::header::{ACCEPT, CONTENT_TYPE};
use http_body_util::BodyExt;
use offload::OffloadConfig;

use super::*;
use crate::RemoteService;
use crate::rig::Rig;

const ANSWER: &str = r#"{"data":{"item":{"name":"one"}}}"#;

/// A route over the service `shop`.
fn route(rig: &Rig, config: &str) -> Graphql {
    let config: GraphqlConfig = serde_json::from_str(config).expect("a route's config");
    let sdl = "type Query { item: Item } type Mutation { change: Item } type Item { name: String }";
    let service =
        RemoteService { config: serde_json::from_str("{}").expect("a config"), schema: Some(sdl.into()) };
    let ground = Ground {
        services: &rig.services,
        documents: &BTreeMap::new(),
        remotes: &BTreeMap::from([("shop".to_owned(), service)]),
        links: None,
        supergraph: None,
        listed: Vec::new(),
        schemas: &Arc::default(),
        offload: &OffloadPool::start(OffloadConfig::default()).expect("a thread"),
    };
    Graphql::new(&config, ground).unwrap_or_else(|wrong| panic!("{wrong:?}"))
}

/// The text of an answer, and how many calls were made for it.
async fn asked(route: &Graphql, query: &str) -> (String, usize) {
    let body = serde_json::json!({ "query": query }).to_string();
    let request =
        Request::post("/").header(CONTENT_TYPE, "application/json").header(ACCEPT, "application/json");
    let body = services::body::full(body);
    let call = Call::unlimited();
    let answer = route.handle(request.body(body).expect("a request"), call.clone()).await;
    let answer = answer.unwrap_or_else(|_| panic!("no answer"));
    let calls = call.budget.take_report().map_or(0, |report| report.made.len());
    let text = answer.into_body().collect().await.unwrap_or_else(|_| panic!("no body")).to_bytes();
    (String::from_utf8_lossy(&text).into_owned(), calls)
}

#[tokio::test]
async fn equal_queries_that_come_at_once_are_one_call_of_the_first_and_both_are_answered() {
    let rig = Rig::new(&[("POST /graphql", 200, ANSWER)]).await;
    let route = route(&rig, r#"{"services":["shop"],"coalesce":{"operations":true}}"#);
    rig.stage.gate.forget_permits(usize::MAX);
    let mut first = asked(&route, "{ item { name } }").boxed();
    while rig.lines().is_empty() {
        assert!((&mut first).now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    let mut second = asked(&route, "{ item { name } }").boxed();
    assert!((&mut second).now_or_never().is_none());
    let mut other = asked(&route, "{ it: item { name } }").boxed();
    assert!((&mut other).now_or_never().is_none());
    rig.stage.gate.add_permits(2);
    let ((first, made), (second, shared), (_, others)) = tokio::join!(first, second, other);
    assert_eq!((first.as_str(), second.as_str()), (ANSWER, ANSWER));
    assert_eq!((made, shared, others), (1, 0, 1), "what the access log has as `calls`");
    assert_eq!(rig.lines().len(), 2);
}
