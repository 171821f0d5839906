//! Which plans stay.

use super::*;
use crate::plan::tests::planner;

#[test]
fn a_flood_of_documents_that_come_once_leaves_those_that_are_used() {
    let planner = planner();
    let plan = planner.plan("{ t { id } }", None).expect("a plan");
    let kept = Kept::new(20 * (weight::of(&plan) + EACH + 16));
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
fn a_plan_that_takes_most_of_the_room_is_not_kept() {
    let planner = planner();
    let plan = planner.plan("{ t { id } }", None).expect("a plan");
    let kept = Kept::new(2 * weight::of(&plan));
    kept.keep("large", None, &plan);
    assert!(kept.get("large", None).is_none() && kept.bytes() == 0);
}
