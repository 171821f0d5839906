//! Traces: the sampling of requests and the export of their spans.
//!
//! A request that is not sampled costs a lookup of its `traceparent` and a random number. The spans of a
//! sampled request are created when it completes (`spans.rs`), put into a bounded queue and sent in the
//! background (`export.rs`) as OTLP (`otlp.rs`). Tracing never makes a request wait.

mod export;
mod otlp;
mod spans;

use std::sync::Arc;

use http::HeaderMap;
use services::GatewayClient;
use services::trace::{RequestTrace, SpanContext};

pub(crate) use export::{SpanCounts, SpanExporter};
pub(crate) use spans::FinishedRequest;

use crate::config::TracesConfig;

/// Samples requests and exports their spans.
pub(crate) struct RequestTracer {
    config: TracesConfig,
    exporter: SpanExporter,
}

/// A request's trace and the ID of its parent span.
#[derive(Default)]
pub(crate) struct StartedTrace {
    pub(crate) trace: RequestTrace,
    pub(crate) parent: Option<u64>,
}

impl RequestTracer {
    /// Starts exporting to the config's collector. Must be called within the runtime. Returns `None` if the
    /// config has errors or TLS can't be used.
    pub(crate) fn new(config: &TracesConfig, tally: Arc<SpanCounts>) -> Option<Self> {
        let collector = export::CollectorTarget {
            fetch: GatewayClient::new().ok()?,
            endpoint: config.endpoint()?,
            headers: config.headers(),
            service_name: config.service_name.clone(),
        };
        Some(Self { config: config.clone(), exporter: SpanExporter::start(collector, tally) })
    }

    /// Whether the tracer was created from an equal config.
    pub(crate) fn has_config(&self, config: &TracesConfig) -> bool {
        self.config == *config
    }

    /// Exports the spans of a completed request.
    pub(crate) fn export_spans(&self, request: &FinishedRequest<'_>) {
        self.exporter.push(request.spans());
    }

    /// Sends the remaining spans, for a few seconds at most.
    pub(crate) async fn finish(&self) {
        self.exporter.finish().await;
    }

    fn should_sample(&self, parent: Option<&SpanContext>, is_trusted: bool) -> bool {
        match parent {
            Some(parent) if is_trusted => parent.sampled,
            _ => fastrand::f64() < self.config.sample,
        }
    }
}

/// Starts the trace of a request from its headers and the sampling decision. Without a tracer the incoming
/// trace context is passed on unchanged.
pub(crate) fn start_trace(
    tracer: Option<&Arc<RequestTracer>>,
    headers: &HeaderMap,
    is_trusted: bool,
) -> StartedTrace {
    let parent = SpanContext::from_headers(headers);
    let Some(tracer) = tracer else {
        return StartedTrace {
            trace: parent.map_or_else(RequestTrace::default, |of| RequestTrace::new_propagated(of, headers)),
            parent: None,
        };
    };
    match (tracer.should_sample(parent.as_ref(), is_trusted), parent) {
        (false, None) => StartedTrace::default(),
        // The request is not sampled here, and an untrusted client must not make services sample it.
        (false, Some(parent)) => StartedTrace {
            trace: RequestTrace::new_propagated(SpanContext { sampled: false, ..parent }, headers),
            parent: None,
        },
        (true, parent) => {
            let trace_id = parent.map_or_else(|| fastrand::u128(1..), |parent| parent.trace_id);
            let ours = SpanContext { trace_id, span_id: fastrand::u64(1..), sampled: true };
            let trace = RequestTrace::new_recorded(ours, parent.map(|_| headers));
            StartedTrace { trace, parent: parent.map(|parent| parent.span_id) }
        }
    }
}

#[cfg(test)]
mod tests;
