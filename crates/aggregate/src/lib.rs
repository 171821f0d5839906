//! Declared aggregates: one request becomes several upstream calls, whose responses are composed into one.
//!
//! A declaration is processed by `declaration.rs` (the file format) → `plan.rs` (its meaning, and every
//! mistake in it), with `template.rs` (placeholders) and `input.rs` (request parameters). A request is
//! processed by `aggregate.rs` → `run.rs` (calls each part when its dependencies have completed) with
//! `run/each.rs` (parts that are called for each item), `render.rs` (requests from templates) and `value.rs`
//! (responses) → `assemble.rs` (composes the parts) → `answer.rs`. `stream.rs` passes long responses through
//! while they arrive. Steps that take long by the estimates of `offload::work` run off the serving thread.
//! `problem.rs` defines all errors of a request. `explain.rs` and `operation.rs` describe an aggregate, as
//! text and in OpenAPI.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod aggregate;
mod answer;
mod assemble;
mod config;
mod declaration;
mod explain;
mod input;
mod memory;
mod mistake;
mod operation;
mod plan;
mod problem;
mod render;
mod run;
mod stream;
mod template;
mod value;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;

pub use aggregate::{Aggregate, AggregateContext, OpenApiDocuments};
pub use config::{AggregateConfig, AggregateLimitsConfig, AggregateOptions};
pub use declaration::AggregateDeclaration;
pub use explain::{AggregateExplanation, ExplainedPart};
pub use mistake::AggregateMistake;
