//! What an operator writes under a route's `aggregate:`.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;
use services::{Bytes, Duration};

/// A route that an aggregate answers: the file of its declaration, or more than that.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum AggregateConfig {
    /// Just the file: `buyers.yaml`. A path relative to the config.
    File(PathBuf),
    /// The file and how much its requests may do.
    More(Box<AggregateOptions>),
}

/// An aggregate, and how much its requests may do.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AggregateOptions {
    /// The declaration: a path relative to the config.
    pub file: PathBuf,
    /// The caps of each request.
    #[serde(default)]
    pub limits: LimitsConfig,
}

/// The caps of each request to an aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Upstream calls, equal ones counted once.
    pub calls: u32,
    /// Upstream calls under way at once; further ones wait.
    #[schemars(range(min = 1))]
    pub parallel: u32,
    /// Different calls that one `each` makes.
    pub fan_out: u32,
    /// Bytes from the services.
    pub received: Bytes,
    /// Time from the request's beginning to the beginning of its answer.
    pub deadline: Duration,
    /// Bytes of the request's body.
    pub body: Bytes,
    /// Bytes of the answer.
    pub response_body: Bytes,
    /// Bytes that a request takes beside what the services sent: to find its way in that, and to compose the answer.
    pub memory: Bytes,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            calls: 500,
            parallel: 16,
            fan_out: 200,
            received: Bytes::mib(64),
            deadline: Duration::from_secs(10),
            body: Bytes::mib(1),
            response_body: Bytes::mib(64),
            memory: Bytes::mib(128),
        }
    }
}

impl AggregateConfig {
    /// The file of the declaration.
    #[must_use]
    pub fn file(&self) -> &Path {
        match self {
            Self::File(file) => file,
            Self::More(more) => &more.file,
        }
    }

    /// The caps of each request.
    #[must_use]
    pub fn limits(&self) -> LimitsConfig {
        match self {
            Self::File(_) => LimitsConfig::default(),
            Self::More(more) => more.limits,
        }
    }
}
