//! OpenAPI documents: a service's description of its operations, as a model that types and schemas are
//! generated from.
//!
//! This crate converts text to a model; it neither accesses the network nor runs code. A document passes
//! through these files in order: `yaml.rs` (JSON or YAML to a tree) → `swagger.rs` (Swagger 2 to the shape of
//! OpenAPI 3.1) → `operation.rs` and `schema.rs` (the model, with the links of `links.rs`, using `reader.rs`,
//! which follows `$ref`) → `typescript.rs` (types for query programs).
//!
//! Real documents contain errors. A part that can't be interpreted becomes [`OpenApiSchema::Unknown`] and a
//! [`DocumentWarning`], and the rest of the document is used. Only a text that is not an OpenAPI document at
//! all is [`DocumentError`].
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

pub use document::{DocumentError, DocumentWarning, OpenApiDocument};
pub use operation::{
    BodyContent, LinkTarget, OpenApiOperation, OperationParameter, ParameterLocation, ResponseLink,
};
pub use schema::{DiscriminatedUnion, MemberAccess, MemberSchema, ObjectSchema, OpenApiSchema};
pub use typescript::{CallableService, generate_types};
