//! Tests of eviction from the plan cache.

use super::*;
use crate::plan::tests::planner;

#[test]
fn keeps_used_plans_during_a_flood_of_one_time_documents() {
    let planner = planner();
    let plan = planner.plan("{ t { id } }", None).expect("a plan");
    let kept = CachedPlan::new(20 * (plan.bytes + EACH + 16));
    kept.keep(&"used".into(), None, &plan);
    let flood = "flood".into();
    for number in 0..1000 {
        kept.keep(&number.to_string().into(), None, &plan);
        kept.keep(&flood, Some(&format!("{number}")), &plan);
        assert!(kept.get("used", None).is_some(), "{number}");
        assert!(kept.bytes() <= kept.most);
    }
    assert!(kept.get("0", None).is_none() && kept.get("flood", Some("0")).is_none());
    assert!(kept.get("999", None).is_some() && kept.get("flood", Some("999")).is_some());
    assert!(kept.get("flood", None).is_none());
    let plans = kept.plans.read().unwrap();
    let sum = plans.known.values().map(|known| known.bytes).sum::<usize>();
    assert_eq!(sum, plans.bytes);
    assert_eq!(plans.order.len(), plans.known.len());
}

#[test]
fn does_not_cache_plans_that_take_most_of_the_capacity() {
    let planner = planner();
    let plan = planner.plan("{ t { id } }", None).expect("a plan");
    let kept = CachedPlan::new(2 * plan.bytes);
    kept.keep(&"large".into(), None, &plan);
    assert!(kept.get("large", None).is_none() && kept.bytes() == 0);
}

#[test]
fn evicted_plans_are_returned_and_not_dropped_under_the_lock() {
    let planner = planner();
    let plan = |text: &str| planner.plan(text, None).expect("a plan");
    let (first, others) = (plan("{ t { id } }"), [plan("{ a: t { id } }"), plan("{ b: t { id } }")]);
    let kept = CachedPlan::new(8 * (first.bytes + EACH + 16));
    let mut evicted = Vec::new();
    evicted.extend(kept.keep(&"first".into(), None, &first));
    for number in 0..30 {
        evicted.extend(kept.keep(&number.to_string().into(), None, &others[number % 2]));
    }
    assert!(evicted.iter().any(|plan| Arc::ptr_eq(plan, &first)));
}

#[test]
fn examines_a_bounded_number_of_plans_for_a_new_one() {
    let planner = planner();
    let plan = planner.plan("{ t { id } }", None).expect("a plan");
    let kept = CachedPlan::new(2 * MAX_CANDIDATES * (plan.bytes + EACH + 4));
    for number in 1000..1000 + 2 * MAX_CANDIDATES {
        kept.keep(&number.to_string().into(), None, &plan);
        assert!(kept.get(&number.to_string(), None).is_some(), "{number}");
    }
    let used = || {
        let plans = kept.plans.read().unwrap();
        plans.known.values().filter(|known| known.is_used.load(Relaxed)).count()
    };
    let new: Arc<str> = "new1".into();
    for left in [MAX_CANDIDATES, 0] {
        kept.keep(&new, None, &plan);
        assert_eq!(used(), left);
        assert!(kept.get(&new, None).is_none(), "there is no room yet");
    }
    kept.keep(&new, None, &plan);
    assert!(kept.get(&new, None).is_some() && kept.bytes() <= kept.most);
}
