//! The hosts that are the gateway itself.
//!
//! A page whose name was made to resolve to the gateway (DNS rebinding) has that name both as its origin and
//! as the host of its requests, so their equality proves nothing. Only the operator knows the gateway's
//! names. `listen.hosts` lists them, and requests for other hosts are refused. Without it every host is
//! served, but a page counts as the gateway's own only by a name that the config mentions, or that DNS
//! rebinding can't use.

use std::net::{IpAddr, SocketAddr};

use super::client::ClientInfo;
use crate::config::ListenConfig;
use crate::config::host_names::{HostNames, NormalizedHost};

/// The hosts that are the gateway itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnHosts {
    names: HostNames,
    addresses: Vec<IpAddr>,
    /// Whether some listener is bound to all addresses of the machine.
    has_wildcard_listener: bool,
}

impl OwnHosts {
    /// Returns the hosts of a config.
    pub(crate) fn new(listen: &ListenConfig) -> Self {
        let addresses = listen.addresses().filter_map(|address| address.parse::<SocketAddr>().ok());
        let (all, addresses): (Vec<IpAddr>, Vec<IpAddr>) =
            addresses.map(|address| address.ip().to_canonical()).partition(IpAddr::is_unspecified);
        Self { names: HostNames::new(listen.hosts()), addresses, has_wildcard_listener: !all.is_empty() }
    }

    /// Whether a host that this client requested is the gateway itself.
    pub(crate) fn contains(&self, host: &str, client: &ClientInfo) -> bool {
        let Some((bare, _)) = NormalizedHost::parse(host) else { return false };
        let is_reached = || match &bare {
            // The address on which it was reached, if a listener is bound to all addresses.
            NormalizedHost::Address(address) => {
                let local = client.local_address().map(|local| local.ip().to_canonical());
                self.addresses.contains(address) || (self.has_wildcard_listener && local == Some(*address))
            }
            // A browser uses TLS only if the certificate contains the name.
            NormalizedHost::Name(name) => {
                client.server_name().is_some_and(|asked| asked.eq_ignore_ascii_case(name))
            }
            NormalizedHost::Subdomains(_) => false,
        };
        bare.is_local() || self.names.contains(host, client.is_secure()) || is_reached()
    }
}

/// Whether a host, with an optional port, is an IP address or a local name: a page can't acquire one by DNS
/// rebinding.
pub(crate) fn is_rebinding_safe(host: &str) -> bool {
    NormalizedHost::parse(host)
        .is_some_and(|(host, _)| host.is_local() || matches!(host, NormalizedHost::Address(_)))
}
