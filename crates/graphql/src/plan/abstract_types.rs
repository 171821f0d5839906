//! Preparation of selections on interfaces and unions for the planner library.
//!
//! The library keeps a fragment with a directive, if the fragment has the type of the union that contains it,
//! and then finds no path to the fragment, since a union has no fields. It expands the same fragment without
//! a type condition to one fragment for each possible object type.
//!
//! If an object may be of a hidden type, `__typename` is always selected, since such an object becomes
//! `null`.

use std::collections::HashMap;

use graphql_tools::static_graphql::query::{
    Definition, Directive, Document, Field, InlineFragment, OperationDefinition, Selection, SelectionSet,
};

use super::types::{ClientTypes, TypeId};

struct AbstractTypeWalk<'t> {
    types: &'t ClientTypes,
    /// The types of the document's fragments.
    fragments: HashMap<String, Option<TypeId>>,
}

/// Removes the type condition of each fragment that has a directive and the type of the union that contains
/// it, and adds `__typename` where objects may be of hidden types.
pub(super) fn prepare_document(document: &mut Document, root: TypeId, types: &ClientTypes) {
    let mut walk = AbstractTypeWalk { types, fragments: HashMap::new() };
    for definition in &document.definitions {
        let Definition::Fragment(fragment) = definition else { continue };
        walk.fragments.insert(fragment.name.clone(), types.find(fragment.type_condition.as_ref()));
    }
    for definition in &mut document.definitions {
        let (selections, ty) = match definition {
            Definition::Fragment(fragment) => {
                let ty = types.find(fragment.type_condition.as_ref());
                (&mut fragment.selection_set, ty)
            }
            Definition::Operation(OperationDefinition::Query(query)) => {
                (&mut query.selection_set, Some(root))
            }
            Definition::Operation(OperationDefinition::Mutation(mutation)) => {
                (&mut mutation.selection_set, Some(root))
            }
            Definition::Operation(OperationDefinition::SelectionSet(selections)) => (selections, Some(root)),
            Definition::Operation(OperationDefinition::Subscription(_)) => continue,
        };
        walk.prepare_selections(selections, ty);
    }
}

impl AbstractTypeWalk<'_> {
    /// Prepares the selections of a type.
    fn prepare_selections(&self, set: &mut SelectionSet, of: Option<TypeId>) {
        let span = set.span;
        for item in &mut set.items {
            let replaced = match item {
                Selection::Field(field) => {
                    let client_field = of.and_then(|ty| self.types.field(ty, &field.name));
                    let ty = client_field.map(|field| field.ty.named_type());
                    self.prepare_selections(&mut field.selection_set, ty);
                    if ty.is_some_and(|ty| !self.types.hidden_objects(ty).is_empty()) {
                        add_typename(field);
                    }
                    None
                }
                Selection::InlineFragment(fragment) => {
                    let condition = fragment.type_condition.as_ref();
                    let ty = condition.map_or(of, |name| self.types.find(name.as_ref()));
                    if self.is_redundant_condition(ty, of, &fragment.directives) {
                        fragment.type_condition = None;
                    }
                    self.prepare_selections(&mut fragment.selection_set, ty);
                    None
                }
                Selection::FragmentSpread(spread) => {
                    let ty = self.fragments.get(&spread.fragment_name).copied().flatten();
                    self.is_redundant_condition(ty, of, &spread.directives).then(|| {
                        let directives = std::mem::take(&mut spread.directives);
                        let items = vec![Selection::FragmentSpread(spread.clone())];
                        Selection::InlineFragment(InlineFragment {
                            position: spread.position,
                            type_condition: None,
                            directives,
                            selection_set: SelectionSet { span, items },
                        })
                    })
                }
            };
            if let Some(replaced) = replaced {
                *item = replaced;
            }
        }
    }

    fn is_redundant_condition(
        &self,
        ty: Option<TypeId>,
        of: Option<TypeId>,
        directives: &[Directive],
    ) -> bool {
        !directives.is_empty() && ty == of && ty.is_some_and(|ty| self.types.is_union(ty))
    }
}

/// Selects `__typename` of a field's objects, unless it is already selected.
fn add_typename(field: &mut Field) {
    let (position, span) = (field.position, field.selection_set.span);
    let items = &mut field.selection_set.items;
    let is_typename =
        |item: &Selection| matches!(item, Selection::Field(field) if field.name == "__typename");
    if !items.iter().any(is_typename) {
        items.push(Selection::Field(Field {
            position,
            alias: None,
            name: "__typename".to_owned(),
            arguments: Vec::new(),
            directives: Vec::new(),
            selection_set: SelectionSet { span, items: Vec::new() },
        }));
    }
}
