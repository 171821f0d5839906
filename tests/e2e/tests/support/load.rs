//! Continuous load from many clients; failures are collected and reported at the end.
//!
//! Half of the clients reuse their connection, half open one for each request. A client that receives
//! `Connection: close` opens a new connection; every other end of a connection is a failure.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use testkit::http::{HeldConnection, HttpTestError, TestResponse};
use tokio::task::JoinHandle;

/// Builds the request of each turn.
type RequestBuilder = Arc<dyn Fn(usize) -> UnsentTestRequest + Send + Sync>;

/// A request that has not been sent yet.
pub(crate) struct UnsentTestRequest {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) headers: Vec<(&'static str, &'static str)>,
    pub(crate) body: &'static str,
}

/// Clients that send requests until `end` is called.
pub(crate) struct ClientLoad {
    response_count: Arc<AtomicUsize>,
    is_stopped: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Vec<String>>>,
}

impl ClientLoad {
    /// Starts the clients. `judge` returns an error for an unexpected answer.
    pub(crate) fn start(
        url: &str,
        ask: impl Fn(usize) -> UnsentTestRequest + Send + Sync + 'static,
        judge: fn(&TestResponse) -> Result<(), String>,
    ) -> Self {
        const CLIENTS: usize = 8;
        let (response_count, is_stopped) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let ask: RequestBuilder = Arc::new(ask);
        let client = |number| {
            let client = LoadClient {
                url: url.to_owned(),
                keep_alive: number % 2 == 0,
                build_request: ask.clone(),
                check: judge,
                response_count: response_count.clone(),
                is_stopped: is_stopped.clone(),
            };
            tokio::spawn(client.run())
        };
        let clients = (0..CLIENTS).map(client).collect();
        Self { response_count, is_stopped, clients }
    }

    /// Waits until this many more requests have been answered.
    pub(crate) async fn wait_for_responses(&self, more: usize) {
        let wanted = self.response_count.load(Relaxed) + more;
        let enough = async {
            while self.response_count.load(Relaxed) < wanted {
                tokio::task::yield_now().await;
            }
        };
        testkit::with_timeout("answers to clients", enough).await;
    }

    /// Stops the clients and returns all failures.
    pub(crate) async fn stop(self) -> Vec<String> {
        self.is_stopped.store(true, Relaxed);
        let mut failures = Vec::new();
        for client in self.clients {
            failures.extend(client.await.expect("a client"));
        }
        failures
    }
}

struct LoadClient {
    url: String,
    keep_alive: bool,
    build_request: RequestBuilder,
    check: fn(&TestResponse) -> Result<(), String>,
    response_count: Arc<AtomicUsize>,
    is_stopped: Arc<AtomicBool>,
}

impl LoadClient {
    async fn run(self) -> Vec<String> {
        let mut failures = Vec::new();
        let mut connection = None;
        let mut turn = 0;
        while !self.is_stopped.load(Relaxed) {
            match self.send_request(&mut connection, turn).await {
                Ok(answer) => failures.extend((self.check)(&answer).err()),
                Err(error) => {
                    connection = None;
                    failures.push(format!("request {turn}: {error:?}"));
                }
            }
            self.response_count.fetch_add(1, Relaxed);
            turn += 1;
        }
        failures
    }

    async fn send_request(
        &self,
        held_connection: &mut Option<HeldConnection>,
        turn: usize,
    ) -> Result<TestResponse, HttpTestError> {
        let mut connection = match held_connection.take() {
            Some(connection) => connection,
            None => HeldConnection::open(&self.url).await?,
        };
        let UnsentTestRequest { method, path, headers, body } = (self.build_request)(turn);
        let answer = connection.request(method, path, &headers, body).await?;
        if self.keep_alive && answer.header("connection") != "close" {
            *held_connection = Some(connection);
        }
        Ok(answer)
    }
}
