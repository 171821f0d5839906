//! Recording of a fetch's selection in the slot that receives its results.

use hive_router_query_planner::ast::document::Document;
use hive_router_query_planner::ast::fragment::FragmentDefinition;
use hive_router_query_planner::ast::operation::SubgraphFetchOperation;
use hive_router_query_planner::ast::selection_item::SelectionItem;
use hive_router_query_planner::ast::selection_set::{FieldSelection, InlineFragmentSelection, SelectionSet};
use hive_router_query_planner::planner::plan_nodes::{FetchNodePathSegment, FetchRewrite};
use std::collections::HashMap;
use std::sync::Arc;

use super::link::StepReads;
use super::translation::need_alias;
use super::{FetchTarget, LoweredFetch, LoweringResult, PlanLowering};
use crate::plan::data::{
    FieldLookup, PositionId, ResponsePosition, SlotField, SlotId, SlotOrigin, TypeFilter, TypeResolver,
    intersect_types,
};
use crate::plan::types::TypeId;
use crate::plan::values::enum_spelling;
use crate::subgraph::{EntityBinding, SubgraphBindings, TypeRule};

/// A place in the data where fields are added.
#[derive(Clone)]
pub(super) struct DataPosition<'p> {
    pub(super) position: PositionId,
    pub(super) slot: SlotId,
    /// The type that the selected fields belong to.
    pub(super) parent: &'p str,
    pub(super) type_filter: TypeFilter,
    /// Whether the request for the fields depends on variables.
    pub(super) is_conditional: bool,
}

impl PlanLowering<'_> {
    /// Records the selection of a slot's objects. `path` contains the keys from the beginning of the fetch.
    pub(super) fn record_selection(
        &mut self,
        fetch: LoweredFetch<'_>,
        position: &DataPosition<'_>,
        selections: &SelectionSet,
        path: &mut Vec<String>,
    ) -> LoweringResult {
        for item in &selections.items {
            match item {
                SelectionItem::Field(field) => self.record_field(fetch, position, field, path)?,
                SelectionItem::InlineFragment(fragment) => {
                    let is_conditional = fragment.skip_if.is_some() || fragment.include_if.is_some();
                    let data_position = &DataPosition {
                        is_conditional: position.is_conditional || is_conditional,
                        ..position.clone()
                    };
                    self.record_fragment(
                        fetch,
                        data_position,
                        &fragment.type_condition,
                        &fragment.selections,
                        path,
                    )?;
                }
                SelectionItem::FragmentSpread(name) => {
                    let fragment = fetch.fragments.iter().find(|fragment| fragment.name == *name);
                    let Some(fragment) = fragment else { continue };
                    self.record_fragment(
                        fetch,
                        position,
                        &fragment.type_condition,
                        &fragment.selection_set,
                        path,
                    )?;
                }
            }
        }
        Ok(())
    }

    fn record_fragment(
        &mut self,
        fetch: LoweredFetch<'_>,
        position: &DataPosition<'_>,
        parent: &str,
        selections: &SelectionSet,
        path: &mut Vec<String>,
    ) -> LoweringResult {
        let only = match parent == position.parent {
            true => position.type_filter.clone(),
            false => intersect_types(&position.type_filter, &self.type_filter_for([parent].into_iter())),
        };
        let data_position = DataPosition { parent, type_filter: only, ..position.clone() };
        self.record_selection(fetch, &data_position, selections, path)
    }

    fn record_field(
        &mut self,
        fetch: LoweredFetch<'_>,
        position: &DataPosition<'_>,
        field: &FieldSelection,
        path: &mut Vec<String>,
    ) -> LoweringResult {
        let said = field.selection_identifier();
        if field.name == "__typename" {
            if !fetch.is_rest() {
                let own = fetch
                    .bindings()
                    .types
                    .iter()
                    .filter_map(|(name, binding)| Some((binding.name.clone()?, self.types.find(name)?)));
                let own: HashMap<Box<str>, TypeId> = own.collect();
                let slot = &mut self.positions[position.position].slots[position.slot];
                slot.type_resolver.get_or_insert_with(|| match own.is_empty() {
                    true => TypeResolver::Typename(said.into()),
                    false => TypeResolver::Member(said.into(), own),
                });
            }
            return Ok(());
        }
        if let Some(link) =
            fetch.bindings().entities.get(position.parent).and_then(|e| e.links.get(field.name.as_str()))
        {
            return self.lower_own_link(fetch, position, field, link);
        }
        let is_conditional = field.skip_if.is_some() || field.include_if.is_some();
        let data_position =
            &DataPosition { is_conditional: position.is_conditional || is_conditional, ..position.clone() };
        path.push(said.to_owned());
        let key = renamed_key(fetch.output_rewrites, path).unwrap_or(said).to_owned();
        let is_renamed = said != key;
        if is_renamed {
            self.add_entries(fetch, data_position, field, said, false);
        }
        self.add_entries(fetch, data_position, field, &key, is_renamed);
        let done = self.record_subselection(fetch, data_position, field, &key, path);
        if said != key
            && let Some(child) = self.positions[data_position.position].children.get(key.as_str()).copied()
        {
            self.positions[data_position.position].children.insert(said.into(), child);
        }
        path.pop();
        done
    }

    fn add_entries(
        &mut self,
        fetch: LoweredFetch<'_>,
        position: &DataPosition<'_>,
        field: &FieldSelection,
        key: &str,
        is_renamed: bool,
    ) {
        if fetch.is_rest() {
            return self.add_member_entries(fetch, position, &field.name, key, is_renamed);
        }
        let slot_field = SlotField {
            field: field.name.as_str().into(),
            type_filter: position.type_filter.clone(),
            lookup: FieldLookup::Member(field.selection_identifier().into()),
            is_renamed,
            is_conditional: position.is_conditional,
            spelling: self.field_spelling(fetch, position.parent, &field.name),
        };
        self.positions[position.position].slots[position.slot].add_entry(key, slot_field);
    }

    /// Adds a field of a REST service's objects. Each possible type of an abstract type may have it in a
    /// different member.
    fn add_member_entries(
        &mut self,
        fetch: LoweredFetch<'_>,
        position: &DataPosition<'_>,
        name: &str,
        key: &str,
        is_renamed: bool,
    ) {
        let spelling = self.field_spelling(fetch, position.parent, name);
        let objects = self.types.find(position.parent).map(|id| self.types.objects(id)).unwrap_or_default();
        let member = |parent: &str| {
            let binding = fetch.bindings().types.get(parent);
            binding.and_then(|binding| binding.fields.get(name)).map_or(name, |member| member)
        };
        let slot = &mut self.positions[position.position].slots[position.slot];
        let (own, is_conditional) = (member(position.parent), position.is_conditional);
        for object in objects {
            let of_object = member(self.types.name(*object));
            if of_object != own {
                let only = intersect_types(&position.type_filter, &Some([*object].into()));
                let lookup = FieldLookup::Member(of_object.into());
                let (field, spelling) = (name.into(), spelling.clone());
                slot.add_entry(
                    key,
                    SlotField { field, type_filter: only, lookup, is_renamed, is_conditional, spelling },
                );
            }
        }
        let lookup = FieldLookup::Member(own.into());
        let (field, only) = (name.into(), position.type_filter.clone());
        slot.add_entry(
            key,
            SlotField { field, type_filter: only, lookup, is_renamed, is_conditional, spelling },
        );
    }

    /// Lowers a link to the same service. For the planner this is an ordinary field, but it needs a step of
    /// its own.
    fn lower_own_link(
        &mut self,
        fetch: LoweredFetch<'_>,
        data_position: &DataPosition<'_>,
        field: &FieldSelection,
        link: &crate::subgraph::LinkedField,
    ) -> LoweringResult {
        let key = |need: &str| format!("{need} of {}", fetch.subgraph.name);
        for need in &link.needed_fields {
            if fetch.is_rest() {
                self.add_member_entries(fetch, data_position, need, &key(need), false);
                continue;
            }
            let slot_field = SlotField {
                field: need.clone(),
                type_filter: data_position.type_filter.clone(),
                lookup: FieldLookup::Member(need_alias(need).into()),
                is_renamed: false,
                is_conditional: data_position.is_conditional,
                spelling: None,
            };
            self.positions[data_position.position].slots[data_position.slot]
                .add_entry(&key(need), slot_field);
        }
        let keys = link.needed_fields.iter().map(|need| key(need).into()).collect();
        let target = FetchTarget { position: data_position.position, type_filters: HashMap::new() };
        let reading = StepReads { needed_fields: &link.needed_fields, keys };
        self.lower_link(
            fetch,
            &target,
            &data_position.type_filter,
            data_position.parent,
            field,
            &link.strategy,
            reading,
        )
    }

    /// Adds the position below a field with subfields, and records the selection there.
    pub(super) fn record_subselection(
        &mut self,
        fetch: LoweredFetch<'_>,
        data_position: &DataPosition<'_>,
        field: &FieldSelection,
        key: &str,
        path: &mut Vec<String>,
    ) -> LoweringResult {
        if field.selections.items.is_empty() {
            return Ok(());
        }
        let Some(name) = self.field_type_name(data_position.parent, &field.name) else { return Ok(()) };
        let declared = self.types.find(&name).unwrap_or_default();
        let position = self.ensure_child(data_position.position, key, declared);
        let slot = self.positions[position].ensure_slot(SlotOrigin::Parent(data_position.slot));
        self.positions[position].is_shared |=
            match self.positions[data_position.position].slots[data_position.slot].origin {
                SlotOrigin::StepResult(step, group) => {
                    let group = self.steps.get(step).and_then(|step| step.groups.get(group));
                    group.is_some_and(|group| group.path.is_some() && !group.is_many)
                }
                SlotOrigin::Parent(_) => false,
            };
        let spot = DataPosition { position, slot, parent: &name, type_filter: None, is_conditional: false };
        self.set_type_resolver(fetch, &spot);
        self.record_selection(fetch, &spot, &field.selections, path)
    }

    fn ensure_child(&mut self, parent: PositionId, key: &str, declared: TypeId) -> PositionId {
        if let Some(known) = self.positions[parent].children.get(key).copied() {
            if !self.types.is_object(declared) {
                self.positions[known].declared_type = declared;
            }
            return known;
        }
        let (id, key): (PositionId, Arc<str>) = (self.positions.len(), key.into());
        self.positions.push(ResponsePosition {
            parent: Some((parent, Arc::clone(&key))),
            declared_type: declared,
            slots: Vec::new(),
            is_shared: false,
            children: HashMap::new(),
        });
        self.positions[parent].children.insert(key, id);
        id
    }

    /// Sets how a REST service's slot determines the types of its objects.
    pub(super) fn set_type_resolver(&mut self, fetch: LoweredFetch<'_>, position: &DataPosition<'_>) {
        if !fetch.is_rest() {
            return;
        }
        let id = |name: &str| self.types.find(name);
        let rule = fetch.bindings().types.get(position.parent).and_then(|binding| binding.type_rule.as_ref());
        let teller = match rule {
            Some(TypeRule::Member { name, types }) => {
                let types = types.iter().filter_map(|(text, ty)| Some((text.clone(), id(ty)?))).collect();
                TypeResolver::Member(name.clone(), types)
            }
            Some(TypeRule::Shape(shapes)) => {
                let shape = |(ty, members): &(Box<str>, Vec<Box<str>>)| Some((id(ty)?, members.clone()));
                TypeResolver::Shape(shapes.iter().filter_map(shape).collect())
            }
            None => match id(position.parent) {
                Some(id) if self.types.is_object(id) => TypeResolver::Constant(id),
                _ => return,
            },
        };
        self.positions[position.position].slots[position.slot].type_resolver.get_or_insert(teller);
    }

    pub(super) fn field_spelling(
        &self,
        fetch: LoweredFetch<'_>,
        parent: &str,
        field: &str,
    ) -> Option<Arc<HashMap<Box<str>, Box<str>>>> {
        enum_spelling(fetch.bindings(), &self.field_type_name(parent, field)?)
    }

    /// The name of a field's type.
    pub(super) fn field_type_name(&self, parent: &str, field: &str) -> Option<String> {
        let definition = self.supergraph.definitions.get(parent)?;
        Some(definition.fields().get(field)?.field_type.inner_type().to_owned())
    }
}

/// The key in the response for a key that the planner renamed.
fn renamed_key<'r>(rewrites: &'r [FetchRewrite], path: &[String]) -> Option<&'r str> {
    rewrites.iter().find_map(|rewrite| {
        let FetchRewrite::KeyRenamer(renamer) = rewrite else { return None };
        let keys = renamer.path.iter().filter_map(|segment| match segment {
            FetchNodePathSegment::Key(key) if key != "_entities" => Some(key),
            _ => None,
        });
        keys.eq(path).then_some(renamer.rename_key_to.as_str())
    })
}

/// A selection with its fragment spreads inlined.
pub(super) fn inline_fragments(selections: &SelectionSet, fragments: &[FragmentDefinition]) -> SelectionSet {
    let items = selections.items.iter().filter_map(|item| {
        Some(match item {
            SelectionItem::Field(field) => {
                let inner = inline_fragments(&field.selections, fragments);
                SelectionItem::Field(field.with_new_selections(inner))
            }
            SelectionItem::InlineFragment(fragment) => {
                let selections = inline_fragments(&fragment.selections, fragments);
                SelectionItem::InlineFragment(InlineFragmentSelection { selections, ..fragment.clone() })
            }
            SelectionItem::FragmentSpread(name) => {
                let fragment = fragments.iter().find(|fragment| fragment.name == *name)?;
                SelectionItem::InlineFragment(InlineFragmentSelection {
                    type_condition: fragment.type_condition.clone(),
                    selections: inline_fragments(&fragment.selection_set, fragments),
                    skip_if: None,
                    include_if: None,
                })
            }
        })
    });
    SelectionSet { items: items.collect() }
}

/// The part of a selection of entities that does not consist of links.
pub(super) fn without_links(selections: &SelectionSet, bindings: &SubgraphBindings) -> SelectionSet {
    let left = selections.items.iter().filter_map(|item| {
        let SelectionItem::InlineFragment(fragment) = item else { return None };
        let entity = bindings.entities.get(fragment.type_condition.as_str());
        let selections = drop_links(&fragment.selections, entity)?;
        Some(SelectionItem::InlineFragment(InlineFragmentSelection { selections, ..fragment.clone() }))
    });
    SelectionSet { items: left.collect() }
}

/// The part of an entity's selection that does not consist of links; `None` if only `__typename` remains.
fn drop_links(selections: &SelectionSet, entity: Option<&EntityBinding>) -> Option<SelectionSet> {
    let is_link = |name: &str| entity.is_some_and(|entity| entity.links.contains_key(name));
    let items: Vec<SelectionItem> = selections
        .items
        .iter()
        .filter_map(|item| match item {
            SelectionItem::Field(field) => (!is_link(&field.name)).then(|| item.clone()),
            SelectionItem::InlineFragment(fragment) => {
                let selections = drop_links(&fragment.selections, entity)?;
                let fragment = InlineFragmentSelection { selections, ..fragment.clone() };
                Some(SelectionItem::InlineFragment(fragment))
            }
            SelectionItem::FragmentSpread(_) => Some(item.clone()),
        })
        .collect();
    let is_typename =
        |item: &SelectionItem| matches!(item, SelectionItem::Field(field) if field.name == "__typename");
    (!items.iter().all(is_typename)).then_some(SelectionSet { items })
}

/// The selection of a fetch of entities with some parts replaced; `None` if nothing is replaced.
pub(super) fn replace_selections(
    operation: &SubgraphFetchOperation,
    rests: &[Option<SelectionSet>],
) -> Option<SelectionSet> {
    if rests.iter().all(Option::is_none) {
        return None;
    }
    let Document { operation, fragments } = &operation.document;
    let mut selections = inline_fragments(&operation.selection_set, fragments);
    for (item, rest) in selections.items.iter_mut().zip(rests) {
        if let (SelectionItem::Field(field), Some(rest)) = (item, rest) {
            field.selections = rest.clone();
        }
    }
    Some(selections)
}

/// The text of a selection without its braces.
pub(super) fn without_braces(selections: &SelectionSet) -> Box<str> {
    let text = selections.to_string();
    let inner = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
    inner.unwrap_or(&text).into()
}
