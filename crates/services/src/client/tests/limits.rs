//! The allowance of a request holds, whatever the service sends.

use super::*;

async fn code(bench: &Bench, call: &Call, path: &str) -> (&'static str, u16, Kind) {
    let error = bench.services.send(call, &bench.shop, request("GET", path)).await.unwrap_err();
    (error.code(), error.status().as_u16(), error.kind())
}

#[tokio::test]
async fn a_gigabyte_and_a_bomb_end_at_the_allowance() {
    let bench = bench().await;
    for path in ["/gigabyte", "/bomb"] {
        let call = call(1, 1 << 20, 1);
        assert_eq!(code(&bench, &call, path).await, ("limit-received", 422, Kind::Limit), "{path}");
        bench.upstream.closed(path).await;
        assert_eq!(call.budget.made()[0].outcome, Outcome::NoAnswer, "it never came to its end");
    }
}

#[tokio::test]
async fn bytes_count_over_all_calls() {
    let bench = bench().await;
    let length = bench.get("/json?n=100").await.unwrap().body.len() as u64;
    let call = call(9, 2 * length, 1);
    for _ in 0..2 {
        bench.services.send(&call, &bench.shop, request("GET", "/json?n=100")).await.unwrap();
    }
    assert_eq!(code(&bench, &call, "/json?n=1").await.0, "limit-received");
}

#[tokio::test]
async fn calls_are_counted_and_the_first_refused_is_told() {
    let bench = bench().await;
    let call = call(2, u64::MAX, 1);
    for path in ["/json", "/status/500"] {
        bench.services.send(&call, &bench.shop, request("GET", path)).await.unwrap();
    }
    for _ in 0..3 {
        assert_eq!(code(&bench, &call, "/echo").await, ("limit-calls", 422, Kind::Limit));
    }
    let made = call.budget.made();
    let outcomes: Vec<Outcome> = made.iter().map(|made| made.outcome).collect();
    assert_eq!(outcomes, [Outcome::Status(200), Outcome::Status(500), Outcome::NotSent]);
    assert_eq!((&*made[1].service, made[1].path.as_str()), ("shop", "/status/500"));
    assert!(made[1].span.1.is_some());
    assert_eq!(bench.upstream.hits("/echo"), 0);
}

#[tokio::test]
async fn only_so_many_calls_are_under_way_at_once() {
    let bench = bench().await;
    let call = call(9, u64::MAX, 2);
    let calls: Vec<_> = (0..3)
        .map(|_| tokio::spawn(bench.services.send(&call, &bench.shop, request("GET", "/hang"))))
        .collect();
    bench.upstream.seen_times("/hang", 2).await;
    // The third has its place only once another is gone: dropping one brings it.
    assert_eq!(call.budget.made().iter().filter(|made| made.outcome == Outcome::NotSent).count(), 1);
    let under_way = call.budget.made().iter().position(|made| made.outcome == Outcome::NoAnswer).unwrap();
    calls[under_way].abort();
    bench.upstream.seen_times("/hang", 3).await;
    calls.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn the_requests_own_deadline_is_its_own_limit() {
    let bench = bench().await;
    let soon = || {
        let budget = Budget::new(std::time::Duration::from_millis(20), 9, u64::MAX, 1);
        Call { budget: Arc::new(budget), ..Call::unlimited() }
    };
    assert_eq!(code(&bench, &soon(), "/hang").await, ("limit-deadline", 422, Kind::Limit));
    let call = soon();
    let first = bench.services.send(&call, &bench.shop, request("GET", "/hang"));
    let waiting = bench.services.send(&call, &bench.shop, request("GET", "/json"));
    let (first, waiting) = tokio::join!(first, waiting);
    assert_eq!(
        (first.unwrap_err().code(), waiting.unwrap_err().code()),
        ("limit-deadline", "limit-deadline")
    );
    assert_eq!(bench.upstream.hits("/json"), 0);
}
