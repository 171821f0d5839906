//! Traces: which requests are recorded, and what becomes of their spans.
//!
//! A request that is not recorded costs a look for its `traceparent`, and a roll of the dice. The spans of one
//! that is recorded are made when it is over (`spans.rs`), put into a bounded queue and sent in the
//! background (`export.rs`) as OTLP (`otlp.rs`). Nothing of it ever makes a request wait.

mod export;
mod otlp;
mod spans;

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use schemars::JsonSchema;
use serde::Deserialize;
use services::Fetch;
use services::trace::{Context, Trace};

pub(crate) use export::{Exporter, Tally};
pub(crate) use spans::Finished;

/// Where traces go, and which.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct TracesConfig {
    /// The collector's OTLP over HTTP: `http://collector:4318`, to which `/v1/traces` is added.
    pub otlp: String,
    /// The part of requests that are recorded, from 0 to 1, chosen by chance. Of those that come through
    /// `trusted_proxies` the `sampled` flag of a `traceparent` decides: strangers could set it on all of theirs.
    #[serde(default = "TracesConfig::default_sample")]
    pub sample: f64,
    /// What the gateway is called in traces.
    #[serde(default = "TracesConfig::default_service_name")]
    pub service_name: String,
    /// Headers for the collector: credentials.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
}

/// What is wrong with a `traces:`, and below which field.
pub(crate) struct Wrong {
    pub(crate) field: String,
    pub(crate) message: &'static str,
    pub(crate) hint: &'static str,
}

/// Decides which requests are recorded, and takes their spans.
pub(crate) struct Tracer {
    config: TracesConfig,
    exporter: Exporter,
}

/// A request's trace, and what it hangs below.
#[derive(Default)]
pub(crate) struct Begun {
    pub(crate) trace: Trace,
    pub(crate) parent: Option<u64>,
}

impl TracesConfig {
    fn default_sample() -> f64 {
        0.01
    }

    fn default_service_name() -> String {
        "orfa".to_owned()
    }

    /// What no schema can say.
    pub(crate) fn mistakes(&self) -> Vec<Wrong> {
        let mut wrong = Vec::new();
        let mut say = |field: String, message, hint| wrong.push(Wrong { field, message, hint });
        if self.endpoint().is_none() {
            say("/otlp".into(), "this is not the URL of a collector", "write http://collector:4318");
        }
        if !(0.0..=1.0).contains(&self.sample) {
            say("/sample".into(), "the part of requests is from 0 to 1", "write 0.01 for one in a hundred");
        }
        for (name, value) in &self.headers {
            let is_name = HeaderName::from_bytes(name.as_bytes()).is_ok();
            if !is_name || HeaderValue::from_str(value).is_err() {
                let message = "this is no header: a name or its value holds characters that none may hold";
                let hint = "visible ASCII only; a secret read from a file often ends in a newline";
                say(json::pointer::below("/headers", name), message, hint);
            }
        }
        wrong
    }

    /// Where spans are posted to.
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

impl Tracer {
    /// Sends what is recorded to the config's collector, from here on. Must be called within the runtime;
    /// `None` where the config has mistakes or TLS can't be used.
    pub(crate) fn new(config: &TracesConfig, tally: Arc<Tally>) -> Option<Self> {
        let collector = export::Collector {
            fetch: Fetch::new().ok()?,
            endpoint: config.endpoint()?,
            headers: config.headers(),
            service_name: config.service_name.clone(),
        };
        Some(Self { config: config.clone(), exporter: Exporter::start(collector, tally) })
    }

    /// Whether it does what this config says.
    pub(crate) fn is_of(&self, config: &TracesConfig) -> bool {
        self.config == *config
    }

    /// The spans of a request that is over.
    pub(crate) fn take(&self, finished: &Finished<'_>) {
        self.exporter.push(finished.spans());
    }

    /// Sends what is left, for a few seconds at most.
    pub(crate) async fn finish(&self) {
        self.exporter.finish().await;
    }

    fn records(&self, parent: Option<&Context>, is_trusted: bool) -> bool {
        match parent {
            Some(parent) if is_trusted => parent.sampled,
            _ => fastrand::f64() < self.config.sample,
        }
    }
}

/// A request begins: its trace, by its headers, which may come from a trusted proxy, and by chance. Without a
/// tracer a trace is handed on as it came.
pub(crate) fn begin(tracer: Option<&Arc<Tracer>>, headers: &HeaderMap, is_trusted: bool) -> Begun {
    let parent = Context::of(headers);
    let Some(tracer) = tracer else {
        return Begun {
            trace: parent.map_or_else(Trace::default, |of| Trace::handed_on(of, headers)),
            parent: None,
        };
    };
    match (tracer.records(parent.as_ref(), is_trusted), parent) {
        (false, None) => Begun::default(),
        // Nothing of it is recorded here, and services are not to record it because a stranger wished so.
        (false, Some(parent)) => {
            Begun { trace: Trace::handed_on(Context { sampled: false, ..parent }, headers), parent: None }
        }
        (true, parent) => {
            let trace_id = parent.map_or_else(|| fastrand::u128(1..), |parent| parent.trace_id);
            let ours = Context { trace_id, span_id: fastrand::u64(1..), sampled: true };
            let trace = Trace::recorded(ours, parent.map(|_| headers));
            Begun { trace, parent: parent.map(|parent| parent.span_id) }
        }
    }
}

#[cfg(test)]
mod tests;
