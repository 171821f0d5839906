//! What an operator writes of rights: `rights:`, a row for each caller or group.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;
use services::config::{CpuPerTime, PerTime};

/// What callers may do, by their own names or those of their groups, in the file's order. `anonymous` is
/// who brings no credentials, `others` every caller that no row names.
pub type RightsConfig = IndexMap<String, RowConfig>;

/// What one caller, or each caller of a group, may do. What is left out is not restricted.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RowConfig {
    /// The routes, as patterns for their paths: `/catalog/*`, `/**`.
    pub routes: Option<Vec<String>>,
    /// The services that may be called, by programs and by proxied requests.
    pub services: Option<Vec<String>>,
    /// The methods that services may be called with.
    pub methods: Option<Vec<String>>,
    /// Caps for programs, beside those of the route: the smaller one holds.
    pub limits: query::CallerLimits,
    /// How much at a time. Each caller has its own account, and each address of those without a name.
    pub rate: Option<RateConfig>,
}

/// How much a caller may ask at a time.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RateConfig {
    /// How many requests, in the long run: `100/s`, `6000/m`.
    pub requests: Option<PerTime>,
    /// How many requests may come at once after a pause. By default what comes in a second.
    #[schemars(range(min = 1))]
    pub burst: Option<u32>,
    /// How much CPU time programs may take, in the long run: `500ms/s`.
    pub cpu: Option<CpuPerTime>,
    /// How many requests may be under way at once, up to the last byte of their answers.
    #[schemars(range(min = 1))]
    pub at_once: Option<u32>,
}
