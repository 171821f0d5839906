//! The `listen:` section: addresses and their protocols.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

/// The addresses that the gateway listens on: one or several.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ListenConfig {
    /// A single address, without TLS: `0.0.0.0:8080`.
    Address(String),
    /// A single address, with options.
    One(ListenerConfig),
    /// Several addresses.
    Many(#[schemars(length(min = 1))] Vec<EachListenerConfig>),
}

/// An entry of a list of addresses.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum EachListenerConfig {
    /// An address, without TLS.
    Address(String),
    /// An address, with options.
    More(ListenerConfig),
}

/// An address, with options.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListenerConfig {
    /// The address and port: `0.0.0.0:8443`, `[::]:8443`.
    pub address: String,
    /// Use TLS on this address; the client negotiates HTTP/2 or HTTP/1.1.
    #[serde(default)]
    pub tls: Option<TlsConfig>,
    /// The hosts that this address serves: `shop.example.org`, `*.shop.example.org`, or
    /// `shop.example.org:8443` for a single port. Requests for other hosts are refused (421). By default all
    /// hosts are served, but pages of a host that the config doesn't name count as cross-origin.
    #[serde(default)]
    pub hosts: Vec<String>,
}

/// TLS 1.2 and 1.3 on an address. Files that change are read again.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// The gateway's certificates. The one that matches the requested server name (SNI) is sent, or else the
    /// first.
    #[schemars(length(min = 1))]
    pub certificates: Vec<CertificateConfig>,
    /// Request certificates from clients too.
    #[serde(default)]
    pub client: Option<ClientCertificatesConfig>,
}

/// A certificate and its key. Paths are relative to the config.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CertificateConfig {
    /// The file with the certificate chain in PEM, the gateway's certificate first.
    pub cert: PathBuf,
    /// The file with the private key, in PEM.
    pub key: PathBuf,
}

/// The client certificates that are accepted, with at most 2 intermediate ones and 16 KiB in all.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientCertificatesConfig {
    /// The file with the certificate authorities of client certificates, in PEM.
    pub ca: PathBuf,
    /// Refuse clients without a certificate.
    #[serde(default = "default_required")]
    pub required: bool,
}

fn default_required() -> bool {
    true
}

impl EachListenerConfig {
    fn listener(&self) -> Option<&ListenerConfig> {
        match self {
            Self::Address(_) => None,
            Self::More(listener) => Some(listener),
        }
    }
}

impl ListenConfig {
    /// A single address, without TLS.
    #[must_use]
    pub fn from_address(address: impl Into<String>) -> Self {
        Self::Address(address.into())
    }

    /// Every address, in the order of the config.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        self.addresses_with_tls().into_iter().map(|(_, address, _)| address)
    }

    /// The hosts of all addresses.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = &String> {
        let configs = self.listeners();
        configs.into_iter().flat_map(|listener| &listener.hosts)
    }

    /// The hosts of one address.
    pub(crate) fn hosts_at<'a>(&'a self, address: &str) -> impl Iterator<Item = &'a String> {
        let here = self.listeners().into_iter().filter(move |listener| listener.address == address);
        here.flat_map(|listener| &listener.hosts).collect::<Vec<_>>().into_iter()
    }

    /// The addresses with options.
    fn listeners(&self) -> Vec<&ListenerConfig> {
        match self {
            Self::Address(_) => Vec::new(),
            Self::One(one) => vec![one],
            Self::Many(many) => many.iter().filter_map(EachListenerConfig::listener).collect(),
        }
    }

    /// Every address with its JSON Pointer in the config and its TLS options.
    pub(crate) fn addresses_with_tls(&self) -> Vec<(String, &str, Option<&TlsConfig>)> {
        let many = match self {
            Self::Address(address) => return vec![("/listen".to_owned(), address, None)],
            Self::One(one) => return vec![("/listen".to_owned(), &one.address, one.tls.as_ref())],
            Self::Many(many) => many.iter().enumerate(),
        };
        let each = many.map(|(index, each)| {
            let (address, tls) = match each {
                EachListenerConfig::Address(address) => (address, None),
                EachListenerConfig::More(more) => (&more.address, more.tls.as_ref()),
            };
            (format!("/listen/{index}"), address.as_str(), tls)
        });
        each.collect()
    }
}
