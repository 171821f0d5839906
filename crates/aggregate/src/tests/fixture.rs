//! Three in-process services with the responses of a test, and an aggregate of them. The response to `*`
//! applies to all other calls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use diagnostics::Diagnostic;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use handler::{HandlerRequest, HandlerResponse};
use http::{Request, Response};
use http_body_util::BodyExt;
use offload::{OffloadConfig, OffloadPool};
use serde_json::Value;
use services::transport::RequestEndpoint;
use services::{
    RequestCall, ServiceConfig, ServiceSet, ServiceTransport, StreamedServiceBody, ToProblem, TransportError,
};

use crate::{Aggregate, AggregateContext, AggregateDeclaration, AggregateLimitsConfig};

/// Responds to calls by `METHOD service/path?query`, and records the calls.
#[derive(Default)]
pub(crate) struct AggregateTestService {
    pub(crate) answers: Mutex<BTreeMap<String, TestServiceResponse>>,
    pub(crate) recorded_calls: Mutex<Vec<RecordedCall>>,
}

#[derive(Clone)]
pub(crate) enum TestServiceResponse {
    Text(u16, String),
    /// A response with this `Cache-Control`.
    Cacheable(&'static str, String),
    Pending,
    /// A body that the test sends.
    Channel(Arc<Mutex<Option<StreamedServiceBody>>>),
    /// A body with this `Content-Encoding`.
    Encoded(&'static str, &'static [u8]),
}

/// A recorded call.
pub(crate) struct RecordedCall {
    pub(crate) line: String,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: String,
}

/// An aggregate and its services.
pub(crate) struct AggregateFixture {
    pub(crate) test_service: Arc<AggregateTestService>,
    pub(crate) aggregate: Arc<Aggregate>,
    pub(crate) pool: OffloadPool,
}

/// A response as the client receives it.
pub(crate) struct ReceivedResponse {
    pub(crate) status: u16,
    pub(crate) text: String,
    pub(crate) headers: http::HeaderMap,
    pub(crate) tree: Option<json::JsonTree>,
}

impl ReceivedResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }
}

/// The transport to the stage.
struct TestTransport(Arc<AggregateTestService>);

impl ServiceTransport for TestTransport {
    fn send(
        &self,
        endpoint: &RequestEndpoint,
        request: Request<StreamedServiceBody>,
    ) -> BoxFuture<'static, Result<Response<StreamedServiceBody>, TransportError>> {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let line = format!("{} {}{path}", request.method(), endpoint.origin.service);
        let service = Arc::clone(&self.0);
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.map_err(TransportError::Broken)?.to_bytes();
            let body = String::from_utf8_lossy(&body).into_owned();
            service.recorded_calls.lock().unwrap().push(RecordedCall {
                line: line.clone(),
                headers: head.headers,
                body,
            });
            let answer = {
                let answers = service.answers.lock().unwrap();
                answers.get(&line).or_else(|| answers.get("GET *")).cloned()
            };
            match answer {
                Some(TestServiceResponse::Text(status, text)) => {
                    let body = services::body::full(Bytes::from(text));
                    Ok(Response::builder().status(status).body(body).unwrap())
                }
                Some(TestServiceResponse::Cacheable(control, text)) => {
                    let body = services::body::full(Bytes::from(text));
                    Ok(Response::builder().header("cache-control", control).body(body).unwrap())
                }
                Some(TestServiceResponse::Encoded(coding, body)) => {
                    let body = services::body::full(Bytes::from_static(body));
                    Ok(Response::builder().header("content-encoding", coding).body(body).unwrap())
                }
                Some(TestServiceResponse::Channel(body)) => {
                    Ok(Response::new(body.lock().unwrap().take().unwrap()))
                }
                Some(TestServiceResponse::Pending) => std::future::pending().await,
                None => panic!("unexpected call: {line}"),
            }
        }
        .boxed()
    }
}

pub(crate) fn test_services(service: &Arc<AggregateTestService>) -> ServiceSet {
    let names = ["profile", "catalog", "order"];
    let forwarding = |name: &str| ServiceConfig {
        forward: if name == "catalog" { vec!["cookie".into(), "accept-language".into()] } else { Vec::new() },
        ..ServiceConfig::with_url("http://127.0.0.1:1")
    };
    let config = names.map(|name| (name.to_owned(), forwarding(name)));
    let services = ServiceSet::new(&BTreeMap::from(config)).unwrap();
    services.with_transport(Arc::new(TestTransport(Arc::clone(service))))
}

/// Creates a pool whose quota no test uses up.
pub(crate) fn unlimited_pool() -> OffloadPool {
    let quota = std::time::Duration::from_secs(3600);
    OffloadPool::start(OffloadConfig { quota, ..OffloadConfig::default() }).unwrap()
}

/// Parses a declaration in JSON.
pub(crate) fn declaration(text: &str) -> AggregateDeclaration {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

pub(crate) fn declaration_mistakes(path: &str, text: &str) -> Vec<Diagnostic> {
    let service =
        Arc::new(AggregateTestService { answers: Mutex::default(), recorded_calls: Mutex::default() });
    let context = AggregateContext {
        path,
        services: &test_services(&service),
        documents: &BTreeMap::new(),
        offload: &unlimited_pool(),
    };
    Aggregate::new(&declaration(text), &AggregateLimitsConfig::default(), &context).err().unwrap_or_default()
}

impl AggregateFixture {
    pub(crate) fn new(text: &str, answers: &[(&str, u16, &str)]) -> Self {
        Self::with_limits("/here", text, AggregateLimitsConfig::default(), answers)
    }

    pub(crate) fn with_limits(
        path: &str,
        text: &str,
        limits: AggregateLimitsConfig,
        answers: &[(&str, u16, &str)],
    ) -> Self {
        let says = |(line, status, text): &(&str, u16, &str)| {
            let answer = if *text == "never" {
                TestServiceResponse::Pending
            } else {
                TestServiceResponse::Text(*status, (*text).to_owned())
            };
            let line = if line.contains(' ') { (*line).to_owned() } else { format!("GET {line}") };
            (line, answer)
        };
        let answers = Mutex::new(answers.iter().map(says).collect());
        let test_service = Arc::new(AggregateTestService { answers, recorded_calls: Mutex::default() });
        let pool = unlimited_pool();
        let services = test_services(&test_service).with_offload(pool.clone());
        let context =
            AggregateContext { path, services: &services, documents: &BTreeMap::new(), offload: &pool };
        let aggregate = Aggregate::new(&declaration(text), &limits, &context);
        let aggregate = aggregate.unwrap_or_else(|mistakes| panic!("{mistakes:?}"));
        Self { test_service, aggregate: Arc::new(aggregate), pool }
    }

    /// Lets the test send the response body of a call.
    pub(crate) fn open_response_channel(
        &self,
        line: &str,
    ) -> http_body_util::channel::Sender<Bytes, services::body::BodyError> {
        let (sender, body) = http_body_util::channel::Channel::<Bytes, services::body::BodyError>::new(64);
        let body = TestServiceResponse::Channel(Arc::new(Mutex::new(Some(body.boxed_unsync()))));
        self.test_service.answers.lock().unwrap().insert(format!("GET {line}"), body);
        sender
    }

    /// Sets the response to a call, with this `Cache-Control`.
    pub(crate) fn set_cacheable_response(&self, line: &str, control: &'static str, text: &str) {
        let answer = TestServiceResponse::Cacheable(control, text.to_owned());
        self.test_service.answers.lock().unwrap().insert(format!("GET {line}"), answer);
    }

    /// Returns the response without reading its body.
    pub(crate) async fn start_request(&self, target: &str) -> HandlerResponse {
        let request = Request::get(target).body(services::body::empty()).unwrap();
        self.aggregate
            .handle(HandlerRequest::new(request, RequestCall::unlimited()))
            .await
            .unwrap_or_else(|problem| panic!("{problem}"))
    }

    pub(crate) async fn send(&self, request: Request<&str>) -> Result<ReceivedResponse, Box<dyn ToProblem>> {
        let request = request.map(|body| services::body::full(body.to_owned()));
        let request = HandlerRequest::new(request, RequestCall::unlimited());
        let answer = self.aggregate.handle(request).await?;
        let (tree, (head, body)) = (answer.json_tree, answer.response.into_parts());
        let text = body.collect().await.expect("a body to its end").to_bytes();
        let text = String::from_utf8(text.to_vec()).unwrap();
        Ok(ReceivedResponse { status: head.status.as_u16(), text, headers: head.headers, tree })
    }

    pub(crate) async fn get(&self, target: &str) -> ReceivedResponse {
        self.send(Request::get(target).body("").unwrap()).await.unwrap_or_else(|problem| panic!("{problem}"))
    }

    /// Returns the code, status and text of a problem.
    pub(crate) async fn get_problem(&self, target: &str) -> (&'static str, u16, String) {
        let request = Request::get(target).body("").unwrap();
        let problem = self.send(request).await.err().expect("a problem");
        (problem.code(), problem.status().as_u16(), problem.to_string())
    }

    /// Returns the number of jobs of this kind that ran in the pool.
    pub(crate) fn job_count(&self, kind: &str) -> u64 {
        self.pool.stats().kinds.get(kind).map_or(0, |kind| kind.jobs)
    }

    /// Returns the calls, in order.
    pub(crate) fn call_lines(&self) -> Vec<String> {
        self.test_service.recorded_calls.lock().unwrap().iter().map(|call| call.line.clone()).collect()
    }
}
