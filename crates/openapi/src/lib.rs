//! OpenAPI documents: what a service says of itself, as a model that types and schemas are made from.
//!
//! Text in, model out: nothing here reads the network, and nothing runs. The way of a document, a file a step: `yaml.rs`
//! (JSON or YAML to a tree) → `swagger.rs` (Swagger 2 to the shape of OpenAPI 3.1) → `operation.rs` and `schema.rs`
//! (the model, with the links of `links.rs`, by `reader.rs`, which follows `$ref`) → `typescript.rs` (types for query programs).
//!
//! Real documents are odd in places. What can't be read for what it is becomes [`Schema::Unknown`] and a [`Finding`], and
//! the rest of the document counts; only a text that is no OpenAPI document at all is [`Unreadable`].
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod document;
mod links;
mod names;
mod operation;
mod reader;
mod schema;
mod swagger;
mod typescript;
mod yaml;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;

pub use document::{Document, Finding, Unreadable};
pub use operation::{Content, Link, Operation, Parameter, Place, Target};
pub use schema::{Access, Member, Object, Schema, Told};
pub use typescript::{Open, types};
