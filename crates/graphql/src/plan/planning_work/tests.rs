//! Checks that the estimated work is at least that of the planner library and of the plan.

use hive_router_query_planner::ast::normalization::normalize_operation;
use hive_router_query_planner::ast::selection_item::SelectionItem;
use hive_router_query_planner::ast::selection_set::SelectionSet as NormalizedSelectionSet;
use hive_router_query_planner::utils::cancellation::CancellationToken;
use proptest::prelude::*;
use proptest::sample::select;

use super::PlanningWork;
use crate::plan::PLANNING_TIMEOUT;
use crate::plan::tests::{field_count, test_planner};

fn count_nodes(set: &NormalizedSelectionSet) -> u64 {
    let below = |item: &SelectionItem| {
        item.selections().map_or(0, |items| count_nodes(&NormalizedSelectionSet { items: items.clone() }))
    };
    set.items.iter().map(|item| 1 + below(item)).sum()
}

/// A selection of an interface, with fragments on the interface and on its implementations.
fn any_selection(depth: u32) -> BoxedStrategy<String> {
    let leaf = select(vec!["id", "x: id", "__typename"]).prop_map(str::to_owned);
    if depth == 0 {
        return leaf.boxed();
    }
    let condition =
        select(vec![" on Node", " on One", " on Other", "", " @include(if: $v)", " on Node @skip(if: $v)"]);
    let field = any_selection(depth - 1).prop_map(|inner| format!("next {{ {inner} }}"));
    let part = (condition, any_selection(depth - 1))
        .prop_map(|(condition, inner)| format!("...{condition} {{ {inner} }}"));
    prop::collection::vec(prop_oneof![leaf, field, part.clone(), part], 1..4)
        .prop_map(|items| items.join(" "))
        .boxed()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn estimates_at_least_as_many_nodes_as_the_library_creates(inner in any_selection(4)) {
        let planner = test_planner();
        let text = format!("query Q($v: Boolean = true) {{ node {{ id @skip(if: $v) {inner} }} }}");
        let Ok(Some(checked)) = planner.check_document(&text, None, u64::MAX) else { return Ok(()) };
        let normalized = normalize_operation(&planner.hive.supergraph, &checked.document, None);
        let made = count_nodes(&normalized.expect("an operation").operation.selection_set);
        prop_assert!(checked.work.nodes >= made, "{} {} {}", checked.work.nodes, made, text);
    }

    #[test]
    fn estimates_at_least_as_many_fields_as_the_plan_has(inner in any_selection(4)) {
        let planner = test_planner();
        let text = format!("query Q($v: Boolean = true) {{ node {{ id @skip(if: $v) {inner} }} }}");
        let Ok(Some(checked)) = planner.check_document(&text, None, u64::MAX) else { return Ok(()) };
        let token = CancellationToken::with_timeout(PLANNING_TIMEOUT);
        let Ok(plan) = planner.plan_checked(&checked, &token) else { return Ok(()) };
        let (made, PlanningWork { nodes, fields, .. }) = (field_count(&plan.shapes) as u64, checked.work);
        prop_assert!(nodes.max(fields) >= made, "{} {} {} {}", nodes, fields, made, text);
    }
}
