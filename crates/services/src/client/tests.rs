//! Tests of calls to a misbehaving service.

mod balance;
mod coalescing;
mod config_changes;
mod fleet;
mod forward;
mod health;
mod hosts;
mod limits;
mod timeouts;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use futures_util::FutureExt;
use http::HeaderMap;
use offload::{JobRequest, OffloadConfig, OffloadPool};
use serde_json::Value;
use testkit::misbehaving_upstream::{self, MisbehavingUpstream};

use crate::config::{DurationConfig, OneOrMany};
use crate::{
    CallError, CallErrorKind, FaultParty, ProgramResponse, ReceivedAccounts, ReceivedLimit, ReceivedPermit,
    RequestBudget, RequestCall, ServiceConfig, ServiceRequest, ServiceSet, ToProblem, UpstreamCallOutcome,
    UpstreamService,
};

/// A misbehaving service with the name `shop`.
struct MisbehavingShop {
    upstream: MisbehavingUpstream,
    services: ServiceSet,
    shop: Arc<UpstreamService>,
}

async fn start_shop() -> MisbehavingShop {
    start_shop_with(|_| ()).await
}

async fn start_shop_with(change: impl FnOnce(&mut ServiceConfig)) -> MisbehavingShop {
    let upstream = misbehaving_upstream::start().await;
    let mut config = ServiceConfig::with_url(upstream.url());
    change(&mut config);
    let services = ServiceSet::new(&BTreeMap::from([("shop".to_owned(), config)])).unwrap();
    let shop = services.get("shop").unwrap().clone();
    MisbehavingShop { upstream, services, shop }
}

fn request(method: &str, path: &str) -> ServiceRequest {
    ServiceRequest {
        method: method.parse().unwrap(),
        path_and_query: path.parse().unwrap(),
        headers: HeaderMap::new(),
        body: bytes::Bytes::new(),
    }
}

/// Returns a call with these limits on calls, received bytes and concurrency, and a deadline of one hour.
fn call(calls: u32, received: u64, parallel: usize) -> RequestCall {
    let hour = std::time::Duration::from_secs(3600);
    RequestCall {
        budget: Arc::new(RequestBudget::new(hour, calls, received, parallel)),
        ..RequestCall::unlimited()
    }
}

/// Accounts in which all clients together may have `limit` bytes.
#[derive(Clone, Debug)]
struct TestAccounts {
    limit: u64,
    /// The limit that is reported when there are more.
    kind: ReceivedLimit,
    held_bytes: Arc<AtomicU64>,
}

#[derive(Debug)]
struct TestPermit {
    accounts: TestAccounts,
    bytes: AtomicU64,
}

impl TestAccounts {
    fn new(limit: u64) -> Self {
        Self { limit, kind: ReceivedLimit::Client, held_bytes: Arc::default() }
    }

    fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Relaxed)
    }

    /// Returns the context of a request that counts here, with one call at a time and a deadline of one hour.
    fn call(&self) -> RequestCall {
        self.call_with_timeout(std::time::Duration::from_secs(3600))
    }

    /// Returns the context of a request that counts here, with one call at a time and this deadline.
    fn call_with_timeout(&self, time: std::time::Duration) -> RequestCall {
        let budget = RequestBudget::new(time, 10, 1 << 30, 1);
        let budget = budget.with_accounts(Arc::new(self.clone()), [192, 0, 2, 1].into());
        RequestCall { budget: Arc::new(budget), ..RequestCall::unlimited() }
    }
}

impl ReceivedAccounts for TestAccounts {
    fn open_account(&self, _: IpAddr) -> Box<dyn ReceivedPermit> {
        Box::new(TestPermit { accounts: self.clone(), bytes: AtomicU64::new(0) })
    }
}

impl ReceivedPermit for TestPermit {
    fn try_hold(&self, total: u64) -> Result<(), ReceivedLimit> {
        let more = total.saturating_sub(self.bytes.load(Relaxed));
        if self.accounts.held_bytes() + more > self.accounts.limit {
            return Err(self.accounts.kind);
        }
        self.accounts.held_bytes.fetch_add(more, Relaxed);
        self.bytes.fetch_add(more, Relaxed);
        Ok(())
    }

    fn release(&self) {
        self.accounts.held_bytes.fetch_sub(self.bytes.swap(0, Relaxed), Relaxed);
    }
}

impl Drop for TestPermit {
    fn drop(&mut self) {
        self.release();
    }
}

impl MisbehavingShop {
    async fn get(&self, path: &str) -> Result<ProgramResponse, CallError> {
        self.services.send(&RequestCall::unlimited(), &self.shop, request("GET", path)).await
    }

    async fn get_error(&self, path: &str) -> (&'static str, u16, CallErrorKind) {
        let error = self.get(path).await.unwrap_err();
        let told = format!("{error} {}", error.hint());
        assert!(!told.contains("127.0.0.1"), "the error reveals an address: {told}");
        (error.code(), error.status().as_u16(), error.kind())
    }
}

fn json(response: &ProgramResponse) -> Value {
    serde_json::from_slice(&response.body).unwrap()
}

#[tokio::test]
async fn sends_a_request_unchanged() {
    let bench = start_shop().await;
    let mut service_request = request("POST", "/echo?a=%20b");
    service_request.headers.insert("content-type", "text/plain".parse().unwrap());
    service_request.body = "hello".into();
    let answer = bench.services.send(&RequestCall::unlimited(), &bench.shop, service_request).await.unwrap();
    let value = json(&answer);
    assert_eq!(answer.status, 200);
    assert_eq!(
        (&value["method"], &value["path"], &value["body"]),
        (&"POST".into(), &"/echo?a=%20b".into(), &"hello".into())
    );
    assert_eq!(value["headers"]["content-length"], "5");
    assert_eq!(value["headers"]["host"], bench.upstream.address().to_string());
    assert!(value["headers"].get("accept-encoding").is_none());
}

#[tokio::test]
async fn adds_configured_and_forwarded_headers_to_every_call() {
    let bench = start_shop_with(|config| {
        config.forward = vec!["Authorization".into()];
        config.headers = BTreeMap::from([("x-api-key".into(), "secret".into())]);
        config.url = OneOrMany::One(format!("{}/", config.url.as_slice()[0]));
    })
    .await;
    let client = HeaderMap::from_iter([
        (http::header::AUTHORIZATION, "Bearer me".parse().unwrap()),
        (http::header::COOKIE, "a=b".parse().unwrap()),
    ]);
    let call = RequestCall { headers: Some(Arc::new(client)), ..RequestCall::unlimited() };
    let value = json(&bench.services.send(&call, &bench.shop, request("GET", "/echo")).await.unwrap());
    assert_eq!(value["headers"]["authorization"], "Bearer me");
    assert_eq!(value["headers"]["x-api-key"], "secret");
    assert!(value["headers"].get("cookie").is_none());
    let mut guess = request("GET", "/echo");
    guess.headers.insert("x-api-key", "guess".parse().unwrap());
    let refused = bench.services.send(&call, &bench.shop, guess).await.unwrap_err();
    assert_eq!((refused.code(), refused.fault()), ("header-reserved", FaultParty::Program));
    assert_eq!(bench.upstream.hits("/echo"), 1);
}

#[tokio::test]
async fn prepends_the_base_path() {
    let bench = start_shop_with(|config| {
        config.url = OneOrMany::One(format!("{}/status/", config.url.as_slice()[0]))
    })
    .await;
    assert_eq!(bench.get("/418?x=1").await.unwrap().status, 418);
}

#[tokio::test]
async fn alternates_targets_on_pooled_connections() {
    let other = misbehaving_upstream::start().await;
    let bench = start_shop_with(|config| {
        config.url = OneOrMany::Many(vec![config.url.as_slice()[0].clone(), other.url()]);
    })
    .await;
    for _ in 0..6 {
        bench.get("/json").await.unwrap();
    }
    assert_eq!((bench.upstream.hits("/json"), other.hits("/json")), (3, 3));
    assert_eq!((bench.upstream.connections(), other.connections()), (1, 1));
}

#[tokio::test]
async fn redirects_and_error_statuses_are_responses() {
    let bench = start_shop().await;
    for (path, status) in [("/redirect", 302), ("/status/500", 500), ("/status/204", 204), ("/nothing", 404)]
    {
        assert_eq!(bench.get(path).await.unwrap().status, status, "{path}");
    }
    assert_eq!(bench.upstream.hits("/echo"), 0);
}

#[tokio::test]
async fn decodes_responses_and_removes_their_coding_headers() {
    let bench = start_shop().await;
    for with in ["gzip", "br", "zstd"] {
        let answer = bench.get(&format!("/encoded?with={with}")).await.unwrap();
        assert_eq!(json(&answer).as_array().map(Vec::len), Some(100), "{with}");
        assert!(
            !answer.headers.contains_key("content-encoding")
                && !answer.headers.contains_key("content-length")
        );
    }
    let unknown = bench.get("/encoded?with=rot13").await.unwrap();
    assert_eq!(unknown.headers["content-encoding"], "rot13");
    let head = bench
        .services
        .send(&RequestCall::unlimited(), &bench.shop, request("HEAD", "/encoded"))
        .await
        .unwrap();
    assert_eq!(head.status, 200);
}

#[tokio::test]
async fn decodes_responses_in_the_pool() {
    let MisbehavingShop { upstream: _upstream, services, shop } = start_shop().await;
    let pool = OffloadPool::start(OffloadConfig::default()).unwrap();
    let services = services.with_offload(pool.clone());
    let answer =
        services.send(&RequestCall::unlimited(), &shop, request("GET", "/encoded?with=br")).await.unwrap();
    assert_eq!(json(&answer).as_array().map(Vec::len), Some(100));
    assert_eq!(pool.stats().kinds["decompress"].jobs, 1);
}

#[tokio::test]
async fn waiting_for_quota_is_not_counted_as_a_service_failure() {
    let bench =
        start_shop_with(|config| config.timeout = DurationConfig(std::time::Duration::from_secs(1))).await;
    let (services, shop) = (bench.services.clone(), &bench.shop);
    let pool = OffloadPool::start(OffloadConfig::default()).unwrap();
    let budget = RequestBudget::new(std::time::Duration::from_millis(200), 1, 1 << 20, 1);
    let call = RequestCall { budget: Arc::new(budget), ..RequestCall::unlimited() };
    let months = std::time::Duration::from_secs(1 << 24);
    pool.quota().charge(call.quota_key().for_responses(), months, std::time::Instant::now());
    let response = services.with_offload(pool).send(&call, shop, request("GET", "/encoded?with=br")).await;
    assert_eq!(response.unwrap_err().code(), "limit-deadline");
    assert!(bench.services.stats()[0].endpoints.iter().all(|endpoint| endpoint.failures == 0));
}

#[tokio::test]
async fn calls_of_a_shared_budget_wait_for_no_quota() {
    let MisbehavingShop { upstream: _upstream, services, shop } = start_shop().await;
    let pool = OffloadPool::start(OffloadConfig::default()).unwrap();
    let budget = RequestBudget::new(std::time::Duration::from_secs(3600), 1, 1 << 20, 1).into_shared();
    let call = RequestCall { budget: Arc::new(budget), ..RequestCall::unlimited() };
    let months = std::time::Duration::from_secs(1 << 24);
    pool.quota().charge(call.quota_key().for_responses(), months, std::time::Instant::now());
    let services = services.with_offload(pool.clone());
    let answer = services.send(&call, &shop, request("GET", "/encoded?with=br"));
    let answer = testkit::with_timeout("a decoded response", answer).await;
    assert!(answer.is_ok_and(|answer| answer.status == 200));
    assert_eq!(pool.stats().kinds["decompress"].jobs, 1);
}

#[tokio::test]
async fn a_full_pool_and_a_missed_deadline_are_different_errors() {
    let MisbehavingShop { upstream: _upstream, services, shop } = start_shop().await;
    let pool = OffloadPool::start(OffloadConfig { threads: 1, ..OffloadConfig::default() }).unwrap();
    let call = RequestCall::unlimited();
    let request_for_pool = || JobRequest {
        kind: "test",
        payer: call.quota_key().for_responses(),
        estimate: std::time::Duration::ZERO,
        deadline: std::time::Instant::now() + std::time::Duration::from_secs(3600),
    };
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let mut queued = vec![pool.run(request_for_pool(), move |_| wait.recv().is_ok()).boxed()];
    while queued.last_mut().unwrap().now_or_never().is_none() {
        queued.push(pool.run(request_for_pool(), |_| true).boxed());
    }
    let full =
        services.with_offload(pool.clone()).send(&call, &shop, request("GET", "/encoded?with=br")).await;
    let full = full.unwrap_err();
    assert_eq!((full.code(), full.status().as_u16()), ("answer-unfinished", 503));
    drop(release);
}

#[tokio::test]
async fn a_misbehaving_service_is_reported_as_broken() {
    let bench = start_shop().await;
    for path in ["/reset", "/short", "/garbage", "/chunked-broken"] {
        assert_eq!(bench.get_error(path).await, ("upstream-broken", 502, CallErrorKind::Broken), "{path}");
        assert_eq!(bench.upstream.hits(path), 1, "{path} was sent again");
    }
    assert_eq!(bench.get("/long").await.unwrap().body, "more");
    assert_eq!(bench.get("/json").await.unwrap().status, 200);
}

#[tokio::test]
async fn recovers_from_stale_connections() {
    let bench = start_shop().await;
    for _ in 0..20 {
        assert_eq!(bench.get("/stale").await.unwrap().status, 200);
    }
    assert_eq!(bench.upstream.hits("/stale"), 20);
}

#[tokio::test]
async fn a_refused_connection_and_a_timeout_are_different_errors() {
    let bench = start_shop_with(|config| config.timeout = DurationConfig::from_millis(20)).await;
    for path in ["/hang", "/stall"] {
        assert_eq!(bench.get_error(path).await, ("upstream-timeout", 504, CallErrorKind::Timeout));
        bench.upstream.wait_for_close(path).await;
    }
    let shop = start_shop_with(|config| config.url = OneOrMany::One("http://127.0.0.1:1".into())).await;
    assert_eq!(shop.get_error("/").await, ("upstream-unreachable", 502, CallErrorKind::Unreachable));
}

#[tokio::test]
async fn forbidden_requests_are_not_sent() {
    let bench = start_shop_with(|config| config.paths = vec!["/echo".into(), "/status/*".into()]).await;
    for (method, path, code) in [
        ("GET", "/json", "path-forbidden"),
        ("GET", "/status/..", "path-dot-segment"),
        ("GET", "/status/%2e%2e/json", "path-dot-segment"),
        ("GET", "/status%2f200", "path-encoded-slash"),
        ("TRACE", "/echo", "method-forbidden"),
        ("CONNECT", "/echo", "method-forbidden"),
    ] {
        let call = call(1, 1, 1);
        let error = bench.services.send(&call, &bench.shop, request(method, path)).await.unwrap_err();
        assert_eq!(
            (error.code(), error.kind(), error.fault()),
            (code, CallErrorKind::Forbidden, FaultParty::Program),
            "{path}"
        );
        assert!(call.budget.call_records().is_empty() && call.budget.take_call(), "{path} cost a call");
    }
    let looping = RequestCall { hops: 8, ..RequestCall::unlimited() };
    let error = bench.services.send(&looping, &bench.shop, request("GET", "/echo")).await.unwrap_err();
    assert_eq!((error.code(), error.status().as_u16()), ("upstream-loop", 508));
    assert_eq!(bench.upstream.connections(), 0);
}

#[tokio::test]
async fn service_names_are_case_insensitive() {
    let bench = start_shop().await;
    let (service, path) = bench.services.resolve("http://SHOP/a?b").unwrap();
    assert_eq!((&**service.name(), path.as_str()), ("shop", "/a?b"));
    let unknown = bench.services.resolve("http://other/").unwrap_err();
    assert_eq!((unknown.code(), unknown.kind()), ("service-unknown", CallErrorKind::UnknownService));
    assert_eq!(bench.services.names().map(|name| &**name).collect::<Vec<_>>(), ["shop"]);
}

#[tokio::test]
async fn dropping_the_future_cancels_the_exchange() {
    let bench = start_shop().await;
    let call = RequestCall::unlimited();
    let sending = tokio::spawn(bench.services.send(&call, &bench.shop, request("POST", "/hang")));
    bench.upstream.wait_for_request("/hang").await;
    sending.abort();
    bench.upstream.wait_for_close("/hang").await;
    assert_eq!(call.budget.call_records()[0].outcome, UpstreamCallOutcome::NoAnswer);
}
