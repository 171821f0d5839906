//! The `traces:` section: the export of traces to a collector.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use schemars::JsonSchema;
use serde::Deserialize;

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

impl TracesConfig {
    fn default_sample() -> f64 {
        0.01
    }

    fn default_service_name() -> String {
        "orfa".to_owned()
    }

    /// Returns the errors that a schema can't express.
    pub(crate) fn mistakes(&self) -> Vec<TraceConfigError> {
        let mut errors = Vec::new();
        let mut say = |field: String, message, hint| errors.push(TraceConfigError { field, message, hint });
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
        errors
    }

    /// The URL that spans are posted to.
    pub(crate) fn endpoint(&self) -> Option<Uri> {
        let base: Uri = self.otlp.parse().ok()?;
        let is_plain = !base.authority()?.as_str().contains('@') && base.query().is_none();
        let is_http = matches!(base.scheme_str(), Some("http" | "https"));
        let path = base.path().trim_end_matches('/');
        let uri = format!("{}://{}{path}/v1/traces", base.scheme_str()?, base.authority()?);
        (is_plain && is_http).then(|| uri.parse().ok())?
    }

    /// The headers of requests to the collector.
    pub(crate) fn headers(&self) -> HeaderMap {
        let pairs = self.headers.iter().filter_map(|(name, value)| {
            let mut value = HeaderValue::from_str(value).ok()?;
            value.set_sensitive(true);
            Some((HeaderName::from_bytes(name.as_bytes()).ok()?, value))
        });
        pairs.collect()
    }
}
