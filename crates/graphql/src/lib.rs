//! GraphQL over REST services (described by OpenAPI documents) and GraphQL services, combined into one
//! schema.
//!
//! When a config is activated: `schema/` turns each service into a subgraph and links into fields of its
//! types; `compose/` composes the subgraphs into a supergraph, or reads an existing one. For each client
//! document: `plan/` validates it, plans it, lowers the plan to steps and caches the result. For each
//! request: `serve/` reads it according to the GraphQL-over-HTTP specification; `execute/` starts each step
//! when its inputs are available and writes the response from the results. The calls are made by `rest/`,
//! `remote/` and `by_key/`, with `sources.rs`. The types that these modules exchange are in `subgraph.rs` and
//! `fetched.rs`.
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
