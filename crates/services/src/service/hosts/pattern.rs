//! Host patterns.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

/// A pattern as an operator writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ExternalHostPattern {
    /// `auth.internal`: this name, whatever its address.
    Name(Box<str>, Option<u16>),
    /// `*.example.org`: all names below a domain, stored with the leading dot; `*`: all names and addresses.
    Subdomains(Box<str>, Option<u16>),
    /// `10.0.0.0/8`, `10.1.2.3:8080`: these addresses, and names that resolve to them if another pattern
    /// permits the name.
    Network(IpNet, Option<u16>),
}

/// The reason why a text is not a host pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{pattern}` is not a host pattern: {reason}")]
pub struct HostsError {
    pattern: String,
    reason: &'static str,
}

/// A host and a port, as a caller specifies them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostAndPort {
    host: HostPart,
    port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum HostPart {
    /// A name in lower case.
    Name(Box<str>),
    /// An address. IPv4-mapped IPv6 addresses are converted to IPv4.
    Address(IpAddr),
}

impl ExternalHostPattern {
    pub(super) fn parse(text: &str) -> Result<Self, HostsError> {
        let wrong = |reason| HostsError { pattern: text.to_owned(), reason };
        if text.contains("://") {
            return Err(wrong("it begins with a scheme"));
        }
        if let Ok(network) = text.parse::<IpNet>() {
            return Ok(Self::Network(network.trunc(), None));
        }
        if text.contains('/') {
            return Err(wrong("it has a path, and is not a network"));
        }
        let (host, port) =
            split_host_port(text).ok_or_else(|| wrong("its port is not a number from 1 to 65535"))?;
        if let Some(below) = host.strip_prefix('*') {
            let below = below.to_ascii_lowercase();
            let is_whole = below.is_empty() || below.strip_prefix('.').is_some_and(is_host_name);
            return match is_whole {
                true => Ok(Self::Subdomains(below.into(), port)),
                false => Err(wrong("a `*` must be alone or before the first dot: `*.example.org`")),
            };
        }
        match HostPart::parse_host(host) {
            Some(HostPart::Name(name)) => Ok(Self::Name(name, port)),
            Some(HostPart::Address(address)) => Ok(Self::Network(address.into(), port)),
            None => Err(wrong("it is neither a name nor an address")),
        }
    }

    /// Whether the pattern permits this host and port.
    pub(super) fn permits_host(&self, and_port: &HostAndPort) -> bool {
        let (is_host, port) = match (self, &and_port.host) {
            (Self::Name(name, port), HostPart::Name(host)) => (name == host, port),
            (Self::Subdomains(below, port), HostPart::Name(host)) => (host.ends_with(&**below), port),
            (Self::Subdomains(below, port), HostPart::Address(_)) => (below.is_empty(), port),
            (Self::Network(network, port), HostPart::Address(address)) => (network.contains(address), port),
            (Self::Name(..), HostPart::Address(_)) | (Self::Network(..), HostPart::Name(_)) => return false,
        };
        is_host && port.is_none_or(|port| port == and_port.port)
    }

    /// Whether the pattern is an exact name.
    pub(super) fn is_exact_name(&self) -> bool {
        matches!(self, Self::Name(..))
    }

    /// Returns the addresses that the pattern lists explicitly.
    pub(super) fn listed_network(&self) -> Option<(IpNet, Option<u16>)> {
        match self {
            Self::Network(network, port) => Some((*network, *port)),
            Self::Name(..) | Self::Subdomains(..) => None,
        }
    }
}

impl HostAndPort {
    /// Parses `auth.internal:8080` or `[::1]:8080`, with or without the port.
    pub(super) fn parse_authority(authority: &str, default: u16) -> Option<Self> {
        let (host, port) = split_host_port(authority)?;
        Some(Self { host: HostPart::parse_host(host)?, port: port.unwrap_or(default) })
    }
}

impl fmt::Display for HostAndPort {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            HostPart::Name(name) => write!(out, "{name}:{}", self.port),
            HostPart::Address(address) => std::net::SocketAddr::new(*address, self.port).fmt(out),
        }
    }
}

impl HostPart {
    fn parse_host(text: &str) -> Option<Self> {
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        if let Some(bare) = bare {
            return Some(Self::Address(bare.parse::<Ipv6Addr>().ok()?.to_canonical()));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Some(Self::Address(address.to_canonical()));
        }
        is_host_name(text).then(|| Self::Name(text.to_ascii_lowercase().into()))
    }
}

/// Splits a text into host and optional port; returns `None` if the port is invalid.
fn split_host_port(text: &str) -> Option<(&str, Option<u16>)> {
    // An IPv6 address without brackets has no port.
    if text.parse::<Ipv6Addr>().is_ok() {
        return Some((text, None));
    }
    match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
            Some((host, Some(port.parse().ok().filter(|port| is_number && *port != 0)?)))
        }
        _ => Some((text, None)),
    }
}

/// Whether a text is a valid host name. Names that end in a number are not: some resolvers interpret `127.1`
/// and `2130706433` as addresses.
fn is_host_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let is_label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(is_plain);
    let last = text.rsplit('.').next().unwrap_or_default();
    text.len() <= 253
        && text.split('.').all(is_label)
        && !last.bytes().next().is_none_or(|first| first.is_ascii_digit())
}
