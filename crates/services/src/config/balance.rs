//! Retry and health check settings of a service.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::Deserialize;

use super::units::{DurationConfig, NumberOrText, PercentConfig, written};

/// Retries of requests on other targets. Safe methods (RFC 9110, section 9.2.1) are retried after a target
/// closed the connection before its response, exceeded `first_byte_timeout`, or responded with 500, 502, 503
/// or 504. Other requests are retried only if nothing of them was sent, or if a target reports over HTTP/2
/// that it did not process them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RetriesConfig {
    /// The number of retries of one request, each on another target: at most 10, or 0 for none.
    #[serde(default = "default_attempts")]
    pub attempts: u32,
    /// The share that retries may add to the traffic of the last ten seconds. Three retries per second are
    /// always allowed, so that services with little traffic can retry too. Retries after a refused connection
    /// do not count.
    #[serde(default = "default_budget")]
    pub budget: PercentConfig,
}

/// Active health checks: requests that the gateway sends to each target. An unhealthy target gets no other
/// requests until it has recovered.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HealthConfig {
    /// The path and query of a `GET` request, relative to the target's URL: `/healthz`.
    pub path: String,
    /// The interval between health checks of each target.
    #[serde(default = "default_interval")]
    pub interval: DurationConfig,
    /// The timeout of one health check.
    #[serde(default = "default_health_timeout")]
    pub timeout: DurationConfig,
    /// The statuses of a healthy target: one status or a range.
    #[serde(default)]
    pub status: StatusRange,
    /// The number of consecutive successful checks that restore a target.
    #[serde(default = "default_healthy_threshold")]
    pub healthy_threshold: u32,
    /// The number of consecutive failed checks, or checks without a response, that eject a target.
    #[serde(default = "default_unhealthy_threshold")]
    pub unhealthy_threshold: u32,
}

/// A status or a range of statuses in its written form: `204`, `200-299`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusRange {
    /// The first status of the range.
    pub from: u16,
    /// The last status of the range.
    pub to: u16,
}

impl StatusRange {
    /// Whether the range contains the status.
    #[must_use]
    pub fn contains_status(&self, status: http::StatusCode) -> bool {
        (self.from..=self.to).contains(&status.as_u16())
    }
}

impl Default for RetriesConfig {
    fn default() -> Self {
        Self { attempts: default_attempts(), budget: default_budget() }
    }
}

impl Default for StatusRange {
    fn default() -> Self {
        Self { from: 200, to: 299 }
    }
}

impl FromStr for StatusRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (from, to) = text.split_once('-').unwrap_or((text, text));
        let status = |text: &str| {
            let digits = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| text.parse().ok()).flatten().filter(|status| (100..=599).contains(status))
        };
        match (status(from), status(to)) {
            (Some(from), Some(to)) if from <= to => Ok(Self { from, to }),
            _ => Err(format!("`{text}` is not a status range: write it as in `204` or `200-299`")),
        }
    }
}

impl fmt::Display for StatusRange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.from == self.to {
            write!(out, "{}", self.from)
        } else {
            write!(out, "{}-{}", self.from, self.to)
        }
    }
}

written!(StatusRange as NumberOrText, {
    "type": ["string", "integer"],
    "minimum": 100,
    "maximum": 599,
    "pattern": "^[1-5][0-9]{2}(-[1-5][0-9]{2})?$",
    "description": "One status or a range of them, as in `204` or `200-299`.",
});

fn default_attempts() -> u32 {
    2
}

fn default_budget() -> PercentConfig {
    PercentConfig(20)
}

fn default_interval() -> DurationConfig {
    DurationConfig::from_secs(5)
}

fn default_health_timeout() -> DurationConfig {
    DurationConfig::from_secs(1)
}

fn default_healthy_threshold() -> u32 {
    2
}

fn default_unhealthy_threshold() -> u32 {
    3
}
