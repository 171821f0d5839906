//! The `listen:` section: addresses, and how each of them is spoken to.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::Deserialize;

/// Where the gateway listens: one place or several.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ListenConfig {
    /// One address, in clear text: `0.0.0.0:8080`.
    Address(String),
    /// One address with more to say of it.
    One(ListenerConfig),
    /// Several.
    Many(#[schemars(length(min = 1))] Vec<EachListenerConfig>),
}

/// One of several places.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum EachListenerConfig {
    /// An address, in clear text.
    Address(String),
    /// An address with more to say of it.
    More(ListenerConfig),
}

/// An address, and how it is spoken to.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListenerConfig {
    /// The address and port: `0.0.0.0:8443`, `[::]:8443`.
    pub address: String,
}

impl ListenConfig {
    /// One address in clear text.
    #[must_use]
    pub fn at(address: impl Into<String>) -> Self {
        Self::Address(address.into())
    }

    /// Whether only this machine can reach it: every address is a loopback address.
    pub(crate) fn is_local(&self) -> bool {
        let is_local =
            |address: &str| address.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback());
        self.addresses().all(is_local)
    }

    /// Every address, in the order of the config.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        let (first, rest): (Option<&str>, &[EachListenerConfig]) = match self {
            Self::Address(address) => (Some(address), &[]),
            Self::One(listener) => (Some(&listener.address), &[]),
            Self::Many(many) => (None, many),
        };
        first.into_iter().chain(rest.iter().map(|each| match each {
            EachListenerConfig::Address(address) => address.as_str(),
            EachListenerConfig::More(listener) => &listener.address,
        }))
    }
}
