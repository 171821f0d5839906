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

pub use compose::{
    CompositionError, CompositionErrorKind, ServiceSchema, Supergraph, compose, read as read_supergraph,
};
pub use config::{
    CoalesceConfig, DocumentsConfig, DocumentsOptions, GraphqlConfig, GraphqlLimits, IntrospectionAccess,
    IntrospectionCallers,
};
pub use error::{GraphqlError, ResponsePathStep};
pub use fetched::{FetchOutcome, FetchedValues, SourceError, ValueLocation};
pub use mistake::{SchemaMistake, SchemaMistakeLocation, SchemaWarning};
pub use plan::explain::{ExplainedStep, PlanExplanation};
pub use recipe::{RemoteService, RemoteServices, ServiceDocuments};
pub use route::{GraphqlRoute, GraphqlRouteContext, SchemaUnavailable};
pub use schema::{FieldChange, LinkDeclaration, SchemaDeclarations, TypeChange};
pub use schemas::RemoteSchemas;
pub use serve::DocumentFile;
pub use subgraph::{
    BatchStrategy, BoundCall, EntityBinding, ItemMatch, LinkedField, OperationKind, RestOperation,
    RestParameter, ScalarInput, Subgraph, SubgraphBindings, SubgraphProtocol, TypeBinding, TypeRule,
};
