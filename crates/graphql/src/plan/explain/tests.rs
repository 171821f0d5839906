//! Tests of plan explanations.

use crate::execute::tests::blog_planner;

#[test]
fn explains_calls_and_the_places_they_are_for() {
    let planner = blog_planner();
    let document = "query($with: Boolean!) { posts { title user @include(if: $with) { name } comments { author { name } } } }";
    let explanation = planner.plan(document, None).unwrap().explain();
    insta::assert_snapshot!(explanation.to_string());
    insta::assert_snapshot!(explanation.mermaid());
}
