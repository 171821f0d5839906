//! Tests of eviction from the plan cache.

use super::*;
use crate::plan::tests::planner;

#[test]
fn keeps_used_plans_during_a_flood_of_one_time_documents() {
    let planner = planner();
    let plan = planner.plan("{ t { id } }", None).expect("a plan");
    let kept = Kept::new(20 * (plan.bytes + EACH + 16));
    kept.keep("used", None, &plan);
    for number in 0..1000 {
        kept.keep(&format!("{number}"), None, &plan);
        kept.keep("flood", Some(&format!("{number}")), &plan);
        assert!(kept.get("used", None).is_some(), "{number}");
        assert!(kept.bytes() <= kept.most);
    }
    assert!(kept.get("0", None).is_none() && kept.get("flood", Some("0")).is_none());
    assert!(kept.get("999", None).is_some() && kept.get("flood", Some("999")).is_some());
    assert!(kept.get("flood", None).is_none());
    let plans = kept.plans.read().unwrap();
    let sum = plans.known.values().flatten().map(|known| known.bytes).sum::<usize>();
    assert_eq!(sum, plans.bytes);
    assert_eq!(plans.order.len(), plans.known.values().map(Vec::len).sum::<usize>());
}

#[test]
fn does_not_cache_plans_that_take_most_of_the_capacity() {
    let planner = planner();
    let plan = planner.plan("{ t { id } }", None).expect("a plan");
    let kept = Kept::new(2 * plan.bytes);
    kept.keep("large", None, &plan);
    assert!(kept.get("large", None).is_none() && kept.bytes() == 0);
}

#[test]
fn evicted_plans_are_returned_and_not_dropped_under_the_lock() {
    let planner = planner();
    let plan = |text: &str| planner.plan(text, None).expect("a plan");
    let (first, others) = (plan("{ t { id } }"), [plan("{ a: t { id } }"), plan("{ b: t { id } }")]);
    let kept = Kept::new(8 * (first.bytes + EACH + 16));
    let mut evicted = Vec::new();
    evicted.extend(kept.keep("first", None, &first));
    for number in 0..30 {
        evicted.extend(kept.keep(&format!("{number}"), None, &others[number % 2]));
    }
    assert!(evicted.iter().any(|plan| Arc::ptr_eq(plan, &first)));
}
