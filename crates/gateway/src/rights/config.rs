//! What an operator writes of rights: `rights:`, a row for each caller or group.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use indexmap::IndexMap;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

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

/// A number of times in a span: `100/s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct PerTime {
    /// How many.
    pub count: u64,
    /// In how much time.
    pub span: Duration,
}

/// CPU time in a span of time: `500ms/s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct CpuPerTime {
    /// How much.
    pub cpu: Duration,
    /// In how much time.
    pub span: Duration,
}

/// A text that is no rate.
#[derive(Clone, Debug, thiserror::Error)]
pub struct NoRate(String);

impl fmt::Display for NoRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no rate: write 100/s, or 500ms/s of CPU time", self.0)
    }
}

/// The span behind the slash: one second, minute or hour.
fn span(unit: &str) -> Option<Duration> {
    match unit {
        "s" => Some(Duration::from_secs(1)),
        "m" => Some(Duration::from_secs(60)),
        "h" => Some(Duration::from_secs(3600)),
        _ => None,
    }
}

impl FromStr for PerTime {
    type Err = NoRate;

    fn from_str(text: &str) -> Result<Self, NoRate> {
        let wrong = || NoRate(text.to_owned());
        let (count, unit) = text.split_once('/').ok_or_else(wrong)?;
        let count = count.parse().ok().filter(|count| *count > 0).ok_or_else(wrong)?;
        Ok(Self { count, span: span(unit).ok_or_else(wrong)? })
    }
}

impl FromStr for CpuPerTime {
    type Err = NoRate;

    fn from_str(text: &str) -> Result<Self, NoRate> {
        let wrong = || NoRate(text.to_owned());
        let (cpu, unit) = text.split_once('/').ok_or_else(wrong)?;
        let cpu = cpu.parse::<services::Duration>().map_err(|_| wrong())?.0;
        if cpu.is_zero() {
            return Err(wrong());
        }
        Ok(Self { cpu, span: span(unit).ok_or_else(wrong)? })
    }
}

impl TryFrom<String> for PerTime {
    type Error = NoRate;

    fn try_from(text: String) -> Result<Self, NoRate> {
        text.parse()
    }
}

impl TryFrom<String> for CpuPerTime {
    type Error = NoRate;

    fn try_from(text: String) -> Result<Self, NoRate> {
        text.parse()
    }
}

impl JsonSchema for PerTime {
    fn schema_name() -> Cow<'static, str> {
        "PerTime".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^0*[1-9][0-9]{0,11}/(s|m|h)$",
            "description": "A number in a second, a minute or an hour, as in `100/s`.",
        })
    }
}

impl JsonSchema for CpuPerTime {
    fn schema_name() -> Cow<'static, str> {
        "CpuPerTime".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^0*[1-9][0-9]{0,11}(us|ms|s|m)/(s|m|h)$",
            "description": "CPU time in a second, a minute or an hour, as in `500ms/s`.",
        })
    }
}
