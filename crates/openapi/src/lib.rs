//! OpenAPI documents: a service's description of its operations, as a model that types and schemas are
//! generated from.
//!
//! This crate converts text to a model; it neither accesses the network nor runs code. A document passes
//! through these files in order: `yaml.rs` (JSON or YAML to a tree) → `swagger.rs` (Swagger 2 to the shape of
//! OpenAPI 3.1) → `operation.rs`, with `links.rs` and `schema_reader.rs` (the model) → `document.rs` (all of
//! it) → `typescript.rs` (types for query programs). Below them are `names.rs`, `schema.rs` (the model of a
//! schema) and `reader.rs`, which follows `$ref`.
//!
//! Real documents contain errors. A part that can't be interpreted becomes [`OpenApiSchema::Unknown`] and a
//! warning, and the rest of the document is used. Only a text that is not an OpenAPI document at all is
//! [`DocumentError`].
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod document;
mod links;
mod names;
mod operation;
mod reader;
mod schema;
mod schema_reader;
mod swagger;
mod typescript;
mod yaml;

#[cfg(test)]
mod tests;

pub use document::{DocumentError, OpenApiDocument};
pub use links::{LinkTarget, ResponseLink};
pub use operation::{BodyContent, OpenApiOperation, OperationParameter, ParameterLocation};
pub use schema::{DiscriminatedUnion, MemberAccess, MemberSchema, ObjectSchema, OpenApiSchema};
pub use typescript::{CallableService, generate_types};
