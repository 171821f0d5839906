//! The file that declares an aggregate, as it is written: before anything in it is understood.
//!
//! `plan.rs` makes sense of it, and finds what a schema can't.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use services::Duration;

/// An aggregate: what it takes, the calls that it makes, the answer that it makes of theirs.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Declaration {
    /// What it answers, in a few words: for the gateway's OpenAPI document.
    #[serde(default)]
    pub summary: String,
    /// The same at length.
    #[serde(default)]
    pub description: String,
    /// What a request may say, by name.
    #[serde(default)]
    pub input: IndexMap<String, Input>,
    /// The calls to services, by name.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 32))]
    pub parts: IndexMap<String, Part>,
    /// What of the parts is the answer: a part's name, a list of names, or how parts are merged. Without it: an object
    /// with all parts that are not joined into another one.
    #[serde(default)]
    pub answer: Option<Answer>,
    /// Make the calls one after the other, in the order of their parts. Only then may several of them be unsafe.
    #[serde(default)]
    pub sequential: bool,
    /// The status of an answer in which an optional part is missing. Without it: 200.
    #[serde(default)]
    #[schemars(range(min = 200, max = 299))]
    pub partial: Option<u16>,
}

/// Something that a request may say.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// What it is.
    #[serde(rename = "type")]
    pub kind: InputType,
    /// Of a list: what its items are. Without it: texts.
    #[serde(default)]
    pub of: Option<InputType>,
    /// Where it stands. Without it: in the path, if the route's path has `{NAME}`, else in the query.
    #[serde(default, rename = "in")]
    pub place: Option<InputPlace>,
    /// What the parameter or header is called. Without it: the input's own name.
    #[serde(default)]
    pub name: Option<String>,
    /// Its value where the request says nothing.
    #[serde(default)]
    pub default: Option<Value>,
    /// Refuse requests without it.
    #[serde(default)]
    pub required: bool,
    /// The least that a number may be.
    #[serde(default)]
    pub minimum: Option<f64>,
    /// The most that a number may be.
    #[serde(default)]
    pub maximum: Option<f64>,
    /// The only values that it may have.
    #[serde(default)]
    pub values: Vec<Value>,
    /// The most bytes of a text, or items of a list. Without it: 1000.
    #[serde(default)]
    pub longest: Option<usize>,
    /// What it means: for the gateway's OpenAPI document.
    #[serde(default)]
    pub description: String,
}

/// What an input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InputType {
    /// A whole number.
    Integer,
    /// A number, as JSON spells it.
    Number,
    /// `true` or `false`.
    Boolean,
    /// A text.
    String,
    /// Several values: with commas between them, or the parameter several times.
    List,
}

/// Where an input stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InputPlace {
    /// In the route's path.
    Path,
    /// In the URL's query.
    Query,
    /// Among the headers.
    Header,
}

/// A call to a service, or one for each of many items. Exactly one of the methods is there, with what to call:
/// `service/path?query`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// What to `GET`.
    #[serde(default)]
    pub get: Option<String>,
    /// What to `HEAD`: whether it is there; the value is `null`.
    #[serde(default)]
    pub head: Option<String>,
    /// Where to `POST`.
    #[serde(default)]
    pub post: Option<String>,
    /// Where to `PUT`.
    #[serde(default)]
    pub put: Option<String>,
    /// What to `PATCH`.
    #[serde(default)]
    pub patch: Option<String>,
    /// What to `DELETE`.
    #[serde(default)]
    pub delete: Option<String>,
    /// What is sent: JSON in which placeholders may stand; `"{body}"` is what the client sent.
    #[serde(default, deserialize_with = "present")]
    pub body: Option<Value>,
    /// Headers of the call; placeholders may stand in them. Which of the client's own headers a service gets is said
    /// by the service's `forward`.
    #[serde(default)]
    pub headers: IndexMap<String, String>,
    /// Call once for each item: the name of a part or of an input, or `$.part.path` to an array in it. Equal calls are
    /// made once.
    #[serde(default)]
    pub each: Option<String>,
    /// Of `each`: what the answer is called in its item. Without it: the part's name.
    #[serde(default, rename = "as")]
    pub name: Option<String>,
    /// Of `each`: keep the answers as a list of their own, in the order of the items.
    #[serde(default)]
    pub apart: bool,
    /// Put the rows of this part's array into the items of another part that have the same key.
    #[serde(default)]
    pub join: Option<Join>,
    /// Where in the body of the answer the part's value is: a JSON Pointer, as in `/items`. Without it: the whole body.
    #[serde(default)]
    pub at: Option<String>,
    /// What stays of the value, or of each of its items: names of members, or new names, each with the place of its value.
    #[serde(default)]
    pub fields: Option<Fields>,
    /// Answer without it if it fails: it is `null`, and what was wrong stands under `errors`.
    #[serde(default)]
    pub optional: bool,
    /// Its value if it fails; what was wrong stands under `errors`.
    #[serde(default, deserialize_with = "present")]
    pub default: Option<Value>,
    /// How long it may take, with all its calls.
    #[serde(default)]
    pub timeout: Option<Duration>,
    /// As many values of a list stand in one URL at most; more are asked for in further calls. Without it: as many as fit
    /// into 8000 bytes.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub batch: Option<usize>,
}

/// Where rows go.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Join {
    /// The part whose items get the rows, or `$.part.path` to an array or object in it.
    pub into: String,
    /// The key in the item, and the key in the row: `id = buyer_id`.
    pub on: String,
    /// What the rows are called in the item. Without it: the part's name.
    #[serde(default, rename = "as")]
    pub name: Option<String>,
    /// Put in one row and not a list: `true`, if each key has one row at most, `first` where it may have several.
    #[serde(default)]
    pub one: One,
    /// What becomes of an item without rows.
    #[serde(default)]
    pub missing: Missing,
    /// Compare keys as texts, so that 7 is `"7"`.
    #[serde(default)]
    pub text: bool,
}

/// Whether an item gets one row, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum One {
    /// One, which is the only one, or all.
    Only(bool),
    /// The first one.
    First(First),
}

/// The first row of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum First {
    /// `first`
    First,
}

impl Default for One {
    fn default() -> Self {
        Self::Only(false)
    }
}

/// What becomes of an item without rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Missing {
    /// It gets `null`, or an empty list.
    #[default]
    Null,
    /// The part has failed.
    Error,
}

/// What stays of an object.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Fields {
    /// These members.
    Some(Vec<String>),
    /// Members with new names, and the place of each in the object: `{ town: .address.city }`.
    Renamed(IndexMap<String, String>),
}

/// What of the parts is the answer.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Answer {
    /// This part, as it is.
    Part(String),
    /// An object with these parts.
    Parts(Vec<String>),
    /// One object of the members of several.
    Merged(Merged),
}

/// One object of the members of several.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Merged {
    /// The parts, which are objects.
    #[schemars(length(min = 1))]
    pub merge: Vec<String>,
    /// Which of two members with the same name stays.
    #[serde(default)]
    pub conflict: Conflict,
}

/// Which of two members with the same name stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Conflict {
    /// Neither: the request fails.
    #[default]
    Error,
    /// That of the part that is named first.
    First,
    /// That of the part that is named last.
    Last,
}

/// What is written, `null` too.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}
