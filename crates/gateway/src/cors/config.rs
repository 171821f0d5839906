//! What an operator writes of other origins' pages: `cors:`, at the top or for one route.

use http::HeaderName;
use schemars::JsonSchema;
use serde::Deserialize;
use services::Duration;

/// Cross-origin requests, as browsers know them.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CorsConfig {
    /// The origins: `https://shop.example.org`, `http://localhost:*` for every port, `*` for all, `null` for
    /// pages without one. Those that only `*` or `null` allow send no credentials.
    pub origins: Vec<String>,
    /// Whether the listed origins' cookies count. Without them a page gets what an anonymous client gets.
    #[serde(default = "yes")]
    pub credentials: bool,
    /// How long a browser may keep the answer to its preflight.
    #[serde(default)]
    pub max_age: Option<Duration>,
    /// Headers that pages may send beside `Authorization`, `Content-Type`, `Prefer` and every `ORFA-*`.
    #[serde(default)]
    pub headers: Vec<String>,
    /// Headers of the answer that pages may read beside `ORFA-Cache`, `Server-Timing`, `Retry-After` and those
    /// that every page may.
    #[serde(default)]
    pub expose: Vec<String>,
}

impl CorsConfig {
    /// These origins, and all else as it is where nothing is written.
    #[must_use]
    pub fn of(origins: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let origins = origins.into_iter().map(Into::into).collect();
        Self { origins, credentials: true, max_age: None, headers: Vec::new(), expose: Vec::new() }
    }
}

/// Whether this can stand under `cors.origins`.
pub(crate) fn is_pattern(text: &str) -> bool {
    let Some((scheme, host)) = text.split_once("://") else { return matches!(text, "*" | "null") };
    let (host, port) = host.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')).unwrap_or((host, "*"));
    let is_v6 = host.starts_with('[') && host.ends_with(']');
    let is_port = port == "*" || (!port.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit()));
    let name = |text: &str| !text.is_empty() && !text.contains(['/', '*', '?', '#', '@', ' ']);
    name(scheme) && name(host) && (is_v6 || !host.contains([':', '[', ']'])) && is_port
}

/// Whether this can stand under `cors.headers` and `cors.expose`: a name, and not all names at once, which
/// browsers understand for requests without credentials only.
pub(crate) fn is_header(text: &str) -> bool {
    text != "*" && HeaderName::from_bytes(text.as_bytes()).is_ok()
}

fn yes() -> bool {
    true
}
