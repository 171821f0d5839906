//! Fetches of entities: links become separate steps, and the rest becomes one step.

use std::collections::BTreeSet;
use std::sync::Arc;

use hive_router_query_planner::ast::operation::SubgraphFetchOperation;
use hive_router_query_planner::ast::selection_item::SelectionItem;
use hive_router_query_planner::ast::selection_set::{FieldSelection, SelectionSet};
use hive_router_query_planner::planner::plan_nodes::FetchRewrite;

use super::link::{StepReads, unreadable};
use super::represent::required;
use super::select::{self, DataPosition, inlined, without};
use super::{FetchTarget, LoweredFetch, LoweringError, LoweringResult, PlanLowering, conditions, way};
use crate::SubgraphProtocol;
use crate::plan::data::{ObjectGroup, PlanCall, SlotOrigin, StepInput, SubgraphDocument};
use crate::plan::values::CallArgumentTexts;

/// A fetch of entities, whose aliases share one document.
pub(super) struct EntitiesFetch<'f> {
    pub(super) node_variables: Box<[Box<str>]>,
    pub(super) operation: &'f SubgraphFetchOperation,
    pub(super) aliases: Vec<EntitiesAlias<'f>>,
}

pub(super) struct EntitiesAlias<'f> {
    pub(super) field: &'f FieldSelection,
    pub(super) variable: &'f str,
    pub(super) requires: &'f SelectionSet,
    pub(super) inputs: &'f [FetchRewrite],
    pub(super) outputs: &'f [FetchRewrite],
    pub(super) targets: Vec<FetchTarget>,
}

impl PlanLowering<'_> {
    /// Lowers a fetch of entities: links become separate steps, and the rest becomes one step.
    pub(super) fn entities(&mut self, fetch: LoweredFetch<'_>, node: EntitiesFetch<'_>) -> LoweringResult {
        let mut rests: Vec<Option<SelectionSet>> = Vec::new();
        for alias in &node.aliases {
            let inner = inlined(&alias.field.selections, fetch.fragments);
            let mut has_links = false;
            for target in &alias.targets {
                has_links |= self.links(fetch, target, &inner, alias.requires)?;
            }
            rests.push(has_links.then(|| without(&inner, fetch.bindings())));
        }
        let SubgraphProtocol::Remote { path, .. } = &fetch.subgraph.kind else { return Ok(()) };
        if rests.iter().all(|rest| rest.as_ref().is_some_and(|rest| rest.items.is_empty())) {
            return Ok(());
        }
        let rest = select::replaced(node.operation, &rests);
        let text = self.text(fetch, node.operation, rest, self.types.name(self.types.query));
        let document = SubgraphDocument::new(path, &text, node.node_variables, true);
        let batches = node.aliases.iter();
        let batches = batches.map(|alias| (alias.field.selection_identifier().into(), alias.variable.into()));
        let step = self.steps.len();
        let call = PlanCall::Entities(document, batches.collect());
        let (mut groups, mut after) = (Vec::new(), BTreeSet::new());
        let mut spots = Vec::new();
        for (batch, alias) in node.aliases.iter().enumerate() {
            for target in &alias.targets {
                let mut said = self.representation(alias.requires, alias.inputs, fetch.fragments);
                let way = self.way(target, None, way::StepNeeds::Said(&mut said))?;
                let position = target.position;
                let slot = self.positions[position].slot(SlotOrigin::Found(step, groups.len()));
                after.extend(way.after);
                spots.push((position, slot, batch));
                groups.push(ObjectGroup {
                    position,
                    slot,
                    only: None,
                    input: StepInput::Representation(said),
                    key: way.key,
                    walk: Some(way.walk),
                    is_many: false,
                    batch,
                });
            }
        }
        self.push(fetch.subgraph, call, groups, &[], after.into_iter().collect());
        for (position, slot, batch) in spots {
            let (Some(alias), Some(rest)) = (node.aliases.get(batch), rests.get(batch)) else { continue };
            let parent = Arc::clone(self.types.name(self.positions[position].declared));
            let spot = DataPosition { position, slot, parent: &parent, only: None, is_conditional: false };
            let fetch = LoweredFetch { outputs: alias.outputs, ..fetch };
            self.select(fetch, &spot, rest.as_ref().unwrap_or(&alias.field.selections), &mut Vec::new())?;
        }
        Ok(())
    }

    /// Lowers the links of a fetch of entities, and the entities' own fields for a REST service. Returns
    /// whether there were links.
    fn links(
        &mut self,
        fetch: LoweredFetch<'_>,
        target: &FetchTarget,
        selections: &SelectionSet,
        requires: &SelectionSet,
    ) -> Result<bool, LoweringError> {
        let mut has_links = false;
        for item in &selections.items {
            let SelectionItem::InlineFragment(fragment) = item else { continue };
            let conditions = conditions(&fragment.skip_if, &fragment.include_if);
            has_links |= self.under(conditions, |lowering| {
                lowering.entity(fetch, target, &fragment.type_condition, &fragment.selections, requires)
            })?;
        }
        Ok(has_links)
    }

    /// Lowers the links and own fields for objects of one type.
    fn entity(
        &mut self,
        fetch: LoweredFetch<'_>,
        target: &FetchTarget,
        name: &str,
        selections: &SelectionSet,
        requires: &SelectionSet,
    ) -> Result<bool, LoweringError> {
        let Some(entity) = fetch.bindings().entities.get(name) else { return Ok(false) };
        let only = self.only([name].into_iter());
        let key_of = |need: &str| required(requires, name, need);
        let (mut has_links, mut own) = (false, Vec::new());
        for item in &selections.items {
            match item {
                SelectionItem::Field(field) if field.name == "__typename" => {}
                SelectionItem::Field(field) => match entity.links.get(field.name.as_str()) {
                    Some(link) => {
                        has_links = true;
                        let keys: Option<Vec<Arc<str>>> =
                            link.needs.iter().map(|need| key_of(need)).collect();
                        let keys = keys.ok_or_else(|| unreadable(name, &field.name))?;
                        let reading = StepReads { needs: &link.needs, keys };
                        self.link(fetch, target, &only, name, field, &link.how, reading)?;
                    }
                    None => own.push(item.clone()),
                },
                // Conditional fields are in a fragment of their own.
                SelectionItem::InlineFragment(fragment) if fragment.type_condition == name => {
                    let conditions = conditions(&fragment.skip_if, &fragment.include_if);
                    has_links |= self.under(conditions, |lowering| {
                        lowering.entity(fetch, target, name, &fragment.selections, requires)
                    })?;
                }
                other => own.push(other.clone()),
            }
        }
        if own.is_empty() || !fetch.is_rest() {
            return Ok(has_links);
        }
        let how =
            entity.own.as_ref().ok_or_else(|| LoweringError(format!("`{name}` can't be found by a key")))?;
        let needs: Vec<Box<str>> = how.needs().into_iter().map(Into::into).collect();
        let keys: Option<Vec<Arc<str>>> = needs.iter().map(|need| key_of(need)).collect();
        let keys = keys.ok_or_else(|| unreadable(name, "it"))?;
        let call = PlanCall::Keys(how.clone(), CallArgumentTexts::default());
        let slot = self.keyed(fetch, target, &only, call, StepReads { needs: &needs, keys }, &[])?;
        let spot =
            DataPosition { position: target.position, slot, parent: name, only, is_conditional: false };
        self.teller(fetch, &spot);
        self.select(fetch, &spot, &SelectionSet { items: own }, &mut Vec::new())?;
        Ok(has_links)
    }
}
