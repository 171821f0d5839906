//! The model of a service's schema for composition: definitions and extensions are merged, directives are
//! interpreted, and the root types have their standard names.

use std::fmt;
use std::sync::Arc;

use graphql_tools::parser::schema as ast;
use indexmap::{IndexMap, IndexSet};

use super::selection::FieldSetSelection;

/// A service's name.
pub(super) type SubgraphName = Arc<str>;
/// A value in a schema.
pub(super) type SchemaValue<'a> = ast::Value<'a, &'a str>;

/// A service's schema.
#[derive(Debug)]
pub(super) struct SubgraphSchema<'a> {
    pub(super) name: SubgraphName,
    /// The service's name in the supergraph's `join__Graph`.
    pub(super) graph: String,
    /// Whether it is a Federation v1 schema, or does not use Federation.
    pub(super) is_federation_v1: bool,
    pub(super) types: IndexMap<&'a str, SubgraphType<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SubgraphTypeKind {
    Scalar,
    Object,
    Interface,
    Union,
    Enum,
    Input,
}

/// The metadata that every element of a schema may have.
#[derive(Clone, Debug, Default)]
pub(super) struct ElementMetadata {
    pub(super) description: Option<String>,
    pub(super) is_inaccessible: bool,
    pub(super) tags: IndexSet<String>,
    /// The reason for the deprecation, if the element is deprecated.
    pub(super) deprecated: Option<String>,
}

impl ElementMetadata {
    /// Merges the metadata of the same element in another schema.
    pub(super) fn merge(&mut self, other: &Self) {
        if self.description.is_none() {
            self.description.clone_from(&other.description);
        }
        if self.deprecated.is_none() {
            self.deprecated.clone_from(&other.deprecated);
        }
        self.is_inaccessible |= other.is_inaccessible;
        self.tags.extend(other.tags.iter().cloned());
    }
}

#[derive(Debug)]
pub(super) struct SubgraphType<'a> {
    pub(super) kind: SubgraphTypeKind,
    pub(super) metadata: ElementMetadata,
    /// Whether the schema defines the type, instead of only extending it.
    pub(super) is_defined: bool,
    pub(super) is_interface_object: bool,
    pub(super) keys: Vec<EntityKey>,
    pub(super) interfaces: IndexSet<&'a str>,
    /// The fields of an object or interface.
    pub(super) fields: IndexMap<&'a str, SubgraphField<'a>>,
    /// The fields of an input object.
    pub(super) inputs: IndexMap<&'a str, SubgraphInput<'a>>,
    /// The values of an enum.
    pub(super) values: IndexMap<&'a str, ElementMetadata>,
    /// The members of a union.
    pub(super) members: IndexSet<&'a str>,
    pub(super) specified_by: Option<String>,
    pub(super) is_one_of: bool,
}

impl SubgraphType<'_> {
    pub(super) fn new(kind: SubgraphTypeKind) -> Self {
        Self {
            kind,
            metadata: ElementMetadata::default(),
            is_defined: false,
            is_interface_object: false,
            keys: Vec::new(),
            interfaces: IndexSet::new(),
            fields: IndexMap::new(),
            inputs: IndexMap::new(),
            values: IndexMap::new(),
            members: IndexSet::new(),
            specified_by: None,
            is_one_of: false,
        }
    }

    /// The kind of the type in the supergraph.
    pub(super) fn merged_kind(&self) -> SubgraphTypeKind {
        if self.is_interface_object { SubgraphTypeKind::Interface } else { self.kind }
    }
}

#[derive(Debug)]
pub(super) struct EntityKey {
    pub(super) fields: FieldSet,
    pub(super) is_resolvable: bool,
}

/// The argument of `@key`, `@requires` or `@provides`.
#[derive(Clone, Debug)]
pub(super) struct FieldSet {
    /// The text, with whitespace collapsed.
    pub(super) text: String,
    pub(super) selection: FieldSetSelection,
}

#[derive(Debug)]
pub(super) struct SubgraphField<'a> {
    pub(super) metadata: ElementMetadata,
    pub(super) type_ref: TypeRef<'a>,
    pub(super) arguments: IndexMap<&'a str, SubgraphInput<'a>>,
    pub(super) is_external: bool,
    pub(super) is_shareable: bool,
    pub(super) requires: Option<FieldSet>,
    pub(super) provides: Option<FieldSet>,
    pub(super) overrides: Option<FieldOverride>,
    pub(super) usage: FieldUsage,
}

/// The uses of a field within the same schema.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FieldUsage {
    pub(super) by_key: bool,
    pub(super) by_requires: bool,
    pub(super) by_provides: bool,
    pub(super) by_interface: bool,
}

impl FieldUsage {
    pub(super) fn is_used(self) -> bool {
        self.by_key || self.by_requires || self.by_provides || self.by_interface
    }
}

#[derive(Clone, Debug)]
pub(super) struct FieldOverride {
    pub(super) from_service: String,
    pub(super) label: Option<String>,
}

/// An argument, or a field of an input object.
#[derive(Clone, Debug)]
pub(super) struct SubgraphInput<'a> {
    pub(super) metadata: ElementMetadata,
    pub(super) type_ref: TypeRef<'a>,
    pub(super) default: Option<SchemaValue<'a>>,
}

impl SubgraphInput<'_> {
    pub(super) fn is_required(&self) -> bool {
        matches!(self.type_ref, TypeRef::NonNull(_)) && self.default.is_none()
    }
}

/// The type of a field, with its list and non-null wrappers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TypeRef<'a> {
    Named(&'a str),
    List(Box<TypeRef<'a>>),
    NonNull(Box<TypeRef<'a>>),
}

impl<'a> TypeRef<'a> {
    /// The name of the innermost type.
    pub(super) fn name(&self) -> &'a str {
        match self {
            Self::Named(name) => name,
            Self::List(inner) | Self::NonNull(inner) => inner.name(),
        }
    }
}

impl fmt::Display for TypeRef<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => out.write_str(name),
            Self::List(inner) => write!(out, "[{inner}]"),
            Self::NonNull(inner) => write!(out, "{inner}!"),
        }
    }
}
