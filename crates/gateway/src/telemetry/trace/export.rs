//! The exporter of spans: a bounded queue, and a task that sends batches from it to the collector.
//!
//! A slow or unreachable collector causes dropped spans, which are counted, but never delays a request.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri, header};
use offload::polls::{PollSite, watch_polls};
use prost::Message;
use services::{FetchError, GatewayClient};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::otlp::{
    self, ExportTraceServiceRequest, InstrumentationScope, OtlpResource, OtlpSpan, ResourceSpans, ScopeSpans,
};

/// The maximum number of queued spans, about 10 MB.
const MAX_PENDING: usize = 16 << 10;
/// The number of spans in a message.
const BATCH_SIZE: usize = 512;
/// The time that spans are collected before they are sent.
const BATCH_DELAY: Duration = Duration::from_secs(1);
/// The timeout of a message.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// The time that shutdown waits for the remaining spans.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of attempts for a message if the collector returns a retryable error of OTLP.
const MAX_ATTEMPTS: u32 = 3;
/// The maximum size of a response, in bytes.
const MAX_RESPONSE_BYTES: u64 = 64 << 10;

/// The counts of spans by result.
#[derive(Debug, Default)]
pub(crate) struct SpanCounts {
    /// Spans that the collector accepted.
    pub(crate) exported: AtomicU64,
    /// Spans that did not fit into the queue.
    pub(crate) dropped: AtomicU64,
    /// Spans that the collector did not accept.
    pub(crate) failed: AtomicU64,
}

/// The destination of spans.
pub(super) struct CollectorTarget {
    pub(super) fetch: GatewayClient,
    pub(super) endpoint: Uri,
    pub(super) headers: HeaderMap,
    pub(super) service_name: String,
}

/// The queue and the task that empties it. Dropping it ends the task.
pub(crate) struct SpanExporter {
    queue: Arc<SpanQueue>,
    /// Closed when the task has ended.
    task_ended: watch::Receiver<()>,
}

#[derive(Default)]
struct SpanQueue {
    state: Mutex<SpanQueueState>,
    changed: Notify,
    tally: Arc<SpanCounts>,
}

#[derive(Default)]
struct SpanQueueState {
    pending: VecDeque<OtlpSpan>,
    is_ending: bool,
}

impl SpanExporter {
    /// Starts the task. Must be called within the runtime.
    pub(super) fn start(collector: CollectorTarget, tally: Arc<SpanCounts>) -> Self {
        let queue = Arc::new(SpanQueue { tally, ..SpanQueue::default() });
        let (alive, task_ended) = watch::channel(());
        let span_queue = Arc::clone(&queue);
        tokio::spawn(watch_polls(PollSite::Upstream, async move {
            span_queue.run(&collector).await;
            drop(alive);
        }));
        Self { queue, task_ended }
    }

    /// Queues the spans of a request, all of them or none.
    pub(super) fn push(&self, spans: Vec<OtlpSpan>) {
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

    /// Sends the remaining spans.
    pub(super) async fn finish(&self) {
        self.queue.close();
        let mut ended = self.task_ended.clone();
        let _ = timeout(FLUSH_TIMEOUT, async { while ended.changed().await.is_ok() {} }).await;
    }
}

impl Drop for SpanExporter {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl SpanQueue {
    fn lock(&self) -> MutexGuard<'_, SpanQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_idle(&self) -> bool {
        let state = self.lock();
        state.pending.is_empty() && !state.is_ending
    }

    fn close(&self) {
        self.lock().is_ending = true;
        self.changed.notify_one();
    }

    async fn run(&self, collector: &CollectorTarget) {
        loop {
            let (batch, is_ending) = self.next_batch().await;
            let count = batch.len() as u64;
            if count > 0 {
                let sent = collector.send(batch).await;
                let tally = if sent { &self.tally.exported } else { &self.tally.failed };
                tally.fetch_add(count, Relaxed);
            }
            if is_ending && self.lock().pending.is_empty() {
                return;
            }
        }
    }

    /// Waits for spans, and then for more of them until [`BATCH_DELAY`] has passed, unless there is a whole
    /// batch. Returns the next batch, and whether the exporter is ending. Thousands of spans at once would
    /// take milliseconds to encode and to free.
    async fn next_batch(&self) -> (Vec<OtlpSpan>, bool) {
        while self.is_idle() {
            self.changed.notified().await;
        }
        let is_due = {
            let state = self.lock();
            state.is_ending || state.pending.len() >= BATCH_SIZE
        };
        if !is_due {
            let _ = timeout(BATCH_DELAY, self.changed.notified()).await;
        }
        let mut state = self.lock();
        let count = state.pending.len().min(BATCH_SIZE);
        (state.pending.drain(..count).collect(), state.is_ending)
    }
}

impl CollectorTarget {
    /// Sends spans. Returns whether the collector accepted them.
    async fn send(&self, batch: Vec<OtlpSpan>) -> bool {
        let spans = batch.len();
        let body = Bytes::from(self.build_message(batch).encode_to_vec());
        for attempt in 1.. {
            match self.fetch.send(self.build_request(body.clone()), SEND_TIMEOUT, MAX_RESPONSE_BYTES).await {
                Ok(answer) if answer.status().is_success() => return true,
                Ok(answer) if attempt < MAX_ATTEMPTS && is_retryable(answer.status()) => {}
                Err(FetchError::Unreachable(_)) if attempt < MAX_ATTEMPTS => {}
                Ok(answer) => {
                    let status = answer.status().as_u16();
                    tracing::warn!(status, spans, "the collector refused spans");
                    return false;
                }
                Err(error) => {
                    tracing::warn!(%error, spans, "the collector did not take spans");
                    return false;
                }
            }
            sleep(Duration::from_secs(1 << attempt.min(4))).await;
        }
        false
    }

    fn build_request(&self, body: Bytes) -> Request<Bytes> {
        let mut request = Request::new(body);
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = self.endpoint.clone();
        *request.headers_mut() = self.headers.clone();
        let protobuf = HeaderValue::from_static("application/x-protobuf");
        request.headers_mut().insert(header::CONTENT_TYPE, protobuf);
        request
    }

    fn build_message(&self, spans: Vec<OtlpSpan>) -> ExportTraceServiceRequest {
        let version = env!("CARGO_PKG_VERSION");
        let attributes = vec![
            otlp::text_attribute("service.name", &*self.service_name),
            otlp::text_attribute("service.version", version),
        ];
        let scope = Some(InstrumentationScope { name: "orfa".to_owned(), version: version.to_owned() });
        let scope_spans = vec![ScopeSpans { scope, spans }];
        let resource = Some(OtlpResource { attributes });
        ExportTraceServiceRequest { resource_spans: vec![ResourceSpans { resource, scope_spans }] }
    }
}

/// Whether OTLP allows a retry after this status.
fn is_retryable(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502 | 503 | 504)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn takes_one_batch_at_a_time() {
        let queue = SpanQueue::default();
        queue.lock().pending.extend(vec![OtlpSpan::default(); 2 * BATCH_SIZE + 1]);
        let began = tokio::time::Instant::now();
        for (count, waited) in [(BATCH_SIZE, Duration::ZERO), (BATCH_SIZE, Duration::ZERO), (1, BATCH_DELAY)]
        {
            let (batch, is_ending) = queue.next_batch().await;
            assert_eq!((batch.len(), is_ending), (count, false));
            assert!(began.elapsed() >= waited && (began.elapsed() < BATCH_DELAY || count < BATCH_SIZE));
        }
        queue.close();
        assert_eq!(queue.next_batch().await, (Vec::new(), true));
    }
}
