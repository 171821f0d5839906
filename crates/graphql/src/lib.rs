//! GraphQL over REST services (described by OpenAPI documents) and GraphQL services, combined into one
//! schema.
//!
//! The modules, each of which uses only those before it:
//!
//! - `config` and `error`: the section of a route, and the errors for clients.
//! - `subgraph`: a service as a subgraph, the type that the modules below exchange.
//! - `fetch/`: calls to services, and the locations of their results.
//! - `compose/`: composes subgraphs into a supergraph, or reads an existing one.
//! - `schema/`: turns each service into a subgraph, and links into fields of its types.
//! - `plan/`: validates a document, plans it, lowers the plan to steps and caches the result.
//! - `execute/`: starts each step when its inputs are available, and writes the response from the results.
//! - `serve/`: GraphQL over HTTP.
//! - `route/`: builds a route's schema when a config is activated, and handles its requests.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod compose;
mod config;
mod error;
mod execute;
mod fetch;
mod plan;
mod route;
mod schema;
mod serve;
mod subgraph;

pub use compose::{ServiceSchema, Supergraph, compose, read_supergraph};
pub use config::{
    CoalesceConfig, DocumentsConfig, DocumentsOptions, GraphqlConfig, GraphqlLimits, IntrospectionAccess,
    IntrospectionCallers,
};
pub use error::{GraphqlError, ResponsePathStep};
pub use fetch::outcome::{FetchOutcome, FetchedValues, SourceError, ValueLocation};
pub use plan::explain::{ExplainedStep, PlanExplanation};
pub use route::remote_schemas::RemoteSchemas;
pub use route::schema_inputs::{RemoteService, RemoteServices, ServiceDocuments};
pub use route::{GraphqlRoute, GraphqlRouteContext, SchemaUnavailable};

pub use schema::{FieldChange, LinkDeclaration, SchemaDeclarations, TypeChange};
pub use serve::DocumentFile;
pub use subgraph::{
    BatchStrategy, BoundCall, EntityBinding, ItemMatch, LinkedField, OperationKind, RestOperation,
    RestParameter, ScalarInput, Subgraph, SubgraphBindings, SubgraphProtocol, TypeBinding, TypeRule,
};
