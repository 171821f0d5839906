//! A service's schema while it is made: what its document says, before names are settled and links are there.
//!
//! Types and fields are found by keys, the names that they had first; what the schema calls them may change.

use std::sync::Arc;

use indexmap::{IndexMap, IndexSet};

use crate::subgraph::{How, Link, Operation, Told};

/// The scalars that GraphQL has by itself.
pub(super) const BUILT_IN: [&str; 5] = ["Int", "Float", "String", "Boolean", "ID"];
/// The types that operations are fields of.
pub(super) const QUERY: &str = "Query";
/// See [`QUERY`].
pub(super) const MUTATION: &str = "Mutation";

/// What a service's schema is made of.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) service: Arc<str>,
    pub(super) asked: Asked,
    /// By their keys; `Query` and `Mutation` among them.
    pub(super) types: IndexMap<Box<str>, Type>,
    /// What its own document says of links, before it is known what they lead to.
    pub(super) wishes: Vec<Wish>,
    /// Types of other services that get fields from this one.
    pub(super) stubs: Vec<Stub>,
    /// Types of its own whose objects are found by a key.
    pub(super) owns: Vec<Own>,
}

/// How the service is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Rest,
    Graphql {
        path: Arc<str>,
    },
    /// It is a subgraph by itself: its schema stays as it is written.
    Federated {
        path: Arc<str>,
        sdl: String,
    },
}

/// A type.
#[derive(Clone, Debug)]
pub(super) struct Type {
    /// What the schema calls it.
    pub(super) name: String,
    /// The same before the operator said otherwise.
    pub(super) first_name: String,
    /// What the service itself calls it, if it speaks GraphQL.
    pub(super) own_name: Option<Box<str>>,
    pub(super) description: String,
    pub(super) is_hidden: bool,
    pub(super) shape: Shape,
    /// The keys by which other services add fields to it: for each the fields.
    pub(super) keys: Vec<IndexSet<Box<str>>>,
}

/// What a type consists of.
#[derive(Clone, Debug)]
pub(super) enum Shape {
    Scalar,
    Object { fields: Fields, implements: Vec<Box<str>> },
    Interface { fields: Fields, implements: Vec<Box<str>> },
    Union { types: Vec<Box<str>>, told_by: Option<Told> },
    Enum(Vec<Value>),
    Input(Fields),
}

/// Fields by their keys.
pub(super) type Fields = IndexMap<Box<str>, Field>;

/// A field of an object, or of an input.
#[derive(Clone, Debug)]
pub(super) struct Field {
    /// What the schema calls it.
    pub(super) name: String,
    /// The member that it is in the JSON; the service's own name for it, if it speaks GraphQL.
    pub(super) member: Box<str>,
    pub(super) description: String,
    /// Why it should not be used any more.
    pub(super) deprecated: Option<String>,
    pub(super) of: Ref,
    /// What an input is where nothing is said, as GraphQL writes it.
    pub(super) default: Option<String>,
    pub(super) arguments: Fields,
    pub(super) is_hidden: bool,
    pub(super) from: From,
}

/// Where a field's value comes from.
#[derive(Clone, Debug)]
pub(super) enum From {
    /// It is a member of the object.
    Member,
    /// An operation of a REST service.
    Operation(Arc<Operation>),
    /// Further calls.
    Link(Link),
}

/// A value of an enum: its name, and the text that it is in the JSON.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub(super) name: String,
    pub(super) text: Box<str>,
    pub(super) description: String,
    pub(super) deprecated: Option<String>,
}

/// What a field is: a type by its key, a list, something that is never `null`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ref {
    Named(Box<str>),
    List(Box<Ref>),
    Required(Box<Ref>),
}

/// A link as a service's own document has it.
#[derive(Debug)]
pub(super) struct Wish {
    /// Where it stands.
    pub(super) place: String,
    /// The type that gets the field.
    pub(super) on: Box<str>,
    pub(super) name: String,
    pub(super) description: String,
    /// The field of `Query` that it leads to.
    pub(super) target: Box<str>,
    /// What parameters are filled with.
    pub(super) filled: Vec<(Box<str>, Filled)>,
}

/// What a parameter is filled with: a member of the object, or always the same.
#[derive(Debug)]
pub(super) enum Filled {
    Member(Box<str>),
    Fixed(serde_json::Value),
}

/// A type of another service with the fields that it gets here.
#[derive(Debug)]
pub(super) struct Stub {
    /// The other service's place among the models.
    pub(super) model: usize,
    /// The type's key there.
    pub(super) of: Box<str>,
    /// The fields that all of them need, by their keys there.
    pub(super) needs: IndexSet<Box<str>>,
    pub(super) fields: Vec<Field>,
}

/// How the objects of a type are found by its key.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) of: Box<str>,
    pub(super) needs: IndexSet<Box<str>>,
    pub(super) how: How,
}

impl Model {
    pub(super) fn new(service: &Arc<str>, asked: Asked) -> Self {
        Self {
            service: Arc::clone(service),
            asked,
            types: IndexMap::new(),
            wishes: Vec::new(),
            stubs: Vec::new(),
            owns: Vec::new(),
        }
    }

    /// The fields of a type that has some.
    pub(super) fn fields(&self, key: &str) -> Option<&Fields> {
        self.types.get(key)?.shape.fields()
    }

    /// The same, to be changed. An object type is made where there is none.
    pub(super) fn object(&mut self, key: &str) -> Option<&mut Fields> {
        let made = || Type::new(key, Shape::Object { fields: Fields::new(), implements: Vec::new() });
        self.types.entry(key.into()).or_insert_with(made).shape.fields_mut()
    }

    /// Whether it is a scalar or an enum: a value, and no object.
    pub(super) fn is_leaf(&self, key: &str) -> bool {
        BUILT_IN.contains(&key)
            || self.types.get(key).is_some_and(|it| matches!(it.shape, Shape::Scalar | Shape::Enum(_)))
    }

    /// What the schema calls a type.
    pub(super) fn name<'a>(&'a self, key: &'a str) -> &'a str {
        self.types.get(key).map_or(key, |it| &it.name)
    }

    /// Whether clients don't see a type.
    pub(super) fn is_hidden(&self, key: &str) -> bool {
        self.types.get(key).is_some_and(|it| it.is_hidden)
    }

    /// The keys of the objects that a value of an interface or a union may be.
    pub(super) fn objects<'a>(&'a self, key: &str) -> Vec<&'a str> {
        let is_of_it = |it: &Type| {
            matches!(it.shape, Shape::Object { .. })
                && it.shape.implements().iter().any(|interface| **interface == *key)
        };
        match self.types.get(key).map(|it| &it.shape) {
            Some(Shape::Union { types, .. }) => {
                types.iter().map(|key| &**key).filter(|key| self.types.contains_key(*key)).collect()
            }
            Some(Shape::Interface { .. }) => {
                self.types.iter().filter(|(_, it)| is_of_it(it)).map(|(key, _)| &**key).collect()
            }
            _ => Vec::new(),
        }
    }

    /// A reference as the service itself writes it.
    pub(super) fn own_written(&self, of: &Ref) -> String {
        of.written(&|key| self.types.get(key).and_then(|it| it.own_name.as_deref()).unwrap_or(key))
    }
}

impl Type {
    pub(super) fn new(name: &str, shape: Shape) -> Self {
        Self {
            name: name.to_owned(),
            first_name: name.to_owned(),
            own_name: None,
            description: String::new(),
            is_hidden: false,
            shape,
            keys: Vec::new(),
        }
    }
}

impl Shape {
    pub(super) fn fields(&self) -> Option<&Fields> {
        match self {
            Self::Object { fields, .. } | Self::Interface { fields, .. } | Self::Input(fields) => {
                Some(fields)
            }
            Self::Scalar | Self::Union { .. } | Self::Enum(_) => None,
        }
    }

    pub(super) fn fields_mut(&mut self) -> Option<&mut Fields> {
        match self {
            Self::Object { fields, .. } | Self::Interface { fields, .. } | Self::Input(fields) => {
                Some(fields)
            }
            Self::Scalar | Self::Union { .. } | Self::Enum(_) => None,
        }
    }

    /// The keys of the interfaces that it implements.
    pub(super) fn implements(&self) -> &[Box<str>] {
        match self {
            Self::Object { implements, .. } | Self::Interface { implements, .. } => implements,
            Self::Scalar | Self::Union { .. } | Self::Enum(_) | Self::Input(_) => &[],
        }
    }
}

impl Field {
    pub(super) fn new(name: &str, member: &str, of: Ref) -> Self {
        Self {
            name: name.to_owned(),
            member: member.into(),
            description: String::new(),
            deprecated: None,
            of,
            default: None,
            arguments: Fields::new(),
            is_hidden: false,
            from: From::Member,
        }
    }
}

impl Ref {
    pub(super) fn named(key: &str) -> Self {
        Self::Named(key.into())
    }

    pub(super) fn list(items: Self) -> Self {
        Self::List(Box::new(items))
    }

    /// The same, and never `null`.
    pub(super) fn required(self) -> Self {
        match self {
            Self::Required(_) => self,
            other => Self::Required(Box::new(other)),
        }
    }

    /// The same, where it may be `null`.
    pub(super) fn nullable(&self) -> &Self {
        match self {
            Self::Required(of) => of,
            other => other,
        }
    }

    /// The type of its values, within all lists.
    pub(super) fn key(&self) -> &str {
        match self {
            Self::Named(key) => key,
            Self::List(of) | Self::Required(of) => of.key(),
        }
    }

    /// As GraphQL writes it, with these names for types.
    pub(super) fn written<'a>(&'a self, name: &impl Fn(&'a str) -> &'a str) -> String {
        match self {
            Self::Named(key) => name(key).to_owned(),
            Self::List(items) => format!("[{}]", items.written(name)),
            Self::Required(of) => format!("{}!", of.written(name)),
        }
    }

    /// The items of a list.
    pub(super) fn items(&self) -> Option<&Self> {
        match self.nullable() {
            Self::List(items) => Some(items),
            _ => None,
        }
    }
}
