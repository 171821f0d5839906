//! Documents that clients left here, to name them by their hash from then on (Apollo's automatic persisted queries).
//!
//! Each belongs to whoever left it: a caller, or a network. So nobody learns by a hash what others ask, and who leaves
//! thousands pushes out nothing but their own. What is pushed out costs its client one more round trip.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use services::{Call, Caller, network};

use super::ask::Hash;

/// As many bytes of documents an owner may have.
const OWN: usize = 1 << 20;
/// As many bytes all may have together.
const ALL: usize = 32 << 20;
/// What a document takes beside its text.
const EACH: usize = 128;

/// To whom a document belongs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    /// A caller that said who it is.
    Caller(Caller),
    /// A client that did not, by its network: an IPv4 address, or the first 64 bits of an IPv6 address.
    Network(IpAddr),
}

/// The documents.
#[derive(Debug, Default)]
pub(crate) struct Persisted(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    owners: HashMap<Owner, Own>,
    /// Who came first is forgotten first.
    order: VecDeque<Owner>,
    bytes: usize,
}

/// What an owner left.
#[derive(Debug, Default)]
struct Own {
    documents: HashMap<Hash, Arc<str>>,
    order: VecDeque<Hash>,
    bytes: usize,
}

impl Owner {
    /// The owner of what a call brings along.
    pub(crate) fn of(call: &Call) -> Self {
        match (&call.caller, call.arrival) {
            (Caller::Anonymous, Some(arrival)) => Self::Network(network(arrival.client)),
            (caller, _) => Self::Caller(caller.clone()),
        }
    }
}

impl Persisted {
    /// The document with this hash that this owner left.
    pub(crate) fn find(&self, owner: &Owner, hash: &Hash) -> Option<Arc<str>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.owners.get(owner)?.documents.get(hash).cloned()
    }

    /// Keeps a document, as long as there is room for it.
    pub(crate) fn keep(&self, owner: Owner, hash: Hash, document: &Arc<str>) {
        let size = document.len() + EACH;
        if size > OWN {
            return;
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = &mut *kept;
        if !kept.owners.contains_key(&owner) {
            kept.order.push_back(owner.clone());
        }
        let own = kept.owners.entry(owner).or_default();
        if own.documents.insert(hash, Arc::clone(document)).is_none() {
            own.order.push_back(hash);
            own.bytes += size;
            kept.bytes += size;
        }
        kept.bytes -= own.shrink();
        while kept.bytes > ALL {
            let Some(first) = kept.order.pop_front() else { break };
            kept.bytes -= kept.owners.remove(&first).map_or(0, |own| own.bytes);
        }
    }
}

impl Own {
    /// Forgets what came first until the rest has room; how many bytes that was.
    fn shrink(&mut self) -> usize {
        let before = self.bytes;
        while self.bytes > OWN {
            let Some(first) = self.order.pop_front() else { break };
            self.bytes -= self.documents.remove(&first).map_or(0, |document| document.len() + EACH);
        }
        before - self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str) -> Owner {
        Owner::Caller(Caller::Named(name.into()))
    }

    fn hash(number: usize) -> Hash {
        let mut hash = Hash::default();
        hash[..8].copy_from_slice(&number.to_be_bytes());
        hash
    }

    #[test]
    fn what_one_left_another_does_not_find() {
        let persisted = Persisted::default();
        persisted.keep(owner("shop"), hash(1), &"{a}".into());
        assert_eq!(persisted.find(&owner("shop"), &hash(1)).as_deref(), Some("{a}"));
        assert_eq!(persisted.find(&owner("shop"), &hash(2)), None);
        assert_eq!(persisted.find(&owner("other"), &hash(1)), None);
    }

    #[test]
    fn who_leaves_thousands_pushes_out_their_own_first_ones_alone() {
        let persisted = Persisted::default();
        persisted.keep(owner("shop"), hash(1), &"{a}".into());
        let long: Arc<str> = "a".repeat(1000).into();
        (0..10_000).for_each(|number| persisted.keep(owner("flood"), hash(number), &long));
        assert!(persisted.find(&owner("shop"), &hash(1)).is_some());
        assert_eq!(persisted.find(&owner("flood"), &hash(0)), None);
        assert!(persisted.find(&owner("flood"), &hash(9999)).is_some());
        assert!(persisted.0.lock().unwrap().owners[&owner("flood")].bytes <= OWN);
    }

    #[test]
    fn many_owners_take_no_more_than_there_is() {
        let persisted = Persisted::default();
        let long: Arc<str> = "a".repeat(900_000).into();
        (0..100).for_each(|number| persisted.keep(owner(&number.to_string()), hash(1), &long));
        let kept = persisted.0.lock().unwrap();
        assert!(kept.bytes <= ALL);
        assert_eq!(kept.bytes, kept.owners.values().map(|own| own.bytes).sum::<usize>());
        assert_eq!(kept.owners.len(), kept.order.len());
    }

    #[test]
    fn a_network_is_an_address_or_half_of_one() {
        let network = |text: &str| super::network(text.parse().unwrap());
        assert_eq!(network("::ffff:10.0.0.1"), network("10.0.0.1"));
        assert_eq!(network("2001:db8::1"), network("2001:db8::2"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
    }
}
