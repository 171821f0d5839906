//! GraphQL over every service: REST ones by their OpenAPI documents, GraphQL ones as they are, in one schema.
//!
//! Once, when the config is put to work: `schema/` (each service becomes a subgraph, links become fields of its types) →
//! `compose/` (all subgraphs become one supergraph, or a ready one is read). For each document of a client: `plan/`
//! (validated, planned, lowered to steps; kept). For each request: `serve/` (read, by the GraphQL-over-HTTP specification)
//! → `execute/` (steps are made as soon as what they need is there, and the answer is cut out of what came) with `rest/`,
//! `remote/` and `by_key/` (the calls, by `sources.rs`). What they say to each other stands in `subgraph.rs` and `fetched.rs`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod answer;
mod by_key;
mod compose;
mod config;
mod error;
mod execute;
mod fetched;
mod mistake;
mod plan;
mod reason;
mod recipe;
mod remote;
mod rest;
#[cfg(test)]
mod rig;
mod route;
mod schema;
mod schemas;
mod serve;
mod sources;
mod subgraph;

pub use compose::{Code, CompositionError, Part, Supergraph, compose, read as read_supergraph};
pub use config::{
    CoalesceConfig, DocumentsConfig, DocumentsOptions, GraphqlConfig, GraphqlLimits, Introspection,
    IntrospectionCallers,
};
pub use error::{GraphqlError, Segment};
pub use fetched::{Fetched, Found, Place, SourceError};
pub use mistake::{At, Finding, Mistake};
pub use plan::explain::{ExplainedStep, Explanation};
pub use recipe::{Documents, RemoteService, RemoteServices};
pub use route::{Graphql, Ground, Unsettled};
pub use schema::{FieldChange, LinkDeclaration, Links, TypeChange};
pub use schemas::Schemas;
pub use serve::DocumentFile;
pub use subgraph::{
    Ask, Bindings, Entity, How, Joined, Kind, Link, Operation, OperationKind, Parameter, ScalarInput,
    Subgraph, Told, TypeBinding,
};
