//! Steps that use fields of objects as inputs: links, and objects fetched by their keys.

use std::sync::Arc;

use hive_router_query_planner::ast::selection_set::FieldSelection;

use super::select::{self, DataPosition, inline_fragments};
use super::{
    FetchTarget, LoweredFetch, LoweringError, LoweringResult, PlanLowering, inclusion_conditions,
    object_path, to_boxed_names, translation,
};
use crate::plan::data::{ObjectGroup, PlanCall, SlotId, SlotOrigin, StepInput, TypeFilter};
use crate::subgraph::{BatchStrategy, BoundCall, SubgraphProtocol};

impl PlanLowering<'_> {
    /// Lowers a link to a step whose results are the field's values.
    #[expect(clippy::too_many_arguments, reason = "the link and its location")]
    pub(super) fn lower_link(
        &mut self,
        fetch: LoweredFetch<'_>,
        target: &FetchTarget,
        only: &TypeFilter,
        parent: &str,
        field: &FieldSelection,
        batch_strategy: &BatchStrategy,
        reading: StepReads<'_>,
    ) -> LoweringResult {
        let arguments = self.lower_arguments(fetch, parent, field);
        let call = match (&fetch.subgraph.kind, bound_call(batch_strategy)) {
            (SubgraphProtocol::Remote { path, .. }, BoundCall::Field { .. }) => {
                let selections = inline_fragments(&field.selections, fetch.fragments);
                let used = selections.variable_usages();
                let bindings = fetch.bindings();
                let declared = fetch.variables.iter().filter(|variable| used.contains(&variable.name));
                let declared = declared
                    .map(|variable| translation::translate_declaration(bindings, variable).to_string());
                let declares = declared.collect::<Vec<_>>().join(", ");
                let below = self.field_type_name(parent, &field.name).unwrap_or_default();
                let selections = self.translate_selection(bindings, &selections, &below);
                PlanCall::Linked {
                    path: Arc::clone(path),
                    strategy: batch_strategy.clone(),
                    arguments,
                    selection: select::without_braces(&selections),
                    declarations: declares.into(),
                    variables: to_boxed_names(used.iter()),
                }
            }
            _ => PlanCall::Keys(batch_strategy.clone(), arguments),
        };
        let slot = self.add_keyed_step(
            fetch,
            target,
            only,
            call,
            reading,
            &inclusion_conditions(&field.skip_if, &field.include_if),
        )?;
        let data_position = DataPosition {
            position: target.position,
            slot,
            parent,
            type_filter: only.clone(),
            is_conditional: false,
        };
        self.add_slot_value(fetch, &data_position, field)
    }

    /// Adds a step that is made for each object, with some of its fields as inputs.
    pub(super) fn add_keyed_step(
        &mut self,
        fetch: LoweredFetch<'_>,
        target: &FetchTarget,
        only: &TypeFilter,
        call: PlanCall,
        mut reading: StepReads<'_>,
        conditions: &[(Arc<str>, bool)],
    ) -> Result<SlotId, LoweringError> {
        let is_abstract = self.positions[target.position].is_abstract(self.types);
        let only = if is_abstract { only.clone() } else { None };
        let resolved_object_path =
            self.find_object_path(target, only.as_ref(), object_path::StepNeeds::Keys(&mut reading.keys))?;
        let (step, position) = (self.steps.len(), target.position);
        let slot = self.positions[position].ensure_slot(SlotOrigin::StepResult(step, 0));
        let group = ObjectGroup {
            position,
            slot,
            type_filter: only,
            input: StepInput::Fields(reading.needed_fields.into(), reading.keys.into()),
            key_slots: resolved_object_path.key_slots,
            path: Some(resolved_object_path.path),
            is_many: is_many(&call),
            batch: 0,
        };
        self.push_step(
            fetch.subgraph,
            call,
            vec![group],
            conditions,
            resolved_object_path.dependencies.into_iter().collect(),
        );
        Ok(slot)
    }
}

/// The fields that a step reads from its objects.
pub(super) struct StepReads<'r> {
    pub(super) needed_fields: &'r [Box<str>],
    pub(super) keys: Vec<Arc<str>>,
}

pub(super) fn unfetched_error(parent: &str, field: &str) -> LoweringError {
    LoweringError(format!("the fields that `{parent}.{field}` needs are not fetched"))
}

fn bound_call(strategy: &BatchStrategy) -> &BoundCall {
    match strategy {
        BatchStrategy::KeyBatches(ask, _)
        | BatchStrategy::WholeList(ask, _)
        | BatchStrategy::PerObject(ask) => ask,
    }
}

fn is_many(call: &PlanCall) -> bool {
    match call {
        PlanCall::Keys(BatchStrategy::KeyBatches(_, joined) | BatchStrategy::WholeList(_, joined), _)
        | PlanCall::Linked {
            strategy: BatchStrategy::KeyBatches(_, joined) | BatchStrategy::WholeList(_, joined),
            ..
        } => joined.is_many,
        _ => false,
    }
}
