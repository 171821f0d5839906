//! The limits of a request, with services that exceed them.

use super::*;

async fn error_code(
    bench: &MisbehavingShop,
    call: &RequestCall,
    path: &str,
) -> (&'static str, u16, CallErrorKind) {
    let error = bench.services.send(call, &bench.shop, request("GET", path)).await.unwrap_err();
    (error.code(), error.status().as_u16(), error.kind())
}

#[tokio::test]
async fn huge_responses_and_compression_bombs_end_at_the_limit() {
    let bench = start_shop().await;
    for (path, received) in [("/gigabyte", 1 << 20), ("/bomb", 4 << 10)] {
        let call = call(1, received, 1);
        assert_eq!(
            error_code(&bench, &call, path).await,
            ("limit-received", 422, CallErrorKind::Limit),
            "{path}"
        );
        bench.upstream.wait_for_close(path).await;
        assert_eq!(
            call.budget.call_records()[0].outcome,
            UpstreamCallOutcome::NoAnswer,
            "the response was not complete"
        );
    }
}

#[tokio::test]
async fn counts_decoded_bytes_of_short_texts() {
    let bench = start_shop().await;
    for coding in ["gzip", "br", "zstd"] {
        let path = format!("/encoded?with={coding}");
        assert_eq!(error_code(&bench, &call(1, 1 << 10, 1), &path).await.0, "limit-received", "{coding}");
        assert_eq!(bench.get(&path).await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn counts_bytes_over_all_calls() {
    let bench = start_shop().await;
    let length = bench.get("/json?n=100").await.unwrap().body.len() as u64;
    let call = call(9, 2 * length, 1);
    for _ in 0..2 {
        bench.services.send(&call, &bench.shop, request("GET", "/json?n=100")).await.unwrap();
    }
    assert_eq!(error_code(&bench, &call, "/json?n=1").await.0, "limit-received");
}

#[tokio::test]
async fn counts_long_responses_in_the_account_of_the_client() {
    let bench = start_shop().await;
    let accounts = TestAccounts::new(192 << 10);
    let call = accounts.call();
    let send = |call: &RequestCall, bytes: u32| {
        let path = format!("/json?n=1&text={bytes}");
        bench.services.send(call, &bench.shop, request("GET", &path))
    };
    send(&call, 50_000).await.unwrap();
    assert_eq!(accounts.held_bytes(), 0, "a short response");
    send(&call, 50_000).await.unwrap();
    assert_eq!(accounts.held_bytes(), 128 << 10, "two steps of 64 KiB");
    let other = accounts.call();
    let path = "/json?n=1&text=100000";
    assert_eq!(error_code(&bench, &other, path).await, ("answer-unfinished", 503, CallErrorKind::Limit));
    assert!(other.budget.has_reached_client_limit() && !call.budget.has_reached_client_limit());
    drop(call);
    assert_eq!(accounts.held_bytes(), 0);
    send(&other, 100_000).await.unwrap();
    // Encoded bytes count until the request is over, too.
    let huge = accounts.call();
    drop(other);
    assert_eq!(error_code(&bench, &huge, "/bomb").await.0, "answer-unfinished");
    drop(huge);
    assert_eq!(accounts.held_bytes(), 0);
}

#[tokio::test]
async fn counts_calls_and_records_the_first_rejected_one() {
    let bench = start_shop().await;
    let call = call(2, u64::MAX, 1);
    for path in ["/json", "/status/500"] {
        bench.services.send(&call, &bench.shop, request("GET", path)).await.unwrap();
    }
    for _ in 0..3 {
        assert_eq!(error_code(&bench, &call, "/echo").await, ("limit-calls", 422, CallErrorKind::Limit));
    }
    let records = call.budget.call_records();
    let outcomes: Vec<UpstreamCallOutcome> = records.iter().map(|record| record.outcome).collect();
    assert_eq!(
        outcomes,
        [UpstreamCallOutcome::Status(200), UpstreamCallOutcome::Status(500), UpstreamCallOutcome::NotSent]
    );
    assert_eq!((&*records[1].service, records[1].path.as_str()), ("shop", "/status/500"));
    assert!(records[1].span.1.is_some());
    assert_eq!(bench.upstream.hits("/echo"), 0);
}

#[tokio::test]
async fn limits_concurrent_calls() {
    let bench = start_shop().await;
    let call = call(9, u64::MAX, 2);
    let calls: Vec<_> = (0..3)
        .map(|_| tokio::spawn(bench.services.send(&call, &bench.shop, request("GET", "/hang"))))
        .collect();
    bench.upstream.wait_for_requests("/hang", 2).await;
    // The third gets its permit only when another call is dropped.
    assert_eq!(
        call.budget
            .call_records()
            .iter()
            .filter(|record| record.outcome == UpstreamCallOutcome::NotSent)
            .count(),
        1
    );
    let under_way = call
        .budget
        .call_records()
        .iter()
        .position(|call_record| call_record.outcome == UpstreamCallOutcome::NoAnswer)
        .unwrap();
    calls[under_way].abort();
    bench.upstream.wait_for_requests("/hang", 3).await;
    calls.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn the_requests_deadline_is_a_separate_limit() {
    let bench = start_shop().await;
    let soon = || {
        let budget = RequestBudget::new(std::time::Duration::from_millis(20), 9, u64::MAX, 1);
        RequestCall { budget: Arc::new(budget), ..RequestCall::unlimited() }
    };
    assert_eq!(error_code(&bench, &soon(), "/hang").await, ("limit-deadline", 422, CallErrorKind::Limit));
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

#[tokio::test]
async fn refuses_a_call_whose_head_is_larger_than_64_kib() {
    let bench = start_shop_with(|config| config.forward = vec!["Cookie".into()]).await;
    let call = call(9, u64::MAX, 1);
    let long = |bytes: usize| "x".repeat(bytes);
    // Neither the service nor the budget notices any of them.
    let by_url = request("GET", &format!("/echo?{}", long(65_510)));
    let mut by_header = request("GET", "/echo");
    by_header.headers.insert("x-a", long(64 << 10).parse().unwrap());
    let mut by_many = request("GET", "/echo");
    for _ in 0..90 {
        by_many.headers.append("x-a", long(800).parse().unwrap());
    }
    for request in [by_url, by_header, by_many] {
        let error = bench.services.send(&call, &bench.shop, request).await.unwrap_err();
        assert_eq!((error.code(), error.fault()), ("call-head-too-large", FaultParty::Program), "{error}");
    }
    assert_eq!((call.budget.call_count(), bench.upstream.hits("/echo")), (0, 0));
    // The client's own headers count as well.
    let client = HeaderMap::from_iter([(http::header::COOKIE, long(40_000).parse().unwrap())]);
    let lending = RequestCall { headers: Some(Arc::new(client)), ..call };
    let with = |bytes: usize| {
        let mut request = request("GET", "/status/200");
        request.headers.insert("x-a", long(bytes).parse().unwrap());
        bench.services.send(&lending, &bench.shop, request)
    };
    assert_eq!(with(30_000).await.unwrap_err().code(), "call-head-too-large");
    assert_eq!(bench.upstream.hits("/status/200"), 0);
    let sent = with(20_000).await;
    assert!(!matches!(sent, Err(CallError::Header(_))), "a smaller one is sent: {sent:?}");
}
