//! How a service is connected to, as it is written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which HTTP a service is spoken to in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// What TLS agrees on, HTTP/2 rather than HTTP/1.1; HTTP/1.1 in clear text.
    #[default]
    Auto,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2, in clear text too (h2c by prior knowledge, RFC 9113, 3.3): for gRPC.
    Http2,
}

/// TLS towards the targets of a service that begin with `https://`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceTlsConfig {
    /// The authorities that are trusted instead of the public ones: a file of certificates in PEM.
    #[serde(default)]
    pub ca: Option<String>,
    /// The certificate that the gateway shows if it is asked who it is: a PEM file, with the chain.
    #[serde(default)]
    pub cert: Option<String>,
    /// The private key of `cert`: a PEM file.
    #[serde(default)]
    pub key: Option<String>,
    /// The name that a target's certificate has to bear, and that the target is told (SNI). Without it: the
    /// host in its URL.
    #[serde(default)]
    pub server_name: Option<String>,
}

impl ServiceTlsConfig {
    /// The files that it names, which are read whenever the config is.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        [&self.ca, &self.cert, &self.key].into_iter().filter_map(|file| file.as_deref())
    }
}
