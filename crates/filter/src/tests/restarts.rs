//! Instances that trap, and the effect on requests of other clients.

use std::future::{Future, poll_fn};

use offload::QuotaKey;
use sandbox::CpuClock;

use super::*;
use crate::OnTrap;

/// A module that traps for paths that begin with `b`, holds back those that begin with `w`, and refuses all
/// others.
const GUARD: &str = r#"
    (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (local $letter i32)
        (call $want (i32.const 0) (call $property «request\0path» (i32.const 0) (i32.const 4)))
        (local.set $letter (i32.load8_u offset=1 (i32.load (i32.const 0))))
        (if (i32.eq (local.get $letter) (i32.const 0x62)) (then unreachable))
        (if (i32.eq (local.get $letter) (i32.const 0x77)) (then (return (i32.const 1))))
        (call $want (i32.const 0) (call $respond (i32.const 403) «» «» ‹› (i32.const -1)))
        (i32.const 1))"#;

/// A module that traps for paths that begin with `b`, and lets all others pass.
const PASSES: &str = r#"
    (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (call $want (i32.const 0) (call $property «request\0path» (i32.const 0) (i32.const 4)))
        (if (i32.eq (i32.load8_u offset=1 (i32.load (i32.const 0))) (i32.const 0x62)) (then unreachable))
        (i32.const 0))"#;

/// A module like [`PASSES`] that starts once, then fails to start `FAILED` times.
const STARTS_LATE: &str = r#"
    (func (export "proxy_on_configure") (param i32 i32) (result i32)
        (local $before i32)
        (i32.store (i32.const 4) (i32.const 0))
        (drop (call $get_data «starts» (i32.const 0) (i32.const 4) (i32.const 8)))
        (local.set $before (i32.load (i32.const 4)))
        (call $want (i32.const 0) (call $set_data «starts»
            (i32.const 0) (i32.add (local.get $before) (i32.const 1)) (i32.const 0)))
        (if (i32.lt_u (i32.sub (local.get $before) (i32.const 1)) (i32.const FAILED)) (then unreachable))
        (i32.const 1))"#;

fn late_starting_module(failed: u32) -> String {
    format!("{PASSES} {}", STARTS_LATE.replace("FAILED", &failed.to_string()))
}

fn trapped_result<T>() -> Result<T, FilterFailure> {
    Err(FilterFailure::Trapped("test".into()))
}

#[tokio::test]
async fn serves_others_while_every_second_request_traps() {
    for is_started in [false, true] {
        let bench = FilterFixture::new();
        let chain = bench.single_filter_chain(PASSES);
        if is_started {
            chain.start();
        }
        for _ in 0..60 {
            let bad = send_as("attacker", &chain, get("/bad")).await;
            assert_eq!(bad.map(|answer| answer.status), trapped_result());
            let good = send_as("neighbour", &chain, get("/good")).await;
            assert_eq!(good.map(|answer| answer.status), Ok(StatusCode::OK));
        }
        assert_eq!(bench.stats().traps, 60);
    }
}

#[tokio::test(start_paused = true)]
async fn serves_others_at_once_after_many_traps_in_a_row() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(PASSES);
    for _ in 0..30 {
        assert_eq!(
            send_as("attacker", &chain, get("/bad")).await.map(|answer| answer.status),
            trapped_result()
        );
    }
    let before = tokio::time::Instant::now();
    assert_eq!(send_as("neighbour", &chain, get("/good")).await.unwrap().status, StatusCode::OK);
    assert_eq!(before.elapsed(), Duration::ZERO, "the paused clock advances only if something waits for it");
}

#[tokio::test]
async fn refuses_only_the_client_whose_requests_trap_too_often() {
    let bench = FilterFixture::with_restarts(Duration::from_millis(20));
    let chain = bench.single_filter_chain(PASSES);
    let mut traps = 0;
    let refused = loop {
        let end = send_as("attacker", &chain, get("/bad")).await;
        match end.map(|answer| answer.status).unwrap_err() {
            FilterFailure::Trapped(_) => traps += 1,
            refused => break refused,
        }
        assert!(traps < 100, "each trap costs at least two milliseconds");
    };
    assert_eq!(
        (services::ToProblem::code(&refused), services::ToProblem::status(&refused).as_u16()),
        ("rate-cpu", 429)
    );
    assert!(services::ToProblem::headers(&refused).contains_key("retry-after"));
    let response = send_as("attacker", &chain, get("/good")).await;
    assert!(matches!(response, Err(FilterFailure::RestartQuota { .. })), "{response:?}");
    for _ in 0..10 {
        assert_eq!(send_as("neighbour", &chain, get("/good")).await.unwrap().status, StatusCode::OK);
    }
    assert_eq!(bench.stats().traps, traps);
}

#[tokio::test]
async fn creates_next_instance_after_releasing_the_memory_of_the_last() {
    let bench = FilterFixture::new();
    let fills = "(drop (memory.grow (i32.const 256)))
        (memory.fill (i32.const 262144) (i32.const 7) (i32.const 16777216))";
    let mut filter =
        bench.filter("test", &GUARD.replace("(then unreachable)", &format!("(then {fills} unreachable)")));
    filter.limits.cpu = services::DurationConfig::from_millis(10_000);
    let chain = bench.chain(&[filter]);
    for _ in 0..5 {
        assert_eq!(
            send_as("attacker", &chain, get("/bad")).await.map(|answer| answer.status),
            trapped_result()
        );
        let mut next = Box::pin(send_as("neighbour", &chain, get("/secret")));
        let mut turns = 0;
        let answer = poll_fn(|context| {
            turns += 1;
            next.as_mut().poll(context)
        });
        assert_eq!(answer.await.unwrap().status, StatusCode::FORBIDDEN);
        assert!(turns > 1, "it waits until the memory is released");
    }
}

#[tokio::test]
async fn charges_cleanup_after_a_trap_to_the_client() {
    let bench = FilterFixture::with_restarts(Duration::from_millis(20));
    let chain = bench.single_filter_chain(PASSES);
    let payer = QuotaKey::new(&"attacker");
    let work = async {
        let clock = CpuClock::now();
        while clock.elapsed() < Duration::from_millis(40) {}
    };
    chain.plugins()[0].vm.slots[0].spawn_charged(work, Some(payer)).unwrap().await.unwrap();
    assert!(bench.filters.restart_quota.retry_after(|| payer).is_some());
    assert!(bench.filters.restart_quota.retry_after(|| QuotaKey::new(&"neighbour")).is_none());
}

#[tokio::test]
async fn on_trap_open_bypasses_only_the_request_that_traps() {
    let bench = FilterFixture::new();
    let mut filter = bench.filter("test", GUARD);
    filter.on_trap = OnTrap::Open;
    let chain = bench.chain(&[filter]);
    for _ in 0..30 {
        let mut waiting = Box::pin(send_as("neighbour", &chain, get("/waits")));
        assert!((&mut waiting).now_or_never().is_none());
        assert_eq!(send_as("attacker", &chain, get("/bad")).await.unwrap().status, StatusCode::OK);
        assert_eq!(waiting.await.map(|answer| answer.status), trapped_result());
        assert_eq!(send_as("neighbour", &chain, get("/secret")).await.unwrap().status, StatusCode::FORBIDDEN);
    }
    assert_eq!(bench.stats().local_responses, 30);
}

#[tokio::test]
async fn released_requests_outlive_the_instance() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(PASSES);
    let (begun, gate) = (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
    let handle = {
        let (begun, gate) = (Arc::clone(&begun), Arc::clone(&gate));
        async move |request: Request<StreamedServiceBody>| {
            begun.notify_one();
            gate.notified().await;
            echo(request).await
        }
    };
    let mut passed = Box::pin(chain.run_http_exchange(
        get("/good"),
        call_with_timeout(Duration::from_secs(60)),
        exchange_info(),
        handle,
    ));
    let mut begins = std::pin::pin!(begun.notified());
    while begins.as_mut().now_or_never().is_none() {
        assert!((&mut passed).now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    assert_eq!(send_as("attacker", &chain, get("/bad")).await.map(|answer| answer.status), trapped_result());
    gate.notify_one();
    assert_eq!(collect_response(passed.await.unwrap()).await.unwrap().status, StatusCode::OK);
}

#[tokio::test]
async fn filters_that_fail_to_restart_back_off() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(&late_starting_module(u32::MAX));
    assert_eq!(send(&chain, get("/bad")).await.map(|answer| answer.status), trapped_result());
    for _ in 0..8 {
        assert_eq!(send(&chain, get("/good")).await.map(|answer| answer.status), trapped_result());
    }
    let before = bench.stats().traps;
    assert_eq!(before, 9, "each of these requests has waited out the back-off");
    let asked: Vec<_> = (0..50)
        .map(|_| {
            let chain = Arc::clone(&chain);
            tokio::spawn(async move { send(&chain, get("/good")).await.map(|answer| answer.status) })
        })
        .collect();
    for asked in asked {
        assert_eq!(asked.await.unwrap(), trapped_result());
    }
    let tried = bench.stats().traps - before;
    assert!(tried < 10, "{tried} starts for 50 requests");
}

#[tokio::test]
async fn requests_wait_for_the_end_of_the_back_off() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(&late_starting_module(7));
    assert_eq!(send(&chain, get("/bad")).await.map(|answer| answer.status), trapped_result());
    for _ in 0..7 {
        assert_eq!(send(&chain, get("/good")).await.map(|answer| answer.status), trapped_result());
    }
    assert!(send(&chain, get("/good")).now_or_never().is_none(), "there is a back-off");
    assert_eq!(send(&chain, get("/good")).await.unwrap().status, StatusCode::OK);
    assert_eq!(bench.stats().traps, 8);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_an_instance_ends_at_the_deadline() {
    let bench = FilterFixture::new();
    let chain = bench.single_filter_chain(&late_starting_module(u32::MAX));
    assert_eq!(send(&chain, get("/bad")).await.map(|answer| answer.status), trapped_result());
    for _ in 0..8 {
        assert_eq!(send(&chain, get("/good")).await.map(|answer| answer.status), trapped_result());
    }
    let begun = tokio::time::Instant::now().into_std();
    let budget = RequestBudget::new_at(begun, Duration::from_millis(1), u32::MAX, u64::MAX, 64);
    let in_back_off = RequestCall { budget: Arc::new(budget), ..RequestCall::unlimited() };
    let late = chain.run_http_exchange(get("/good"), in_back_off, exchange_info(), echo).await;
    assert_eq!(late.map(|response| response.status()).unwrap_err(), FilterFailure::Trapped("test".into()));
    assert_eq!(bench.stats().traps, 9);
}
