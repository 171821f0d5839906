//! Steps that use fields of objects as inputs: links, and objects fetched by their keys.

use std::sync::Arc;

use hive_router_query_planner::ast::selection_set::FieldSelection;

use super::select::{self, DataPosition, inlined};
use super::{
    FetchTarget, LoweredFetch, LoweringError, LoweringResult, PlanLowering, conditions, names, way, words,
};
use crate::plan::data::{ObjectGroup, PlanCall, SlotId, SlotOrigin, StepInput, TypeFilter};
use crate::{BatchStrategy, BoundCall, SubgraphProtocol};

impl PlanLowering<'_> {
    /// Lowers a link to a step whose results are the field's values.
    #[expect(clippy::too_many_arguments, reason = "the link and its location")]
    pub(super) fn link(
        &mut self,
        fetch: LoweredFetch<'_>,
        target: &FetchTarget,
        only: &TypeFilter,
        parent: &str,
        field: &FieldSelection,
        how: &BatchStrategy,
        reading: StepReads<'_>,
    ) -> LoweringResult {
        let arguments = self.arguments(fetch, parent, field);
        let call = match (&fetch.subgraph.kind, asked(how)) {
            (SubgraphProtocol::Remote { path, .. }, BoundCall::Field { .. }) => {
                let selections = inlined(&field.selections, fetch.fragments);
                let used = selections.variable_usages();
                let bindings = fetch.bindings();
                let declared = fetch.variables.iter().filter(|variable| used.contains(&variable.name));
                let declared = declared.map(|variable| words::declared(bindings, variable).to_string());
                let declares = declared.collect::<Vec<_>>().join(", ");
                let below = self.type_of(parent, &field.name).unwrap_or_default();
                let selections = self.words(bindings, &selections, &below);
                PlanCall::Linked {
                    path: Arc::clone(path),
                    how: how.clone(),
                    arguments,
                    selection: select::bare(&selections),
                    declares: declares.into(),
                    variables: names(used.iter()),
                }
            }
            _ => PlanCall::Keys(how.clone(), arguments),
        };
        let slot =
            self.keyed(fetch, target, only, call, reading, &conditions(&field.skip_if, &field.include_if))?;
        let spot = DataPosition {
            position: target.position,
            slot,
            parent,
            only: only.clone(),
            is_conditional: false,
        };
        self.value(fetch, &spot, field)
    }

    /// Adds a step that is made for each object, with some of its fields as inputs.
    pub(super) fn keyed(
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
        let way = self.way(target, only.as_ref(), way::StepNeeds::Keys(&mut reading.keys))?;
        let (step, position) = (self.steps.len(), target.position);
        let slot = self.positions[position].slot(SlotOrigin::Found(step, 0));
        let group = ObjectGroup {
            position,
            slot,
            only,
            input: StepInput::Fields(reading.needs.into(), reading.keys.into()),
            key: way.key,
            walk: Some(way.walk),
            is_many: is_many(&call),
            batch: 0,
        };
        self.push(fetch.subgraph, call, vec![group], conditions, way.after.into_iter().collect());
        Ok(slot)
    }
}

/// The fields that a step reads from its objects.
pub(super) struct StepReads<'r> {
    pub(super) needs: &'r [Box<str>],
    pub(super) keys: Vec<Arc<str>>,
}

pub(super) fn unreadable(parent: &str, field: &str) -> LoweringError {
    LoweringError(format!("the fields that `{parent}.{field}` needs are not fetched"))
}

fn asked(how: &BatchStrategy) -> &BoundCall {
    match how {
        BatchStrategy::Ids(ask, _) | BatchStrategy::List(ask, _) | BatchStrategy::Each(ask) => ask,
    }
}

fn is_many(call: &PlanCall) -> bool {
    match call {
        PlanCall::Keys(BatchStrategy::Ids(_, joined) | BatchStrategy::List(_, joined), _)
        | PlanCall::Linked { how: BatchStrategy::Ids(_, joined) | BatchStrategy::List(_, joined), .. } => {
            joined.is_many
        }
        _ => false,
    }
}
