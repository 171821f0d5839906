//! External hosts that are not configured services, permitted by patterns: `auth.internal:8080`,
//! `*.example.org`, `10.0.0.0/8`.
//!
//! A permitted host is called as a service with default settings. Since a name can resolve to any address,
//! the resolved address is checked on connect (`transport/address_check.rs`): a `*` permits the public
//! internet, but no internal hosts (no SSRF).

mod pattern;

use std::sync::{Arc, Mutex, PoisonError};

use super::UpstreamService;
use crate::transport::ReachableAddresses;
pub use pattern::HostsError;
use pattern::{ExternalHostPattern, HostAndPort};

/// The number of hosts that are cached with their connections. Beyond that, the least recently used one is
/// evicted.
const MAX_CACHED_HOSTS: usize = 64;

/// The permitted hosts, and a cache of recently used ones.
#[derive(Debug, Default)]
pub struct PermittedHosts {
    patterns: Vec<ExternalHostPattern>,
    /// Ordered by use, the most recent last. Small enough for linear search.
    cached_hosts: Mutex<Vec<(HostKey, Arc<UpstreamService>)>>,
}

/// The identity of a cached host.
#[derive(Debug, PartialEq, Eq)]
struct HostKey {
    is_secure: bool,
    host_and_port: HostAndPort,
}

impl PermittedHosts {
    /// Creates the permitted hosts from patterns; without patterns, no host is permitted.
    ///
    /// # Errors
    /// The first invalid pattern, with the reason.
    pub fn new(patterns: &[String]) -> Result<Self, HostsError> {
        let patterns =
            patterns.iter().map(|text| ExternalHostPattern::parse(text)).collect::<Result<_, _>>()?;
        Ok(Self { patterns, cached_hosts: Mutex::default() })
    }

    /// Returns the host as a service, if a pattern permits it: `auth.internal:8080`. The default port is that
    /// of `https` or `http`.
    #[must_use]
    pub fn find_service(&self, authority: &str, is_secure: bool) -> Option<Arc<UpstreamService>> {
        if self.patterns.is_empty() {
            return None;
        }
        let key = HostKey {
            is_secure,
            host_and_port: HostAndPort::parse_authority(authority, if is_secure { 443 } else { 80 })?,
        };
        let addresses = self.reachable_addresses(&key.host_and_port)?;
        let mut kept = self.cached_hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = kept.iter().position(|(known, _)| *known == key) {
            let found = kept.remove(at);
            let service = Arc::clone(&found.1);
            kept.push(found);
            return Some(service);
        }
        let scheme = if is_secure { "https" } else { "http" };
        let service =
            Arc::new(UpstreamService::new_external(&key.host_and_port.to_string(), scheme, addresses)?);
        if kept.len() == MAX_CACHED_HOSTS {
            kept.remove(0);
        }
        kept.push((key, Arc::clone(&service)));
        Some(service)
    }

    /// Returns the addresses that are permitted for this host; `None` if no pattern permits the host.
    fn reachable_addresses(&self, port: &HostAndPort) -> Option<ReachableAddresses> {
        let mut opening = self.patterns.iter().filter(|pattern| pattern.permits_host(port)).peekable();
        opening.peek()?;
        if opening.any(ExternalHostPattern::is_exact_name) {
            return Some(ReachableAddresses::Unrestricted);
        }
        Some(ReachableAddresses::Public(
            self.patterns.iter().filter_map(ExternalHostPattern::listed_network).collect(),
        ))
    }
}

#[cfg(test)]
mod tests;
