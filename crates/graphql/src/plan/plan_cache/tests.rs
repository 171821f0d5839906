//! Tests of eviction from the plan cache.

use super::*;
use crate::plan::tests::test_planner;

#[test]
fn keeps_used_plans_during_a_flood_of_one_time_documents() {
    let planner = test_planner();
    let plan = planner.plan("{ t { id } }", None).expect("a plan");
    let kept = CachedPlan::new(20 * (plan.bytes + ENTRY_OVERHEAD + 16));
    kept.insert(&"used".into(), None, &plan);
    let flood = "flood".into();
    for number in 0..1000 {
        kept.insert(&number.to_string().into(), None, &plan);
        kept.insert(&flood, Some(&format!("{number}")), &plan);
        assert!(kept.get("used", None).is_some(), "{number}");
        assert!(kept.bytes() <= kept.max_bytes);
    }
    assert!(kept.get("0", None).is_none() && kept.get("flood", Some("0")).is_none());
    assert!(kept.get("999", None).is_some() && kept.get("flood", Some("999")).is_some());
    assert!(kept.get("flood", None).is_none());
    let plans = kept.plans.read().unwrap();
    let sum = plans.entries.values().map(|known| known.bytes).sum::<usize>();
    assert_eq!(sum, plans.bytes);
    assert_eq!(plans.order.len(), plans.entries.len());
}

#[test]
fn does_not_cache_plans_that_take_most_of_the_capacity() {
    let planner = test_planner();
    let plan = planner.plan("{ t { id } }", None).expect("a plan");
    let kept = CachedPlan::new(2 * plan.bytes);
    kept.insert(&"large".into(), None, &plan);
    assert!(kept.get("large", None).is_none() && kept.bytes() == 0);
}

#[test]
fn evicted_plans_are_returned_and_not_dropped_under_the_lock() {
    let planner = test_planner();
    let plan = |text: &str| planner.plan(text, None).expect("a plan");
    let (first, others) = (plan("{ t { id } }"), [plan("{ a: t { id } }"), plan("{ b: t { id } }")]);
    let kept = CachedPlan::new(8 * (first.bytes + ENTRY_OVERHEAD + 16));
    let mut evicted = Vec::new();
    evicted.extend(kept.insert(&"first".into(), None, &first));
    for number in 0..30 {
        evicted.extend(kept.insert(&number.to_string().into(), None, &others[number % 2]));
    }
    assert!(evicted.iter().any(|plan| Arc::ptr_eq(plan, &first)));
}

#[test]
fn examines_a_bounded_number_of_plans_for_a_new_one() {
    let planner = test_planner();
    let plan = planner.plan("{ t { id } }", None).expect("a plan");
    let kept = CachedPlan::new(2 * MAX_CANDIDATES * (plan.bytes + ENTRY_OVERHEAD + 4));
    for number in 1000..1000 + 2 * MAX_CANDIDATES {
        kept.insert(&number.to_string().into(), None, &plan);
        assert!(kept.get(&number.to_string(), None).is_some(), "{number}");
    }
    let used = || {
        let plans = kept.plans.read().unwrap();
        plans.entries.values().filter(|known| known.is_used.load(Relaxed)).count()
    };
    let new: Arc<str> = "new1".into();
    for left in [MAX_CANDIDATES, 0] {
        kept.insert(&new, None, &plan);
        assert_eq!(used(), left);
        assert!(kept.get(&new, None).is_none(), "there is no room yet");
    }
    kept.insert(&new, None, &plan);
    assert!(kept.get(&new, None).is_some() && kept.bytes() <= kept.max_bytes);
}
