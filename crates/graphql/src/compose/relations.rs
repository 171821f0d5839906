//! Subtype relations across all schemas.

use std::collections::{HashMap, HashSet};

use super::model::{SubgraphSchema, SubgraphTypeKind, TypeRef};

/// The possible types of interfaces and unions, and the types used as input and as output.
#[derive(Debug, Default)]
pub(super) struct TypeRelations<'a> {
    subtypes: HashMap<&'a str, HashSet<&'a str>>,
    inputs: HashSet<&'a str>,
    outputs: HashSet<&'a str>,
}

impl<'a> TypeRelations<'a> {
    pub(super) fn from_schemas(schemas: &[SubgraphSchema<'a>]) -> Self {
        let mut relations = Self::default();
        for (&name, of) in schemas.iter().flat_map(|schema| &schema.types) {
            for interface in &of.interfaces {
                relations.subtypes.entry(interface).or_default().insert(name);
            }
            if of.kind == SubgraphTypeKind::Union {
                relations.subtypes.entry(name).or_default().extend(&of.members);
            }
            for field in of.fields.values() {
                relations.outputs.insert(field.type_ref.name());
                relations.inputs.extend(field.arguments.values().map(|argument| argument.type_ref.name()));
            }
            relations.inputs.extend(of.inputs.values().map(|input| input.type_ref.name()));
        }
        relations
    }

    pub(super) fn is_input(&self, name: &str) -> bool {
        self.inputs.contains(name)
    }

    pub(super) fn is_output(&self, name: &str) -> bool {
        self.outputs.contains(name)
    }

    /// Whether every value of the first type is also a value of the second.
    pub(super) fn is_subtype(&self, type_ref: &TypeRef<'_>, other: &TypeRef<'_>) -> bool {
        match (type_ref, other) {
            (TypeRef::NonNull(one), TypeRef::NonNull(other)) | (TypeRef::List(one), TypeRef::List(other)) => {
                self.is_subtype(one, other)
            }
            (TypeRef::NonNull(one), other) => self.is_subtype(one, other),
            (TypeRef::Named(one), TypeRef::Named(other)) => {
                one == other || self.subtypes.get(other).is_some_and(|below| below.contains(one))
            }
            _ => false,
        }
    }

    /// The most general of these types, if there is one.
    pub(super) fn most_general<'t>(
        &self,
        types: impl IntoIterator<Item = &'t TypeRef<'a>>,
    ) -> Option<&'t TypeRef<'a>>
    where
        'a: 't,
    {
        Self::find_extreme(types, |one, other| self.is_subtype(one, other))
    }

    /// The most specific of these types, if there is one.
    pub(super) fn most_specific<'t>(
        &self,
        types: impl IntoIterator<Item = &'t TypeRef<'a>>,
    ) -> Option<&'t TypeRef<'a>>
    where
        'a: 't,
    {
        Self::find_extreme(types, |one, other| self.is_subtype(other, one))
    }

    fn find_extreme<'t>(
        types: impl IntoIterator<Item = &'t TypeRef<'a>>,
        is_within: impl Fn(&TypeRef<'a>, &TypeRef<'a>) -> bool,
    ) -> Option<&'t TypeRef<'a>>
    where
        'a: 't,
    {
        let mut types = types.into_iter();
        let first = types.next()?;
        types.try_fold(first, |found, next| {
            if is_within(next, found) { Some(found) } else { is_within(found, next).then_some(next) }
        })
    }
}
