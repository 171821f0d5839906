//! The `aggregate:` section of a route.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;
use services::{BytesConfig, CallLimits, DurationConfig};

/// An aggregate: the file of its declaration, or an object with further settings.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum AggregateConfig {
    /// The file alone: `buyers.yaml`. The path is relative to the config.
    File(PathBuf),
    /// The file, and the limits of its requests.
    More(Box<AggregateOptions>),
}

/// An aggregate, and the limits of its requests.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AggregateOptions {
    /// The file of the declaration. The path is relative to the config.
    pub file: PathBuf,
    /// The limits of each request.
    #[serde(default)]
    pub limits: AggregateLimitsConfig,
}

/// The limits of each request to an aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AggregateLimitsConfig {
    /// The maximum number of upstream calls. Equal calls count once.
    pub calls: u32,
    /// The maximum number of concurrent upstream calls. Further calls wait.
    #[schemars(range(min = 1))]
    pub concurrency: u32,
    /// The maximum number of distinct calls of one `each`.
    pub fan_out: u32,
    /// The maximum number of bytes received from services.
    pub upstream_bytes: BytesConfig,
    /// The maximum time from the beginning of the request to the beginning of the response.
    pub timeout: DurationConfig,
    /// The maximum size of the request body.
    pub request_body: BytesConfig,
    /// The maximum size of the response body.
    pub response_body: BytesConfig,
    /// The maximum memory of a request, apart from the responses of services: their indexes, and the composed
    /// response.
    pub memory: BytesConfig,
}

impl AggregateLimitsConfig {
    /// Returns the limits of the upstream calls of a request.
    pub(crate) fn call_limits(&self) -> CallLimits {
        CallLimits {
            timeout: self.timeout.0,
            calls: self.calls,
            upstream_bytes: self.upstream_bytes.0,
            concurrency: self.concurrency as usize,
        }
    }
}

impl Default for AggregateLimitsConfig {
    fn default() -> Self {
        Self {
            calls: 500,
            concurrency: 16,
            fan_out: 200,
            upstream_bytes: BytesConfig::mib(64),
            timeout: DurationConfig::from_secs(10),
            request_body: BytesConfig::mib(1),
            response_body: BytesConfig::mib(64),
            memory: BytesConfig::mib(128),
        }
    }
}

impl AggregateConfig {
    /// Returns the file of the declaration.
    #[must_use]
    pub fn file(&self) -> &Path {
        match self {
            Self::File(file) => file,
            Self::More(more) => &more.file,
        }
    }

    /// Returns the limits of each request.
    #[must_use]
    pub fn limits(&self) -> AggregateLimitsConfig {
        match self {
            Self::File(_) => AggregateLimitsConfig::default(),
            Self::More(more) => more.limits,
        }
    }
}
