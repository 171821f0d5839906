//! Tests of requests to GraphQL services, and of the handling of their responses.

use serde_json::json;

use super::*;
use crate::fetch::outcome::FetchedValues;
use crate::fetch::shop_fixture::{ShopFixture, count_moves, describe_outcomes};

const SHOP: GraphqlEndpoint<'static> = GraphqlEndpoint { service: "shop", path: "/graphql" };

async fn fetch_root_response(status: u16, text: &str) -> FetchedValues {
    let fixture = ShopFixture::new(&[("POST /graphql", status, text)]).await;
    fetch_root(&fixture.call_context(), &SHOP, &EncodedDocument::new("{a}"), &[], true).await
}

#[tokio::test]
async fn posts_a_document_and_its_variables() {
    let fixture = ShopFixture::new(&[("POST /graphql", 200, r#"{"data":{"a":1}}"#)]).await;
    let query = EncodedDocument::new("query($n:Int,$s:String){a(n:$n,s:$s)} # \"quoted\"");
    let variables = [("n", Bytes::from_static(b"1")), ("s", Bytes::from_static(b"\"x\""))];
    let fetched = fetch_root(&fixture.call_context(), &SHOP, &query, &variables, true).await;
    assert_eq!(describe_outcomes(&fetched), [r#"{"a":1}"#]);
    let request = fixture.pop_last_request();
    let expected =
        r#"{"query":"query($n:Int,$s:String){a(n:$n,s:$s)} # \"quoted\"","variables":{"n":1,"s":"x"}}"#;
    assert_eq!(request.body, expected);
    assert_eq!(request.headers["content-type"], "application/json");
    assert_eq!(request.headers["accept"], "application/graphql-response+json, application/json;q=0.9");
}

#[tokio::test]
async fn sends_equal_queries_once_and_mutations_each_time() {
    let rig = ShopFixture::new(&[("POST /graphql", 200, r#"{"data":{"a":1}}"#)]).await;
    let (ground, query) = (rig.call_context(), EncodedDocument::new("{a}"));
    for is_query in [true, true, false, false] {
        fetch_root(&ground, &SHOP, &query, &[], is_query).await;
    }
    assert_eq!(rig.request_lines().len(), 3);
}

#[tokio::test]
async fn the_body_of_a_response_takes_precedence_over_its_status() {
    let errors =
        r#"{"errors":[{"message":"no","locations":[{"line":1,"column":1}],"extensions":{"code":"X"}}]}"#;
    for status in [200, 400, 500] {
        let fetched = fetch_root_response(status, errors).await;
        assert_eq!(describe_outcomes(&fetched), ["upstream-errors"]);
        let error = &fetched.errors[0];
        assert_eq!(error.message, "the service `shop` returned an error: no");
        assert_eq!(error.status, (status != 200).then_some(status));
        assert_eq!(error.reported_errors, [json!({ "message": "no", "extensions": { "code": "X" } })]);
    }
    assert_eq!(describe_outcomes(&fetch_root_response(500, r#"{"data":{"a":1}}"#).await), [r#"{"a":1}"#]);
}

#[tokio::test]
async fn returns_data_together_with_its_errors() {
    let fetched =
        fetch_root_response(200, r#"{"errors":[{"message":"no","path":["a",0]}],"data":{"a":[null]}}"#).await;
    assert_eq!(describe_outcomes(&fetched), [r#"{"a":[null]} but upstream-errors"#]);
    assert_eq!(fetched.errors[0].reported_errors, [json!({ "message": "no", "path": ["a", 0] })]);
}

#[tokio::test]
async fn distinguishes_responses_that_are_not_graphql() {
    for (status, text, code) in [
        (502, "<html>", "upstream-status"),
        (401, "{}", "upstream-status"),
        (200, "<html>", "upstream-not-json"),
        (200, r#"{"data":{"a":"#, "upstream-not-json"),
        (200, "", "upstream-not-json"),
        (200, "{}", "upstream-not-graphql"),
        (200, r#"{"data":null}"#, "upstream-not-graphql"),
        (200, r#"{"data":[]}"#, "upstream-not-graphql"),
        (200, r#"{"errors":[]}"#, "upstream-not-graphql"),
        (200, "[]", "upstream-not-graphql"),
    ] {
        assert_eq!(describe_outcomes(&fetch_root_response(status, text).await), [code], "{status} {text}");
    }
}

/// Returns the results of three entities in two batches.
async fn fetch_test_entities(text: &str) -> (FetchedValues, serde_json::Value) {
    let rig = ShopFixture::new(&[("POST /graphql", 200, text)]).await;
    let of = |id: u32| Bytes::from(format!(r#"{{"__typename":"A","id":{id}}}"#));
    let batches = vec![
        RepresentationBatch { alias: "_e0", variable: "r0", representations: vec![of(1), of(2)] },
        RepresentationBatch { alias: "_e1", variable: "r1", representations: vec![of(3)] },
    ];
    let variables = [("n", Bytes::from_static(b"7"))];
    let fetched =
        fetch_entities(&rig.call_context(), &SHOP, &EncodedDocument::new("query"), batches, &variables).await;
    (fetched, serde_json::from_str(&rig.pop_last_request().body).unwrap())
}

#[tokio::test]
async fn finds_entities_by_batch_and_index() {
    let (fetched, sent) = fetch_test_entities(r#"{"data":{"_e1":[{"x":3}],"_e0":[{"x":1},null]}}"#).await;
    assert_eq!(describe_outcomes(&fetched), [r#"{"x":1}"#, "nothing", r#"{"x":3}"#]);
    let of = |id| json!({ "__typename": "A", "id": id });
    assert_eq!(sent["variables"], json!({ "n": 7, "r0": [of(1), of(2)], "r1": [of(3)] }));
}

#[tokio::test]
async fn representations_are_freed_before_the_response_arrives() {
    let rig = ShopFixture::new(&[("POST /graphql", 200, r#"{"data":{"_e0":[{"x":1}]}}"#)]).await;
    let (ground, query) = (rig.call_context(), EncodedDocument::new("query"));
    let kept = Bytes::from(r#"{"__typename":"A","id":1}"#.to_owned());
    let batch = RepresentationBatch { alias: "_e0", variable: "r0", representations: vec![kept.clone()] };
    let mut fetched = Box::pin(fetch_entities(&ground, &SHOP, &query, vec![batch], &[]));
    assert!(!kept.is_unique());
    assert!(futures_util::FutureExt::now_or_never(fetched.as_mut()).is_none());
    assert!(kept.is_unique());
    assert_eq!(describe_outcomes(&fetched.await), [r#"{"x":1}"#]);
}

#[tokio::test]
async fn only_the_message_of_a_long_error_is_passed_on() {
    let long = |message: &str| {
        let zeros = vec!["0"; 10_000].join(",");
        format!(r#"{{"errors":[{{"message":"{message}","path":["a"],"extensions":{{"a":[{zeros}]}}}}]}}"#)
    };
    assert_eq!(
        fetch_root_response(200, &long("no")).await.errors[0].reported_errors,
        [json!({ "message": "no" })]
    );
    let cut = json!({ "message": "x".repeat(1024) });
    assert_eq!(fetch_root_response(200, &long(&"x".repeat(20_000))).await.errors[0].reported_errors, [cut]);
}

#[tokio::test]
async fn errors_are_parsed_up_to_a_total_length() {
    let error = json!({ "message": "x".repeat(15_000) }).to_string();
    let text = format!(r#"{{"errors":[{}]}}"#, vec![error; 20].join(","));
    assert_eq!(fetch_root_response(200, &text).await.errors[0].reported_errors.len(), 17);
}

#[tokio::test]
async fn assigns_errors_to_entities_by_path() {
    let text = r#"{"data":{"_e0":[{"x":null},null],"_e1":[{"x":3}]},"errors":[
        {"message":"1","path":["_e0",1]},{"message":"2","path":["_e0",0,"x",4]},{"message":"3","path":["_e0",9]},
        {"message":"4"},{"message":"5","path":["_e0",0,"y"]}]}"#;
    let (fetched, _) = fetch_test_entities(text).await;
    let errors = "upstream-errors";
    assert_eq!(
        describe_outcomes(&fetched),
        [format!(r#"{{"x":null}} but {errors}"#), errors.into(), r#"{"x":3}"#.into()]
    );
    let told: Vec<_> = fetched.errors.iter().map(|error| json!(error.reported_errors)).collect();
    assert_eq!(told[0], json!([{ "message": "2", "path": ["x", 4] }, { "message": "5", "path": ["y"] }]));
    assert_eq!(told[1], json!([{ "message": "1", "path": [] }]));
    assert_eq!(told[2], json!([{ "message": "3", "path": ["_e0", 9] }, { "message": "4" }]));
}

#[tokio::test]
async fn an_error_without_a_path_applies_to_all_missing_entities() {
    let (fetched, _) = fetch_test_entities(r#"{"data":null,"errors":[{"message":"no"}]}"#).await;
    assert_eq!(describe_outcomes(&fetched), ["upstream-errors"; 3]);
    assert_eq!(fetched.errors.len(), 1);
    let (fetched, _) = fetch_test_entities(r#"{"data":{"_e0":[{"x":1}]}}"#).await;
    assert_eq!(describe_outcomes(&fetched), [r#"{"x":1}"#, "upstream-shape", "upstream-shape"]);
}

#[tokio::test]
async fn fetches_a_schema_by_introspection() {
    let schema = r#"{"__schema":{"types":[]}}"#;
    let rig = ShopFixture::new(&[
        ("POST /graphql", 200, &format!(r#"{{"data":{schema}}}"#)),
        ("POST /off", 400, r#"{"errors":[{"message":"introspection is off"}]}"#),
        ("POST /null", 200, r#"{"data":{"__schema":null}}"#),
    ])
    .await;
    assert_eq!(introspect(&rig.services, "shop", "/graphql", false).await.unwrap(), schema);
    for (path, message) in [
        ("/off", "the service `shop` returned an error: introspection is off"),
        ("/null", "the service `shop` answered without a value at `/data/__schema`"),
    ] {
        let error = introspect(&rig.services, "shop", path, false).await.unwrap_err();
        assert_eq!(error.message, message);
    }
}

#[tokio::test]
async fn fetches_the_sdl_of_a_federated_subgraph() {
    let said = r#"{"data":{"_service":{"sdl":"type Query { a: \"b\" }"}}}"#;
    let rig = ShopFixture::new(&[("POST /graphql", 200, said)]).await;
    let schema = introspect(&rig.services, "shop", "/graphql", true).await;
    assert_eq!(schema.unwrap(), "type Query { a: \"b\" }");
}

#[tokio::test]
async fn reads_long_errors_in_the_pool() {
    for (count, expected) in [(10, 0), (20_000, 1)] {
        let values = vec!["1"; count].join(",");
        let text = format!(r#"{{"errors":[{{"message":"no","extensions":{{"values":[{values}]}}}}]}}"#);
        assert!(text.len() < offload::SHORT_TEXT, "a text of this length is parsed at once");
        let asked = async move { fetch_root_response(200, &text).await };
        let (fetched, moves) = count_moves(asked).await;
        assert_eq!((describe_outcomes(&fetched), moves), (vec!["upstream-errors".to_owned()], expected));
    }
}
