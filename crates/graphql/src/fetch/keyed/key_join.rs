//! The join of objects with the items of lists.

use std::collections::HashMap;

use json::{GroupedItems, JoinKey, JoinKeyKinds, JsonNode, ValueKind};

use super::keyed_lists::key_nodes;
use crate::fetch::call_failure::CallFailureReason;
use crate::fetch::outcome::{FetchOutcome, ValueLocation};
use crate::subgraph::ItemMatch;

/// A join in progress.
pub(super) struct KeyJoin<'a> {
    pub(super) item_match: &'a ItemMatch,
    /// The keys whose items could not be fetched, with the index of the error.
    pub(super) failed_keys: HashMap<&'a str, u32>,
    /// The errors of the join itself.
    pub(super) errors: Vec<CallFailureReason>,
    /// The index of the first of these errors.
    pub(super) first_error: u32,
}

impl<'a> KeyJoin<'a> {
    /// Finds the items in these lists for the key of each object.
    pub(super) fn find_items<'n>(
        &mut self,
        lists: &[JsonNode<'_>],
        item: &str,
        column: impl Iterator<Item = JsonNode<'n>>,
    ) -> Vec<FetchOutcome> {
        let count = lists.iter().map(|list| list.count()).sum();
        let (mut grouped, mut locations) = (GroupedItems::with_capacity(count), Vec::with_capacity(count));
        for (document, list) in lists.iter().enumerate() {
            for row in list.items() {
                grouped.add(row.member(item.as_bytes()).and_then(|node| self.key_scalar(node)));
                locations.push(ValueLocation { document: document as u32, node_id: row.node_id() });
            }
        }
        let (mut outcomes, mut kinds, mut found_any) = (Vec::new(), JoinKeyKinds::default(), false);
        for node in column {
            let mut items = Vec::new();
            let mut error = None;
            for key in key_nodes(node) {
                error = error.or_else(|| self.failed_error(key));
                let Some(scalar) = self.key_scalar(key) else { continue };
                kinds = kinds | scalar.kind();
                let group = grouped.find_group(&scalar).into_iter().flat_map(|group| grouped.items(group));
                items.extend(group.filter_map(|item| locations.get(item).copied()));
            }
            found_any |= !items.is_empty();
            outcomes.push(match error {
                Some(error) => FetchOutcome::Failed(error),
                None => self.match_outcome(node, items),
            });
        }
        if !found_any && kinds.are_disjoint(grouped.kinds()) {
            let key = (self.item_match.key.clone(), kinds.kind_names());
            let item = (self.item_match.item.clone(), grouped.kinds().kind_names());
            return vec![self.add_error(CallFailureReason::KindMismatch { key, item }); outcomes.len()];
        }
        outcomes
    }

    /// Returns the result of an object that has these items.
    fn match_outcome(&mut self, key: JsonNode<'_>, items: Vec<ValueLocation>) -> FetchOutcome {
        if self.item_match.is_many || key.kind() == ValueKind::Array {
            return FetchOutcome::Many(items);
        }
        match items[..] {
            [] => FetchOutcome::Null,
            [item] => FetchOutcome::One(item),
            _ => self.add_error(CallFailureReason::DuplicateKey),
        }
    }

    fn key_scalar<'n>(&self, node: JsonNode<'n>) -> Option<JoinKey<'n>> {
        if self.item_match.is_text { JoinKey::from_node_text(node) } else { JoinKey::from_node(node) }
    }

    fn failed_error(&self, key: JsonNode<'_>) -> Option<u32> {
        if self.failed_keys.is_empty() {
            return None;
        }
        self.failed_keys.get(&*key.scalar_text()?).copied()
    }

    fn add_error(&mut self, reason: CallFailureReason) -> FetchOutcome {
        self.errors.push(reason);
        FetchOutcome::Failed(self.first_error + self.errors.len() as u32 - 1)
    }
}
