//! The walk through a part's value that puts in the values of other parts. Only the containers on the way to
//! a target are taken apart.

use bytes::Bytes;
use json::{JsonNode, JsonPathStep, JsonTree, TreeMember, ValueKind};

use super::fields::SelectedObjects;
use crate::memory::{MemoryBudget, MemoryExhausted};
use crate::plan::PartPlan;

/// The values to put in at a path, one for each target in order.
pub(super) struct PathPatch<'a> {
    pub(super) steps: &'a [JsonPathStep],
    pub(super) name: &'a str,
    pub(super) json_name: &'a Bytes,
    pub(super) values: std::vec::IntoIter<JsonTree>,
}

impl PathPatch<'_> {
    /// Advances the patch from an array to its items.
    pub(super) fn advance_to_items(&mut self) -> &mut Self {
        if let [JsonPathStep::Wildcard, rest @ ..] = self.steps {
            self.steps = rest;
        }
        self
    }
}

/// Returns a value with the selected fields of the part, and nothing put in.
pub(super) fn select_fields(
    part: &PartPlan,
    root: JsonNode<'_>,
    memory: &MemoryBudget,
) -> Result<JsonTree, MemoryExhausted> {
    match part.fields.as_deref() {
        None => Ok(JsonTree::Text(root.slice())),
        Some(fields) => {
            let mut weaver =
                ValueWeaver::new(Some(SelectedObjects::from_root(root, fields, memory)?), memory);
            let tree = weaver.weave_root(root, &mut []);
            weaver.finish(tree)
        }
    }
}

/// A walk through a value that puts in other values.
pub(super) struct ValueWeaver<'m> {
    selected_objects: Option<SelectedObjects>,
    memory: &'m MemoryBudget,
    /// Whether the memory budget was exhausted. The result is incomplete then.
    is_exhausted: bool,
}

impl<'m> ValueWeaver<'m> {
    pub(super) fn new(selected_objects: Option<SelectedObjects>, memory: &'m MemoryBudget) -> Self {
        Self { selected_objects, memory, is_exhausted: false }
    }

    /// Returns the result, unless the memory budget was exhausted.
    pub(super) fn finish<T>(self, made: T) -> Result<T, MemoryExhausted> {
        if self.is_exhausted { Err(MemoryExhausted) } else { Ok(made) }
    }

    /// Returns the tree of a part's value.
    pub(super) fn weave_root(&mut self, root: JsonNode<'_>, patches: &mut [&mut PathPatch<'_>]) -> JsonTree {
        match root.kind() {
            ValueKind::Array if self.has_room::<JsonTree>(root) => {
                let mut below: Vec<&mut PathPatch<'_>> =
                    patches.iter_mut().map(|patch| patch.advance_to_items()).collect();
                JsonTree::Array(root.items().map(|item| self.weave_item(item, &mut below)).collect())
            }
            _ => self.weave_item(root, patches),
        }
    }

    /// Returns the tree of an item, or of a value other than an array: the objects that fields are selected
    /// from.
    pub(super) fn weave_item(&mut self, node: JsonNode<'_>, patches: &mut [&mut PathPatch<'_>]) -> JsonTree {
        let own = self.selected_objects.as_mut().map(SelectedObjects::next);
        match own {
            Some(Some(text)) => self.add_members(text, node, patches, false),
            _ if patches.is_empty() => JsonTree::Text(node.slice()),
            _ => self.weave_value(node, patches),
        }
    }

    /// Whether the budget suffices for a list with an entry for each item or member of a value.
    fn has_room<T>(&mut self, node: JsonNode<'_>) -> bool {
        self.is_exhausted = self.is_exhausted || self.memory.charge_for::<T>(node.count()).is_err();
        !self.is_exhausted
    }

    /// Returns the tree of a nested value.
    fn weave_value(&mut self, node: JsonNode<'_>, patches: &mut [&mut PathPatch<'_>]) -> JsonTree {
        if patches.is_empty() {
            return JsonTree::Text(node.slice());
        }
        match node.kind() {
            ValueKind::Array if self.has_room::<JsonTree>(node) => self.weave_array(node, patches),
            ValueKind::Object if patches.iter().all(|patch| patch.steps.is_empty()) => {
                self.add_members(node.slice(), node, patches, true)
            }
            ValueKind::Object => self.weave_members(node, patches),
            _ => JsonTree::Text(node.slice()),
        }
    }

    /// Returns the tree of an array. Values can be nested a thousand levels deep, so stack frames are kept
    /// small by avoiding closures.
    fn weave_array(&mut self, array: JsonNode<'_>, patches: &mut [&mut PathPatch<'_>]) -> JsonTree {
        let mut items = Vec::with_capacity(array.count());
        for (number, item) in array.items().enumerate() {
            items.push(self.weave_nested(item, patches, |steps| matches_index(steps, number)));
        }
        JsonTree::Array(items.into())
    }

    /// Returns the tree of an item or member, with the patches that continue in it.
    fn weave_nested(
        &mut self,
        node: JsonNode<'_>,
        patches: &mut [&mut PathPatch<'_>],
        goes_on: impl Fn(&[JsonPathStep]) -> bool,
    ) -> JsonTree {
        if !patches.iter().any(|patch| goes_on(patch.steps)) {
            return JsonTree::Text(node.slice());
        }
        let steps: Vec<&[JsonPathStep]> = patches.iter().map(|patch| patch.steps).collect();
        let of_these = patches.iter_mut().filter(|patch| goes_on(patch.steps));
        let mut below: Vec<&mut PathPatch<'_>> = of_these.map(|patch| &mut **patch).collect();
        below.iter_mut().for_each(|patch| patch.steps = patch.steps.get(1..).unwrap_or_default());
        let tree = self.weave_value(node, &mut below);
        patches.iter_mut().zip(steps).for_each(|(patch, steps)| patch.steps = steps);
        tree
    }

    /// Returns the tree of an object with put-in members, and with all other members unchanged. `text` is the
    /// text of the object or of its selected fields. In the latter case names do not conflict.
    fn add_members(
        &mut self,
        text: Bytes,
        node: JsonNode<'_>,
        patches: &mut [&mut PathPatch<'_>],
        is_whole: bool,
    ) -> JsonTree {
        if patches.is_empty() {
            return JsonTree::Text(text);
        }
        let is_hidden =
            |key: json::MemberName<'_>| patches.iter().any(|patch| key.equals(patch.name.as_bytes()));
        if is_whole && node.members().any(|(key, _)| is_hidden(key)) {
            return self.weave_members(node, patches);
        }
        let members = patches
            .iter_mut()
            .map(|patch| (patch.json_name.clone(), patch.values.next().unwrap_or(JsonTree::NULL)));
        JsonTree::Extended(text, members.collect())
    }

    /// Returns the tree of an object member by member, because values are put into a member or replace it.
    fn weave_members(&mut self, node: JsonNode<'_>, patches: &mut [&mut PathPatch<'_>]) -> JsonTree {
        if !self.has_room::<TreeMember>(node) {
            return JsonTree::NULL;
        }
        let mut members: Vec<TreeMember> = Vec::new();
        for (key, value) in node.members() {
            let is_hidden =
                patches.iter().any(|patch| patch.steps.is_empty() && key.equals(patch.name.as_bytes()));
            if is_hidden {
                continue;
            }
            let tree = self.weave_nested(
                value,
                patches,
                |steps| matches!(steps, [JsonPathStep::Name(name), ..] if key.equals(name.as_bytes())),
            );
            members.push((key.node().slice(), tree));
        }
        for patch in patches.iter_mut().filter(|patch| patch.steps.is_empty()) {
            members.push((patch.json_name.clone(), patch.values.next().unwrap_or(JsonTree::NULL)));
        }
        JsonTree::Object(members.into())
    }
}

/// Whether a path continues in an item of an array. A path that ends at the array applies to all its items.
fn matches_index(steps: &[JsonPathStep], number: usize) -> bool {
    match steps {
        [] | [JsonPathStep::Wildcard, ..] => true,
        [JsonPathStep::Name(name), ..] => name.parse() == Ok(number),
    }
}
