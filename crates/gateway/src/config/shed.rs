//! The `shed:` section: load shedding.

use schemars::JsonSchema;
use serde::Deserialize;
use services::DurationConfig;

/// Protection of the gateway against overload.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ShedConfig {
    /// Whether requests are refused when they would have to wait for the gateway's own threads.
    pub automatic: bool,
    /// The wait for a thread above which shedding begins; from then on the wait is kept to a fiftieth of it.
    /// Services are not affected: they have timeouts of their own.
    pub delay: DurationConfig,
    /// The number of requests that may be in flight, up to the last byte of their responses.
    #[schemars(range(min = 1))]
    pub max_in_flight: u32,
}

impl Default for ShedConfig {
    fn default() -> Self {
        Self { automatic: true, delay: DurationConfig::from_millis(50), max_in_flight: 20_000 }
    }
}
