//! Declared aggregates: one request becomes several upstream calls, whose responses are composed into one.
//!
//! The modules, each of which uses only those before it:
//!
//! - `config`: the section of a route. `memory`: the memory of a request. `problem`: its errors.
//! - `declaration/`: the file format of an aggregate, and the mistakes in it.
//! - `plan/`: the meaning of a declaration, with its inputs and templates.
//! - `value/`: the data of a request, with long responses that are passed through while they arrive.
//! - `run/`: renders and calls each part when its dependencies have completed.
//! - `response/`: composes the responses of the parts.
//! - `aggregate`: the handler. Steps that take long by the estimates of `offload::work` run off the serving
//!   thread.
//! - `describe/`: explains an aggregate as text and in OpenAPI.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod aggregate;
mod config;
mod declaration;
mod describe;
mod memory;
mod plan;
mod problem;
mod response;
mod run;
mod value;

#[cfg(test)]
mod tests;

pub use aggregate::{Aggregate, AggregateContext, OpenApiDocuments};
pub use config::{AggregateConfig, AggregateLimitsConfig, AggregateOptions};
pub use declaration::AggregateDeclaration;
pub use describe::explain::{AggregateExplanation, ExplainedPart};
