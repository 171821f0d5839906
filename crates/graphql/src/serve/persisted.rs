//! Documents that clients left here, to name them by their hash from then on (Apollo's automatic persisted queries).
//!
//! Each belongs to whoever left it: a caller, or a network. So nobody learns by a hash what others ask, and who leaves
//! thousands pushes out nothing but their own. Where all together are too many, the block with most of them loses its
//! oldest: a caller, an IPv4 address, or 48 bits of an IPv6 address, which one customer often has all networks of. What is
//! pushed out costs its client one more round trip.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use services::{Call, Caller, network};

use super::ask::Hash;

/// As many bytes of documents an owner may have.
const OWN: usize = 1 << 20;
/// As many bytes the owners of a block may have together.
const BLOCK: usize = 4 << 20;
/// As many bytes all may have together.
const ALL: usize = 32 << 20;
/// What a document takes beside its text.
const EACH: usize = 256;

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
    blocks: HashMap<Owner, Block>,
    /// The bytes of each block, and its number.
    by_bytes: BTreeSet<(usize, u64)>,
    names: HashMap<u64, Owner>,
    next: u64,
    bytes: usize,
}

/// What an owner left.
#[derive(Debug, Default)]
struct Own {
    documents: HashMap<Hash, Arc<str>>,
    bytes: usize,
}

/// What the owners of a block left.
#[derive(Debug, Default)]
struct Block {
    number: u64,
    /// The oldest first.
    order: VecDeque<(Owner, Hash)>,
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

    /// The owners that count together.
    fn block(&self) -> Self {
        match self {
            Self::Network(IpAddr::V6(v6)) => {
                let mut octets = v6.octets();
                octets[6..].fill(0);
                Self::Network(Ipv6Addr::from(octets).into())
            }
            other => other.clone(),
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
        let own = kept.owners.entry(owner.clone()).or_default();
        if own.documents.insert(hash, Arc::clone(document)).is_some() {
            return;
        }
        own.bytes += size;
        let own_bytes = own.bytes;
        let name = owner.block();
        kept.grow(&name, size);
        if let Some(block) = kept.blocks.get_mut(&name) {
            block.order.push_back((owner.clone(), hash));
        }
        if own_bytes > OWN {
            kept.shrink_owner(&name, &owner);
        }
        while kept.blocks.get(&name).is_some_and(|block| block.bytes > BLOCK) && kept.drop_oldest(&name) {}
        while kept.bytes > ALL {
            let largest = kept.by_bytes.last().and_then(|(_, number)| kept.names.get(number)).cloned();
            if !largest.is_some_and(|largest| kept.drop_oldest(&largest)) {
                break;
            }
        }
    }
}

impl Kept {
    /// Adds to the bytes of a block.
    fn grow(&mut self, name: &Owner, size: usize) {
        self.bytes += size;
        let block = match self.blocks.get_mut(name) {
            Some(block) => block,
            None => {
                self.next += 1;
                self.names.insert(self.next, name.clone());
                let block = Block { number: self.next, ..Block::default() };
                self.blocks.entry(name.clone()).or_insert(block)
            }
        };
        self.by_bytes.remove(&(block.bytes, block.number));
        block.bytes += size;
        self.by_bytes.insert((block.bytes, block.number));
    }

    /// Takes from the bytes of a block, which is gone when it has none.
    fn lessen(&mut self, name: &Owner, size: usize) {
        self.bytes -= size;
        let Some(block) = self.blocks.get_mut(name) else { return };
        self.by_bytes.remove(&(block.bytes, block.number));
        block.bytes -= size;
        if block.bytes > 0 {
            self.by_bytes.insert((block.bytes, block.number));
        } else {
            self.names.remove(&block.number);
            self.blocks.remove(name);
        }
    }

    /// Drops the oldest document of a block; says whether there was one.
    fn drop_oldest(&mut self, name: &Owner) -> bool {
        let Some((owner, hash)) = self.blocks.get_mut(name).and_then(|block| block.order.pop_front()) else {
            return false;
        };
        self.forget(name, &owner, &hash);
        true
    }

    /// Drops the oldest documents of an owner until the others have room.
    fn shrink_owner(&mut self, name: &Owner, owner: &Owner) {
        let mut order = match self.blocks.get_mut(name) {
            Some(block) => std::mem::take(&mut block.order),
            None => return,
        };
        let mut bytes = self.owners.get(owner).map_or(0, |own| own.bytes);
        let mut dropped = Vec::new();
        order.retain(|(of, hash)| {
            if of != owner || bytes <= OWN {
                return true;
            }
            let document = self.owners.get(owner).and_then(|own| own.documents.get(hash));
            bytes -= document.map_or(0, |document| document.len() + EACH);
            dropped.push(*hash);
            false
        });
        if let Some(block) = self.blocks.get_mut(name) {
            block.order = order;
        }
        dropped.iter().for_each(|hash| self.forget(name, owner, hash));
    }

    fn forget(&mut self, name: &Owner, owner: &Owner, hash: &Hash) {
        let Some(own) = self.owners.get_mut(owner) else { return };
        let Some(document) = own.documents.remove(hash) else { return };
        let size = document.len() + EACH;
        own.bytes -= size;
        if own.documents.is_empty() {
            self.owners.remove(owner);
        }
        self.lessen(name, size);
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
        check(&persisted);
    }

    fn check(persisted: &Persisted) {
        let kept = persisted.0.lock().unwrap();
        assert!(kept.bytes <= ALL);
        assert_eq!(kept.bytes, kept.owners.values().map(|own| own.bytes).sum::<usize>());
        assert_eq!(kept.bytes, kept.blocks.values().map(|block| block.bytes).sum::<usize>());
        let ordered = kept.blocks.values().map(|block| block.order.len()).sum::<usize>();
        assert_eq!(ordered, kept.owners.values().map(|own| own.documents.len()).sum::<usize>());
        assert_eq!((kept.by_bytes.len(), kept.names.len()), (kept.blocks.len(), kept.blocks.len()));
    }

    #[test]
    fn a_client_with_many_networks_pushes_out_no_other_network() {
        let persisted = Persisted::default();
        let of = |text: &str| Owner::Network(super::network(text.parse().unwrap()));
        persisted.keep(of("2001:db8:1::1"), hash(1), &"{a}".into());
        persisted.keep(of("192.0.2.1"), hash(1), &"{a}".into());
        let long: Arc<str> = "a".repeat(900_000).into();
        for number in 0..100 {
            persisted.keep(of(&format!("2001:db8:2:{number:x}::1")), hash(2), &long);
        }
        check(&persisted);
        assert!(persisted.find(&of("2001:db8:1::1"), &hash(1)).is_some());
        assert!(persisted.find(&of("192.0.2.1"), &hash(1)).is_some());
        assert!(persisted.0.lock().unwrap().bytes < 2 * BLOCK);
        // With many blocks, too, those go first that have most.
        for number in 0..100 {
            persisted.keep(of(&format!("2001:db8:{:x}::1", 16 + number)), hash(2), &long);
        }
        check(&persisted);
        assert!(persisted.find(&of("2001:db8:1::1"), &hash(1)).is_some());
        assert!(persisted.find(&of("192.0.2.1"), &hash(1)).is_some());
    }

    #[test]
    fn small_documents_of_many_networks_are_counted_with_what_they_take() {
        let persisted = Persisted::default();
        for number in 0..200_000_u32 {
            let owner = Owner::Network(IpAddr::from(number.to_be_bytes()));
            persisted.keep(owner, hash(1), &"{a}".into());
        }
        check(&persisted);
        assert!(persisted.0.lock().unwrap().owners.len() < 200_000);
    }

    #[test]
    fn a_network_is_an_address_or_half_of_one() {
        let network = |text: &str| super::network(text.parse().unwrap());
        assert_eq!(network("::ffff:10.0.0.1"), network("10.0.0.1"));
        assert_eq!(network("2001:db8::1"), network("2001:db8::2"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
    }
}
