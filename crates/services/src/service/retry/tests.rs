//! The retry budget: retries are at most a share of the traffic, whatever the sequence of events.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// The next event.
#[derive(Clone, Copy, Debug)]
enum RetryEvent {
    Requests(u32),
    Retry,
    Pass(Duration),
}

fn events() -> impl Strategy<Value = Vec<RetryEvent>> {
    let event = prop_oneof![
        3 => (1..200u32).prop_map(RetryEvent::Requests),
        12 => Just(RetryEvent::Retry),
        3 => (0..4_000u64).prop_map(|millis| RetryEvent::Pass(Duration::from_millis(millis))),
        1 => Just(RetryEvent::Pass(Duration::from_secs(60))),
    ];
    proptest::collection::vec(event, 0..400)
}

proptest! {
    #[test]
    fn retries_are_a_share_of_the_requests_in_the_window(events in events(), percent in 0..=100u8) {
        let budget = RetryBudget::new();
        let mut now = budget.epoch;
        let (mut requests, mut retries): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
        for event in events {
            let second = (now - budget.epoch).as_secs();
            let recent = |all: &[u64]| all.iter().filter(|then| second - **then < WINDOW_SECONDS as u64).count() as u64;
            match event {
                RetryEvent::Pass(time) => now += time,
                RetryEvent::Requests(count) => {
                    (0..count).for_each(|_| budget.deposit(now));
                    requests.extend((0..count).map(|_| second));
                }
                RetryEvent::Retry => {
                    let allowed = recent(&requests) * u64::from(percent) / 100 + MIN_RETRIES_PER_SECOND * WINDOW_SECONDS as u64;
                    let spent = recent(&retries);
                    let granted = budget.withdraw(PercentConfig(percent), now);
                    // Grants exactly as many retries as the budget permits.
                    prop_assert_eq!(granted, spent < allowed, "{} of {} at {}", spent, allowed, second);
                    retries.extend(granted.then_some(second));
                }
            }
        }
    }
}

#[test]
fn recognizes_safe_methods() {
    for (method, safe) in [
        ("GET", true),
        ("HEAD", true),
        ("OPTIONS", true),
        ("TRACE", true),
        ("QUERY", true),
        ("POST", false),
        ("PUT", false),
        ("DELETE", false),
        ("PATCH", false),
        ("query", false),
        ("FETCH", false),
    ] {
        assert_eq!(is_safe_method(&method.parse().unwrap()), safe, "{method}");
    }
}
