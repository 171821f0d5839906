//! The `services:` section of `orfa.yaml` as it is written, before anything is checked or opened.
//!
//! [`crate::ServiceSet::new`] checks it and reports all mistakes at once. The types
//! for durations, sizes and rates, which all sections share, are in `units.rs`.

mod balance;
mod connection;
mod units;

use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

pub use balance::{HealthConfig, RetriesConfig, StatusRange};
pub use connection::{ServiceProtocol, ServiceTlsConfig};
pub use units::{BytesConfig, CpuPerTime, DurationConfig, PerTime, PercentConfig, UnitError};

/// An upstream service: its targets, the protocol and limits of calls to it, and its headers.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceConfig {
    /// The service's targets: one URL, or a list of them. Each address that a host name resolves to is an
    /// endpoint; a request goes to the endpoint with the fewest requests in flight.
    pub url: OneOrMany,
    /// The interval at which the host names in the URLs are resolved again while the service is in use.
    /// Endpoints whose addresses disappear get no new requests; if a lookup fails, the previous addresses
    /// remain in use.
    #[serde(default = "default_dns_refresh_rate")]
    pub dns_refresh_rate: DurationConfig,
    /// The service's OpenAPI document (2.0 to 3.1, JSON or YAML), a path relative to the config. Query routes
    /// publish it as the service's description, and types for programs are generated from it.
    #[serde(default)]
    pub openapi: Option<String>,
    /// Marks a service that offers a GraphQL API, with its path and schema. For routes with `graphql`.
    #[serde(default)]
    pub graphql: Option<GraphqlServiceConfig>,
    /// The timeout of one call by a program, from connecting to the last byte, retries included. For a
    /// proxied request: the time until the response begins, counted from the end of the request body.
    #[serde(default = "default_timeout")]
    pub timeout: DurationConfig,
    /// The timeout for connecting to a target, including the TLS handshake.
    #[serde(default = "default_connect_timeout")]
    pub connect_timeout: DurationConfig,
    /// The HTTP version used with the targets: `auto`, `http1` or `http2`.
    #[serde(default)]
    pub protocol: ServiceProtocol,
    /// TLS settings: the trusted authorities and the gateway's client certificate. Default: the public
    /// authorities and no client certificate.
    #[serde(default)]
    pub tls: Option<ServiceTlsConfig>,
    /// The timeout for the first byte of a target's response, counted from the end of the request. A safe
    /// request is then retried on another target. Without it, only `timeout` applies.
    #[serde(default)]
    pub first_byte_timeout: Option<DurationConfig>,
    /// The longest pause without data in a streamed response or request body.
    #[serde(default = "default_idle_timeout")]
    pub idle_timeout: DurationConfig,
    /// The idle timeout of connections that were upgraded to another protocol, such as WebSocket, in both
    /// directions. Longer than `idle_timeout`, since silence is normal for these protocols.
    #[serde(default = "default_upgrade_idle_timeout")]
    pub upgrade_idle_timeout: DurationConfig,
    /// The protocols to which a client's connection may be upgraded (`Upgrade`). Other protocols that a
    /// client offers are not forwarded, and its request is handled without an upgrade. `h2c` and `TLS` are
    /// never allowed: requests would pass unchecked.
    #[serde(default = "default_upgrades")]
    pub upgrades: Vec<String>,
    /// Retries of requests on other targets.
    #[serde(default)]
    pub retries: RetriesConfig,
    /// Active health checks of the targets. Without it, health is derived from responses only: a target with
    /// consecutive failures is ejected for a while.
    #[serde(default)]
    pub health: Option<HealthConfig>,
    /// The client request headers that are forwarded to this service.
    #[serde(default)]
    pub forward: Vec<String>,
    /// Headers that the gateway adds to every call, for example credentials that programs use but cannot
    /// read.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The paths that may be called, as globs: `/buyers/*`. Default: all paths. A path has to match both as
    /// it is and without parameters of its segments (`;v=1`), which some servers cut off.
    #[serde(default)]
    pub paths: Vec<String>,
}

/// The GraphQL API of a service.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GraphqlServiceConfig {
    /// The path of the GraphQL endpoint, relative to the service's URL.
    pub path: String,
    /// The schema in the schema definition language: a path relative to the config. Without it, the schema is
    /// fetched by introspection when the config is activated.
    pub schema: Option<String>,
    /// Whether the service is an Apollo Federation subgraph, which resolves objects by their keys
    /// (`_entities`).
    pub federated: bool,
}

impl Default for GraphqlServiceConfig {
    fn default() -> Self {
        Self { path: "/graphql".to_owned(), schema: None, federated: false }
    }
}

/// A single string or a list of strings.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum OneOrMany {
    /// A single string.
    One(String),
    /// A non-empty list.
    Many(#[schemars(length(min = 1))] Vec<String>),
}

/// Returns a hint with the known word closest to `word`, if one is close enough to be the intended word.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    known
        .into_iter()
        .map(|known| (strsim::damerau_levenshtein(word, known), known))
        .filter(|(distance, known)| *distance <= 1 + known.len() / 4)
        .min()
        .map(|(_, known)| format!("did you mean `{known}`?"))
}

impl ServiceConfig {
    /// Returns a service at one URL with defaults for all other settings, for `orfa dev` and tests.
    #[must_use]
    pub fn with_url(url: impl Into<String>) -> Self {
        Self {
            url: OneOrMany::One(url.into()),
            openapi: None,
            graphql: None,
            dns_refresh_rate: default_dns_refresh_rate(),
            timeout: default_timeout(),
            connect_timeout: default_connect_timeout(),
            protocol: ServiceProtocol::Auto,
            tls: None,
            first_byte_timeout: None,
            idle_timeout: default_idle_timeout(),
            upgrade_idle_timeout: default_upgrade_idle_timeout(),
            upgrades: default_upgrades(),
            retries: RetriesConfig::default(),
            health: None,
            forward: Vec::new(),
            headers: BTreeMap::new(),
            paths: Vec::new(),
        }
    }
}

impl OneOrMany {
    /// The strings as a slice.
    #[must_use]
    pub fn as_slice(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

fn default_connect_timeout() -> DurationConfig {
    DurationConfig::from_secs(5)
}

fn default_dns_refresh_rate() -> DurationConfig {
    DurationConfig::from_secs(5)
}

fn default_idle_timeout() -> DurationConfig {
    DurationConfig::from_secs(60)
}

/// Longer than the default of most load balancers and proxies (one minute in nginx), so that connections
/// which survive those also survive here.
fn default_upgrade_idle_timeout() -> DurationConfig {
    DurationConfig::from_secs(5 * 60)
}

fn default_upgrades() -> Vec<String> {
    vec!["websocket".to_owned()]
}

fn default_timeout() -> DurationConfig {
    DurationConfig::from_secs(10)
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
