//! An index of a document's fragments, in dependency order.
//!
//! Unknown fragments, duplicate fragment names and cycles are rejected here, in time linear in the document's
//! size and without recursion over spreads. All later code relies on this.

use std::collections::HashMap;

use graphql_tools::parser::Pos;
use graphql_tools::static_graphql::query::{
    Definition, Document, FragmentDefinition, OperationDefinition, Selection, SelectionSet,
};

use crate::error::{GraphqlError, GraphqlErrorKind};

/// The maximum number of operations in a document, since validation rules visit the fragments once for each
/// operation.
const MAX_OPERATIONS: usize = 100;

/// The fragments of a document.
pub(crate) struct FragmentIndex<'d> {
    by_name: HashMap<&'d str, &'d FragmentDefinition>,
    /// The fragments, each after those that it spreads.
    dependency_order: Vec<&'d FragmentDefinition>,
}

/// A spread of a fragment.
struct SpreadSite<'d> {
    name: &'d str,
    position: Pos,
}

/// The state of a fragment during the depth-first search.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SearchState {
    Open,
    Done,
}

impl<'d> FragmentIndex<'d> {
    /// Indexes the fragments of a document.
    pub(crate) fn new(document: &'d Document) -> Result<Self, Box<GraphqlError>> {
        let mut by_name = HashMap::new();
        let mut operations = 0;
        for definition in &document.definitions {
            match definition {
                Definition::Operation(_) => operations += 1,
                Definition::Fragment(fragment) => {
                    if by_name.insert(fragment.name.as_str(), fragment).is_some() {
                        let message = format!("There can be only one fragment named \"{}\".", fragment.name);
                        return Err(invalid_error(message, fragment.position));
                    }
                }
            }
        }
        if operations > MAX_OPERATIONS {
            let message =
                format!("the document has {operations} operations; at most {MAX_OPERATIONS} are allowed");
            return Err(Box::new(GraphqlError::new(GraphqlErrorKind::Limit, message)));
        }
        let mut index = Self { by_name, dependency_order: Vec::new() };
        for definition in &document.definitions {
            if let Definition::Operation(operation) = definition {
                index.check_spreads_exist(&collect_spreads(operation_selections(operation)))?;
            }
        }
        index.sort_fragments(document)?;
        Ok(index)
    }

    /// The fragment with this name.
    pub(crate) fn get(&self, name: &str) -> Option<&'d FragmentDefinition> {
        self.by_name.get(name).copied()
    }

    /// All fragments, each after those that it spreads.
    pub(crate) fn dependency_order(&self) -> &[&'d FragmentDefinition] {
        &self.dependency_order
    }

    /// The fragments that a selection reaches, in the order of [`Self::dependency_order`].
    pub(crate) fn reachable_fragments(&self, selections: &'d SelectionSet) -> Vec<&'d FragmentDefinition> {
        let mut reached: HashMap<&str, ()> = HashMap::new();
        let mut open = vec![selections];
        while let Some(set) = open.pop() {
            for spread in collect_spreads(set) {
                if reached.insert(spread.name, ()).is_none()
                    && let Some(fragment) = self.get(spread.name)
                {
                    open.push(&fragment.selection_set);
                }
            }
        }
        let is_reached = |fragment: &&&FragmentDefinition| reached.contains_key(fragment.name.as_str());
        self.dependency_order.iter().filter(is_reached).copied().collect()
    }

    fn check_spreads_exist(&self, spreads: &[SpreadSite<'d>]) -> Result<(), Box<GraphqlError>> {
        match spreads.iter().find(|spread| !self.by_name.contains_key(spread.name)) {
            Some(spread) => {
                Err(invalid_error(format!("Unknown fragment \"{}\".", spread.name), spread.position))
            }
            None => Ok(()),
        }
    }

    /// Orders the fragments, depth first.
    fn sort_fragments(&mut self, document: &'d Document) -> Result<(), Box<GraphqlError>> {
        let mut progress: HashMap<&str, SearchState> = HashMap::new();
        let mut open: Vec<(&'d FragmentDefinition, std::vec::IntoIter<SpreadSite<'d>>)> = Vec::new();
        for definition in &document.definitions {
            let Definition::Fragment(root) = definition else { continue };
            if progress.contains_key(root.name.as_str()) {
                continue;
            }
            self.enter_fragment(root, &mut progress, &mut open)?;
            while let Some((fragment, spreads)) = open.last_mut() {
                let Some(spread) = spreads.next() else {
                    progress.insert(&fragment.name, SearchState::Done);
                    self.dependency_order.push(fragment);
                    open.pop();
                    continue;
                };
                match progress.get(spread.name) {
                    Some(SearchState::Done) => {}
                    Some(SearchState::Open) => {
                        let message = format!("the fragment `{}` contains itself", spread.name);
                        return Err(invalid_error(message, spread.position));
                    }
                    None => {
                        let Some(below) = self.get(spread.name) else { continue };
                        self.enter_fragment(below, &mut progress, &mut open)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn enter_fragment(
        &self,
        fragment: &'d FragmentDefinition,
        progress: &mut HashMap<&'d str, SearchState>,
        open: &mut Vec<(&'d FragmentDefinition, std::vec::IntoIter<SpreadSite<'d>>)>,
    ) -> Result<(), Box<GraphqlError>> {
        let spreads = collect_spreads(&fragment.selection_set);
        self.check_spreads_exist(&spreads)?;
        progress.insert(&fragment.name, SearchState::Open);
        open.push((fragment, spreads.into_iter()));
        Ok(())
    }
}

/// The selection set of an operation.
pub(crate) fn operation_selections(operation: &OperationDefinition) -> &SelectionSet {
    match operation {
        OperationDefinition::SelectionSet(selections) => selections,
        OperationDefinition::Query(query) => &query.selection_set,
        OperationDefinition::Mutation(mutation) => &mutation.selection_set,
        OperationDefinition::Subscription(subscription) => &subscription.selection_set,
    }
}

/// The spreads within a selection set, excluding those within other fragments.
fn collect_spreads(set: &SelectionSet) -> Vec<SpreadSite<'_>> {
    let (mut spreads, mut open) = (Vec::new(), vec![set]);
    while let Some(set) = open.pop() {
        for item in &set.items {
            match item {
                Selection::Field(field) => open.push(&field.selection_set),
                Selection::InlineFragment(fragment) => open.push(&fragment.selection_set),
                Selection::FragmentSpread(spread) => {
                    spreads.push(SpreadSite { name: &spread.fragment_name, position: spread.position });
                }
            }
        }
    }
    spreads
}

fn invalid_error(message: String, position: Pos) -> Box<GraphqlError> {
    let place = (position.line as u32, position.column as u32);
    Box::new(GraphqlError::new(GraphqlErrorKind::Invalid, message).with_location(place))
}
