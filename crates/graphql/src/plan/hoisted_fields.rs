//! Moving of fields from fragments of one type up to the interface that contains them, if an interface object
//! resolves these fields. More is requested than the client selected; the response still contains only the
//! client's selection.

use hive_router_query_planner::ast::selection_item::SelectionItem;
use hive_router_query_planner::ast::selection_set::{FieldSelection, InlineFragmentSelection, SelectionSet};
use hive_router_query_planner::state::supergraph_state::{SupergraphDefinition, SupergraphState};

/// A selection of a type, with the fields of its fragments moved up.
pub(super) fn hoist_fields(
    supergraph: &SupergraphState,
    of: &str,
    selections: &SelectionSet,
) -> SelectionSet {
    let mut items: Vec<SelectionItem> = Vec::new();
    for item in &selections.items {
        match item {
            SelectionItem::Field(field) => merge_field(&mut items, hoist_subselection(supergraph, of, field)),
            SelectionItem::InlineFragment(fragment) => {
                let inner = hoist_fields(supergraph, &fragment.type_condition, &fragment.selections);
                let mut own = Vec::new();
                for item in inner.items {
                    match item {
                        SelectionItem::Field(field)
                            if is_interface_object_field(
                                supergraph,
                                of,
                                &fragment.type_condition,
                                &field.name,
                            ) && has_unique_key(selections, &field) =>
                        {
                            let skip_if = field.skip_if.clone().or_else(|| fragment.skip_if.clone());
                            let include_if = field.include_if.clone().or_else(|| fragment.include_if.clone());
                            merge_field(&mut items, FieldSelection { skip_if, include_if, ..field });
                        }
                        item => own.push(item),
                    }
                }
                if !own.is_empty() {
                    let selections = SelectionSet { items: own };
                    let fragment = InlineFragmentSelection { selections, ..fragment.clone() };
                    items.push(SelectionItem::InlineFragment(fragment));
                }
            }
            SelectionItem::FragmentSpread(_) => items.push(item.clone()),
        }
    }
    SelectionSet { items }
}

fn hoist_subselection(supergraph: &SupergraphState, of: &str, field: &FieldSelection) -> FieldSelection {
    let declared = supergraph.definitions.get(of).and_then(|of| of.fields().get(&field.name));
    let inner = declared
        .map(|declared| hoist_fields(supergraph, declared.field_type.inner_type(), &field.selections));
    field.with_new_selections(inner.unwrap_or_else(|| field.selections.clone()))
}

/// Adds a field, or merges its selection into that of an equal field.
fn merge_field(items: &mut Vec<SelectionItem>, field: FieldSelection) {
    let known = items.iter_mut().find_map(|item| match item {
        SelectionItem::Field(known)
            if known.selection_identifier() == field.selection_identifier()
                && (&known.skip_if, &known.include_if) == (&field.skip_if, &field.include_if) =>
        {
            Some(known)
        }
        _ => None,
    });
    match known {
        Some(known) => known.selections.items.extend(field.selections.items),
        None => items.push(SelectionItem::Field(field)),
    }
}

/// Whether objects of a type have a field only through an interface object.
fn is_interface_object_field(
    supergraph: &SupergraphState,
    interface: &str,
    object: &str,
    field: &str,
) -> bool {
    let Some(interface @ SupergraphDefinition::Interface(_)) = supergraph.definitions.get(interface) else {
        return false;
    };
    let own = supergraph.definitions.get(object).and_then(|object| object.fields().get(field));
    let is_own = own.is_none_or(|own| {
        own.join_field.is_empty() || own.join_field.iter().any(|join| join.graph_id.is_some())
    });
    !is_own
        && interface.fields().contains_key(field)
        && interface.join_types().iter().any(|join| join.is_interface_object)
}

/// Whether every occurrence of this key in a selection is the same field.
fn has_unique_key(selections: &SelectionSet, field: &FieldSelection) -> bool {
    selections.items.iter().all(|item| match item {
        SelectionItem::Field(other) => {
            other.selection_identifier() != field.selection_identifier()
                || (&other.name, &other.arguments) == (&field.name, &field.arguments)
        }
        SelectionItem::InlineFragment(fragment) => has_unique_key(&fragment.selections, field),
        SelectionItem::FragmentSpread(_) => false,
    })
}
