//! The service behind a case: answers as configured by the row, and records the requests.
//!
//! Each case has its own listener, so that requests that modules send on their own, on ticks and in calls,
//! belong to the right case.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::bail;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::channel::{Channel, Sender};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;

use crate::log::ModuleLog;
use crate::rows::{ConformanceRow, RowBodyChunk, ServiceAnswer};

type Body = BoxBody<Bytes, hyper::Error>;

/// The maximum time that a chunk waits for its line. Rows may depend on the timeout: on a correct host the
/// line never comes.
const CHUNK_TIMEOUT: Duration = Duration::from_secs(2);

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
    pub(crate) trailers: HeaderMap,
}

pub(crate) struct ConformanceService {
    pub(crate) address: SocketAddr,
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
}

/// The shared state of a service's connections.
struct ServiceAnswers {
    /// The path prefix of requests that went through the filter.
    prefix: String,
    by_path: BTreeMap<String, ServiceAnswer>,
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
    log: Arc<ModuleLog>,
}

impl ConformanceService {
    pub(crate) async fn start(row: &ConformanceRow, id: &str, log: &Arc<ModuleLog>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, requests) = (listener.local_addr()?, Arc::default());
        let answers = Arc::new(ServiceAnswers {
            prefix: format!("/{id}"),
            by_path: row.service.clone(),
            received: Arc::clone(&requests),
            log: Arc::clone(log),
        });
        tokio::spawn(accept_connections(listener, answers));
        Ok(Self { address, received: requests })
    }

    /// Returns all requests received so far.
    pub(crate) fn received_requests(&self) -> Vec<ReceivedRequest> {
        self.received.lock().map(|came| came.clone()).unwrap_or_default()
    }
}

async fn accept_connections(listener: TcpListener, answers: Arc<ServiceAnswers>) {
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let answers = Arc::clone(&answers);
        tokio::spawn(async move {
            let service = service_fn(|request| Arc::clone(&answers).handle_request(request));
            // The host may disconnect in the middle, as some rows require.
            let _ = auto::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

impl ServiceAnswers {
    async fn handle_request(self: Arc<Self>, request: Request<Incoming>) -> anyhow::Result<Response<Body>> {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let path = path.strip_prefix(&self.prefix).unwrap_or(&path).to_owned();
        let answer = self.by_path.get(&path).cloned();
        let (head, body) = request.into_parts();
        let mut received_request = ReceivedRequest {
            method: head.method.to_string(),
            path,
            headers: head.headers,
            body: String::new(),
            trailers: HeaderMap::new(),
        };
        if answer.as_ref().is_some_and(|answer| answer.echo) {
            self.record(received_request);
            return Ok(response(&answer.unwrap_or_default(), body.boxed()));
        }
        let whole = body.collect().await?;
        received_request.trailers = whole.trailers().cloned().unwrap_or_default();
        received_request.body = String::from_utf8_lossy(&whole.to_bytes()).into_owned();
        self.record(received_request);
        let Some(answer) = answer else {
            return Ok(Response::new(Full::from("hello").map_err(|never| match never {}).boxed()));
        };
        if answer.gone {
            bail!("the connection ends here");
        }
        if answer.silent {
            std::future::pending::<()>().await;
        }
        Ok(response(&answer, self.body(answer.clone())))
    }

    fn record(&self, request: ReceivedRequest) {
        if let Ok(mut all) = self.received.lock() {
            all.push(request);
        }
    }

    /// Returns a body that is sent chunk by chunk, or an empty body if there are no chunks and trailers.
    fn body(&self, answer: ServiceAnswer) -> Body {
        if answer.body.is_empty() && answer.trailers.is_empty() {
            return Full::default().map_err(|never| match never {}).boxed();
        }
        let (mut sender, body) = Channel::<Bytes, Infallible>::new(1);
        let log = Arc::clone(&self.log);
        tokio::spawn(async move { send_chunks(&mut sender, &answer.body, &answer.trailers, &log).await });
        body.map_err(|never| match never {}).boxed()
    }
}

fn response(answer: &ServiceAnswer, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(answer.status).unwrap_or_default();
    *response.headers_mut() = header_map(&answer.headers);
    response
}

/// Sends chunks, and waits for log lines where the row requires it. Stops early if the receiver is gone.
pub(crate) async fn send_chunks(
    sender: &mut Sender<Bytes>,
    chunks: &[RowBodyChunk],
    trailers: &BTreeMap<String, String>,
    log: &ModuleLog,
) -> Option<()> {
    for chunk in chunks {
        let bytes = match chunk {
            RowBodyChunk::Text(text) => Bytes::from(text.clone()),
            RowBodyChunk::Bytes { bytes } => Bytes::from(vec![b'x'; *bytes]),
            RowBodyChunk::Until { until } => {
                // A missing line is reported by the comparison of logs.
                let _ = log.wait_with_timeout(std::slice::from_ref(until), CHUNK_TIMEOUT).await;
                continue;
            }
        };
        sender.send_data(bytes).await.ok()?;
    }
    if !trailers.is_empty() {
        sender.send_trailers(header_map(trailers)).await.ok()?;
    }
    Some(())
}

/// Converts headers of the table, leaving out malformed ones.
pub(crate) fn header_map(headers: &BTreeMap<String, String>) -> HeaderMap {
    let header =
        |(name, value): (&String, &String)| Some((name.parse().ok()?, HeaderValue::from_str(value).ok()?));
    headers.iter().filter_map(header).collect::<HeaderMap<_>>() as HeaderMap<HeaderValue>
}
