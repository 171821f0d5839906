//! The `cors:` section, at the top level or for one route.

use http::HeaderName;
use schemars::JsonSchema;
use serde::Deserialize;
use services::DurationConfig;

/// Cross-origin requests (CORS).
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CorsConfig {
    /// The allowed origins: `https://shop.example.org`, `http://localhost:*` for every port, `*` for all,
    /// `null` for pages without an origin. Origins that only `*` or `null` allows can't send credentials.
    pub origins: Vec<String>,
    /// Whether credentials of listed origins are accepted. Without them a page has the rights of an anonymous
    /// client.
    #[serde(default = "yes")]
    pub credentials: bool,
    /// The time for which a browser may cache the response to a preflight.
    #[serde(default)]
    pub max_age: Option<DurationConfig>,
    /// Headers that pages may send besides `Authorization`, `Content-Type`, `Prefer` and every `ORFA-*`.
    #[serde(default)]
    pub headers: Vec<String>,
    /// Response headers that pages may read besides `ORFA-Cache`, `Server-Timing`, `Retry-After` and those
    /// that are always readable.
    #[serde(default)]
    pub expose: Vec<String>,
}

impl CorsConfig {
    /// Creates a config with these origins and defaults otherwise.
    #[must_use]
    pub fn with_origins(origins: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let origins = origins.into_iter().map(Into::into).collect();
        Self { origins, credentials: true, max_age: None, headers: Vec::new(), expose: Vec::new() }
    }
}

/// Whether the text is valid under `cors.origins`.
pub(crate) fn is_origin_pattern(text: &str) -> bool {
    let Some((scheme, host)) = text.split_once("://") else { return matches!(text, "*" | "null") };
    let (host, port) = host.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')).unwrap_or((host, "*"));
    let is_v6 = host.starts_with('[') && host.ends_with(']');
    let is_port = port == "*" || (!port.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit()));
    let name = |text: &str| !text.is_empty() && !text.contains(['/', '*', '?', '#', '@', ' ']);
    name(scheme) && name(host) && (is_v6 || !host.contains([':', '[', ']'])) && is_port
}

/// Whether the text is valid under `cors.headers` and `cors.expose`. `*` is not, since browsers accept it
/// only for requests without credentials.
pub(crate) fn is_header_name(text: &str) -> bool {
    text != "*" && HeaderName::from_bytes(text.as_bytes()).is_ok()
}

fn yes() -> bool {
    true
}
