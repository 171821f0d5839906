//! The `listen:` section: addresses, and how each of them is spoken to.

use std::path::PathBuf;

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
    /// Speak TLS here, HTTP/2 and HTTP/1.1 as the client likes.
    #[serde(default)]
    pub tls: Option<TlsConfig>,
    /// The hosts that this address answers for: `shop.example.org`, `*.shop.example.org`, `shop.example.org:8443` for one
    /// port alone. Requests for others are refused (421). Without it all hosts are answered, but pages of a host whose name
    /// stands nowhere in the config are foreign.
    #[serde(default)]
    pub hosts: Vec<String>,
}

/// TLS 1.2 and 1.3 on an address. Files that change are read again.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// The gateway's certificates. Clients get the one with the name that they ask for (SNI), else the first.
    #[schemars(length(min = 1))]
    pub certificates: Vec<CertificateConfig>,
    /// Ask clients for certificates too.
    #[serde(default)]
    pub client: Option<ClientCertificatesConfig>,
}

/// A certificate and its key. Paths are relative to the config.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CertificateConfig {
    /// The file of the certificate, then of those between it and its root, in PEM.
    pub cert: PathBuf,
    /// The file of its private key, in PEM.
    pub key: PathBuf,
}

/// Which clients' certificates are believed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientCertificatesConfig {
    /// The file of the certificates that clients' own have to come from, in PEM.
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
    /// One address in clear text.
    #[must_use]
    pub fn at(address: impl Into<String>) -> Self {
        Self::Address(address.into())
    }

    /// Every address, in the order of the config.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        self.each().into_iter().map(|(_, address, _)| address)
    }

    /// The hosts that addresses answer for, of all of them together.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = &String> {
        let each = self.listeners();
        each.into_iter().flat_map(|listener| &listener.hosts)
    }

    /// The hosts that an address answers for.
    pub(crate) fn hosts_at<'a>(&'a self, address: &str) -> impl Iterator<Item = &'a String> {
        let here = self.listeners().into_iter().filter(move |listener| listener.address == address);
        here.flat_map(|listener| &listener.hosts).collect::<Vec<_>>().into_iter()
    }

    /// Those of which more is said than their address.
    fn listeners(&self) -> Vec<&ListenerConfig> {
        match self {
            Self::Address(_) => Vec::new(),
            Self::One(one) => vec![one],
            Self::Many(many) => many.iter().filter_map(EachListenerConfig::listener).collect(),
        }
    }

    /// Every address with its JSON Pointer in the config, and how it is spoken to.
    pub(crate) fn each(&self) -> Vec<(String, &str, Option<&TlsConfig>)> {
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
