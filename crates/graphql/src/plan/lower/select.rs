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
use super::words::need_alias;
use super::{FetchTarget, LoweredFetch, LoweringResult, PlanLowering};
use crate::plan::data::{
    FieldLookup, PositionId, ResponsePosition, SlotField, SlotId, SlotOrigin, TypeFilter, TypeResolver, both,
};
use crate::plan::types::TypeId;
use crate::plan::values::spelling;
use crate::{EntityBinding, SubgraphBindings, TypeRule};

/// A place in the data where fields are added.
#[derive(Clone)]
pub(super) struct DataPosition<'p> {
    pub(super) position: PositionId,
    pub(super) slot: SlotId,
    /// The type that the selected fields belong to.
    pub(super) parent: &'p str,
    pub(super) only: TypeFilter,
    /// Whether the request for the fields depends on variables.
    pub(super) is_conditional: bool,
}

impl PlanLowering<'_> {
    /// Records the selection of a slot's objects. `path` contains the keys from the beginning of the fetch.
    pub(super) fn select(
        &mut self,
        fetch: LoweredFetch<'_>,
        spot: &DataPosition<'_>,
        selections: &SelectionSet,
        path: &mut Vec<String>,
    ) -> LoweringResult {
        for item in &selections.items {
            match item {
                SelectionItem::Field(field) => self.field(fetch, spot, field, path)?,
                SelectionItem::InlineFragment(fragment) => {
                    let is_conditional = fragment.skip_if.is_some() || fragment.include_if.is_some();
                    let spot = &DataPosition {
                        is_conditional: spot.is_conditional || is_conditional,
                        ..spot.clone()
                    };
                    self.narrow(fetch, spot, &fragment.type_condition, &fragment.selections, path)?;
                }
                SelectionItem::FragmentSpread(name) => {
                    let fragment = fetch.fragments.iter().find(|fragment| fragment.name == *name);
                    let Some(fragment) = fragment else { continue };
                    self.narrow(fetch, spot, &fragment.type_condition, &fragment.selection_set, path)?;
                }
            }
        }
        Ok(())
    }

    fn narrow(
        &mut self,
        fetch: LoweredFetch<'_>,
        spot: &DataPosition<'_>,
        parent: &str,
        selections: &SelectionSet,
        path: &mut Vec<String>,
    ) -> LoweringResult {
        let only = match parent == spot.parent {
            true => spot.only.clone(),
            false => both(&spot.only, &self.only([parent].into_iter())),
        };
        let spot = DataPosition { parent, only, ..spot.clone() };
        self.select(fetch, &spot, selections, path)
    }

    fn field(
        &mut self,
        fetch: LoweredFetch<'_>,
        spot: &DataPosition<'_>,
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
                let slot = &mut self.positions[spot.position].slots[spot.slot];
                slot.teller.get_or_insert_with(|| match own.is_empty() {
                    true => TypeResolver::Typename(said.into()),
                    false => TypeResolver::Member(said.into(), own),
                });
            }
            return Ok(());
        }
        if let Some(link) =
            fetch.bindings().entities.get(spot.parent).and_then(|e| e.links.get(field.name.as_str()))
        {
            return self.own_link(fetch, spot, field, link);
        }
        let is_conditional = field.skip_if.is_some() || field.include_if.is_some();
        let spot = &DataPosition { is_conditional: spot.is_conditional || is_conditional, ..spot.clone() };
        path.push(said.to_owned());
        let key = renamed(fetch.outputs, path).unwrap_or(said).to_owned();
        let is_renamed = said != key;
        if is_renamed {
            self.entries(fetch, spot, field, said, false);
        }
        self.entries(fetch, spot, field, &key, is_renamed);
        let done = self.below(fetch, spot, field, &key, path);
        if said != key
            && let Some(child) = self.positions[spot.position].children.get(key.as_str()).copied()
        {
            self.positions[spot.position].children.insert(said.into(), child);
        }
        path.pop();
        done
    }

    fn entries(
        &mut self,
        fetch: LoweredFetch<'_>,
        spot: &DataPosition<'_>,
        field: &FieldSelection,
        key: &str,
        is_renamed: bool,
    ) {
        if fetch.is_rest() {
            return self.members(fetch, spot, &field.name, key, is_renamed);
        }
        let entry = SlotField {
            field: field.name.as_str().into(),
            only: spot.only.clone(),
            lookup: FieldLookup::Member(field.selection_identifier().into()),
            is_renamed,
            is_conditional: spot.is_conditional,
            spelling: self.spelling(fetch, spot.parent, &field.name),
        };
        self.positions[spot.position].slots[spot.slot].add(key, entry);
    }

    /// Adds a field of a REST service's objects. Each possible type of an abstract type may have it in a
    /// different member.
    fn members(
        &mut self,
        fetch: LoweredFetch<'_>,
        spot: &DataPosition<'_>,
        name: &str,
        key: &str,
        is_renamed: bool,
    ) {
        let spelling = self.spelling(fetch, spot.parent, name);
        let objects = self.types.find(spot.parent).map(|id| self.types.objects(id)).unwrap_or_default();
        let member = |parent: &str| {
            let binding = fetch.bindings().types.get(parent);
            binding.and_then(|binding| binding.fields.get(name)).map_or(name, |member| member)
        };
        let slot = &mut self.positions[spot.position].slots[spot.slot];
        let (own, is_conditional) = (member(spot.parent), spot.is_conditional);
        for object in objects {
            let of_object = member(self.types.name(*object));
            if of_object != own {
                let only = both(&spot.only, &Some([*object].into()));
                let lookup = FieldLookup::Member(of_object.into());
                let (field, spelling) = (name.into(), spelling.clone());
                slot.add(key, SlotField { field, only, lookup, is_renamed, is_conditional, spelling });
            }
        }
        let lookup = FieldLookup::Member(own.into());
        let (field, only) = (name.into(), spot.only.clone());
        slot.add(key, SlotField { field, only, lookup, is_renamed, is_conditional, spelling });
    }

    /// Lowers a link to the same service. For the planner this is an ordinary field, but it needs a step of
    /// its own.
    fn own_link(
        &mut self,
        fetch: LoweredFetch<'_>,
        spot: &DataPosition<'_>,
        field: &FieldSelection,
        link: &crate::LinkedField,
    ) -> LoweringResult {
        let key = |need: &str| format!("{need} of {}", fetch.subgraph.name);
        for need in &link.needs {
            if fetch.is_rest() {
                self.members(fetch, spot, need, &key(need), false);
                continue;
            }
            let entry = SlotField {
                field: need.clone(),
                only: spot.only.clone(),
                lookup: FieldLookup::Member(need_alias(need).into()),
                is_renamed: false,
                is_conditional: spot.is_conditional,
                spelling: None,
            };
            self.positions[spot.position].slots[spot.slot].add(&key(need), entry);
        }
        let keys = link.needs.iter().map(|need| key(need).into()).collect();
        let target = FetchTarget { position: spot.position, only: HashMap::new() };
        let reading = StepReads { needs: &link.needs, keys };
        self.link(fetch, &target, &spot.only, spot.parent, field, &link.how, reading)
    }

    /// Adds the position below a field with subfields, and records the selection there.
    pub(super) fn below(
        &mut self,
        fetch: LoweredFetch<'_>,
        spot: &DataPosition<'_>,
        field: &FieldSelection,
        key: &str,
        path: &mut Vec<String>,
    ) -> LoweringResult {
        if field.selections.items.is_empty() {
            return Ok(());
        }
        let Some(name) = self.type_of(spot.parent, &field.name) else { return Ok(()) };
        let declared = self.types.find(&name).unwrap_or_default();
        let position = self.child(spot.position, key, declared);
        let slot = self.positions[position].slot(SlotOrigin::Parent(spot.slot));
        self.positions[position].is_shared |= match self.positions[spot.position].slots[spot.slot].from {
            SlotOrigin::Found(step, group) => {
                let group = self.steps.get(step).and_then(|step| step.groups.get(group));
                group.is_some_and(|group| group.walk.is_some() && !group.is_many)
            }
            SlotOrigin::Parent(_) => false,
        };
        let spot = DataPosition { position, slot, parent: &name, only: None, is_conditional: false };
        self.teller(fetch, &spot);
        self.select(fetch, &spot, &field.selections, path)
    }

    fn child(&mut self, parent: PositionId, key: &str, declared: TypeId) -> PositionId {
        if let Some(known) = self.positions[parent].children.get(key).copied() {
            if !self.types.is_object(declared) {
                self.positions[known].declared = declared;
            }
            return known;
        }
        let (id, key): (PositionId, Arc<str>) = (self.positions.len(), key.into());
        self.positions.push(ResponsePosition {
            parent: Some((parent, Arc::clone(&key))),
            declared,
            slots: Vec::new(),
            is_shared: false,
            children: HashMap::new(),
        });
        self.positions[parent].children.insert(key, id);
        id
    }

    /// Sets how a REST service's slot determines the types of its objects.
    pub(super) fn teller(&mut self, fetch: LoweredFetch<'_>, spot: &DataPosition<'_>) {
        if !fetch.is_rest() {
            return;
        }
        let id = |name: &str| self.types.find(name);
        let told = fetch.bindings().types.get(spot.parent).and_then(|binding| binding.told_by.as_ref());
        let teller = match told {
            Some(TypeRule::Member { name, types }) => {
                let types = types.iter().filter_map(|(text, ty)| Some((text.clone(), id(ty)?))).collect();
                TypeResolver::Member(name.clone(), types)
            }
            Some(TypeRule::Shape(shapes)) => {
                let shape = |(ty, members): &(Box<str>, Vec<Box<str>>)| Some((id(ty)?, members.clone()));
                TypeResolver::Shape(shapes.iter().filter_map(shape).collect())
            }
            None => match id(spot.parent) {
                Some(id) if self.types.is_object(id) => TypeResolver::Always(id),
                _ => return,
            },
        };
        self.positions[spot.position].slots[spot.slot].teller.get_or_insert(teller);
    }

    pub(super) fn spelling(
        &self,
        fetch: LoweredFetch<'_>,
        parent: &str,
        field: &str,
    ) -> Option<Arc<HashMap<Box<str>, Box<str>>>> {
        spelling(fetch.bindings(), &self.type_of(parent, field)?)
    }

    /// The name of a field's type.
    pub(super) fn type_of(&self, parent: &str, field: &str) -> Option<String> {
        let definition = self.supergraph.definitions.get(parent)?;
        Some(definition.fields().get(field)?.field_type.inner_type().to_owned())
    }
}

/// The key in the response for a key that the planner renamed.
fn renamed<'r>(rewrites: &'r [FetchRewrite], path: &[String]) -> Option<&'r str> {
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
pub(super) fn inlined(selections: &SelectionSet, fragments: &[FragmentDefinition]) -> SelectionSet {
    let items = selections.items.iter().filter_map(|item| {
        Some(match item {
            SelectionItem::Field(field) => {
                let inner = inlined(&field.selections, fragments);
                SelectionItem::Field(field.with_new_selections(inner))
            }
            SelectionItem::InlineFragment(fragment) => {
                let selections = inlined(&fragment.selections, fragments);
                SelectionItem::InlineFragment(InlineFragmentSelection { selections, ..fragment.clone() })
            }
            SelectionItem::FragmentSpread(name) => {
                let fragment = fragments.iter().find(|fragment| fragment.name == *name)?;
                SelectionItem::InlineFragment(InlineFragmentSelection {
                    type_condition: fragment.type_condition.clone(),
                    selections: inlined(&fragment.selection_set, fragments),
                    skip_if: None,
                    include_if: None,
                })
            }
        })
    });
    SelectionSet { items: items.collect() }
}

/// The part of a selection of entities that does not consist of links.
pub(super) fn without(selections: &SelectionSet, bindings: &SubgraphBindings) -> SelectionSet {
    let left = selections.items.iter().filter_map(|item| {
        let SelectionItem::InlineFragment(fragment) = item else { return None };
        let entity = bindings.entities.get(fragment.type_condition.as_str());
        let selections = left(&fragment.selections, entity)?;
        Some(SelectionItem::InlineFragment(InlineFragmentSelection { selections, ..fragment.clone() }))
    });
    SelectionSet { items: left.collect() }
}

/// The part of an entity's selection that does not consist of links; `None` if only `__typename` remains.
fn left(selections: &SelectionSet, entity: Option<&EntityBinding>) -> Option<SelectionSet> {
    let is_link = |name: &str| entity.is_some_and(|entity| entity.links.contains_key(name));
    let items: Vec<SelectionItem> = selections
        .items
        .iter()
        .filter_map(|item| match item {
            SelectionItem::Field(field) => (!is_link(&field.name)).then(|| item.clone()),
            SelectionItem::InlineFragment(fragment) => {
                let selections = left(&fragment.selections, entity)?;
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
pub(super) fn replaced(
    operation: &SubgraphFetchOperation,
    rests: &[Option<SelectionSet>],
) -> Option<SelectionSet> {
    if rests.iter().all(Option::is_none) {
        return None;
    }
    let Document { operation, fragments } = &operation.document;
    let mut selections = inlined(&operation.selection_set, fragments);
    for (item, rest) in selections.items.iter_mut().zip(rests) {
        if let (SelectionItem::Field(field), Some(rest)) = (item, rest) {
            field.selections = rest.clone();
        }
    }
    Some(selections)
}

/// The text of a selection without its braces.
pub(super) fn bare(selections: &SelectionSet) -> Box<str> {
    let text = selections.to_string();
    let inner = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
    inner.unwrap_or(&text).into()
}
