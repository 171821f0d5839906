//! A service as a subgraph: its schema, and what each field of it means to the service.
//!
//! `schema/` makes them, `compose/` reads the schema alone, `plan/` lowers what the planner says of a subgraph to calls by
//! its bindings, and `rest/` and `remote/` make those.

use std::collections::HashMap;
use std::sync::Arc;

use http::Method;
use openapi::Place as In;

/// A service, as the composed schema sees it.
#[derive(Clone, Debug)]
pub struct Subgraph {
    /// The service's name, as the config has it.
    pub name: Arc<str>,
    /// Its schema: a subgraph's, by the Apollo Federation v2 specification. A link is an entity here: the type that gets the
    /// field is declared with `@key`.
    pub sdl: String,
    /// How it is asked.
    pub kind: Kind,
}

/// How a service is asked.
#[derive(Clone, Debug)]
pub enum Kind {
    /// By REST.
    Rest(Arc<Bindings>),
    /// By GraphQL, at this path. Its bindings have no root fields and no types: those are GraphQL's own. They have what links
    /// added.
    Remote {
        /// Where it answers, below the service's URL.
        path: Arc<str>,
        /// What links added to its types.
        bindings: Arc<Bindings>,
        /// Whether it is a subgraph by itself and answers `_entities` for types that the bindings don't have.
        is_federated: bool,
    },
}

/// What the fields of a subgraph mean.
#[derive(Clone, Debug, Default)]
pub struct Bindings {
    /// The fields of `Query` and `Mutation`, by kind and name.
    pub roots: HashMap<(OperationKind, Box<str>), Arc<Operation>>,
    /// The types that are not what they are called, or whose fields are not, by name.
    pub types: HashMap<Box<str>, TypeBinding>,
    /// The types whose objects are found by a key, or get fields from another service, by name.
    pub entities: HashMap<Box<str>, Entity>,
    /// The service's scalars beside GraphQL's own, by name, and the values that each takes; `None` where it takes any.
    pub scalars: HashMap<Box<str>, Option<ScalarInput>>,
    /// The objects that interfaces and unions may be and clients don't see, all by their names.
    pub hidden_objects: HashMap<Box<str>, Vec<Box<str>>>,
}

/// The values that a scalar takes which the gateway makes of an OpenAPI format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScalarInput {
    /// Integers of 64 bits.
    Integer,
    /// Strings.
    Text,
}

/// Reading or changing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperationKind {
    /// `Query`.
    Query,
    /// `Mutation`.
    Mutation,
}

/// An operation of a REST service as a field.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Its method.
    pub method: Method,
    /// Its path, with `{name}` for each parameter that stands in it, by the parameter's own name.
    pub path: Box<str>,
    /// What is filled in, the fixed ones included.
    pub parameters: Vec<Parameter>,
    /// The argument whose value is the JSON body; none where it takes none.
    pub body: Option<Box<str>>,
    /// Where the field's value stands in the answer; nothing at all: it is the whole of it.
    pub at: json::Path,
    /// What it answers is no JSON but a text, which is the field's value.
    pub is_text: bool,
    /// Whether it answers nothing: the field is `true` if all went well.
    pub is_empty: bool,
}

/// A parameter of an operation.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// Its name in the request.
    pub name: Box<str>,
    /// Where it stands there.
    pub place: In,
    /// Whether the service needs it.
    pub is_required: bool,
    /// A list of values is the name several times over, and not once with commas.
    pub is_repeated: bool,
    /// Where its value comes from.
    pub from: From,
}

/// Where a parameter's value comes from.
#[derive(Clone, Debug)]
pub enum From {
    /// The field's argument of this name; left out where that is absent.
    Argument(Box<str>),
    /// A field of the object's key (see [`Entity`]): a list of all objects' in [`How::Ids`].
    Key(Box<str>),
    /// It is always this, a JSON value.
    Fixed(serde_json::Value),
}

/// What a type of the schema is to the service. Input types and enums have one too: what is sent is written by them.
#[derive(Clone, Debug, Default)]
pub struct TypeBinding {
    /// What a GraphQL service itself calls the type, where it has another name in the schema.
    pub name: Option<Box<str>>,
    /// By the name of the field its member (of a GraphQL service: its own field); a field that is not here is the member of
    /// its own name.
    pub fields: HashMap<Box<str>, Box<str>>,
    /// How an object's type is told, where the type is abstract and the service's answers are no GraphQL.
    pub told_by: Option<Told>,
    /// Texts of the JSON by the names that an enum's values have in GraphQL, where they differ.
    pub values: HashMap<Box<str>, Box<str>>,
}

/// How an object's type is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// By what a member says: its texts, and the types that they mean.
    Member {
        /// The member.
        name: Box<str>,
        /// By text.
        types: HashMap<Box<str>, Box<str>>,
    },
    /// By the members that are there: the first of these types that finds all it requires.
    Shape(Vec<(Box<str>, Vec<Box<str>>)>),
}

/// A type whose objects are found by a key.
#[derive(Clone, Debug, Default)]
pub struct Entity {
    /// The fields of each key that the SDL declares, as it writes them: `catalog_id freelancer_id`.
    pub keys: Vec<Box<str>>,
    /// How the objects themselves are found; none where the service only adds fields to them.
    pub own: Option<How>,
    /// The fields that links add, each by calls of its own.
    pub links: HashMap<Box<str>, Link>,
}

/// A field that comes from another call.
#[derive(Clone, Debug)]
pub struct Link {
    /// The fields of the object that the calls need (by their names in GraphQL). Where one of them is `null`, nothing is
    /// asked, and the field is `null`, or an empty list.
    pub needs: Vec<Box<str>>,
    /// The calls.
    pub how: How,
}

/// How values are found for many objects at once.
#[derive(Clone, Debug)]
pub enum How {
    /// One call for as many as fit, by a parameter that takes a list ([`From::Key`]). Where the key's value is itself a list,
    /// all its items are asked for, and the object gets theirs in its order; the same goes for [`How::List`].
    Ids(Ask, Joined),
    /// A list that is asked for once, whole, and joined in memory.
    List(Ask, Joined),
    /// A call for each that differs.
    Each(Ask),
}

impl How {
    /// The fields of the key that it needs, each once.
    #[must_use]
    pub fn needs(&self) -> Vec<&str> {
        let (ask, joined) = match self {
            Self::Ids(ask, joined) | Self::List(ask, joined) => (ask, Some(joined)),
            Self::Each(ask) => (ask, None),
        };
        let froms: Vec<&From> = match ask {
            Ask::Rest(operation) => operation.parameters.iter().map(|parameter| &parameter.from).collect(),
            Ask::Field { arguments, .. } => arguments.iter().map(|(_, _, from)| from).collect(),
        };
        let mut needs: Vec<&str> = joined.iter().map(|joined| &*joined.key).collect();
        for from in froms {
            if let From::Key(name) = from
                && !needs.contains(&&**name)
            {
                needs.push(name);
            }
        }
        needs
    }
}

/// What is asked.
#[derive(Clone, Debug)]
pub enum Ask {
    /// An operation of a REST service.
    Rest(Arc<Operation>),
    /// A field of a GraphQL service's `Query`, with its arguments.
    Field {
        /// The name of the field.
        name: Box<str>,
        /// The arguments that are not the field's own: by name, with the type as GraphQL writes it.
        arguments: Vec<(Box<str>, Box<str>, From)>,
    },
}

/// Which items belong to which object.
#[derive(Clone, Debug)]
pub struct Joined {
    /// The field of the object's key that is compared.
    pub key: Box<str>,
    /// The member of each item that it is compared with (in a GraphQL service, the field).
    pub item: Box<str>,
    /// Whether an object gets the list of its items, and not the only one.
    pub is_many: bool,
    /// Whether keys are compared as texts: 7 is `"7"`.
    pub is_text: bool,
    /// The most keys in one call of [`How::Ids`]; without it as many as fit into a URL.
    pub batch: Option<usize>,
}
