//! Request coalescing across requests: sharing, and the limits of each request.

use futures_util::future::{join, join_all};

use testkit::with_timeout;

use super::fleet::{EndpointBehaviour, SimulatedFleet, THREE_TARGETS};
use super::*;
use crate::{CallCoalescer, RequestCalls};

/// Returns the calls of another request.
fn calls(
    bench: &MisbehavingShop,
    coalescer: &Arc<CallCoalescer<ProgramResponse>>,
    call: RequestCall,
) -> RequestCalls {
    RequestCalls::new(bench.services.clone(), call).with_coalescer(Arc::clone(coalescer))
}

fn coalescer() -> Arc<CallCoalescer<ProgramResponse>> {
    Arc::new(CallCoalescer::new(1 << 20))
}

/// Returns the context of a client's request with this key.
fn client(key: &str) -> RequestCall {
    let headers = HeaderMap::from_iter([("x-key".parse().unwrap(), key.parse().unwrap())]);
    RequestCall { headers: Some(Arc::new(headers)), ..call(10, 1000, 10) }
}

/// Drops the other owners of a shared response, then the last one. Checks that only the response counts
/// between, and nothing afterwards.
fn assert_held_until_dropped<O, L>(accounts: &TestAccounts, others: O, last: L) {
    drop(others);
    assert_eq!(accounts.held_bytes(), 128 << 10);
    drop(last);
    assert_eq!(accounts.held_bytes(), 0);
}

#[tokio::test]
async fn coalesces_concurrent_reads_and_charges_each_request() {
    let (bench, coalescer) = (start_shop().await, coalescer());
    let requests: Vec<_> = (0..3).map(|_| calls(&bench, &coalescer, call(1, 1000, 1))).collect();
    let answers =
        join_all(requests.iter().map(|calls| calls.send(&bench.shop, request("GET", "/json?n=1")))).await;
    assert!(answers.iter().all(|answer| answer.as_ref().is_ok_and(|answer| answer.status == 200)));
    assert_eq!(bench.upstream.hits("/json"), 1);
    for calls in &requests {
        let records = calls.call().budget.call_records();
        assert_eq!((records.len(), records[0].outcome), (1, UpstreamCallOutcome::Status(200)));
        assert!(records[0].address.is_some() && records[0].span.1.is_some());
        let refused = calls.send(&bench.shop, request("GET", "/json?n=2")).await.unwrap_err();
        assert_eq!(refused.code(), "limit-calls");
    }
    let request_calls = calls(&bench, &coalescer, call(1, 1000, 1));
    request_calls.send(&bench.shop, request("GET", "/json?n=1")).await.unwrap();
    assert_eq!(bench.upstream.hits("/json"), 2, "nothing is cached");
}

#[tokio::test]
async fn a_request_does_not_wait_for_the_quota_of_another() {
    let MisbehavingShop { upstream, services, shop } = start_shop().await;
    let pool = OffloadPool::start(OffloadConfig::default()).unwrap();
    let (first, second) = (call(10, 1 << 20, 1), call(10, 1 << 20, 1));
    let months = std::time::Duration::from_secs(1 << 24);
    pool.quota().charge(first.quota_key().for_responses(), months, std::time::Instant::now());
    let bench = MisbehavingShop { upstream, services: services.with_offload(pool.clone()), shop };
    let coalescer = coalescer();
    let (first, second) = (calls(&bench, &coalescer, first), calls(&bench, &coalescer, second));
    let path = "/encoded?with=br";
    let both =
        join(first.send(&bench.shop, request("GET", path)), second.send(&bench.shop, request("GET", path)));
    let both = with_timeout("a shared response", both).await;
    assert!(both.0.is_ok_and(|answer| answer.status == 200) && both.1.is_ok());
    assert_eq!(bench.upstream.hits("/encoded"), 1);
    assert_eq!(pool.stats().kinds.get("decompress").map(|kind| kind.jobs), Some(1), "decoded in the pool");
}

#[tokio::test]
async fn a_shared_response_counts_once_until_the_last_request_drops_it() {
    let (bench, coalescer, accounts) = (start_shop().await, coalescer(), TestAccounts::new(192 << 10));
    let requests = [(); 2].map(|()| calls(&bench, &coalescer, accounts.call()));
    let path = "/json?n=1&text=100000";
    let [first, second] = requests.each_ref().map(|calls| calls.send(&bench.shop, request("GET", path)));
    let (first, second) = join(first, second).await;
    assert!(first.is_ok() && second.is_ok());
    assert_eq!((bench.upstream.hits("/json"), accounts.held_bytes()), (1, 128 << 10));
    assert_held_until_dropped(&accounts, (requests, first), second);
}

#[tokio::test]
async fn a_request_does_not_fail_for_the_account_of_another() {
    let (bench, coalescer) = (start_shop().await, coalescer());
    let (full, empty) = (TestAccounts::new(0), TestAccounts::new(192 << 10));
    let [first, second] = [&full, &empty].map(|accounts| calls(&bench, &coalescer, accounts.call()));
    let send = |calls: &RequestCalls| calls.send(&bench.shop, request("GET", "/json?n=1&text=100000"));
    let both = with_timeout("both responses", join(send(&first), send(&second))).await;
    assert_eq!(both.0.unwrap_err().code(), "answer-unfinished");
    assert_eq!(both.1.unwrap().status, 200);
    assert!(
        first.call().budget.has_reached_client_limit(),
        "so that a shared operation is not shared with others"
    );
    assert_eq!((bench.upstream.hits("/json"), empty.held_bytes()), (2, 128 << 10));
}

#[tokio::test]
async fn a_shared_response_keeps_nothing_else_of_the_account_of_the_request_that_started_it() {
    let (bench, coalescer, accounts) = (start_shop().await, coalescer(), TestAccounts::new(512 << 10));
    let requests = [(); 2].map(|()| calls(&bench, &coalescer, accounts.call()));
    let path = "/json?n=1&text=100000";
    bench.services.send(requests[0].call(), &bench.shop, request("GET", path)).await.unwrap();
    let [first, second] = requests.each_ref().map(|calls| calls.send(&bench.shop, request("GET", path)));
    let (first, second) = join(first, second).await;
    assert!(first.is_ok() && second.is_ok() && accounts.held_bytes() > 128 << 10);
    assert_eq!(bench.upstream.hits("/json"), 2);
    assert_held_until_dropped(&accounts, (requests, first), second);
}

#[tokio::test]
async fn requests_share_a_call_again_if_the_account_of_the_first_has_no_room() {
    let (bench, coalescer) = (start_shop().await, coalescer());
    let accounts: Vec<_> = [0, 192, 192, 192, 192].map(|kib| TestAccounts::new(kib << 10)).into();
    let requests: Vec<_> =
        accounts.iter().map(|accounts| calls(&bench, &coalescer, accounts.call())).collect();
    let path = "/json?n=1&text=100000";
    let answers = join_all(requests.iter().map(|calls| calls.send(&bench.shop, request("GET", path))));
    let answers = with_timeout("all responses", answers).await;
    let codes: Vec<_> =
        answers.iter().map(|answer| answer.as_ref().map_or_else(|error| error.code(), |_| "")).collect();
    assert_eq!(codes, ["answer-unfinished", "", "", "", ""]);
    let held: Vec<u64> = accounts.iter().map(TestAccounts::held_bytes).collect();
    assert_eq!((bench.upstream.hits("/json"), held), (2, vec![0, 128 << 10, 0, 0, 0]));
}

#[tokio::test(start_paused = true)]
async fn a_request_calls_alone_while_it_has_time_for_it() {
    let (fleet, coalescer) = (Arc::new(SimulatedFleet::default()), coalescer());
    fleet.set_behaviour(&[1], EndpointBehaviour::WaitLarge(3_000));
    let (services, shop) = fleet.shop(&THREE_TARGETS[..1], |_| ());
    let (full, empty) = (TestAccounts::new(0), TestAccounts::new(192 << 10));
    let requests =
        [full.call(), full.call(), full.call(), empty.call_with_timeout(std::time::Duration::from_secs(10))]
            .map(|call| RequestCalls::new(services.clone(), call).with_coalescer(Arc::clone(&coalescer)));
    let begun = tokio::time::Instant::now();
    let answers = join_all(requests.iter().map(|calls| calls.send(&shop, request("GET", "/")))).await;
    let codes: Vec<_> =
        answers.iter().map(|answer| answer.as_ref().map_or_else(|error| error.code(), |_| "")).collect();
    assert_eq!(codes, ["answer-unfinished", "answer-unfinished", "answer-unfinished", ""]);
    // It waits for two shared calls. After a third one, less than three seconds would be left.
    assert_eq!((fleet.take_sent(1).len(), begun.elapsed().as_secs()), (4, 9));
}

#[tokio::test]
async fn requests_share_the_error_if_the_gateway_holds_too_much() {
    let (bench, coalescer) = (start_shop().await, coalescer());
    let full = TestAccounts { kind: ReceivedLimit::Total, ..TestAccounts::new(0) };
    let [first, second] = [(); 2].map(|()| calls(&bench, &coalescer, full.call()));
    let send = |calls: &RequestCalls| calls.send(&bench.shop, request("GET", "/json?n=1&text=100000"));
    let both = with_timeout("both responses", join(send(&first), send(&second))).await;
    assert_eq!([both.0, both.1].map(|answer| answer.unwrap_err().code()), ["answer-unfinished"; 2]);
    assert_eq!(bench.upstream.hits("/json"), 1);
    assert!([first, second].iter().all(|calls| !calls.call().budget.has_reached_client_limit()));
}

#[tokio::test]
async fn requests_that_differ_for_the_service_are_not_coalesced() {
    let bench = start_shop_with(|config| config.forward = vec!["x-key".to_owned()]).await;
    let coalescer = coalescer();
    let requests: Vec<_> = ["a", "b", "a"].map(|key| calls(&bench, &coalescer, client(key))).into();
    let answers =
        join_all(requests.iter().map(|calls| calls.send(&bench.shop, request("GET", "/echo")))).await;
    let keys: Vec<_> = answers
        .iter()
        .map(|answer| json(answer.as_ref().unwrap())["headers"]["x-key"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(keys, ["a", "b", "a"]);
    assert_eq!(bench.upstream.hits("/echo"), 2);
}

#[tokio::test]
async fn does_not_coalesce_unsafe_requests_and_compares_bodies_of_queries() {
    let (bench, coalescer) = (start_shop().await, coalescer());
    let requests = || [(); 2].map(|()| calls(&bench, &coalescer, call(10, 1000, 10)));
    let post = |body: &'static str| ServiceRequest { body: body.into(), ..request("POST", "/body") };
    join_all(requests().iter().map(|calls| calls.send(&bench.shop, post("a")))).await;
    assert_eq!(bench.upstream.hits("/body"), 2);
    let requests = requests();
    let asked = join(
        join_all(requests.iter().map(|calls| calls.send_safe(&bench.shop, post("a")))),
        join_all(requests.iter().map(|calls| calls.send_safe(&bench.shop, post("b")))),
    )
    .await;
    let bodies = [asked.0, asked.1].map(|answers| answers.into_iter().map(|answer| answer.unwrap().body));
    assert_eq!(bodies.map(Vec::from_iter), [["a", "a"], ["b", "b"]]);
    assert_eq!(bench.upstream.hits("/body"), 4);
}

#[tokio::test]
async fn a_shared_call_ends_with_its_last_request() {
    let (bench, coalescer) = (start_shop().await, coalescer());
    let (first, second) = (calls(&bench, &coalescer, client("")), calls(&bench, &coalescer, client("")));
    let asked = [&first, &second].map(|calls| tokio::spawn(calls.send(&bench.shop, request("GET", "/hang"))));
    drop((first, second));
    bench.upstream.wait_for_request("/hang").await;
    let [first, second] = asked;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    assert!(!second.is_finished());
    second.abort();
    bench.upstream.wait_for_close("/hang").await;
    assert_eq!(bench.upstream.hits("/hang"), 1);
}

#[tokio::test]
async fn a_read_after_a_write_joins_no_call_of_another_request() {
    let (bench, coalescer) = (start_shop().await, coalescer());
    let (reader, writer) = (calls(&bench, &coalescer, client("")), calls(&bench, &coalescer, client("")));
    let earlier = tokio::spawn(reader.send(&bench.shop, request("GET", "/hang")));
    bench.upstream.wait_for_request("/hang").await;
    writer.send(&bench.shop, request("PUT", "/echo")).await.unwrap();
    let later = tokio::spawn(writer.send(&bench.shop, request("GET", "/hang")));
    bench.upstream.wait_for_requests("/hang", 2).await;
    [earlier, later].iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn failures_are_shared_only_while_in_flight() {
    let (bench, coalescer) = (start_shop().await, coalescer());
    let requests: Vec<_> = (0..2).map(|_| calls(&bench, &coalescer, call(10, 1000, 10))).collect();
    let answers =
        join_all(requests.iter().map(|calls| calls.send(&bench.shop, request("GET", "/garbage")))).await;
    assert!(answers.iter().all(|answer| answer.as_ref().unwrap_err().code() == "upstream-broken"));
    let hits = bench.upstream.hits("/garbage");
    let request_calls = calls(&bench, &coalescer, call(10, 1000, 10));
    assert!(request_calls.send(&bench.shop, request("GET", "/garbage")).await.is_err());
    assert!(bench.upstream.hits("/garbage") > hits);
}

#[tokio::test]
async fn limits_apply_to_each_request_separately() {
    let (bench, coalescer) = (start_shop().await, coalescer());
    let small = calls(&bench, &coalescer, call(10, 3, 10));
    let large = calls(&bench, &coalescer, call(10, 1000, 10));
    let over = RequestBudget::new(std::time::Duration::ZERO, 10, 1000, 10);
    let request_calls =
        calls(&bench, &coalescer, RequestCall { budget: Arc::new(over), ..RequestCall::unlimited() });
    let asked =
        [&small, &large, &request_calls].map(|calls| calls.send(&bench.shop, request("GET", "/json?n=1")));
    let answers = join_all(asked).await;
    let codes: Vec<_> =
        answers.iter().map(|answer| answer.as_ref().map_or_else(|error| error.code(), |_| "")).collect();
    assert_eq!(codes, ["limit-received", "", "limit-deadline"]);
    let call_coalescer = Arc::new(CallCoalescer::new(3));
    let large = calls(&bench, &call_coalescer, call(10, 1000, 10));
    let error = large.send(&bench.shop, request("GET", "/json?n=1")).await.unwrap_err();
    assert_eq!(error.code(), "limit-received");
}

#[tokio::test]
async fn checks_the_rights_of_each_caller() {
    let (bench, coalescer) = (start_shop().await, coalescer());
    let rights = crate::CallRights { services: Some(["other".into()].into()), methods: None };
    let barred =
        calls(&bench, &coalescer, RequestCall { rights: Some(Arc::new(rights)), ..call(10, 1000, 10) });
    let free = calls(&bench, &coalescer, call(10, 1000, 10));
    let (free, barred) = join(
        free.send(&bench.shop, request("GET", "/json?n=1")),
        barred.send(&bench.shop, request("GET", "/json?n=1")),
    )
    .await;
    assert!(free.is_ok());
    assert_eq!(barred.unwrap_err().code(), "service-forbidden");
}
