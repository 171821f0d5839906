//! Tests of eviction from the plan cache.

use super::*;
use crate::plan::tests::test_planner;

#[test]
fn keeps_used_plans_during_a_flood_of_one_time_documents() {
    let planner = test_planner();
    let plan = planner.plan("{ t { id } }", None).expect("a plan");
    let cached_plan = CachedPlan::new(20 * (plan.bytes + ENTRY_OVERHEAD + 16));
    cached_plan.insert(&"used".into(), None, &plan);
    let flood = "flood".into();
    for number in 0..1000 {
        cached_plan.insert(&number.to_string().into(), None, &plan);
        cached_plan.insert(&flood, Some(&format!("{number}")), &plan);
        assert!(cached_plan.get("used", None).is_some(), "{number}");
        assert!(cached_plan.bytes() <= cached_plan.max_bytes);
    }
    assert!(cached_plan.get("0", None).is_none() && cached_plan.get("flood", Some("0")).is_none());
    assert!(cached_plan.get("999", None).is_some() && cached_plan.get("flood", Some("999")).is_some());
    assert!(cached_plan.get("flood", None).is_none());
    let plans = cached_plan.plans.read().unwrap();
    let sum = plans.entries.values().map(|kept_plan| kept_plan.bytes).sum::<usize>();
    assert_eq!(sum, plans.bytes);
    assert_eq!(plans.order.len(), plans.entries.len());
}

#[test]
fn does_not_cache_plans_that_take_most_of_the_capacity() {
    let planner = test_planner();
    let plan = planner.plan("{ t { id } }", None).expect("a plan");
    let cached_plan = CachedPlan::new(2 * plan.bytes);
    cached_plan.insert(&"large".into(), None, &plan);
    assert!(cached_plan.get("large", None).is_none() && cached_plan.bytes() == 0);
}

#[test]
fn evicted_plans_are_returned_and_not_dropped_under_the_lock() {
    let planner = test_planner();
    let plan = |text: &str| planner.plan(text, None).expect("a plan");
    let (first, others) = (plan("{ t { id } }"), [plan("{ a: t { id } }"), plan("{ b: t { id } }")]);
    let cached_plan = CachedPlan::new(8 * (first.bytes + ENTRY_OVERHEAD + 16));
    let mut evicted = Vec::new();
    evicted.extend(cached_plan.insert(&"first".into(), None, &first));
    for number in 0..30 {
        evicted.extend(cached_plan.insert(&number.to_string().into(), None, &others[number % 2]));
    }
    assert!(evicted.iter().any(|plan| Arc::ptr_eq(plan, &first)));
}

#[test]
fn examines_a_bounded_number_of_plans_for_a_new_one() {
    let planner = test_planner();
    let plan = planner.plan("{ t { id } }", None).expect("a plan");
    let cached_plan = CachedPlan::new(2 * MAX_CANDIDATES * (plan.bytes + ENTRY_OVERHEAD + 4));
    for number in 1000..1000 + 2 * MAX_CANDIDATES {
        cached_plan.insert(&number.to_string().into(), None, &plan);
        assert!(cached_plan.get(&number.to_string(), None).is_some(), "{number}");
    }
    let used = || {
        let plans = cached_plan.plans.read().unwrap();
        plans.entries.values().filter(|kept_plan| kept_plan.is_used.load(Relaxed)).count()
    };
    let new: Arc<str> = "new1".into();
    for left in [MAX_CANDIDATES, 0] {
        cached_plan.insert(&new, None, &plan);
        assert_eq!(used(), left);
        assert!(cached_plan.get(&new, None).is_none(), "there is no room yet");
    }
    cached_plan.insert(&new, None, &plan);
    assert!(cached_plan.get(&new, None).is_some() && cached_plan.bytes() <= cached_plan.max_bytes);
}
