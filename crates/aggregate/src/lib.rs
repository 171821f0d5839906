//! Declared aggregates: one request becomes several calls, and their answers one answer.
//!
//! Of a declaration, a file a step: `declaration.rs` (what is written) → `plan.rs` (what it means, and every mistake in it),
//! with `template.rs` (placeholders) and `input.rs` (what a request may say). Of a request: `aggregate.rs` → `run.rs` (parts
//! are called when what they need is there) with `run/each.rs` (those that are called for each item), `render.rs` (requests of
//! templates) and `value.rs` (what came) → `assemble.rs` (parts are put into each other) → `answer.rs`; `stream.rs` hands
//! long answers on while they come. `problem.rs` holds all that can go wrong on it.
//! `explain.rs` and `operation.rs` say what an aggregate does, to people and in OpenAPI.
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

pub use aggregate::{Aggregate, Documents, Ground};
pub use config::{AggregateConfig, AggregateOptions, LimitsConfig};
pub use declaration::Declaration;
pub use explain::{Explanation, Step};
pub use mistake::Mistake;
