//! The query: a program that the client sends runs beside the services and answers in one request.
//!
//! The way of a request, a file a step:
//! `ask.rs` (what the HTTP request asks for) → `program.rs` (checked, compiled once per content hash, kept) →
//! `run.rs` (a fresh instance, the host functions of `host.rs`, limits) → `answer.rs` (HTTP again); `route.rs` is
//! the way itself, `runtime.rs` what all routes share. `problem.rs` holds all that can go wrong on it, `config.rs` what an operator writes, `limits.rs` the
//! limits that exist twice. The protocol and the ABI stand in docs/query.md and in `query-abi`.

mod answer;
mod ask;
mod config;
mod environment;
mod futures;
mod guest;
mod host;
mod limits;
mod pools;
mod problem;
mod program;
mod route;
mod run;
mod runtime;
mod start;
mod typescript;

#[cfg(test)]
mod fuzz;

pub use config::{CallerLimits, LimitsConfig, Programs, QueryConfig, RuntimeConfig};
pub use route::Query;
pub use runtime::{Instances, Runtime};
pub use services::Report;
pub use start::StartError;
