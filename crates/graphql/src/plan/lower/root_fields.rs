//! The root fields of a fetch: one document for a GraphQL service, or one operation for each field of a REST
//! service.

use std::sync::Arc;

use hive_router_query_planner::ast::selection_item::SelectionItem;
use hive_router_query_planner::ast::selection_set::SelectionSet;
use hive_router_query_planner::planner::plan_nodes::FetchNode;

use super::select::{DataPosition, inline_fragments};
use super::{
    FetchTarget, LoweredFetch, LoweringError, LoweringResult, PlanLowering, inclusion_conditions,
    to_boxed_names,
};
use crate::plan::data::{ObjectGroup, PlanCall, PositionId, SlotId, SlotOrigin, StepInput, SubgraphDocument};
use crate::subgraph::{OperationKind, Subgraph, SubgraphProtocol};

impl PlanLowering<'_> {
    /// Lowers the root fields of a fetch.
    pub(super) fn lower_roots(
        &mut self,
        fetch: LoweredFetch<'_>,
        node: &FetchNode,
        target: &FetchTarget,
    ) -> LoweringResult {
        let operation = &node.operation.document.operation;
        let position = target.position;
        let parent = Arc::clone(self.types.name(self.positions[position].declared_type));
        if let SubgraphProtocol::Remote { path, .. } = &fetch.subgraph.kind {
            let is_query = !operation.operation_kind.as_ref().is_some_and(|kind| kind.is_mutation());
            let variables = to_boxed_names(node.variable_usages.iter().flatten());
            let text = self.operation_text(fetch, &node.operation, None, &parent);
            let document = SubgraphDocument::new(path, &text, variables, is_query);
            let slot = self.add_root_step(fetch.subgraph, PlanCall::Document(document), position, &[]);
            let data_position =
                DataPosition { position, slot, parent: &parent, type_filter: None, is_conditional: false };
            return self.record_selection(fetch, &data_position, &operation.selection_set, &mut Vec::new());
        }
        let selections = inline_fragments(&operation.selection_set, fetch.fragments);
        self.lower_operations(fetch, position, &parent, &selections)
    }

    /// Lowers the root fields of a REST service, each to an operation.
    fn lower_operations(
        &mut self,
        fetch: LoweredFetch<'_>,
        position: PositionId,
        parent: &str,
        selections: &SelectionSet,
    ) -> LoweringResult {
        for item in &selections.items {
            let field = match item {
                SelectionItem::Field(field) if field.name == "__typename" => continue,
                SelectionItem::Field(field) => field,
                SelectionItem::InlineFragment(fragment) => {
                    let conditions = inclusion_conditions(&fragment.skip_if, &fragment.include_if);
                    self.with_conditions(conditions, |lowering| {
                        lowering.lower_operations(fetch, position, parent, &fragment.selections)
                    })?;
                    continue;
                }
                SelectionItem::FragmentSpread(_) => continue,
            };
            let rest_operation = fetch.bindings().roots.get(&(self.kind, field.name.as_str().into()));
            let operation = rest_operation
                .ok_or_else(|| LoweringError(format!("`{parent}.{}` has no operation", field.name)))?;
            let arguments = self.lower_arguments(fetch, parent, field);
            let call = PlanCall::Operation(Arc::clone(operation), arguments);
            let slot = self.add_root_step(
                fetch.subgraph,
                call,
                position,
                &inclusion_conditions(&field.skip_if, &field.include_if),
            );
            let data_position =
                DataPosition { position, slot, parent, type_filter: None, is_conditional: false };
            self.add_slot_value(fetch, &data_position, field)?;
        }
        Ok(())
    }

    /// Adds a step that is made once, and returns the slot of its result. Mutations are made one after the
    /// other.
    fn add_root_step(
        &mut self,
        subgraph: &Subgraph,
        call: PlanCall,
        position: PositionId,
        conditions: &[(Arc<str>, bool)],
    ) -> SlotId {
        let is_change = position == 0 && self.kind == OperationKind::Mutation;
        let base = self.positions[position].slots.iter().filter_map(|slot| match slot.origin {
            SlotOrigin::StepResult(step, _) => Some(step),
            SlotOrigin::Parent(_) => None,
        });
        let after = if is_change { (0..self.steps.len()).collect() } else { base.collect() };
        let step = self.steps.len();
        let slot = self.positions[position].ensure_slot(SlotOrigin::StepResult(step, 0));
        let group = ObjectGroup {
            position,
            slot,
            type_filter: None,
            input: StepInput::Empty,
            key_slots: Vec::new(),
            path: None,
            is_many: false,
            batch: 0,
        };
        let after = if position == 0 && !is_change { Vec::new() } else { after };
        self.push_step(subgraph, call, vec![group], conditions, after);
        slot
    }
}
