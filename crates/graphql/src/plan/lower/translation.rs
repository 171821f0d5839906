//! Translation of a document to the service's own names of types, fields and values. Links are removed, since
//! they are separate calls, and replaced by the fields that they need.

use hive_router_query_planner::ast::document::Document;
use hive_router_query_planner::ast::operation::{
    OperationDefinition, SubgraphFetchOperation, VariableDefinition,
};
use hive_router_query_planner::ast::selection_item::SelectionItem;
use hive_router_query_planner::ast::selection_set::{FieldSelection, InlineFragmentSelection, SelectionSet};
use hive_router_query_planner::ast::value::Value;
use hive_router_query_planner::state::supergraph_state::TypeNode;

use super::{LoweredFetch, PlanLowering};
use crate::plan::types::{ClientTypeKind, ClientTypeRef};
use crate::subgraph::SubgraphBindings;

/// The alias of a field that a link to the same service needs.
pub(super) fn need_alias(need: &str) -> String {
    format!("orfa_need_{need}")
}

/// Whether the service's names equal those of the schema.
fn has_same_names(bindings: &SubgraphBindings) -> bool {
    bindings.types.is_empty() && bindings.entities.values().all(|entity| entity.links.is_empty())
}

impl PlanLowering<'_> {
    /// The text of an operation for a service; the planner's text if no translation is necessary.
    pub(super) fn operation_text(
        &self,
        fetch: LoweredFetch<'_>,
        operation: &SubgraphFetchOperation,
        selections: Option<SelectionSet>,
        parent: &str,
    ) -> Box<str> {
        if selections.is_none() && has_same_names(fetch.bindings()) {
            return operation.document_str.as_str().into();
        }
        let own = &operation.document.operation;
        let inlined = || super::select::inline_fragments(&own.selection_set, fetch.fragments);
        let selection_set =
            self.translate_selection(fetch.bindings(), &selections.unwrap_or_else(inlined), parent);
        let variables = own.variable_definitions.as_ref();
        let variable_definitions = variables.map(|all| {
            all.iter().map(|variable| translate_declaration(fetch.bindings(), variable)).collect()
        });
        let operation = OperationDefinition { selection_set, variable_definitions, ..own.clone() };
        let document = Document { operation, fragments: Vec::new() };
        SubgraphFetchOperation::from_anonymous_operation(document).document_str.into()
    }

    /// Translates a selection of objects of a type, with its fragments inlined.
    pub(super) fn translate_selection(
        &self,
        bindings: &SubgraphBindings,
        selections: &SelectionSet,
        parent: &str,
    ) -> SelectionSet {
        if has_same_names(bindings) {
            return selections.clone();
        }
        let mut items = Vec::new();
        for item in &selections.items {
            match item {
                SelectionItem::Field(field) => self.translate_field(bindings, field, parent, &mut items),
                SelectionItem::InlineFragment(fragment) => {
                    let selections =
                        self.translate_selection(bindings, &fragment.selections, &fragment.type_condition);
                    let type_condition = service_type_name(bindings, &fragment.type_condition);
                    let fragment = InlineFragmentSelection { type_condition, selections, ..fragment.clone() };
                    items.push(SelectionItem::InlineFragment(fragment));
                }
                SelectionItem::FragmentSpread(_) => items.push(item.clone()),
            }
        }
        SelectionSet { items }
    }

    fn translate_field(
        &self,
        bindings: &SubgraphBindings,
        field: &FieldSelection,
        parent: &str,
        out: &mut Vec<SelectionItem>,
    ) {
        let own = |name: &str| {
            let binding = bindings.types.get(parent);
            binding.and_then(|binding| binding.fields.get(name)).map_or(name, |own| own).to_owned()
        };
        let entity = bindings.entities.get(parent);
        if let Some(link) = entity.and_then(|entity| entity.links.get(field.name.as_str())) {
            for need in &link.needed_fields {
                let alias = Some(need_alias(need));
                let is_there = |item: &SelectionItem| matches!(item, SelectionItem::Field(field) if field.alias == alias);
                if !out.iter().any(is_there) {
                    let name = own(need);
                    out.push(SelectionItem::Field(FieldSelection {
                        name,
                        alias,
                        ..FieldSelection::default()
                    }));
                }
            }
            return;
        }
        let (name, key) = (own(&field.name), field.selection_identifier());
        let below = self.field_type_name(parent, &field.name);
        let selections = below.map(|below| self.translate_selection(bindings, &field.selections, &below));
        let client_field = self.types.find(parent).and_then(|id| self.types.field(id, &field.name));
        let argument = |(argument, value): (&String, &Value)| {
            let ty =
                client_field.and_then(|field| field.arguments.iter().find(|input| *input.name == **argument));
            let value = ty.map_or_else(
                || value.clone(),
                |client_input| self.translate_value(bindings, value, &client_input.ty),
            );
            (argument.clone(), value)
        };
        let arguments = field.arguments.as_ref();
        let arguments = arguments.map(|all| all.into_iter().map(argument).collect::<Vec<_>>().into());
        out.push(SelectionItem::Field(FieldSelection {
            alias: (name != key).then(|| key.to_owned()),
            name,
            arguments,
            selections: selections.unwrap_or_else(|| field.selections.clone()),
            ..field.clone()
        }));
    }

    /// Translates the value of an argument.
    fn translate_value(&self, bindings: &SubgraphBindings, value: &Value, ty: &ClientTypeRef) -> Value {
        let binding = bindings.types.get(&**self.types.name(ty.named_type()));
        match value {
            Value::List(items) => {
                let inner = match ty.nullable() {
                    ClientTypeRef::List(inner) => inner,
                    other => other,
                };
                Value::List(items.iter().map(|item| self.translate_value(bindings, item, inner)).collect())
            }
            Value::Enum(name) => {
                let own = binding.and_then(|binding| binding.values.get(name.as_str()));
                Value::Enum(own.map_or_else(|| name.clone(), ToString::to_string))
            }
            Value::Object(members) => {
                let member = |(name, value): (&String, &Value)| {
                    let own = binding.and_then(|binding| binding.fields.get(name.as_str()));
                    let field = match self.types.kind_of(ty.named_type()) {
                        ClientTypeKind::Input { fields, .. } => {
                            fields.iter().find(|field| *field.name == **name)
                        }
                        _ => None,
                    };
                    let value = match field {
                        Some(field) => self.translate_value(bindings, value, &field.ty),
                        None => value.clone(),
                    };
                    (own.map_or_else(|| name.clone(), ToString::to_string), value)
                };
                Value::Object(members.iter().map(member).collect())
            }
            other => other.clone(),
        }
    }
}

/// A variable's declaration with the service's name of its type.
pub(super) fn translate_declaration(
    bindings: &SubgraphBindings,
    variable: &VariableDefinition,
) -> VariableDefinition {
    fn translate_type(bindings: &SubgraphBindings, ty: &TypeNode) -> TypeNode {
        match ty {
            TypeNode::Named(name) => TypeNode::Named(service_type_name(bindings, name)),
            TypeNode::List(inner) => TypeNode::List(Box::new(translate_type(bindings, inner))),
            TypeNode::NonNull(inner) => TypeNode::NonNull(Box::new(translate_type(bindings, inner))),
        }
    }
    VariableDefinition {
        variable_type: translate_type(bindings, &variable.variable_type),
        ..variable.clone()
    }
}

fn service_type_name(bindings: &SubgraphBindings, name: &str) -> String {
    let own = bindings.types.get(name).and_then(|binding| binding.name.as_deref());
    own.unwrap_or(name).to_owned()
}
