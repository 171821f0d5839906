use crate::execute::tests::blog;

#[test]
fn a_plan_says_which_calls_it_makes_and_for_what() {
    let planner = blog();
    let document = "query($with: Boolean!) { posts { title user @include(if: $with) { name } comments { author { name } } } }";
    let explanation = planner.plan(document, None).unwrap().explain();
    insta::assert_snapshot!(explanation.to_string());
    insta::assert_snapshot!(explanation.mermaid());
}
