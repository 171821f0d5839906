//! How a service is connected to, as it is written.

use schemars::JsonSchema;
use serde::Deserialize;

/// Which HTTP a service is spoken to in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
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
