//! Joins rows with items by key.

use json::{GroupedItems, JoinKey, JoinKeyKinds, JsonNode, JsonTree, NotArray};

use crate::declaration::{MissingRows, RowCardinality};
use crate::memory::{BudgetedVec, MemoryBudget};
use crate::plan::JoinKeys;
use crate::problem::PartFailureReason;

/// A join of rows with items.
pub(super) struct RowJoin<'a> {
    pub(super) joins: &'a JoinKeys,
    pub(super) rows: Vec<JsonTree>,
    pub(super) memory: &'a MemoryBudget,
}

impl RowJoin<'_> {
    /// Returns the rows of each item.
    pub(super) fn join_rows<'n>(
        self,
        root: JsonNode<'n>,
        items: impl Iterator<Item = JsonNode<'n>>,
    ) -> Result<Vec<JsonTree>, PartFailureReason> {
        let Self { joins, rows, memory } = self;
        let key = |node: JsonNode<'n>| {
            if joins.text { JoinKey::from_node_text(node) } else { JoinKey::from_node(node) }
        };
        // A row's key, its positions in groups, and its position in a list.
        memory.charge_for::<[JsonTree; 4]>(rows.len())?;
        let mut grouped = GroupedItems::with_capacity(rows.len());
        for row in root.items() {
            let is_second = grouped.add(joins.row_key.find(row).and_then(key));
            if is_second && joins.cardinality == RowCardinality::Only(true) {
                return Err(PartFailureReason::JoinDuplicate);
            }
        }
        let is_one = joins.cardinality != RowCardinality::Only(false);
        let mut lists: Vec<Option<JsonTree>> = vec![None; if is_one { 0 } else { grouped.len() }];
        let (empty, mut found_any, mut kinds) = (JsonTree::Array([].into()), false, JoinKeyKinds::default());
        let mut values = Vec::new();
        for item in items {
            if joins.item_key.has_wildcard() {
                let mut list = BudgetedVec::new(memory);
                let visited = joins.item_key.visit(item, &mut |node| {
                    let Some(key) = key(node) else { return };
                    kinds = kinds | key.kind();
                    let Some(group) = grouped.find_group(&key) else { return };
                    for place in grouped.items(group) {
                        // To pass over the rows of further keys would take quadratic time.
                        if list.is_full() {
                            return;
                        }
                        if let Some(row) = rows.get(place) {
                            list.push(row.clone());
                        }
                    }
                });
                let list = list.finish()?;
                if let Err(NotArray(Some(kind))) = visited {
                    return Err(PartFailureReason::EachNotArray(joins.key_text.clone(), kind.name()));
                }
                found_any |= !list.is_empty();
                values.push(JsonTree::Array(list.into()));
                continue;
            }
            let key = joins.item_key.find(item).and_then(key);
            kinds = key.as_ref().map_or(kinds, |key| kinds | key.kind());
            let group = key.as_ref().and_then(|key| grouped.find_group(key));
            found_any |= group.is_some();
            values.push(match group {
                None if joins.missing == MissingRows::Error => return Err(PartFailureReason::JoinMissing),
                None if is_one => JsonTree::NULL,
                None => empty.clone(),
                Some(group) if is_one => grouped
                    .items(group)
                    .next()
                    .and_then(|place| rows.get(place).cloned())
                    .unwrap_or(JsonTree::NULL),
                Some(group) => {
                    let list = || {
                        JsonTree::Array(
                            grouped.items(group).filter_map(|place| rows.get(place).cloned()).collect(),
                        )
                    };
                    lists
                        .get_mut(group)
                        .map_or_else(|| empty.clone(), |tree| tree.get_or_insert_with(list).clone())
                }
            });
        }
        if !found_any && kinds.are_disjoint(grouped.kinds()) {
            let (left, right) = (kinds.kind_names(), grouped.kinds().kind_names());
            return Err(PartFailureReason::JoinKinds { on: joins.key_text.clone(), left, right });
        }
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use bytes::Bytes;
    use json::{JsonDocument, JsonPath};

    use super::*;
    use crate::plan::PartPath;

    #[test]
    fn passes_over_no_rows_when_the_memory_is_exhausted() {
        const COUNT: usize = 1_000;
        let document = |text: String| JsonDocument::new(text.into()).unwrap();
        let path = |text: &str| JsonPath::parse(text).unwrap();
        let rows = document(format!("[{}]", [r#"{"id":1}"#; COUNT].join(",")));
        let item = document(format!(r#"{{"ids":[{}]}}"#, ["1"; COUNT].join(",")));
        let quoted = Bytes::from_static(b"\"rows\"");
        let joins = JoinKeys {
            target: PartPath { part: 0, path: JsonPath::default(), name: "rows".into(), json_name: quoted },
            item_key: path(".ids[*]"),
            row_key: path(".id"),
            cardinality: RowCardinality::Only(false),
            missing: MissingRows::Null,
            text: false,
            key_text: "ids[*] = id".to_owned(),
        };
        // There is room for the groups, and for half of the rows of the first key.
        let memory = MemoryBudget::new(((4 * COUNT + COUNT / 2) * size_of::<JsonTree>()) as u64);
        let trees = rows.root().items().map(|row| JsonTree::Text(row.slice())).collect();
        let join = RowJoin { joins: &joins, rows: trees, memory: &memory };
        let json_trees = join.join_rows(rows.root(), std::iter::once(item.root()));
        assert!(matches!(json_trees, Err(PartFailureReason::Memory)));
        assert_eq!(memory.dropped_items.load(Relaxed), 1);
    }
}
