//! The `admin:` section: where the operator asks, and by which names.

use schemars::JsonSchema;
use serde::Deserialize;

/// The admin listener: its address, or more than that.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum AdminConfig {
    /// The address: `127.0.0.1:9090`, or `off`.
    Address(String),
    /// The address with more to say of it.
    More(AdminListenerConfig),
}

/// The admin listener, and the names that it answers to.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdminListenerConfig {
    /// The address and port: `0.0.0.0:9090`; `off` for nowhere.
    pub address: String,
    /// The hosts that it answers to besides those of `listen`, IP addresses and `localhost`:
    /// `orfa-admin.shop.svc.cluster.local`, `*.shop.svc`. Requests for others are refused, so that no page can reach it by a
    /// name of its own.
    #[serde(default)]
    pub hosts: Vec<String>,
}

impl AdminConfig {
    /// The address, or `off`.
    pub(crate) fn address(&self) -> &str {
        match self {
            Self::Address(address) | Self::More(AdminListenerConfig { address, .. }) => address,
        }
    }

    /// The hosts that are answered to besides those that need no mention.
    pub(crate) fn hosts(&self) -> &[String] {
        match self {
            Self::Address(_) => &[],
            Self::More(listener) => &listener.hosts,
        }
    }
}
