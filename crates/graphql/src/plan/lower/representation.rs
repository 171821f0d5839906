//! The representations of objects in a fetch of entities, according to the planner's `requires` and rewrites.

use std::sync::Arc;

use hive_router_query_planner::ast::fragment::FragmentDefinition;
use hive_router_query_planner::ast::selection_item::SelectionItem;
use hive_router_query_planner::ast::selection_set::SelectionSet;
use hive_router_query_planner::planner::plan_nodes::{FetchNodePathSegment, FetchRewrite};

use super::PlanLowering;
use super::select::inline_fragments;
use crate::plan::data::{
    EntityRepresentation, RepresentationField, RepresentationValue, TypeFilter, intersect_types,
};
use crate::plan::values::quote_json;

impl PlanLowering<'_> {
    pub(super) fn lower_representation(
        &self,
        requires: &SelectionSet,
        rewrites: &[FetchRewrite],
        fragments: &[FragmentDefinition],
    ) -> EntityRepresentation {
        let mut fields = Vec::new();
        self.add_representation_fields(&inline_fragments(requires, fragments), &None, &mut fields);
        for rewrite in rewrites {
            match rewrite {
                FetchRewrite::ValueSetter(setter) => {
                    let value = || RepresentationValue::Constant(quote_json(&setter.set_value_to));
                    self.apply_rewrite(&mut fields, &setter.path, &None, &mut |field| field.value = value());
                }
                FetchRewrite::KeyRenamer(renamer) => {
                    let name = renamer.rename_key_to.as_str();
                    self.apply_rewrite(&mut fields, &renamer.path, &None, &mut |representation_field| {
                        representation_field.name = name.into()
                    });
                }
            }
        }
        EntityRepresentation(fields)
    }

    fn add_representation_fields(
        &self,
        requires: &SelectionSet,
        only: &TypeFilter,
        out: &mut Vec<RepresentationField>,
    ) {
        for item in &requires.items {
            match item {
                SelectionItem::Field(field) => {
                    let value = match field.name.as_str() {
                        "__typename" => RepresentationValue::Typename,
                        _ if field.selections.items.is_empty() => RepresentationValue::Leaf,
                        _ => {
                            let mut below = Vec::new();
                            self.add_representation_fields(&field.selections, &None, &mut below);
                            RepresentationValue::Object(EntityRepresentation(below))
                        }
                    };
                    let (name, key) = (field.selection_identifier().into(), field.name.as_str().into());
                    out.push(RepresentationField { type_filter: only.clone(), name, key, value });
                }
                SelectionItem::InlineFragment(fragment) => {
                    let only = intersect_types(
                        only,
                        &self.type_filter_for([fragment.type_condition.as_str()].into_iter()),
                    );
                    self.add_representation_fields(&fragment.selections, &only, out);
                }
                SelectionItem::FragmentSpread(_) => {}
            }
        }
    }

    fn apply_rewrite(
        &self,
        fields: &mut [RepresentationField],
        path: &[FetchNodePathSegment],
        only: &TypeFilter,
        change: &mut dyn FnMut(&mut RepresentationField),
    ) {
        match path {
            [] => {}
            [FetchNodePathSegment::TypenameEquals(names), rest @ ..] => {
                let only = intersect_types(only, &self.type_filter_for(names.iter().map(String::as_str)));
                self.apply_rewrite(fields, rest, &only, change);
            }
            [FetchNodePathSegment::Key(key), rest @ ..] => {
                let meant = |known: &TypeFilter| match (known, only) {
                    (Some(known), Some(only)) => known.iter().any(|ty| only.contains(ty)),
                    _ => true,
                };
                for field in fields.iter_mut().filter(|representation_field| {
                    *representation_field.name == **key && meant(&representation_field.type_filter)
                }) {
                    match (rest, &mut field.value) {
                        ([], _) => change(field),
                        (_, RepresentationValue::Object(below)) => {
                            self.apply_rewrite(&mut below.0, rest, &None, change)
                        }
                        _ => {}
                    }
                }
            }
        }
    }
}

/// The key in the response under which a required field is found, for objects of this type, if the planner
/// fetches it.
pub(super) fn required_key(requires: &SelectionSet, parent: &str, need: &str) -> Option<Arc<str>> {
    requires.items.iter().find_map(|item| match item {
        SelectionItem::Field(field) => {
            (field.selection_identifier() == need).then(|| field.name.as_str().into())
        }
        SelectionItem::InlineFragment(fragment) if fragment.type_condition == parent => {
            required_key(&fragment.selections, parent, need)
        }
        _ => None,
    })
}
