//! Tests of fetches by key: the number of calls, the result of each object, and partial failures.

use std::collections::HashMap;

use http::Method;
use json::{JsonDocument, JsonPath};
use openapi::ParameterLocation;
use serde_json::json;

use super::*;
use crate::fetch::shop_fixture::{ShopFixture, count_moves, describe_outcomes};
use crate::subgraph::{ItemMatch, ParameterSource, RestParameter};

const REST: GraphqlEndpoint<'static> = GraphqlEndpoint { service: "shop", path: "" };
const GRAPHQL: GraphqlEndpoint<'static> = GraphqlEndpoint { service: "shop", path: "/graphql" };

fn rest_call(path: &str, parameter_location: ParameterLocation, name: &str) -> BoundCall {
    let parameters = match name {
        "" => vec![],
        name => {
            vec![RestParameter {
                name: name.into(),
                location: parameter_location,
                is_required: false,
                is_repeated: false,
                source: ParameterSource::Key("id".into()),
            }]
        }
    };
    BoundCall::Rest(Arc::new(RestOperation {
        method: Method::GET,
        path: path.into(),
        parameters,
        body: None,
        response_path: JsonPath::default(),
        is_text: false,
        is_empty: false,
    }))
}

fn field_call(name: &str, arguments: &[(&str, &str, ParameterSource)]) -> BoundCall {
    let argument =
        |(name, kind, from): &(&str, &str, ParameterSource)| ((*name).into(), (*kind).into(), from.clone());
    BoundCall::Field { name: name.into(), arguments: arguments.iter().map(argument).collect() }
}

fn item_match(item: &str, is_many: bool) -> ItemMatch {
    ItemMatch { key: "id".into(), item: item.into(), is_many, is_text: false, batch: None }
}

/// Returns the results of objects with these keys.
async fn fetch_outcomes(
    fixture: &ShopFixture,
    endpoint: &GraphqlEndpoint<'_>,
    strategy: &BatchStrategy,
    keys: &str,
) -> FetchedValues {
    let document = JsonDocument::new(keys.to_owned().into()).expect("keys in JSON");
    let fields = ["id".into()];
    let keys = ObjectKeys { fields: &fields, values: document.root().items().collect() };
    let selection = match endpoint.path {
        "" => ObjectSelection::default(),
        _ => ObjectSelection { text: "name", ..ObjectSelection::default() },
    };
    fetch_by_key(&fixture.call_context(), endpoint, strategy, &keys, &ArgumentValues::default(), &selection)
        .await
}

#[tokio::test]
async fn fetches_ids_in_one_call_and_joins_the_items() {
    let text = r#"[{"id":3,"n":"c"},{"id":1.0,"n":"a"},{"n":"none"},7]"#;
    let fixture = ShopFixture::new(&[("/a?ids=1,2,3", 200, text)]).await;
    let strategy =
        BatchStrategy::KeyBatches(rest_call("/a", ParameterLocation::Query, "ids"), item_match("id", false));
    let fetched = fetch_outcomes(&fixture, &REST, &strategy, "[1,2,null,3]").await;
    assert_eq!(
        describe_outcomes(&fetched),
        [r#"{"id":1.0,"n":"a"}"#, "nothing", "nothing", r#"{"id":3,"n":"c"}"#]
    );
    assert_eq!(fixture.request_lines().len(), 1);
}

#[tokio::test]
async fn fetches_a_list_once_and_joins_the_items() {
    let text = r#"[{"b":1,"n":1},{"b":2,"n":2},{"b":1,"n":3}]"#;
    let fixture = ShopFixture::new(&[("/a", 200, text)]).await;
    let strategy =
        BatchStrategy::WholeList(rest_call("/a", ParameterLocation::Query, ""), item_match("b", true));
    let fetched = fetch_outcomes(&fixture, &REST, &strategy, "[1,9,null,[2,1]]").await;
    let (first, second) = (r#"{"b":1,"n":1},{"b":1,"n":3}"#, r#"{"b":2,"n":2}"#);
    assert_eq!(
        describe_outcomes(&fetched),
        [format!("[{first}]"), "[]".into(), "[]".into(), format!("[{second},{first}]")]
    );
    assert_eq!(fixture.request_lines(), ["GET /a"]);
}

#[tokio::test]
async fn makes_no_call_without_keys() {
    let fixture = ShopFixture::new(&[]).await;
    let strategy =
        BatchStrategy::KeyBatches(rest_call("/a", ParameterLocation::Query, "ids"), item_match("id", false));
    assert_eq!(
        describe_outcomes(&fetch_outcomes(&fixture, &REST, &strategy, "[null,[]]").await),
        ["nothing", "[]"]
    );
    let batch_strategy = BatchStrategy::PerObject(rest_call("/a/{id}", ParameterLocation::Path, "id"));
    assert_eq!(
        describe_outcomes(&fetch_outcomes(&fixture, &REST, &batch_strategy, "[null]").await),
        ["nothing"]
    );
    assert!(fixture.request_lines().is_empty());
}

#[tokio::test]
async fn splits_long_lists_of_ids_and_isolates_failed_parts() {
    let answers =
        [("/a?ids=1,2", 200, r#"[{"id":1},{"id":2}]"#), ("/a?ids=3,4", 500, ""), ("/a?ids=5", 200, "[]")];
    let fixture = ShopFixture::new(&answers).await;
    let joined = ItemMatch { batch: Some(2), ..item_match("id", false) };
    let strategy = BatchStrategy::KeyBatches(rest_call("/a", ParameterLocation::Query, "ids"), joined);
    let fetched = fetch_outcomes(&fixture, &REST, &strategy, "[1,2,3,4,5]").await;
    let status = "upstream-status";
    assert_eq!(describe_outcomes(&fetched), [r#"{"id":1}"#, r#"{"id":2}"#, status, status, "nothing"]);
    assert_eq!(fetched.errors.len(), 1);
}

#[tokio::test]
async fn limits_the_length_of_urls() {
    let fixture = ShopFixture::new(&[]).await;
    let keys: Vec<String> = (0..30).map(|number| format!("{number}{}", "é".repeat(200))).collect();
    let strategy =
        BatchStrategy::KeyBatches(rest_call("/a", ParameterLocation::Query, "ids"), item_match("id", false));
    let _ = fetch_outcomes(&fixture, &REST, &strategy, &json!(keys).to_string()).await;
    let lines = fixture.request_lines();
    assert_eq!(lines.len(), 5);
    assert!(lines.iter().all(|line| line.len() <= 8004));
}

#[tokio::test]
async fn calls_for_single_objects_fail_independently() {
    let answers =
        [("/a/1", 200, r#"{"n":1}"#), ("/a/2", 404, ""), ("/a/3", 401, ""), ("/a/4", 200, "<html>")];
    let fixture = ShopFixture::new(&answers).await;
    let strategy = BatchStrategy::PerObject(rest_call("/a/{id}", ParameterLocation::Path, "id"));
    let fetched = fetch_outcomes(&fixture, &REST, &strategy, r#"[1,2,3,4,"../5"]"#).await;
    let expected = [r#"{"n":1}"#, "nothing", "upstream-status", "upstream-not-json", "argument-unfit"];
    assert_eq!(describe_outcomes(&fetched), expected);
    assert_eq!(fetched.errors[0].status, Some(401));
}

#[tokio::test]
async fn starts_no_calls_if_their_number_exceeds_the_limit() {
    let fixture = ShopFixture::new(&[]).await;
    let keys = json!((0..21).collect::<Vec<_>>()).to_string();
    let fetched = fetch_outcomes(
        &fixture,
        &REST,
        &BatchStrategy::PerObject(rest_call("/a/{id}", ParameterLocation::Path, "id")),
        &keys,
    )
    .await;
    assert_eq!(describe_outcomes(&fetched), ["link-calls"; 21]);
    assert!(fixture.request_lines().is_empty());
}

#[tokio::test]
async fn reports_keys_of_different_kinds_unless_compared_as_text() {
    let fixture = ShopFixture::new(&[("/a", 200, r#"[{"id":"1"},{"id":"2"}]"#)]).await;
    let how = |is_text| {
        BatchStrategy::WholeList(
            rest_call("/a", ParameterLocation::Query, ""),
            ItemMatch { is_text, ..item_match("id", false) },
        )
    };
    let fetched = fetch_outcomes(&fixture, &REST, &how(false), "[1,3]").await;
    assert_eq!(describe_outcomes(&fetched), ["link-kinds", "link-kinds"]);
    assert!(fetched.errors[0].message.contains("numbers"), "{}", fetched.errors[0].message);
    assert_eq!(
        describe_outcomes(&fetch_outcomes(&fixture, &REST, &how(true), "[1,3]").await),
        [r#"{"id":"1"}"#, "nothing"]
    );
}

#[tokio::test]
async fn reports_duplicate_items_only_for_the_affected_object() {
    let fixture = ShopFixture::new(&[("/a", 200, r#"[{"id":71},{"id":2},{"id":71}]"#)]).await;
    let strategy =
        BatchStrategy::WholeList(rest_call("/a", ParameterLocation::Query, ""), item_match("id", false));
    let fetched = fetch_outcomes(&fixture, &REST, &strategy, "[71,2]").await;
    assert_eq!(describe_outcomes(&fetched), ["link-duplicate", r#"{"id":2}"#]);
    // The key may be hidden.
    assert!(!fetched.errors[0].message.contains("71"), "{}", fetched.errors[0].message);
}

#[tokio::test]
async fn reports_responses_that_are_not_lists() {
    let fixture = ShopFixture::new(&[("/a", 200, r#"{"id":1}"#)]).await;
    let strategy =
        BatchStrategy::WholeList(rest_call("/a", ParameterLocation::Query, ""), item_match("id", true));
    assert_eq!(
        describe_outcomes(&fetch_outcomes(&fixture, &REST, &strategy, "[1,2]").await),
        ["upstream-shape"; 2]
    );
}

#[tokio::test]
async fn fetches_all_ids_from_a_graphql_service_in_one_field() {
    let answer = r#"{"data":{"orfa_list":[{"orfa_key":2,"name":"b"},{"orfa_key":1,"name":"a"},null]}}"#;
    let fixture = ShopFixture::new(&[("POST /graphql", 200, answer)]).await;
    let strategy = BatchStrategy::KeyBatches(
        field_call(
            "agents",
            &[
                ("ids", "[ID!]!", ParameterSource::Key("id".into())),
                ("all", "Boolean", ParameterSource::Fixed(json!(true))),
            ],
        ),
        item_match("number", false),
    );
    let fetched = fetch_outcomes(&fixture, &GRAPHQL, &strategy, "[1,2,3]").await;
    assert_eq!(
        describe_outcomes(&fetched),
        [r#"{"orfa_key":1,"name":"a"}"#, r#"{"orfa_key":2,"name":"b"}"#, "nothing"]
    );
    let sent: serde_json::Value = serde_json::from_str(&fixture.pop_last_request().body).unwrap();
    let text = "query($orfa_ids:[ID!]!,$orfa_all:Boolean){orfa_list:agents(ids:$orfa_ids,all:$orfa_all){orfa_key:number name} }";
    assert_eq!(sent, json!({ "query": text, "variables": { "orfa_ids": [1, 2, 3], "orfa_all": true } }));
}

#[tokio::test]
async fn fetches_each_object_from_a_graphql_service_in_one_document() {
    let answer = r#"{"data":{"f0":{"name":"a"},"f1":null,"f2":{"name":null}},
        "errors":[{"message":"no","path":["f1"]},{"message":"none","path":["f2","name"],"locations":[]}]}"#;
    let fixture = ShopFixture::new(&[("POST /graphql", 200, answer)]).await;
    let strategy =
        BatchStrategy::PerObject(field_call("agent", &[("id", "ID!", ParameterSource::Key("id".into()))]));
    let fetched = fetch_outcomes(&fixture, &GRAPHQL, &strategy, r#"["x",null,"y","z"]"#).await;
    let partial = r#"{"name":null} but upstream-errors"#;
    assert_eq!(describe_outcomes(&fetched), [r#"{"name":"a"}"#, "nothing", "upstream-errors", partial]);
    assert_eq!(fetched.errors[1].reported_errors, [json!({ "message": "none", "path": ["name"] })]);
    let sent: serde_json::Value = serde_json::from_str(&fixture.pop_last_request().body).unwrap();
    let text = "query($orfa_id_0:ID!,$orfa_id_1:ID!,$orfa_id_2:ID!)\
        {f0:agent(id:$orfa_id_0){name} f1:agent(id:$orfa_id_1){name} f2:agent(id:$orfa_id_2){name} }";
    let variables = json!({ "orfa_id_0": "x", "orfa_id_1": "y", "orfa_id_2": "z" });
    assert_eq!(sent, json!({ "query": text, "variables": variables }));
}

/// Fetches this number of objects, each by a field with this selection.
async fn fetch_many(ground: &CallContext, text: &str, count: usize) -> FetchedValues {
    let keys = json!((0..count).collect::<Vec<_>>()).to_string();
    let document = JsonDocument::new(keys.into()).expect("keys in JSON");
    let fields = ["id".into()];
    let keys = ObjectKeys { fields: &fields, values: document.root().items().collect() };
    let how =
        BatchStrategy::PerObject(field_call("agent", &[("id", "ID!", ParameterSource::Key("id".into()))]));
    let selection = ObjectSelection { text, ..ObjectSelection::default() };
    fetch_by_key(ground, &GRAPHQL, &how, &keys, &ArgumentValues::default(), &selection).await
}

#[tokio::test]
async fn documents_with_long_selections_are_for_few_objects() {
    let rig = ShopFixture::new(&[("POST /graphql", 200, r#"{"data":{}}"#)]).await;
    let selection = "name ".repeat(20 << 10);
    assert_eq!(fetch_many(&rig.call_context(), &selection, 20).await.outcomes.len(), 20);
    let seen = rig.responses.received.lock().unwrap();
    assert_eq!(seen.len(), 10);
    assert!(seen.iter().all(|seen| seen.body.len() < 256 << 10), "two selections of 100 KiB each");
}

#[tokio::test]
async fn few_long_documents_are_composed_at_a_time() {
    let rig = ShopFixture::new(&[("POST /graphql", 200, r#"{"data":{}}"#)]).await;
    let (ground, selection) = (rig.call_context(), "name ".repeat(300 << 10));
    let mut fetch = Box::pin(fetch_many(&ground, &selection, 3));
    assert!((&mut fetch).now_or_never().is_none());
    let calls = || ground.calls.call().budget.call_count();
    assert_eq!(calls(), 2, "a third document of 1.5 MiB waits");
    fetch.await;
    assert_eq!(calls(), 3);
}

#[tokio::test]
async fn assigns_errors_to_list_items_by_path_and_keeps_all_others() {
    let answer = r#"{"data":{"orfa_list":[{"orfa_key":9,"name":null},{"orfa_key":1,"name":null},null]},"errors":[
        {"message":"no","path":["orfa_list",1,"name"]},{"message":"of nobody's","path":["orfa_list",0,"name"]},
        {"message":"none","path":["orfa_list",2]},{"message":"slow"}]}"#;
    let rig = ShopFixture::new(&[("POST /graphql", 200, answer)]).await;
    let fetched = fetch_outcomes(
        &rig,
        &GRAPHQL,
        &BatchStrategy::WholeList(field_call("agents", &[]), item_match("id", false)),
        "[1]",
    )
    .await;
    assert_eq!(describe_outcomes(&fetched), [r#"{"orfa_key":1,"name":null}"#]);
    let FetchOutcome::One(place) = fetched.outcomes[0] else { panic!("an item") };
    assert_eq!(fetched.item_errors, HashMap::from([(place, 0)]));
    assert_eq!(fetched.errors[0].message, "the service `shop` returned an error: no");
    assert_eq!(fetched.errors[0].reported_errors, [json!({ "message": "no", "path": ["name"] })]);
    let others: Vec<&str> =
        fetched.errors[1].reported_errors.iter().filter_map(|told| told["message"].as_str()).collect();
    assert_eq!((others, fetched.errors.len()), (vec!["of nobody's", "none", "slow"], 2));
}

#[tokio::test]
async fn joins_long_lists_in_the_pool() {
    for (count, expected) in [(1_000, 0), (13_500, 1)] {
        let list = format!("[{}]", vec![r#"{"b":1}"#; count].join(","));
        assert!(list.len() < offload::SHORT_TEXT, "a text of this length is parsed at once");
        let rig = ShopFixture::new(&[("/a", 200, list.as_str())]).await;
        let how =
            BatchStrategy::WholeList(rest_call("/a", ParameterLocation::Query, ""), item_match("b", true));
        let asked = async move { fetch_outcomes(&rig, &REST, &how, "[1]").await };
        let (fetched, moves) = count_moves(asked).await;
        let FetchOutcome::Many(places) = &fetched.outcomes[0] else { panic!("a list") };
        assert_eq!((places.len(), moves), (count, expected));
    }
}
