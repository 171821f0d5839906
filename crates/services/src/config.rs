//! The `services:` section of `orfa.yaml`, and the words for time and size that all sections use.

use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

/// A span of time as it is written: `50ms`, `2s`, `5m`, `1h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Duration(pub std::time::Duration);

/// A number of bytes as it is written: `64KiB`, `16MiB`, `1GiB`, `4kB`, or a plain number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "NumberOrText")]
pub struct Bytes(pub u64);

#[derive(Deserialize)]
#[serde(untagged)]
enum NumberOrText {
    Number(u64),
    Text(String),
}

/// An upstream service: where it is, and what travels there.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceConfig {
    /// Where the service is: one URL, or a list of targets that take turns.
    pub url: OneOrMany,
    /// The service's OpenAPI document, a path relative to the config.
    #[serde(default)]
    pub openapi: Option<String>,
    /// How long one call may take, from connecting to the last byte.
    #[serde(default = "default_timeout")]
    pub timeout: Duration,
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

/// One text or a list of them.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum OneOrMany {
    /// Just one.
    One(String),
    /// A list, not empty.
    Many(#[schemars(length(min = 1))] Vec<String>),
}

fn default_timeout() -> Duration {
    Duration(std::time::Duration::from_secs(10))
}
