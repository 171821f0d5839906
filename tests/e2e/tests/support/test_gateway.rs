//! A gateway and the misbehaving service behind it.
//!
//! Most tests share one, so that each of them also shows that the gateway survived the others. Each test has
//! a runtime of its own, so the shared gateway runs on a separate one. It lives as long as any test holds it:
//! a static is never dropped, and its process would outlive the tests.

use std::sync::{Arc, Weak};

use serde_json::Value;
use testkit::GatewayProcess;
use testkit::misbehaving_upstream::{self, MisbehavingUpstream};
use tokio::runtime::Runtime;
use tokio::sync::Mutex;

use super::orfa_binary;
use super::query::{TestQuery, assert_problem};

/// The routes of the shared gateway. Time limits are generous because the tests share a machine; limits on
/// bytes, calls and CPU time are small.
const ROUTES: &str = "
  - path: /query
    query:
      services: [up, impatient, dead, guarded]
      limits: { cpu: 300ms, timeout: 30s, memory: 16MiB, calls: 20, concurrency: 4, upstream_bytes: 64KiB,
                response_body: 32KiB, program_bytes: 16KiB, request_body: 64KiB }
  - path: /write
    query:
      services: [up, impatient, dead, guarded]
      methods: [GET, POST, DELETE]
      limits: { timeout: 30s, concurrency: 4 }
  - path: /recorded
    query:
      services: [up, impatient, dead, guarded]
      methods: [GET, HEAD, POST]
      limits: { cpu: 300ms, timeout: 30s, calls: 20, concurrency: 4, upstream_bytes: 64KiB, response_body: 32KiB }
      recordings: { callers: [anyone], size: 32KiB }
  - path: /shop
    cors: { origins: [https://shop.example.org] }
    query: { services: [up], methods: [GET, POST] }
";

/// A gateway and its upstream service.
pub(crate) struct TestGateway {
    pub(crate) gateway: GatewayProcess,
    pub(crate) upstream: MisbehavingUpstream,
    runtime: Option<Runtime>,
}

impl TestGateway {
    /// Returns the instance shared by all tests that don't need their own.
    pub(crate) async fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<TestGateway>> = Mutex::const_new(Weak::new());
        let mut shared = SHARED.lock().await;
        if let Some(gateway) = shared.upgrade() {
            return gateway;
        }
        let test_gateway = Arc::new(Self::start(ROUTES).await);
        *shared = Arc::downgrade(&test_gateway);
        test_gateway
    }

    /// Starts a separate instance, for tests that count requests to their service or that stop the gateway.
    pub(crate) async fn start(routes: &str) -> Self {
        Self::start_with_files(routes, &[]).await
    }

    /// Like `own`, with additional files beside the config.
    pub(crate) async fn start_with_files(routes: &str, files: &'static [(&str, &str)]) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let routes = routes.to_owned();
        let started = runtime.spawn(async move {
            let upstream = misbehaving_upstream::start().await;
            let config = config(&upstream.url(), &routes);
            (GatewayProcess::start_with(orfa_binary(), &config, files).await, upstream)
        });
        let (gateway, upstream) = started.await.expect("a gateway");
        Self { gateway, upstream, runtime: Some(runtime) }
    }

    /// Sends a query, asserts that it succeeds and returns the text of the answer.
    pub(crate) async fn expect_text(&self, query: TestQuery) -> String {
        let response = query.send(self).await;
        assert!(response.status.is_success(), "{}: {}", response.status, response.text());
        response.text()
    }

    /// Sends a query, asserts that the answer is a problem with this status and code, and that the gateway
    /// then answers another query. Returns the problem document.
    pub(crate) async fn expect_problem(&self, query: TestQuery, status: u16, code: &str) -> Value {
        let path = query.path().to_owned();
        let document = assert_problem(&query.send(self).await, status, code);
        self.assert_responsive(&path).await;
        document
    }

    /// Asserts that the gateway still runs programs correctly.
    pub(crate) async fn assert_responsive(&self, path: &str) {
        let good = "export default async ({ n }, { up }) => (await up.get('/json', { n })).length";
        let answer = self.expect_text(TestQuery::javascript(good).with_path(path).input(r#"{"n":3}"#)).await;
        assert_eq!(answer, "3", "the next query, on {path}");
    }
}

impl Drop for TestGateway {
    /// Asserts that the log has no internal error and no panic. The runtime is shut down in the background
    /// because blocking on its threads inside another runtime is not allowed.
    fn drop(&mut self) {
        let log = self.gateway.log_lines();
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
        let bad = log.iter().find(|line| line.contains("gateway-failed") || line.contains("panicked"));
        assert!(bad.is_none() || std::thread::panicking(), "{bad:?}");
    }
}

fn config(upstream: &str, routes: &str) -> String {
    // Concurrent tests compile more than a single client may.
    let runtime = if routes.contains("runtime:") { "" } else { "runtime: { compile_time: 1m }" };
    format!(
        "
listen: 127.0.0.1:0
shed: {{ automatic: false }}
{runtime}
services:
  up: {{ url: '{upstream}' }}
  impatient: {{ url: '{upstream}', timeout: 100ms }}
  dead: {{ url: 'http://127.0.0.1:1' }}
  guarded:
    url: '{upstream}'
    paths: [/json, /echo, '/status/*']
    headers: {{ x-api-key: hush }}
    forward: [authorization]
routes:
{routes}"
    )
}
