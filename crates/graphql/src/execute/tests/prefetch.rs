//! Tests of lists that are fetched before the objects that find their items in them are known.

use crate::OperationKind;
use crate::execute::AnswerRules;
use crate::fetch::shop_fixture::ShopFixture;
use crate::plan::QueryPlanner;
use crate::schema::{SchemaDescription, SchemaSource, build_subgraphs};
use crate::{GraphqlLimits, ServiceSchema, compose};

use super::nested::BLOG;

/// Returns a planner of one service, `shop`, whose posts have comments.
fn shop_planner() -> QueryPlanner {
    let document = openapi::OpenApiDocument::parse(BLOG).expect("an OpenAPI document");
    let described =
        [SchemaSource { name: "shop".into(), description: SchemaDescription::OpenApi(&document) }];
    let links = r#"{ "links": { "Post.comments": { "get": "shop/comments", "on": "id = post_id" } } }"#;
    let links = serde_json::from_str(links).expect("links");
    let (subgraphs, _) = build_subgraphs(&described, &links).expect("subgraphs");
    let parts: Vec<ServiceSchema<'_>> =
        subgraphs.iter().map(|subgraph| ServiceSchema { name: &subgraph.name, sdl: &subgraph.sdl }).collect();
    let supergraph = compose(&parts).expect("a supergraph");
    QueryPlanner::new(&supergraph.sdl, subgraphs, &GraphqlLimits::default(), false).expect("a planner")
}

const ANSWERS: [(&str, u16, &str); 2] = [
    ("/posts", 200, r#"[{"id":1,"title":"a"},{"id":2,"title":"b"}]"#),
    ("/comments", 200, r#"[{"id":7,"post_id":2,"text":"x"}]"#),
];

#[tokio::test]
async fn fetches_a_list_once_and_in_parallel_with_its_parents() {
    let (fixture, planner) = (ShopFixture::new(&ANSWERS).await, shop_planner());
    let plan = planner.plan("{ posts { id comments { text } } }", None).expect("a plan");
    assert_eq!(plan.kind, OperationKind::Query);
    // No response is sent before both requests have arrived.
    let open = fixture.responses.gate.forget_permits(usize::MAX);
    let context = fixture.call_context();
    let rules = AnswerRules { max_bytes: 1 << 20, exposes_schema: true, introspection_values: Vec::new() };
    let answer = crate::execute::run(&plan, planner.schema(), std::sync::Arc::default(), &context, &rules);
    let both = async {
        while fixture.request_lines().len() < 2 {
            tokio::task::yield_now().await;
        }
        fixture.responses.gate.add_permits(open);
    };
    let (answer, ()) = tokio::join!(answer, both);
    let mut text = Vec::new();
    answer.tree.write(&mut text);
    let wanted = r#"{"data":{"posts":[{"id":1,"comments":[]},{"id":2,"comments":[{"text":"x"}]}]}}"#;
    assert_eq!(String::from_utf8(text).expect("UTF-8"), wanted);
    assert_eq!(fixture.request_lines(), ["GET /comments", "GET /posts"]);
}
