//! A gateway, and the misbehaving service behind it.
//!
//! Most tests share one, so that each also shows that the gateway goes on after all the others. It lives
//! on a runtime of its own, since every test has another one, and as long as any test holds it: a static
//! would never be dropped, and its process would outlive the tests.

use std::sync::{Arc, Weak};

use serde_json::Value;
use testkit::Gateway;
use testkit::misbehave::{self, Upstream};
use tokio::runtime::Runtime;
use tokio::sync::Mutex;

use super::query::{Query, problem};

/// The routes of the shared gateway. Times are generous, since the tests share a machine; what is counted
/// in bytes, calls or CPU time is small.
const ROUTES: &str = "
  - path: /query
    query:
      services: [up, impatient, dead, guarded]
      limits: { cpu: 300ms, deadline: 30s, memory: 16MiB, calls: 20, parallel: 4, received: 64KiB,
                output: 32KiB, program: 16KiB, body: 64KiB }
  - path: /write
    query:
      services: [up, impatient, dead, guarded]
      methods: [GET, POST, DELETE]
      limits: { deadline: 30s, parallel: 4 }
  - path: /recorded
    query:
      services: [up, impatient, dead, guarded]
      methods: [GET, HEAD, POST]
      limits: { cpu: 300ms, deadline: 30s, calls: 20, parallel: 4, received: 64KiB, output: 32KiB }
      recordings: { callers: [anyone], size: 32KiB }
  - path: /shop
    cors: { origins: [https://shop.example.org] }
    query: { services: [up], methods: [GET, POST] }
";

/// A gateway and its service.
pub(crate) struct House {
    pub(crate) gateway: Gateway,
    pub(crate) upstream: Upstream,
    runtime: Option<Runtime>,
}

impl House {
    /// The house of all tests that need no other.
    pub(crate) async fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<House>> = Mutex::const_new(Weak::new());
        let mut shared = SHARED.lock().await;
        if let Some(house) = shared.upgrade() {
            return house;
        }
        let house = Arc::new(Self::own(ROUTES).await);
        *shared = Arc::downgrade(&house);
        house
    }

    /// A house of one's own: for tests that count what their service saw, or end badly on purpose.
    pub(crate) async fn own(routes: &str) -> Self {
        Self::own_with(routes, &[]).await
    }

    /// The same, with files beside its config.
    pub(crate) async fn own_with(routes: &str, files: &'static [(&str, &str)]) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let routes = routes.to_owned();
        let started = runtime.spawn(async move {
            let upstream = misbehave::start().await;
            let config = config(&upstream.url(), &routes);
            (Gateway::start_with(crate::orfa(), &config, files).await, upstream)
        });
        let (gateway, upstream) = started.await.expect("a gateway");
        Self { gateway, upstream, runtime: Some(runtime) }
    }

    /// The text that a query is answered with, and that it went well.
    pub(crate) async fn answer(&self, query: Query) -> String {
        let response = query.send(self).await;
        assert!(response.status.is_success(), "{}: {}", response.status, response.text());
        response.text()
    }

    /// The problem that a query is answered with; and that the next query is answered as if nothing had
    /// happened.
    pub(crate) async fn refuse(&self, query: Query, status: u16, code: &str) -> Value {
        let path = query.path().to_owned();
        let document = problem(&query.send(self).await, status, code);
        self.still_answers(&path).await;
        document
    }

    /// That the gateway still runs programs as it should.
    pub(crate) async fn still_answers(&self, path: &str) {
        let good = "export default async ({ n }, { up }) => (await up.get('/json', { n })).length";
        let answer = self.answer(Query::javascript(good).at(path).input(r#"{"n":3}"#)).await;
        assert_eq!(answer, "3", "the next query, on {path}");
    }
}

impl Drop for House {
    /// Whatever came in, nothing of it was the gateway's fault. (The runtime may not wait for its threads
    /// inside of another one.)
    fn drop(&mut self) {
        let log = self.gateway.log();
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
        let bad = log.iter().find(|line| line.contains("gateway-failed") || line.contains("panicked"));
        assert!(bad.is_none() || std::thread::panicking(), "{bad:?}");
    }
}

fn config(upstream: &str, routes: &str) -> String {
    // Tests compile more at once than one client may.
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
