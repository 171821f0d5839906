//! The limits that the operator sets for one caller.

use schemars::JsonSchema;
use serde::Deserialize;
use services::{BytesConfig, DurationConfig};

/// The limits of one caller's programs, in addition to the route's: the smaller value applies. A limit that
/// is left out adds no restriction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CallerLimits {
    /// The CPU time of a program, including host functions.
    pub cpu: Option<DurationConfig>,
    /// The time from the first byte of the request to the answer.
    pub timeout: Option<DurationConfig>,
    /// The memory of a program, including the memory that the gateway uses for it.
    pub memory: Option<BytesConfig>,
    /// The number of upstream calls.
    pub calls: Option<u32>,
    /// The number of concurrent upstream calls. Further calls wait.
    #[schemars(range(min = 1))]
    pub concurrency: Option<u32>,
    /// The bytes received from upstream services, after decompression.
    pub upstream_bytes: Option<BytesConfig>,
    /// The bytes of the answer.
    pub response_body: Option<BytesConfig>,
}
