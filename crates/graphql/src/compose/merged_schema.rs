//! The merged schema.

use indexmap::{IndexMap, IndexSet};

use super::model::{ElementMetadata, SubgraphInput, SubgraphTypeKind, TypeRef};

/// All types, by name.
pub(super) type MergedTypes<'a> = IndexMap<&'a str, MergedType<'a>>;

#[derive(Debug)]
pub(super) struct MergedType<'a> {
    pub(super) kind: SubgraphTypeKind,
    pub(super) metadata: ElementMetadata,
    /// The indices of the schemas that have the type.
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
    pub(super) metadata: ElementMetadata,
    pub(super) type_ref: TypeRef<'a>,
    pub(super) arguments: IndexMap<&'a str, SubgraphInput<'a>>,
    /// The services that resolve the field, and how. If empty, every schema that has the type resolves it.
    pub(super) join: Vec<JoinField<'a>>,
}

/// The relation of one schema to a field.
#[derive(Clone, Debug, Default)]
pub(super) struct JoinField<'a> {
    /// The schema; `None` if the field was copied from an interface object.
    pub(super) source: Option<usize>,
    /// The type in this schema, if it differs.
    pub(super) type_ref: Option<TypeRef<'a>>,
    pub(super) is_external: bool,
    pub(super) requires: Option<String>,
    pub(super) provides: Option<String>,
    pub(super) overrides: Option<String>,
    pub(super) label: Option<String>,
    pub(super) is_used_overridden: bool,
}

impl JoinField<'_> {
    /// Whether the schema has the field without any special role.
    pub(super) fn is_plain(&self) -> bool {
        let has = self.requires.is_some() || self.provides.is_some() || self.overrides.is_some();
        !(has
            || self.type_ref.is_some()
            || self.is_external
            || self.label.is_some()
            || self.is_used_overridden)
    }
}

#[derive(Debug)]
pub(super) struct MergedInput<'a> {
    pub(super) input: SubgraphInput<'a>,
    /// The type in each schema, if the types differ.
    pub(super) join: Vec<(usize, TypeRef<'a>)>,
}

#[derive(Debug)]
pub(super) struct MergedValue {
    pub(super) metadata: ElementMetadata,
    /// The schemas that have the value.
    pub(super) sources: Vec<usize>,
}
