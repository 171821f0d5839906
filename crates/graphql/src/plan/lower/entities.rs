//! Fetches of entities: links become separate steps, and the rest becomes one step.

use std::collections::BTreeSet;
use std::sync::Arc;

use hive_router_query_planner::ast::operation::SubgraphFetchOperation;
use hive_router_query_planner::ast::selection_item::SelectionItem;
use hive_router_query_planner::ast::selection_set::{FieldSelection, SelectionSet};
use hive_router_query_planner::planner::plan_nodes::FetchRewrite;

use super::link::{StepReads, unfetched_error};
use super::representation::required_key;
use super::select::{self, DataPosition, inline_fragments, without_links};
use super::{
    FetchTarget, LoweredFetch, LoweringError, LoweringResult, PlanLowering, inclusion_conditions, object_path,
};
use crate::plan::data::{ObjectGroup, PlanCall, SlotOrigin, StepInput, SubgraphDocument};
use crate::plan::values::CallArgumentTexts;
use crate::subgraph::SubgraphProtocol;

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
    pub(super) input_rewrites: &'f [FetchRewrite],
    pub(super) output_rewrites: &'f [FetchRewrite],
    pub(super) targets: Vec<FetchTarget>,
}

impl PlanLowering<'_> {
    /// Lowers a fetch of entities: links become separate steps, and the rest becomes one step.
    pub(super) fn lower_entities(
        &mut self,
        fetch: LoweredFetch<'_>,
        node: EntitiesFetch<'_>,
    ) -> LoweringResult {
        let mut rests: Vec<Option<SelectionSet>> = Vec::new();
        for alias in &node.aliases {
            let inner = inline_fragments(&alias.field.selections, fetch.fragments);
            let mut has_links = false;
            for target in &alias.targets {
                has_links |= self.lower_links(fetch, target, &inner, alias.requires)?;
            }
            rests.push(has_links.then(|| without_links(&inner, fetch.bindings())));
        }
        let SubgraphProtocol::Remote { path, .. } = &fetch.subgraph.kind else { return Ok(()) };
        if rests.iter().all(|rest| rest.as_ref().is_some_and(|rest| rest.items.is_empty())) {
            return Ok(());
        }
        let rest = select::replace_selections(node.operation, &rests);
        let text = self.operation_text(fetch, node.operation, rest, self.types.name(self.types.query));
        let document = SubgraphDocument::new(path, &text, node.node_variables, true);
        let batches = node.aliases.iter();
        let batches = batches.map(|alias| (alias.field.selection_identifier().into(), alias.variable.into()));
        let step = self.steps.len();
        let call = PlanCall::Entities(document, batches.collect());
        let (mut groups, mut after) = (Vec::new(), BTreeSet::new());
        let mut spots = Vec::new();
        for (batch, alias) in node.aliases.iter().enumerate() {
            for target in &alias.targets {
                let mut representation =
                    self.lower_representation(alias.requires, alias.input_rewrites, fetch.fragments);
                let resolved_object_path = self.find_object_path(
                    target,
                    None,
                    object_path::StepNeeds::Representation(&mut representation),
                )?;
                let position = target.position;
                let slot = self.positions[position].ensure_slot(SlotOrigin::StepResult(step, groups.len()));
                after.extend(resolved_object_path.dependencies);
                spots.push((position, slot, batch));
                groups.push(ObjectGroup {
                    position,
                    slot,
                    type_filter: None,
                    input: StepInput::Representation(representation),
                    key_slots: resolved_object_path.key_slots,
                    path: Some(resolved_object_path.path),
                    is_many: false,
                    batch,
                });
            }
        }
        self.push_step(fetch.subgraph, call, groups, &[], after.into_iter().collect());
        for (position, slot, batch) in spots {
            let (Some(alias), Some(rest)) = (node.aliases.get(batch), rests.get(batch)) else { continue };
            let parent = Arc::clone(self.types.name(self.positions[position].declared_type));
            let data_position =
                DataPosition { position, slot, parent: &parent, type_filter: None, is_conditional: false };
            let fetch = LoweredFetch { output_rewrites: alias.output_rewrites, ..fetch };
            self.record_selection(
                fetch,
                &data_position,
                rest.as_ref().unwrap_or(&alias.field.selections),
                &mut Vec::new(),
            )?;
        }
        Ok(())
    }

    /// Lowers the links of a fetch of entities, and the entities' own fields for a REST service. Returns
    /// whether there were links.
    fn lower_links(
        &mut self,
        fetch: LoweredFetch<'_>,
        target: &FetchTarget,
        selections: &SelectionSet,
        requires: &SelectionSet,
    ) -> Result<bool, LoweringError> {
        let mut has_links = false;
        for item in &selections.items {
            let SelectionItem::InlineFragment(fragment) = item else { continue };
            let conditions = inclusion_conditions(&fragment.skip_if, &fragment.include_if);
            has_links |= self.with_conditions(conditions, |lowering| {
                lowering.lower_entity(fetch, target, &fragment.type_condition, &fragment.selections, requires)
            })?;
        }
        Ok(has_links)
    }

    /// Lowers the links and own fields for objects of one type.
    fn lower_entity(
        &mut self,
        fetch: LoweredFetch<'_>,
        target: &FetchTarget,
        name: &str,
        selections: &SelectionSet,
        requires: &SelectionSet,
    ) -> Result<bool, LoweringError> {
        let Some(entity) = fetch.bindings().entities.get(name) else { return Ok(false) };
        let only = self.type_filter_for([name].into_iter());
        let key_of = |need: &str| required_key(requires, name, need);
        let (mut has_links, mut own) = (false, Vec::new());
        for item in &selections.items {
            match item {
                SelectionItem::Field(field) if field.name == "__typename" => {}
                SelectionItem::Field(field) => match entity.links.get(field.name.as_str()) {
                    Some(link) => {
                        has_links = true;
                        let keys: Option<Vec<Arc<str>>> =
                            link.needed_fields.iter().map(|need| key_of(need)).collect();
                        let keys = keys.ok_or_else(|| unfetched_error(name, &field.name))?;
                        let reading = StepReads { needed_fields: &link.needed_fields, keys };
                        self.lower_link(fetch, target, &only, name, field, &link.strategy, reading)?;
                    }
                    None => own.push(item.clone()),
                },
                // Conditional fields are in a fragment of their own.
                SelectionItem::InlineFragment(fragment) if fragment.type_condition == name => {
                    let conditions = inclusion_conditions(&fragment.skip_if, &fragment.include_if);
                    has_links |= self.with_conditions(conditions, |lowering| {
                        lowering.lower_entity(fetch, target, name, &fragment.selections, requires)
                    })?;
                }
                other => own.push(other.clone()),
            }
        }
        if own.is_empty() || !fetch.is_rest() {
            return Ok(has_links);
        }
        let strategy = entity
            .fetch_strategy
            .as_ref()
            .ok_or_else(|| LoweringError(format!("`{name}` can't be found by a key")))?;
        let needs: Vec<Box<str>> = strategy.needed_fields().into_iter().map(Into::into).collect();
        let keys: Option<Vec<Arc<str>>> = needs.iter().map(|need| key_of(need)).collect();
        let keys = keys.ok_or_else(|| unfetched_error(name, "it"))?;
        let call = PlanCall::Keys(strategy.clone(), CallArgumentTexts::default());
        let slot =
            self.add_keyed_step(fetch, target, &only, call, StepReads { needed_fields: &needs, keys }, &[])?;
        let data_position = DataPosition {
            position: target.position,
            slot,
            parent: name,
            type_filter: only,
            is_conditional: false,
        };
        self.set_type_resolver(fetch, &data_position);
        self.record_selection(fetch, &data_position, &SelectionSet { items: own }, &mut Vec::new())?;
        Ok(has_links)
    }
}
