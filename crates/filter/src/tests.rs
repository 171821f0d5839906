//! Tests of whole exchanges through modules that are written as text, each for one purpose.
//!
//! In the text, `«x-a»` expands to the address and length of a string, and `‹:method GET|:path /›` to those
//! of a list of headers. `$want` traps unless a host function returned the expected status, which fails the
//! test.

mod bodies;
mod calls;
mod faulty_modules;
mod fuzz;
mod heads;
mod hostile_modules;
mod loading;
mod pieces;
mod refusals;
mod restarts;
mod shared;
mod slices;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, TryFutureExt};
use handler::{HandlerRequest, HandlerResponse};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use services::transport::RequestEndpoint;
use services::{
    RequestBudget, RequestCall, ServiceConfig, ServiceSet, ServiceTransport, StreamedServiceBody,
    TransportError, body,
};

use crate::{
    ExchangeInfo, FilterChain, FilterConfig, FilterEvent, FilterFailure, FilterObserver, FilterRuntime,
    RefusedFilter,
};

/// The imports that tests use: the name, the name in the text, the number of parameters.
const IMPORTS: &[(&str, &str, usize)] = &[
    ("proxy_log", "log", 3),
    ("proxy_set_tick_period_milliseconds", "tick", 1),
    ("proxy_set_effective_context", "effective", 1),
    ("proxy_done", "done", 0),
    ("proxy_get_buffer_bytes", "buffer", 5),
    ("proxy_set_buffer_bytes", "set_buffer", 5),
    ("proxy_get_buffer_status", "buffer_status", 3),
    ("proxy_get_header_map_pairs", "pairs", 3),
    ("proxy_set_header_map_pairs", "set_pairs", 3),
    ("proxy_get_header_map_value", "get", 5),
    ("proxy_add_header_map_value", "add", 5),
    ("proxy_replace_header_map_value", "replace", 5),
    ("proxy_remove_header_map_value", "remove", 3),
    ("proxy_get_property", "property", 4),
    ("proxy_set_property", "set_property", 4),
    ("proxy_send_local_response", "respond", 8),
    ("proxy_continue_stream", "continue", 1),
    ("proxy_close_stream", "close", 1),
    ("proxy_http_call", "http_call", 10),
    ("proxy_get_shared_data", "get_data", 5),
    ("proxy_set_shared_data", "set_data", 5),
    ("proxy_register_shared_queue", "register", 3),
    ("proxy_enqueue_shared_queue", "enqueue", 3),
    ("proxy_dequeue_shared_queue", "dequeue", 3),
    ("proxy_define_metric", "define", 4),
    ("proxy_call_foreign_function", "foreign", 6),
    ("proxy_grpc_call", "grpc_call", 12),
    ("proxy_grpc_stream", "grpc_stream", 9),
    ("proxy_grpc_send", "grpc_send", 4),
    ("proxy_grpc_cancel", "grpc_cancel", 1),
    ("proxy_grpc_close", "grpc_close", 1),
    ("proxy_get_status", "status", 3),
];

/// The part that every module has: a marker, a memory, an allocator.
const COMMON: &str = r#"
    (import "env" "proxy_increment_metric" (func $increment (param i32 i64) (result i32)))
    (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 4)
    (global $free (mut i32) (i32.const 65536))
    (global $seen (mut i32) (i32.const 0))
    (func (export "proxy_abi_version_0_2_1"))
    (func (export "malloc") (param $size i32) (result i32)
        (local $at i32)
        (local.set $at (global.get $free))
        (global.set $free (i32.add (global.get $free) (local.get $size)))
        (local.get $at))
    (func $want (param $wanted i32) (param $status i32)
        (if (i32.ne (local.get $wanted) (local.get $status)) (then unreachable)))
    (func $text (param $map i32) (param $name i32) (param $length i32)
        (call $want (i32.const 0)
            (call $add (local.get $map) (local.get $name) (local.get $length)
                (i32.load (i32.const 0)) (i32.load (i32.const 4)))))
"#;

/// Assembles a module's text.
fn assemble(code: &str) -> Vec<u8> {
    // Only called functions are imported, since the host inspects the imports.
    let calls = |text: &str, name: &str| {
        let call = format!("call ${name}");
        text.split(&call).skip(1).any(|rest| rest.starts_with([' ', ')']))
    };
    let is_called = |name: &str| calls(COMMON, name) || calls(code, name);
    let imports: String = IMPORTS
        .iter()
        .filter(|(_, short, _)| is_called(short))
        .map(|(name, short, parameters)| {
            let parameters = "i32 ".repeat(*parameters);
            format!("(import \"env\" \"{name}\" (func ${short} (param {parameters}) (result i32)))\n")
        })
        .collect();
    let (code, data) = with_data(code);
    let text = format!("(module {imports} {COMMON} {code} {data})");
    wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Replaces strings and lists of headers by their addresses, and returns the data.
fn with_data(code: &str) -> (String, String) {
    let (mut out, mut data, mut at) = (String::new(), String::new(), 1024);
    let mut rest = code;
    while let Some(start) = rest.find(['«', '‹']) {
        let (before, from) = rest.split_at(start);
        let is_text = from.starts_with('«');
        let end = from.find(if is_text { '»' } else { '›' }).expect("a closing mark");
        let inner = &from[from.chars().next().map_or(0, char::len_utf8)..end];
        let bytes = if is_text { inner.replace("\\0", "\0").into_bytes() } else { pairs(inner) };
        let escaped: String = bytes.iter().map(|byte| format!("\\{byte:02x}")).collect();
        data.push_str(&format!("(data (i32.const {at}) \"{escaped}\")\n"));
        out.push_str(&format!("{before} (i32.const {at}) (i32.const {})", bytes.len()));
        at += bytes.len() + 8;
        rest = &from[end + if is_text { '»' } else { '›' }.len_utf8()..];
    }
    out.push_str(rest);
    (out, data)
}

fn pairs(text: &str) -> Vec<u8> {
    let pairs: Vec<(&str, &str)> = text.split('|').filter_map(|pair| pair.split_once(' ')).collect();
    let mut bytes = (pairs.len() as u32).to_le_bytes().to_vec();
    for (name, value) in &pairs {
        bytes.extend((name.len() as u32).to_le_bytes());
        bytes.extend((value.len() as u32).to_le_bytes());
    }
    for text in pairs.iter().flat_map(|(name, value)| [name, value]) {
        bytes.extend(text.bytes());
        bytes.push(0);
    }
    bytes
}

/// Records the events of a module as text.
#[derive(Default)]
struct EventRecorder {
    events: Mutex<Vec<String>>,
    /// The engine for which a tick is due after each callback, if there is one.
    ticking_engine: OnceLock<sandbox::Engine>,
}

impl EventRecorder {
    fn take_events(&self) -> Vec<String> {
        std::mem::take(&mut *self.events.lock().unwrap())
    }
}

impl FilterObserver for EventRecorder {
    fn on_event(&self, event: &FilterEvent<'_>) {
        let words = match event {
            FilterEvent::Callback { name, .. } => (*name).to_owned(),
            FilterEvent::HostCall { name, status, .. } => format!("{name} {status}"),
            // No hook runs, which would take long to print a backtrace.
            FilterEvent::Log { message: "panic", .. } => {
                std::panic::resume_unwind(Box::new("a panic of the host"))
            }
            FilterEvent::Log { message, .. } => format!("log {message}"),
            FilterEvent::Trapped { .. } => "trapped".to_owned(),
            FilterEvent::Returned { .. } => {
                self.ticking_engine.get().iter().for_each(|engine| engine.increment_epoch());
                return;
            }
        };
        self.events.lock().unwrap().push(words);
    }
}

/// A service: `GET /path` is answered with the path, `/wait` never; gRPC with the messages of the request,
/// `/s/no` with a status, `/s/many` with [`MESSAGES`] empty messages.
#[derive(Default)]
struct TestService {
    requests: Mutex<Vec<String>>,
    request_received: tokio::sync::Notify,
    /// Releases the response to `/gate`.
    gate: Arc<tokio::sync::Notify>,
    request_dropped: Arc<tokio::sync::Notify>,
}

struct DropFlag(Arc<tokio::sync::Notify>);

impl Drop for DropFlag {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl ServiceTransport for TestService {
    fn send(
        &self,
        endpoint: &RequestEndpoint,
        request: Request<StreamedServiceBody>,
    ) -> BoxFuture<'static, Result<Response<StreamedServiceBody>, TransportError>> {
        let (service, path) = (endpoint.origin.service.clone(), request.uri().path().to_owned());
        self.requests.lock().unwrap().push(format!("{} {service} {path}", request.method()));
        self.request_received.notify_one();
        let dropped = DropFlag(Arc::clone(&self.request_dropped));
        let gate = Arc::clone(&self.gate);
        let hops = services::headers::count_hops(request.headers()).to_string();
        let called = request.uri().authority().map_or("", |called| called.as_str()).to_owned();
        let upgrades = request.headers().contains_key("upgrade").to_string();
        if request.headers().get("content-type").is_some_and(|value| value == "application/grpc") {
            return futures_util::future::ready(Ok(grpc_response(request))).boxed();
        }
        async move {
            let _dropped = dropped;
            let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            if path == "/gate" {
                gate.notified().await;
            }
            if path == "/wait" {
                std::future::pending::<()>().await;
            }
            let mut text = path.into_bytes();
            text.extend_from_slice(&body);
            let response = Response::builder().status(if text.starts_with(b"/no") { 403 } else { 200 });
            let response =
                response.header("x-hops", hops).header("x-upgrades", upgrades).header("x-called", called);
            Ok(response.header("x-from", "service").body(body::full(text)).unwrap())
        }
        .boxed()
    }
}

/// The number of messages in the response to `/s/many`.
const MESSAGES: usize = 1000;

fn grpc_response(mut request: Request<StreamedServiceBody>) -> Response<StreamedServiceBody> {
    if request.uri().path() == "/s/many" {
        *request.body_mut() = body::full(vec![0; 5 * MESSAGES]);
    }
    let response = Response::builder().header("content-type", "application/grpc").header("x-from", "service");
    if request.uri().path() == "/s/no" {
        let response = response.header("grpc-status", "7").header("grpc-message", "denied");
        return response.body(body::empty()).unwrap();
    }
    let trailers = http::HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]);
    let body = request.into_body().with_trailers(std::future::ready(Some(Ok(trailers))));
    response.body(body.boxed_unsync()).unwrap()
}

/// A test setup: modules in files, the engine, a service.
struct FilterFixture {
    folder: tempfile::TempDir,
    filters: Arc<FilterRuntime>,
    services: ServiceSet,
    test_service: Arc<TestService>,
    recorder: Arc<EventRecorder>,
}

impl FilterFixture {
    /// A setup with at most one instance per module, so that it is deterministic which callbacks share one.
    fn new() -> Self {
        Self::with_restarts(Duration::from_secs(3600))
    }

    /// A setup with this quota of CPU time for the restarts that one client may cause.
    fn with_restarts(limit: Duration) -> Self {
        refusals::install_recorder();
        let recorder = Arc::new(EventRecorder::default());
        let test_service = Arc::new(TestService::default());
        let config = BTreeMap::from([("auth".to_owned(), ServiceConfig::with_url("http://127.0.0.1:1980"))]);
        let services = ServiceSet::new(&config).unwrap().with_transport(test_service.clone());
        let one = std::num::NonZero::<usize>::MIN;
        let filters =
            FilterRuntime::build(Some(recorder.clone()), sandbox::HeavyGate::new(2), one, limit).unwrap();
        Self { folder: tempfile::tempdir().unwrap(), filters, services, test_service, recorder }
    }

    fn write_module(&self, name: &str, wasm: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, wasm).unwrap();
        path
    }

    /// A filter with a module of this text.
    fn filter(&self, name: &str, code: &str) -> FilterConfig {
        let name = format!("{name}.wasm");
        self.write_module(&name, &assemble(code));
        let mut filter = FilterConfig::from_module(name);
        // Test builds are slow.
        filter.limits.cpu = services::DurationConfig::from_millis(100);
        filter
    }

    fn try_chain(&self, config: &[FilterConfig]) -> Result<Arc<FilterChain>, Vec<RefusedFilter>> {
        FilterChain::new(&self.filters, config, self.folder.path(), &self.services).map(Arc::new)
    }

    fn chain(&self, config: &[FilterConfig]) -> Arc<FilterChain> {
        self.try_chain(config).unwrap_or_else(|refused| panic!("{refused:?}"))
    }

    /// A chain of one filter with a module of this text.
    fn single_filter_chain(&self, code: &str) -> Arc<FilterChain> {
        self.chain(&[self.filter("test", code)])
    }

    fn take_events(&self) -> Vec<String> {
        self.recorder.take_events()
    }

    /// Yields until background work has reached a state.
    async fn wait_until(&self, is_so: impl Fn(&Self) -> bool) {
        while !is_so(self) {
            tokio::task::yield_now().await;
        }
    }

    fn stats(&self) -> crate::FilterStats {
        self.filters.stats().into_iter().next().unwrap_or_default()
    }
}

/// Occupies the instance of a chain's filter until other tasks have run. The next callback waits for it, in a
/// task of its own.
fn occupy(chain: &FilterChain) {
    let instance = chain.plugins()[0].vm.slots[0].try_lock_state().expect("the instance is free");
    tokio::spawn(async move {
        tokio::task::yield_now().await;
        drop(instance);
    });
}

fn exchange_info() -> ExchangeInfo {
    ExchangeInfo {
        route: "/test/*".into(),
        service: Some("shop".into()),
        source: "192.0.2.1:1234".parse().unwrap(),
        destination: Some("192.0.2.2:80".parse().unwrap()),
        connection: 7,
        tls: None,
        started_at: (std::time::Instant::now(), std::time::SystemTime::now()),
    }
}

fn get(path: &str) -> Request<StreamedServiceBody> {
    Request::get(path).header("host", "example.org").header("x-a", "1").body(body::empty()).unwrap()
}

fn post(body: impl Into<Bytes>) -> Request<StreamedServiceBody> {
    let body = body.into();
    let request = Request::post("/post").header("host", "example.org").header("content-length", body.len());
    request.body(body::full(body)).unwrap()
}

/// A body that arrives in these pieces.
fn piecewise_body(pieces: &'static [&'static str]) -> StreamedServiceBody {
    let frames = pieces.iter().map(|piece| Ok(http_body::Frame::data(Bytes::from_static(piece.as_bytes()))));
    http_body_util::StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync()
}

/// A body of `count` equal pieces, each ready at a later poll than the one before.
fn delayed_pieces_body(piece: &'static str, count: usize) -> StreamedServiceBody {
    let frames = futures_util::stream::unfold(count, move |left| async move {
        tokio::task::yield_now().await;
        let frame = Ok(http_body::Frame::data(Bytes::from_static(piece.as_bytes())));
        (left > 0).then(|| (frame, left.saturating_sub(1)))
    });
    http_body_util::StreamBody::new(frames).boxed_unsync()
}

/// A body with these trailers, which may be empty.
fn with_trailers(
    body: StreamedServiceBody,
    trailers: &[(&'static str, &'static str)],
) -> StreamedServiceBody {
    let trailers = trailers
        .iter()
        .map(|&(name, value)| (http::HeaderName::from_static(name), http::HeaderValue::from_static(value)));
    let trailers: http::HeaderMap = trailers.collect();
    body.with_trailers(std::future::ready(Some(Ok(trailers)))).boxed_unsync()
}

/// A handler that returns the request in headers and body.
async fn echo(request: Request<StreamedServiceBody>) -> Response<StreamedServiceBody> {
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await else {
        return Response::builder().status(500).body(body::empty()).unwrap();
    };
    let trailers = body.trailers().cloned();
    let mut response = Response::new(body::full(body.to_bytes()));
    for (name, value) in &head.headers {
        let name = http::HeaderName::try_from(format!("got-{name}")).unwrap();
        response.headers_mut().append(name, value.clone());
    }
    response.headers_mut().insert("got-path", head.uri.to_string().parse().unwrap());
    response.headers_mut().insert("got-method", head.method.as_str().parse().unwrap());
    for (name, value) in trailers.iter().flatten() {
        let name = http::HeaderName::try_from(format!("trailer-{name}")).unwrap();
        response.headers_mut().insert(name, value.clone());
    }
    response
}

impl FilterChain {
    /// Runs an exchange with a handler of HTTP messages.
    fn run_http_exchange<H, F>(
        self: &Arc<Self>,
        request: Request<StreamedServiceBody>,
        call: RequestCall,
        facts: ExchangeInfo,
        handle: H,
    ) -> impl Future<Output = Result<Response<StreamedServiceBody>, FilterFailure>> + use<H, F>
    where
        H: FnOnce(Request<StreamedServiceBody>) -> F,
        F: Future<Output = Response<StreamedServiceBody>>,
    {
        let handle = |request: HandlerRequest| {
            handle(Request::from_parts(request.head, request.body)).map(HandlerResponse::from)
        };
        self.run_exchange(HandlerRequest::new(request, call), facts, handle).map_ok(|answer| answer.response)
    }
}

/// A call with this timeout.
fn call_with_timeout(time: Duration) -> RequestCall {
    let budget = RequestBudget::new(time, u32::MAX, u64::MAX, 64);
    RequestCall { budget: Arc::new(budget), ..RequestCall::unlimited() }
}

/// A complete response.
#[derive(Debug)]
struct CompleteResponse {
    status: StatusCode,
    headers: http::HeaderMap,
    body: Bytes,
}

impl CompleteResponse {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

async fn send(
    chain: &Arc<FilterChain>,
    request: Request<StreamedServiceBody>,
) -> Result<CompleteResponse, FilterFailure> {
    let response = chain
        .run_http_exchange(request, call_with_timeout(Duration::from_secs(60)), exchange_info(), echo)
        .await?;
    Ok(collect_response(response).await.expect("the response's body ends without an error"))
}

/// Sends a request of the caller with this name.
async fn send_as(
    name: &str,
    chain: &Arc<FilterChain>,
    request: Request<StreamedServiceBody>,
) -> Result<CompleteResponse, FilterFailure> {
    let call = RequestCall {
        caller: services::CallerId::Named(name.into()),
        ..call_with_timeout(Duration::from_secs(60))
    };
    let response = chain.run_http_exchange(request, call, exchange_info(), echo).await?;
    Ok(collect_response(response).await.expect("the response's body ends without an error"))
}

async fn collect_response(
    response: Response<StreamedServiceBody>,
) -> Result<CompleteResponse, services::body::BodyError> {
    let (head, body) = response.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(CompleteResponse { status: head.status, headers: head.headers, body })
}
