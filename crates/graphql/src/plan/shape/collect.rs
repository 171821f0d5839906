//! Field collection (6.3.2 of the specification): the fields of a selection and of its fragments, each with
//! its conditions.

use std::sync::Arc;

use graphql_tools::static_graphql::query::{
    Directive, Field as AstField, InlineFragment, Selection, SelectionSet, Value,
};

use super::{InclusionConditions, ShapeBuilder};
use crate::plan::types::TypeId;

/// The occurrences of a field in a selection.
pub(super) struct CollectedField<'d> {
    pub(super) key: &'d str,
    pub(super) fields: Vec<(&'d AstField, InclusionConditions)>,
    /// The places of the occurrences in the selection.
    pub(super) places: Vec<usize>,
}

impl<'d> ShapeBuilder<'d> {
    pub(super) fn collect_fields(
        &self,
        set: &'d SelectionSet,
        object: TypeId,
        when: &InclusionConditions,
        visited: &mut Vec<(&'d str, InclusionConditions)>,
        out: &mut Vec<CollectedField<'d>>,
    ) {
        let is_meant = |condition: Option<&str>| {
            condition.is_none_or(|name| {
                self.types.find(name).is_some_and(|id| id == object || self.types.includes_object(id, object))
            })
        };
        for item in &set.items {
            match item {
                Selection::Field(field) => {
                    let Some(when) = merge_conditions(when, &field.directives) else { continue };
                    let key = field.alias.as_ref().unwrap_or(&field.name).as_str();
                    let place = out.iter().map(|collected_field| collected_field.fields.len()).sum();
                    match out.iter_mut().find(|known| known.key == key) {
                        Some(known) => {
                            known.fields.push((field, when));
                            known.places.push(place);
                        }
                        None => {
                            out.push(CollectedField { key, fields: vec![(field, when)], places: vec![place] })
                        }
                    }
                }
                Selection::InlineFragment(fragment) => {
                    let condition = fragment.type_condition.as_ref().map(|name| name.as_ref().as_str());
                    let Some(when) = merge_conditions(when, &fragment.directives) else { continue };
                    if is_meant(condition) {
                        self.collect_fields(&fragment.selection_set, object, &when, visited, out);
                    }
                }
                Selection::FragmentSpread(spread) => {
                    let Some(when) = merge_conditions(when, &spread.directives) else { continue };
                    let Some(fragment) = self.fragments.get(spread.fragment_name.as_str()) else { continue };
                    let visit = (spread.fragment_name.as_str(), when);
                    if visited.contains(&visit) || !is_meant(Some(fragment.type_condition.as_ref().as_str()))
                    {
                        continue;
                    }
                    let when = visit.1.clone();
                    visited.push(visit);
                    self.collect_fields(&fragment.selection_set, object, &when, visited, out);
                }
            }
        }
    }

    /// Merges the occurrences of a field into one, with its fragments inlined.
    pub(super) fn merge_occurrences(&self, fields: &[(&'d AstField, InclusionConditions)]) -> AstField {
        let mut whole: Option<AstField> = None;
        for (field, _) in fields {
            let selection_set = self.inline_fragments(&field.selection_set);
            match &mut whole {
                Some(whole) => whole.selection_set.items.extend(selection_set.items),
                None => whole = Some(AstField { selection_set, ..(*field).clone() }),
            }
        }
        whole.unwrap_or_else(|| unreachable!("a field that was collected occurs"))
    }

    fn inline_fragments(&self, set: &SelectionSet) -> SelectionSet {
        let items = set.items.iter().filter_map(|item| {
            Some(match item {
                Selection::Field(field) => {
                    let selection_set = self.inline_fragments(&field.selection_set);
                    Selection::Field(AstField { selection_set, ..field.clone() })
                }
                Selection::InlineFragment(fragment) => {
                    let selection_set = self.inline_fragments(&fragment.selection_set);
                    Selection::InlineFragment(InlineFragment { selection_set, ..fragment.clone() })
                }
                Selection::FragmentSpread(spread) => {
                    let fragment = self.fragments.get(spread.fragment_name.as_str())?;
                    Selection::InlineFragment(InlineFragment {
                        position: spread.position,
                        type_condition: Some(fragment.type_condition.clone()),
                        directives: spread.directives.clone(),
                        selection_set: self.inline_fragments(&fragment.selection_set),
                    })
                }
            })
        });
        SelectionSet { span: set.span, items: items.collect() }
    }
}

/// The conditions with those of additional directives; `None` if they can't be met.
fn merge_conditions(when: &InclusionConditions, directives: &[Directive]) -> Option<InclusionConditions> {
    if directives.is_empty() {
        return Some(Arc::clone(when));
    }
    let mut all: Vec<(Arc<str>, bool)> = when.to_vec();
    for directive in directives {
        let wanted = match directive.name.as_str() {
            "skip" => false,
            "include" => true,
            _ => continue,
        };
        match directive.arguments.iter().find(|(name, _)| name == "if").map(|(_, value)| value) {
            Some(Value::Boolean(value)) if *value == wanted => {}
            Some(Value::Boolean(_)) => return None,
            Some(Value::Variable(name)) => all.push((name.as_str().into(), wanted)),
            _ => {}
        }
    }
    all.sort();
    all.dedup();
    Some(all.into())
}
