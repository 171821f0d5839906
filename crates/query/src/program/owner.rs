//! The owners of cached programs.
//!
//! Programs are compiled and cached separately for each owner. Otherwise a client could learn from response
//! times which programs others run. Programs that many clients send are signed (the key owns them, and all
//! clients that send the signature share them) or stored (the operator owns them).

use std::net::IpAddr;
use std::sync::Arc;

use offload::QuotaKey;
use sandbox::{CacheKey, OwnerId};
use services::{CallerId, RequestCall, client_network, quota_key};
use sha2::{Digest, Sha256};

use super::source::{ProgramHash, ProgramLanguage};

/// A prefix of an owner's hash: long enough to distinguish owners, too short to identify them.
pub(crate) type OwnerPrefix = [u8; 8];

/// The owner of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProgramOwner {
    /// A registered developer's key.
    Key(Arc<str>),
    /// An authenticated caller.
    Caller(CallerId),
    /// The network of an unauthenticated client: an IPv4 address, or the first 64 bits of an IPv6 address.
    Network(IpAddr),
}

impl ProgramOwner {
    /// Returns the owner of unsigned programs sent with a call.
    pub(crate) fn from_call(call: &RequestCall) -> Self {
        match (&call.caller, call.connection_details) {
            (CallerId::Anonymous, Some(arrival)) => Self::Network(client_network(arrival.client)),
            (caller, _) => Self::Caller(caller.clone()),
        }
    }

    /// Returns the cache key of a program of this owner.
    pub(crate) fn cache_key(&self, language: ProgramLanguage, hash: &ProgramHash) -> CacheKey {
        self.hasher().chain_update([language as u8]).chain_update(hash).finalize().into()
    }

    /// Returns the owner's identifier, for its share of caches.
    pub(crate) fn owner_id(&self) -> OwnerId {
        u64::from_be_bytes(self.hash_prefix())
    }

    /// Returns the quota that the owner's programs are charged to.
    pub(crate) fn quota_key(&self) -> QuotaKey {
        match self {
            Self::Key(name) => QuotaKey::new(&("key", name)),
            Self::Caller(caller) => quota_key(caller, None),
            Self::Network(network) => quota_key(&CallerId::Anonymous, Some(*network)),
        }
    }

    pub(crate) fn hash_prefix(&self) -> OwnerPrefix {
        let mut mark = OwnerPrefix::default();
        mark.copy_from_slice(&self.hasher().finalize()[..8]);
        mark
    }

    fn hasher(&self) -> Sha256 {
        let mut address = [0; 16];
        let (tag, name): (u8, &[u8]) = match self {
            Self::Key(name) => (0, name.as_bytes()),
            Self::Caller(CallerId::Anonymous) => (1, &[]),
            Self::Caller(CallerId::Named(name)) => (2, name.as_bytes()),
            Self::Caller(CallerId::Subject(name)) => (3, name.as_bytes()),
            Self::Network(IpAddr::V4(v4)) => {
                address[..4].copy_from_slice(&v4.octets());
                (4, &address[..4])
            }
            Self::Network(IpAddr::V6(v6)) => {
                address = v6.octets();
                (5, &address)
            }
        };
        Sha256::new().chain_update([tag]).chain_update((name.len() as u64).to_be_bytes()).chain_update(name)
    }
}

/// Returns the holder of a token. For a signed program, an anonymous client's address does not matter.
pub(crate) fn token_holder(call: &RequestCall, owner: &ProgramOwner) -> OwnerPrefix {
    match owner {
        ProgramOwner::Key(_) => ProgramOwner::Caller(call.caller.clone()).hash_prefix(),
        owner => owner.hash_prefix(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_each_owner_a_separate_cache_key() {
        let name = || Arc::from("shop");
        let address = |text: &str| ProgramOwner::Network(client_network(text.parse().unwrap()));
        let owners = [
            ProgramOwner::Key(name()),
            ProgramOwner::Caller(CallerId::Named(name())),
            ProgramOwner::Caller(CallerId::Subject(name())),
            ProgramOwner::Caller(CallerId::Anonymous),
            address("192.0.2.1"),
            address("192.0.2.2"),
            address("2001:db8:0:1::1"),
            address("2001:db8:0:2::1"),
        ];
        let keys: std::collections::HashSet<CacheKey> =
            owners.iter().map(|owner| owner.cache_key(ProgramLanguage::Wasm, &[7; 32])).collect();
        assert_eq!(keys.len(), owners.len());
        assert_ne!(
            owners[0].cache_key(ProgramLanguage::Wasm, &[7; 32]),
            owners[0].cache_key(ProgramLanguage::Javascript, &[7; 32])
        );
    }

    #[test]
    fn treats_a_network_as_one_owner() {
        let one = client_network("2001:db8::1".parse().unwrap());
        assert_eq!(one, client_network("2001:db8::ffff:1".parse().unwrap()));
        let mapped = client_network("::ffff:192.0.2.1".parse().unwrap());
        assert_eq!(mapped, client_network("192.0.2.1".parse().unwrap()));
    }
}
