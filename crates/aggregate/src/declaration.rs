//! The file format of declarations, before interpretation.
//!
//! `plan.rs` interprets it, and reports the mistakes that the JSON schema can't express;
//! `error_kind.rs` has their codes.

pub(crate) mod error_kind;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use services::DurationConfig;

/// An aggregate: its inputs, its calls, and the response that is composed from theirs.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AggregateDeclaration {
    /// A short description for the gateway's OpenAPI document.
    #[serde(default)]
    pub summary: String,
    /// A detailed description for the gateway's OpenAPI document.
    #[serde(default)]
    pub description: String,
    /// The parameters of a request, by name.
    #[serde(default)]
    pub input: IndexMap<String, InputDeclaration>,
    /// The calls to services, by name.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 32))]
    pub parts: IndexMap<String, PartDeclaration>,
    /// The response: the name of a part, a list of names, or a merge of parts. Default: an object with all
    /// parts that are not joined into another one.
    #[serde(default)]
    pub response: Option<ResponseShapeDeclaration>,
    /// Make the calls sequentially, in the order of the parts. Required for several unsafe calls.
    #[serde(default)]
    pub sequential: bool,
    /// The status of a response in which an optional part is missing. Default: 200.
    #[serde(default)]
    #[schemars(range(min = 200, max = 299))]
    pub partial: Option<u16>,
}

/// A parameter of a request.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InputDeclaration {
    /// The type.
    #[serde(rename = "type")]
    pub kind: InputType,
    /// The type of an array's items. Default: `string`.
    #[serde(default)]
    pub items: Option<InputType>,
    /// The location. Default: the path, if the route's path contains `{NAME}`, otherwise the query.
    #[serde(default, rename = "in")]
    pub place: Option<InputPlace>,
    /// The name of the path segment, query parameter or header. Default: the name of the input.
    #[serde(default)]
    pub name: Option<String>,
    /// The value if the request has none.
    #[serde(default)]
    pub default: Option<Value>,
    /// Refuse requests without it.
    #[serde(default)]
    pub required: bool,
    /// The minimum of a number.
    #[serde(default)]
    pub minimum: Option<f64>,
    /// The maximum of a number.
    #[serde(default)]
    pub maximum: Option<f64>,
    /// The allowed values. Default: all values of the type.
    #[serde(default, rename = "enum")]
    pub values: Vec<Value>,
    /// The maximum number of bytes of a text, or of items of an array. Default: 1000.
    #[serde(default)]
    pub max_length: Option<usize>,
    /// A description for the gateway's OpenAPI document.
    #[serde(default)]
    pub description: String,
}

/// The type of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InputType {
    /// A whole number.
    Integer,
    /// A number in JSON syntax.
    Number,
    /// `true` or `false`.
    Boolean,
    /// A text.
    String,
    /// Several values, separated by commas or as a repeated parameter.
    Array,
}

/// The location of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InputPlace {
    /// The route's path.
    Path,
    /// The URL's query.
    Query,
    /// The headers.
    Header,
}

/// A call to a service, or a call for each of several items. Exactly one of the methods must be set, with the
/// target `service/path?query`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PartDeclaration {
    /// The target of a `GET`.
    #[serde(default)]
    pub get: Option<String>,
    /// The target of a `HEAD`, which checks that a resource exists. The value is `null`.
    #[serde(default)]
    pub head: Option<String>,
    /// The target of a `POST`.
    #[serde(default)]
    pub post: Option<String>,
    /// The target of a `PUT`.
    #[serde(default)]
    pub put: Option<String>,
    /// The target of a `PATCH`.
    #[serde(default)]
    pub patch: Option<String>,
    /// The target of a `DELETE`.
    #[serde(default)]
    pub delete: Option<String>,
    /// The request body: JSON with placeholders. `"{body}"` is the client's body.
    #[serde(default, deserialize_with = "present")]
    pub body: Option<Value>,
    /// Headers of the call, with placeholders. The service's `forward` setting determines which of the
    /// client's headers it receives.
    #[serde(default)]
    pub headers: IndexMap<String, String>,
    /// Make a call for each item of this list: the name of a part or input, or `$.part.path` for an array in
    /// a part. Equal calls are made once.
    #[serde(default)]
    pub each: Option<String>,
    /// With `each`: the name of the response in its item. Default: the name of the part.
    #[serde(default, rename = "as")]
    pub name: Option<String>,
    /// With `each`: keep the responses as a list of their own, in the order of the items.
    #[serde(default)]
    pub apart: bool,
    /// Put the rows of this part's array into the items of another part with the same key.
    #[serde(default)]
    pub join: Option<JoinDeclaration>,
    /// The position of the part's value in the response body, as a JSON Pointer such as `/items`. Default:
    /// the whole body.
    #[serde(default)]
    pub at: Option<String>,
    /// The fields to keep of the value, or of each of its items: a list of names, or new names with the paths
    /// of their values.
    #[serde(default)]
    pub fields: Option<MemberSelection>,
    /// Continue if the part fails: its value is `null`, and the failure is listed in `errors`.
    #[serde(default)]
    pub optional: bool,
    /// The value if the part fails. The failure is listed in `errors`.
    #[serde(default, deserialize_with = "present")]
    pub default: Option<Value>,
    /// The maximum time for all calls of the part.
    #[serde(default)]
    pub timeout: Option<DurationConfig>,
    /// The maximum number of values of a list in one URL. Longer lists are split into several calls. Default:
    /// as many as fit into 8000 bytes.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub batch: Option<usize>,
}

/// A join of rows into items.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JoinDeclaration {
    /// The part whose items receive the rows, or `$.part.path` for an array or object in it.
    pub into: String,
    /// The key in the item, and the key in the row: `id = buyer_id`.
    pub on: String,
    /// The name of the rows in the item. Default: the name of the part.
    #[serde(default, rename = "as")]
    pub name: Option<String>,
    /// Put in a single row instead of a list: `true` if each key has at most one row, `first` if it may have
    /// several.
    #[serde(default)]
    pub one: RowCardinality,
    /// The treatment of an item without rows.
    #[serde(default)]
    pub missing: MissingRows,
    /// Compare keys as texts, so that 7 equals `"7"`.
    #[serde(default)]
    pub text: bool,
}

/// Whether an item receives one row or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum RowCardinality {
    /// The only row if true, all rows if false.
    Only(bool),
    /// The first row.
    First(FirstRow),
}

/// The first of several rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FirstRow {
    /// `first`
    First,
}

impl Default for RowCardinality {
    fn default() -> Self {
        Self::Only(false)
    }
}

/// The treatment of an item without rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MissingRows {
    /// The item gets `null` or an empty list.
    #[default]
    Null,
    /// The part fails.
    Error,
}

/// The fields to keep of an object.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum MemberSelection {
    /// The members with these names.
    Some(Vec<String>),
    /// Members with new names, and the paths of their values in the object: `{ town: .address.city }`.
    Renamed(IndexMap<String, String>),
}

/// The shape of the response.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ResponseShapeDeclaration {
    /// A single part, unchanged.
    Part(String),
    /// An object with these parts.
    Parts(Vec<String>),
    /// An object with the members of several parts.
    Merged(MergedParts),
}

/// An object with the members of several parts.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MergedParts {
    /// The parts, which must be objects.
    #[schemars(length(min = 1))]
    pub merge: Vec<String>,
    /// The resolution of members with the same name.
    #[serde(default)]
    pub conflict: MemberConflict,
}

/// The resolution of members with the same name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MemberConflict {
    /// The request fails.
    #[default]
    Error,
    /// The member of the part that is named first is kept.
    First,
    /// The member of the part that is named last is kept.
    Last,
}

/// Deserializes a value that is present, which may be `null`.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}
