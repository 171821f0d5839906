//! The requested operation of a document, and the document that the planner gets for it.

use graphql_tools::static_graphql::query::{
    Definition, Document, InlineFragment, OperationDefinition, Selection, SelectionSet, VariableDefinition,
};

use super::limits::fragments::{FragmentIndex, operation_selections};
use super::shorten_text;
use crate::error::{GraphqlError, GraphqlErrorKind};
use crate::subgraph::OperationKind;

/// An operation of a document.
pub(super) struct DocumentOperation<'d> {
    pub(super) kind: OperationKind,
    pub(super) variables: &'d [VariableDefinition],
    pub(super) selections: &'d SelectionSet,
    definition: &'d OperationDefinition,
}

impl<'d> DocumentOperation<'d> {
    /// Selects the operation with this name, or the only operation.
    pub(super) fn from_document(
        document: &'d Document,
        name: Option<&str>,
    ) -> Result<Self, Box<GraphqlError>> {
        let mut found: Option<&OperationDefinition> = None;
        for definition in &document.definitions {
            let Definition::Operation(operation) = definition else { continue };
            let own = match operation {
                OperationDefinition::Query(query) => query.name.as_deref(),
                OperationDefinition::Mutation(mutation) => mutation.name.as_deref(),
                OperationDefinition::Subscription(subscription) => subscription.name.as_deref(),
                OperationDefinition::SelectionSet(_) => None,
            };
            match (name, found) {
                (Some(name), _) if own != Some(name) => {}
                (None, Some(_)) => {
                    let message = "the document has several operations: select one by `operationName`";
                    return Err(Box::new(GraphqlError::new(GraphqlErrorKind::Operation, message)));
                }
                _ => found = Some(operation),
            }
        }
        let missing = || match name {
            Some(name) => format!("the document has no operation `{}`", shorten_text(name)),
            None => "the document has no operation".to_owned(),
        };
        let definition = found.ok_or_else(|| GraphqlError::new(GraphqlErrorKind::Operation, missing()))?;
        let (kind, variables) = match definition {
            OperationDefinition::SelectionSet(_) => (OperationKind::Query, &[][..]),
            OperationDefinition::Query(query) => (OperationKind::Query, &*query.variable_definitions),
            OperationDefinition::Mutation(mutation) => {
                (OperationKind::Mutation, &*mutation.variable_definitions)
            }
            OperationDefinition::Subscription(_) => {
                let message = "subscriptions are not supported";
                return Err(Box::new(GraphqlError::new(GraphqlErrorKind::Operation, message)));
            }
        };
        Ok(Self { kind, variables, selections: operation_selections(definition), definition })
    }

    /// A document with only this operation and the fragments that it reaches, without introspection; `None`
    /// if nothing remains.
    pub(super) fn planner_document(&self, fragments: &FragmentIndex<'d>) -> Option<Document> {
        let left = without_introspection(self.selections, fragments);
        if left.items.is_empty() {
            return None;
        }
        let reached = fragments.reachable_fragments(&left);
        let reached: Vec<Definition> = reached.into_iter().cloned().map(Definition::Fragment).collect();
        let mut definition = self.definition.clone();
        let selections = match &mut definition {
            OperationDefinition::SelectionSet(selections) => selections,
            OperationDefinition::Query(query) => &mut query.selection_set,
            OperationDefinition::Mutation(mutation) => &mut mutation.selection_set,
            OperationDefinition::Subscription(subscription) => &mut subscription.selection_set,
        };
        *selections = left;
        let mut definitions = vec![Definition::Operation(definition)];
        definitions.extend(reached);
        Some(Document { definitions })
    }
}

/// A selection of a root type without `__schema`, `__type` and `__typename`, with its fragments inlined.
fn without_introspection(selections: &SelectionSet, fragments: &FragmentIndex<'_>) -> SelectionSet {
    let mut items = Vec::new();
    for item in &selections.items {
        match item {
            Selection::Field(field) if field.name.starts_with("__") => {}
            Selection::Field(_) => items.push(item.clone()),
            Selection::InlineFragment(fragment) => {
                let mut fragment = fragment.clone();
                fragment.selection_set = without_introspection(&fragment.selection_set, fragments);
                if !fragment.selection_set.items.is_empty() {
                    items.push(Selection::InlineFragment(fragment));
                }
            }
            Selection::FragmentSpread(spread) => {
                let Some(fragment) = fragments.get(&spread.fragment_name) else { continue };
                let selection_set = without_introspection(&fragment.selection_set, fragments);
                if !selection_set.items.is_empty() {
                    items.push(Selection::InlineFragment(InlineFragment {
                        position: spread.position,
                        type_condition: Some(fragment.type_condition.clone()),
                        directives: spread.directives.clone(),
                        selection_set,
                    }));
                }
            }
        }
    }
    SelectionSet { span: selections.span, items }
}
