//! The query: a program that the client sends runs beside the services and answers in one request.
//!
//! The way of a request, a file a step:
//! `ask.rs` (what the HTTP request asks for) → `claim.rs` (whose program it is, and by what right it runs: `owner.rs`,
//! `cached.rs`, `token.rs`, `trust.rs`) → `program.rs` (checked, compiled once for each owner, kept) → `run.rs` (an instance,
//! fresh or one of `live.rs`, the host functions of `host.rs`, limits) → `answer.rs` (HTTP again). `route.rs` is the way itself,
//! `runtime.rs` what all routes share, `stored.rs` the programs that the operator deploys,
//! `route/describe.rs` what a route says of itself. `problem.rs` holds all that can go wrong on it,
//! `config.rs` what an operator writes, `limits.rs` the limits that exist twice. The protocol
//! and the ABI stand in docs/query.md and in `query-abi`.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod answer;
mod ask;
mod blocked;
mod cached;
mod claim;
mod config;
mod environment;
mod fields;
mod futures;
mod guest;
mod host;
mod lanes;
mod limits;
mod live;
mod owner;
mod problem;
mod program;
mod random;
mod record;
mod replay;
mod route;
mod run;
mod runtime;
mod start;
mod stored;
mod token;
mod trust;
mod typescript;

#[cfg(test)]
mod fuzz;

pub use ask::Language;
pub use blocked::{BlockedPrograms, ProgramsConfig};
pub use cached::Mode;
pub use config::{CallerLimits, LimitsConfig, Programs, QueryConfig, RuntimeConfig};
pub use record::{ANYONE, Recording, RecordingError};
pub use replay::{Replay, ReplayError, Replayed, javascript};
pub use route::{Documents, Ground, Query};
pub use runtime::{Instances, Runtime};
pub use sandbox::Gate;
pub use start::StartError;
pub use stored::files as stored_files;
pub use trust::{KeyConfig, TrustConfig, Trusted, is_low, public_key, signed};
