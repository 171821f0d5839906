//! The figures of a selection, its fragments resolved. Those of a fragment are counted once and added wherever it is
//! spread, so that counting takes time linear in the document whatever it expands to; sums saturate.

use std::collections::HashMap;

use graphql_tools::static_graphql::query::{Field, Selection, SelectionSet};

use super::fragments::FragmentIndex;
use crate::plan::types::{Ty, TypeId, Types};

/// The lists of introspection that lead from types to types.
pub(super) const LISTS: [&str; 4] = ["fields", "interfaces", "possibleTypes", "inputFields"];

/// What a selection asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Figures {
    /// Fields within each other.
    pub(super) depth: u64,
    /// Selections within each other, fragments among them.
    pub(super) nesting: u64,
    pub(super) aliases: u64,
    /// Fields and fragments.
    pub(super) selections: u64,
    /// Fields, one below a list ten times.
    pub(super) cost: u64,
    /// Fields that are not within others.
    pub(super) fields: u64,
    /// Lists of introspection within each other.
    pub(super) lists: u64,
}

/// The figures of a document's fragments.
pub(super) struct FigureBook<'a, 'd> {
    types: &'a Types,
    fragments: HashMap<&'d str, Figures>,
}

impl<'a, 'd> FigureBook<'a, 'd> {
    pub(super) fn new(index: &FragmentIndex<'d>, types: &'a Types) -> Self {
        let mut book = Self { types, fragments: HashMap::new() };
        for fragment in index.ordered() {
            let parent = types.find(fragment.type_condition.as_ref());
            let figures = book.count(&fragment.selection_set, parent);
            book.fragments.insert(&fragment.name, figures);
        }
        book
    }

    /// The figures of a fragment.
    pub(super) fn fragment(&self, name: &str) -> Figures {
        self.fragments.get(name).copied().unwrap_or_default()
    }

    /// Counts a selection of a type.
    pub(super) fn count(&self, selections: &SelectionSet, parent: Option<TypeId>) -> Figures {
        let mut sum = Figures::default();
        for item in &selections.items {
            sum.add(match item {
                Selection::Field(field) => self.field(field, parent),
                Selection::InlineFragment(fragment) => {
                    let condition = fragment.type_condition.as_ref();
                    let ty = condition.map_or(parent, |name| self.types.find(name.as_ref()));
                    self.count(&fragment.selection_set, ty).within()
                }
                Selection::FragmentSpread(spread) => self.fragment(&spread.fragment_name).within(),
            });
        }
        sum
    }

    fn field(&self, field: &Field, parent: Option<TypeId>) -> Figures {
        let declared = parent.and_then(|parent| self.types.field(parent, &field.name));
        let below = self.count(&field.selection_set, declared.map(|field| field.ty.named()));
        let many = declared.map_or(1, |field| 10_u64.saturating_pow(lists(&field.ty)));
        Figures {
            depth: below.depth.saturating_add(1),
            aliases: below.aliases.saturating_add(u64::from(field.alias.is_some())),
            cost: below.cost.saturating_mul(many).saturating_add(1),
            fields: 1,
            lists: below.lists.saturating_add(u64::from(self.leads_to_types(parent, &field.name))),
            ..below.within()
        }
    }

    /// Whether a field is one of [`LISTS`], of a type of introspection.
    fn leads_to_types(&self, parent: Option<TypeId>, field: &str) -> bool {
        parent.is_none_or(|parent| self.types.name(parent).starts_with("__")) && LISTS.contains(&field)
    }
}

impl Figures {
    /// These within one selection more.
    fn within(self) -> Self {
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

fn lists(ty: &Ty) -> u32 {
    match ty {
        Ty::Named(_) => 0,
        Ty::NonNull(inner) => lists(inner),
        Ty::List(inner) => 1 + lists(inner),
    }
}
