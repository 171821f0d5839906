//! The config of rights: `rights:`, with a row for each caller or group.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;
use services::config::{CpuPerTime, PerTime};
use services::path::PathGlob;

/// The row for requests without credentials.
pub(crate) const ANONYMOUS: &str = "anonymous";
/// The row for callers without a row of their own.
pub(crate) const OTHERS_ROW: &str = "others";

/// Rights by the names of callers or groups, in the file's order. `anonymous` applies to requests without
/// credentials, `others` to every caller without a row.
pub type RightsConfig = IndexMap<String, RowConfig>;

/// The rights of one caller, or of each caller in a group. Settings that are left out do not restrict
/// anything.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RowConfig {
    /// The routes, as patterns for their paths: `/catalog/*`, `/**`.
    pub routes: Option<Vec<String>>,
    /// The services that may be called, by programs and by proxied requests.
    pub services: Option<Vec<String>>,
    /// The methods that services may be called with.
    pub methods: Option<Vec<String>>,
    /// Caps for programs, beside those of the route. The smaller one applies.
    pub limits: handler::CallerLimits,
    /// Rate limits. Each caller has its own account; anonymous requests are counted by address. The first 48
    /// bits of an IPv6 address, which often belong to one customer, have 16 times the rates of an address.
    pub rate: Option<RateConfig>,
}

/// The rate limits of a caller.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RateConfig {
    /// The sustained rate of requests: `100/s`, `6000/m`.
    pub requests: Option<PerTime>,
    /// The number of requests that may arrive at once after a pause. By default the requests of one second.
    #[schemars(range(min = 1))]
    pub burst: Option<u32>,
    /// The sustained rate of CPU time of programs: `500ms/s`.
    pub cpu: Option<CpuPerTime>,
    /// The number of requests that may be in flight at once, up to the last byte of their responses.
    #[schemars(range(min = 1))]
    pub max_in_flight: Option<u32>,
}

/// Whether a pattern covers a route, including every path that the route's own `*` matches.
pub(crate) fn covers(pattern: &PathGlob, route: &str) -> bool {
    pattern.matches(route)
}
