//! What the schemas are together.

use indexmap::{IndexMap, IndexSet};

use super::model::{Input, Kind, Shown, TypeRef};

/// All types by their names.
pub(super) type Types<'a> = IndexMap<&'a str, MergedType<'a>>;

#[derive(Debug)]
pub(super) struct MergedType<'a> {
    pub(super) kind: Kind,
    pub(super) shown: Shown,
    /// The schemas that have it, by their indices.
    pub(super) sources: Vec<usize>,
    pub(super) interfaces: IndexSet<&'a str>,
    pub(super) fields: IndexMap<&'a str, MergedField<'a>>,
    pub(super) inputs: IndexMap<&'a str, MergedInput<'a>>,
    pub(super) values: IndexMap<&'a str, MergedValue>,
    pub(super) members: IndexSet<&'a str>,
    pub(super) specified_by: Option<String>,
    pub(super) is_one_of: bool,
}

#[derive(Debug)]
pub(super) struct MergedField<'a> {
    pub(super) shown: Shown,
    pub(super) of: TypeRef<'a>,
    pub(super) arguments: IndexMap<&'a str, Input<'a>>,
    /// Where it is resolved, and how; nothing at all: in all schemas that have the type, alike.
    pub(super) join: Vec<JoinField<'a>>,
}

/// What one schema has to do with a field.
#[derive(Clone, Debug, Default)]
pub(super) struct JoinField<'a> {
    /// The schema; none where the field is that of an interface that is an object elsewhere.
    pub(super) source: Option<usize>,
    /// The type there, if it is another one.
    pub(super) of: Option<TypeRef<'a>>,
    pub(super) is_external: bool,
    pub(super) requires: Option<String>,
    pub(super) provides: Option<String>,
    pub(super) overrides: Option<String>,
    pub(super) label: Option<String>,
    pub(super) is_used_overridden: bool,
}

impl JoinField<'_> {
    /// Whether it says nothing but that the schema has the field.
    pub(super) fn is_plain(&self) -> bool {
        let has = self.requires.is_some() || self.provides.is_some() || self.overrides.is_some();
        !(has || self.of.is_some() || self.is_external || self.label.is_some() || self.is_used_overridden)
    }
}

#[derive(Debug)]
pub(super) struct MergedInput<'a> {
    pub(super) input: Input<'a>,
    /// The type in each schema, where they differ.
    pub(super) join: Vec<(usize, TypeRef<'a>)>,
}

#[derive(Debug)]
pub(super) struct MergedValue {
    pub(super) shown: Shown,
    /// The schemas that have it.
    pub(super) sources: Vec<usize>,
}
