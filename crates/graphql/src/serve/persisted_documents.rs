//! Documents that clients have stored to refer to them by hash later (Apollo's automatic persisted queries).
//!
//! Each document belongs to its owner: a caller or a network. So hashes disclose nothing about the queries of
//! others, and a client that stores thousands of documents evicts only its own. When the total exceeds the
//! limit, the block with the most bytes loses its oldest documents. A block is a caller, an IPv4 address, or
//! 48 bits of an IPv6 address, because one customer often owns all networks in such a prefix. An eviction
//! costs the client one additional round trip.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use services::{CallerId, RequestCall, client_network};

use super::graphql_request::DocumentHash;

/// The maximum bytes of documents per owner.
const MAX_OWNER_BYTES: usize = 1 << 20;
/// The maximum bytes of documents per block.
const MAX_BLOCK_BYTES: usize = 4 << 20;
/// The maximum bytes of all documents.
const MAX_TOTAL_BYTES: usize = 32 << 20;
/// The estimated overhead of a document beyond its text, in bytes.
const ENTRY_OVERHEAD: usize = 256;

/// The owner of a document.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum DocumentOwner {
    /// An identified caller.
    Caller(CallerId),
    /// An anonymous client, by its network: an IPv4 address, or the first 64 bits of an IPv6 address.
    Network(IpAddr),
}

/// The store of persisted documents.
#[derive(Debug, Default)]
pub(crate) struct PersistedDocuments(Mutex<PersistedDocument>);

#[derive(Debug, Default)]
struct PersistedDocument {
    owners: HashMap<DocumentOwner, OwnerDocuments>,
    blocks: HashMap<DocumentOwner, BlockDocuments>,
    /// The size in bytes and the number of each block.
    blocks_by_size: BTreeSet<(usize, u64)>,
    block_owners: HashMap<u64, DocumentOwner>,
    last_block: u64,
    bytes: usize,
}

/// The documents of an owner.
#[derive(Debug, Default)]
struct OwnerDocuments {
    documents: HashMap<DocumentHash, Arc<str>>,
    bytes: usize,
}

/// The documents of all owners in a block.
#[derive(Debug, Default)]
struct BlockDocuments {
    number: u64,
    /// The documents from the oldest to the newest.
    order: VecDeque<(DocumentOwner, DocumentHash)>,
    bytes: usize,
}

impl DocumentOwner {
    /// Returns the owner for a call.
    pub(crate) fn for_call(call: &RequestCall) -> Self {
        match (&call.caller, call.connection_details) {
            (CallerId::Anonymous, Some(arrival)) => Self::Network(client_network(arrival.client)),
            (caller, _) => Self::Caller(caller.clone()),
        }
    }

    /// Returns the block that an owner belongs to.
    fn network_block(&self) -> Self {
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

impl PersistedDocuments {
    /// Returns the document with this hash if this owner stored it.
    pub(crate) fn find(&self, owner: &DocumentOwner, hash: &DocumentHash) -> Option<Arc<str>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.owners.get(owner)?.documents.get(hash).cloned()
    }

    /// Stores a document until it is evicted.
    pub(crate) fn insert(&self, owner: DocumentOwner, hash: DocumentHash, document: &Arc<str>) {
        let size = document.len() + ENTRY_OVERHEAD;
        if size > MAX_OWNER_BYTES {
            return;
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let persisted_document = &mut *kept;
        let documents = persisted_document.owners.entry(owner.clone()).or_default();
        if documents.documents.insert(hash, Arc::clone(document)).is_some() {
            return;
        }
        documents.bytes += size;
        let own_bytes = documents.bytes;
        let name = owner.network_block();
        persisted_document.grow_block(&name, size);
        if let Some(block) = persisted_document.blocks.get_mut(&name) {
            block.order.push_back((owner.clone(), hash));
        }
        if own_bytes > MAX_OWNER_BYTES {
            persisted_document.shrink_owner(&name, &owner);
        }
        while persisted_document.blocks.get(&name).is_some_and(|block| block.bytes > MAX_BLOCK_BYTES)
            && persisted_document.drop_oldest(&name)
        {}
        while persisted_document.bytes > MAX_TOTAL_BYTES {
            let largest = persisted_document
                .blocks_by_size
                .last()
                .and_then(|(_, number)| persisted_document.block_owners.get(number))
                .cloned();
            if !largest.is_some_and(|largest| persisted_document.drop_oldest(&largest)) {
                break;
            }
        }
    }
}

impl PersistedDocument {
    /// Adds to the size of a block.
    fn grow_block(&mut self, name: &DocumentOwner, size: usize) {
        self.bytes += size;
        let block = match self.blocks.get_mut(name) {
            Some(block) => block,
            None => {
                self.last_block += 1;
                self.block_owners.insert(self.last_block, name.clone());
                let block = BlockDocuments { number: self.last_block, ..BlockDocuments::default() };
                self.blocks.entry(name.clone()).or_insert(block)
            }
        };
        self.blocks_by_size.remove(&(block.bytes, block.number));
        block.bytes += size;
        self.blocks_by_size.insert((block.bytes, block.number));
    }

    /// Reduces the size of a block, and removes the block if it is empty.
    fn shrink_block(&mut self, name: &DocumentOwner, size: usize) {
        self.bytes -= size;
        let Some(block) = self.blocks.get_mut(name) else { return };
        self.blocks_by_size.remove(&(block.bytes, block.number));
        block.bytes -= size;
        if block.bytes > 0 {
            self.blocks_by_size.insert((block.bytes, block.number));
        } else {
            self.block_owners.remove(&block.number);
            self.blocks.remove(name);
        }
    }

    /// Drops the oldest document of a block, and returns whether there was one.
    fn drop_oldest(&mut self, name: &DocumentOwner) -> bool {
        let Some((owner, hash)) = self.blocks.get_mut(name).and_then(|block| block.order.pop_front()) else {
            return false;
        };
        self.remove_document(name, &owner, &hash);
        true
    }

    /// Drops the oldest documents of an owner until the rest is within the owner's limit.
    fn shrink_owner(&mut self, name: &DocumentOwner, owner: &DocumentOwner) {
        let mut order = match self.blocks.get_mut(name) {
            Some(block) => std::mem::take(&mut block.order),
            None => return,
        };
        let mut bytes = self.owners.get(owner).map_or(0, |documents| documents.bytes);
        let mut dropped = Vec::new();
        order.retain(|(of, hash)| {
            if of != owner || bytes <= MAX_OWNER_BYTES {
                return true;
            }
            let document =
                self.owners.get(owner).and_then(|owner_documents| owner_documents.documents.get(hash));
            bytes -= document.map_or(0, |document| document.len() + ENTRY_OVERHEAD);
            dropped.push(*hash);
            false
        });
        if let Some(block) = self.blocks.get_mut(name) {
            block.order = order;
        }
        dropped.iter().for_each(|hash| self.remove_document(name, owner, hash));
    }

    fn remove_document(&mut self, name: &DocumentOwner, owner: &DocumentOwner, hash: &DocumentHash) {
        let Some(documents) = self.owners.get_mut(owner) else { return };
        let Some(document) = documents.documents.remove(hash) else { return };
        let size = document.len() + ENTRY_OVERHEAD;
        documents.bytes -= size;
        if documents.documents.is_empty() {
            self.owners.remove(owner);
        }
        self.shrink_block(name, size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str) -> DocumentOwner {
        DocumentOwner::Caller(CallerId::Named(name.into()))
    }

    fn hash(number: usize) -> DocumentHash {
        let mut hash = DocumentHash::default();
        hash[..8].copy_from_slice(&number.to_be_bytes());
        hash
    }

    #[test]
    fn documents_are_visible_only_to_their_owner() {
        let persisted = PersistedDocuments::default();
        persisted.insert(owner("shop"), hash(1), &"{a}".into());
        assert_eq!(persisted.find(&owner("shop"), &hash(1)).as_deref(), Some("{a}"));
        assert_eq!(persisted.find(&owner("shop"), &hash(2)), None);
        assert_eq!(persisted.find(&owner("other"), &hash(1)), None);
    }

    #[test]
    fn an_owner_above_its_limit_evicts_only_its_own_oldest_documents() {
        let persisted = PersistedDocuments::default();
        persisted.insert(owner("shop"), hash(1), &"{a}".into());
        let long: Arc<str> = "a".repeat(1000).into();
        (0..10_000).for_each(|number| persisted.insert(owner("flood"), hash(number), &long));
        assert!(persisted.find(&owner("shop"), &hash(1)).is_some());
        assert_eq!(persisted.find(&owner("flood"), &hash(0)), None);
        assert!(persisted.find(&owner("flood"), &hash(9999)).is_some());
        assert!(persisted.0.lock().unwrap().owners[&owner("flood")].bytes <= MAX_OWNER_BYTES);
    }

    #[test]
    fn many_owners_stay_within_the_total_limit() {
        let persisted = PersistedDocuments::default();
        let long: Arc<str> = "a".repeat(900_000).into();
        (0..100).for_each(|number| persisted.insert(owner(&number.to_string()), hash(1), &long));
        check_accounting(&persisted);
    }

    fn check_accounting(persisted: &PersistedDocuments) {
        let kept = persisted.0.lock().unwrap();
        assert!(kept.bytes <= MAX_TOTAL_BYTES);
        assert_eq!(kept.bytes, kept.owners.values().map(|documents| documents.bytes).sum::<usize>());
        assert_eq!(kept.bytes, kept.blocks.values().map(|block| block.bytes).sum::<usize>());
        let ordered = kept.blocks.values().map(|block| block.order.len()).sum::<usize>();
        assert_eq!(
            ordered,
            kept.owners.values().map(|owner_documents| owner_documents.documents.len()).sum::<usize>()
        );
        assert_eq!(
            (kept.blocks_by_size.len(), kept.block_owners.len()),
            (kept.blocks.len(), kept.blocks.len())
        );
    }

    #[test]
    fn a_client_with_many_networks_evicts_no_documents_of_other_blocks() {
        let persisted = PersistedDocuments::default();
        let of = |text: &str| DocumentOwner::Network(super::client_network(text.parse().unwrap()));
        persisted.insert(of("2001:db8:1::1"), hash(1), &"{a}".into());
        persisted.insert(of("192.0.2.1"), hash(1), &"{a}".into());
        let long: Arc<str> = "a".repeat(900_000).into();
        for number in 0..100 {
            persisted.insert(of(&format!("2001:db8:2:{number:x}::1")), hash(2), &long);
        }
        check_accounting(&persisted);
        assert!(persisted.find(&of("2001:db8:1::1"), &hash(1)).is_some());
        assert!(persisted.find(&of("192.0.2.1"), &hash(1)).is_some());
        assert!(persisted.0.lock().unwrap().bytes < 2 * MAX_BLOCK_BYTES);
        // The largest blocks are evicted first even if there are many.
        for number in 0..100 {
            persisted.insert(of(&format!("2001:db8:{:x}::1", 16 + number)), hash(2), &long);
        }
        check_accounting(&persisted);
        assert!(persisted.find(&of("2001:db8:1::1"), &hash(1)).is_some());
        assert!(persisted.find(&of("192.0.2.1"), &hash(1)).is_some());
    }

    #[test]
    fn counts_the_overhead_of_small_documents() {
        let persisted = PersistedDocuments::default();
        for number in 0..200_000_u32 {
            let owner = DocumentOwner::Network(IpAddr::from(number.to_be_bytes()));
            persisted.insert(owner, hash(1), &"{a}".into());
        }
        check_accounting(&persisted);
        assert!(persisted.0.lock().unwrap().owners.len() < 200_000);
    }

    #[test]
    fn a_network_is_an_ipv4_address_or_half_of_an_ipv6_address() {
        let network = |text: &str| super::client_network(text.parse().unwrap());
        assert_eq!(network("::ffff:10.0.0.1"), network("10.0.0.1"));
        assert_eq!(network("2001:db8::1"), network("2001:db8::2"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
    }
}
