//! Spans on their way to the collector: a queue that is bounded, and a task that sends batches out of it.
//!
//! A collector that is slow or gone costs spans, which are counted, and never a request.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri, header};
use prost::Message;
use services::{Fetch, FetchError};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::otlp::{
    self, ExportTraceServiceRequest, InstrumentationScope, Resource, ResourceSpans, ScopeSpans, Span,
};

/// Spans that wait at most: some 10 MB.
const MAX_PENDING: usize = 16 << 10;
/// Spans of one message.
const BATCH: usize = 512;
/// How long spans are collected before they are sent.
const COLLECT: Duration = Duration::from_secs(1);
/// How long the collector may take for one message.
const TIME: Duration = Duration::from_secs(10);
/// How long the end of the gateway waits for spans that are left.
const LAST: Duration = Duration::from_secs(5);
/// How often a message is sent where the collector asks for patience (OTLP, failures that may be retried).
const ATTEMPTS: u32 = 3;
/// Bytes that are read of an answer.
const ANSWER: u64 = 64 << 10;

/// What became of spans.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Those that the collector took.
    pub(crate) exported: AtomicU64,
    /// Those that did not fit into the queue.
    pub(crate) dropped: AtomicU64,
    /// Those that the collector did not take.
    pub(crate) failed: AtomicU64,
}

/// Whom spans are sent to.
pub(super) struct Collector {
    pub(super) fetch: Fetch,
    pub(super) endpoint: Uri,
    pub(super) headers: HeaderMap,
    pub(super) service_name: String,
}

/// The queue, and whoever empties it. It ends when this is dropped.
pub(crate) struct Exporter {
    queue: Arc<Queue>,
    /// Closed once the task has ended.
    ended: watch::Receiver<()>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Notify,
    tally: Arc<Tally>,
}

#[derive(Default)]
struct State {
    pending: Vec<Span>,
    is_ending: bool,
}

impl Exporter {
    /// Starts the task. Must be called within the runtime.
    pub(super) fn start(collector: Collector, tally: Arc<Tally>) -> Self {
        let queue = Arc::new(Queue { tally, ..Queue::default() });
        let (alive, ended) = watch::channel(());
        let theirs = Arc::clone(&queue);
        tokio::spawn(async move {
            theirs.run(&collector).await;
            drop(alive);
        });
        Self { queue, ended }
    }

    /// Takes the spans of a request, all of them or none.
    pub(super) fn push(&self, spans: Vec<Span>) {
        let count = spans.len();
        let mut state = self.queue.lock();
        if state.pending.len() + count > MAX_PENDING {
            drop(state);
            self.queue.tally.dropped.fetch_add(count as u64, Relaxed);
            return;
        }
        let was_empty = state.pending.is_empty();
        state.pending.extend(spans);
        drop(state);
        if was_empty {
            self.queue.changed.notify_one();
        }
    }

    /// Sends what is left.
    pub(super) async fn finish(&self) {
        self.queue.end();
        let mut ended = self.ended.clone();
        let _ = timeout(LAST, async { while ended.changed().await.is_ok() {} }).await;
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.queue.end();
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_idle(&self) -> bool {
        let state = self.lock();
        state.pending.is_empty() && !state.is_ending
    }

    fn end(&self) {
        self.lock().is_ending = true;
        self.changed.notify_one();
    }

    async fn run(&self, collector: &Collector) {
        loop {
            let (spans, is_ending) = self.next().await;
            for batch in spans.chunks(BATCH) {
                let sent = collector.send(batch).await;
                let tally = if sent { &self.tally.exported } else { &self.tally.failed };
                tally.fetch_add(batch.len() as u64, Relaxed);
            }
            if is_ending && self.lock().pending.is_empty() {
                return;
            }
        }
    }

    /// Waits for spans, then a little for more of them; all there are, and whether that is the end.
    async fn next(&self) -> (Vec<Span>, bool) {
        while self.is_idle() {
            self.changed.notified().await;
        }
        let is_ending = self.lock().is_ending;
        if !is_ending {
            let _ = timeout(COLLECT, self.changed.notified()).await;
        }
        let mut state = self.lock();
        (mem::take(&mut state.pending), state.is_ending)
    }
}

impl Collector {
    /// Whether the collector has taken them.
    async fn send(&self, spans: &[Span]) -> bool {
        let body = Bytes::from(self.message(spans).encode_to_vec());
        for attempt in 1.. {
            match self.fetch.send(self.request(body.clone()), TIME, ANSWER).await {
                Ok(answer) if answer.status().is_success() => return true,
                Ok(answer) if attempt < ATTEMPTS && asks_for_patience(answer.status()) => {}
                Err(FetchError::Unreachable(_)) if attempt < ATTEMPTS => {}
                Ok(answer) => {
                    let status = answer.status().as_u16();
                    tracing::warn!(status, spans = spans.len(), "the collector refused spans");
                    return false;
                }
                Err(error) => {
                    tracing::warn!(%error, spans = spans.len(), "the collector did not take spans");
                    return false;
                }
            }
            sleep(Duration::from_secs(1 << attempt.min(4))).await;
        }
        false
    }

    fn request(&self, body: Bytes) -> Request<Bytes> {
        let mut request = Request::new(body);
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = self.endpoint.clone();
        *request.headers_mut() = self.headers.clone();
        let protobuf = HeaderValue::from_static("application/x-protobuf");
        request.headers_mut().insert(header::CONTENT_TYPE, protobuf);
        request
    }

    fn message(&self, spans: &[Span]) -> ExportTraceServiceRequest {
        let version = env!("CARGO_PKG_VERSION");
        let attributes =
            vec![otlp::text("service.name", &*self.service_name), otlp::text("service.version", version)];
        let scope = Some(InstrumentationScope { name: "orfa".to_owned(), version: version.to_owned() });
        let scope_spans = vec![ScopeSpans { scope, spans: spans.to_vec() }];
        let resource = Some(Resource { attributes });
        ExportTraceServiceRequest { resource_spans: vec![ResourceSpans { resource, scope_spans }] }
    }
}

/// The statuses after which OTLP lets a message be sent again.
fn asks_for_patience(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502 | 503 | 504)
}
