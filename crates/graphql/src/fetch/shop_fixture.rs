//! A test service with its own port and configurable responses, and a readable form of results.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CACHE_CONTROL, HeaderMap, HeaderValue};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use offload::{OffloadConfig, OffloadPool, QuotaKey};
use services::{RequestCall, ServiceConfig, ServiceSet};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::call_context::{CallContext, RouteServices, SourceLimits};
use super::outcome::{FetchOutcome, FetchedValues, ValueLocation};

/// A service called `shop`, and the requests it has received.
pub(crate) struct ShopFixture {
    pub(crate) responses: Arc<ShopResponses>,
    pub(crate) route_services: Arc<RouteServices>,
    pub(crate) services: ServiceSet,
    server: tokio::task::JoinHandle<()>,
}

/// The responses of the test service, by `METHOD path?query`.
pub(crate) struct ShopResponses {
    pub(crate) by_request_line: Mutex<BTreeMap<String, (u16, String)>>,
    pub(crate) received: Mutex<Vec<ShopRequest>>,
    /// The `Cache-Control` of responses; empty for none.
    pub(crate) cache_control: Mutex<&'static str>,
    /// Each response takes a permit before it is sent.
    pub(crate) gate: Semaphore,
}

/// A received request.
pub(crate) struct ShopRequest {
    pub(crate) request_line: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl ShopFixture {
    pub(crate) async fn new(answers: &[(&str, u16, &str)]) -> Self {
        Self::with_config(answers, "", false).await
    }

    /// Creates a rig with additional service config as JSON, and with coalescing of calls across requests.
    pub(crate) async fn with_config(answers: &[(&str, u16, &str)], config: &str, coalesces: bool) -> Self {
        let answer = |(line, status, text): &(&str, u16, &str)| {
            let line = if line.contains(' ') { (*line).to_owned() } else { format!("GET {line}") };
            (line, (*status, (*text).to_owned()))
        };
        let shop_responses = Arc::new(ShopResponses {
            by_request_line: Mutex::new(answers.iter().map(answer).collect()),
            received: Mutex::default(),
            cache_control: Mutex::default(),
            gate: Semaphore::new(Semaphore::MAX_PERMITS),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(serve(listener, Arc::clone(&shop_responses)));
        let config: ServiceConfig =
            serde_json::from_str(&format!(r#"{{"url":"{url}"{config}}}"#)).expect("a service's config");
        let services = ServiceSet::new(&BTreeMap::from([("shop".to_owned(), config)])).unwrap();
        let limits = SourceLimits { calls: 20, concurrency: 4, upstream_bytes: 1 << 20 };
        let sources = RouteServices::new(services.clone(), limits, coalesces);
        Self { responses: shop_responses, route_services: sources, services, server }
    }

    pub(crate) fn call_context(&self) -> CallContext {
        self.route_services.call_context(RequestCall::unlimited())
    }

    /// Returns the request lines received so far, sorted.
    pub(crate) fn request_lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .responses
            .received
            .lock()
            .unwrap()
            .iter()
            .map(|request| request.request_line.clone())
            .collect();
        lines.sort();
        lines
    }

    /// Removes and returns the last received request.
    pub(crate) fn pop_last_request(&self) -> ShopRequest {
        self.responses.received.lock().unwrap().pop().expect("a request")
    }
}

impl Drop for ShopFixture {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(listener: TcpListener, responses: Arc<ShopResponses>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        let shop_responses = Arc::clone(&responses);
        let service = service_fn(move |request| respond(Arc::clone(&shop_responses), request));
        tokio::spawn(async move {
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn respond(
    responses: Arc<ShopResponses>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let line = format!("{} {}", head.method, head.uri);
    let body = body.collect().await.expect("a whole request").to_bytes();
    let body = String::from_utf8_lossy(&body).into_owned();
    responses.received.lock().unwrap().push(ShopRequest {
        request_line: line.clone(),
        headers: head.headers,
        body,
    });
    responses.gate.acquire().await.expect("an open gate").forget();
    let known = responses.by_request_line.lock().unwrap().get(&line).cloned();
    let (status, text) = known.unwrap_or_else(|| (599, format!("no response for {line}")));
    let mut response = Response::builder().status(status).body(Full::from(text)).unwrap();
    let control = *responses.cache_control.lock().unwrap();
    if !control.is_empty() {
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static(control));
    }
    Ok(response)
}

/// Runs a future as a request is run, and returns its output and the number of its moves to the pool.
pub(crate) async fn count_moves<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> (T, u64) {
    let hour = Duration::from_secs(3600);
    let pool = OffloadPool::start(OffloadConfig { threads: 1, quota: hour }).expect("a thread");
    let moved = pool.make_movable("test", QuotaKey::new(&1), Instant::now() + hour, future).await;
    (moved.expect("an output"), pool.stats().kinds.get("test").map_or(0, |kind| kind.jobs))
}

/// Formats the result of each target: the text of its value, or the code of its error, or both.
pub(crate) fn describe_outcomes(fetched: &FetchedValues) -> Vec<String> {
    let text = |location: &ValueLocation| {
        let document = &fetched.documents[location.document as usize];
        String::from_utf8_lossy(document.node_by_id(location.node_id).unwrap().text()).into_owned()
    };
    let code = |error: &u32| fetched.errors[*error as usize].code;
    let shown = |outcome: &FetchOutcome| match outcome {
        FetchOutcome::Null => "nothing".to_owned(),
        FetchOutcome::One(place) => text(place),
        FetchOutcome::Many(places) => format!("[{}]", places.iter().map(text).collect::<Vec<_>>().join(",")),
        FetchOutcome::Partial(place, error) => format!("{} but {}", text(place), code(error)),
        FetchOutcome::Failed(error) => code(error).to_owned(),
    };
    fetched.outcomes.iter().map(shown).collect()
}
