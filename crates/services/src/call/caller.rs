//! The caller of a request: its identity, its rights, and the accounts that are charged for its work.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use offload::QuotaKey;

use crate::headers::client_network;

/// The caller on whose behalf a request is made. Variants never compare equal: a token's subject never passes
/// for a caller from the config of the same name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum CallerId {
    /// An unauthenticated caller.
    #[default]
    Anonymous,
    /// A caller from the config, by its configured name.
    Named(Arc<str>),
    /// A caller that is known only to the issuer of its token, by the name in the token.
    Subject(Arc<str>),
}

/// Restricts the services and methods that a caller may use, within the limits of the route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallRights {
    /// The permitted services, in lower case; `None` permits all.
    pub services: Option<BTreeSet<Box<str>>>,
    /// The permitted methods; `None` permits all.
    pub methods: Option<Vec<Method>>,
}

/// The account that is charged for the CPU time of a request's program.
pub trait CpuAccounting: fmt::Debug + Send + Sync {
    /// Charges for a run that is complete or was cancelled by its client.
    fn charge(&self, cpu: Duration);
}

/// Returns the quota key that is charged for a client's work: the named caller, or for anonymous clients
/// their network. An IPv6 network is also part of a /48 block, since a single customer often owns the whole
/// block.
#[must_use]
pub fn quota_key(caller: &CallerId, client: Option<IpAddr>) -> QuotaKey {
    match (caller, client.map(client_network)) {
        (CallerId::Anonymous, Some(IpAddr::V4(network))) => QuotaKey::new(&network.to_bits()),
        (CallerId::Anonymous, Some(IpAddr::V6(network))) => {
            QuotaKey::new(&network.to_bits()).with_block(&network.octets().first_chunk::<6>())
        }
        (caller, _) => QuotaKey::new(caller),
    }
}

impl CallerId {
    /// Returns the caller's name, for logs; `None` for an anonymous caller.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Anonymous => None,
            Self::Named(name) | Self::Subject(name) => Some(name),
        }
    }
}

impl CallRights {
    pub(super) fn permits_service(&self, service: &str) -> bool {
        let Some(services) = &self.services else { return true };
        services.contains(service) || services.contains(&*service.to_ascii_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quota_key_is_per_network_and_shares_ipv6_block() {
        let key = |text: &str| quota_key(&CallerId::Anonymous, Some(text.parse().unwrap()));
        assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:1"));
        assert_eq!(key("::ffff:192.0.2.1"), key("192.0.2.1"));
        let keys = ["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8:0:1::1", "2001:db8:1::1"].map(key);
        let distinct: std::collections::HashSet<QuotaKey> = keys.into_iter().collect();
        assert_eq!(distinct.len(), keys.len());
        assert!(keys[2].has_same_block(keys[3]), "same /48 block");
        assert!(!keys[3].has_same_block(keys[4]) && !keys[0].has_same_block(keys[1]));
        let address = Some("192.0.2.1".parse().unwrap());
        let caller_id = CallerId::Named("a".into());
        assert_eq!(quota_key(&caller_id, address), quota_key(&caller_id, None), "independent of the address");
        assert_ne!(quota_key(&caller_id, None), quota_key(&CallerId::Subject("a".into()), None));
    }
}
