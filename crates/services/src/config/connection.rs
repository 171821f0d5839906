//! Connection settings of a service: the HTTP version and TLS.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The HTTP version used with a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ServiceProtocol {
    /// HTTP/2 or HTTP/1.1 as negotiated by TLS, with a preference for HTTP/2; HTTP/1.1 in clear text.
    #[default]
    Auto,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2, also in clear text (h2c with prior knowledge, RFC 9113, section 3.3), for example for gRPC.
    Http2,
}

/// TLS settings for the targets of a service whose URLs begin with `https://`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceTlsConfig {
    /// The authorities to trust instead of the public ones: a PEM file of certificates.
    #[serde(default)]
    pub ca: Option<String>,
    /// The gateway's client certificate, presented on request: a PEM file with the chain.
    #[serde(default)]
    pub cert: Option<String>,
    /// The private key of `cert`: a PEM file.
    #[serde(default)]
    pub key: Option<String>,
    /// The server name that is sent to a target (SNI) and that its certificate must match. Default: the host
    /// in the target's URL.
    #[serde(default)]
    pub server_name: Option<String>,
}

impl ServiceTlsConfig {
    /// Returns the files that the settings refer to, which are read whenever the config is.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        [&self.ca, &self.cert, &self.key].into_iter().filter_map(|file| file.as_deref())
    }
}
