//! GraphQL over REST services (described by OpenAPI documents) and GraphQL services, combined into one
//! schema.
//!
//! When a config is activated: `schema/` turns each service into a subgraph and links into fields of its
//! types; `compose/` composes the subgraphs into a supergraph, or reads an existing one. For each client
//! document: `plan/` validates it, plans it, lowers the plan to steps and caches the result. For each
//! request: `serve/` reads it according to the GraphQL-over-HTTP specification; `execute/` starts each step
//! when its inputs are available and writes the response from the results. The calls are made by `rest/`,
//! `remote/` and `keyed_fetch/`, with `route_services.rs`. The types that these modules exchange are in
//! `subgraph.rs` and `fetch_outcome.rs`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod call_failure;
mod compose;
mod config;
mod error;
mod execute;
mod fetch_outcome;
mod keyed_fetch;
mod plan;
mod remote;
mod remote_schemas;
mod rest;
mod route;
mod route_services;
mod schema;
mod schema_inputs;
mod schema_mistake;
mod serve;
mod service_response;
#[cfg(test)]
mod shop_fixture;
mod subgraph;

pub use compose::{
    CompositionError, CompositionErrorKind, ServiceSchema, Supergraph, compose, read_supergraph,
};
pub use config::{
    CoalesceConfig, DocumentsConfig, DocumentsOptions, GraphqlConfig, GraphqlLimits, IntrospectionAccess,
    IntrospectionCallers,
};
pub use error::{GraphqlError, ResponsePathStep};
pub use fetch_outcome::{FetchOutcome, FetchedValues, SourceError, ValueLocation};
pub use plan::explain::{ExplainedStep, PlanExplanation};
pub use remote_schemas::RemoteSchemas;
pub use route::{GraphqlRoute, GraphqlRouteContext, SchemaUnavailable};
pub use schema::{FieldChange, LinkDeclaration, SchemaDeclarations, TypeChange};
pub use schema_inputs::{RemoteService, RemoteServices, ServiceDocuments};
pub use schema_mistake::{SchemaMistake, SchemaMistakeLocation, SchemaWarning};
pub use serve::DocumentFile;
pub use subgraph::{
    BatchStrategy, BoundCall, EntityBinding, ItemMatch, LinkedField, OperationKind, RestOperation,
    RestParameter, ScalarInput, Subgraph, SubgraphBindings, SubgraphProtocol, TypeBinding, TypeRule,
};
