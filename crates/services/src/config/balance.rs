//! How a service's targets are watched and when a request is tried again, as an operator writes it.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::Deserialize;

use super::units::{Duration, NumberOrText, Percent, written};

/// When a request is sent to another target. Only safe methods (RFC 9110, 9.2.1) are sent again, after a
/// target broke off before its answer, was too slow to begin it, or answered 500, 502, 503 or 504; any
/// request is, as long as nothing of it was sent, or a target says over HTTP/2 that it did nothing with it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RetriesConfig {
    /// How often one request may be sent again, each time to another target; at most 10, 0 for never.
    #[serde(default = "default_attempts")]
    pub attempts: u32,
    /// How much the retries of all requests may add to the traffic of the last ten seconds. Three a second
    /// are free on top, so that a service with few requests has some; and those after a target where nobody
    /// listens.
    #[serde(default = "default_budget")]
    pub budget: Percent,
}

/// Requests of the gateway's own that find out whether a target is well. One that is not gets no
/// requests until it is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HealthConfig {
    /// Path and query of a `GET`, below the target's URL: `/healthz`.
    pub path: String,
    /// How often each target is asked.
    #[serde(default = "default_every")]
    pub every: Duration,
    /// How long it may take to answer.
    #[serde(default = "default_health_timeout")]
    pub timeout: Duration,
    /// Which statuses say that it is well: one, or a range of them.
    #[serde(default)]
    pub status: Statuses,
    /// How many good answers in a row bring a target back.
    #[serde(default = "default_healthy")]
    pub healthy: u32,
    /// How many bad or missing answers in a row take a target out.
    #[serde(default = "default_unhealthy")]
    pub unhealthy: u32,
}

/// Statuses as they are written: `204`, `200-299`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statuses {
    /// The first.
    pub from: u16,
    /// The last.
    pub to: u16,
}

impl Statuses {
    /// Whether this status is one of them.
    #[must_use]
    pub fn contain(&self, status: http::StatusCode) -> bool {
        (self.from..=self.to).contains(&status.as_u16())
    }
}

impl Default for RetriesConfig {
    fn default() -> Self {
        Self { attempts: default_attempts(), budget: default_budget() }
    }
}

impl Default for Statuses {
    fn default() -> Self {
        Self { from: 200, to: 299 }
    }
}

impl FromStr for Statuses {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (from, to) = text.split_once('-').unwrap_or((text, text));
        let status = |text: &str| {
            let digits = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| text.parse().ok()).flatten().filter(|status| (100..=599).contains(status))
        };
        match (status(from), status(to)) {
            (Some(from), Some(to)) if from <= to => Ok(Self { from, to }),
            _ => Err(format!("`{text}` is no range of statuses: write it as in `204` or `200-299`")),
        }
    }
}

impl fmt::Display for Statuses {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.from == self.to {
            write!(out, "{}", self.from)
        } else {
            write!(out, "{}-{}", self.from, self.to)
        }
    }
}

written!(Statuses as NumberOrText, {
    "type": ["string", "integer"],
    "minimum": 100,
    "maximum": 599,
    "pattern": "^[1-5][0-9]{2}(-[1-5][0-9]{2})?$",
    "description": "One status or a range of them, as in `204` or `200-299`.",
});

fn default_attempts() -> u32 {
    2
}

fn default_budget() -> Percent {
    Percent(20)
}

fn default_every() -> Duration {
    Duration::from_secs(5)
}

fn default_health_timeout() -> Duration {
    Duration::from_secs(1)
}

fn default_healthy() -> u32 {
    2
}

fn default_unhealthy() -> u32 {
    3
}
