//! The `services:` section of `orfa.yaml`: what was typed, before anything is checked or opened.
//!
//! [`crate::Services::new`] makes ready objects out of it and reports every mistake at once, as
//! [`ConfigProblem`]s. The words for time, size and rates, which all sections use, stand in `units.rs`.

mod balance;
mod connection;
mod units;

use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

pub use balance::{HealthConfig, RetriesConfig, Statuses};
pub use connection::{Protocol, ServiceTlsConfig};
pub use units::{Bytes, CpuPerTime, Duration, PerTime, Percent, UnitError};

/// An upstream service: where it is, and what travels there.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceConfig {
    /// Where the service is: one URL, or a list of targets. Each address that a name stands for is an
    /// endpoint; a request goes to the one with the fewest under way.
    pub url: OneOrMany,
    /// How often the names in the URLs are looked up again while the service is used. Addresses that are
    /// gone get no new requests; where a look-up fails, the old ones stay.
    #[serde(default = "default_dns")]
    pub dns: Duration,
    /// The service's OpenAPI document (2.0 to 3.1, JSON or YAML), a path relative to the config: what a query route
    /// says of the service, and the types of programs.
    #[serde(default)]
    pub openapi: Option<String>,
    /// The service speaks GraphQL: where, and by which schema. For routes with `graphql`.
    #[serde(default)]
    pub graphql: Option<GraphqlServiceConfig>,
    /// How long one call of a program may take, from connecting to the last byte, retries included. For a
    /// proxied request: how long until the answer begins, once the request's body is there.
    #[serde(default = "default_timeout")]
    pub timeout: Duration,
    /// How long connecting to a target may take, with TLS.
    #[serde(default = "default_connect_timeout")]
    pub connect_timeout: Duration,
    /// Which HTTP its targets are spoken to in: `auto`, `http1` or `http2`.
    #[serde(default)]
    pub protocol: Protocol,
    /// Whom TLS trusts, and who the gateway says it is. Without it: the public authorities, nobody.
    #[serde(default)]
    pub tls: Option<ServiceTlsConfig>,
    /// How long one target may take to begin its answer, once it has the request. A safe request is then
    /// sent to another one. Without it, only `timeout` counts.
    #[serde(default)]
    pub first_byte_timeout: Option<Duration>,
    /// How long a streamed answer, or a streamed request, may stand still.
    #[serde(default = "default_idle_timeout")]
    pub idle_timeout: Duration,
    /// How long a connection may be silent, both ways, that was handed over to another protocol, such as a
    /// WebSocket: longer than `idle_timeout`, since there silence is no fault.
    #[serde(default = "default_upgrade_idle_timeout")]
    pub upgrade_idle_timeout: Duration,
    /// The protocols that a client's connection may be handed over to (`Upgrade`). Others that a client offers are not
    /// passed on, and its request is answered without them. Never `h2c` or `TLS`: requests would pass unchecked.
    #[serde(default = "default_upgrades")]
    pub upgrades: Vec<String>,
    /// When a request is sent to another target.
    #[serde(default)]
    pub retries: RetriesConfig,
    /// Requests of the gateway's own that find out whether a target is well. Without it, only the answers
    /// to requests show it: a target that fails in a row is left out for a while.
    #[serde(default)]
    pub health: Option<HealthConfig>,
    /// Which of the client's own headers travel on to this service.
    #[serde(default)]
    pub forward: Vec<String>,
    /// Headers that the gateway adds to every call: credentials that programs use and never see.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Which paths may be called, as globs: `/buyers/*`. Without it: all.
    #[serde(default)]
    pub paths: Vec<String>,
}

/// A service that speaks GraphQL.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GraphqlServiceConfig {
    /// The path at which it answers, below the service's URL.
    pub path: String,
    /// Its schema in the schema definition language: a path relative to the config. Without it the service is asked by
    /// introspection when the config is put to work.
    pub schema: Option<String>,
    /// Whether it is a subgraph of Apollo Federation: it finds objects by their keys (`_entities`).
    pub federated: bool,
}

impl Default for GraphqlServiceConfig {
    fn default() -> Self {
        Self { path: "/graphql".to_owned(), schema: None, federated: false }
    }
}

/// One text or a list of them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum OneOrMany {
    /// Just one.
    One(String),
    /// A list, not empty.
    Many(#[schemars(length(min = 1))] Vec<String>),
}

/// A mistake in the config that its schema can't express.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{pointer}: {message}")]
pub struct ConfigProblem {
    /// Where it stands, as a JSON Pointer below `/services`: `/catalog/url/0`.
    pub pointer: String,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

/// The nearest of the known words, where one is near enough to be what was meant: a hint.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    known
        .into_iter()
        .map(|known| (strsim::damerau_levenshtein(word, known), known))
        .filter(|(distance, known)| *distance <= 1 + known.len() / 4)
        .min()
        .map(|(_, known)| format!("did you mean `{known}`?"))
}

impl ServiceConfig {
    /// A service at one URL, and all else as it is where nothing is written: `orfa dev`, tests.
    #[must_use]
    pub fn at(url: impl Into<String>) -> Self {
        Self {
            url: OneOrMany::One(url.into()),
            openapi: None,
            graphql: None,
            dns: default_dns(),
            timeout: default_timeout(),
            connect_timeout: default_connect_timeout(),
            protocol: Protocol::Auto,
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
    /// The texts, however many.
    #[must_use]
    pub fn as_slice(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

fn default_connect_timeout() -> Duration {
    Duration::from_secs(5)
}

fn default_dns() -> Duration {
    Duration::from_secs(5)
}

fn default_idle_timeout() -> Duration {
    Duration::from_secs(60)
}

/// Longer than most load balancers and proxies have it (a minute, in nginx), so that what lives behind those
/// lives here too.
fn default_upgrade_idle_timeout() -> Duration {
    Duration::from_secs(5 * 60)
}

fn default_upgrades() -> Vec<String> {
    vec!["websocket".to_owned()]
}

fn default_timeout() -> Duration {
    Duration::from_secs(10)
}

#[cfg(test)]
mod tests;
