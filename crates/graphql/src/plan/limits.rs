//! Limits on a document: its size with fragments resolved is computed before anything processes the
//! expansion.
//!
//! The text is checked first (`document_text.rs`), then the fragments (`fragments.rs`), then every operation
//! and every fragment, even unused ones (`selection_sizes.rs`). Each fragment is counted once, so the time is
//! linear in the document's size. These limits bound the work of two further checks, which traverse the
//! expansion: how often a field is selected at one place (here), and whether fields with the same response
//! key can be merged (`overlap.rs`).

pub(crate) mod document_text;
pub(crate) mod fragments;
pub(crate) mod overlap;
mod selection_sizes;

use std::collections::HashMap;

use graphql_tools::static_graphql::query::{
    Definition, Document, OperationDefinition, Selection, SelectionSet,
};

use super::types::{ClientTypes, TypeId};
use crate::config::GraphqlLimits;
use crate::error::{GraphqlError, GraphqlErrorKind};
use crate::subgraph::OperationKind;
use fragments::{FragmentIndex, operation_selections};
use selection_sizes::{FigureBook, SelectionSizes};

/// The maximum number of selections with the same response key at one place.
const MAX_SAME_KEY: usize = 300;
/// The maximum nesting of [`selection_sizes::INTROSPECTION_LISTS`] in introspection. Each list multiplies the
/// size of the result by the thousands of fields of a large schema; common tools nest one list.
const MAX_LIST_NESTING: u32 = 2;
/// The maximum nesting of selections, with fragments resolved. It bounds the recursion over selections.
const MAX_NESTING: u32 = 200;

/// The number of selections in the operations of a document, with fragments resolved.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SelectionCounts {
    /// The number in the largest operation.
    pub(crate) largest: u64,
    /// The number in all operations together.
    pub(crate) total: u64,
}

/// Checks the figures of every operation and every fragment of a document, in time linear in its size.
pub(crate) fn check_sizes<'d>(
    document: &'d Document,
    fragments: &FragmentIndex<'d>,
    types: &ClientTypes,
    limits: &GraphqlLimits,
) -> Result<SelectionCounts, Box<GraphqlError>> {
    let mut counts = SelectionCounts::default();
    let book = FigureBook::new(fragments, types);
    for fragment in fragments.dependency_order() {
        check_limits(&book.fragment_sizes(&fragment.name), "fragment", limits)?;
    }
    for definition in &document.definitions {
        let Definition::Operation(operation) = definition else { continue };
        let figures = book.measure_selections(operation_selections(operation), root_type(operation, types));
        check_limits(&figures, "operation", limits)?;
        if figures.fields > u64::from(limits.root_fields) {
            return Err(limit_error(
                "operation",
                "a number of root fields",
                figures.fields,
                limits.root_fields,
            ));
        }
        counts.largest = counts.largest.max(figures.selections);
        counts.total = counts.total.saturating_add(figures.selections);
    }
    Ok(counts)
}

/// Checks how often a response key is selected at one place of an operation. Traverses the expansion of each
/// operation, whose size has been checked.
pub(crate) fn check_repetition(
    document: &Document,
    fragments: &FragmentIndex<'_>,
) -> Result<(), Box<GraphqlError>> {
    document.definitions.iter().try_for_each(|definition| match definition {
        Definition::Operation(operation) => {
            check_repeated_keys(&[operation_selections(operation)], fragments)
        }
        Definition::Fragment(_) => Ok(()),
    })
}

/// The root type of an operation; `None` if the schema does not support this kind of operation.
pub(crate) fn root_type(operation: &OperationDefinition, types: &ClientTypes) -> Option<TypeId> {
    match operation {
        OperationDefinition::Query(_) | OperationDefinition::SelectionSet(_) => {
            Some(types.root_type(OperationKind::Query))
        }
        OperationDefinition::Mutation(_) => types.mutation,
        OperationDefinition::Subscription(_) => None,
    }
}

fn check_limits(
    figures: &SelectionSizes,
    part: &str,
    limits: &GraphqlLimits,
) -> Result<(), Box<GraphqlError>> {
    let told = [
        ("a nesting", figures.nesting, MAX_NESTING),
        ("a depth", figures.depth, limits.depth),
        ("a number of aliases", figures.aliases, limits.aliases),
        ("a number of selections", figures.selections, limits.selections),
        ("a cost", figures.cost, limits.cost),
        ("a nesting of lists in `__schema` or `__type`", figures.lists, MAX_LIST_NESTING),
    ];
    match told.into_iter().find(|(_, count, most)| *count > u64::from(*most)) {
        Some((what, count, most)) => Err(limit_error(part, what, count, most)),
        None => Ok(()),
    }
}

fn limit_error(part: &str, what: &str, count: u64, most: u32) -> Box<GraphqlError> {
    let count = if count == u64::MAX { "too many to count".to_owned() } else { count.to_string() };
    let message = format!("the {part} has {what} of {count}; at most {most} is allowed here");
    Box::new(GraphqlError::new(GraphqlErrorKind::Limit, message))
}

/// Checks how often a response key is selected at one place, below these selections of one object.
fn check_repeated_keys(
    selections: &[&SelectionSet],
    fragments: &FragmentIndex<'_>,
) -> Result<(), Box<GraphqlError>> {
    let mut fields: HashMap<&str, Vec<&SelectionSet>> = HashMap::new();
    let mut open = selections.to_vec();
    while let Some(set) = open.pop() {
        for item in &set.items {
            match item {
                Selection::Field(field) => {
                    let key = field.alias.as_deref().unwrap_or(&field.name);
                    let known = fields.entry(key).or_default();
                    known.push(&field.selection_set);
                    if known.len() > MAX_SAME_KEY {
                        let message = format!(
                            "the operation selects `{key}` more than {MAX_SAME_KEY} times at one place"
                        );
                        let place = (field.position.line as u32, field.position.column as u32);
                        return Err(Box::new(
                            GraphqlError::new(GraphqlErrorKind::Limit, message).with_location(place),
                        ));
                    }
                }
                Selection::InlineFragment(fragment) => open.push(&fragment.selection_set),
                Selection::FragmentSpread(spread) => {
                    let fragment = fragments.get(&spread.fragment_name);
                    open.extend(fragment.map(|fragment| &fragment.selection_set));
                }
            }
        }
    }
    let composite = fields.values().filter(|sets| sets.iter().any(|set| !set.items.is_empty()));
    composite.into_iter().try_for_each(|below| check_repeated_keys(below, fragments))
}

#[cfg(test)]
mod tests;
