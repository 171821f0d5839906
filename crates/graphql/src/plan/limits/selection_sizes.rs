//! Size figures of a selection with its fragments resolved. The figures of a fragment are computed once and
//! added for each spread, so that the time is linear in the document's size, however large the expansion is.
//! Sums saturate.

use std::collections::HashMap;

use graphql_tools::static_graphql::query::{Field, Selection, SelectionSet};

use super::fragments::FragmentIndex;
use crate::plan::types::{ClientTypeRef, ClientTypes, TypeId};

/// The lists of introspection that lead from types to types.
pub(super) const INTROSPECTION_LISTS: [&str; 4] = ["fields", "interfaces", "possibleTypes", "inputFields"];

/// The size figures of a selection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SelectionSizes {
    /// The nesting of fields.
    pub(super) depth: u64,
    /// The nesting of selections, including fragments.
    pub(super) nesting: u64,
    pub(super) aliases: u64,
    /// The number of fields and fragments.
    pub(super) selections: u64,
    /// The number of fields, where a list multiplies the fields below it by ten.
    pub(super) cost: u64,
    /// The number of fields at the top level.
    pub(super) fields: u64,
    /// The nesting of introspection lists.
    pub(super) lists: u64,
}

/// The figures of a document's fragments.
pub(super) struct FigureBook<'a, 'd> {
    types: &'a ClientTypes,
    fragments: HashMap<&'d str, SelectionSizes>,
}

impl<'a, 'd> FigureBook<'a, 'd> {
    pub(super) fn new(index: &FragmentIndex<'d>, types: &'a ClientTypes) -> Self {
        let mut book = Self { types, fragments: HashMap::new() };
        for fragment in index.dependency_order() {
            let parent = types.find(fragment.type_condition.as_ref());
            let figures = book.measure_selections(&fragment.selection_set, parent);
            book.fragments.insert(&fragment.name, figures);
        }
        book
    }

    /// The figures of a fragment.
    pub(super) fn fragment_sizes(&self, name: &str) -> SelectionSizes {
        self.fragments.get(name).copied().unwrap_or_default()
    }

    /// Computes the figures of a selection of a type.
    pub(super) fn measure_selections(
        &self,
        selections: &SelectionSet,
        parent: Option<TypeId>,
    ) -> SelectionSizes {
        let mut sum = SelectionSizes::default();
        for item in &selections.items {
            sum.add(match item {
                Selection::Field(field) => self.measure_field(field, parent),
                Selection::InlineFragment(fragment) => {
                    let condition = fragment.type_condition.as_ref();
                    let ty = condition.map_or(parent, |name| self.types.find(name.as_ref()));
                    self.measure_selections(&fragment.selection_set, ty).with_nesting()
                }
                Selection::FragmentSpread(spread) => {
                    self.fragment_sizes(&spread.fragment_name).with_nesting()
                }
            });
        }
        sum
    }

    fn measure_field(&self, field: &Field, parent: Option<TypeId>) -> SelectionSizes {
        let client_field = parent.and_then(|parent| self.types.field(parent, &field.name));
        let below =
            self.measure_selections(&field.selection_set, client_field.map(|field| field.ty.named_type()));
        let many = client_field.map_or(1, |field| 10_u64.saturating_pow(list_depth(&field.ty)));
        SelectionSizes {
            depth: below.depth.saturating_add(1),
            aliases: below.aliases.saturating_add(u64::from(field.alias.is_some())),
            cost: below.cost.saturating_mul(many).saturating_add(1),
            fields: 1,
            lists: below.lists.saturating_add(u64::from(self.is_introspection_list(parent, &field.name))),
            ..below.with_nesting()
        }
    }

    /// Whether a field is one of [`INTROSPECTION_LISTS`], on an introspection type.
    fn is_introspection_list(&self, parent: Option<TypeId>, field: &str) -> bool {
        parent.is_none_or(|parent| self.types.name(parent).starts_with("__"))
            && INTROSPECTION_LISTS.contains(&field)
    }
}

impl SelectionSizes {
    /// The figures with one more level of nesting.
    fn with_nesting(self) -> Self {
        let nesting = self.nesting.saturating_add(1);
        Self { nesting, selections: self.selections.saturating_add(1), ..self }
    }

    fn add(&mut self, other: Self) {
        self.depth = self.depth.max(other.depth);
        self.nesting = self.nesting.max(other.nesting);
        self.aliases = self.aliases.saturating_add(other.aliases);
        self.selections = self.selections.saturating_add(other.selections);
        self.cost = self.cost.saturating_add(other.cost);
        self.fields = self.fields.saturating_add(other.fields);
        self.lists = self.lists.max(other.lists);
    }
}

fn list_depth(ty: &ClientTypeRef) -> u32 {
    match ty {
        ClientTypeRef::Named(_) => 0,
        ClientTypeRef::NonNull(inner) => list_depth(inner),
        ClientTypeRef::List(inner) => 1 + list_depth(inner),
    }
}
