//! A service as a subgraph: its schema, and the mapping of the schema's fields to the service.
//!
//! `schema/` creates subgraphs, `compose/` reads only their schemas, `plan/` lowers the planner's fetches to
//! calls according to their bindings, and `fetch/` makes these calls.

use std::collections::HashMap;
use std::sync::Arc;

use http::Method;
use openapi::ParameterLocation;

/// A service as a part of the composed schema.
#[derive(Clone, Debug)]
pub struct Subgraph {
    /// The service's name, as in the config.
    pub name: Arc<str>,
    /// Its schema, according to the Apollo Federation v2 specification. A type with linked fields is an
    /// entity: it is declared with `@key`.
    pub sdl: String,
    /// The protocol of the service.
    pub kind: SubgraphProtocol,
}

/// The protocol of a service.
#[derive(Clone, Debug)]
pub enum SubgraphProtocol {
    /// REST.
    Rest(Arc<SubgraphBindings>),
    /// GraphQL. The bindings have no root fields and no types, since those are the service's own. They
    /// contain the links.
    Remote {
        /// The path of its GraphQL endpoint, below the service's URL.
        path: Arc<str>,
        /// The fields that links add to its types.
        bindings: Arc<SubgraphBindings>,
        /// Whether the service is an Apollo Federation subgraph, which answers `_entities` for types that the
        /// bindings don't have.
        is_federated: bool,
    },
}

/// The mapping of a subgraph's fields to the service.
#[derive(Clone, Debug, Default)]
pub struct SubgraphBindings {
    /// The fields of `Query` and `Mutation`, by kind and name.
    pub roots: HashMap<(OperationKind, Box<str>), Arc<RestOperation>>,
    /// The types whose names, or whose fields' names, differ from the service's own, by name.
    pub types: HashMap<Box<str>, TypeBinding>,
    /// The types whose objects are found by a key, or get fields from another service, by name.
    pub entities: HashMap<Box<str>, EntityBinding>,
    /// The service's scalars apart from GraphQL's own, by name, with the values that each accepts; `None`
    /// accepts any value.
    pub scalars: HashMap<Box<str>, Option<ScalarInput>>,
    /// The possible types of interfaces and unions that are hidden from clients, by the name of the interface
    /// or union.
    pub hidden_objects: HashMap<Box<str>, Vec<Box<str>>>,
}

/// The input values of a scalar that the gateway derives from an OpenAPI format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScalarInput {
    /// 64-bit integers.
    Integer,
    /// Strings.
    Text,
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperationKind {
    /// `Query`.
    Query,
    /// `Mutation`.
    Mutation,
}

/// An operation of a REST service that is exposed as a field.
#[derive(Clone, Debug)]
pub struct RestOperation {
    /// The HTTP method.
    pub method: Method,
    /// The path, with `{name}` for each path parameter, by the parameter's own name.
    pub path: Box<str>,
    /// The parameters to fill in, including those with fixed values.
    pub parameters: Vec<RestParameter>,
    /// The argument whose value is the JSON body; absent if the operation has no body.
    pub body: Option<Box<str>>,
    /// The path of the field's value in the response; an empty path selects all of it.
    pub response_path: json::JsonPath,
    /// Whether the response is text instead of JSON. The text is the field's value.
    pub is_text: bool,
    /// Whether the response is empty. The field is `true` on success.
    pub is_empty: bool,
}

/// A parameter of an operation.
#[derive(Clone, Debug)]
pub struct RestParameter {
    /// Its name in the request.
    pub name: Box<str>,
    /// Its location in the request.
    pub location: ParameterLocation,
    /// Whether the service requires it.
    pub is_required: bool,
    /// Whether a list is written by repeating the name, instead of once with commas.
    pub is_repeated: bool,
    /// The source of its value.
    pub source: ParameterSource,
}

/// The source of a parameter's value.
#[derive(Clone, Debug)]
pub enum ParameterSource {
    /// The field's argument of this name; the parameter is omitted if the argument is absent.
    Argument(Box<str>),
    /// A field of the object's key (see [`EntityBinding`]). In [`BatchStrategy::KeyBatches`] it is the list
    /// of all objects' values.
    Key(Box<str>),
    /// A constant JSON value.
    Fixed(serde_json::Value),
}

/// The mapping of a schema type to the service's type. Input types and enums have one too, for the values
/// sent to the service.
#[derive(Clone, Debug, Default)]
pub struct TypeBinding {
    /// The GraphQL service's own name of the type, if the schema uses another.
    pub name: Option<Box<str>>,
    /// The member of each field (for a GraphQL service: its own field). A field that is missing here is the
    /// member of the same name.
    pub fields: HashMap<Box<str>, Box<str>>,
    /// The rule that determines an object's type, for abstract types of services other than GraphQL services.
    pub type_rule: Option<TypeRule>,
    /// The JSON text of each enum value whose GraphQL name differs.
    pub values: HashMap<Box<str>, Box<str>>,
}

/// A rule that determines an object's type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeRule {
    /// By the text of a member.
    Member {
        /// The member.
        name: Box<str>,
        /// The types, by text.
        types: HashMap<Box<str>, Box<str>>,
    },
    /// By the members that are present: the first of these types whose required members are all present.
    Shape(Vec<(Box<str>, Vec<Box<str>>)>),
}

/// A type whose objects are found by a key.
#[derive(Clone, Debug, Default)]
pub struct EntityBinding {
    /// The fields of each key that the SDL declares, as written there: `catalog_id freelancer_id`.
    pub keys: Vec<Box<str>>,
    /// The calls that fetch the objects themselves; absent if the service only adds fields to them.
    pub fetch_strategy: Option<BatchStrategy>,
    /// The fields that links add, each by calls of its own.
    pub links: HashMap<Box<str>, LinkedField>,
}

/// A field that is resolved by another call.
#[derive(Clone, Debug)]
pub struct LinkedField {
    /// The fields of the object that the calls need, by their GraphQL names. If one of them is `null`, no
    /// call is made, and the field is `null` or an empty list.
    pub needed_fields: Vec<Box<str>>,
    /// The calls.
    pub strategy: BatchStrategy,
}

/// A strategy for fetching values for many objects at once.
#[derive(Clone, Debug)]
pub enum BatchStrategy {
    /// Calls with batches of keys, by a parameter that takes a list ([`ParameterSource::Key`]). If the value
    /// of the key is itself a list, all its items are requested, and the object gets theirs in the order of
    /// the list. The same applies to [`BatchStrategy::WholeList`].
    KeyBatches(BoundCall, ItemMatch),
    /// A single call for the whole list, which is joined in memory.
    WholeList(BoundCall, ItemMatch),
    /// A call for each distinct key.
    PerObject(BoundCall),
}

impl BatchStrategy {
    /// The fields of the key that the calls need, without repetition.
    #[must_use]
    pub fn needed_fields(&self) -> Vec<&str> {
        let (call, joined) = match self {
            Self::KeyBatches(ask, joined) | Self::WholeList(ask, joined) => (ask, Some(joined)),
            Self::PerObject(ask) => (ask, None),
        };
        let sources: Vec<&ParameterSource> = match call {
            BoundCall::Rest(operation) => {
                operation.parameters.iter().map(|parameter| &parameter.source).collect()
            }
            BoundCall::Field { arguments, .. } => arguments.iter().map(|(_, _, from)| from).collect(),
        };
        let mut needs: Vec<&str> = joined.iter().map(|joined| &*joined.key).collect();
        for from in sources {
            if let ParameterSource::Key(name) = from
                && !needs.contains(&&**name)
            {
                needs.push(name);
            }
        }
        needs
    }
}

/// The request to a service.
#[derive(Clone, Debug)]
pub enum BoundCall {
    /// An operation of a REST service.
    Rest(Arc<RestOperation>),
    /// A field of a GraphQL service's `Query`, with its arguments.
    Field {
        /// The name of the field.
        name: Box<str>,
        /// The arguments, without those of the field itself: the name, the type in GraphQL syntax, and the
        /// source.
        arguments: Vec<(Box<str>, Box<str>, ParameterSource)>,
    },
}

/// The rule that matches items with objects.
#[derive(Clone, Debug)]
pub struct ItemMatch {
    /// The field of the object's key that is compared.
    pub key: Box<str>,
    /// The member of each item that it is compared with (in a GraphQL service, the field).
    pub item: Box<str>,
    /// Whether an object gets a list of its items, instead of a single one.
    pub is_many: bool,
    /// Whether keys are compared as texts: 7 equals `"7"`.
    pub is_text: bool,
    /// The maximum number of keys in a call of [`BatchStrategy::KeyBatches`]; if absent, as many as fit into
    /// a URL.
    pub batch: Option<usize>,
}
