//! The file of links, as it is written: before anything in it is understood.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

/// What an operator adds to the schema of a GraphQL route: fields that other services have the values of, and other names.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Links {
    /// Fields that types get, by `Type.field`; by `Type` alone how its objects are found by their key.
    #[serde(default)]
    pub links: IndexMap<String, LinkDeclaration>,
    /// Other names, descriptions and what is hidden, by type; `service.Type` where several services have one.
    #[serde(default)]
    pub types: IndexMap<String, TypeChange>,
}

/// A field whose value another call brings. Exactly one of `get` and `query` is there.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkDeclaration {
    /// What to ask a REST service for: `service/path?query`, with `{field}` for fields of the object.
    #[serde(default)]
    pub get: Option<String>,
    /// What to ask a GraphQL service for: `service/field(argument: {field})`, a field of its `Query`.
    #[serde(default)]
    pub query: Option<String>,
    /// Which of the answer's items belong to which object: `field = member`. Then one call is made for all objects: with
    /// `{field}` in a parameter that takes a list by their keys, else for the whole list. Without it a call is made for
    /// each object.
    #[serde(default)]
    pub on: Option<String>,
    /// Of `on`: an object has at most one item, and the field is that, or `null`.
    #[serde(default)]
    pub one: bool,
    /// Of `on`: compare as texts, so that 7 and `"7"` are equal.
    #[serde(default)]
    pub text: bool,
    /// As many values of a list stand in one call at most; more are asked for in further calls. Without it: as many as fit
    /// into a URL.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub batch: Option<usize>,
    /// Where in the body of the answer the value is: a JSON Pointer, as in `/items`. Without it: the whole body.
    #[serde(default)]
    pub at: Option<String>,
    /// What the field means: for the schema.
    #[serde(default)]
    pub description: String,
}

/// What becomes of a type.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TypeChange {
    /// Its name in the schema.
    #[serde(default)]
    pub rename: Option<String>,
    /// What it means.
    #[serde(default)]
    pub description: Option<String>,
    /// Leave it out, with all fields that have it. An object of it that an interface or a union may be is `null`.
    #[serde(default)]
    pub hide: bool,
    /// What becomes of its fields.
    #[serde(default)]
    pub fields: IndexMap<String, FieldChange>,
}

/// What becomes of a field.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FieldChange {
    /// Its name in the schema.
    #[serde(default)]
    pub rename: Option<String>,
    /// What it means.
    #[serde(default)]
    pub description: Option<String>,
    /// Leave it out.
    #[serde(default)]
    pub hide: bool,
}
