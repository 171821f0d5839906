//! Callers by key. Only hashes of keys are stored, and a received key is hashed before the lookup, so that
//! its timing reveals nothing about other keys.

use std::collections::HashMap;
use std::sync::Arc;

use services::config::OneOrMany;
use subtle::ConstantTimeEq;

use super::Principal;
use crate::config::CallerConfigs;
use crate::config::api_key::{KeyHash, hash_key, sha256};

/// The callers by key. The map is indexed by the first bytes of the key's hash.
#[derive(Default)]
pub(super) struct ApiKeys(HashMap<[u8; 8], Vec<(KeyHash, Arc<Principal>)>>);

impl ApiKeys {
    pub(super) fn new<'a>(callers: &CallerConfigs, who: impl Fn(&str) -> Option<&'a Arc<Principal>>) -> Self {
        let mut keys = Self::default();
        for (name, caller) in callers {
            let texts = caller.key.as_ref().map(OneOrMany::as_slice).unwrap_or_default();
            for hash in texts.iter().filter_map(|text| hash_key(text).ok()) {
                keys.0
                    .entry(hash_prefix(&hash))
                    .or_default()
                    .extend(who(name).map(|principal| (hash, Arc::clone(principal))));
            }
        }
        keys
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the caller with this key.
    pub(super) fn find(&self, key: &[u8]) -> Option<&Arc<Principal>> {
        let hash = sha256(key);
        let near = self.0.get(&hash_prefix(&hash))?;
        near.iter().find(|(known, _)| bool::from(known.ct_eq(&hash))).map(|(_, who)| who)
    }
}

fn hash_prefix(hash: &KeyHash) -> [u8; 8] {
    let mut first = [0; 8];
    first.copy_from_slice(&hash[..8]);
    first
}
