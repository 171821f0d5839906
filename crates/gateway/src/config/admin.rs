//! The `admin:` section: the address of the admin listener and its host names.

use schemars::JsonSchema;
use serde::Deserialize;

/// The admin listener: its address, or an address with options.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum AdminConfig {
    /// The address: `127.0.0.1:9090`, or `off`.
    Address(String),
    /// The address, with options.
    More(AdminListenerConfig),
}

/// The admin listener and its host names.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdminListenerConfig {
    /// The address and port: `0.0.0.0:9090`; `off` disables it.
    pub address: String,
    /// The hosts that it serves besides those of `listen`, IP addresses and `localhost`:
    /// `orfa-admin.shop.svc.cluster.local`, `*.shop.svc`. Requests for other hosts are refused, which
    /// protects it from DNS rebinding.
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

    /// The additional hosts that are served.
    pub(crate) fn hosts(&self) -> &[String] {
        match self {
            Self::Address(_) => &[],
            Self::More(listener) => &listener.hosts,
        }
    }
}
