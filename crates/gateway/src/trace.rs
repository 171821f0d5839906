//! Traces: the sampling of requests and the export of their spans.
//!
//! A request that is not sampled costs a lookup of its `traceparent` and a random number. The spans of a
//! sampled request are created when it completes (`spans.rs`), put into a bounded queue and sent in the
//! background (`export.rs`) as OTLP (`otlp.rs`). Tracing never makes a request wait.

mod export;
mod otlp;
mod spans;

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use schemars::JsonSchema;
use serde::Deserialize;
use services::GatewayClient;
use services::trace::{RequestTrace, SpanContext};

pub(crate) use export::{SpanCounts, SpanExporter};
pub(crate) use spans::FinishedRequest;

/// The export of traces to a collector.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct TracesConfig {
    /// The collector's OTLP over HTTP endpoint: `http://collector:4318`, to which `/v1/traces` is added.
    pub otlp: String,
    /// The fraction of requests that are sampled, from 0 to 1, chosen at random. For requests through
    /// `trusted_proxies` the `sampled` flag of a `traceparent` decides instead; other clients could set it on
    /// all their requests.
    #[serde(default = "TracesConfig::default_sample")]
    pub sample: f64,
    /// The gateway's service name in traces.
    #[serde(default = "TracesConfig::default_service_name")]
    pub service_name: String,
    /// Headers for requests to the collector, such as credentials.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
}

/// An error in `traces:`, and the field below which it is.
pub(crate) struct TraceConfigError {
    pub(crate) field: String,
    pub(crate) message: &'static str,
    pub(crate) hint: &'static str,
}

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

impl TracesConfig {
    fn default_sample() -> f64 {
        0.01
    }

    fn default_service_name() -> String {
        "orfa".to_owned()
    }

    /// Returns the errors that a schema can't express.
    pub(crate) fn mistakes(&self) -> Vec<TraceConfigError> {
        let mut wrong = Vec::new();
        let mut say = |field: String, message, hint| wrong.push(TraceConfigError { field, message, hint });
        if self.endpoint().is_none() {
            say("/otlp".into(), "this is not the URL of a collector", "write http://collector:4318");
        }
        if !(0.0..=1.0).contains(&self.sample) {
            say("/sample".into(), "the part of requests is from 0 to 1", "write 0.01 for one in a hundred");
        }
        for (name, value) in &self.headers {
            let is_name = HeaderName::from_bytes(name.as_bytes()).is_ok();
            if !is_name || HeaderValue::from_str(value).is_err() {
                let message =
                    "this is not a valid header: its name or value has characters that are not allowed";
                let hint = "visible ASCII only; a secret read from a file often ends in a newline";
                say(json::pointer::append_step("/headers", name), message, hint);
            }
        }
        wrong
    }

    /// The URL that spans are posted to.
    fn endpoint(&self) -> Option<Uri> {
        let base: Uri = self.otlp.parse().ok()?;
        let is_plain = !base.authority()?.as_str().contains('@') && base.query().is_none();
        let is_http = matches!(base.scheme_str(), Some("http" | "https"));
        let path = base.path().trim_end_matches('/');
        let uri = format!("{}://{}{path}/v1/traces", base.scheme_str()?, base.authority()?);
        (is_plain && is_http).then(|| uri.parse().ok())?
    }

    fn headers(&self) -> HeaderMap {
        let pairs = self.headers.iter().filter_map(|(name, value)| {
            let mut value = HeaderValue::from_str(value).ok()?;
            value.set_sensitive(true);
            Some((HeaderName::from_bytes(name.as_bytes()).ok()?, value))
        });
        pairs.collect()
    }
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
    pub(crate) fn export_spans(&self, finished: &FinishedRequest<'_>) {
        self.exporter.push(finished.spans());
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
