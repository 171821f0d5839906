//! Limits on a document: what it asks for is counted, fragments resolved, before anything walks what it expands to.
//!
//! The text is judged first (`text.rs`), then the fragments (`fragments.rs`), then every operation and every fragment, used
//! or not (`figures.rs`), each fragment counted once: all in time linear in the document's size. Of two further limits the
//! work is bounded by those: how often a field is selected at one place (here), and whether fields of one name are the
//! same (`overlap.rs`).

mod figures;
pub(crate) mod fragments;
pub(crate) mod overlap;
pub(crate) mod text;

use std::collections::HashMap;

use graphql_tools::static_graphql::query::{
    Definition, Document, OperationDefinition, Selection, SelectionSet,
};

use super::types::{TypeId, Types};
use crate::error::{Code, GraphqlError};
use crate::{GraphqlLimits, OperationKind};
use figures::{FigureBook, Figures};
use fragments::{FragmentIndex, selections};

/// How often a field of one name may be selected at one place of the answer.
const SAME: usize = 300;
/// How many of [`figures::LISTS`] may stand within each other in introspection. A schema of hundreds of types has thousands
/// of fields, and each list multiplies by them; tools take one.
const WITHIN: u32 = 2;
/// How deep selections may stand within each other, fragments resolved: whatever walks them goes down as deep.
const NESTING: u32 = 200;

/// Judges every operation and every fragment of a document; returns how many selections its largest operation has.
pub(crate) fn check<'d>(
    document: &'d Document,
    fragments: &FragmentIndex<'d>,
    types: &Types,
    limits: &GraphqlLimits,
) -> Result<u64, Box<GraphqlError>> {
    let mut most = 0;
    let book = FigureBook::new(fragments, types);
    for fragment in fragments.ordered() {
        judge(&book.fragment(&fragment.name), "fragment", limits)?;
    }
    for definition in &document.definitions {
        let Definition::Operation(operation) = definition else { continue };
        let set = selections(operation);
        let figures = book.count(set, root(operation, types));
        judge(&figures, "operation", limits)?;
        if figures.fields > u64::from(limits.root_fields) {
            return Err(over("operation", "a number of root fields", figures.fields, limits.root_fields));
        }
        repeated(&[set], fragments)?;
        most = most.max(figures.selections);
    }
    Ok(most)
}

/// The type that an operation's fields are of; none where the schema has no such operations.
pub(crate) fn root(operation: &OperationDefinition, types: &Types) -> Option<TypeId> {
    match operation {
        OperationDefinition::Query(_) | OperationDefinition::SelectionSet(_) => {
            Some(types.root(OperationKind::Query))
        }
        OperationDefinition::Mutation(_) => types.mutation,
        OperationDefinition::Subscription(_) => None,
    }
}

fn judge(figures: &Figures, part: &str, limits: &GraphqlLimits) -> Result<(), Box<GraphqlError>> {
    let told = [
        ("a nesting", figures.nesting, NESTING),
        ("a depth", figures.depth, limits.depth),
        ("a number of aliases", figures.aliases, limits.aliases),
        ("a number of selections", figures.selections, limits.selections),
        ("a cost", figures.cost, limits.cost),
        ("a number of lists within each other in `__schema` or `__type`", figures.lists, WITHIN),
    ];
    match told.into_iter().find(|(_, count, most)| *count > u64::from(*most)) {
        Some((what, count, most)) => Err(over(part, what, count, most)),
        None => Ok(()),
    }
}

fn over(part: &str, what: &str, count: u64, most: u32) -> Box<GraphqlError> {
    let count = if count == u64::MAX { "too many to count".to_owned() } else { count.to_string() };
    let message = format!("the {part} has {what} of {count}; at most {most} is allowed here");
    Box::new(GraphqlError::new(Code::Limit, message))
}

/// Judges how often fields are selected at one place, below these selections of one object. Walks what the operation
/// expands to, whose size was judged.
fn repeated(selections: &[&SelectionSet], fragments: &FragmentIndex<'_>) -> Result<(), Box<GraphqlError>> {
    let mut fields: HashMap<&str, Vec<&SelectionSet>> = HashMap::new();
    let mut open = selections.to_vec();
    while let Some(set) = open.pop() {
        for item in &set.items {
            match item {
                Selection::Field(field) => {
                    let key = field.alias.as_deref().unwrap_or(&field.name);
                    let known = fields.entry(key).or_default();
                    known.push(&field.selection_set);
                    if known.len() > SAME {
                        let message =
                            format!("the operation selects `{key}` more than {SAME} times at one place");
                        let place = (field.position.line as u32, field.position.column as u32);
                        return Err(Box::new(GraphqlError::new(Code::Limit, message).at(place)));
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
    composite.into_iter().try_for_each(|below| repeated(below, fragments))
}

#[cfg(test)]
mod tests;
