//! The file of links as written, before validation.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

/// The operator's additions to the schema of a GraphQL route: linked fields, and changes to types and fields.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SchemaDeclarations {
    /// Linked fields, by `Type.field`. An entry for `Type` alone defines how its objects are fetched by their
    /// key.
    #[serde(default)]
    pub links: IndexMap<String, LinkDeclaration>,
    /// Changes to types, by type name: `service.Type` if several services have a type of that name.
    #[serde(default)]
    pub types: IndexMap<String, TypeChange>,
}

/// A field whose value comes from another call. Exactly one of `get` and `query` is required.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkDeclaration {
    /// The request to a REST service: `service/path?query`, with `{field}` for fields of the object.
    #[serde(default)]
    pub get: Option<String>,
    /// The request to a GraphQL service: `service/field(argument: {field})`, with a field of its `Query`.
    #[serde(default)]
    pub query: Option<String>,
    /// Matches the items of the response with objects: `field = member`. One call is then made for all
    /// objects: with `{field}` in a parameter that takes a list, it passes their keys, otherwise it requests
    /// the whole list. Without `on`, a call is made for each object.
    #[serde(default)]
    pub on: Option<String>,
    /// With `on`: an object has at most one item. The field is that item, or `null`.
    #[serde(default)]
    pub one: bool,
    /// With `on`: compares as texts, so that 7 equals `"7"`.
    #[serde(default)]
    pub text: bool,
    /// The maximum number of list values in a call; further values are requested in further calls. The
    /// default is as many as fit into a URL.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub batch: Option<usize>,
    /// The location of the value in the response body, as a JSON Pointer, for example `/items`. The default
    /// is the whole body.
    #[serde(default)]
    pub at: Option<String>,
    /// A description of the field, for the schema.
    #[serde(default)]
    pub description: String,
}

/// Changes to a type.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TypeChange {
    /// The name in the schema.
    #[serde(default)]
    pub rename: Option<String>,
    /// The description.
    #[serde(default)]
    pub description: Option<String>,
    /// Whether to hide the type, with all fields of this type. An object of this type is `null` in fields
    /// whose type is an interface or a union.
    #[serde(default)]
    pub hide: bool,
    /// Changes to its fields.
    #[serde(default)]
    pub fields: IndexMap<String, FieldChange>,
}

/// Changes to a field.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FieldChange {
    /// The name in the schema.
    #[serde(default)]
    pub rename: Option<String>,
    /// The description.
    #[serde(default)]
    pub description: Option<String>,
    /// Whether to hide the field.
    #[serde(default)]
    pub hide: bool,
}
