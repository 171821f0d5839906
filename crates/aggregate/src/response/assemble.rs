//! Composition of the response tree from the values of the parts. Texts are shared, not copied.
//!
//! First the values to put into each target are determined (`join_values`, and `join.rs`), so that errors
//! occur before the tree is built, and an optional part can still become `null`. Then the values are walked
//! once (`weave.rs`), with the texts of selected fields where a part has `fields` (`fields.rs`).

mod fields;
mod join;
mod weave;

use std::cell::RefCell;

use json::{JsonNode, JsonPath, JsonTree, TreeMember, ValueKind};
use offload::{SHORT_TEXT, work};

use self::fields::SelectedObjects;
use self::join::RowJoin;
use self::weave::{PathPatch, ValueWeaver, select_fields};
use crate::memory::{BudgetedVec, MemoryExhausted};
use crate::plan::{AggregateShape, JoinKeys, PartPlan};
use crate::problem::{AggregateError, PartFailure, PartFailureReason};
use crate::run::part_failure;
use crate::value::{AvailableValues, FanOutResponses, PartValue, visit_targets, work_of_targets};

/// The weight of each row of a key, in bytes of text, if items have several keys.
const ROW_WEIGHT: usize = 8;

/// The builder of the trees of a request's parts.
pub(crate) struct PartAssembler<'a> {
    pub(crate) available_values: &'a AvailableValues<'a>,
    /// Failures of optional parts that are found during composition.
    pub(crate) failures: RefCell<Vec<PartFailure>>,
}

/// Returns the estimated work of composing the response (see [`work`]).
pub(crate) fn estimated_work(values: &AvailableValues<'_>) -> usize {
    let parts = values.plan.parts.iter().enumerate();
    work::sum_estimates(parts.map(|(number, part)| part_work(values, part, values.value(number))))
}

/// Returns the estimated work for a part's value. A value that is passed on unchanged takes none.
fn part_work(values: &AvailableValues<'_>, part: &PartPlan, value: Option<&PartValue>) -> usize {
    let Some(value) = value else { return 0 };
    let root = value.root();
    let of_items = |node| work_of_targets(node, &JsonPath::default());
    let is_merged = matches!(values.plan.answer, AggregateShape::Merged(..));
    let has_changes = part.fields.is_some() || !part.children.is_empty();
    let own = match value {
        PartValue::Each(fan) => {
            let answers = fan.answers.iter().map(|body| match part.fields {
                Some(_) => of_items(body.root()),
                None => work::VALUE,
            });
            work::VALUE * fan.item_responses.len() + work::sum_estimates(answers)
        }
        // The name of each member is parsed and looked up.
        _ if is_merged => of_items(root) + 2 * work::VALUE * root.count(),
        _ if has_changes || part.joins.is_some() => of_items(root),
        _ => 0,
    };
    let children = part.children.iter().filter_map(|child| values.plan.parts[*child].put_target());
    let into = work::sum_estimates(children.map(|into| work_of_targets(root, &into.path)));
    let keys = part.joins.as_ref().map_or(0, |joins| key_work(values, joins, root));
    work::sum_estimates([own, into, keys])
}

/// Returns the estimated work for items that have several keys each. Each key may be that of all rows.
fn key_work(values: &AvailableValues<'_>, joins: &JoinKeys, rows: JsonNode<'_>) -> usize {
    if !joins.item_key.has_wildcard() {
        return 0;
    }
    let Some(items) = values.value(joins.target.part).map(PartValue::root) else { return 0 };
    let to_items = work_of_targets(items, &joins.target.path);
    if to_items > SHORT_TEXT {
        return to_items;
    }
    let mut keys = 0;
    // A path that leads to no array is reported by the join.
    let _ = visit_targets(items, &joins.target.path, &mut |item| {
        keys += joins.item_key.count_up_to(item, work::LONG_VALUE_COUNT);
    });
    ROW_WEIGHT.saturating_mul(keys).saturating_mul(rows.count())
}

impl<'a> PartAssembler<'a> {
    /// Returns the tree of a part.
    pub(crate) fn part_tree(&self, number: usize) -> Result<JsonTree, AggregateError> {
        let part = &self.available_values.plan.parts[number];
        match self.available_values.value(number) {
            None => Ok(JsonTree::NULL),
            Some(PartValue::Each(fan)) if part.children.is_empty() => {
                let trees = self.response_trees(part, fan)?;
                self.available_values.memory.charge_for::<JsonTree>(fan.item_responses.len())?;
                let of_item = fan.item_responses.iter().map(|answer| item_tree(&trees, *answer));
                Ok(JsonTree::Array(of_item.collect()))
            }
            Some(value) => {
                let root = value.root();
                let mut patches = self.child_patches(number, root)?;
                if patches.is_empty() && part.fields.is_none() {
                    return Ok(JsonTree::Text(root.slice()));
                }
                let mut weaver = self.part_weaver(part, root)?;
                let tree = weaver.weave_root(root, &mut patches.iter_mut().collect::<Vec<_>>());
                Ok(weaver.finish(tree)?)
            }
        }
    }

    /// Returns the trees of a part's rows.
    fn row_trees(&self, number: usize, root: JsonNode<'a>) -> Result<Vec<JsonTree>, AggregateError> {
        let part = &self.available_values.plan.parts[number];
        self.available_values.memory.charge_for::<JsonTree>(root.count())?;
        if part.children.is_empty() && part.fields.is_none() {
            return Ok(root.items().map(|row| JsonTree::Text(row.slice())).collect());
        }
        let mut patches = self.child_patches(number, root)?;
        let mut weaver = self.part_weaver(part, root)?;
        let mut below: Vec<&mut PathPatch<'_>> =
            patches.iter_mut().map(PathPatch::advance_to_items).collect();
        let rows = root.items().map(|row| weaver.weave_item(row, &mut below)).collect();
        Ok(weaver.finish(rows)?)
    }

    fn part_weaver(&self, part: &PartPlan, root: JsonNode<'_>) -> Result<ValueWeaver<'a>, MemoryExhausted> {
        let memory = &self.available_values.memory;
        let selected = part
            .fields
            .as_deref()
            .map(|fields| SelectedObjects::from_root(root, fields, memory))
            .transpose()?;
        Ok(ValueWeaver::new(selected, memory))
    }

    /// Returns the trees of the distinct responses of an `each`.
    fn response_trees(
        &self,
        part: &PartPlan,
        fan: &FanOutResponses,
    ) -> Result<Vec<JsonTree>, MemoryExhausted> {
        fan.answers
            .iter()
            .map(|body| select_fields(part, body.root(), &self.available_values.memory))
            .collect()
    }

    /// Returns the values to put into a part.
    fn child_patches(&self, number: usize, root: JsonNode<'a>) -> Result<Vec<PathPatch<'a>>, AggregateError> {
        let parts = &self.available_values.plan.parts;
        let mut patches = Vec::new();
        for child in &parts[number].children {
            let part = &parts[*child];
            let Some(into) = part.put_target() else { continue };
            let mut vec = BudgetedVec::new(&self.available_values.memory);
            // A path without an array has failed an `each` before, and has no targets in a join.
            let _ = visit_targets(root, &into.path, &mut |node| vec.push(node));
            let nodes = vec.finish()?;
            // The value, and the object that gets it as a member.
            self.available_values.memory.charge_for::<(JsonTree, TreeMember, JsonTree)>(nodes.len())?;
            let values = match self.join_values(*child, part, &nodes)? {
                Ok(values) => values,
                Err(reason) if part.is_required() => return Err(part_failure(part, reason).into()),
                Err(reason) => {
                    self.failures.borrow_mut().push(part_failure(part, reason));
                    nodes
                        .iter()
                        .filter(|json_node| json_node.kind() == ValueKind::Object)
                        .map(|_| JsonTree::NULL)
                        .collect()
                }
            };
            let steps = into.path.steps();
            patches.push(PathPatch {
                steps,
                name: &into.name,
                json_name: &into.json_name,
                values: values.into_iter(),
            });
        }
        Ok(patches)
    }

    /// Returns the values that a part puts into each target that is an object.
    fn join_values(
        &self,
        number: usize,
        part: &'a PartPlan,
        nodes: &[JsonNode<'a>],
    ) -> Result<Result<Vec<JsonTree>, PartFailureReason>, AggregateError> {
        let value_kind = nodes
            .iter()
            .map(|node| node.kind())
            .find(|kind| !matches!(kind, ValueKind::Object | ValueKind::Null));
        if let (Some(kind), Some(into)) = (value_kind, part.put_target()) {
            let name = &self.available_values.plan.parts[into.part].name;
            return Ok(Err(PartFailureReason::JoinNotObject(name.clone(), kind.name())));
        }
        let objects = || nodes.iter().filter(|json_node| json_node.kind() == ValueKind::Object);
        let value = match self.available_values.value(number) {
            None => return Ok(Ok(objects().map(|_| JsonTree::NULL).collect())),
            Some(value) => value,
        };
        match (value, &part.joins) {
            (PartValue::Each(fan), _) => {
                let trees = self.response_trees(part, fan)?;
                let of_item = fan
                    .item_responses
                    .iter()
                    .zip(nodes)
                    .filter(|(_, place)| place.kind() == ValueKind::Object);
                Ok(Ok(of_item.map(|(answer, _)| item_tree(&trees, *answer)).collect()))
            }
            // A part that is put into another is never streamed.
            (PartValue::Streamed(..), _) => Ok(Ok(objects().map(|_| JsonTree::NULL).collect())),
            (PartValue::Single(body), Some(joins)) => match body.root().kind() {
                ValueKind::Array => {
                    let rows = self.row_trees(number, body.root())?;
                    let join = RowJoin { joins, rows, memory: &self.available_values.memory };
                    Ok(join.join_rows(body.root(), objects().copied()))
                }
                // An optional part that failed.
                ValueKind::Null if !part.is_required() => Ok(Ok(objects().map(|_| JsonTree::NULL).collect())),
                kind => Ok(Err(PartFailureReason::JoinNotArray(kind.name()))),
            },
            // An `each` that failed as a whole.
            (PartValue::Single(body), None) => {
                let tree = select_fields(part, body.root(), &self.available_values.memory)?;
                Ok(Ok(objects().map(|_| tree.clone()).collect()))
            }
        }
    }
}

fn item_tree(trees: &[JsonTree], answer: Option<u32>) -> JsonTree {
    answer.and_then(|answer| trees.get(answer as usize).cloned()).unwrap_or(JsonTree::NULL)
}
