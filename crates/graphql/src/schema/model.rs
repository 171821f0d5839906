//! The model of a service's schema while it is built: the contents of its document, before names are final
//! and links are resolved.
//!
//! Types and fields are identified by keys, which are their original names. Their names in the schema may
//! change.

use std::sync::Arc;

use indexmap::{IndexMap, IndexSet};

use crate::subgraph::{BatchStrategy, LinkedField, RestOperation, TypeRule};

/// The built-in scalars of GraphQL.
pub(super) const BUILT_IN_SCALARS: [&str; 5] = ["Int", "Float", "String", "Boolean", "ID"];
/// The root type of queries.
pub(super) const QUERY: &str = "Query";
/// The root type of mutations. See also [`QUERY`].
pub(super) const MUTATION: &str = "Mutation";

/// The model of a service's schema.
#[derive(Debug)]
pub(super) struct ServiceModel {
    pub(super) service: Arc<str>,
    pub(super) protocol: ModelProtocol,
    /// The types by their keys, including `Query` and `Mutation`.
    pub(super) types: IndexMap<Box<str>, ModelType>,
    /// The links in the service's own document, before they are resolved.
    pub(super) document_links: Vec<DocumentLink>,
    /// Types of other services that get fields from this service.
    pub(super) stubs: Vec<StubType>,
    /// Types of this service whose objects are fetched by a key.
    pub(super) keyed_calls: Vec<KeyedCalls>,
}

/// The protocol of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ModelProtocol {
    Rest,
    Graphql {
        path: Arc<str>,
    },
    /// An Apollo Federation subgraph: its schema is used as it is.
    Federated {
        path: Arc<str>,
        sdl: String,
    },
}

/// A type.
#[derive(Clone, Debug)]
pub(super) struct ModelType {
    /// The name in the schema.
    pub(super) name: String,
    /// The name in the schema before the operator's changes.
    pub(super) original_name: String,
    /// The service's own name of the type, if it is a GraphQL service.
    pub(super) service_name: Option<Box<str>>,
    pub(super) description: String,
    pub(super) is_hidden: bool,
    pub(super) shape: ModelTypeShape,
    /// The keys by which other services add fields to the type, each a set of fields.
    pub(super) keys: Vec<IndexSet<Box<str>>>,
}

/// The structure of a type.
#[derive(Clone, Debug)]
pub(super) enum ModelTypeShape {
    Scalar,
    Object { fields: ModelFields, implements: Vec<Box<str>> },
    Interface { fields: ModelFields, implements: Vec<Box<str>> },
    Union { types: Vec<Box<str>>, type_rule: Option<TypeRule> },
    Enum(Vec<ModelEnumValue>),
    Input(ModelFields),
}

/// Fields by their keys.
pub(super) type ModelFields = IndexMap<Box<str>, ModelField>;

/// A field of an object or of an input.
#[derive(Clone, Debug)]
pub(super) struct ModelField {
    /// The name in the schema.
    pub(super) name: String,
    /// The name of the JSON member; for a GraphQL service, the service's own name of the field.
    pub(super) member: Box<str>,
    pub(super) description: String,
    /// The reason for the deprecation, if the field is deprecated.
    pub(super) deprecated: Option<String>,
    pub(super) type_ref: ModelTypeRef,
    /// The default value of an input, in GraphQL syntax.
    pub(super) default: Option<String>,
    pub(super) arguments: ModelFields,
    pub(super) is_hidden: bool,
    pub(super) source: ModelFieldSource,
}

/// The source of a field's value.
#[derive(Clone, Debug)]
pub(super) enum ModelFieldSource {
    /// A member of the object.
    Member,
    /// An operation of a REST service.
    Operation(Arc<RestOperation>),
    /// Further calls.
    Link(LinkedField),
}

/// An enum value: its name, and its text in JSON.
#[derive(Clone, Debug)]
pub(super) struct ModelEnumValue {
    pub(super) name: String,
    pub(super) text: Box<str>,
    pub(super) description: String,
    pub(super) deprecated: Option<String>,
}

/// A type reference: a type by its key, a list, or a non-null type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ModelTypeRef {
    Named(Box<str>),
    List(Box<ModelTypeRef>),
    Required(Box<ModelTypeRef>),
}

/// A link declared in a service's own document.
#[derive(Debug)]
pub(super) struct DocumentLink {
    /// The location in the document.
    pub(super) location: String,
    /// The type that gets the field.
    pub(super) owner_key: Box<str>,
    pub(super) name: String,
    pub(super) description: String,
    /// The target: a field of `Query`.
    pub(super) target: Box<str>,
    /// The values of the parameters.
    pub(super) parameters: Vec<(Box<str>, LinkParameter)>,
}

/// The value of a parameter: a member of the object, or a constant.
#[derive(Debug)]
pub(super) enum LinkParameter {
    Member(Box<str>),
    Fixed(serde_json::Value),
}

/// A type of another service, with the fields that it gets from this service.
#[derive(Debug)]
pub(super) struct StubType {
    /// The index of the other service's model.
    pub(super) model: usize,
    /// The type's key in that model.
    pub(super) type_key: Box<str>,
    /// The fields that the links need, by their keys in that model.
    pub(super) needed_fields: IndexSet<Box<str>>,
    pub(super) fields: Vec<ModelField>,
}

/// The calls that fetch the objects of a type by its key.
#[derive(Debug)]
pub(super) struct KeyedCalls {
    pub(super) type_key: Box<str>,
    pub(super) needed_fields: IndexSet<Box<str>>,
    pub(super) strategy: BatchStrategy,
}

impl ServiceModel {
    pub(super) fn new(service: &Arc<str>, protocol: ModelProtocol) -> Self {
        Self {
            service: Arc::clone(service),
            protocol,
            types: IndexMap::new(),
            document_links: Vec::new(),
            stubs: Vec::new(),
            keyed_calls: Vec::new(),
        }
    }

    /// The fields of a type, if it has fields.
    pub(super) fn fields(&self, key: &str) -> Option<&ModelFields> {
        self.types.get(key)?.shape.fields()
    }

    /// The fields of a type, for modification. Creates an object type if the type does not exist.
    pub(super) fn object_fields_mut(&mut self, key: &str) -> Option<&mut ModelFields> {
        let made = || {
            ModelType::new(key, ModelTypeShape::Object { fields: ModelFields::new(), implements: Vec::new() })
        };
        self.types.entry(key.into()).or_insert_with(made).shape.fields_mut()
    }

    /// Whether the type is a scalar or an enum.
    pub(super) fn is_leaf(&self, key: &str) -> bool {
        BUILT_IN_SCALARS.contains(&key)
            || self
                .types
                .get(key)
                .is_some_and(|it| matches!(it.shape, ModelTypeShape::Scalar | ModelTypeShape::Enum(_)))
    }

    /// The name of a type in the schema.
    pub(super) fn type_name<'a>(&'a self, key: &'a str) -> &'a str {
        self.types.get(key).map_or(key, |it| &it.name)
    }

    /// Whether a type is hidden from clients.
    pub(super) fn is_hidden(&self, key: &str) -> bool {
        self.types.get(key).is_some_and(|it| it.is_hidden)
    }

    /// The keys of the possible object types of an interface or a union.
    pub(super) fn possible_objects<'a>(&'a self, key: &str) -> Vec<&'a str> {
        let is_of_it = |it: &ModelType| {
            matches!(it.shape, ModelTypeShape::Object { .. })
                && it.shape.implements().iter().any(|interface| **interface == *key)
        };
        match self.types.get(key).map(|it| &it.shape) {
            Some(ModelTypeShape::Union { types, .. }) => {
                types.iter().map(|key| &**key).filter(|key| self.types.contains_key(*key)).collect()
            }
            Some(ModelTypeShape::Interface { .. }) => {
                self.types.iter().filter(|(_, it)| is_of_it(it)).map(|(key, _)| &**key).collect()
            }
            _ => Vec::new(),
        }
    }

    /// A type reference with the service's own type names.
    pub(super) fn format_service_type(&self, of: &ModelTypeRef) -> String {
        of.format_with(&|key| self.types.get(key).and_then(|it| it.service_name.as_deref()).unwrap_or(key))
    }
}

impl ModelType {
    pub(super) fn new(name: &str, shape: ModelTypeShape) -> Self {
        Self {
            name: name.to_owned(),
            original_name: name.to_owned(),
            service_name: None,
            description: String::new(),
            is_hidden: false,
            shape,
            keys: Vec::new(),
        }
    }
}

impl ModelTypeShape {
    pub(super) fn fields(&self) -> Option<&ModelFields> {
        match self {
            Self::Object { fields, .. } | Self::Interface { fields, .. } | Self::Input(fields) => {
                Some(fields)
            }
            Self::Scalar | Self::Union { .. } | Self::Enum(_) => None,
        }
    }

    pub(super) fn fields_mut(&mut self) -> Option<&mut ModelFields> {
        match self {
            Self::Object { fields, .. } | Self::Interface { fields, .. } | Self::Input(fields) => {
                Some(fields)
            }
            Self::Scalar | Self::Union { .. } | Self::Enum(_) => None,
        }
    }

    /// The keys of the implemented interfaces.
    pub(super) fn implements(&self) -> &[Box<str>] {
        match self {
            Self::Object { implements, .. } | Self::Interface { implements, .. } => implements,
            Self::Scalar | Self::Union { .. } | Self::Enum(_) | Self::Input(_) => &[],
        }
    }
}

impl ModelField {
    pub(super) fn new(name: &str, member: &str, type_ref: ModelTypeRef) -> Self {
        Self {
            name: name.to_owned(),
            member: member.into(),
            description: String::new(),
            deprecated: None,
            type_ref,
            default: None,
            arguments: ModelFields::new(),
            is_hidden: false,
            source: ModelFieldSource::Member,
        }
    }
}

impl ModelTypeRef {
    pub(super) fn named(key: &str) -> Self {
        Self::Named(key.into())
    }

    pub(super) fn list(items: Self) -> Self {
        Self::List(Box::new(items))
    }

    /// Makes the reference non-null.
    pub(super) fn required(self) -> Self {
        match self {
            Self::Required(_) => self,
            other => Self::Required(Box::new(other)),
        }
    }

    /// The reference without a non-null marker.
    pub(super) fn nullable(&self) -> &Self {
        match self {
            Self::Required(of) => of,
            other => other,
        }
    }

    /// The key of the innermost type.
    pub(super) fn key(&self) -> &str {
        match self {
            Self::Named(key) => key,
            Self::List(of) | Self::Required(of) => of.key(),
        }
    }

    /// Writes the reference in GraphQL syntax, with these type names.
    pub(super) fn format_with<'a>(&'a self, name: &impl Fn(&'a str) -> &'a str) -> String {
        match self {
            Self::Named(key) => name(key).to_owned(),
            Self::List(items) => format!("[{}]", items.format_with(name)),
            Self::Required(of) => format!("{}!", of.format_with(name)),
        }
    }

    /// The type of a list's items.
    pub(super) fn items(&self) -> Option<&Self> {
        match self.nullable() {
            Self::List(items) => Some(items),
            _ => None,
        }
    }
}
