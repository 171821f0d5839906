//! The join of objects with the items of lists.

use std::collections::HashMap;

use json::{GroupedItems, JoinKey, JoinKeyKinds, JsonNode, ValueKind};

use super::lists::keys;
use crate::fetched::{FetchOutcome, ValueLocation};
use crate::reason::CallFailureReason;
use crate::subgraph::ItemMatch;

/// A join in progress.
pub(super) struct KeyJoin<'a> {
    pub(super) joined: &'a ItemMatch,
    /// The keys whose items could not be fetched, with the index of the error.
    pub(super) failed: HashMap<&'a str, u32>,
    /// The errors of the join itself.
    pub(super) errors: Vec<CallFailureReason>,
    /// The index of the first of these errors.
    pub(super) first: u32,
}

impl<'a> KeyJoin<'a> {
    /// Finds the items in these lists for the key of each object.
    pub(super) fn find<'n>(
        &mut self,
        lists: &[JsonNode<'_>],
        item: &str,
        column: impl Iterator<Item = JsonNode<'n>>,
    ) -> Vec<FetchOutcome> {
        let count = lists.iter().map(|list| list.count()).sum();
        let (mut grouped, mut places) = (GroupedItems::with_capacity(count), Vec::with_capacity(count));
        for (document, list) in lists.iter().enumerate() {
            for row in list.items() {
                grouped.add(row.member(item.as_bytes()).and_then(|node| self.scalar(node)));
                places.push(ValueLocation { document: document as u32, spot: row.node_id() });
            }
        }
        let (mut found, mut kinds, mut found_any) = (Vec::new(), JoinKeyKinds::default(), false);
        for node in column {
            let mut items = Vec::new();
            let mut error = None;
            for key in keys(node) {
                error = error.or_else(|| self.failed_for(key));
                let Some(scalar) = self.scalar(key) else { continue };
                kinds = kinds | scalar.kind();
                let group = grouped.find_group(&scalar).into_iter().flat_map(|group| grouped.items(group));
                items.extend(group.filter_map(|item| places.get(item).copied()));
            }
            found_any |= !items.is_empty();
            found.push(match error {
                Some(error) => FetchOutcome::Failed(error),
                None => self.of(node, items),
            });
        }
        if !found_any && kinds.are_disjoint(grouped.kinds()) {
            let key = (self.joined.key.clone(), kinds.kind_names());
            let item = (self.joined.item.clone(), grouped.kinds().kind_names());
            return vec![self.error(CallFailureReason::Kinds { key, item }); found.len()];
        }
        found
    }

    /// Returns the result of an object that has these items.
    fn of(&mut self, key: JsonNode<'_>, items: Vec<ValueLocation>) -> FetchOutcome {
        if self.joined.is_many || key.kind() == ValueKind::Array {
            return FetchOutcome::Many(items);
        }
        match items[..] {
            [] => FetchOutcome::Nothing,
            [item] => FetchOutcome::One(item),
            _ => self.error(CallFailureReason::Duplicate),
        }
    }

    fn scalar<'n>(&self, node: JsonNode<'n>) -> Option<JoinKey<'n>> {
        if self.joined.is_text { JoinKey::from_node_text(node) } else { JoinKey::from_node(node) }
    }

    fn failed_for(&self, key: JsonNode<'_>) -> Option<u32> {
        if self.failed.is_empty() {
            return None;
        }
        self.failed.get(&*key.scalar_text()?).copied()
    }

    fn error(&mut self, reason: CallFailureReason) -> FetchOutcome {
        self.errors.push(reason);
        FetchOutcome::Failed(self.first + self.errors.len() as u32 - 1)
    }
}
